"""The curves of a run, drawn from its cells, and what all figures share. What the gates saw: `gate_figure`.

matplotlib is imported inside the functions and used through its object API: no window, no global figure. One method
has one colour and one line style everywhere; the colours are those of Okabe and Ito and of Tol, safe for the colour
blind. The same cells give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seamark.experiments.summary import Cell, FloatArray, group_by_method, mean_and_sd, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_POINTS = 2000  # per line
COLOURS = {
    "sea": "#0072B2",  # blue, as in the paper
    "bsea": "#56B4E9",
    "seamark": "#D55E00",
    "seamark-swaps": "#EE99AA",
    "ips": "#555555",
    "epsilon-greedy": "#E69F00",
    "boltzmann": "#009E73",
    "linucb": "#CC79A7",
    "thompson": "#882255",
    "clucb": "#999933",
    "ranksvm-online": "#009E73",
    "dbgd": "#E69F00",
    "pdgd": "#CC79A7",
    "bubblerank": "#882255",
}
_OTHER_COLOURS = ("#332288", "#117733", "#AA4499", "#661100", "#44AA99")
BASELINE_COLOUR, BASELINE_ORDER = "#777777", 5  # above the curves, thinner: those that stay on it show
_STYLES = {"sea": "-", "bsea": "-", "seamark": "-", "seamark-swaps": "-", "ips": ":"}  # gated solid, others dash-dotted
_OTHER_STYLE = (0, (6, 1.5, 1.5, 1.5))
_LINEAR_UP_TO = 10.0  # of the symlog axis
BASELINE_ACTS_FIRST = ("ips", "bsea", "sea", "seamark", "seamark-swaps")
_TASK_METRIC = {"ranking": ("ndcg10", "nDCG@10"), "classification": ("accuracy", "accuracy")}

STYLE: dict[Any, Any] = {  # the stubs of matplotlib list every key
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 10.0,
    "axes.titlesize": 11.0,
    "axes.labelsize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "seamark",
    "path.simplify": True,
}


def learning_curve(cells: Sequence[Cell]) -> Figure:
    """Test accuracy (ranking: nDCG@10) of the deployed policy over rounds: mean over seeds, band of one deviation.

    The dashed line is the baseline: what methods that start from it deploy at round 0; absent if none of them ran.
    """
    name, label = _TASK_METRIC[_task(cells)]
    metric = f"deployed_test_{name}"
    with new_figure() as (figure, [axes]):
        baselines = [
            values[:, 0].mean()
            for method, rows in group_by_method(cells).items()
            if method in BASELINE_ACTS_FIRST and (values := series(rows, metric)) is not None
        ]
        if baselines:
            axes.axhline(
                baselines[-1],
                color=BASELINE_COLOUR,
                linestyle="--",
                linewidth=1.2,
                label="baseline",
                zorder=BASELINE_ORDER,
            )
        draw_methods(axes, cells, metric)
        axes.set_xscale("log")
        axes.set_title(f"Deployed policy on held-out data\n{_subject(cells)}", loc="left")
        axes.set_ylabel(f"test {label} ({_statistic(cells)})")
        _finish(figure, axes, cells)
    return figure


def cumulative_reward(cells: Sequence[Cell]) -> Figure:
    """Cumulative reward (ranking: nDCG@10) minus the baseline's over rounds: mean over seeds and band."""
    name, label = ("ndcg10", "nDCG@10") if _task(cells) == "ranking" else ("reward", "reward")
    metric = f"relative_{name}"
    with new_figure() as (figure, [axes]):
        axes.axhline(0.0, color=BASELINE_COLOUR, linestyle="--", linewidth=1.2, label="baseline", zorder=BASELINE_ORDER)
        draw_methods(axes, cells, metric)
        axes.set_xscale("log")
        _symlog(axes, cells, metric)
        axes.set_title(f"Cumulative {label} relative to the baseline\n{_subject(cells)}", loc="left")
        axes.set_ylabel(f"cumulative {label} over the baseline's\n({_statistic(cells)})")
        _finish(figure, axes, cells)
    return figure


def save(figure: Figure, folder: str | Path, name: str) -> tuple[Path, Path]:
    """Write `name`.png (150 dots per inch) and `name`.svg into `folder`, the same bytes every time; their paths."""
    import matplotlib

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    with matplotlib.rc_context(STYLE):
        figure.savefig(png, dpi=150, metadata={"Software": None})
    svg.write_text(to_svg(figure), encoding="utf-8")
    return png, svg


def to_svg(figure: Figure) -> str:
    """The figure as SVG text, letters as paths, without a date."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def thin(x: FloatArray, limit: int = MAX_POINTS) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Indices of at most `limit` points of increasing x >= 0, spread evenly over log x, both ends among them."""
    if x.size <= limit:
        return np.arange(x.size)
    # half a budget each: even in log x for the look of it, even in order so that no stretch is left bare
    spread = np.searchsorted(np.log1p(x), np.linspace(np.log1p(x[0]), np.log1p(x[-1]), limit // 2))
    even = np.linspace(0, x.size - 1, limit // 2).round().astype(np.intp)
    return np.unique(np.concatenate([spread.clip(0, x.size - 1), even]))


@contextmanager
def new_figure(panels: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure and its panels, one below the other, in our style whatever the user's matplotlibrc says."""
    import matplotlib
    from matplotlib.figure import Figure

    height = 4.4 if panels == 1 else 1.0 + 2.3 * panels
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.4, height), layout="constrained")
        yield figure, list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])


