"""Markdown, JSON, figures and one page of HTML from the sections of a command."""

from __future__ import annotations

import html
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from seamark import __version__
from seamark.experiments import figures
from seamark.experiments import report as page
from seamark.experiments.paper import published as paper
from seamark.experiments.paper import safety, sections
from seamark.experiments.paper.compare import agreements
from seamark.experiments.paper.results import Gathered
from seamark.experiments.paper.sections import Section
from seamark.experiments.paper.targets import Missing, RunSpec, Wanted, brief
from seamark.experiments.run import write_json
from seamark.experiments.tables import to_html, to_markdown

SOURCE = (
    "Published: R. Jagerman, I. Markov, M. de Rijke, Safe Exploration for Optimizing Contextual Bandits, "
    "ACM Transactions on Information Systems 38(3), 2020."
)


_COMPLETE = "Of the sets asked for, none is missing, and every cell is there."
_WIDE = "main { max-width: 86rem; }\n.plot { max-width: 62rem; }\n"


@dataclass(frozen=True)
class Made:
    """All that a command made, before it is written."""

    wanted: Wanted
    runs: list[Gathered]
    overview: Section
    sections: list[Section]
    safety: Section
    missing: list[Missing]
    command: str

    @property
    def title(self) -> str:
        names = [t.name for t in self.wanted.targets]
        what = "the paper's tables and figures" if len(names) > 1 else names[0]
        return f"Published and obtained: {what} ({self.wanted.scale.name})"

    @property
    def page(self) -> str:
        """The name of the HTML file: one for the whole, another for each target that is made alone."""
        return "report.html" if len(self.wanted.targets) > 1 else f"{self.wanted.targets[0].name}.html"


def make(wanted: Wanted, runs: list[Gathered], command: str) -> Made:
    """Sections, overview, safety and what is missing."""
    made = [sections.make(target, wanted, runs) for target in wanted.targets]
    missing = brief([*wanted.missing, *dict.fromkeys(one for run in runs for one in run.missing())])
    every = [one for section in made for one in section.comparisons]
    return Made(
        wanted, runs, sections.overview(every), made, sections.safety_section(runs), missing, command
    )  # fmt: skip


def write(made: Made, folder: Path) -> list[Path]:
    """One Markdown and one JSON file per target, its figures, and an HTML page for the whole command."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for section in made.sections:
        for name, figure in section.figures.items():
            written += figures.save(figure, folder, name)
        text = folder / f"{section.name}.md"
        _write_text(text, to_text(made, section))
        write_json(folder / f"{section.name}.json", to_json(made, section))
        written += [text, text.with_suffix(".json")]
    _write_text(folder / made.page, to_page(made))
    return [*written, folder / made.page]


def to_text(made: Made, section: Section) -> str:
    """A section as a Markdown document of its own."""
    lines = [f"# {section.title}", "", SOURCE, "", f"Made by `{made.command}`, seamark {__version__}.", ""]
    lines += [line for note in section.notes for line in (note, "")]
    lines += _substitutes_note(made)
    for table in section.tables:
        lines += [to_markdown(table)]
    for name in section.figures:
        lines += [f"![{section.captions[name]}]({name}.png)", "", section.captions[name], ""]
    if _has_runs(section):
        overview = sections.overview(section.comparisons)
        for table in (*overview.tables, *sections.safety_section(_runs(made, section)).tables):
            lines += [to_markdown(table)]
    if section.details and any(table.rows for table in section.details):
        lines += ["## Number by number", ""]
        lines += [to_markdown(table) for table in section.details if table.rows]
        lines += ["## Known reasons", ""]
        lines += [f"- **{key}**: {text}" for key, text in _used(section).items()]
        lines += [""]
    lines += ["## Missing", ""]
    lines += [f"- {one}" for one in _missing(made, section)] or [_COMPLETE]
    return "\n".join(lines).rstrip() + "\n"


def to_json(made: Made, section: Section) -> dict[str, Any]:
    """A section's numbers, verdicts and safety, with what was run."""
    runs = _runs(made, section)
    return {
        "schema": 1,
        "target": section.name,
        "title": section.title,
        "source": SOURCE,
        "command": made.command,
        "scale": made.wanted.scale.name,
        "versions": versions(),
        "notes": list(section.notes),
        "substitutes": sections.substitutes(made.wanted),
        "agreement": [asdict(one) for one in agreements(list(section.comparisons))],
        "comparisons": [one.record() for one in section.comparisons],
        "tables": [asdict(table) for table in section.tables],
        "reasons": _used(section),
        "safety": [row.record() for row in safety.of_runs(runs)],
        "safety_totals": [row.record() for row in safety.totals(safety.of_runs(runs))],
        "worse_deployments": safety.worse_deployments(runs),
        "runs": provenance(runs),
        "missing": [str(one) for one in _missing(made, section)],
    }


