"""The report is one well-formed page that loads nothing and says what the numbers say."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fake_cells import deployment, fake_cell, tiny_cell

from seamark.experiments.figures import cumulative_reward, learning_curve, to_svg
from seamark.experiments.gate_figure import bounds
from seamark.experiments.report import inline_svg, render_report, verdicts, write_report
from seamark.experiments.summary import summarise
from seamark.experiments.tables import tables, to_html

VOID = {"meta", "br", "hr", "img", "link", "input"}
META = {
    "title": "Digits <1>",
    "command": "seamark run digits --seeds 2 > log & echo",
    "data": {"name": "digits", "train": 1438},
    "versions": {"seamark": "0.1.0", "numpy": "2.0"},
    "config": {"delta": 0.05, "note": "</pre><script>alert(1)</script>"},
}


class Page(HTMLParser):
    """Collects ids, references and text, and checks that every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.opened.append(tag)
        self.handle_attributes(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handle_attributes(attrs)

    def handle_attributes(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("href", "src", "xlink:href"):
                self.references.append(str(value))
            self.references += [f"#{found}" for found in re.findall(r"url\(#([^)]*)\)", str(value))]

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def make_report(meta: dict[str, Any] = META, **changes: Any) -> str:
    """A report of four methods with all its figures."""
    cells = [fake_cell(m, s, rounds=1000, **changes) for s in range(2) for m in ("sea", "bsea", "seamark", "ips")]
    summary = summarise(
        cells,
        [{"method": "linucb", "reason": "needs <dense> features"}],
        [{"id": "ab12", "method": "thompson", "seed": 7, "error": "ValueError: x & y < z"}],
    )
    figures = {draw.__name__: to_svg(draw(cells)) for draw in (learning_curve, cumulative_reward, bounds)}
    return render_report(summary, tables(summary), figures, meta)


@pytest.fixture(scope="module")
def report() -> str:
    return make_report()


def test_report_is_well_formed_with_unique_ids(report: str) -> None:
    """Every element is closed, no id occurs twice, and every reference inside the page has its target."""
    page = Page(report)

    assert page.opened == []
    assert len(page.ids) == len(set(page.ids))
    assert {reference for reference in page.references if reference.startswith("#")} <= {f"#{i}" for i in page.ids}


def test_report_loads_nothing(report: str) -> None:
    """No script, no link and no address but the name of the SVG namespace."""
    page = Page(report)

    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert set(re.findall(r"https?://[^\"'\s<>)]*", report)) == {"http://www.w3.org/2000/svg"}
    assert all(reference.startswith("#") for reference in page.references)
    assert "@import" not in report


def test_report_keeps_its_order(report: str) -> None:
    """What was run, verdict, tables, figures, what is missing, configuration."""
    headings = re.findall(r"<h2>(.*?)</h2>", report)

    assert headings == ["What was run", "Verdict", "Tables", "Figures", "Skipped and failed", "Configuration"]
    assert report.count("<svg") == 3
    assert report.count("<table>") == 3


def test_everything_foreign_is_escaped(report: str) -> None:
    """Titles, commands, reasons, errors and configuration appear as text."""
    page = Page(report)

    assert "<script>" not in report
    for text in (
        "Digits <1>",
        "--seeds 2 > log & echo",
        "needs <dense> features",
        "ValueError: x & y < z",
        "</pre><script>alert(1)</script>",
        "name digits, train 1438",
        "numpy 2.0",
    ):
        assert text in page.text


def test_failed_and_skipped_are_listed_and_counted(report: str) -> None:
    """What is missing is named in its list and counted in the verdict."""
    text = Page(report).text

    assert "linucb: skipped. needs <dense> features" in text
    assert "thompson, seed 7 (ab12): failed. ValueError: x & y < z" in text
    assert "1 cell failed and is missing from every number here." in text
    assert "1 method is skipped; the reasons are below." in text


def test_report_is_written_whole_and_the_same_each_time(tmp_path: Path) -> None:
    """The file is the rendered text; nothing partial is left behind."""
    summary = summarise([fake_cell("sea", 0, rounds=100)], [], [])

    path = write_report(tmp_path / "new" / "report.html", summary, tables(summary), {}, {})

    assert path.read_text(encoding="utf-8") == render_report(summary, tables(summary), {}, {})
    assert [one.name for one in path.parent.iterdir()] == ["report.html"]
    assert "None: every method ran on every seed." in path.read_text(encoding="utf-8")


def test_verdicts_say_what_was_deployed_and_what_it_was_worth() -> None:
    """Sentences follow from the numbers: deployments, truly worse ones, the end and the worst shortfall."""
    cells = [
        tiny_cell("sea", 0, [0, 5, 80], checks=4, deployments=[deployment(20, 0.5, 0.6)]),
        tiny_cell("sea", 1, [0, 5, 90], checks=4, deployments=[deployment(20, 0.5, 0.6), deployment(40, 0.6, 0.7)]),
        tiny_cell("bsea", 0, [0, 5, 50], checks=1),
        tiny_cell("ips", 0, [0, 5, 50]),
        tiny_cell("boltzmann", 0, [0, 2, 40], expected_gain=[0, -3, -12.25], worst_shortfall=-12.25),
    ]

    found = {sentence.split()[0]: sentence for sentence in verdicts(summarise(cells, [], []))}

    assert found == {
        "sea": "sea deployed 3 times in 2 seeds, 0 to a truly worse policy. It ended 35.0 above the baseline in "
        "cumulative reward (mean over seeds); its cumulative expected reward never fell below the baseline's.",
        "bsea": "bsea checked 1 time and held: the baseline acted to the end in 1 seed. It ended level with the "
        "baseline in cumulative reward; its cumulative expected reward never fell below the baseline's.",
        "ips": "ips never deploys: the baseline acted to the end in 1 seed. It ended level with the baseline in "
        "cumulative reward; its cumulative expected reward never fell below the baseline's.",
        "boltzmann": "boltzmann has no gate and decided round by round, in 1 seed. It ended 10.0 below the baseline "
        "in cumulative reward; its cumulative expected reward fell at worst 12.2 below the baseline's.",
    }


def test_verdicts_name_significance_and_admit_missing_numbers() -> None:
    """A mark becomes a word; a null becomes "not known", never a number."""
    cells = [tiny_cell("sea", seed, [0, 5, 60 + seed]) for seed in range(3)]
    cells += [tiny_cell("bsea", seed, [0, 5, 70 + seed], worst_shortfall=float("nan")) for seed in range(3)]
    cells += [tiny_cell("ips", 0, [0, 5, None])]

    ips, bsea, _ = verdicts(summarise(cells, [], []))

    assert "a significant gain against sea; its worst shortfall is not known." in bsea
    assert "Its cumulative reward at the end is not known" in ips


def test_a_run_that_failed_whole_has_a_report() -> None:
    """No cell, no method: the page says so and lists the failures."""
    summary = summarise([], [], [{"id": "a", "method": "sea", "seed": 0, "error": "boom"}])

    page = Page(render_report(summary, tables(summary), {}, {"title": "Failed"}))

    assert "No cell of this run succeeded" in page.text
    assert "sea, seed 0 (a): failed. boom" in page.text
    assert page.opened == []


def test_inlined_svg_keeps_its_style_to_itself() -> None:
    """Prolog and metadata go, ids get the prefix, and the style sheet holds inside the figure only."""
    svg = to_svg(learning_curve([fake_cell("sea", 0, rounds=100)]))

    text = inline_svg(svg, "one")

    assert text.startswith('<svg id="one"')
    assert "<?xml" not in text
    assert "<metadata" not in text
    assert "#one *{stroke-linejoin" in text
    assert all(i.startswith("one") for i in Page(text).ids)


def test_headers_of_tables_wrap_and_only_marked_tables_have_room_for_marks(report: str) -> None:
    """What does not fit would be cut off: wide tables scroll, and a printed page does not."""
    summary = summarise([fake_cell(m, s, rounds=100) for s in range(3) for m in ("sea", "boltzmann")], [], [])
    kinds = {table.name: "unmarked" in to_html(table) for table in tables(summary)}

    assert re.search(r"thead th \{[^}]*white-space: normal", report)
    assert (kinds["cumulative_reward"], kinds["safety"]) == (False, True)
