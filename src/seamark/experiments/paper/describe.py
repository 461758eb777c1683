"""Tables that take no runs: data sets, click models, grades."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from seamark.experiments.paper import published as paper
from seamark.experiments.paper.targets import Wanted, absent
from seamark.experiments.tables import MISSING, Table

Described: TypeAlias = tuple[tuple[str, ...], tuple[Table, ...]]
"""Notes and tables."""


def datasets_tables(wanted: Wanted) -> Described:
    """The sets' sizes, published and ours."""
    from seamark.worlds import datasets, letor

    known = paper.document()["datasets"]
    tables = []
    notes: list[str] = []
    lists: dict[str, list[tuple[str, ...]]] = {"classification": [], "ranking": []}
    for task in lists:
        for data in dict.fromkeys([*(s for s in paper.PAPER_SETS[task]), *wanted.data.get(task, ())]):
            printed = known[task].get(data)
            keys = list(next(iter(known[task].values())))
            if printed:
                lists[task].append((f"{paper.TITLES[data]}: published", *(f"{printed[k]:,}" for k in keys)))
            if data not in wanted.data.get(task, ()):
                label, remedy = _absence(task, data)
                lists[task].append((f"{paper.TITLES[data]}: {label}", *(MISSING for _ in keys)))
                notes.append(remedy)
                continue
            found: tuple[int, ...]
            if task == "classification":
                loaded = datasets.load(data)
                found = (loaded.n_actions, loaded.n_features, loaded.train_labels.size, loaded.test_labels.size)
                told = loaded.notes
            else:
                ranked = letor.load(data)
                parts = ranked.parts().values()
                n = sum(len(part) for part in parts)
                found = (n, ranked.n_features, round(sum(part.n_documents for part in parts) / n))
                told = ranked.notes
            same = printed and all(printed[k] == v for k, v in zip(keys, found))
            sign = "= " if same else "≠ " if printed else ""
            mine = [f"{'' if not printed else '= ' if printed[k] == v else '≠ '}{v:,}" for k, v in zip(keys, found)]
            lists[task].append((f"{data}: {'found' if not sign else 'ours'}", *mine))
            notes += [f"{data}: {note}." for note in told]
    heads = {
        "classification": ("Data set", "Classes", "Features", "Train size", "Test size"),
        "ranking": ("Data set", "Queries", "Features", "Documents per query"),
    }
    for task, rows in lists.items():
        tables.append(Table(f"datasets-{task}", f"Data sets: {task}", "", heads[task], tuple(rows)))
    return tuple(notes), tuple(tables)


def click_noise_tables(wanted: Wanted) -> Described:
    """The click models' probabilities, published and ours."""
    from seamark.worlds.clicks import CLICK_MODELS

    rows = []
    for name, printed in paper.document()["click-noise"].items():
        ours = CLICK_MODELS[name].p_click
        rows.append((f"{name}: published", *(f"{p:.2f}" for p in printed), MISSING))
        rows.append(
            (
                f"{name}: ours", *(f"{'=' if a == b else '≠'} {b:.2f}" for a, b in zip(printed, ours)),
                f"{CLICK_MODELS[name].eta:g}",
            )
        )  # fmt: skip
    note = "P(click | grade) of an examined document. eta: severity of position bias, as in the released runs."
    table = Table("click-noise", "Click noise", note, ("Clicks", *map(str, range(5)), "eta"), tuple(rows))
    return (), (table,)


def relevance_tables(wanted: Wanted) -> Described:
    """Shares of grades, published and ours."""
    from seamark.worlds import letor

    known = paper.document()["relevance"]
    rows, notes = [], []
    for data in dict.fromkeys([*known, *wanted.data.get("ranking", ())]):
        if data in known:
            rows.append((f"{paper.TITLES[data]}: published", *(f"{share:.2f}" for share in known[data])))
        if data not in wanted.data.get("ranking", ()):
            label, remedy = _absence("ranking", data)
            rows.append((f"{paper.TITLES[data]}: {label}", *(MISSING for _ in range(5))))
            notes.append(remedy)
            continue
        parts = letor.load(data).parts().values()
        counts = np.sum([np.bincount(part.grades, minlength=5) for part in parts], axis=0)
        shares = [float(share) for share in counts / counts.sum()]
        signs = ["= " if abs(a - b) <= 0.005 else "≠ " for a, b in zip(known[data], shares)] if data in known else []
        rows.append((f"{data}: ours", *(f"{s}{v:.2f}" for s, v in zip(signs or [""] * 5, shares))))
    note = "Share of the documents with each grade, over all parts of a set."
    table = Table("relevance", "Relevance grades", note, ("Data set", *map(str, range(5))), tuple(rows))
    return tuple(notes), (table,)


def _absence(task: str, data: str) -> tuple[str, str]:
    """Why a set of the paper has no row of ours, and what to do."""
    lack = absent(task, data)
    if lack is not None:
        return "not found", str(lack)
    return "not asked for", f"{data}: it is there, but was not asked for; add it to --data."


DESCRIBED: dict[str, Callable[[Wanted], Described]] = {
    "datasets": datasets_tables, "click-noise": click_noise_tables, "relevance": relevance_tables,
}  # fmt: skip
"""By target."""
