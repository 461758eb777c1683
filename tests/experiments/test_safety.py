"""The safety benchmark: its worlds are what they say, its judgement is exact, and it shows what it is there to show."""

from __future__ import annotations

import json
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import drawn_rounds, random_linear, small_world
from typer.testing import CliRunner

from seamark.cli import app
from seamark.estimation import maurer_pontil_radius
from seamark.experiments.safety import pair, plan, summary
from seamark.experiments.safety.cell import SafetyCell, run_cell
from seamark.experiments.safety.gates import GATES, PairedReusedGate
from seamark.experiments.safety.learners import LEARNERS, ScoredPolicy
from seamark.experiments.safety.pair import fixed_pair, rounds_to_deploy
from seamark.experiments.safety.plan import SCALES, execute, plan_cells
from seamark.experiments.safety.summary import broken_promises, median_with_never, summarise
from seamark.experiments.safety.worlds import WORLDS
from seamark.policies import ActingForm

FIELDS = {
    "gate", "learner", "world", "seeds", "runs_with_false_deployment", "deployments", "worst_value_change",
    "median_first_deployment", "reward_over_baseline", "us_per_round",
}  # fmt: skip


def _cell(gate: str, learner: str, world: str, *, rounds: int, seed: int = 4200) -> SafetyCell:
    return SafetyCell(gate, learner, world, seed, rounds, 500)


def _right(labels: Any) -> Any:
    return lambda rows, actions: (actions == labels[rows]).astype(float)


@pytest.mark.parametrize("seed", [4200, 4201])
def test_null_candidates_are_worth_exactly_the_baseline_and_the_others_less(seed: int) -> None:
    for name, sign in (("null", 0), ("worse", -1)):
        setup = WORLDS[name](seed)
        assert setup.candidates is not None
        world = setup.world.before
        gains = [world.value(setup.candidates(i)) - world.value(setup.baseline) for i in range(3)]
        ids = {setup.candidates(i).id for i in range(3)} | {setup.baseline.id}

        assert len(ids) == 4
        if sign == 0:
            np.testing.assert_allclose(gains, 0.0, atol=1e-12)
        else:
            assert max(gains) < -0.003


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_improves_on_a_weak_baseline_when_rewards_are_perfect(learner: str) -> None:
    """Uniform logging of a small world: what is learned is better than what acted, sparse or dense."""
    for sparse in (False, True):
        rng = np.random.default_rng(1)
        world = small_world(sparse=sparse, n=90)
        baseline = random_linear(rng, 3, 6, tau=0.0, floor=0.5)
        made = LEARNERS[learner](world, baseline, ActingForm.epsilon_greedy(0.1), 0)
        labels = world.labels
        for _ in range(8):
            made.update(drawn_rounds(rng, baseline, world.features, 500, rewards=_right(labels)))
        candidate = made.candidate()

        assert world.value(candidate) > world.value(baseline) + 0.1
        assert candidate.min_probability == pytest.approx(0.1 / 3)


def test_a_scored_policy_acts_alike_on_its_pool_and_on_copies_of_it() -> None:
    rng = np.random.default_rng(2)
    weights, pool = rng.normal(size=(3, 4)), rng.normal(size=(20, 4))
    policy = ScoredPolicy.of(lambda x: np.asarray(x @ weights.T), pool, ActingForm.epsilon_greedy(0.2))

    np.testing.assert_array_equal(policy.probabilities(pool), policy.probabilities(pool.copy()))
    assert policy.frozen() is policy


def test_the_paired_gate_on_reused_data_widens_its_range_after_a_deployment() -> None:
    """Trap 9: the difference of two policies that both differ from the logger spans 2 / p_min."""
    rng = np.random.default_rng(3)
    pool = rng.normal(size=(6, 2))
    deployed, new = random_linear(rng, 2, 2, floor=0.2), random_linear(rng, 2, 2, floor=0.2)
    for reigns, span in ((1, 10.0), (2, 20.0)):
        gate = PairedReusedGate(2)
        gate.reign(deployed, 0, 0)
        gate.observe(drawn_rounds(rng, deployed, pool, 400), deployed)
        if reigns == 2:
            gate.reign(deployed, 400, 1)
        moments = gate.sums.paired_moments(new, deployed)
        lower = moments.mean - maurer_pontil_radius(moments, upper=span, delta=0.05)

        assert gate.offer(new, 400).evidence["lower"] == pytest.approx(lower)


