"""The tables of a run: rows of text made from its summary, and the same rows as Markdown, rich and HTML.

The first column is the method; all others are numbers, of as many decimals per column, perhaps with a mark.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seamark.experiments.summary import GAIN, LOSS, Summary

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MISSING = "\N{EN DASH}"
_SMALLEST_COLUMN = 100  # cumulative rewards of fewer rounds say little; the paper starts here too


@dataclass(frozen=True, slots=True)
class Table:
    """Headers and rows of text, with the one line that says how to read them."""

    name: str
    title: str
    note: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headers):
                raise ValueError(f"Table {self.name}: row {row} does not fit the headers {self.headers}.")


def tables(summary: Summary) -> list[Table]:
    """All tables of a run, in the order in which the report shows them."""
    made = [cumulative_reward_table(summary), held_out_table(summary), safety_table(summary)]
    return [made[0], users_table(summary), *made[1:]] if _is_ranking(summary) else made


def cumulative_reward_table(summary: Summary) -> Table:
    """Cumulative reward (ranking: nDCG@10) minus the baseline's, at powers of ten and at the last round."""
    metric, name = ("relative_ndcg10", "nDCG@10") if _is_ranking(summary) else ("relative_reward", "reward")
    columns = _table_rounds(summary["at"])
    cells = [_number_column([_value(method, metric, i) for method in summary["methods"].values()]) for i in columns]
    return Table(
        name="cumulative_reward",
        title=f"Cumulative {name} relative to the baseline",
        note=f"Mean over seeds of the method's cumulative {name} minus the baseline's on the same rounds, "
        f"after t rounds. {_marks_note(summary)}",
        headers=("Method", *(f"t = {summary['at'][i]:,}" for i in columns)),
        rows=_rows(summary, cells),
    )


def held_out_table(summary: Summary) -> Table:
    """Held-out accuracy (ranking: nDCG@10) and value at the end, of the deployed and the learned policy."""
    is_ranking = _is_ranking(summary)
    metric, name = ("test_ndcg10", "nDCG@10") if is_ranking else ("test_accuracy", "accuracy")
    found = {key for method in summary["methods"].values() for key in method["series"]}
    columns = [
        (f"{which}_{key}", f"{which.capitalize()}: {label}")
        for key, label in ((metric, name), ("test_value", "click-DCG@10" if is_ranking else "value"))
        for which in ("deployed", "learned")
        if f"{which}_{key}" in found
    ]
    methods = summary["methods"].values()
    cells = [[_with_deviation(_value(method, key, -1)) for method in methods] for key, _ in columns]
    last = f"{summary['at'][-1]:,}" if summary["at"] else "0"
    return Table(
        name="held_out",
        title=f"Average reward on held-out data after {last} rounds",
        note=f"Mean ± sample standard deviation over seeds. {_SUBJECTS[is_ranking]} "
        f"{_VALUES[is_ranking]} {_marks_note(summary)}",
        headers=("Method", *(label for _, label in columns)),
        rows=_rows(summary, cells),
    )


def users_table(summary: Summary) -> Table:
    """Ranking: three measures of what users got at the end, relative to the baseline; the first is certified."""
    shown = (
        ("expected_gain", "Click-DCG@10, expected"), ("relative_reward", "Clicks"), ("relative_ndcg10", "nDCG@10"),
    )  # fmt: skip
    methods = summary["methods"].values()
    last = f"{summary['at'][-1]:,}" if summary["at"] else "0"
    return Table(
        name="users",
        title=f"What users got in {last} rounds, relative to the baseline",
        note="Mean over seeds of sums over rounds. Click-DCG@10 is the metric that gates certify, exact given what was "
        f"shown; clicks and nDCG@10 stand beside it without a promise. {_marks_note(summary)}",
        headers=("Method", *(label for _, label in shown)),
        rows=_rows(
            summary, [_number_column([_value(method, metric, -1) for method in methods]) for metric, _ in shown]
        ),
    )


