"""What the gates of a run saw: one panel per method, of its first seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seamark.experiments.figures import new_figure, say, thin, world_of
from seamark.experiments.summary import Cell, FloatArray, group_by_method

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_UNSAFE_COLOUR, _SAFE_COLOUR = "#CC3311", "#9A9A9A"
_FEW_DEPLOYMENTS = 40
_POSSIBLE = {"ranking": (0.0, sum(1 / np.log2(k + 1) for k in range(1, 11))), "classification": (0.0, 1.0)}
"""What a round can earn: every click of ten positions, or a reward."""


def bounds(cells: Sequence[Cell]) -> Figure:
    """What each gate saw in its first seed, one panel per method with check records.

    Lower bound of the candidate and upper bound of the deployed policy (of gates without bounds: the means), or log
    evidence and its threshold. Vertical lines are deployments, red where the true value fell.
    """
    gated = {
        method: rows[0] for method, rows in group_by_method(cells).items() if rows[0].get("check_records", {}).get("at")
    }
    with new_figure(panels=max(1, len(gated))) as (figure, panels):
        for axes, (method, cell) in zip(panels, gated.items()):
            _draw_gate(axes, method, cell)
        if not gated:
            say(panels[0], "No method of this run has a gate that checked.")
            return figure
        panels[len(gated) - 1].set_xlabel("rounds (log scale)")
        found: dict[str, Artist] = {}
        for axes in panels:
            for handle, label in zip(*axes.get_legend_handles_labels()):
                found.setdefault(label, handle)
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=3)
        figure.suptitle(f"What the gates saw\n{world_of(cells)}", x=0.01, ha="left", fontsize=11)
    return figure


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
    possible = None if "log_evidence" in records else _POSSIBLE[str(cell.get("task", "classification"))]
    _limit(axes, at[keep], {label: column(name) for name, label, *_ in lines}, possible)
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


def _limit(axes: Axes, at: FloatArray, lines: Mapping[str, FloatArray], possible: tuple[float, float] | None) -> None:
    """Show the values of the second half of the (log) axis, but hardly more than what is possible.

    The first bounds are wide and leave the panel; of those that have not come in at the end, the panel says where.
    """
    late = np.concatenate([line[at >= np.sqrt(at[-1])] for line in lines.values()])
    late = late[np.isfinite(late)]
    if not late.size:
        return
    margin = 0.15 * max(np.ptp(late), 1e-3)
    low, high = late.min() - margin, late.max() + margin
    if possible is not None:
        room = 0.1 * (possible[1] - possible[0])
        least, most = possible[0] - room, possible[1] + room
        low, high = (max(low, least), min(high, most)) if low < most and high > least else (least, most)
    axes.set_ylim(low, high)
    for name, line in lines.items():
        last = line[-1]
        if last < low or last > high:
            axes.text(
                0.99, 0.93 if last > high else 0.07, f"{name} at the end: {last:.3g}", transform=axes.transAxes,
                ha="right", va="top" if last > high else "bottom", fontsize=8, color="#555555",
            )  # fmt: skip
