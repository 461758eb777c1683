"""The authors' grid search, on a validation part that neither contexts nor baselines have seen.

A fixed fifth of the *training* rows (ranking: queries) is held out before anything else; the test part is not
touched. Every point of the grid is a cell like any other, so a search runs in parallel, resumes, and never mixes with
runs on the whole set: the validation split is part of the data's hash.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seamark import __version__
from seamark.experiments import run as runs
from seamark.experiments.methods import METHODS, Options, resolve_methods
from seamark.experiments.tables import Table, format_number
from seamark.experiments.tune_split import split_queries, split_rows
from seamark.worlds import datasets, letor

if TYPE_CHECKING:
    pass

BASES = (1, 3)
METRICS = ("auto", "learned", "deployed", "cumulative")
DEFAULT_GRID = {"lr": "1e-4:1", "l2": "0", "alpha": "0.01:10"}
_METRIC_NAMES = {
    ("learned", "classification"): "learned_test_accuracy",
    ("deployed", "classification"): "deployed_test_accuracy",
    ("cumulative", "classification"): "cumulative_reward",
    ("learned", "ranking"): "learned_test_ndcg10",
    ("deployed", "ranking"): "deployed_test_ndcg10",
    ("cumulative", "ranking"): "cumulative_ndcg10",
}


def grid(text: str) -> list[float]:
    """The values of one axis: `0.01,0.1`, or `1e-3:0.1` for the bases 1 and 3 times powers of ten in between.

    >>> grid("1e-3:0.1"), grid("0, 1e-5:3e-5")
    ([0.001, 0.003, 0.01, 0.03, 0.1], [0.0, 1e-05, 3e-05])
    """
    values: list[float] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        low, colon, high = part.partition(":")
        try:
            first, last = float(low), float(high) if colon else float(low)
        except ValueError:
            raise ValueError(f"grid: {part!r}; must be a number, or LOW:HIGH such as 1e-4:1.") from None
        if not 0 <= first <= last < math.inf or (colon and first == 0):
            raise ValueError(f"grid: {part!r}; must be finite, not negative, and rise from above 0 in LOW:HIGH.")
        values += _bases_between(first, last) if colon else [first]
    if not values:
        raise ValueError(f"grid: {text!r} has no value; give numbers such as 0.01,0.1 or 1e-4:1.")
    return sorted(set(values))


def _bases_between(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    values = [float(f"{base}e{k}") for k in decades for base in BASES]
    slack = 1 + 1e-9
    return [v for v in values if low / slack <= v <= high * slack]


@dataclass(frozen=True)
class TuneConfig:
    """A search. The grids are texts as `grid` reads them; None is the default of the method's axis."""

    data: str
    methods: str
    noise: str = "perfect"  # of rewards or of clicks
    task: str = "classification"
    semantics: str = "released"
    baseline: str | None = None
    lr: str | None = None
    l2: str | None = None
    alpha: str | None = None
    rounds: int = 100_000
    seeds: int = 3
    first_seed: int = 4200
    metric: str = "auto"

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric: {self.metric!r}; must be {', '.join(METRICS)}.")

    def grids(self) -> dict[str, list[float]]:
        """The values of every axis."""
        return {axis: grid(getattr(self, axis) or default) for axis, default in DEFAULT_GRID.items()}

    def run_config(self, method: str, overrides: Options) -> runs.RunConfig:
        """One point of the grid as a run."""
        noise: dict[str, Any] = {("clicks" if self.task == "ranking" else "rewards"): self.noise}
        if self.baseline is not None:
            noise["baseline"] = self.baseline
        return runs.RunConfig(
            task=self.task, data=self.data, methods=method, semantics=self.semantics, rounds=self.rounds,
            seeds=self.seeds, first_seed=self.first_seed, overrides={method: overrides}, **noise,
        )  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One point of a method's grid and what it scored."""

    method: str
    options: Options
    metric: str
    scores: tuple[float, ...] = ()  # per seed
    trouble: str = ""

    @property
    def score(self) -> float:
        """Mean over seeds; minus infinity where a seed is missing or not finite."""
        is_sound = bool(self.scores) and not self.trouble and all(map(math.isfinite, self.scores))
        return float(np.mean(self.scores)) if is_sound else -math.inf

    @property
    def sd(self) -> float | None:
        return float(np.std(self.scores, ddof=1)) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class Best:
    """The best point of a method; `edges` says at which ends of the grid it lies."""

    point: Point
    edges: tuple[str, ...]
    n_points: int