def safety_table(summary: Summary) -> Table:
    """Deployments, how many were truly worse, and how far expected reward fell below the baseline."""
    methods = list(summary["methods"].values())
    columns = [
        [f"{method['n_seeds']:,}" for method in methods],
        [_if_deploys(method, f"{method['deployments']['total']:,}") for method in methods],
        [_if_deploys(method, f"{method['unsafe_deployments']:,}") for method in methods],
        _number_column([(method["worst_shortfall"], "") for method in methods]),
        [_first(method) for method in methods],
    ]
    return Table(
        name="safety",
        title="Safety",
        note=_SAFETY_NOTE.replace("reward", "click-DCG@10") if _is_ranking(summary) else _SAFETY_NOTE,
        headers=(
            "Method",
            "Seeds",
            "Deployments",
            "Truly worse",
            "Worst shortfall",
            "First deployment",
        ),
        rows=_rows(summary, columns),
    )


def to_markdown(table: Table) -> str:
    """The table as Markdown (pipes), aligned as text too, with its title above and its note below."""
    columns = []
    for i, (header, cells) in enumerate(zip(table.headers, _columns(table))):
        texts = [text.replace("|", "\\|") for text in (header, *cells)]
        width = max(map(len, texts))
        texts = [text.rjust(width) if i else text.ljust(width) for text in texts]
        columns.append([texts[0], "-" * (width - 1) + (":" if i else "-"), *texts[1:]])
    lines = ["| " + " | ".join(cells) + " |" for cells in zip(*columns)]
    return "\n".join([f"**{table.title}**", "", *lines, "", table.note, ""])


def to_rich(table: Table) -> RichTable:
    """The table for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    rich_table = RichTable(
        title=Text(table.title),
        title_justify="left",
        caption=Text(table.note),
        caption_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    padded = []  # by hand, since rich strips the room for a mark from cells that it justifies
    for i, (header, cells) in enumerate(zip(table.headers, _columns(table))):
        width = max(map(len, (*header.split(), *cells)))
        lines = textwrap.wrap(header, width)
        rich_table.add_column(
            Text("\n".join(line.rjust(width) if i else line for line in lines)),
            vertical="bottom",
            no_wrap=True,
            min_width=width,
        )
        padded.append([cell.rjust(width) if i else cell for cell in cells])
    for row in zip(*padded):
        rich_table.add_row(*map(Text, row))
    return rich_table


def to_html(table: Table) -> str:
    """The table as an HTML figure: title, table and note, all escaped."""
    head = "".join(f'<th scope="col">{html.escape(header)}</th>' for header in table.headers)
    body = "".join(
        f'<tr><th scope="row">{html.escape(row[0])}</th>' + "".join(map(_td, row[1:])) + "</tr>\n" for row in table.rows
    )
    is_marked = any(cell.endswith((GAIN, LOSS)) for row in table.rows for cell in row)
    kind = "table" if is_marked else "table unmarked"  # without room for marks
    return (
        f'<figure class="{kind}" id="table-{html.escape(table.name)}">\n<h3>{html.escape(table.title)}</h3>\n'
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>\n"
        f"<figcaption>{html.escape(table.note)}</figcaption>\n</figure>\n"
    )


def format_number(value: float | None, decimals: int) -> str:
    """A number with thousands separators and so many decimals; never "-0"; a dash where it is missing.

    >>> format_number(1720.73, 0), format_number(-0.001, 2), format_number(None, 2)
    ('1,721', '0.00', '–')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"


_SAFETY_NOTE = (
    "Deployments: total over seeds; 0 means that a gate checked and held, or that the method never deploys. "
    "Truly worse: deployments that lowered the true value. Worst shortfall: the largest fall of cumulative "
    "expected reward below the baseline's, in any seed at any time. First deployment: median round over the "
    'seeds that deployed; "never": the baseline acted to the end in every seed. '
    f"{MISSING}: no gate, the method decides round by round."
)
_SUBJECTS = {
    False: "Deployed: expected accuracy of the policy that acts. Learned: of the argmax of what was learned.",
    True: "Deployed: the ranker that acts. Learned: the learner's own ranker.",
}


