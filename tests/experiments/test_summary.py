"""What summarise says of cells whose numbers are known."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from fake_cells import deployment, fake_cell, tiny_cell
from scipy.stats import ttest_rel

from seamark.experiments.summary import GAIN, LOSS, marks, paired_p_values, series, summarise

BASELINE_AT_END = 50.0


def cells_ending(method: str, ends: list[float], **changes: Any) -> list[Any]:
    """One cell per seed 0, 1, ... that earns what the baseline earns, except at the end."""
    return [tiny_cell(method, seed, [0.0, 5.0, BASELINE_AT_END + end], **changes) for seed, end in enumerate(ends)]


def test_mean_and_deviation_of_relative_reward_are_those_of_the_hand() -> None:
    """Relative reward is the cumulative one minus the baseline's; its deviation divides by n - 1."""
    summary = summarise(cells_ending("sea", [2.0, 4.0, 9.0]), [], [])

    found = summary["methods"]["sea"]["series"]["relative_reward"]
    assert found["mean"] == [0.0, 0.0, (2 + 4 + 9) / 3]
    assert found["sd"] == [0.0, 0.0, pytest.approx(math.sqrt(((2 - 5) ** 2 + (4 - 5) ** 2 + (9 - 5) ** 2) / 2))]


def test_marks_are_those_of_scipys_paired_test() -> None:
    """p equals scipy's paired test on the same seeds; the mark follows p and the sign of the mean difference."""
    sea, better, noisy = [1.0, 2.0, 4.0, 3.0], [11.0, 12.5, 13.8, 13.1], [-9.0, 30.0, 4.0, 1.0]
    cells = [*cells_ending("sea", sea), *cells_ending("bsea", better), *cells_ending("ips", noisy)]

    methods = summarise(cells, [], [])["methods"]

    for name, ends, mark in (("bsea", better, GAIN), ("ips", noisy, "")):
        found = methods[name]["series"]["relative_reward"]
        assert found["p"][-1] == pytest.approx(ttest_rel(ends, sea).pvalue)
        assert found["mark"] == ["", "", mark]


def test_pairs_are_formed_by_seed_and_not_by_position() -> None:
    """Only common seeds enter the test, each against its own twin, in whatever order cells come."""
    sea = cells_ending("sea", [1.0, 50.0, 100.0, 7.0])
    other = cells_ending("bsea", [0.0, 51.1, 100.9, 8.0])[1:]

    found = summarise([*other[::-1], *sea], [], [])["methods"]["bsea"]

    assert found["n_common_seeds"] == 3
    p = found["series"]["relative_reward"]["p"][-1]
    assert p == pytest.approx(ttest_rel([51.1, 100.9, 8.0], [50.0, 100.0, 7.0]).pvalue)
    assert found["series"]["relative_reward"]["mark"][-1] == GAIN


@pytest.mark.parametrize(("shift", "p", "mark"), [(0.0, 1.0, ""), (2.0, 0.0, GAIN), (-2.0, 0.0, LOSS)])
def test_constant_differences_are_decided_without_a_warning(shift: float, p: float, mark: str) -> None:
    """Equal differences in all seeds leave no variance: none is no mark, any other is significant."""
    ends = [1.0, 2.0, 5.0]
    cells = [*cells_ending("sea", ends), *cells_ending("bsea", [end + shift for end in ends])]

    found = summarise(cells, [], [])["methods"]["bsea"]["series"]["relative_reward"]

    assert (found["p"][-1], found["mark"][-1]) == (p, mark)


def test_differences_of_rounding_alone_are_no_differences() -> None:
    """Sums that differ in their last bits only are equal."""
    own = np.array([[350_000.0], [340_000.0], [330_000.0]])

    p = paired_p_values(own, own * (1 + 1e-15))

    assert p.tolist() == [1.0]


@pytest.mark.parametrize("n_seeds", [1, 2])
def test_fewer_than_three_common_seeds_earn_no_marks(n_seeds: int) -> None:
    """With one or two common seeds there is no p and no mark, however large the difference."""
    cells = [*cells_ending("sea", [0.0, 1.0][:n_seeds]), *cells_ending("bsea", [40.0, 41.5][:n_seeds])]

    found = summarise(cells, [], [])["methods"]["bsea"]["series"]["relative_reward"]

    assert found["p"] == [None, None, None]
    assert found["mark"] == ["", "", ""]


