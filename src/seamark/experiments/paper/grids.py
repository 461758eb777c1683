"""The paper's two figures in its arrangement: a row per data set, a column per noise, SEA in blue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seamark.experiments import figures
from seamark.experiments.paper.published import TITLES
from seamark.experiments.paper.results import Gathered
from seamark.experiments.summary import group_by_method, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = {"classification": ("deployed_test_accuracy", "accuracy"), "ranking": ("deployed_test_ndcg10", "nDCG@10")}
_LEFT_OUT = ("ips",)  # as in the paper: what acts is the baseline throughout
_NOISE = {"classification": "{} rewards", "ranking": "{} clicks"}


def online(
    runs: Sequence[Gathered], task: str, sets: Sequence[str], noises: Sequence[str], why: dict[str, str], title: str
) -> Figure:
    """Held-out performance of the policy that acts, over rounds: mean over seeds, band of one standard deviation.

    Above it `title`, and over how many seeds.

    A set without results keeps its row, with the reason in `why`.
    """
    import matplotlib
    from matplotlib.figure import Figure

    metric, label = METRICS[task]
    with matplotlib.rc_context(figures.STYLE):
        size = (1.5 + 3.1 * len(noises), 1.2 + 2.3 * len(sets))
        figure: Figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(sets), len(noises), squeeze=False, sharex=True)
        for i, data in enumerate(sets):
            for j, noise in enumerate(noises):
                axes = panels[i, j]
                matching = [run for run in runs if (run.spec.data, run.spec.noise) == (data, noise)]
                cells = [cell for run in drawn(matching) for cell in run.cells if cell["method"] not in _LEFT_OUT]
                if i == 0:
                    axes.set_title(_NOISE[task].format(noise).capitalize(), loc="left", fontsize=10)
                if cells:
                    _draw(axes, cells, metric)
                else:
                    _say(axes, why.get(data, "no results"))
                if j == 0:
                    axes.set_ylabel(f"{TITLES.get(data, data)}\ntest {label}")
                if i == len(sets) - 1:
                    axes.set_xlabel("rounds (log scale)")
        figure.suptitle(f"{title}, {_seeds(drawn(runs))}", x=0.01, ha="left", fontsize=11)
        found: dict[str, Any] = {}
        for axes in panels.flat:
            for handle, name in zip(*axes.get_legend_handles_labels()):
                found.setdefault(name, handle)
        if found:
            figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=min(5, len(found)))
    return figure


def drawn(runs: Sequence[Gathered]) -> list[Gathered]:
    """The main runs of one set, noise and semantics: the longest that are not extra, which belong in one picture."""
    main = [run for run in runs if not run.spec.is_extra and run.cells]
    most = max((run.spec.rounds for run in main), default=0)
    return [run for run in main if run.spec.rounds == most]


def not_drawn(runs: Sequence[Gathered]) -> list[str]:
    """Methods whose runs are shorter than the others of their set and noise."""
    found = set()
    for where in {(run.spec.data, run.spec.noise) for run in runs}:
        same = [run for run in runs if (run.spec.data, run.spec.noise) == where and not run.spec.is_extra]
        found |= {cell["method"] for run in same for cell in run.cells}
        found -= {cell["method"] for run in drawn(same) for cell in run.cells}
    return sorted(found)


def _seeds(runs: Sequence[Gathered]) -> str:
    """How many seeds a line is the mean of, from the fewest to the most."""
    counts = sorted({len(found) for run in runs for found in group_by_method(run.cells).values()})
    if not counts:
        return "no seeds"
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{text} seed{'' if counts[-1] == 1 else 's'}"


def _draw(axes: Axes, cells: list[Any], metric: str) -> None:
    gated = [c for c in cells if c["method"] in figures.BASELINE_ACTS_FIRST]
    if gated and (values := series(gated, metric)) is not None:
        level = float(values[:, 0].mean())
        axes.axhline(
            level,
            color=figures.BASELINE_COLOUR,
            linestyle="--",
            linewidth=1.1,
            label="baseline",
            zorder=figures.BASELINE_ORDER,
        )
    figures.draw_methods(axes, cells, metric)
    axes.set_xscale("log")
    axes.set_xlim(1, max(10, cells[0]["rounds"]))


def _say(axes: Axes, text: str) -> None:
    import textwrap

    axes.grid(False)
    axes.set_yticks([])
    axes.set_xscale("log")
    axes.text(
        0.5, 0.5, "\n".join(textwrap.wrap(text, 34)), transform=axes.transAxes, ha="center", va="center",
        fontsize=8, color="#555555",
    )  # fmt: skip