def to_page(made: Made) -> str:
    """The whole command as one self-contained HTML page."""
    facts = {
        "command": made.command,
        "scale": made.wanted.scale.name,
        "data": ", ".join(name for names in made.wanted.data.values() for name in names) or "none",
        "versions": ", ".join(f"{k} {v}" for k, v in versions().items()),
    }
    parts = [f"<h1>{html.escape(made.title)}</h1>", page.section("What was run", _facts(facts))]
    if any(_has_runs(section) for section in made.sections):
        parts.append(_html_section(made.overview))
    parts += [_html_section(section) for section in made.sections]
    if made.safety.tables:
        parts.append(_html_section(made.safety))
    used = {key: text for section in made.sections for key, text in _used(section).items()}
    if used:
        parts.append(page.section("Known reasons", page.bullets(f"{key}: {text}" for key, text in used.items())))
    notes = _substitutes_note(made)
    lacking = page.bullets(map(str, made.missing)) if made.missing else f"<p>{_COMPLETE}</p>"
    parts.append(page.section("Missing", "".join(f"<p>{html.escape(n)}</p>" for n in notes if n) + lacking))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(made.title)}</title>\n<style>\n{page.CSS}{_WIDE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def provenance(runs: Sequence[Gathered]) -> list[dict[str, Any]]:
    """What was run, on which data, by which version, in how much time; every cell once."""
    found, seen = [], set[str]()
    for run in runs:
        for spec, every in run.parts():
            cells = [cell for cell in every if cell["id"] not in seen]
            seen |= {cell["id"] for cell in cells}
            if cells:
                found.append(_provenance(spec, cells) | {"data_sha256": run.sha256, "notes": list(run.notes)})
    return found


def _provenance(spec: RunSpec, cells: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "run": spec.folder,
        "command": spec.command(),
        "methods": sorted({cell["method"] for cell in cells}),
        "rounds": spec.rounds,
        "seeds": sorted({int(cell["seed"]) for cell in cells}),
        "cells": len(cells),
        "cell_seconds": round(sum(float(cell["seconds"]["total"]) for cell in cells), 1),
        "seamark": sorted({str(cell["version"]) for cell in cells}),
    }


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"seamark": __version__, "python": platform.python_version()}
    for name in ("numpy", "numba", "scipy", "scikit-learn"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _facts(facts: dict[str, str]) -> str:
    rows = "".join(f"<dt>{html.escape(k)}</dt><dd>{page.fact(k, v)}</dd>\n" for k, v in facts.items())
    return f'<dl class="facts">\n{rows}</dl>\n<p>{html.escape(SOURCE)}</p>'


def _html_section(section: Section) -> str:
    body = "".join(f"<p>{html.escape(note)}</p>\n" for note in section.notes)
    for name, figure in section.figures.items():
        prefix = f"figure-{name}"
        body += (
            f'<figure class="plot">\n<div class="scroll">{page.inline_svg(figures.to_svg(figure), prefix)}</div>\n'
            f'<figcaption id="{prefix}-caption">{html.escape(section.captions[name])}</figcaption>\n</figure>\n'
        )
    body += "".join(map(to_html, section.tables))
    details = [table for table in section.details if table.rows]
    if details:
        body += "<details>\n<summary>Number by number</summary>\n" + "".join(map(to_html, details)) + "</details>\n"
    return page.section(section.title, body)


def _has_runs(section: Section) -> bool:
    return section.name.startswith(("classification", "ranking"))


def _runs(made: Made, section: Section) -> list[Gathered]:
    task = next((t.task for t in made.wanted.targets if t.name == section.name), None)
    return [run for run in made.runs if run.spec.task == task and run.cells]


def _missing(made: Made, section: Section) -> list[Missing]:
    """What is missing for this section alone."""
    target = next(t for t in made.wanted.targets if t.name == section.name)
    if target.task is None:
        shown = {"datasets": ("classification", "ranking"), "relevance": ("ranking",)}.get(section.name, ())
        return [one for one in made.wanted.missing if one.task in shown]
    return [one for one in made.missing if one.task == target.task]


def _used(section: Section) -> dict[str, str]:
    """The reasons that the section's verdicts name."""
    keys = {key for one in section.comparisons for key in one.reasons}
    return {reason.key: reason.text for reason in paper.reasons() if reason.key in keys}


def _substitutes_note(made: Made) -> list[str]:
    names = sections.substitutes(made.wanted)
    if not names:
        return []
    if len(names) == 1:
        return [f"{names[0]} is in none of the paper's tables: it stands here under its own name, for itself.", ""]
    return [f"{', '.join(names)} are in none of the paper's tables: they stand here under their own names.", ""]


def _write_text(path: Path, text: str) -> None:
    part = path.with_name(path.name + f".{os.getpid()}.part")
    part.write_text(text, "utf-8")
    os.replace(part, path)
