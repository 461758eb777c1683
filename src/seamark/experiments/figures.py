"""The figures of a run, drawn from its cells: learning curves, cumulative reward, and what the gates saw.

matplotlib is imported inside the functions and used through its object API: no window, no global figure. One method
has one colour and one line style everywhere; the colours are those of Okabe and Ito and of Tol, safe for the colour
blind. The same cells give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seamark.experiments.summary import Cell, FloatArray, group_by_method, mean_and_sd, series

if TYPE_CHECKING:
    from matplotlib.artist import Artist
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
BASELINE_COLOUR, _UNSAFE_COLOUR, _SAFE_COLOUR = "#777777", "#CC3311", "#9A9A9A"
_STYLES = {"sea": "-", "bsea": "-", "seamark": "-", "seamark-swaps": "-", "ips": ":"}  # gated solid, others dash-dotted
_OTHER_STYLE = (0, (6, 1.5, 1.5, 1.5))
_FEW_DEPLOYMENTS = 40
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
    with _figure() as (figure, [axes]):
        baselines = [
            values[:, 0].mean()
            for method, rows in group_by_method(cells).items()
            if method in BASELINE_ACTS_FIRST and (values := series(rows, metric)) is not None
        ]
        if baselines:
            axes.axhline(baselines[-1], color=BASELINE_COLOUR, linestyle="--", linewidth=1.2, label="baseline")
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
    with _figure() as (figure, [axes]):
        axes.axhline(0.0, color=BASELINE_COLOUR, linestyle="--", linewidth=1.2, label="baseline")
        draw_methods(axes, cells, metric)
        axes.set_xscale("log")
        _symlog(axes, cells, metric)
        axes.set_title(f"Cumulative {label} relative to the baseline\n{_subject(cells)}", loc="left")
        axes.set_ylabel(f"cumulative {label} over the baseline's\n({_statistic(cells)})")
        _finish(figure, axes, cells)
    return figure


def bounds(cells: Sequence[Cell]) -> Figure:
    """What each gate saw in its first seed, one panel per method with check records.

    Lower bound of the candidate and upper bound of the deployed policy (of gates without bounds: the means), or log
    evidence and its threshold. Vertical lines are deployments, red where the true value fell.
    """
    gated = {
        method: rows[0] for method, rows in group_by_method(cells).items() if rows[0].get("check_records", {}).get("at")
    }
    with _figure(panels=max(1, len(gated))) as (figure, panels):
        for axes, (method, cell) in zip(panels, gated.items()):
            _draw_gate(axes, method, cell)
        if not gated:
            _say(panels[0], "No method of this run has a gate that checked.")
            return figure
        panels[len(gated) - 1].set_xlabel("rounds (log scale)")
        found: dict[str, Artist] = {}
        for axes in panels:
            for handle, label in zip(*axes.get_legend_handles_labels()):
                found.setdefault(label, handle)
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=3)
        figure.suptitle(f"What the gates saw\n{_world(cells)}", x=0.01, ha="left", fontsize=11)
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
def _figure(panels: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure and its panels, one below the other, in our style whatever the user's matplotlibrc says."""
    import matplotlib
    from matplotlib.figure import Figure

    height = 4.4 if panels == 1 else 1.0 + 2.3 * panels
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.4, height), layout="constrained")
        yield figure, list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])


def draw_methods(axes: Axes, cells: Sequence[Cell], metric: str) -> None:
    colours = _colours(cells)
    for order, (method, rows) in enumerate(group_by_method(cells).items()):
        values = series(rows, metric)
        if values is None:
            continue
        at = np.array(rows[0]["at"], dtype=float)
        keep = thin(at)
        keep = keep[at[keep] > 0]  # round 0 has no place on a log axis
        mean, sd = mean_and_sd(values)
        colour, zorder = colours[method], 3 + order / 100
        style = _STYLES.get(method, _OTHER_STYLE)
        axes.plot(at[keep], mean[keep], color=colour, linestyle=style, label=method, zorder=zorder)
        if len(rows) > 1:
            low, high = (mean - sd)[keep], (mean + sd)[keep]
            axes.fill_between(at[keep], low, high, color=colour, alpha=0.14, linewidth=0, zorder=2)


