"""What the cells of one run say together: means over seeds, significance against one method, and safety.

A cell is one method on one seed, as written to ``cells/<id>.json``. Arrays here are (seeds, points): one row
per seed in increasing order, one column per evaluation round in ``at``. A value that is missing or not finite
in any seed makes mean, deviation and mark of its point missing too: no mean over fewer seeds than stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Cell = Mapping[str, Any]  # parsed JSON
Summary = dict[str, Any]  # JSON to be

GAIN, LOSS = "▲", "▼"
ALPHA = 0.01
MIN_COMMON_SEEDS = 3

# As the paper's tables list them, ours last; others follow in alphabetical order.
METHOD_ORDER = (
    *("linucb", "thompson", "epsilon-greedy", "boltzmann", "clucb"),
    *("ranksvm-online", "dbgd", "pdgd", "bubblerank"),
    *("ips", "bsea", "sea", "seamark", "seamark-swaps"),
)
TEST_METRICS = ("test_accuracy", "test_ndcg10", "test_value")
_SETTING = ("task", "data", "rewards", "clicks", "rounds")  # one value per run, or nothing can be compared
_OPTIONS = ("semantics", "baseline", "floor", "delta", "version")  # listed; methods may differ in them
_ROUNDING = 1e-12  # differences below this, relative to what was subtracted, are rounding errors


def summarise(
    cells: Sequence[Cell], skipped: Iterable[Cell], failed: Iterable[Cell], *, versus: str = "sea"
) -> Summary:
    """The summary of a run as a JSON-safe dict: per method means over seeds, marks against `versus`, safety.

    Marks come from a paired two-sided t-test over the seeds that the method and `versus` share, per point and
    without correction for their number, as in the paper's tables: p < 0.01 and at least three common seeds.
    Raises ValueError where cells do not belong to one run (another world, other rounds, one seed twice).
    """
    _check_one_run(cells)
    by_method = group_by_method(cells)
    reference = by_method.get(versus, [])
    methods = {name: _summarise_method(rows, reference, name == versus) for name, rows in by_method.items()}
    first = cells[0] if cells else {}
    summary = {
        "schema": 1,
        "setting": {key: first[key] for key in _SETTING if key in first}
        | {key: _distinct(cells, key) for key in _OPTIONS},
        "seeds": sorted({int(cell["seed"]) for cell in cells}),
        "test": {
            "versus": versus,
            "is_run": bool(reference),
            "what": "two-sided t-test, paired over the seeds that both methods have",
            "alpha": ALPHA,
            "min_common_seeds": MIN_COMMON_SEEDS,
            "gain": GAIN,
            "loss": LOSS,
        },
        "at": list(first.get("at", [])),
        "methods": methods,
        "skipped": [dict(one) for one in skipped],
        "failed": [dict(one) for one in failed],
    }
    return _json_safe(summary)  # type: ignore[no-any-return]  # a dict in, a dict out


def group_by_method(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """Cells by method in the order of the tables, each method's cells by increasing seed."""
    groups: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: int(cell["seed"])):
        groups.setdefault(str(cell["method"]), []).append(cell)
    return {name: groups[name] for name in sorted(groups, key=_rank)}


def series(cells: Sequence[Cell], metric: str) -> FloatArray | None:
    """One metric as an array (seeds, points), or None where these cells do not record it.

    ``relative_reward`` and ``relative_ndcg10`` are the cumulative ones minus the baseline's, same rounds.
    """
    if metric.startswith("relative_"):
        name = metric.removeprefix("relative_")
        own, baseline = series(cells, f"cumulative_{name}"), series(cells, f"baseline_cumulative_{name}")
        return None if own is None or baseline is None else own - baseline
    if not cells or any(metric not in cell for cell in cells):
        return None
    return np.array([_floats(cell[metric]) for cell in cells])


