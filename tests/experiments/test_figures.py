"""Figures draw what the cells say, the same bytes every time, whatever is missing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cells import deployment, fake_cell, tiny_cell

from seamark.experiments.figures import (
    COLOURS,
    MAX_POINTS,
    cumulative_reward,
    learning_curve,
    save,
    thin,
    to_svg,
)
from seamark.experiments.gate_figure import bounds

METHODS = ("sea", "bsea", "seamark", "ips", "boltzmann")
FIGURES = (learning_curve, cumulative_reward, bounds)


def run(*methods: str, n_seeds: int = 2, **changes: Any) -> list[Any]:
    """Fake cells of a short run."""
    return [fake_cell(m, seed, **{"rounds": 1000, **changes}) for seed in range(n_seeds) for m in methods]


def lines(axes: Any) -> dict[str, Any]:
    """Lines of a panel by label."""
    return {line.get_label(): line for line in axes.get_lines()}


def labels(figure: Any) -> list[str]:
    """Texts of the figure's legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_mean_over_seeds_is_drawn_without_round_zero() -> None:
    """A line is the mean over seeds at every evaluation round after 0."""
    cells = [
        tiny_cell("sea", seed, [0, 5, 50], deployed_test_accuracy=[0.5, 0.6, accuracy])
        for seed, accuracy in enumerate((0.7, 0.9))
    ]

    line = lines(learning_curve(cells).axes[0])["sea"]

    assert line.get_xdata().tolist() == [10, 100]
    assert line.get_ydata() == pytest.approx([0.6, (0.7 + 0.9) / 2])


def test_the_baseline_is_what_gated_methods_deploy_at_round_zero() -> None:
    """Dashed, at the first value of a method that starts from the baseline; absent where none ran."""
    gated = tiny_cell("sea", 0, [0, 5, 50], deployed_test_accuracy=[0.37, 0.6, 0.7])
    free = tiny_cell("boltzmann", 0, [0, 5, 50])

    baseline = lines(learning_curve([gated, free]).axes[0])["baseline"]

    assert set(baseline.get_ydata()) == {0.37}
    assert baseline.get_linestyle() == "--"
    assert "baseline" not in lines(learning_curve([free]).axes[0])


def test_cumulative_reward_is_relative_to_the_baseline() -> None:
    """The line is the method's sum minus the baseline's; zero is marked."""
    found = lines(cumulative_reward([tiny_cell("sea", 0, [0, 4, 75])]).axes[0])

    assert found["sea"].get_ydata().tolist() == [4 - 5, 75 - 50]
    assert set(found["baseline"].get_ydata()) == {0.0}


def test_a_method_has_its_colour_whoever_else_runs() -> None:
    """Sea is blue alone and in company; methods we do not know get colours too."""
    alone = lines(learning_curve(run("sea")).axes[0])["sea"].get_color()
    company = lines(learning_curve(run("boltzmann", "zeta", "sea")).axes[0])

    assert alone == company["sea"].get_color() == COLOURS["sea"]
    assert company["zeta"].get_color() not in {COLOURS["sea"], COLOURS["boltzmann"]}


def test_one_panel_per_gated_method_with_its_own_lines() -> None:
    """Bounds for the paper's gate, means where there are no bounds, evidence for the challenger; no panel for ips."""
    figure = bounds(run("sea", "bsea", "seamark", "ips"))

    panels = {axes.get_title(loc="left"): list(lines(axes))[:2] for axes in figure.axes}
    assert panels == {
        "bsea, seed 0": ["candidate: mean estimate", "deployed: mean estimate"],
        "sea, seed 0": ["candidate: lower bound", "deployed: upper bound"],
        "seamark, seed 0": ["candidate: log evidence", "log threshold"],
    }
    assert len(labels(figure)) == len(set(labels(figure)))


def test_unsafe_deployments_are_told_from_safe_ones() -> None:
    """A deployment that lowered the true value has a label of its own; an unknown value is no accusation."""
    cell = fake_cell("sea", 0, rounds=1000)
    unknown = deployment(30, 0.5, 0.6) | {"true_value_after": None}

    safe = bounds([cell | {"deployments": [deployment(20, 0.5, 0.6), unknown]}])
    mixed = bounds([cell | {"deployments": [deployment(20, 0.5, 0.6), deployment(50, 0.6, 0.5)]}])

    assert "deployment, truly worse" not in labels(safe)
    assert "deployment, truly worse" in labels(mixed)


@pytest.mark.parametrize("draw", FIGURES)
def test_the_same_cells_give_the_same_bytes(draw: Any, tmp_path: Path) -> None:
    """PNG and SVG drawn twice are equal to the last byte, and bear no date."""
    cells = run(*METHODS)

    first = [path.read_bytes() for path in save(draw(cells), tmp_path / "a", "figure")]
    again = [path.read_bytes() for path in save(draw(cells), tmp_path / "b", "figure")]

    assert first == again
    assert first[0].startswith(b"\x89PNG")
    assert b"<dc:date>" not in first[1]


@pytest.mark.parametrize("draw", FIGURES)
def test_a_run_without_results_still_has_a_figure(draw: Any) -> None:
    """Nothing to draw is said in words."""
    assert "<svg" in to_svg(draw([]))


