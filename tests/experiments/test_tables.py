"""The text of tables and their three renderings."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from fake_cells import deployment, fake_cell, tiny_cell
from rich.console import Console

from seamark.experiments.summary import GAIN, LOSS, summarise
from seamark.experiments.tables import (
    MISSING,
    Table,
    cumulative_reward_table,
    format_number,
    held_out_table,
    safety_table,
    tables,
    to_html,
    to_markdown,
    to_rich,
)


def row(table: Table, method: str) -> dict[str, str]:
    """The cells of a method by header."""
    return next(dict(zip(table.headers, cells)) for cells in table.rows if cells[0] == method)


def run(*methods: str, n_seeds: int = 3, **changes: Any) -> Any:
    """The summary of fake cells."""
    return summarise([fake_cell(m, seed, **changes) for m in methods for seed in range(n_seeds)], [], [])


def as_text(table: Table, width: int = 80) -> str:
    """What a terminal shows."""
    console = Console(width=width, force_terminal=False, no_color=True)
    with console.capture() as capture:
        console.print(to_rich(table))
    return capture.get()


def test_columns_are_powers_of_ten_from_a_hundred_and_the_last_round() -> None:
    """Powers of ten below 100 are left out, a last round that is none is added."""
    table = cumulative_reward_table(run("sea", rounds=50_000))

    assert table.headers == ("Method", "t = 100", "t = 1,000", "t = 10,000", "t = 50,000")


def test_a_short_run_shows_all_its_powers_of_ten() -> None:
    """A run of fewer than 100 rounds has columns too."""
    table = cumulative_reward_table(run("sea", rounds=20))

    assert table.headers == ("Method", "t = 1", "t = 10", "t = 20")


def test_marks_stand_behind_the_numbers_they_belong_to() -> None:
    """A significant gain over sea is marked in its cell, sea itself never."""
    ends = {"sea": [1.0, 2.0, 4.0], "bsea": [11.0, 12.4, 14.1], "ips": [-30.0, -31.2, -33.1]}
    cells = [tiny_cell(m, seed, [0, 5, 50 + end]) for m, seeds in ends.items() for seed, end in enumerate(seeds)]

    table = cumulative_reward_table(summarise(cells, [], []))

    assert row(table, "bsea")["t = 100"] == f"{(11.0 + 12.4 + 14.1) / 3:.1f} {GAIN}"
    assert row(table, "ips")["t = 100"] == f"{-(30.0 + 31.2 + 33.1) / 3:.1f} {LOSS}"
    assert row(table, "sea")["t = 100"] == f"{7 / 3:.1f}"
    assert "paired over seeds (p < 0.01" in table.note


def test_large_numbers_have_separators_and_no_decimals() -> None:
    """A column that reaches 1,000 has no decimals anywhere, one below 10 has two."""
    cells = [
        tiny_cell("sea", 0, [0, 5.25, 351_000.4]),
        tiny_cell("ips", 0, [0, 5.0, 50.0]),
    ]

    table = cumulative_reward_table(summarise(cells, [], []))

    assert [row(table, name)["t = 100"] for name in ("sea", "ips")] == ["350,950", "0"]


def test_numbers_never_show_minus_zero() -> None:
    """What rounds to zero is shown as zero; what is missing as a dash."""
    assert format_number(-0.0004, 3) == "0.000"
    assert format_number(float("nan"), 3) == MISSING
    assert format_number(-1234.5, 1) == "-1,234.5"


def test_held_out_table_shows_deployed_and_learned_with_deviation() -> None:
    """Accuracy and value at the last round, mean ± deviation over seeds, three decimals."""
    cells = [
        tiny_cell("sea", seed, [0, 5, 50], learned_test_accuracy=[0.1, 0.2, accuracy])
        for seed, accuracy in enumerate((0.7, 0.8))
    ]

    table = held_out_table(summarise(cells, [], []))

    assert table.headers == (
        "Method",
        "Deployed: accuracy",
        "Learned: accuracy",
        "Deployed: value",
        "Learned: value",
    )
    assert row(table, "sea")["Learned: accuracy"] == f"{0.75:.3f} ± {0.1 / 2**0.5:.3f}"
    assert row(table, "sea")["Deployed: value"] == "0.500 ± 0.000"


def test_one_seed_has_no_deviation_and_no_marks() -> None:
    """With one seed the mean stands alone and the note says why nothing is marked."""
    table = held_out_table(run("sea", "bsea", n_seeds=1))

    assert "±" not in "".join(row(table, "sea").values())
    assert "No marks: a test takes another method and at least 3 seeds" in table.note


def test_without_sea_the_note_says_that_there_are_no_marks() -> None:
    """Nothing is compared with a method that did not run."""
    assert "No marks: sea has no results" in cumulative_reward_table(run("bsea")).note


def test_ranking_tables_speak_of_ndcg() -> None:
    """Ranking shows nDCG@10 in place of reward and accuracy."""
    cumulative, users, held_out, _ = tables(run("sea", task="ranking"))

    assert cumulative.title == "Cumulative nDCG@10 relative to the baseline"
    assert users.name == "users"
    assert held_out.headers[1:3] == ("Deployed: nDCG@10", "Learned: nDCG@10")


def test_safety_tells_zero_from_never_and_from_no_gate() -> None:
    """0 deployments and "never" for a gate that held, a dash where no gate is, a count where seeds differ."""
    cells = [
        tiny_cell("sea", 0, [0, 5, 50], checks=4),
        tiny_cell("bsea", 0, [0, 5, 50], checks=4, deployments=[deployment(60, 0.6, 0.5)], unsafe_deployments=1),
        tiny_cell("bsea", 1, [0, 5, 50], checks=4),
        tiny_cell("boltzmann", 0, [0, 4, 60], expected_gain=[0.0, -2.5, 8.0], worst_shortfall=-2.5),
    ]

    table = safety_table(summarise(cells, [], []))

    assert [list(row(table, name).values())[1:] for name in ("sea", "bsea", "boltzmann")] == [
        ["1", "0", "0", "0.00", "never"],
        ["2", "1", "1", "0.00", "60 (1 of 2 seeds)"],
        ["1", MISSING, MISSING, "-2.50", MISSING],
    ]


def test_missing_values_are_dashes() -> None:
    """A mean that is null is shown as a dash, without a mark."""
    cells = [tiny_cell("sea", 0, [0, 5, None], learned_test_accuracy=[0.5, 0.5, float("nan")], worst_shortfall=None)]
    summary = summarise(cells, [], [])

    assert row(cumulative_reward_table(summary), "sea")["t = 100"] == MISSING
    assert row(held_out_table(summary), "sea")["Learned: accuracy"] == MISSING
    assert row(safety_table(summary), "sea")["Worst shortfall"] == MISSING


def test_tables_of_no_cells_have_headers_and_no_rows() -> None:
    """A run that failed whole renders in all three forms."""
    for table in tables(summarise([], [], [])):
        assert table.rows == ()
        assert table.title in to_markdown(table)
        assert table.title in to_html(table)
        assert table.headers[0] in as_text(table)


def test_markdown_lines_are_of_one_length() -> None:
    """Aligned as text: every line of the table is as long as the others, pipes in names escaped."""
    table = Table("t", "Title", "Note.", ("Method", "x"), (("a|b", f"12 {GAIN}"), ("c", "3")))

    lines = to_markdown(table).splitlines()

    assert lines[0] == "**Title**"
    assert lines[2:6] == ["| Method |    x |", "| ------ | ---: |", f"| a\\|b   | 12 {GAIN} |", "| c      |  3   |"]
    assert lines[-1] == "Note."


@pytest.mark.parametrize("which", [0, 1, 2])
def test_nine_methods_fit_a_terminal_of_eighty_columns(which: int) -> None:
    """No cell is cut on the usual terminal, whatever marks there are."""
    methods = ("linucb", "thompson", "epsilon-greedy", "boltzmann", "clucb", "ips", "bsea", "sea", "seamark")
    table = tables(run(*methods, rounds=1_000_000))[which]

    text = as_text(table)

    assert "…" not in text
    for cells in table.rows:
        assert any(all(cell in line for cell in cells) for line in text.splitlines()), cells


def test_html_escapes_and_closes_what_it_opens() -> None:
    """Names are text, never markup, and every element is closed."""
    table = Table("t", "A < B", "p < 0.01 & more", ("Method", "x"), (("<script>", f"12 {LOSS}"),))

    text = to_html(table)

    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "p &lt; 0.01 &amp; more" in text
    opened: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Checker().feed(text)
    assert opened == []


def test_a_row_that_does_not_fit_its_headers_is_refused() -> None:
    """A table checks its shape once."""
    with pytest.raises(ValueError, match="does not fit"):
        Table("t", "T", "N", ("Method", "x"), (("a",),))