@pytest.mark.parametrize("gate", ["paper", "paired-mp", "means", "released"])
def test_gates_that_reuse_data_deploy_a_tree_that_is_worse(gate: str) -> None:
    """The reuse trap: an unpruned tree on IPS weights, near-random rewards, strong baseline."""
    result = run_cell(_cell(gate, "tree", "digits-near-random-strong", rounds=2_500))

    assert result["deployments"]
    assert all(d["value_change"] < -0.02 for d in result["deployments"][:1])
    assert result["worst_value_change"] < -0.02
    assert result["reward_over_baseline"] < 0


@pytest.mark.parametrize("gate", ["challenger", "holdout"])
def test_gates_that_judge_on_fresh_data_do_not(gate: str) -> None:
    result = run_cell(_cell(gate, "tree", "digits-near-random-strong", rounds=5_000))

    assert result["deployments"] == []
    assert result["worst_value_change"] == 0.0
    assert result["reward_over_baseline"] == 0.0


def test_the_challenger_rolls_back_after_the_drift_and_the_paper_does_not() -> None:
    """From round 5,000 on the answers are swapped. Catches: a pinned slot that is never frozen anew."""
    kept = run_cell(_cell("challenger", "ridge", "drift", rounds=9_000))
    stuck = run_cell(_cell("paper", "ridge", "drift", rounds=9_000))

    rollbacks = [d for d in kept["deployments"] if d["verdict"] == "rollback"]
    assert len(rollbacks) == 1
    assert 5_000 < rollbacks[0]["at"] <= 9_000
    assert rollbacks[0]["value_change"] > 0
    assert all(d["at"] < 5_000 for d in stuck["deployments"])
    assert kept["value_at_end"] > stuck["value_at_end"] + 0.1


def test_a_cell_gives_the_same_numbers_again() -> None:
    first, second = (run_cell(_cell("challenger", "ridge", "drift", rounds=4_000)) for _ in range(2))

    assert first["deployments"] == second["deployments"]
    assert first["reward_over_baseline"] == second["reward_over_baseline"]


def test_finished_cells_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [_cell("means", "fixed", "null", rounds=1_000, seed=s) for s in (1, 2)]
    first = list(execute(cells, tmp_path))
    monkeypatch.setattr(plan, "run_cell", lambda cell: pytest.fail("was run again"))
    again = list(execute(cells, tmp_path))

    assert [r["id"] for r in again] == [r["id"] for r in first]
    assert again[0]["deployments"] == first[0]["deployments"]


def test_rows_have_the_promised_fields_and_count_what_they_say() -> None:
    def result(seed: int, ats: list[int], false: bool) -> dict[str, Any]:
        deployments = [{"at": at, "verdict": "promote", "is_false": false and at == ats[0]} for at in ats]
        return {
            "gate": "paper", "learner": "tree", "world": "null", "seed": seed, "rounds": 100,
            "deployments": deployments, "worst_value_change": -0.1 * seed, "reward_over_baseline": 1.0 * seed,
            "us_per_round": 2.0,
        }  # fmt: skip

    (row,) = summarise([result(1, [10, 20], True), result(2, [], False), result(3, [40], False)])

    assert row.keys() >= FIELDS
    assert (row["seeds"], row["deployments"], row["runs_with_false_deployment"]) == (3, 3, 1)
    assert (row["median_first_deployment"], row["runs_that_deployed"]) == ((10 + 40) / 2, 2)
    assert row["worst_value_change"] == pytest.approx(-0.3)
    assert row["reward_over_baseline"] == 2.0