def _draw_gate(axes: Axes, method: str, cell: Cell) -> None:
    records = cell["check_records"]
    at = np.array(records["at"], dtype=float)
    keep = thin(at)

    measured = "click-DCG@10" if cell.get("task") == "ranking" else "reward"

    def column(name: str) -> FloatArray:
        values: FloatArray = np.array(records.get(name) or [np.nan] * at.size, dtype=np.float64)[keep]
        return np.where(np.isfinite(values), values, np.nan)

    if "log_evidence" in records:
        lines = [
            ("log_evidence", "candidate: log evidence", "#D55E00", "-"),
            ("threshold", "log threshold", "#222222", "--"),
        ]
        axes.set_ylabel("log evidence (nats)")
    elif np.isfinite(column("new_lower")).any():
        lines = [
            ("new_lower", "candidate: lower bound", "#0072B2", "-"),
            ("deployed_upper", "deployed: upper bound", "#222222", "--"),
        ]
        axes.set_ylabel(f"{measured} per round")
    else:
        lines = [
            ("new_mean", "candidate: mean estimate", "#56B4E9", "-"),
            ("deployed_mean", "deployed: mean estimate", "#222222", ":"),
        ]
        axes.set_ylabel(f"{measured} per round")
    for name, label, colour, style in lines:
        axes.plot(at[keep], column(name), color=colour, linestyle=style, linewidth=1.3, label=label, zorder=4)
    _draw_deployments(axes, cell)
    axes.set_xscale("log")
    axes.set_xlim(1, max(10, cell["rounds"]))
    _limit_to_late_values(axes, at[keep], [column(name) for name, *_ in lines])
    axes.set_title(f"{method}, seed {cell['seed']}", loc="left", fontsize=10)


def _draw_deployments(axes: Axes, cell: Cell) -> None:
    """Vertical lines, through the whole panel if they are few, else short ones at its foot, the unsafe ones taller."""
    are_few = len(cell["deployments"]) <= _FEW_DEPLOYMENTS
    for is_unsafe, colour, label in (
        (False, _SAFE_COLOUR, "deployment"),
        (True, _UNSAFE_COLOUR, "deployment, truly worse"),
    ):
        rounds = [one["at"] for one in cell["deployments"] if _is_worse(one) == is_unsafe]
        if rounds:
            axes.vlines(
                np.maximum(rounds, 1),
                0.0,
                1.0 if are_few else 0.18 if is_unsafe else 0.09,
                transform=axes.get_xaxis_transform(),
                colors=colour,
                linewidth=1.4 if is_unsafe and are_few else 0.9,
                label=label,
                zorder=3 if is_unsafe else 2,
            )


def _is_worse(deployment: Cell) -> bool:
    before, after = deployment["true_value_before"], deployment["true_value_after"]
    return before is not None and after is not None and bool(after < before)


def _limit_to_late_values(axes: Axes, at: FloatArray, lines: Sequence[FloatArray]) -> None:
    """Show the values of the second half of the (log) axis whole; the first, wide bounds leave the panel."""
    late = np.concatenate([line[at >= np.sqrt(at[-1])] for line in lines])
    late = late[np.isfinite(late)]
    if late.size:
        margin = 0.15 * max(np.ptp(late), 1e-3)
        axes.set_ylim(late.min() - margin, late.max() + margin)


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
        _say(axes, "No results.")


def _say(axes: Axes, text: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center")


def _colours(cells: Sequence[Cell]) -> dict[str, str]:
    """Colour by method; methods without one of their own take others in alphabetical order."""
    unknown = sorted({str(cell["method"]) for cell in cells} - COLOURS.keys())
    return COLOURS | {name: _OTHER_COLOURS[i % len(_OTHER_COLOURS)] for i, name in enumerate(unknown)}


def _task(cells: Sequence[Cell]) -> str:
    return str(cells[0]["task"]) if cells else "classification"


def _world(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    cell = cells[0]
    noise = f"{cell['clicks']} clicks" if "clicks" in cell else f"{cell.get('rewards')} rewards"
    return f"{cell['data']}, {noise}"


def _subject(cells: Sequence[Cell]) -> str:
    n_seeds = len({cell["seed"] for cell in cells})
    return f"{_world(cells)}, {n_seeds} seed{'' if n_seeds == 1 else 's'}" if cells else ""


def _statistic(cells: Sequence[Cell]) -> str:
    return "mean ± 1 sd" if len({cell["seed"] for cell in cells}) > 1 else "one seed"
