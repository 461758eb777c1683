"""The documentation holds: its examples run, its links lead somewhere, its lists are complete."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.experiments.methods import METHODS
from seamark.experiments.ranking_methods import METHODS as RANKING_METHODS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if p.is_file())
EXAMPLES = [ROOT / "README.md", ROOT / "docs" / "architecture.md"]
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
KEY = re.compile(r"\[([A-Z][A-Za-z]*\d{2}[a-z]?)\b[^\]]*\]")
IGNORED = re.compile(r"[^\w\- ]")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """What a heading is called in a link: lower case, no punctuation, dashes for spaces."""
    prose = CODE.sub("", page.read_text("utf-8"))
    return {IGNORED.sub("", heading.lower()).replace(" ", "-") for heading in HEADING.findall(prose)}


def docstrings(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("page", EXAMPLES, ids=name)
def test_examples_print_what_the_page_says(page: Path) -> None:
    """All Python blocks of a page, in order, are one session."""
    blocks = PYTHON.findall(page.read_text("utf-8"))
    session = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name(page), str(page), 0)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(session, out=report.append)

    assert session.examples
    assert not report, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_internal_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)

    assert not broken


def test_references_list_every_key_that_docstrings_use() -> None:
    listed = set(re.findall(r"\*\*\[(\w+)\]\*\*", (ROOT / "docs" / "references.md").read_text("utf-8")))
    used = {
        key: name(module)
        for module in (ROOT / "src").rglob("*.py")
        for text in docstrings(module)
        for key in KEY.findall(text)
    }

    assert {"MP09", "H63"} <= used.keys()
    assert not {key: module for key, module in used.items() if key not in listed}


def test_references_give_every_key_once() -> None:
    keys = re.findall(r"\*\*\[(\w+)\]\*\*", (ROOT / "docs" / "references.md").read_text("utf-8"))

    assert len(keys) == len(set(keys))


def test_architecture_names_every_room() -> None:
    """A new folder in the package, or a new method, is one line in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    package = ROOT / "src" / "seamark"
    rooms = [f"`{init.parent.name}/`" for init in package.glob("*/__init__.py")]

    assert rooms
    assert not [
        room for room in [*rooms, *(f"`{method}`" for method in [*METHODS, *RANKING_METHODS])] if room not in text
    ]


def test_architecture_names_no_room_that_does_not_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    first_column = re.findall(r"^\| `([\w/.]+)` \|", text.split("## The way of the data")[0], re.MULTILINE)

    assert first_column
    assert not [room for room in first_column if not (ROOT / "src" / "seamark" / room).exists()]