def draw_methods(axes: Axes, cells: Sequence[Cell], metric: str) -> None:
    """A line and a band per method; steps where a gate decides what is measured, dashes over an equal line."""
    colours = _colours(cells)
    found = {
        m: (rows, values) for m, rows in group_by_method(cells).items() if (values := series(rows, metric)) is not None
    }
    shared = coinciding({method: mean_and_sd(values)[0] for method, (_, values) in found.items()})
    for order, (method, (rows, values)) in enumerate(found.items()):
        at = np.array(rows[0]["at"], dtype=float)
        keep = thin(at)
        keep = keep[at[keep] > 0]  # round 0 has no place on a log axis
        mean, sd = mean_and_sd(values)
        colour = colours[method]
        is_stepped = metric.startswith("deployed_") and method in BASELINE_ACTS_FIRST
        axes.plot(
            at[keep], mean[keep], color=colour, linestyle=_style(method, *shared[method]), label=method,
            zorder=3 + order / 100, drawstyle="steps-post" if is_stepped else "default",
        )  # fmt: skip
        if len(rows) > 1:
            axes.fill_between(
                at[keep], (mean - sd)[keep], (mean + sd)[keep], color=colour, alpha=0.14, linewidth=0, zorder=2,
                step="post" if is_stepped else None,
            )  # fmt: skip


def coinciding(curves: Mapping[str, FloatArray]) -> dict[str, tuple[int, int]]:
    """By name, which of how many curves that are equal at half of their points or more: (0, 1) is a curve alone.

    >>> coinciding({"a": np.zeros(4), "b": np.ones(4), "c": np.zeros(4)})
    {'a': (0, 2), 'c': (1, 2), 'b': (0, 1)}
    """
    groups: list[list[str]] = []
    for name, curve in curves.items():
        for group in groups:
            first = curves[group[0]]
            is_equal = first.shape == curve.shape and np.isclose(first, curve, rtol=0, atol=1e-12, equal_nan=True)
            if np.mean(is_equal) >= 0.5:
                group.append(name)
                break
        else:
            groups.append([name])
    return {name: (group.index(name), len(group)) for group in groups for name in group}


def _style(method: str, which: int, of: int) -> Any:
    """The method's line style; of curves that coincide the first is solid, dashes over it leave a part to be seen."""
    if of == 1:
        return _STYLES.get(method, _OTHER_STYLE)
    return "-" if which == 0 else (0, (3.0 * (of - which), 3.0 * which))


def _symlog(axes: Axes, cells: Sequence[Cell], metric: str) -> None:
    """A y axis that is linear up to 10 and logarithmic beyond, with few enough ticks to read."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    values = [found for rows in group_by_method(cells).values() if (found := series(rows, metric)) is not None]
    finite = np.concatenate([found[np.isfinite(found)] for found in values]) if values else np.zeros(1)
    top, bottom = float(finite.max(initial=0.0)), float(-finite.min(initial=0.0))
    if max(top, bottom) <= _LINEAR_UP_TO:
        return
    decades = [int(np.log10(max(side, 1.0))) for side in (top, bottom)]
    step = 1 if sum(decades) <= 8 else 2
    ticks = [sign * 10.0**e for sign, most in zip((1, -1), decades) for e in range(step, most + 1, step)]
    axes.set_yscale("symlog", linthresh=_LINEAR_UP_TO, linscale=0.6)
    axes.set_ylim(-max(1.6 * bottom, 0.3 * _LINEAR_UP_TO), max(1.6 * top, 0.3 * _LINEAR_UP_TO))
    axes.yaxis.set_major_locator(FixedLocator([0.0, *ticks]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}".replace("-", "\N{MINUS SIGN}")))


def _finish(figure: Figure, axes: Axes, cells: Sequence[Cell]) -> None:
    axes.set_xlabel("rounds (log scale)")
    if cells:
        axes.set_xlim(1, max(10, cells[0]["rounds"]))
        figure.legend(loc="outside right upper", handlelength=2.6)
    else:
        say(axes, "No results.")


def say(axes: Axes, text: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center")


def _colours(cells: Sequence[Cell]) -> dict[str, str]:
    """Colour by method; methods without one of their own take others in alphabetical order."""
    unknown = sorted({str(cell["method"]) for cell in cells} - COLOURS.keys())
    return COLOURS | {name: _OTHER_COLOURS[i % len(_OTHER_COLOURS)] for i, name in enumerate(unknown)}


def _task(cells: Sequence[Cell]) -> str:
    return str(cells[0]["task"]) if cells else "classification"


def world_of(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    cell = cells[0]
    noise = f"{cell['clicks']} clicks" if "clicks" in cell else f"{cell.get('rewards')} rewards"
    return f"{cell['data']}, {noise}"


def _subject(cells: Sequence[Cell]) -> str:
    n_seeds = len({cell["seed"] for cell in cells})
    return f"{world_of(cells)}, {n_seeds} seed{'' if n_seeds == 1 else 's'}" if cells else ""


def _statistic(cells: Sequence[Cell]) -> str:
    return "mean ± 1 sd" if len({cell["seed"] for cell in cells}) > 1 else "one seed"