@dataclass(frozen=True)
class Tuned:
    """A finished search."""

    config: TuneConfig
    data: str
    points: list[Point]
    best: list[Best]
    skipped: list[dict[str, str]]
    failed: list[dict[str, Any]]
    notes: tuple[str, ...]


class Interrupted(Exception):
    """The search was stopped; finished cells are kept."""


def tune(config: TuneConfig, out: Path, *, jobs: int = 0, watcher: runs.Watcher | None = None) -> Tuned:
    """Runs the grid of every method and finds the best point of each; cells go to `out`/cells."""
    world = validation_world(config)
    plans: list[tuple[str, Options, runs.Plan]] = []
    skipped: list[dict[str, str]] = []
    for method in _methods(config):
        for options in points(config, method):
            plan = runs.plan(config.run_config(method, options), world)
            if plan.skipped:
                skipped += [one for one in map(dict, plan.skipped) if one not in skipped]
                break
            plans.append((method, options, plan))
    if not plans:
        reasons = " ".join(one["reason"] for one in skipped)
        raise ValueError(f"nothing to tune. {reasons}".strip())
    cells = tuple(cell for _, _, plan in plans for cell in plan.cells)
    outcome = runs.execute(replace(plans[0][2], cells=cells, skipped=()), out, jobs=jobs, watcher=watcher)
    if outcome.interrupted:
        raise Interrupted(f"{len(outcome.cells)} of {len(cells)} cells done")
    results = {cell["id"]: cell for cell in outcome.cells}
    failures = {one["id"]: one["error"] for one in outcome.failed}
    found = [_scored(config, method, options, plan, results, failures) for method, options, plan in plans]
    best = [_best(config, [p for p in found if p.method == m]) for m in dict.fromkeys(p.method for p in found)]
    return Tuned(
        config, world.name, found, [b for b in best if b is not None], skipped, outcome.failed, tuple(world.notes)
    )


def _methods(config: TuneConfig) -> list[str]:
    """The methods to tune, as the task knows them."""
    if config.task == "classification":
        return list(resolve_methods(config.methods))
    return [name.strip() for name in config.methods.split(",") if name.strip()]


def points(config: TuneConfig, method: str) -> Iterator[Options]:
    """The grid of one method: alpha (and l2 if it was given) for ridge methods, learning rate x l2 for the others."""
    axes = config.grids()
    if config.task == "classification" and METHODS[method].is_ridge:
        axes["l2"] = [value for value in axes["l2"] if value > 0]  # ridge regression takes a penalty
        names = ["alpha"] + (["l2"] if config.l2 is not None and axes["l2"] else [])
    elif config.task == "ranking" and config.l2 is None:
        names = ["lr"]
    else:
        names = ["lr", "l2"]
    for values in itertools.product(*(axes[name] for name in names)):
        yield dict(zip(names, values))


def _scored(
    config: TuneConfig,
    method: str,
    options: Options,
    plan: runs.Plan,
    results: dict[str, Any],
    failures: dict[str, str],
) -> Point:
    metric = metric_of(config, method)
    trouble = next((failures[cell.id] for cell in plan.cells if cell.id in failures), "")
    name = _METRIC_NAMES[metric, config.task]
    scores = []
    for cell in plan.cells:
        if cell.id in results:
            found = results[cell.id]
            value = found[name][-1]
            if metric == "cumulative" and value is not None:
                value -= found[f"baseline_{name}"][-1]
            scores.append(math.nan if value is None else float(value))
    return Point(method, options, metric, tuple(scores), trouble)


def metric_of(config: TuneConfig, method: str) -> str:
    """What a method is judged by: what it learned if it never acts, else what it earned."""
    if config.metric != "auto":
        return config.metric
    return "learned" if method == "ips" else "cumulative"


def _best(config: TuneConfig, found: Sequence[Point]) -> Best | None:
    """The best point, the earlier (smaller) one if two score alike; None where no point is sound."""
    if not found:
        return None
    top = max(found, key=lambda p: p.score)
    if top.score == -math.inf:
        return None
    edges = []
    for axis, value in top.options.items():
        values = sorted({p.options[axis] for p in found})
        if len(values) > 1 and value in (values[0], values[-1]) and value != 0:
            edges.append(f"{axis} at its {'lowest' if value == values[0] else 'highest'}")
    return Best(top, tuple(edges), len(found))


# The validation part


