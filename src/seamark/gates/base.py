"""When a candidate may act: evidence in, decision out. Gates see scores, never what a context means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from seamark.policies import Policy
from seamark.rounds import Rounds

Verdict = Literal["promote", "hold", "inconclusive", "blocked", "rollback"]


@dataclass(frozen=True, eq=False)
class Decision:
    """A verdict with its evidence. `policy` is what acts from now on: set for promote and rollback only."""

    verdict: Verdict
    at: int
    """How many rounds had been seen."""
    policy: Policy | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    """Machine-readable, `kind` or `kind:detail`."""

    @property
    def deploys(self) -> bool:
        return self.verdict in ("promote", "rollback")


class GateRefusal(ValueError):
    """The gate cannot keep what it promises under these conditions, so it does not start."""


class Gate(Protocol):
    """A candidate is offered, rounds are observed; at either moment the gate may decide.

    The order inside a leg is: observe -> deploy? -> learner updates -> offer -> deploy?
    """

    @property
    def name(self) -> str: ...

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        """From now on this policy is the deployed one. Called at the start and after every change of it."""
        ...

    def acting(self, deployed: Policy) -> Policy:
        """Who draws the actions while `deployed` is deployed; itself, unless the gate directs exploration."""
        ...

    def observe(self, rounds: Rounds, deployed: Policy) -> Decision | None:
        """Takes in closed rounds, in decision order, each once."""
        ...

    def wants(self, at: int) -> bool:
        """Whether a candidate offered now would be looked at."""
        ...

    def offer(self, candidate: Policy, at: int) -> Decision | None:
        """A candidate fitted to all rounds observed so far. The gate copies what it keeps."""
        ...

    def records(self) -> dict[str, list[Any]]:
        """One entry per check, columnar."""
        ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


def training_part(gate: Any, rounds: Rounds) -> Rounds:
    """The rounds that may teach: all of them, unless the gate sets some aside to judge."""
    chosen: Rounds = getattr(gate, "training_part", lambda whole: whole)(rounds)
    return chosen


def require(name: str, value: Any, good: bool, remedy: str) -> None:
    """Raises, with what it was and what to do, unless `good`."""
    if not good:
        raise ValueError(f"{name}: {value}; {remedy}.")


def check_rewards(rounds: Rounds) -> None:
    """Raises unless every reward is in [0, 1]; a NaN is not."""
    bad = ~((rounds.rewards >= 0) & (rounds.rewards <= 1))
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"rewards: row {row} is {rounds.rewards[row]}; must be in [0, 1].")


def check_next(rounds: Any, expected: int | None) -> None:
    """Raises unless the rounds begin where the last ones ended: evidence takes every round, in order, each once."""
    if expected is not None and rounds.first != expected:
        what = "were observed already" if rounds.first < expected else "are missing before it"
        raise ValueError(
            f"rounds: first is {rounds.first}, expected {expected}; rounds {what}. Evidence takes every round in "
            "decision order, each once; one without a reward counts with the default. Number them: first=."
        )


class Records:
    """Columns of checks: cheap to append to, cheap to keep."""

    def __init__(self, *columns: str) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in columns}

    def add(self, **values: Any) -> None:
        for name, column in self._columns.items():
            column.append(values[name])

    def columns(self) -> dict[str, list[Any]]:
        return {name: list(column) for name, column in self._columns.items()}

    def restore(self, columns: dict[str, Any]) -> None:
        self._columns = {name: list(columns[name]) for name in self._columns}


@dataclass(frozen=True)
class Schedule:
    """When checks happen. A statistical choice (the number of looks) as well as a cost.

    >>> list(zip(range(12), Schedule.parse("published").times()))[-3:]
    [(9, 10), (10, 20), (11, 30)]
    >>> Schedule.parse("every:500").after(500)
    1000
    """

    kind: Literal["published", "log", "every"]
    every: int = 1_000
    """Step of `every`; step of the tail, from there on, of `published` (ranking: 10,000)."""

    @classmethod
    def parse(cls, text: str, *, tail: int = 1_000) -> Schedule:
        """`published` (1-9, 10-90, 100-900, ..., then every 1,000), `log` (the same without the tail), `every:N`."""
        if text == "published":
            return cls("published", tail)
        if text == "log":
            return cls("log")
        kind, _, step = text.partition(":")
        if kind == "every" and step.isdigit() and int(step) > 0:
            return cls("every", int(step))
        raise ValueError(f"check schedule: {text!r}; must be 'published', 'log' or 'every:N' with a positive N.")

    def after(self, t: int) -> int:
        """The first check time later than t."""
        if self.kind == "every" or (self.kind == "published" and t >= self.every):
            return (t // self.every + 1) * self.every
        step = 10 ** int(math.log10(t) + 1e-12) if t >= 1 else 1
        return (t // step + 1) * step

    def times(self) -> Iterator[int]:
        t = 0
        while True:
            t = self.after(t)
            yield t

    def __str__(self) -> str:
        return f"every:{self.every}" if self.kind == "every" else self.kind