def test_the_first_deployment_is_that_of_the_runs_that_deployed() -> None:
    """As in the safety table of `seamark run`: a median over them and how many they were; never only if none did."""

    def first(*ats: int | None) -> tuple[float | None, str]:
        results = [
            {
                "gate": "paper", "learner": "tree", "world": "null", "seed": seed, "rounds": 100,
                "deployments": [] if at is None else [{"at": at, "verdict": "promote", "is_false": False}],
                "worst_value_change": 0.0, "reward_over_baseline": 0.0, "us_per_round": 1.0,
            }
            for seed, at in enumerate(ats)
        ]  # fmt: skip
        rows = summarise(results)
        return rows[0]["median_first_deployment"], summary.safety_benchmark_table(rows).rows[0][6]

    assert first(5500, None) == (5500.0, "5,500 (1 of 2)")
    assert first(10, 20) == (15.0, "15")
    assert first(None, None) == (None, "never")


def test_a_median_of_runs_that_mostly_never_deploy_is_never() -> None:
    assert median_with_never([10.0, np.inf, np.inf]) == np.inf
    assert median_with_never([10.0, 20.0, np.inf, np.inf]) == np.inf
    assert median_with_never([10.0, 20.0, np.inf]) == 20.0


def test_a_broken_promise_is_told_by_a_binomial_test_over_all_cells() -> None:
    def rows(gate: str, false: int) -> list[dict[str, Any]]:
        return [{"gate": gate, "seeds": 20, "runs_with_false_deployment": false} for _ in range(2)]

    assert broken_promises([*rows("challenger", 2), *rows("paper", 20)], 0.05) == {}
    assert set(broken_promises(rows("challenger", 5), 0.05)) == {"challenger"}


def test_scales_name_gates_learners_and_worlds_that_exist() -> None:
    for scale in SCALES:
        cells = plan_cells(scale)
        assert {c.gate for c in cells} == set(GATES)
        assert len({c.id for c in cells}) == len(cells)
    tiny = {(c.learner, c.world) for c in plan_cells("tiny")}
    assert {("tree", "digits-near-random-strong"), ("logistic", "digits-near-random-strong")} <= tiny


def test_named_learners_and_worlds_are_combined() -> None:
    cells = plan_cells("tiny", gates=["paper"], learners=["ridge"], worlds=["digits-near-random-weak"], seeds=1)

    assert [(c.gate, c.learner, c.world) for c in cells] == [("paper", "ridge", "digits-near-random-weak")]
    assert {c.learner for c in plan_cells("tiny", worlds=["worse"])} == {"fixed"}


@pytest.mark.parametrize("content", ['{"schema": 1}', "{}", "{"])
def test_a_damaged_cell_is_run_again(content: str, tmp_path: Path) -> None:
    cell = _cell("means", "fixed", "null", rounds=1_000)
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / f"{cell.id}.json").write_text(content)

    assert plan.n_done([cell], tmp_path) == 0
    (result,) = execute([cell], tmp_path)
    assert result["gate"] == "means"
    assert plan.n_done([cell], tmp_path) == 1


def test_an_interruption_drops_the_queue_and_keeps_what_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs in other processes that ended, though nobody had looked at them, are kept; the rest is not waited for."""
    futures: set[Future[Any]] = set()

    def interrupted(waiting: set[Future[Any]]) -> Any:
        futures.update(waiting)
        wait(waiting, return_when=FIRST_COMPLETED)
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "as_completed", interrupted)
    cells = [_cell("means", "fixed", "null", rounds=1_000, seed=s) for s in range(200)]
    with pytest.raises(KeyboardInterrupt):
        list(execute(cells, tmp_path, jobs=2))

    assert any(future.cancelled() or not future.done() for future in futures)
    assert 2 <= plan.n_done(cells, tmp_path) < 200


@pytest.mark.parametrize("options", [{"gates": ["papers"]}, {"learners": ["cnn"]}, {"worlds": ["mars"]}])
def test_unknown_names_are_refused_with_the_known_ones(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))}: .* is not known; choose from"):
        plan_cells("tiny", **options)


def test_the_fixed_pair_is_what_its_figures_are_quoted_for() -> None:
    pair = fixed_pair()

    assert pair.gain == pytest.approx(0.09, abs=0.005)
    assert pair.deployed.min_probability == 0.01
    assert pair.candidate.min_probability == 0.01


@pytest.mark.slow
def test_on_the_fixed_pair_the_challenger_takes_a_third_of_the_papers_rounds_at_most() -> None:
    """Medians of 3 runs; the issue's bar of a fifth is measured over 20 (docs/guarantee.md)."""
    pair = fixed_pair()
    challenger = [rounds_to_deploy(pair, "challenger", seed=s, limit=30_000, leg=200)[0] for s in (1, 2, 3)]
    paper = [rounds_to_deploy(pair, "paper", seed=s, limit=60_000, leg=1_000)[0] for s in (1, 2, 3)]

    assert all(t is not None for t in [*challenger, *paper])
    assert np.median([t or 0 for t in challenger]) < np.median([t or 0 for t in paper]) / 3


