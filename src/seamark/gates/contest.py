"""Challengers under test: when they are frozen, at which level, and what follows from their evidence.

What `ChallengerGate` and `RankingChallengerGate` share. They differ in what a score is: each fills in how rounds score
the slots, which bounds the scores have, and what is frozen of a candidate.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from seamark.gates.base import Decision, Records, Verdict, check_next, require
from seamark.gates.slots import PINNED, Slot, Slots
from seamark.gates.spending import Guarantee, Spending, reign_margin
from seamark.policies.saving import policy_from, policy_state
from seamark.rounds import FloatArray

PINNED_GROWTH = 1.5
"""The former incumbent's evidence starts anew whenever the reign has become so many times longer. A larger ratio helps
where small differences turn early in a reign, a smaller one where they turn late."""

_COLUMNS = ("at", "log_evidence", "threshold", "mean_lift", "verdict")
_LIFT_LOWER_IS = "a looser, separate statement (empirical Bernstein) at the same level; often negative at a promotion"


class Incumbent(NamedTuple):
    """The deployed policy (or ranker) and how its rounds were drawn."""

    policy: Any
    """A Policy, or a Ranker: here only its id and its content count."""
    id: str
    version: int
    share: float = 0.0
    """Share of its exploration that may be directed at challengers; 0: it drew the actions itself."""


class Blocked(Exception):
    """The records cannot be right, so nothing may be deployed on them; the message is a machine-readable reason."""


class Contest(ABC):
    """Freezes candidates, spends the error budget on them, and deploys one when its evidence reaches 1 / alpha.

    Candidates (`Any`) are policies or rankers, rounds are those of the same task. `observe` moves the evidence on and
    decides; `offer` only keeps a copy. The order of a leg is observe -> deploy? -> learner -> offer.
    """

    name = "challenger"

    def __init__(
        self,
        *,
        n_actions: int,
        scale: float,
        delta: float,
        guarantee: Guarantee,
        margin: float,
        slots: int,
        first_freeze: int,
        growth: float,
        bets: int,
        rollback: bool,
        min_rounds: int,
    ) -> None:
        require("slots", slots, slots >= 1, "must be at least 1")
        require("first_freeze", first_freeze, first_freeze >= 1, "must be at least 1 round")
        require("growth", growth, growth > 1, "must be above 1, or levels run out")
        require("bets", bets, bets >= 1, "must be at least 1")
        self.spending = Spending(delta, guarantee)
        self.margin, self.first_freeze, self.growth, self.bets = margin, first_freeze, growth, bets
        self.rollback, self.min_rounds = rollback, min_rounds
        self.events: list[dict[str, Any]] = []
        """Every freeze, eviction and deployment with its numbers."""
        self._slots = Slots(slots + 1, n_actions, scale)
        self._records = Records(*_COLUMNS)
        self._incumbent: Incumbent | None = None
        self._given: Any = None  # the first incumbent: it may be code, so it is not saved but given again
        self._seen = 0
        self._next: int | None = None  # sequence number of the round to come
        self._reign = self._challenger = self._frozen = self._deployments = 0
        self._began = self._next_freeze = self._next_pin = 0
        self._blocked: str | None = None
        self._chosen: str | None = None  # id of the policy that the last decision deployed

    # -- what a task fills in ------------------------------------------------------------------------------------

    @abstractmethod
    def _score(self, rounds: Any, incumbent: Incumbent) -> dict[int, str]:
        """Moves the evidence of all slots on; returns the places that cannot go on, and why. Raises `Blocked`."""

    @abstractmethod
    def _truncations(self, incumbent: Incumbent) -> FloatArray:
        """k of every estimator of the reign: as many scores per round."""

    @abstractmethod
    def _bounds(self, candidate: Any, incumbent: Incumbent) -> FloatArray:
        """B of every estimator: the candidate's scores are at least -B."""

    @abstractmethod
    def _forms(self, candidate: Any, incumbent: Incumbent) -> Sequence[Any]:
        """What is certified, and deployed, of a frozen candidate: one challenger each."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """What a gate that restores must have been built with."""

    def _details(self, place: int, slot: Slot) -> dict[str, Any]:
        """What `why` says of a slot beyond its evidence."""
        return {}

    # -- reigns and rounds ---------------------------------------------------------------------------------------

    def _begin(self, incumbent: Incumbent, at: int) -> None:
        """A new incumbent: all evidence was about the old one. Also unblocks, after the cause was removed."""
        former, self._incumbent = self._incumbent, incumbent
        self._given = incumbent.policy if self._given is None else self._given
        self._deployments += self._chosen == incumbent.id
        self._seen, self._reign, self._challenger = at, self._reign + 1, 0
        self._began, self._next_freeze, self._next_pin = at, self.first_freeze, self.first_freeze
        self._blocked = self._chosen = None
        self._slots.clear(self._truncations(incumbent), reign_margin(self.margin, self._reign), self.bets)
        if self.rollback and former is not None and former.id != incumbent.id:
            self._freeze(former.policy, at, PINNED, self._next or 0)

    @final
    def observe(self, rounds: Any, deployed: Any) -> Decision | None:
        """Scores every challenger with the rounds of this reign that came after its freeze, then decides."""
        if not len(rounds):
            return None
        incumbent = self._check(rounds, deployed)
        self._next, self._seen = rounds.last, self._seen + len(rounds)
        dropped = [] if self._blocked else self._move_on(rounds, incumbent)
        decision = self._decide(dropped)
        if not (self._blocked or (decision and decision.deploys)):
            self._renew_pinned()
        return decision

    def _check(self, rounds: Any, deployed: Any) -> Incumbent:
        """The incumbent, if these rounds can be evidence about it. Nothing has changed when it raises."""
        now = self._incumbent
        if now is None or (deployed is not now.policy and deployed.id != now.id):
            raise ValueError("deployed: not the policy of this reign; tell the gate of every change: reign(...).")
        check_next(rounds, self._next)
        return now

    def _move_on(self, rounds: Any, incumbent: Incumbent) -> list[str]:
        """Moves the evidence on; returns why challengers were dropped, if any were. Blocks the gate on bad records."""
        try:
            dropped = self._score(rounds, incumbent)
        except Blocked as reason:
            self._blocked = str(reason)
            return []
        except Exception as error:  # some evidence may have moved, some not: none of it can be trusted now
            self._blocked = f"error:{type(error).__name__}"
            raise
        return [self._discard(place, why) for place, why in dropped.items()]

    # -- freezing ------------------------------------------------------------------------------------------------

    @final
    def wants(self, at: int) -> bool:
        return self._blocked is None and at - self._began >= self._next_freeze

    @final
    def offer(self, candidate: Any, at: int, *, decided: int | None = None) -> None:
        """Freezes a copy when it is time. The candidate must depend on rounds before the next observed one only.

        decided: how many decisions have been drawn so far, by sequence number. Pass it where a learner may know more
        than the observed rounds (rewards in arrival order); the candidate is then scored from that decision on.
        """
        if not self.wants(at):
            return
        while at - self._began >= self._next_freeze:
            self._next_freeze = math.ceil(self.growth * self._next_freeze)
        frozen, now = candidate.frozen(), self._incumbent
        if now is None or frozen.id == now.id:
            return
        fresh: list[int] = []  # places taken by this candidate's other forms
        for form in self._forms(frozen, now):
            if form.id in (now.id, *(slot.id for _, slot in self._slots.live())):
                continue
            place = self._slots.free()
            if place is None:
                place = self._slots.lowest(but=fresh)
                self._log("evict", at, place)
            self._freeze(form, at, place, max(self._next or 0, decided or 0))
            fresh.append(place)

    def _freeze(self, candidate: Any, at: int, place: int, start: int) -> None:
        assert self._incumbent is not None  # set by `reign`
        self._challenger += 1
        self._frozen += 1
        alpha = self.spending.level(
            self._reign, self._challenger, frozen=self._frozen, deployments=self._deployments
        )  # fmt: skip
        bounds = self._bounds(candidate, self._incumbent)
        self._slots.put(place, Slot(candidate, candidate.id, self._challenger, alpha, start, at, bounds))
        self._log("freeze", at, place)

    def _renew_pinned(self) -> None:
        """Tests the former incumbent anew from time to time: old evidence against it must not weigh for ever."""
        slot = self._slots.slots[PINNED]
        if slot is None or self._seen - self._began < self._next_pin:
            return
        while self._seen - self._began >= self._next_pin:
            self._next_pin = math.ceil(PINNED_GROWTH * self._next_pin)
        self._log("evict", self._seen, PINNED)
        self._freeze(slot.policy, self._seen, PINNED, self._next or 0)

    def _discard(self, place: int, why: str) -> str:
        challenger = self._slots.at(place).challenger
        self._log("evict", self._seen, place)
        self._slots.drop(place)
        return f"{why}:{challenger}"

    # -- decisions -----------------------------------------------------------------------------------------------

    def _decide(self, dropped: list[str]) -> Decision | None:
        for place, _ in self._slots.live():
            if not math.isfinite(self._slots.log_evidence(place)):
                dropped.append(self._discard(place, "evidence-not-finite"))
        standing = [(self._slots.log_evidence(place) - slot.threshold, place) for place, slot in self._slots.live()]
        if self._blocked or not standing:
            stopped = (self._blocked,) if self._blocked else tuple(dropped)
            self._record(None, "blocked" if stopped else "hold")
            return Decision("blocked", self._seen, reasons=stopped) if stopped else None
        best = max(standing)[1]
        ready = [(over, place) for over, place in standing if over >= 0 and self._slots.n(place) >= self.min_rounds]
        if ready:
            return self._deploy(max(ready)[1])
        verdict: Verdict = "blocked" if dropped else "hold"
        self._record(best, verdict)
        reason = "fewer-than-min-rounds" if max(standing)[0] >= 0 else "evidence-below-threshold"
        return Decision(verdict, self._seen, evidence=self._numbers(best), reasons=tuple(dropped) or (reason,))

    def _deploy(self, place: int) -> Decision:
        slot = self._slots.at(place)
        if slot.policy.id != slot.id:
            reason = self._discard(place, "candidate-changed-after-freeze")
            self._record(None, "blocked")
            return Decision("blocked", self._seen, reasons=(reason,))
        verdict: Verdict = "rollback" if place == PINNED else "promote"
        self._chosen = slot.id
        self._log("deploy", self._seen, place)
        self._record(place, verdict)
        evidence = self._numbers(place) | {"lift_lower": self._slots.lift_lower(place), "lift_lower_is": _LIFT_LOWER_IS}
        return Decision(verdict, self._seen, slot.policy, evidence, ("evidence-reached-threshold",))

    def _numbers(self, place: int) -> dict[str, Any]:
        slot = self._slots.at(place)
        return {
            "reign": self._reign, "challenger": slot.challenger, "alpha": slot.alpha, "threshold": slot.threshold,
            "log_evidence": self._slots.log_evidence(place), "n": self._slots.n(place),
            "mean_lift": self._slots.mean_lift(place), "bounds": slot.bounds.tolist(), "policy": slot.id,
            "pinned": place == PINNED,
        }  # fmt: skip

    def _record(self, place: int | None, verdict: Verdict) -> None:
        empty = {"log_evidence": math.nan, "threshold": math.nan, "mean_lift": math.nan}
        numbers = empty if place is None else self._numbers(place)
        self._records.add(at=self._seen, verdict=verdict, **{name: numbers[name] for name in empty})

    def _log(self, event: str, at: int, place: int) -> None:
        lower = self._slots.lift_lower(place)
        self.events.append({"event": event, "at": at, **self._numbers(place), "lift_lower": lower})

    # -- answers -------------------------------------------------------------------------------------------------

    def why(self) -> dict[str, Any]:
        """Why nothing is deployed yet: per challenger how far its evidence is, and what keeps it back."""
        return {
            "at": self._seen,
            "reign": self._reign,
            "blocked": self._blocked,
            "next_freeze_at": self._began + self._next_freeze,
            "challengers": [self._why(place, slot) for place, slot in self._slots.live()],
        }

    def _why(self, place: int, slot: Slot) -> dict[str, Any]:
        numbers = self._numbers(place)
        n, evidence = numbers["n"], numbers["log_evidence"]
        missing = max(0.0, slot.threshold - evidence)
        return {
            **numbers,
            "frozen_at": slot.frozen_at,
            "lift_lower": self._slots.lift_lower(place),
            "lift_lower_is": _LIFT_LOWER_IS,
            "rounds_needed": math.ceil(missing / (evidence / n)) if evidence > 0 else None,
            "share_differing": self._slots.share_differing(place),
            **self._details(place, slot),
        }

    def records(self) -> dict[str, list[Any]]:
        return self._records.columns()

    # -- keeping -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        now = self._incumbent
        return {
            "settings": self._all_settings(),
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "incumbent": None if now is None else {**now._asdict(), "policy": policy_state(now.policy, self._given)},
            "slots": self._slots.state(self._given),
            "records": self.records(),
            "events": [dict(event) for event in self.events],
        }

    def _all_settings(self) -> dict[str, Any]:
        return {
            "delta": self.spending.delta, "guarantee": self.spending.guarantee, "margin": self.margin,
            "slots": len(self._slots.slots), "bets": self.bets, "rollback": self.rollback, **self._settings(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        mine, theirs = self._all_settings(), state["settings"]
        for name in mine:
            if mine[name] != theirs[name]:
                raise ValueError(f"{name}: {mine[name]}, but the saved gate has {theirs[name]}; build it alike.")
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        now, given = state["incumbent"], self._given
        self._incumbent = None if now is None else Incumbent(**{**now, "policy": policy_from(now["policy"], given)})
        self._slots.restore(state["slots"], given)
        self._records.restore(state["records"])
        self.events = [dict(event) for event in state["events"]]


_COUNTERS = (
    "_seen", "_next", "_reign", "_challenger", "_frozen", "_deployments", "_began", "_next_freeze", "_next_pin",
    "_blocked", "_chosen",
)  # fmt: skip
