"""One cell: what it reports, and that every number is what it says."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from seamark.experiments import cell as cells
from seamark.experiments.cell import CellConfig, Stopped, evaluation_rounds, legs, run_cell
from seamark.experiments.methods import METHODS
from seamark.experiments.run import RunConfig, plan
from seamark.gates import Schedule
from seamark.worlds.supervised import Baseline, SupervisedWorld, train_baseline
from support import small_world

KEYS = {
    "schema", "id", "task", "data", "method", "rewards", "semantics", "baseline", "floor", "delta", "seed", "rounds",
    "config", "version", "at", "cumulative_reward", "baseline_cumulative_reward", "expected_gain",
    "deployed_test_accuracy", "deployed_test_value", "learned_test_accuracy", "learned_test_value", "deployments",
    "unsafe_deployments", "worst_shortfall", "checks", "seconds", "rounds_per_second",
}  # fmt: skip
CURVES = (
    "cumulative_reward", "baseline_cumulative_reward", "expected_gain", "deployed_test_accuracy",
    "deployed_test_value", "learned_test_accuracy", "learned_test_value",
)  # fmt: skip
TIMES = ("seconds", "rounds_per_second")


def planned(
    method: str, world: SupervisedWorld | None = None, **options: Any
) -> tuple[CellConfig, SupervisedWorld, Baseline]:  # fmt: skip
    world = world or small_world()
    defaults: dict[str, Any] = {"rounds": 600, "seeds": 1, "floor": 0.3}
    config = plan(RunConfig(methods=method, **{**defaults, **options}), world).cells[0]
    b = config.baseline_options
    baseline = train_baseline(
        world, seed=config.seed, fraction=b["fraction"], lr=b["lr"], l2=b["l2"], epochs=b["epochs"], acts=config.acts()
    )
    return config, world, baseline


def result_of(method: str, world: SupervisedWorld | None = None, **options: Any) -> dict[str, Any]:
    return run_cell(*planned(method, world, **options))


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in result.items() if k not in TIMES}


@pytest.mark.parametrize("method", METHODS)
def test_a_result_has_every_key_and_is_plain_json(method: str) -> None:
    """All that the summary, the tables and a reader need, for every method, without NaN."""
    result = result_of(method, rounds=120)
    json.dumps(result, allow_nan=False)

    assert set(result) >= KEYS
    assert set(result["seconds"]) >= {"total", "learning", "checking"}
    assert result["at"] == evaluation_rounds(120)
    assert all(len(result[name]) == len(result["at"]) for name in CURVES)
    assert [result[name][0] for name in CURVES[:3]] == [0.0, 0.0, 0.0]
    assert result["rounds_per_second"] > 0
    assert result["config"]["data_sha256"] == "0123"


@pytest.mark.parametrize("method", ["sea", "bsea"])
@pytest.mark.parametrize("semantics", ["paper", "released"])
def test_a_gated_method_earns_exactly_what_the_baseline_earns_before_it_deploys(method: str, semantics: str) -> None:
    """Shared uniforms and contexts: the difference is 0 to the bit, not on average, and it is not 0 later on.

    Giving the baseline's counterfactual its own uniforms is caught.
    """
    result = result_of(method, small_world(n=1500), rounds=10_000, semantics=semantics)
    first = result["deployments"][0]["at"]
    before = [i for i, t in enumerate(result["at"]) if t <= first]
    difference = np.subtract(result["cumulative_reward"], result["baseline_cumulative_reward"])

    assert len(before) > 1
    assert (difference[before] == 0).all()
    assert (np.array(result["expected_gain"])[before] == 0).all()
    assert difference[-1] > 0


def test_a_deployment_tells_its_evidence_and_what_it_was_truly_worth() -> None:
    """Version from and to, the bounds that decided, and exact values before and after, in one chain."""
    config, world, baseline = planned("sea", rounds=6000)
    result = run_cell(config, world, baseline)
    deployments = result["deployments"]

    assert deployments
    assert [d["from"] for d in deployments] == list(range(len(deployments)))
    assert [d["to"] for d in deployments] == list(range(1, len(deployments) + 1))
    assert deployments[0]["true_value_before"] == result["true_value_baseline"] == world.value(baseline.policy)
    for one, following in pairwise(deployments):
        assert following["true_value_before"] == one["true_value_after"]
    for d in deployments:
        assert d["evidence"]["new_lower"] >= d["evidence"]["deployed_upper"]
        assert d["at"] in result["check_records"]["at"]
    promoted = [t for t, v in zip(*(result["check_records"][k] for k in ("at", "verdict"))) if v == "promote"]
    assert promoted == [d["at"] for d in deployments]
    assert result["checks"] == len(result["check_records"]["at"])


def test_unsafe_deployments_are_counted_by_their_true_values() -> None:
    """Near-random rewards and means: the count is that of deployments truly worse, and there are some."""
    world = small_world(right=0.6, wrong=0.4)
    result = result_of("bsea", world, rounds=2000, rewards="near-random")
    worse = sum(d["true_value_after"] < d["true_value_before"] for d in result["deployments"])

    assert result["unsafe_deployments"] == worse
    assert worse > 0


@pytest.mark.parametrize("method", ["sea", "bsea", "epsilon-greedy", "boltzmann"])
def test_gain_and_shortfall_equal_brute_force(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Round by round: sum of expected reward minus the baseline's, and its running minimum from 0.

    The minimum over leg ends only is caught (online methods dip inside legs).
    """
    config, world, baseline = planned(method, small_world(right=0.6, wrong=0.4), rewards="near-random", rounds=1500)
    played: list[tuple[int, float, float]] = []
    for agent in (cells.GatedAgent, cells.OnlineAgent):

        def recorded(self: Any, draws: Any, step: Any = agent.step) -> Any:
            out = step(self, draws)
            played.extend(zip(draws.rows.tolist(), out.expected.tolist(), out.rewards.tolist()))
            return out

        monkeypatch.setattr(agent, "step", recorded)
    result = run_cell(config, world, baseline)
    p = baseline.policy.probabilities(world.features)
    gain = worst = 0.0
    for row, expected, _ in played:
        gain += expected - (world.wrong + (world.right - world.wrong) * p[row, world.labels[row]])
        worst = min(worst, gain)

    assert result["expected_gain"][-1] == pytest.approx(gain, abs=1e-9)
    assert result["worst_shortfall"] == pytest.approx(worst, abs=1e-9)
    assert result["worst_shortfall"] <= 0
    assert result["cumulative_reward"][-1] == sum(r for _, _, r in played)