def test_the_command_writes_rows_and_tables(tmp_path: Path) -> None:
    arguments = ["safety", "--scale", "tiny", "--gates", "means,challenger", "--worlds", "null", "--seeds", "1", "-q"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path), "--jobs", "1"])
    rows = json.loads((tmp_path / "safety.json").read_text("utf-8"))

    assert done.exit_code == 0
    assert {row["gate"] for row in rows} == {"means", "challenger"}
    assert all(row.keys() >= FIELDS for row in rows)
    assert "Runs that deployed a worse policy" in (tmp_path / "safety.md").read_text("utf-8")


def test_the_command_fails_when_the_challenger_breaks_its_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "broken_promises", lambda rows, delta: {"challenger": 1e-4})
    arguments = ["safety", "--scale", "tiny", "--gates", "means", "--worlds", "null", "--seeds", "1", "-q"]
    done = CliRunner().invoke(app, [*arguments, "--jobs", "1"])

    assert done.exit_code == 1


def test_the_interrupted_command_says_how_far_it_came_and_what_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(cell: SafetyCell) -> Any:
        if cell.seed == 4201:
            raise KeyboardInterrupt
        return run_cell(cell)

    monkeypatch.setattr(plan, "run_cell", interrupted)
    arguments = ["safety", "--gates", "means", "--worlds", "null", "--seeds", "3", "--jobs", "1", "-q"]
    kept = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    lost = CliRunner().invoke(app, arguments)

    assert (kept.exit_code, lost.exit_code) == (1, 1)
    resumes = f"the same command with --out {tmp_path} resumes."
    assert kept.stderr == f"seamark: interrupted with 1 of 3 runs done; {resumes}\n"
    assert lost.stderr == "seamark: interrupted with 1 of 3 runs done; nothing is kept without --out.\n"


@pytest.mark.parametrize("option", ["--gates", "--learners", "--worlds", "--scale", "--jobs", "--delta"])
def test_the_fixed_pair_refuses_options_that_it_has_no_use_for(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the value is the default: who gives it expects something of it."""
    monkeypatch.setattr(pair, "pair_medians", lambda **_: pytest.fail("was run"))
    value = {"--scale": "tiny", "--jobs": "0", "--delta": "0.05"}.get(option, "paper")
    done = CliRunner().invoke(app, ["safety", "--fixed-pair", option, value])

    assert isinstance(done.exception, ValueError)  # one line and exit code 2 in `main`
    assert str(done.exception).startswith(f"{option}: --fixed-pair has no such option")


def test_the_fixed_pair_is_written_where_out_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"gate": "paper", "gain": 0.09, "seeds": 2, "deployed": 2, "median": 100.0, "us_per_round": 1.0}]
    monkeypatch.setattr(pair, "pair_medians", lambda **_: rows)
    done = CliRunner().invoke(app, ["safety", "--fixed-pair", "--json", "--out", str(tmp_path / "new")])

    assert done.exit_code == 0
    assert json.loads((tmp_path / "new" / "pair.json").read_text("utf-8")) == json.loads(done.stdout) == rows
