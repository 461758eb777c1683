"""The numbers of the paper's tables, and why ours may differ: both are data beside this file.

`published.json` was made from the paper's text by a script, not typed by hand; `reasons.json` is maintained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

CLASSIFICATION_SETS = ("usps", "news20", "rcv1")
RANKING_SETS = ("mslr10k", "yahoo", "istella-s")
PAPER_SETS: dict[str, tuple[str, ...]] = {"classification": CLASSIFICATION_SETS, "ranking": RANKING_SETS}
TITLES = {
    "usps": "USPS", "news20": "20 Newsgroups", "rcv1": "RCV1",
    "mslr10k": "MSLR-WEB10K", "yahoo": "Yahoo Webscope", "istella-s": "Istella-s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Published:
    """One number of a table as printed: a mean over 15 seeds, with the mark of its t-test."""

    table: str
    data: str
    noise: str  # of the rewards or of the clicks
    method: str
    round: int
    value: float
    mark: str
    decimals: int


@cache
def document() -> dict[str, Any]:
    """The whole of `published.json`."""
    return _read("published.json")


def numbers(table: str) -> Iterator[Published]:
    """Every number of one of the four tables of results, in the table's order."""
    found = document()["tables"][table]
    for noise, sets in found["values"].items():
        for data, methods in sets.items():
            for method, row in methods.items():
                for at, value, mark in zip(found["rounds"], row["values"], row["marks"]):
                    yield Published(table, data, noise, method, at, value, mark, found["decimals"])


@cache
def table(name: str) -> Mapping[tuple[str, str, str, int], Published]:
    """One table by (data, noise, method, round)."""
    return {(n.data, n.noise, n.method, n.round): n for n in numbers(name)}


def rounds(name: str) -> list[int]:
    """The rounds at which a table gives numbers."""
    return list(document()["tables"][name]["rounds"])


def noises(task: str) -> list[str]:
    """The kinds of rewards or of clicks, in the order of the paper's columns."""
    return list(document()["tables"][f"{task}-cumulative"]["values"])


@dataclass(frozen=True, slots=True)
class Reason:
    """Why our number may differ from the published one, and for which numbers that is so."""

    key: str
    text: str
    applies: Mapping[str, tuple[str, ...]]

    def holds(self, **where: str) -> bool:
        """Whether the number described is among those that the reason is about."""
        return all(where.get(name) in allowed for name, allowed in self.applies.items())


@cache
def reasons() -> tuple[Reason, ...]:
    """The reasons, the most specific first."""
    rows = _read("reasons.json")["reasons"]
    return tuple(Reason(r["key"], r["text"], {k: tuple(v) for k, v in r["applies"].items()}) for r in rows)


def reasons_for(**where: str) -> list[str]:
    """Keys of the reasons known for a number, given by task, table, data, noise, method and semantics."""
    return [reason.key for reason in reasons() if reason.holds(**where)]


def _read(name: str) -> dict[str, Any]:
    text = files("seamark.experiments.paper").joinpath(name).read_text("utf-8")
    parsed: dict[str, Any] = json.loads(text)
    return parsed
