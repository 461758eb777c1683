"""The cells behind the tables: run where they are not yet there, read where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from seamark.experiments import run as runs
from seamark.experiments.paper.compare import Obtained
from seamark.experiments.paper.targets import Missing, RunSpec
from seamark.experiments.summary import Summary, series, summarise
from seamark.worlds import datasets, letor


class Interrupted(Exception):
    """The run was stopped; finished cells are kept, and the same command goes on."""


@dataclass(frozen=True)
class Gathered:
    """One run's cells and what is not among them."""

    spec: RunSpec
    cells: list[dict[str, Any]]
    skipped: list[dict[str, str]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)  # cells per method that are not there
    notes: tuple[str, ...] = ()
    sha256: str = ""
    lent: Gathered | None = None
    """What the run of the shared methods lacks, where the command does not list that run itself."""

    def parts(self) -> list[tuple[RunSpec, list[dict[str, Any]]]]:
        """The cells by the run that they belong to: this one, and the one that lends those of shared methods."""
        shared = set(self.spec.shared)
        found = [(self.spec, [c for c in self.cells if c["method"] not in shared])]
        if self.spec.lender is not None:
            found.append((self.spec.lender, [c for c in self.cells if c["method"] in shared]))
        return [(spec, cells) for spec, cells in found if cells]

    @cached_property
    def summary(self) -> Summary:
        """Means over seeds, marks against SEA."""
        return summarise(self.cells, self.skipped, self.failed)

    @cached_property
    def _against_baseline(self) -> Summary:
        """The same with marks against ips, which never leaves the baseline."""
        return summarise(self.cells, self.skipped, self.failed, versus="ips")

    def obtained(self, method: str, metric: str, at: int, *, versus_baseline: bool = False) -> Obtained | None:
        """A method's mean of a metric at a round; None where the method did not run or not that far."""
        summary = self._against_baseline if versus_baseline else self.summary
        found = summary["methods"].get(method)
        if found is None or metric not in found["series"] or at not in summary["at"]:
            return None
        series, i = found["series"][metric], summary["at"].index(at)
        if series["mean"][i] is None:
            return None
        return Obtained(series["mean"][i], series["sd"][i], found["n_seeds"], series["mark"][i])

    def less_sea(self, method: str, metric: str, at: int) -> Obtained | None:
        """The mean over common seeds of the method's number less SEA's; None where either is not there."""
        mine = {int(c["seed"]): c for c in self.cells if c["method"] == method}
        sea = {int(c["seed"]): c for c in self.cells if c["method"] == "sea"}
        seeds = sorted(mine.keys() & sea.keys())
        if not seeds or at not in self.summary["at"]:
            return None
        own, other = series([mine[s] for s in seeds], metric), series([sea[s] for s in seeds], metric)
        if own is None or other is None:
            return None
        gap = (own - other)[:, self.summary["at"].index(at)]
        if not np.isfinite(gap).all():
            return None
        return Obtained(float(gap.mean()), float(gap.std(ddof=1)) if gap.size > 1 else None, int(gap.size))

    def missing(self) -> list[Missing]:
        """Everything that this run lacks, with the reason."""
        name, task = self.spec.folder, self.spec.task
        if self.spec.is_extra:
            name += f", {self.spec.rounds:,} rounds"
        out = [Missing(f"{name}, {one['method']}", one["reason"], "", task) for one in self.skipped]
        out += [
            Missing(f"{name}, {one['method']}, seed {one['seed']}", f"failed: {one['error']}", "", task)
            for one in self.failed
        ]
        if self.lacking:
            counts = [m if n == self.spec.seeds else f"{m} {n} of {self.spec.seeds}" for m, n in self.lacking.items()]
            remedy = "run without --no-run."
            if not self.cells and len(counts) > 1:
                out.append(Missing(name, "no cell is there;", remedy, task))
            else:
                out.append(Missing(f"{name}, {', '.join(counts)}", "cells not there;", remedy, task))
        return out + (self.lent.missing() if self.lent else [])


def gather(
    specs: Sequence[RunSpec],
    out: Path,
    *,
    jobs: int = 0,
    is_run: bool = True,
    watcher: runs.Watcher | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[Gathered]:
    """The results of every run; without `is_run` only what is there already."""
    loaded: dict[str, Any] = {}
    gathered = []
    for spec in specs:
        if spec.data not in loaded:
            loaded.clear()  # one set at a time
            loaded[spec.data] = _load(spec)
        say(spec.folder if len(spec.methods) != 1 else f"{spec.folder}, {spec.methods[0]}")
        found = _gather(spec, out, loaded[spec.data], jobs=jobs, is_run=is_run, watcher=watcher)
        if (lender := spec.lender) is not None:
            is_listed = any((s.folder, s.rounds) == (lender.folder, lender.rounds) for s in specs)
            lent = _gather(lender, out, loaded[spec.data], jobs=jobs, is_run=is_run and not is_listed, watcher=watcher)
            found = replace(
                found, cells=[*found.cells, *lent.cells], lent=None if is_listed else lent,
                notes=found.notes or lent.notes, sha256=found.sha256 or lent.sha256,
            )  # fmt: skip
        gathered.append(found)
    return gathered


def _gather(spec: RunSpec, out: Path, data: Any, *, jobs: int, is_run: bool, watcher: runs.Watcher | None) -> Gathered:
    if not spec.methods:  # all are shared
        return Gathered(spec, [])
    plan = runs.plan(runs.RunConfig(**spec.settings()), _world(spec, data))
    folder = out / spec.folder
    if is_run:
        outcome = runs.execute(plan, folder, jobs=jobs, watcher=watcher)
        if outcome.interrupted:
            raise Interrupted(f"{len(outcome.cells)} of {len(plan.cells)} cells of {spec.folder} are done")
        cells, failed = outcome.cells, outcome.failed
    else:
        cells = [c for p in plan.cells if (c := runs.read_cell(folder / "cells" / f"{p.id}.json")) is not None]
        failed = []
    done = {cell["id"] for cell in cells} | {one["id"] for one in failed}
    lacking: dict[str, int] = {}
    for cell in plan.cells:
        if cell.id not in done:
            lacking[cell.method] = lacking.get(cell.method, 0) + 1
    slim = [{k: v for k, v in cell.items() if k != "check_records"} for cell in cells]
    return Gathered(spec, slim, list(plan.skipped), failed, lacking, tuple(plan.world.notes), plan.world.sha256)


def _load(spec: RunSpec) -> Any:
    return letor.load(spec.data) if spec.task == "ranking" else datasets.load(spec.data)


def _world(spec: RunSpec, data: Any) -> Any:
    if spec.task == "ranking":
        from seamark.worlds.ranking import RankingWorld

        return RankingWorld.of(data, spec.noise)
    from seamark.worlds.supervised import SupervisedWorld

    return SupervisedWorld.of(data, spec.noise)
