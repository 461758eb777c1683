"""The small part of a reproduction that is worth committing: numbers, tables, figures, and how they were made."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from seamark.experiments import figures
from seamark.experiments.paper.outputs import Made, provenance, to_json, to_text, versions
from seamark.experiments.paper.results import Gathered
from seamark.experiments.paper.targets import Wanted
from seamark.experiments.run import write_json
from seamark.worlds import datasets
from seamark.worlds.catalogue import CATALOGUE

_Run = tuple[str, int]  # folder and rounds
_POWERS = tuple(10**k for k in range(9))
_DIGITS = 6  # significant ones in a committed file


def export(made: Made, folder: Path) -> list[Path]:
    """Writes summaries/, tables/, figures/ and provenance.json into `folder`; nothing in them names a machine's path.

    Refuses to take the place of an export that holds more.
    """
    has = Counter[_Run]()
    for run in provenance(made.runs):
        has[run["run"], run["rounds"]] += run["cells"]
    _refuse_to_lose(folder, [t.name for t in made.wanted.targets], has)
    for name in ("summaries", "tables", "figures"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    written = []
    for name, found in _summaries(made.runs).items():
        path = folder / "summaries" / f"{name}.json"
        write_json(path, found)
        written.append(path)
    for section in made.sections:
        for name, figure in section.figures.items():
            written += figures.save(figure, folder / "figures", name)
        text = folder / "tables" / f"{section.name}.md"
        text.write_text(to_text(made, section).replace("](", "](../figures/"), "utf-8")
        parts = to_json(made, section)
        kept = ("schema", "target", "title", "source", "agreement", "comparisons", "safety", "safety_totals", "missing")
        numbers = {key: parts[key] for key in kept} | {"n_worse_deployments": len(parts["worse_deployments"])}
        write_json(text.with_suffix(".json"), _short(numbers))
        written += [text, text.with_suffix(".json")]
    path = folder / "provenance.json"
    write_json(path, _provenance(made))
    return [*written, path]


def check(wanted: Wanted, folder: Path) -> None:
    """Refuses, before anything is run, what could not be exported into `folder` whatever the results."""
    could = Counter[_Run]()
    for spec in wanted.runs:
        for one in filter(None, (spec, spec.lender)):
            could[one.folder, one.rounds] += len(one.methods) * one.seeds
    _refuse_to_lose(folder, [t.name for t in wanted.targets], could)


def _refuse_to_lose(folder: Path, targets: list[str], cells: Counter[_Run]) -> None:
    """An export is written as a whole; one of fewer tables or cells than are there would leave half of it stale."""
    path = folder / "provenance.json"
    if not path.exists():
        return
    there = json.loads(path.read_text("utf-8"))
    before = Counter[_Run]()
    for run in there["runs"]:
        before[run["run"], run["rounds"]] += run["cells"]
    lost = sorted(set(there.get("targets", targets)) - set(targets))
    lost += [
        f"{before[key]} cells of {key[0]} at {key[1]:,} rounds ({cells[key]} now)"
        for key in before
        if cells[key] < before[key]
    ]
    if lost:
        raise ValueError(
            f"export: {folder} holds more than this command has: {'; '.join(lost)}. Ask for everything at once, such "
            "as `seamark paper all --data paper,substitutes --no-run` (cells that are there are not run again), give "
            "another folder, or delete it."
        )


def _summaries(runs: list[Gathered]) -> dict[str, dict[str, Any]]:
    """Per run folder the means and deviations at powers of ten, and safety, by method (extra runs: and rounds)."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        if not run.cells:
            continue
        summary = run.summary
        keep = [i for i, t in enumerate(summary["at"]) if t in (0, *_POWERS) or t == run.spec.rounds]
        methods = {
            name: {
                "rounds": run.spec.rounds,
                "at": [summary["at"][i] for i in keep],
                **{
                    metric: {part: [one[part][i] for i in keep] for part in ("mean", "sd", "mark")}
                    for metric, one in row["series"].items()
                },
                **{
                    key: row[key]
                    for key in (
                        "n_seeds", "acts", "checks", "deployments", "unsafe_deployments", "first_deployment",
                        "n_seeds_deployed", "worst_shortfall", "rounds_per_second", "seconds",
                    )
                },
                "options": _options(run, name),
            }
            for name, row in summary["methods"].items()
        }  # fmt: skip
        for spec, _ in run.parts():
            setting = {k: v for k, v in summary["setting"].items() if k != "rounds"} | {"semantics": [spec.semantics]}
            entry = found.setdefault(spec.folder, {"schema": 1, "setting": setting, "methods": {}})
            for name in methods:
                key = f"{name}, {spec.rounds} rounds" if spec.is_extra else name
                if name in spec.methods and key not in entry["methods"]:
                    entry["methods"][key] = _short(methods[name])
    return found


def _options(run: Gathered, method: str) -> dict[str, Any]:
    cell = next(cell for cell in run.cells if cell["method"] == method)
    return {k: v for k, v in cell["config"].items() if not isinstance(v, dict)}


def _provenance(made: Made) -> dict[str, Any]:
    runs = provenance(made.runs)
    return {
        "schema": 1,
        "command": made.command,
        "targets": [t.name for t in made.wanted.targets],
        "versions": versions(),
        "data": {name: _files(name) for names in made.wanted.data.values() for name in names if name in CATALOGUE},
        "runs": runs,
        "cells": sum(run["cells"] for run in runs),
        "cell_hours": round(sum(run["cell_seconds"] for run in runs) / 3600, 2),
        "missing": [str(one) for one in made.missing],
    }


def _files(name: str) -> list[dict[str, str]]:
    return [
        {"file": one.file, "status": one.status, "sha256": datasets.file_sha256(one.path)}
        for one in datasets.check(name)
        if one.path is not None
    ]


def _short(value: Any) -> Any:
    """The same with floats of six significant digits: what a table could ever need."""
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_short(v) for v in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