_VALUES = {
    False: "Value: expected reward, noise included.",
    True: "Click-DCG@10: its exact expectation, the metric that gates certify. Rankers are judged as they rank, "
    "without the swaps or samples in which they were shown.",
}


def _is_ranking(summary: Summary) -> bool:
    return bool(summary["setting"].get("task") == "ranking")


def _marks_note(summary: Summary) -> str:
    test = summary["test"]
    versus, least = test["versus"], test["min_common_seeds"]
    if not test["is_run"]:
        return f"No marks: {versus} has no results in this run."
    if all(m["n_common_seeds"] < least for name, m in summary["methods"].items() if name != versus):
        return f"No marks: a test takes another method and at least {least} seeds in common with {versus}."
    return (
        f"{GAIN} gain, {LOSS} loss against {versus} in a two-sided t-test paired over seeds "
        f"(p < {test['alpha']:g}, at least {least} common seeds, not corrected for the number of tests)."
    )


def _table_rounds(at: Sequence[int]) -> list[int]:
    """Indices of the powers of ten from 100 on, and of the last round; all powers in a shorter run."""
    powers = [i for i, t in enumerate(at) if t > 0 and t == 10 ** round(math.log10(t))]
    large = [i for i in powers if at[i] >= _SMALLEST_COLUMN] or powers
    last = [len(at) - 1] if at else []
    return sorted({*large, *last})


def _value(method: dict[str, Any], metric: str, point: int) -> tuple[float | None, str, float | None]:
    found = method["series"].get(metric)
    if found is None or found["mean"][point] is None:
        return None, "", None
    return found["mean"][point], found["mark"][point], found["sd"][point]


def _number_column(column: Sequence[tuple[Any, ...]]) -> list[str]:
    """Numbers of one column with decimals to fit its largest: none from 1,000 on, one from 10, else two."""
    largest = max((abs(value) for value, *_ in column if value is not None), default=0.0)
    decimals = 0 if largest >= 1000 else 1 if largest >= 10 else 2
    return [_marked(format_number(value, decimals), mark) for value, mark, *_ in column]


def _with_deviation(found: tuple[float | None, str, float | None]) -> str:
    mean, mark, sd = found
    text = format_number(mean, 3)
    return _marked(text if sd is None or mean is None else f"{text} ± {format_number(sd, 3)}", mark)


def _marked(text: str, mark: str) -> str:
    return f"{text} {mark}" if mark else text


def _if_deploys(method: dict[str, Any], text: str) -> str:
    return MISSING if method["acts"] == "learner" else text


def _first(method: dict[str, Any]) -> str:
    if method["acts"] == "learner":
        return MISSING
    if method["first_deployment"] is None:
        return "never"
    text = format_number(method["first_deployment"], 0)
    n, seeds = method["n_seeds_deployed"], method["n_seeds"]
    return text if n == seeds else f"{text} ({n} of {seeds} seeds)"


def _rows(summary: Summary, columns: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple((name, *(column[i] for column in columns)) for i, name in enumerate(summary["methods"]))


def _columns(table: Table) -> list[list[str]]:
    """The columns without headers, each of one width: names left, numbers right with room for marks."""
    if not table.rows:
        return [[] for _ in table.headers]
    columns = []
    for i, column in enumerate(zip(*table.rows)):
        cells = list(column)
        if i and any(cell.endswith((GAIN, LOSS)) for cell in cells):
            cells = [cell if cell.endswith((GAIN, LOSS)) else f"{cell}  " for cell in cells]
        width = max(map(len, cells))
        columns.append([cell.rjust(width) if i else cell.ljust(width) for cell in cells])
    return columns


def _td(cell: str) -> str:
    text, mark = (cell[:-2], cell[-1]) if cell.endswith((GAIN, LOSS)) else (cell, "")
    title = {GAIN: ' title="significant gain"', LOSS: ' title="significant loss"'}.get(mark, "")
    return f'<td>{html.escape(text)}<span class="mark"{title}>{mark}</span></td>'