@pytest.mark.parametrize("method", ["sea", "bsea", "boltzmann", "linucb"])
def test_evaluation_does_not_change_the_run(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured at other rounds, everything that happened is the same; a check at evaluation rounds is caught."""
    one = result_of(method, rounds=3000)
    monkeypatch.setattr(cells, "evaluation_rounds", lambda rounds: [0, 17, 1234, rounds])
    two = result_of(method, rounds=3000)

    assert two["at"] == [0, 17, 1234, 3000]
    assert [d["at"] for d in one["deployments"]] == [d["at"] for d in two["deployments"]]
    assert one["checks"] == two["checks"]
    assert one["check_records"].get("at") == two["check_records"].get("at")
    for name in CURVES:
        assert one[name][-1] == pytest.approx(two[name][-1], rel=1e-9), name
    assert one["worst_shortfall"] == pytest.approx(two["worst_shortfall"], abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_fixes_every_number(method: str) -> None:
    """Again the same, and with another seed something else."""
    one, again, other = (result_of(method, rounds=200, first_seed=s) for s in (1, 1, 2))

    assert numbers(one) == numbers(again)
    assert numbers(one)["cumulative_reward"] != numbers(other)["cumulative_reward"]


def test_methods_of_a_run_share_their_world() -> None:
    """The baseline's counterfactual reward is the same in every method's cell of one seed."""
    curves = [result_of(m, rounds=300)["baseline_cumulative_reward"] for m in ("sea", "epsilon-greedy", "linucb")]

    assert curves[0] == curves[1] == curves[2]


def test_values_are_rewards_and_accuracies_are_not() -> None:
    """value = wrong + (right - wrong) accuracy, for what is deployed and what is learned."""
    result = result_of("bsea", small_world(right=0.6, wrong=0.4), rewards="near-random", rounds=300)

    for side in ("deployed", "learned"):
        accuracy = np.array(result[f"{side}_test_accuracy"])
        assert np.array(result[f"{side}_test_value"]) == pytest.approx(0.4 + 0.2 * accuracy)


def test_the_id_is_that_of_everything_that_determines_the_numbers() -> None:
    """Any option, the data's checksum, the seed; not the version, and there is no field for jobs or a folder."""
    config, _, _ = planned("sea")
    changed = {
        "task": "ranking", "data": "other", "data_sha256": "4567", "method": "bsea", "rewards": "noisy", "right": 0.9,
        "wrong": 0.1, "semantics": "released", "baseline": "epsilon-greedy",
        "baseline_options": {**config.baseline_options, "lr": 0.123}, "floor": 0.1, "delta": 0.1, "seed": 1,
        "rounds": 601, "check": "log", "options": {**config.options, "lr": 0.123},
    }  # fmt: skip
    ids = {name: replace(config, **{name: value}).id for name, value in changed.items()}

    assert set(changed) == {f.name for f in fields(CellConfig)}
    assert len({config.id, *ids.values()}) == len(ids) + 1
    assert replace(config).id == config.id
    assert len(config.id) == 16


def test_the_id_does_not_depend_on_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade does not make finished cells strangers; the version is recorded beside the numbers."""
    before = planned("sea")[0].id
    monkeypatch.setattr(cells, "__version__", "99.0")

    assert planned("sea")[0].id == before
    assert result_of("ips", rounds=10)["version"] == "99.0"


def test_every_change_of_the_data_changes_the_ids() -> None:
    """Same name, other content: other cells."""
    one, two = (planned("sea", small_world(sha256=s))[0] for s in ("aa", "bb"))

    assert one.id != two.id


def test_a_stopped_cell_leaves_no_result() -> None:
    """It stops at the next leg."""
    done: list[int] = []
    with pytest.raises(Stopped):
        run_cell(*planned("sea", rounds=5000), progress=done.append, stopped=lambda: bool(done) and done[-1] >= 100)

    assert done[-1] < 5000


def test_progress_is_told_up_to_the_last_round() -> None:
    """Increasing, and the last is the number of rounds."""
    done: list[int] = []
    run_cell(*planned("ips", rounds=250), progress=done.append)

    assert done == sorted(set(done))
    assert done[-1] == 250


@pytest.mark.parametrize("rounds", [1, 2, 10, 20, 999, 100_000])
def test_evaluation_rounds_hold_powers_of_ten_and_both_ends(rounds: int) -> None:
    """Ten per decade, without repetition."""
    at = evaluation_rounds(rounds)

    assert at == sorted(set(at))
    assert at[0] == 0
    assert at[-1] == rounds
    assert {10**k for k in range(7) if 10**k <= rounds} <= set(at)


def test_legs_end_at_checks_and_evaluations_and_are_never_long() -> None:
    """Every check and evaluation round is an end; a schedule with rare checks is cut at MAX_LEG."""
    ends = list(legs(50_000, Schedule.parse("log"), [0, 15, 12_345, 50_000]))

    assert ends[-1] == 50_000
    assert {1, 9, 10, 15, 90, 12_345, 20_000} <= set(ends)
    assert max(np.diff([0, *ends])) <= cells.MAX_LEG
    assert (np.diff([0, *ends]) > 0).all()


@pytest.mark.parametrize("method", ["sea", "boltzmann"])
def test_sparse_contexts_give_the_same_run(method: str) -> None:
    """The same world in both forms: the same rewards, checks and deployments."""
    one, two = (result_of(method, small_world(sparse=s), rounds=2000) for s in (False, True))

    assert one["cumulative_reward"] == two["cumulative_reward"]
    assert [d["at"] for d in one["deployments"]] == [d["at"] for d in two["deployments"]]
    assert one["expected_gain"] == pytest.approx(two["expected_gain"], abs=1e-9)


def test_ips_never_deploys_and_learns_all_the_same() -> None:
    """The baseline serves for ever: no gain, no loss, and what is learned moves."""
    result = result_of("ips", rounds=2000)

    assert result["cumulative_reward"] == result["baseline_cumulative_reward"]
    assert set(result["expected_gain"]) == {0.0}
    assert (result["deployments"], result["checks"], result["worst_shortfall"]) == ([], 0, 0.0)
    assert len(set(result["deployed_test_value"])) == 1
    assert len(set(result["learned_test_value"])) > 1


def test_a_method_that_sees_projected_contexts_has_the_baseline_of_the_original_ones() -> None:
    """CLUCB with no budget plays as the baseline does, hashed or not. Caught: a baseline asked for its actions in
    hashed contexts, which ended every hashed run."""
    result = result_of("clucb", rounds=200, overrides={"clucb": {"hash": 2, "alpha": 0.0, "norm_bound": 1e3}})

    assert result["cumulative_reward"] == result["baseline_cumulative_reward"]
    assert result["deployed_test_accuracy"][0] == result["deployed_test_accuracy"][-1]
