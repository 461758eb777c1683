"""Challengers under test: frozen policies with their evidence."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seamark.estimation.eprocess import bet_grid, lift_lower, log_mean_exp
from seamark.policies.saving import policy_from, policy_state
from seamark.rounds import FloatArray, IntArray

NEVER = np.iinfo(np.int64).max
"""Start of an empty place: no round is scored."""

PINNED = 0
"""The place of the former incumbent."""


class Evidence(NamedTuple):
    """Arrays with one entry per place, which the kernel changes."""

    log_capital: FloatArray
    """(places, estimators, bets): ln of the capital of each bet is log_capital + ln(capital)."""
    capital: FloatArray
    s1: FloatArray
    """(places, estimators): sum of scores."""
    s2: FloatArray
    """(places, estimators): sum of squared scores."""
    scored: IntArray
    """(places,): rounds scored."""
    differed: IntArray
    """(places,): of these, with h(.|x) != d(.|x)."""
    unsupported: IntArray
    """(places,): of these, with h > 0 = p for some action."""
    lost: FloatArray
    """(places, n_actions): sum of h(a|x) where p(a|x) = 0."""
    largest_lost: FloatArray
    """(places,): largest h(a|x) where p(a|x) = 0."""
    invalid: IntArray
    """(places,): 1 once a score was not a number."""


@dataclass(frozen=True, eq=False)
class Slot:
    """One challenger: what was frozen, when, and at which level it may be deployed."""

    policy: Any
    """A Policy, or a Ranker."""
    id: str
    challenger: int
    """j, counted within the reign."""
    alpha: float
    start: int
    """Sequence number of the first round that may score it."""
    frozen_at: int
    bounds: FloatArray
    """B per estimator: its scores are at least -B."""

    @property
    def threshold(self) -> float:
        """ln(1 / alpha)."""
        return -math.log(self.alpha)


class Slots:
    """Places for challengers; place 0 is the pinned one's. Evidence is kept in arrays that the kernels change.

    scale: the largest possible gain, in the units of the scores.
    """

    def __init__(self, n_places: int, n_actions: int, scale: float = 1.0) -> None:
        self.slots: list[Slot | None] = [None] * n_places
        self.starts = np.full(n_places, NEVER, dtype=np.int64)
        self._n_actions, self._scale = n_actions, scale
        self.clear(np.zeros(1), 0.0, 1)

    def clear(self, truncated_at: FloatArray, margin: float, n_bets: int) -> None:
        """Empties all places and sets the scores and bets of the coming reign."""
        n, e = len(self.slots), truncated_at.size
        self.truncations, self.margin, self.n_bets = truncated_at, margin, n_bets
        self.bounds, self.bets, self.margins = np.ones((n, e)), np.zeros((n, e, n_bets)), np.zeros(n)
        scored, differed, unsupported, invalid = np.zeros((4, n), dtype=np.int64)
        self.evidence = Evidence(
            np.zeros((n, e, n_bets)), np.ones((n, e, n_bets)), np.zeros((n, e)), np.zeros((n, e)),
            scored, differed, unsupported, np.zeros((n, self._n_actions)), np.zeros(n), invalid,
        )  # fmt: skip
        for place in range(n):
            self.drop(place)

    def put(self, place: int, slot: Slot) -> None:
        """The slot with no evidence yet."""
        for array in self.evidence:
            array[place] = 0
        self.evidence.capital[place] = 1.0
        self._equip(place, slot)

    def _equip(self, place: int, slot: Slot) -> None:
        self.slots[place], self.starts[place] = slot, slot.start
        self.bounds[place] = slot.bounds
        # a rollback repairs: it must be shown to be better, or two policies that are about equal would take turns
        self.margins[place] = max(self.margin, 0.0) if place == PINNED else self.margin
        self.bets[place] = bet_grid(self.bounds[place], self.margins[place], self.n_bets)

    def drop(self, place: int) -> None:
        self.slots[place], self.starts[place] = None, NEVER

    def live(self) -> list[tuple[int, Slot]]:
        return [(place, slot) for place, slot in enumerate(self.slots) if slot is not None]

    def at(self, place: int) -> Slot:
        slot = self.slots[place]
        assert slot is not None  # callers take places of live slots
        return slot

    def free(self) -> int | None:
        """An empty place for a candidate."""
        return next((place for place, slot in enumerate(self.slots) if slot is None and place != PINNED), None)

    def lowest(self, but: Collection[int] = ()) -> int:
        """The candidate's place with the least evidence."""
        return min((place for place, _ in self.live() if place not in (PINNED, *but)), key=self.log_evidence)

    def log_evidence(self, place: int) -> float:
        """NaN where a score was not a number."""
        if self.evidence.invalid[place]:
            return math.nan
        return log_mean_exp(self.evidence.log_capital[place] + np.log(self.evidence.capital[place]))

    def n(self, place: int) -> int:
        """Rounds scored."""
        return int(self.evidence.scored[place])

    def mean_lift(self, place: int) -> float:
        """Mean score of the estimator whose scores vary least (all are unbiased); NaN before the first."""
        n = self.n(place)
        if n == 0:
            return math.nan
        means = self.evidence.s1[place] / n
        return float(means[np.argmin(self.evidence.s2[place] / n - means**2)])

    def lift_lower(self, place: int) -> float:
        """Lower confidence limit of the gain at the slot's level: a looser, separate statement than the evidence."""
        # gains lie in [-scale, scale]; the search is over [-1, 1]
        s1, s2 = self.evidence.s1[place] / self._scale, self.evidence.s2[place] / self._scale**2
        if not (np.isfinite(s1).all() and np.isfinite(s2).all()):
            return math.nan
        bound = self.bounds[place] / self._scale
        return self._scale * lift_lower(self.n(place), s1, s2, bound=bound, alpha=self.at(place).alpha)

    def share_differing(self, place: int) -> float:
        """Share of scored rounds in whose context candidate and deployed policy differ; NaN before the first."""
        n = self.n(place)
        return int(self.evidence.differed[place]) / n if n else math.nan

    def unsupported(self, place: int) -> dict[str, Any] | None:
        """What the candidate would do that the deployed policy never tries; None where there is no such thing."""
        n_lost = int(self.evidence.unsupported[place])
        if not n_lost:
            return None
        return {
            "rounds": n_lost,
            "share_of_rounds": n_lost / self.n(place),
            "actions": np.flatnonzero(self.evidence.lost[place] > 0).tolist(),
            "probability": float(self.evidence.lost[place].sum() / self.n(place)),
            "largest": float(self.evidence.largest_lost[place]),
        }

    def state(self, given: Any) -> dict[str, Any]:
        return {
            "truncations": self.truncations.copy(), "margin": self.margin, "n_bets": self.n_bets,
            "evidence": {name: array.copy() for name, array in self.evidence._asdict().items()},
            "slots": [None if s is None else {**vars(s), "policy": policy_state(s.policy, given)} for s in self.slots],
        }  # fmt: skip

    def restore(self, state: dict[str, Any], given: Any) -> None:
        self.clear(np.array(state["truncations"]), float(state["margin"]), int(state["n_bets"]))
        self.evidence = Evidence(**{name: np.array(array) for name, array in state["evidence"].items()})
        for place, kept in enumerate(state["slots"]):
            if kept is not None:
                parts = {"policy": policy_from(kept["policy"], given), "bounds": np.array(kept["bounds"])}
                self._equip(place, Slot(**{**kept, **parts}))