def validation_world(config: TuneConfig) -> Any:
    """The world of the search: four fifths of the training part to learn from, one fifth in place of the test part."""
    if config.task == "ranking":
        from seamark.worlds.ranking import RankingWorld

        return RankingWorld.of(split_queries(letor.load(config.data)), config.noise)
    from seamark.worlds.supervised import SupervisedWorld

    return SupervisedWorld.of(split_rows(datasets.load(config.data)), config.noise)


# Outputs


def table(tuned: Tuned) -> Table:
    """The best point of every method."""
    rows = []
    for best in tuned.best:
        point = best.point
        decimals = 1 if point.metric == "cumulative" else 4
        text = format_number(point.score, decimals)
        if point.sd is not None:
            text += f" ± {format_number(point.sd, decimals)}"
        chosen = ", ".join(f"{k} = {v:g}" for k, v in point.options.items())
        rows.append((point.method, chosen, f"{best.n_points:,}", point.metric, text, ", ".join(best.edges) or "inside"))
    return Table(
        name="tuned",
        title=f"Best of the grid: {tuned.data}, {tuned.config.noise}, {tuned.config.rounds:,} rounds",
        note="Mean ± sample standard deviation over seeds on the validation part (learned, deployed) or while training "
        "(cumulative, relative to the baseline). A best at the lowest or highest value of the grid asks for a wider "
        "one. Two points that score alike: the smaller values.",
        headers=("Method", "Best", "Points", "Judged by", "Score", "Where in the grid"),
        rows=tuple(rows),
    )


def grid_table(tuned: Tuned) -> Table:
    """Every point, the best first within its method."""
    rows = []
    for method in dict.fromkeys(p.method for p in tuned.points):
        for point in sorted((p for p in tuned.points if p.method == method), key=lambda p: -p.score):
            score = format_number(point.score if math.isfinite(point.score) else None, 4)
            chosen = ", ".join(f"{k} = {v:g}" for k, v in point.options.items())
            rows.append((method, chosen, point.metric, score, point.trouble))
    return Table("grid", "All points", "", ("Method", "Point", "Judged by", "Score", "Trouble"), tuple(rows))


def to_toml(tuned: Tuned, command: str) -> str:
    """What `seamark run --config` takes."""
    config = tuned.config
    lines = [
        f"# Written by seamark {__version__}: {command}",
        f"# {config.rounds:,} rounds, {config.seeds} seeds from {config.first_seed}, on a validation part.",
        "",
        f"task = {json.dumps(config.task)}",
        f"data = {json.dumps(config.data)}",
        f"{'clicks' if config.task == 'ranking' else 'rewards'} = {json.dumps(config.noise)}",
        f"semantics = {json.dumps(config.semantics)}",
    ]
    if config.baseline is not None:
        lines.append(f"baseline = {json.dumps(config.baseline)}")
    lines.append(f"methods = {json.dumps(','.join(best.point.method for best in tuned.best))}")
    for best in tuned.best:
        point = best.point
        lines += ["", f"# {point.metric} {point.score:.6g}" + "".join(f"; {edge}" for edge in best.edges)]
        lines += [f"[set.{point.method}]", *(f"{key} = {value!r}" for key, value in point.options.items())]
    return "\n".join(lines) + "\n"


def write(tuned: Tuned, out: Path, command: str) -> None:
    """tuned.toml, grid.md and tune.json into the folder of the search."""
    from seamark.experiments.tables import to_markdown

    _write_text(out / "tuned.toml", to_toml(tuned, command))
    _write_text(out / "grid.md", to_markdown(table(tuned)) + "\n" + to_markdown(grid_table(tuned)))
    runs.write_json(
        out / "tune.json",
        {
            "schema": 1,
            "command": command,
            "data": tuned.data,
            "noise": tuned.config.noise,
            "rounds": tuned.config.rounds,
            "notes": list(tuned.notes),
            "points": [
                {
                    "method": p.method, "options": p.options, "metric": p.metric, "trouble": p.trouble,
                    "score": p.score if math.isfinite(p.score) else None,
                    "scores": [s if math.isfinite(s) else None for s in p.scores],
                }
                for p in tuned.points
            ],
            "best": [
                {"method": b.point.method, "options": b.point.options, "edges": list(b.edges)} for b in tuned.best
            ],
            "skipped": tuned.skipped,
            "failed": tuned.failed,
        },
    )  # fmt: skip


def _write_text(path: Path, text: str) -> None:
    part = path.with_name(path.name + f".{os.getpid()}.part")
    part.write_text(text, "utf-8")
    os.replace(part, path)
