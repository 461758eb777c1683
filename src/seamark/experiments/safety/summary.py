"""What the runs say: rows, a table, and whether a gate broke its promise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from seamark.experiments.safety.gates import GATES, PROMISING
from seamark.experiments.safety.learners import FIXED, LEARNERS
from seamark.experiments.safety.worlds import WORLDS
from seamark.experiments.tables import Table

FALSE_ALARM = 1e-3
"""A promising gate's false runs are a failure when so many had at most this probability at the promised rate."""


def summarise(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per gate, learner and world, in the order of the tables above."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["learner"], result["world"], result["gate"]), []).append(result)
    order = [[*LEARNERS, FIXED], list(WORLDS), list(GATES)]
    rows = []
    for key in sorted(groups, key=lambda k: [names.index(name) for names, name in zip(order, k)]):
        runs = groups[key]
        firsts = [r["deployments"][0]["at"] for r in runs if r["deployments"]]
        deployments = [d for r in runs for d in r["deployments"]]
        rows.append(
            {
                "gate": key[2], "learner": key[0], "world": key[1], "seeds": len(runs), "rounds": runs[0]["rounds"],
                "runs_with_false_deployment": sum(any(d["is_false"] for d in r["deployments"]) for r in runs),
                "deployments": len(deployments),
                "false_deployments": sum(d["is_false"] for d in deployments),
                "rollbacks": sum(d["verdict"] == "rollback" for d in deployments),
                "worst_value_change": min(r["worst_value_change"] for r in runs),
                # over the runs that deployed at all; how many did is beside it
                "median_first_deployment": float(np.median(firsts)) if firsts else None,
                "runs_that_deployed": len(firsts),
                "reward_over_baseline": float(np.mean([r["reward_over_baseline"] for r in runs])),
                "us_per_round": float(np.mean([r["us_per_round"] for r in runs])),
            }
        )  # fmt: skip
    return rows


def median_with_never(firsts: list[float]) -> float:
    ordered = sorted(firsts)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2 if math.isfinite(high) else math.inf


def binomial_interval(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate of which k of n were seen.

    >>> [round(limit, 3) for limit in binomial_interval(0, 20)]
    [0.0, 0.168]
    """
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = float(beta.ppf(tail, k, n - k + 1)) if k else 0.0
    return low, float(beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0


def broken_promises(rows: Iterable[dict[str, Any]], delta: float) -> dict[str, float]:
    """Gates that promise delta and whose false runs, over all cells, have a probability below `FALSE_ALARM` at it."""
    from scipy.stats import binom

    found = {}
    rows = list(rows)
    for gate in PROMISING:
        mine = [r for r in rows if r["gate"] == gate]
        runs, false = sum(r["seeds"] for r in mine), sum(r["runs_with_false_deployment"] for r in mine)
        p = float(binom.sf(false - 1, runs, delta)) if runs else 1.0
        if p < FALSE_ALARM:
            found[gate] = p
    return found


def _first(row: dict[str, Any]) -> str:
    if row["median_first_deployment"] is None:
        return "never"
    text, n = f"{row['median_first_deployment']:,.0f}", row["runs_that_deployed"]
    return text if n == row["seeds"] else f"{text} ({n} of {row['seeds']})"


def safety_benchmark_table(rows: list[dict[str, Any]]) -> Table:
    """The rows for a person."""

    def text(row: dict[str, Any]) -> tuple[str, ...]:
        k, n = row["runs_with_false_deployment"], row["seeds"]
        low, high = binomial_interval(k, n)
        back = f" ({row['rollbacks']} back)" if row["rollbacks"] else ""
        return (
            f"{row['learner']}, {row['world']}", row["gate"], f"{k}/{n}", f"{100 * low:.0f}-{100 * high:.0f} %",
            f"{row['deployments']}{back}", f"{row['worst_value_change']:+.3f}",
            _first(row),
            f"{row['reward_over_baseline']:+,.0f}", f"{row['us_per_round']:.2f}",
        )  # fmt: skip

    return Table(
        name="safety-benchmark",
        title="Runs that deployed a worse policy",
        note=(
            "False: runs with a deployment truly worse than what it replaced (null, worse: with any), with a 95 % "
            "interval. Worst: lowest value reached, relative to the baseline. First: median first deployment over the "
            "runs that deployed, in brackets how many if not all; never: none did. Gain: "
            "expected reward over the baseline per run. us: microseconds of the gate per round, scoring included."
        ),
        headers=("Learner, world", "Gate", "False", "95 %", "Deployed", "Worst", "First", "Gain", "us"),
        rows=tuple(text(row) for row in rows),
    )