@pytest.mark.parametrize("draw", FIGURES)
def test_ranking_is_drawn(draw: Any) -> None:
    """Ranking cells have no accuracy and no reward figure: nDCG@10 takes their place."""
    figure = draw(run("sea", "dbgd", task="ranking"))

    assert "<svg" in to_svg(figure)
    if draw is not bounds:
        assert "nDCG@10" in figure.axes[0].get_ylabel()


def test_missing_numbers_leave_gaps_and_no_warnings() -> None:
    """NaN, null and infinite values, all-missing series and a run of one point can be drawn."""
    cell = fake_cell("sea", 0, rounds=1000)
    cell["deployed_test_accuracy"] = [None] * len(cell["at"])
    cell["cumulative_reward"] = [math.nan] * len(cell["at"])
    cell["check_records"]["new_lower"][:3] = [None, -math.inf, math.nan]

    for draw in FIGURES:
        to_svg(draw([cell]))
        to_svg(draw([tiny_cell("sea", 0, [0.0], at=[0], rounds=1, baseline_cumulative_reward=[0.0], **ONE_POINT)]))


ONE_POINT = {"deployed_test_accuracy": [0.5], "expected_gain": [0.0]}


def test_long_lines_are_thinned_with_both_ends_kept() -> None:
    """At most 2,000 points, the first and the last among them, in order."""
    x = np.arange(1.0, 100_001.0)

    kept = thin(x)

    assert kept.size <= MAX_POINTS
    assert (kept[0], kept[-1]) == (0, x.size - 1)
    assert (np.diff(kept) > 0).all()
    assert thin(x[:500]).size == 500


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    """No global figure is made and no setting of the user's is changed."""
    import matplotlib
    from matplotlib import pyplot

    before = dict(matplotlib.rcParams)

    to_svg(learning_curve(run("sea")))

    assert dict(matplotlib.rcParams) == before
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize(("n_deployments", "is_whole"), [(40, True), (41, False)])
def test_many_deployments_do_not_hide_the_bounds(n_deployments: int, is_whole: bool) -> None:
    """Few deployments are lines through the panel, many are short ones at its foot."""
    cell = fake_cell("sea", 0, rounds=1000)
    cell["deployments"] = [deployment(10 + i, 0.5, 0.6) for i in range(n_deployments)]

    [collection] = bounds([cell]).axes[0].collections

    tops = {segment[1][1] for segment in collection.get_segments()}
    assert (tops == {1.0}) == is_whole


def test_curves_that_coincide_leave_parts_of_each_to_be_seen() -> None:
    """The first is solid, dashes lie over it; one that differs keeps its style. Caught: the last one hides the rest."""
    same = [tiny_cell(m, 0, [0, 5, 50], deployed_test_accuracy=[0.5, 0.6, 0.7]) for m in ("sea", "bsea", "boltzmann")]
    other = tiny_cell("seamark", 0, [0, 5, 50], deployed_test_accuracy=[0.5, 0.8, 0.9])

    found = lines(learning_curve([*same, other]).axes[0])

    styles = [found[method].get_linestyle() for method in ("boltzmann", "bsea", "sea", "seamark")]
    assert styles == ["-", "--", "--", "-"]
    gaps = [found[method]._dash_pattern[1] for method in ("bsea", "sea")]
    assert gaps[0][0] > gaps[1][0]
    assert sum(gaps[0]) == pytest.approx(sum(gaps[1]))
    assert found["baseline"].get_zorder() > max(line.get_zorder() for m, line in found.items() if m != "baseline")


def test_what_a_gate_deployed_is_drawn_in_steps_and_what_was_earned_is_not() -> None:
    """Between measured points a deployed policy stands still; a learner's own policy, and sums, do not."""
    cells = run("sea", "boltzmann")

    held_out, earned = (lines(draw(cells).axes[0]) for draw in (learning_curve, cumulative_reward))

    assert held_out["sea"].get_drawstyle() == "steps-post"
    assert held_out["boltzmann"].get_drawstyle() == earned["sea"].get_drawstyle() == "default"


@pytest.mark.parametrize(("task", "most"), [("classification", 1.1), ("ranking", 1.1 * 4.5437)])
def test_bounds_are_shown_where_rewards_can_be(task: str, most: float) -> None:
    """Bounds far outside do not widen the panel, and the panel says where they ended."""
    cell = fake_cell("sea", 0, rounds=1000, task=task)
    n = len(cell["check_records"]["at"])
    cell["check_records"] |= {"new_lower": [*[-40.0] * (n - 1), 0.7], "deployed_upper": [*[60.0] * (n - 1), 50.0]}

    axes = bounds([cell]).axes[0]

    low, high = axes.get_ylim()
    assert (low, high) == (pytest.approx(-0.1 * most / 1.1, rel=1e-3), pytest.approx(most, rel=1e-3))
    assert [text.get_text() for text in axes.texts] == ["deployed: upper bound at the end: 50"]


def test_log_evidence_is_shown_whole() -> None:
    """Evidence is no reward: nothing limits it."""
    cell = fake_cell("seamark", 0, rounds=1000)
    cell["check_records"]["log_evidence"][-1] = 90.0

    assert bounds([cell]).axes[0].get_ylim()[1] > 90
