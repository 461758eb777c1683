"""The power calculator against the gates that it stands for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.gates.challenger_kit import play, run_pair
from typer.testing import CliRunner

from seamark.cli import app
from seamark.experiments.power import Plan, _scores, challenger_power, looks, paper_power, power
from seamark.gates import ChallengerGate, PaperGate
from seamark.policies import ActingForm, LinearPolicy

PLAN = Plan(0.18, 0.5, 4, epsilon=0.2, share_changed=0.4)


def _world(plan: Plan) -> tuple[Any, Any, Any, Any]:
    """Ten contexts, in a share of which the candidate prefers action 1; mean rewards as the plan has them."""
    n = 10
    changed = round(plan.changed * n)
    pool = np.column_stack([np.ones(n), np.arange(n) < changed])
    low, high = plan.means
    means = np.full((n, plan.n_actions), plan.reward_rate)
    means[:changed, 0], means[:changed, 1] = low, high
    acts = ActingForm.epsilon_greedy(plan.epsilon)
    deployed, candidate = np.zeros((plan.n_actions, 2)), np.zeros((plan.n_actions, 2))
    deployed[0, 0] = candidate[0, 0] = 1.0
    candidate[1, 1] = 2.0
    return LinearPolicy(deployed, acts).frozen(), LinearPolicy(candidate, acts).frozen(), pool, means


def test_the_picture_has_the_lift_that_was_asked_for() -> None:
    for plan in (PLAN, Plan(0.05, 0.9, 10), Plan(0.1, 0.3, 5, logging="boltzmann", top=0.6, epsilon=0.05)):
        deployed, _ = plan.means
        scores, p, bounds = _scores(plan)

        np.testing.assert_allclose(p @ scores, plan.lift, rtol=1e-9)
        assert (scores >= -bounds - 1e-9).all()
        assert 0 <= deployed <= 1
    directed = Plan(0.05, 0.5, 10, explore_share=0.5)
    scores, p, bounds = _scores(directed)
    np.testing.assert_allclose(p @ scores, directed.lift, rtol=1e-9)
    assert (scores >= -bounds - 1e-9).all()


@pytest.mark.slow
def test_the_challengers_median_is_that_of_the_gate_itself() -> None:
    """41 runs of the gate: their median is within a factor 1.5 of the plan's. Catches: a level without its share of
    the spending (factor 2), a lift that forgets epsilon, weights of the wrong action (factor 3 and more)."""
    plan = PLAN
    deployed, candidate, pool, means = _world(plan)
    rounds = []
    for seed in range(41):
        gate = ChallengerGate(plan.n_actions, first_freeze=1)
        decision = run_pair(
            gate, deployed, candidate, pool, means, np.random.default_rng(seed), n=20_000, leg=25
        )  # fmt: skip
        assert decision is not None
        rounds.append(decision.at)
    foretold = challenger_power(plan).median

    assert foretold is not None
    assert 1 / 1.5 < np.median(rounds) / foretold < 1.5


@pytest.mark.slow
def test_the_papers_rounds_are_those_of_its_gate() -> None:
    """Medians of 15 runs within a factor 1.25: the paper's radii hardly vary between runs."""
    plan = PLAN
    deployed, candidate, pool, means = _world(plan)
    foretold = paper_power(plan).median
    assert foretold is not None
    rounds = []
    for seed in range(15):
        gate, rng = PaperGate(plan.n_actions), np.random.default_rng(seed)
        gate.reign(deployed, 0, 0)
        for t in range(0, 3 * foretold, 100):
            gate.observe(play(deployed, pool, means, 100, rng, first=t), deployed)
            if gate.offer(candidate, t + 100).deploys:
                rounds.append(t + 100)
                break

    assert len(rounds) == 15
    assert 1 / 1.25 < np.median(rounds) / foretold < 1.25


def test_what_helps_helps() -> None:
    base = challenger_power(Plan(0.05, 0.5, 10)).median
    assert base is not None
    for better in (Plan(0.1, 0.5, 10), Plan(0.05, 0.5, 10, epsilon=0.3), Plan(0.05, 0.5, 10, explore_share=0.5)):
        found = challenger_power(better).median
        assert found is not None
        assert found < base


def test_the_paper_refuses_where_there_is_no_floor_and_says_so() -> None:
    found = paper_power(Plan(0.05, 0.5, 10, logging="boltzmann", epsilon=0.0))

    assert found.median is None
    assert "refuses" in found.note


def test_a_horizon_that_is_too_short_gives_no_number() -> None:
    plan = Plan(0.01, 0.5, 10)

    assert challenger_power(plan, horizon=500).median is None
    assert paper_power(plan, horizon=500).median is None
    assert looks(500)[-1] == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lift": 0.0}, "lift"),
        ({"lift": 0.6, "reward_rate": 0.5}, "lift"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"share_changed": 0.01}, "share_changed"),
        ({"n_actions": 1}, "n_actions"),
        ({"logging": "boltzmann", "top": 0.05}, "top"),
    ],
)
def test_impossible_plans_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**{"lift": 0.1, "reward_rate": 0.5, "n_actions": 10, **options})


def test_the_command_prints_a_table_and_its_exit_code_says_whether_it_would_promote() -> None:
    arguments = ["plan", "--lift", "0.2", "--reward-rate", "0.5", "--actions", "4"]
    long, short = (CliRunner().invoke(app, [*arguments, "--rounds", n]) for n in ("100000", "100"))

    assert long.exit_code == 0
    assert short.exit_code == 3
    assert "challenger" in long.stdout
    assert "paper" in long.stdout


def test_the_commands_json_is_the_same_numbers() -> None:
    arguments = ["plan", "--lift", "0.2", "--reward-rate", "0.5", "--actions", "4", "--floor", "0.2", "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    again = power(Plan(0.2, 0.5, 4, epsilon=0.2))

    assert found["gates"] == again["gates"]
    assert found["promotes"]


def test_an_option_of_boltzmann_logging_is_refused_without_it() -> None:
    arguments = ["plan", "--lift", "0.05", "--reward-rate", "0.5", "--actions", "5", "--top", "0.8"]
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 2
    assert "--top 0.8: is for --logging boltzmann" in done.stderr
    assert CliRunner().invoke(app, [*arguments, "--logging", "boltzmann", "--json"]).exit_code in (0, 3)