def mean_and_sd(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and sample standard deviation over seeds, per point; the deviation of one seed is NaN."""
    mean = values.mean(axis=0)
    sd = values.std(axis=0, ddof=1) if len(values) > 1 else np.full_like(mean, np.nan)
    return mean, sd


def paired_p_values(own: FloatArray, other: FloatArray) -> FloatArray:
    """p of the two-sided paired t-test per point, for arrays (seeds, points) whose rows are the same seeds.

    NaN where a value is missing or there are fewer than three seeds. Where all differences are equal the
    statistic is 0/0 or x/0: p is then 1 if they are zero and 0 if not.
    """
    p = np.full(own.shape[1], np.nan)
    if len(own) < MIN_COMMON_SEEDS:
        return p
    difference = own - other
    scale = np.maximum(np.abs(own), np.abs(other)).max(axis=0)
    is_complete = np.isfinite(difference).all(axis=0)
    is_constant = is_complete & (np.ptp(difference, axis=0) <= _ROUNDING * scale)
    is_zero = is_constant & (np.abs(difference).max(axis=0) <= _ROUNDING * scale)
    p[is_constant] = 0.0
    p[is_zero] = 1.0
    varies = is_complete & ~is_constant
    if varies.any():
        from scipy.stats import ttest_rel

        p[varies] = ttest_rel(own[:, varies], other[:, varies], axis=0).pvalue
    return p


def marks(p: FloatArray, difference: FloatArray) -> list[str]:
    """ "▲" where the mean difference is a significant gain, "▼" where a loss, "" otherwise (NaN included)."""
    return [
        "" if not (p_value < ALPHA) else GAIN if d > 0 else LOSS if d < 0 else "" for p_value, d in zip(p, difference)
    ]


def first_deployment(cell: Cell) -> int | None:
    """The round of a cell's first deployment, or None where the baseline acted to the end."""
    return min((int(one["at"]) for one in cell["deployments"]), default=None)


def _summarise_method(cells: Sequence[Cell], reference: Sequence[Cell], is_reference: bool) -> dict[str, Any]:
    metrics = ["relative_reward", "relative_ndcg10", "expected_gain"]
    metrics += [f"{which}_{metric}" for metric in TEST_METRICS for which in ("deployed", "learned")]
    other = {int(cell["seed"]): cell for cell in reference}
    common = [cell for cell in cells if int(cell["seed"]) in other]
    pairs = (common, [other[int(cell["seed"])] for cell in common])
    found = {}
    for metric in metrics:
        values = series(cells, metric)
        if values is not None:
            mean, sd = mean_and_sd(values)
            found[metric] = {"mean": mean, "sd": sd} | _versus(metric, *pairs, is_reference, mean)
    return {
        "n_seeds": len(cells),
        "seeds": [int(cell["seed"]) for cell in cells],
        "n_common_seeds": len(common),
        "acts": _who_acts(str(cells[0]["method"]), cells),
        "series": found,
        **_safety(cells),
        "rounds_per_second": float(np.mean([_float(cell["rounds_per_second"]) for cell in cells])),
        "seconds": {
            part: float(np.mean([_float(cell["seconds"][part]) for cell in cells]))
            for part in ("total", "learning", "checking")
        },
    }


def _versus(
    metric: str, own_cells: Sequence[Cell], other_cells: Sequence[Cell], is_reference: bool, mean: FloatArray
) -> dict[str, Any]:
    own, other = series(own_cells, metric), series(other_cells, metric)
    if is_reference or own is None or other is None:
        return {"p": [None] * mean.size, "mark": [""] * mean.size}
    p = np.where(np.isfinite(mean), paired_p_values(own, other), np.nan)
    return {"p": p, "mark": marks(p, (own - other).mean(axis=0))}


def _safety(cells: Sequence[Cell]) -> dict[str, Any]:
    counts = [len(cell["deployments"]) for cell in cells]
    firsts = [first for first in map(first_deployment, cells) if first is not None]
    shortfalls = [_float(cell["worst_shortfall"]) for cell in cells]
    return {
        "checks": sum(int(cell["checks"]) for cell in cells),
        "deployments": {"total": sum(counts), "mean": sum(counts) / len(counts)},
        "unsafe_deployments": sum(int(cell["unsafe_deployments"]) for cell in cells),
        # over the seeds that deployed at all; how many did is beside it
        "first_deployment": float(np.median(firsts)) if firsts else None,
        "n_seeds_deployed": len(firsts),
        "worst_shortfall": float(np.min(shortfalls)),  # NaN where one is missing
    }


def _who_acts(method: str, cells: Sequence[Cell]) -> str:
    """ "learner" where the methods table says so, else "gated" where a gate checked or deployed, else "baseline".

    A method that is in no table, such as one of an older version, is a learner if its gain was ever other than 0.
    """
    from seamark.experiments import methods, ranking_methods  # the learners with them

    table: Mapping[str, Any] = ranking_methods.METHODS if cells[0].get("task") == "ranking" else methods.METHODS
    if any(int(cell["checks"]) > 0 or cell["deployments"] for cell in cells):
        return "gated"
    if method in table:
        return "learner" if table[method].acts == "learner" else "baseline"
    has_moved = any(value != 0.0 for cell in cells for value in _floats(cell["expected_gain"]))
    return "learner" if has_moved else "baseline"


def _check_one_run(cells: Sequence[Cell]) -> None:
    seen: set[tuple[str, int]] = set()
    for cell in cells:
        if "error" in cell:
            raise ValueError(f"cells: {cell['id']} failed ({cell['error']}). Pass failed cells as `failed`.")
        key = (str(cell["method"]), int(cell["seed"]))
        if key in seen:
            raise ValueError(f"cells: {key[0]} with seed {key[1]} occurs twice. Summarise one run at a time.")
        seen.add(key)
        for name in (*_SETTING, "at"):
            if cell.get(name) != cells[0].get(name):
                raise ValueError(
                    f"cells: {name} differs between {cells[0]['id']} and {cell['id']}. Summarise one run at a time."
                )


def _distinct(cells: Iterable[Cell], key: str) -> list[Any]:
    return list(dict.fromkeys(cell[key] for cell in cells if key in cell))


def _rank(method: str) -> tuple[int, str]:
    return (METHOD_ORDER.index(method) if method in METHOD_ORDER else len(METHOD_ORDER), method)


def _float(value: Any) -> float:  # a number or JSON's null
    return math.nan if value is None else float(value)


def _floats(values: Iterable[Any]) -> list[float]:
    return [number if math.isfinite(number) else math.nan for number in map(_float, values)]


def _json_safe(value: Any) -> Any:  # whatever JSON may hold
    """The same value of plain Python types, with null for what is not a finite number."""
    if isinstance(value, Mapping):
        return {str(key): _json_safe(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_json_safe(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