def test_deviation_of_one_seed_is_null() -> None:
    """One seed has a mean and no deviation."""
    found = summarise(cells_ending("sea", [3.0]), [], [])["methods"]["sea"]["series"]["relative_reward"]

    assert (found["mean"][-1], found["sd"][-1]) == (3.0, None)


def test_missing_values_become_null_and_never_a_mean_of_fewer_seeds() -> None:
    """NaN, infinity and null in one seed make the point null, and the summary stays strict JSON."""
    cells = cells_ending("sea", [1.0, 2.0, 3.0])
    cells[1]["deployed_test_accuracy"] = [0.5, math.nan, 0.5]
    cells[2]["learned_test_accuracy"] = [0.5, 0.5, None]
    cells[2]["expected_gain"] = [0.0, 0.0, math.inf]
    cells += cells_ending("bsea", [9.0, 9.5, 11.0])

    summary = summarise(cells, [], [])

    methods = json.loads(json.dumps(summary, allow_nan=False))["methods"]
    assert methods["sea"]["series"]["deployed_test_accuracy"]["mean"] == [0.5, None, 0.5]
    assert methods["sea"]["series"]["learned_test_accuracy"]["mean"][-1] is None
    assert methods["sea"]["series"]["expected_gain"]["mean"][-1] is None
    assert methods["bsea"]["series"]["deployed_test_accuracy"]["p"] == [1.0, None, 1.0]


def test_nan_earns_no_mark() -> None:
    """A p or a difference that is not a number is never significant."""
    assert marks(np.array([np.nan, 0.001, 0.001]), np.array([5.0, np.nan, 5.0])) == ["", "", GAIN]


def test_safety_is_total_worst_and_median() -> None:
    """Deployments and unsafe ones add up, the shortfall is the worst, the first deployment a median."""
    cells = cells_ending("sea", [1.0, 1.0, 1.0, 1.0], checks=7)
    cells[0] |= {"deployments": [deployment(40, 0.5, 0.6), deployment(20, 0.6, 0.5)], "unsafe_deployments": 1}
    cells[1] |= {"deployments": [deployment(60, 0.5, 0.6)], "worst_shortfall": -4.5}
    cells[2] |= {"deployments": [deployment(100, 0.5, 0.6)], "worst_shortfall": -1.0}

    found = summarise(cells, [], [])["methods"]["sea"]

    assert found["deployments"] == {"total": 4, "mean": 4 / 4}
    assert found["unsafe_deployments"] == 1
    assert found["worst_shortfall"] == -4.5
    assert (found["first_deployment"], found["n_seeds_deployed"]) == (60.0, 3)
    assert found["checks"] == 28
    assert found["seconds"] == {"total": 2.0, "learning": 1.0, "checking": 0.5}
    assert found["rounds_per_second"] == 50.0


def test_first_deployment_of_a_method_that_never_deploys_is_null() -> None:
    """No deployment in any seed: no first one."""
    found = summarise(cells_ending("sea", [0.0, 0.0], checks=3), [], [])["methods"]["sea"]

    assert found["deployments"]["total"] == 0
    assert found["first_deployment"] is None


def test_who_acts_is_what_the_methods_table_says() -> None:
    """Checks or deployments: gated; without, what the table says, else whether there was a gain."""
    cells = [
        tiny_cell("sea", 0, [0, 5, 50], checks=2),
        tiny_cell("ips", 0, [0, 5, 50]),
        tiny_cell("boltzmann", 0, [0, 6, 60], expected_gain=[0.0, 0.8, 9.1]),
        tiny_cell("unheard-of", 0, [0, 6, 60], expected_gain=[0.0, 0.8, 9.1]),
    ]

    methods = summarise(cells, [], [])["methods"]

    assert {name: method["acts"] for name, method in methods.items()} == {
        "sea": "gated",
        "ips": "baseline",
        "boltzmann": "learner",
        "unheard-of": "learner",
    }


