"""A run: methods x seeds as cells, side by side, each written whole; then summary, tables, figures, report."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seamark import __version__
from seamark.experiments.cell import SCHEMA, Stopped
from seamark.experiments.methods import Options
from seamark.experiments.tasks import OWN_OPTIONS, TASKS, AnyCell, Skipped, one_of
from seamark.gates import Schedule

SEMANTICS = ("paper", "released")
_OF_TASK: Any = None  # filled in by the task


@dataclass(frozen=True)
class RunConfig:
    """What a run compares. Options left out are those of the task, and follow the semantics."""

    data: str = _OF_TASK
    methods: str = _OF_TASK
    rewards: str = _OF_TASK
    semantics: str = "paper"
    baseline: str = _OF_TASK
    floor: float | None = None
    rounds: int = 100_000
    seeds: int = 3
    first_seed: int = 4200
    delta: float = 0.05
    check: str = "published"
    overrides: dict[str, Options] = field(default_factory=dict)
    task: str = "classification"
    clicks: str = _OF_TASK

    def __post_init__(self) -> None:
        one_of("task", self.task, tuple(TASKS))
        task = TASKS[self.task]
        for name in OWN_OPTIONS:
            if name in task.defaults:
                if getattr(self, name) is None:
                    object.__setattr__(self, name, task.defaults[name])
            elif getattr(self, name) is not None:
                has = ", ".join(n for n in OWN_OPTIONS if n in task.defaults)
                raise ValueError(f"{name}: {getattr(self, name)!r}; {self.task} has no such option, it has {has}.")
        one_of("semantics", self.semantics, SEMANTICS)
        for name, low in (("rounds", 1), ("seeds", 1), ("first_seed", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"{name}: {getattr(self, name)}; must be at least {low}.")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta: {self.delta}; must be between 0 and 1.")
        Schedule.parse(self.check)
        known = task.check(self)
        for name in self.overrides:
            if name not in known:
                raise ValueError(f"--set {name}: not a method; choose from {', '.join(known)}.")

    @property
    def floor_used(self) -> float:
        """The floor: 0.05 under the paper's semantics (and as epsilon), none in the released ones or for rankers."""
        if self.floor is not None:
            return float(self.floor)
        return 0.0 if self.task == "ranking" or (self.semantics, self.baseline) == ("released", "boltzmann") else 0.05

    @property
    def seeds_used(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    def settled(self) -> dict[str, Any]:
        """Every option of the task as it is used, plain."""
        names = ("task", *TASKS[self.task].defaults, "semantics", "rounds", "seeds", "first_seed", "delta", "check")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Plan:
    """The cells of a run, and the methods that cannot run here, with the reason."""

    config: RunConfig
    world: Any
    """`SupervisedWorld` or `RankingWorld`, by the task."""
    cells: tuple[Any, ...]
    skipped: tuple[Skipped, ...]


def plan(config: RunConfig, world: Any = None) -> Plan:
    """Loads the data, settles every option, and finds out beforehand what cannot run."""
    task = TASKS[config.task]
    world = world or task.world(config)
    cells, skipped = task.cells(config, world)
    return Plan(config, world, tuple(cells), tuple(skipped))


class Watcher:
    """What a run tells while it goes; override what is of interest."""

    def started(self, cell: AnyCell) -> None: ...
    def progress(self, cell: AnyCell, done: int) -> None: ...
    def finished(self, cell: AnyCell, result: dict[str, Any], reused: bool) -> None: ...
    def failed(self, cell: AnyCell, error: str) -> None: ...


@dataclass(frozen=True)
class Outcome:
    cells: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    skipped: list[dict[str, str]]
    interrupted: bool = False


def execute(
    plan: Plan, out: Path, *, jobs: int = 0, overwrite: bool = False, watcher: Watcher | None = None
) -> Outcome:
    """Runs the cells that are not yet in `out`, `jobs` at a time (0: one per core); each is written when done.

    A cell that fails is recorded and the others go on. An interruption leaves the finished cells; running again
    with the same folder resumes.
    """
    if jobs < 0:
        raise ValueError(f"jobs: {jobs}; must be 0 (one per core) or a positive number.")
    watcher, task = watcher or Watcher(), TASKS[plan.config.task]
    folder = out / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = jobs or os.cpu_count() or 1
    stop = threading.Event()
    baselines: dict[int, Any] = {}
    results: dict[str, dict[str, Any]] = {}
    failed: list[dict[str, Any]] = []

    def run_one(cell: AnyCell) -> dict[str, Any]:
        watcher.started(cell)
        return task.run(cell, plan.world, baselines[cell.seed], lambda done: watcher.progress(cell, done), stop.is_set)

    def keep(cell: AnyCell, result: dict[str, Any]) -> None:
        write_json(folder / f"{cell.id}.json", result)
        results[cell.id] = result
        watcher.finished(cell, result, False)

    todo: list[AnyCell] = []
    for cell in plan.cells:
        kept = None if overwrite else read_cell(folder / f"{cell.id}.json")
        if kept is None:
            todo.append(cell)
        else:
            results[cell.id] = kept
            watcher.finished(cell, kept, True)
    for cell in todo:
        if cell.seed not in baselines:
            baselines[cell.seed] = task.baseline(cell, plan.world)
    interrupted = False
    with _one_blas_thread(), ThreadPoolExecutor(jobs) as pool:
        running: dict[Future[dict[str, Any]], AnyCell] = {pool.submit(run_one, c): c for c in todo}
        try:
            while running:
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    cell = running.pop(future)
                    try:
                        keep(cell, future.result())
                    except Stopped:
                        continue
                    except Exception as error:
                        # recorded, reported, and told by the exit code; the other cells go on
                        line = f"{type(error).__name__}: {' '.join(str(error).split())}"
                        failed.append({"id": cell.id, "method": cell.method, "seed": cell.seed, "error": line})
                        watcher.failed(cell, line)
        except KeyboardInterrupt:
            interrupted = True
            stop.set()
            for future, cell in running.items():
                if not future.cancel() and future.done() and future.exception() is None:
                    keep(cell, future.result())
    done_cells = [results[c.id] for c in plan.cells if c.id in results]
    return Outcome(done_cells, failed, list(plan.skipped), interrupted)


def _one_blas_thread() -> Any:
    """Cells run side by side, so each leaves the other cores alone."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


RESULT = (
    "id", "method", "seed", "task", "data", "rounds", "version", "config", "at", "cumulative_reward",
    "baseline_cumulative_reward", "expected_gain", "true_value_baseline", "deployments", "unsafe_deployments",
    "worst_shortfall", "checks", "seconds", "rounds_per_second",
)  # fmt: skip
"""What a summary needs of a finished cell, whatever its task."""


def read_cell(path: Path, needs: Iterable[str] = RESULT) -> dict[str, Any] | None:
    """A finished cell, or None where there is none that can be used: no file, a damaged one, or a field missing."""
    try:
        cell: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    is_whole = isinstance(cell, dict) and cell.get("schema") == SCHEMA and cell.keys() >= set(needs)
    return cell if is_whole else None


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all."""
    part = path.with_name(path.name + f".{os.getpid()}.part")
    part.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", "utf-8")
    os.replace(part, path)


def write_outputs(
    outcome: Outcome, out: Path, *, command: str, config: dict[str, Any], notes: tuple[str, ...] = ()
) -> tuple[dict[str, Any], list[Any]]:
    """summary.json, tables.md, figures and report.html from the cells; analysis never runs anything again."""
    from seamark.experiments import figures, gate_figure
    from seamark.experiments.report import write_report
    from seamark.experiments.summary import summarise
    from seamark.experiments.tables import tables, to_markdown

    summary = summarise(outcome.cells, outcome.skipped, outcome.failed)
    summary["command"] = command
    made = tables(summary)
    write_json(out / "summary.json", summary)
    text = "\n\n".join(to_markdown(t) for t in made)
    (out / "tables.md").write_text(text + "\n", "utf-8")
    drawn: dict[str, str] = {}
    if outcome.cells:
        draw: dict[str, Callable[[Any], Any]] = {
            "learning-curve": figures.learning_curve,
            "cumulative-reward": figures.cumulative_reward,
            "bounds": gate_figure.bounds,
        }
        for name, function in draw.items():
            figure = function(outcome.cells)
            figures.save(figure, out, name)
            drawn[name.replace("-", "_")] = figures.to_svg(figure)
    meta = {
        "title": f"Seamark: {config.get('data', '')}, {config.get('rewards', config.get('clicks', ''))}",
        "command": command,
        "data": "; ".join([str(config.get("data", "")), *notes]),
        "seeds": summary["seeds"],
        "versions": f"seamark {__version__}",
        "config": config,
    }
    write_report(out / "report.html", summary, made, drawn, meta)
    return summary, made


def default_folder() -> Path:
    """A new folder of this second; runs that start in the same one get folders of their own."""
    for number in itertools.count(1):
        folder = Path("seamark-out") / (time.strftime("%Y%m%d-%H%M%S") + (f"-{number}" if number > 1 else ""))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError  # counting does not end
