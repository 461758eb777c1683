"""Safety over all runs: who deployed what, and was it worse?

A deployment is *worse* if it lowered the true value, computed over the whole population of contexts, and *below the
baseline* if the new policy's true value is under the baseline's. Deployments of one run depend on each other, so
intervals are given for the share of runs that had at least one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seamark.experiments.paper.results import Gathered
from seamark.experiments.paper.targets import RunSpec
from seamark.experiments.summary import METHOD_ORDER, Cell, group_by_method
from seamark.experiments.tables import MISSING, Table, format_number

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Safety:
    """One method's deployments in one run folder, or over several."""

    data: str
    noise: str
    semantics: str
    method: str
    rounds: int
    runs: int  # seeds
    deployments: int
    worse: int
    below_baseline: int
    runs_with_worse: int
    worst_shortfall: float | None
    is_extra: bool = False  # repeats the rounds of a main run, and goes on

    @property
    def interval(self) -> tuple[float, float]:
        """The interval for the share of runs with at least one worse deployment."""
        return binomial_interval(self.runs_with_worse, self.runs)

    def record(self) -> dict[str, Any]:
        low, high = self.interval
        return asdict(self) | {"interval": [low, high], "confidence": CONFIDENCE}


def binomial_interval(successes: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of Clopper and Pearson for a probability; assumes independent trials.

    >>> low, high = binomial_interval(0, 15)
    >>> low, round(high, 4), round(1 - 0.025 ** (1 / 15), 4)
    (0.0, 0.218, 0.218)
    """
    from scipy.stats import beta

    if trials == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(beta.ppf(1 - tail, successes + 1, trials - successes))
    return low, high


def of_run(run: Gathered) -> list[Safety]:
    """One line per method that has a gate, under the semantics that its cells were run with."""
    found = []
    for spec, cells in run.parts():
        for method, same in group_by_method(cells).items():
            if run.summary["methods"][method]["acts"] == "gated":
                found.append(_of_cells(spec, method, same))
    return found


def of_runs(runs: Sequence[Gathered]) -> list[Safety]:
    """The lines of all runs, those of shared methods once."""
    return list(dict.fromkeys(row for run in runs for row in of_run(run)))


def worse_deployments(runs: Sequence[Gathered]) -> list[dict[str, Any]]:
    """Every deployment of the runs that lowered the true value, once."""
    found = [one for run in runs for one in _worse(run)]
    return list({tuple(one.values()): one for one in found}.values())


def _worse(run: Gathered) -> list[dict[str, Any]]:
    return [
        {
            "run": spec.folder, "method": cell["method"], "seed": cell["seed"], "at": one["at"],
            "before": one["true_value_before"], "after": one["true_value_after"],
            "baseline": cell["true_value_baseline"],
        }
        for spec, cells in run.parts()
        for cell in cells
        for one in cell["deployments"]
        if one["true_value_after"] < one["true_value_before"]
    ]  # fmt: skip


def totals(rows: Sequence[Safety]) -> list[Safety]:
    """The rows added up per method and semantics, without extra runs: they would count their rounds twice."""
    groups: dict[tuple[str, str], list[Safety]] = {}
    for row in (row for row in rows if not row.is_extra):
        groups.setdefault((row.method, row.semantics), []).append(row)
    order = {name: i for i, name in enumerate(METHOD_ORDER)}
    added = []
    for (method, semantics), same in sorted(groups.items(), key=lambda g: (order.get(g[0][0], 99), g[0])):
        shortfalls = [row.worst_shortfall for row in same if row.worst_shortfall is not None]
        added.append(
            Safety(
                "all", "all", semantics, method, max(r.rounds for r in same), sum(r.runs for r in same),
                sum(r.deployments for r in same),
                sum(r.worse for r in same), sum(r.below_baseline for r in same),
                sum(r.runs_with_worse for r in same), min(shortfalls, default=None),
            )
        )  # fmt: skip
    return added


def table(rows: Sequence[Safety]) -> Table:
    """All runs, then the totals."""
    return Table(
        name="safety",
        title="Safety over all runs",
        note="Worse: the deployment lowered the true value, computed over all contexts. Below baseline: the deployed "
        "policy is worth less than the baseline. Runs with worse: runs (seeds) with at least one worse deployment, "
        f"and the exact {CONFIDENCE:.0%} interval for their share. Worst shortfall: largest fall of cumulative "
        "expected reward (ranking: click-DCG@10, which its gates certify) below the baseline's, in any run at any "
        "time. Methods without a gate are left out; those of rankings that do not depend on the semantics stand under "
        "`released`.",
        headers=(
            "Run and method", "Semantics", "Rounds", "Runs", "Deployments", "Worse", "Below baseline",
            "Runs with worse", "Share of runs", "Worst shortfall",
        ),
        rows=tuple(map(_row, [*rows, *totals(rows)])),
    )  # fmt: skip


def worse_table(found: Sequence[dict[str, Any]], methods: Sequence[str] = ("sea", "seamark"), most: int = 40) -> Table:
    """The worse deployments of the methods that promise not to make any, the first `most` of them."""
    shown = [one for one in found if one["method"] in methods]
    rest = len(shown) - most
    return Table(
        name="worse_deployments",
        title=f"Deployments of {' and '.join(methods)} that lowered the true value",
        note="True value: expected reward per round over all contexts."
        + (f" The other {rest:,} are in the JSON file." if rest > 0 else ""),
        headers=("Run", "Method", "Seed", "Round", "Value before", "Value after", "Baseline's value"),
        rows=tuple(
            (
                one["run"], one["method"], str(one["seed"]), f"{one['at']:,}",
                *(format_number(one[key], 4) for key in ("before", "after", "baseline")),
            )
            for one in shown[:most]
        ),
    )  # fmt: skip


def _row(row: Safety) -> tuple[str, ...]:
    name = f"all runs, {row.method}" if row.data == "all" else f"{row.data}, {row.noise}, {row.method}"
    low, high = row.interval
    shortfall = MISSING if row.worst_shortfall is None else format_number(row.worst_shortfall, 2)
    return (
        name, row.semantics, f"{row.rounds:,}", f"{row.runs:,}", f"{row.deployments:,}", f"{row.worse:,}",
        f"{row.below_baseline:,}",
        f"{row.runs_with_worse:,}", f"{low:.0%} to {high:.0%}", shortfall,
    )  # fmt: skip


def _of_cells(spec: RunSpec, method: str, cells: Sequence[Cell]) -> Safety:
    made = [(cell, one) for cell in cells for one in cell["deployments"]]
    shortfalls = [cell["worst_shortfall"] for cell in cells if cell["worst_shortfall"] is not None]
    return Safety(
        spec.data, spec.noise, spec.semantics, method, spec.rounds, len(cells), len(made),
        sum(int(cell["unsafe_deployments"]) for cell in cells),
        sum(one["true_value_after"] < cell["true_value_baseline"] for cell, one in made),
        sum(int(cell["unsafe_deployments"]) > 0 for cell in cells),
        min(shortfalls, default=None), spec.is_extra,
    )  # fmt: skip
