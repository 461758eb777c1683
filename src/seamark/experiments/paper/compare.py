"""Published beside obtained: difference, in units of our standard error, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from seamark.experiments.paper import published as paper

Verdict = Literal["agrees", "differs", "not judged", "not run", "not published"]
WITHIN = 2.0
"""Standard errors of ours within which a number agrees."""


@dataclass(frozen=True, slots=True)
class Obtained:
    """A mean over seeds at one round, with its mark."""

    mean: float
    sd: float | None  # None for one seed
    n_seeds: int
    mark: str = ""

    @property
    def se(self) -> float | None:
        """Standard error of the mean over seeds.

        >>> Obtained(5.0, 3.0, 9).se
        1.0
        """
        return None if self.sd is None else self.sd / math.sqrt(self.n_seeds)


@dataclass(frozen=True, slots=True)
class LessSea:
    """A method's number less SEA's on both sides: what the two baselines have in common cancels."""

    published: float
    obtained: Obtained  # mean of the differences, paired by seed

    @property
    def in_se(self) -> float | None:
        """How far apart, in standard errors of the paired difference."""
        se = self.obtained.se
        return (self.obtained.mean - self.published) / se if se else None

    @property
    def agrees(self) -> bool | None:
        """Within two standard errors, rounding granted; None where one seed has no error."""
        se = self.obtained.se
        return None if se is None else abs(self.obtained.mean - self.published) <= WITHIN * se + 0.01 * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number, published (or not) and obtained (or not)."""

    table: str
    task: str
    data: str
    noise: str
    semantics: str
    method: str
    round: int  # at which the published number was taken
    published: float | None
    published_mark: str
    obtained: Obtained | None
    verdict: Verdict
    decimals: int = 2
    reasons: tuple[str, ...] = ()
    note: str = ""
    less_sea: LessSea | None = None

    @property
    def difference(self) -> float | None:
        """Obtained minus published."""
        if self.published is None or self.obtained is None:
            return None
        return self.obtained.mean - self.published

    @property
    def in_se(self) -> float | None:
        """The difference in units of our standard error; None where that is zero or unknown."""
        difference = self.difference
        if difference is None or self.obtained is None or not self.obtained.se:
            return None
        return difference / self.obtained.se

    def record(self) -> dict[str, Any]:
        """The comparison as JSON holds it."""
        found = self.obtained
        return {
            "table": self.table, "task": self.task, "data": self.data, "noise": self.noise,
            "semantics": self.semantics, "method": self.method, "round": self.round,
            "published": self.published, "published_mark": self.published_mark,
            "obtained": found.mean if found else None, "sd": found.sd if found else None,
            "se": found.se if found else None, "n_seeds": found.n_seeds if found else 0,
            "mark": found.mark if found else "", "difference": self.difference, "in_se": self.in_se,
            "verdict": self.verdict, "reasons": list(self.reasons), "note": self.note,
            "less_sea": {
                "published": self.less_sea.published, "obtained": self.less_sea.obtained.mean,
                "se": self.less_sea.obtained.se, "in_se": self.less_sea.in_se, "agrees": self.less_sea.agrees,
            } if self.less_sea else None,
        }  # fmt: skip


def compare(
    table: str,
    task: str,
    data: str,
    noise: str,
    semantics: str,
    method: str,
    at: int,
    obtained: Obtained | None,
    *,
    note: str = "",
    is_comparable: bool = True,
    paired: Obtained | None = None,
) -> Comparison:
    """Sets our number beside the published one of the same cell of the same table, where there is one.

    It agrees if it lies within two of our standard errors, half a unit of the last printed digit granted. One seed
    has no error, and `is_comparable=False` says that the two were not taken alike: neither is judged. `paired` is our
    number less SEA's, seed by seed.
    """
    known = paper.table(table).get((data, noise, method, at))
    value = known.value if known else None
    decimals = known.decimals if known else 2
    verdict = _verdict(value, obtained, decimals, is_comparable)
    reasons: tuple[str, ...] = ()
    if verdict == "differs":
        reasons = tuple(
            paper.reasons_for(table=table, task=task, data=data, noise=noise, semantics=semantics, method=method)
        )
    return Comparison(
        table, task, data, noise, semantics, method, at, value, known.mark if known else "", obtained, verdict,
        decimals, reasons, note, _less_sea(table, data, noise, method, at, value, paired),
    )  # fmt: skip


