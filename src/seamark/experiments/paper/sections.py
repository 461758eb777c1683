"""One section per table and figure: published beside obtained, as tables of text and as comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from seamark.experiments.paper import grids, safety
from seamark.experiments.paper import published as paper
from seamark.experiments.paper.compare import Agreement, Comparison, Obtained, agreements, compare
from seamark.experiments.paper.describe import DESCRIBED
from seamark.experiments.paper.results import Gathered
from seamark.experiments.paper.targets import PUBLISHED_METHODS, SEMANTICS, Target, Wanted, is_substitute
from seamark.experiments.summary import METHOD_ORDER, series
from seamark.experiments.tables import MISSING, Table, format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNS = {"agrees": "=", "differs": "≠", "not judged": "", "not run": "", "not published": ""}
_UNIT = {"classification": "rewards", "ranking": "clicks"}
_CUMULATIVE = {"classification": "relative_reward", "ranking": "relative_ndcg10"}
_LEARNED = {"classification": "learned_test_accuracy", "ranking": "learned_test_ndcg10"}
_EMPTY = "Nothing of this task was asked for, or nothing of it is there; see what is missing below."
_SHARED = (
    "Of these methods only sea and bsea depend on the semantics: all others ran once, under 'released', and their "
    "numbers stand in the rows of both."
)


@dataclass(frozen=True)
class Section:
    """What is shown of one table or figure."""

    name: str
    title: str
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    details: tuple[Table, ...] = ()  # number by number
    comparisons: tuple[Comparison, ...] = ()
    figures: dict[str, Figure] = field(default_factory=dict)
    captions: dict[str, str] = field(default_factory=dict)


def make(target: Target, wanted: Wanted, runs: Sequence[Gathered]) -> Section:
    """The section of a target."""
    if target.task is not None:
        runs = [run for run in runs if run.spec.task == target.task]
        if target.is_figure:
            return _online(target, target.task, wanted, runs)
        if target.name.endswith("cumulative"):
            return _cumulative(target, target.task, wanted, runs)
        return _final(target, target.task, wanted, runs)
    notes, tables = DESCRIBED[target.name](wanted)
    return Section(target.name, target.title, notes, tables)


def safety_section(runs: Sequence[Gathered]) -> Section:
    """All deployments of all runs."""
    rows = safety.of_runs(runs)
    worse = safety.worse_deployments(runs)
    tables = [safety.table(rows)] if rows else []
    listed = safety.worse_table(worse)
    if listed.rows:
        tables.append(listed)
    return Section("safety", "Safety", tables=tuple(tables))


def overview(comparisons: Sequence[Comparison]) -> Section:
    """How far each table holds, on one page."""
    rows = agreements(list(comparisons))
    note = (
        "Judged: numbers that both sides have, taken alike, over at least two seeds. Agree: within two standard errors "
        "of ours; the published means have an error of their own, which is not given, so this is strict. Errors alike: "
        "within two standard errors of the difference if theirs is as large as ours. Less SEA: the method's number "
        "less SEA's, paired by seed, so that the luck of the baselines cancels. Median "
        "difference: relative to the published number. Side of SEA: methods that end on the published side of SEA. "
        "Same mark: numbers whose t-test mark is the published one."
    )
    table = Table(
        "overview", "How far the published numbers hold", note,
        ("Table", "Semantics", "Judged", "Agree", "Agree, errors alike", "Less SEA: agree", "Median difference",
         "Side of SEA", "Same mark"),
        tuple(map(_overview_row, rows)),
    )  # fmt: skip
    notes = () if rows else ("No number of this command could be judged: see what is missing below.",)
    return Section("overview", "Overview", notes, (table,) if rows else ())


def _overview_row(row: Agreement) -> tuple[str, ...]:
    median = MISSING if row.median_relative is None else f"{row.median_relative:.1%}"
    return (
        f"{row.table}: {row.data}, {row.noise}", row.semantics, str(row.n_judged), f"{row.n_agree} of {row.n_judged}",
        f"{row.n_agree_alike} of {row.n_judged}", f"{row.n_paired_agree} of {row.n_paired}",
        median, f"{row.n_same_side} of {row.n_sides}", f"{row.n_same_mark} of {row.n_judged}",
    )  # fmt: skip


# Cumulative and final tables


def _cumulative(target: Target, task: str, wanted: Wanted, runs: Sequence[Gathered]) -> Section:
    metric = _CUMULATIVE[task]
    tables, details, comparisons = [], [], []
    for data in wanted.data.get(task, ()):
        for noise in paper.noises(task):
            mine = _of(runs, data, noise)
            if not mine:
                continue
            ats = _columns(target.name, data, mine)
            labels = _column_labels(ats, mine)
            found: list[Comparison] = []
            for method in _methods(task, data, mine):
                for sem in _semantics(mine):
                    for at in ats:
                        got = _look(mine, sem, method, metric, at, versus_baseline=task == "ranking")
                        gap = next(
                            (g for r in mine if r.spec.semantics == sem and (g := r.less_sea(method, metric, at))), None
                        )
                        found.append(compare(target.name, task, data, noise, sem, method, at, got, paired=gap))
            found = _without_empty(found)
            if not found:
                continue
            comparisons += found
            title = f"{_title(data)}, {noise} {_UNIT[task]}"
            tables.append(_compact(f"{target.name}-{data}-{noise}", title, found, labels))
            details.append(_detail(f"{target.name}-{data}-{noise}-detail", title, found))
    against = "the baseline" if task == "ranking" else "SEA"
    notes: tuple[str, ...] = (
        f"Means over seeds, relative to the baseline on the same rounds. ▲ gain, ▼ loss against {against} in a t-test "
        "(p < 0.01). = agrees with the published number above it (within two of our standard errors), ≠ differs, no "
        f"sign: no published number, or it could not be judged; {MISSING} not reached, not run, or not published.",
    )
    if task == "ranking":
        notes += (str(paper.document()["about_marks"]), _SHARED)
    return _section(target, notes, tables, details, comparisons)


def _final(target: Target, task: str, wanted: Wanted, runs: Sequence[Gathered]) -> Section:
    metric, at = _LEARNED[task], paper.rounds(target.name)[0]
    tables, details, comparisons = [], [], []
    for data in wanted.data.get(task, ()):
        mine = [run for run in runs if run.spec.data == data]
        found: list[Comparison] = []
        for method in _methods(task, data, mine):
            for sem in _semantics(mine):
                for noise in paper.noises(task):
                    same = [r for r in _of(mine, data, noise) if r.spec.semantics == sem and not r.spec.is_extra]
                    last, got = 0, None
                    for run in same:
                        if (one := run.obtained(method, metric, run.spec.rounds)) is not None:
                            last, got = run.spec.rounds, one
                    note = "" if last in (0, at) else f"after {last:,} rounds, not {at:,}"
                    found.append(
                        compare(
                            target.name, task, data, noise, sem, method, at, got, note=note, is_comparable=not note
                        )
                    )  # fmt: skip
        found = _without_empty(found)
        if not found:
            continue
        comparisons += found
        title = _title(data)
        columns = [(noise, f"{noise} {_UNIT[task]}".capitalize()) for noise in paper.noises(task)]
        compact = _compact(f"{target.name}-{data}", title, found, columns, decimals=3)
        tables.append(compact)
        details.append(_detail(f"{target.name}-{data}-detail", title, found, decimals=4))
    ends = sorted({run.spec.rounds for run in runs if run.cells and not run.spec.is_extra})
    notes = (
        f"Published: after {at:,} rounds; ours after {' or '.join(f'{n:,}' for n in ends) or 'no'} rounds, and judged "
        "only where that is the same. What was learned, acting greedily, on held-out data. ▲ gain, ▼ loss against SEA "
        "in a t-test (p < 0.01). = agrees within two of our standard errors and the rounding of the table, ≠ differs.",
        *([_SHARED] if task == "ranking" else []),
    )
    return _section(target, notes, tables, details, comparisons)


def _title(data: str) -> str:
    return paper.TITLES.get(data, f"{data} (not in the paper)")


def _section(
    target: Target, notes: tuple[str, ...], tables: list[Table], details: list[Table], found: list[Comparison]
) -> Section:
    if not tables:
        notes = (_EMPTY,)
    return Section(target.name, target.title, notes, tuple(tables), tuple(details), tuple(found))


def _compact(
    name: str,
    title: str,
    found: Sequence[Comparison],
    columns: Sequence[tuple[Any, str]],
    *,
    decimals: int | None = None,
) -> Table:
    """A row per method and source, the published one first."""

    def key(one: Comparison) -> Any:
        return one.round if one.table.endswith("cumulative") else one.noise

    places = []
    for column, _ in columns:
        values = [abs(v) for one in found if key(one) == column for v in _values(one)]
        largest = max(values, default=0.0)
        places.append(decimals if decimals is not None else 0 if largest >= 1000 else 1 if largest >= 10 else 2)
    rows = []
    most = max((one.obtained.n_seeds for one in found if one.obtained), default=0)
    for method in dict.fromkeys(one.method for one in found):
        mine = [one for one in found if one.method == method]
        printed = {key(one): one for one in mine}
        if any(one.published is not None for one in mine):
            cells = [
                _marked(_number(one.published, min(d, one.decimals)), one.published_mark)
                for (column, _), d in zip(columns, places)
                if (one := printed.get(column)) is not None
            ]
            rows.append((f"{method}: published", *cells))
        for sem in dict.fromkeys(one.semantics for one in mine):
            got = {key(one): one for one in mine if one.semantics == sem}
            if all(one.obtained is None for one in got.values()):
                continue
            cells = [
                _ours(one, d) if (one := got.get(column)) is not None else MISSING
                for (column, _), d in zip(columns, places)
            ]
            n = max(one.obtained.n_seeds for one in got.values() if one.obtained)
            few = "" if n == most else f", {n} seed{'' if n == 1 else 's'}"
            rows.append((_label(method, sem, mine) + few, *cells))
    return Table(name, title, "", ("Method", *(label for _, label in columns)), tuple(rows))


def _label(method: str, sem: str, rows: Sequence[Comparison]) -> str:
    is_ours = all(one.published is None for one in rows) and method not in PUBLISHED_METHODS[rows[0].task]
    return f"{method}: {sem}" + (", not in the paper" if is_ours else "")


def _detail(name: str, title: str, found: Sequence[Comparison], *, decimals: int = 2) -> Table:
    """One row per number that both sides have."""
    rows = []
    for one in found:
        if one.obtained is None or one.published is None:
            continue
        se, in_se = one.obtained.se, one.in_se
        why = ", ".join(one.reasons) or one.note
        rows.append(
            (
                f"{one.method}, {one.semantics}", one.noise, f"{one.round:,}",
                _marked(_number(one.published, 2), one.published_mark),
                _marked(_number(one.obtained.mean, decimals), one.obtained.mark), _number(se, decimals),
                _signed(one.difference, decimals), _signed(in_se, 1), one.verdict, *_less_sea(one, decimals), why,
            )
        )  # fmt: skip
    headers = (
        "Method", "Noise", "Round", "Published", "Obtained", "Standard error", "Difference", "In se", "Verdict",
        "Less SEA: published", "Less SEA: obtained", "Less SEA: in se", "Known reasons",
    )  # fmt: skip
    return Table(name, f"{title}, number by number", "", headers, tuple(rows))


def _less_sea(one: Comparison, decimals: int) -> tuple[str, str, str]:
    less = one.less_sea
    if less is None:
        return MISSING, MISSING, MISSING
    return _signed(less.published, 2), _signed(less.obtained.mean, decimals), _signed(less.in_se, 1)


def _values(one: Comparison) -> Iterable[float]:
    if one.published is not None:
        yield one.published
    if one.obtained is not None:
        yield one.obtained.mean


def _ours(one: Comparison, decimals: int) -> str:
    if one.obtained is None:
        return MISSING
    sign = SIGNS[one.verdict]
    return f"{sign} {_marked(_number(one.obtained.mean, decimals), one.obtained.mark)}".strip()


def _number(value: float | None, decimals: int) -> str:
    return format_number(value, decimals)


def _signed(value: float | None, decimals: int) -> str:
    if value is None:
        return MISSING
    return ("+" if value > 0 else "") + format_number(value, decimals)


def _marked(text: str, mark: str) -> str:
    return f"{text} {mark}" if mark else text


def _of(runs: Sequence[Gathered], data: str, noise: str) -> list[Gathered]:
    return [run for run in runs if (run.spec.data, run.spec.noise) == (data, noise)]


def _semantics(runs: Sequence[Gathered]) -> list[str]:
    return [sem for sem in SEMANTICS if any(run.spec.semantics == sem for run in runs)]


def _methods(task: str, data: str, runs: Sequence[Gathered]) -> list[str]:
    """Methods with a number on either side, as the tables list them."""
    ran = {cell["method"] for run in runs for cell in run.cells}
    asked = {method for run in runs for method in run.spec.methods + run.spec.shared}
    known = {n.method for t in ("cumulative", "final") for n in paper.numbers(f"{task}-{t}") if n.data == data}
    found = ran | (known & asked)
    return [m for m in METHOD_ORDER if m in found] + sorted(found - set(METHOD_ORDER))


def _look(
    runs: Sequence[Gathered], semantics: str, method: str, metric: str, at: int, *, versus_baseline: bool
) -> Obtained | None:
    for run in runs:
        if run.spec.semantics == semantics:
            found = run.obtained(method, metric, at, versus_baseline=versus_baseline)
            if found is not None:
                return found
    return None


def _columns(table: str, data: str, runs: Sequence[Gathered]) -> list[int]:
    """The published rounds; of a set that is not in the paper those reached; the ends of main and extra run."""
    ends = [
        max((run.spec.rounds for run in runs if run.cells and run.spec.is_extra == extra), default=0)
        for extra in (False, True)
    ]
    ats = paper.rounds(table)
    if data not in paper.CLASSIFICATION_SETS + paper.RANKING_SETS:
        ats = [at for at in ats if at <= max(ends)]
    return sorted({*ats, *filter(None, ends)})


def _column_labels(ats: Sequence[int], runs: Sequence[Gathered]) -> list[tuple[int, str]]:
    """A label per column; columns that only an extra run reaches say over how many seeds they are."""
    main = max((run.spec.rounds for run in runs if not run.spec.is_extra), default=0)
    seeds = max((run.spec.seeds for run in runs if run.spec.is_extra and run.cells), default=0)
    plural = "" if seeds == 1 else "s"
    return [(at, f"t = {at:,}" + (f", {seeds} seed{plural}" if seeds and at > main else "")) for at in ats]


def _without_empty(found: list[Comparison]) -> list[Comparison]:
    """Without methods that have a number on neither side, and rounds that have none."""
    filled = {one.method for one in found if one.published is not None or one.obtained is not None}
    return [one for one in found if one.method in filled]


# Figures


def _online(target: Target, task: str, wanted: Wanted, runs: Sequence[Gathered]) -> Section:
    present = wanted.data.get(task, ())
    sets = list(dict.fromkeys([*(s for s in paper.PAPER_SETS[task] if _is_asked(s, wanted)), *present]))
    why = {one.what: f"{paper.TITLES.get(one.what, one.what)}: data not present" for one in wanted.missing}
    drawn: dict[str, Figure] = {}
    captions: dict[str, str] = {}
    rows = []
    for sem in _semantics(runs):
        same = [run for run in runs if run.spec.semantics == sem and not run.spec.is_extra]
        aside = grids.not_drawn(same)
        if sets and any(run.cells for run in same):
            name = f"{target.name}-{sem}"
            drawn[name] = grids.online(same, task, sets, paper.noises(task), why, f"{target.title}, semantics '{sem}'")
            captions[name] = (
                f"Held-out performance of the policy that acts, semantics '{sem}'. Rows: data sets; columns: "
                f"{_UNIT[task]}. Line: mean over seeds; band: one standard deviation; dashed: the baseline; SEA blue."
                + (f" Not drawn, since their runs are shorter: {', '.join(aside)}." if aside else "")
            )
        rows += [row for run in same for row in _online_rows(run, task)]
    note = (
        "Baseline: held-out value of the policy of round 0 (the paper's text gives its accuracy to one digit). Lowest: "
        "the smallest difference to it at any of the measured rounds, of the mean over seeds and of any one seed. "
        "The paper shows these curves as a figure and prints no numbers."
    )
    headers = ("Run and method", "Semantics", "Published baseline", "Baseline", "At the end", "Lowest, mean", "Lowest")
    tables = (Table(target.name, f"The curves in numbers: {task}", note, headers, tuple(rows)),) if rows else ()
    notes = () if rows else (_EMPTY,)
    return Section(target.name, target.title, notes, tables, figures=drawn, captions=captions)


def _is_asked(data: str, wanted: Wanted) -> bool:
    return data in {name for names in wanted.data.values() for name in names} | {one.what for one in wanted.missing}


def _online_rows(run: Gathered, task: str) -> list[tuple[str, ...]]:
    metric, _ = grids.METRICS[task]
    rows: list[tuple[str, ...]] = []
    known = paper.document()["baseline_accuracy"].get(run.spec.data) if task == "classification" else None
    starts = [c[metric][0] for c in run.cells if c["method"] in ("ips", "bsea", "sea", "seamark")]
    if not starts:
        return []
    for method in run.summary["methods"]:
        cells = [cell for cell in run.cells if cell["method"] == method]
        values = series(cells, metric)
        if values is None:
            continue
        base = {c["seed"]: c[metric][0] for c in run.cells if c["method"] in ("ips", "bsea", "sea", "seamark")}
        first = np.array([base.get(c["seed"], np.nan) for c in cells])[:, None]
        away = (values - first)[:, 1:]
        rows.append(
            (
                f"{run.spec.data}, {run.spec.noise}, {method}", run.spec.semantics,
                MISSING if known is None else f"about {known}", format_number(float(np.nanmean(first)), 3),
                format_number(float(values[:, -1].mean()), 3), _signed(float(np.nanmin(away.mean(axis=0))), 3),
                _signed(float(np.nanmin(away)), 3),
            )
        )  # fmt: skip
    return rows


def substitutes(wanted: Wanted) -> list[str]:
    """Sets of this command that stand in none of the paper's tables."""
    return [name for task, names in wanted.data.items() for name in names if is_substitute(task, name)]