@pytest.mark.parametrize("method", ["bubblerank", "dbgd", "linucb"])
def test_a_learner_that_gained_nothing_is_no_baseline(method: str) -> None:
    """It displayed or acted itself, whatever the numbers. Caught: labels taken from gains."""
    task = {} if method == "linucb" else {"task": "ranking"}

    assert summarise([tiny_cell(method, 0, [0, 5, 50], **task)], [], [])["methods"][method]["acts"] == "learner"


def test_methods_stand_in_the_order_of_the_papers_tables() -> None:
    """Known methods as the paper lists them, ours after sea, others last and alphabetical."""
    names = ["seamark", "zeta", "sea", "alpha", "ips", "linucb"]

    summary = summarise([tiny_cell(name, 0, [0, 5, 50]) for name in names], [], [])

    assert list(summary["methods"]) == ["linucb", "ips", "sea", "seamark", "alpha", "zeta"]


def test_summary_says_what_was_tested_skipped_and_failed() -> None:
    """The test, the setting and the lists are part of the summary."""
    skipped = [{"method": "linucb", "reason": "too many features"}]
    failed = [{"id": "x", "method": "sea", "seed": 3, "error": "boom"}]

    summary = summarise(cells_ending("sea", [1.0]), skipped, failed)

    assert "paired over the seeds" in summary["test"]["what"]
    assert summary["test"]["is_run"]
    assert summary["setting"]["rewards"] == "perfect"
    assert summary["setting"]["semantics"] == ["paper"]
    assert summary["skipped"] == skipped
    assert summary["failed"] == failed


def test_summary_of_no_cells_is_empty_but_whole() -> None:
    """A run whose every cell failed can still be summarised."""
    summary = summarise([], [], [{"id": "x", "method": "sea", "seed": 3, "error": "boom"}])

    assert summary["methods"] == {}
    assert len(summary["failed"]) == 1


def test_another_reference_can_be_named() -> None:
    """Marks are against `versus`, which has none itself."""
    cells = [*cells_ending("sea", [11.0, 12.0, 13.5]), *cells_ending("ips", [1.0, 2.2, 3.0])]

    methods = summarise(cells, [], [], versus="ips")["methods"]

    assert methods["sea"]["series"]["relative_reward"]["mark"][-1] == GAIN
    assert methods["ips"]["series"]["relative_reward"]["mark"] == ["", "", ""]


def test_ranking_is_summarised_by_ndcg() -> None:
    """Ranking cells have nDCG@10 where classification has accuracy, and cumulative nDCG@10 besides."""
    cell = fake_cell("sea", 0, task="ranking")

    found = summarise([cell], [], [])["methods"]["sea"]["series"]

    assert "deployed_test_accuracy" not in found
    assert found["learned_test_ndcg10"]["mean"] == cell["learned_test_ndcg10"]
    assert found["relative_ndcg10"]["mean"][-1] == pytest.approx(
        cell["cumulative_ndcg10"][-1] - cell["baseline_cumulative_ndcg10"][-1]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 200}, "rounds differs"),
        ({"at": [0, 20, 100]}, "at differs"),
        ({"rewards": "near-random"}, "rewards differs"),
        ({"seed": 0}, "occurs twice"),
        ({"error": "boom"}, "as `failed`"),
    ],
)
def test_cells_of_two_runs_are_refused(changes: dict[str, Any], message: str) -> None:
    """Cells that cannot be compared, or came twice, or failed, are an error that says what to do."""
    cells = [tiny_cell("sea", 0, [0, 5, 50]), tiny_cell("sea", 1, [0, 5, 50]) | changes]

    with pytest.raises(ValueError, match=message):
        summarise(cells, [], [])


def test_a_metric_that_some_cells_lack_is_absent() -> None:
    """A series is there for all seeds of a method, or not at all."""
    cells = cells_ending("sea", [1.0, 2.0])
    del cells[1]["learned_test_value"]

    assert series(cells, "learned_test_value") is None
    assert "learned_test_value" not in summarise(cells, [], [])["methods"]["sea"]["series"]