def _less_sea(
    table: str, data: str, noise: str, method: str, at: int, value: float | None, paired: Obtained | None
) -> LessSea | None:
    sea = paper.table(table).get((data, noise, "sea", at))
    if method == "sea" or paired is None or value is None or sea is None:
        return None
    return LessSea(value - sea.value, paired)


def _verdict(published: float | None, obtained: Obtained | None, decimals: int, is_comparable: bool) -> Verdict:
    if obtained is None:
        return "not run"
    if published is None:
        return "not published"
    se = obtained.se
    if se is None or not is_comparable or not math.isfinite(obtained.mean + se):
        return "not judged"
    rounding = 0.5 * 10.0**-decimals
    return "agrees" if abs(obtained.mean - published) <= WITHIN * se + rounding * (1 + 1e-9) else "differs"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far one table's numbers for one set, noise and semantics hold."""

    table: str
    data: str
    noise: str
    semantics: str
    n_judged: int
    n_agree: int
    n_agree_alike: int  # if the published means had an error as large as ours: within sqrt(2) times as much
    n_paired: int  # of the judged, those that SEA's number can be taken from
    n_paired_agree: int
    median_relative: float | None  # |difference| / |published|, where that is at least 1 (tables of averages: any)
    n_sides: int  # methods other than SEA judged at the last round
    n_same_side: int  # of them, on the published side of SEA, ties counted as either
    n_same_mark: int  # of the judged, with the published mark


def agreements(comparisons: list[Comparison]) -> list[Agreement]:
    """One line per table, set, noise and semantics, of all that was judged."""
    groups: dict[tuple[str, str, str, str], list[Comparison]] = {}
    for one in comparisons:
        if one.verdict in ("agrees", "differs"):
            groups.setdefault((one.table, one.data, one.noise, one.semantics), []).append(one)
    return [_agreement(key, rows) for key, rows in groups.items()]


def _agreement(key: tuple[str, str, str, str], rows: list[Comparison]) -> Agreement:
    least = 1.0 if key[0].endswith("cumulative") else 1e-9
    relative = sorted(
        abs(one.difference) / abs(one.published)
        for one in rows
        if one.difference is not None and one.published is not None and abs(one.published) >= least
    )
    last = max(one.round for one in rows)
    at_last = {one.method: one for one in rows if one.round == last}
    sea = at_last.pop("sea", None)
    sides = [_same_side(one, sea) for one in at_last.values()] if sea else []
    return Agreement(
        *key,
        n_judged=len(rows),
        n_agree=sum(one.verdict == "agrees" for one in rows),
        n_agree_alike=sum(
            one.verdict == "agrees" or (one.in_se is not None and abs(one.in_se) <= WITHIN * math.sqrt(2))
            for one in rows
        ),
        n_paired=sum(one.less_sea is not None and one.less_sea.agrees is not None for one in rows),
        n_paired_agree=sum(one.less_sea is not None and one.less_sea.agrees is True for one in rows),
        median_relative=_median(relative),
        n_sides=len(sides),
        n_same_side=sum(sides),
        n_same_mark=sum(one.obtained is not None and one.obtained.mark == one.published_mark for one in rows),
    )


def _same_side(one: Comparison, sea: Comparison) -> bool:
    if one.published is None or sea.published is None or one.obtained is None or sea.obtained is None:
        return False  # neither is judged without both numbers
    published, obtained = one.published - sea.published, one.obtained.mean - sea.obtained.mean
    return published * obtained > 0 or abs(published) < 10.0**-one.decimals


def _median(values: list[float]) -> float | None:
    if not values:
        return None
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
