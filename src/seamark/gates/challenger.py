"""The challenger gate: frozen candidates, scored on later rounds only, deployed on anytime-valid evidence.

What is promised (guarantee="run"): with probability at least 1 - delta, no candidate is ever deployed whose gain over
the deployed policy was at most the margin on average over the rounds that scored it. It holds for any learner, any
number of looks, any stopping. What it assumes: the recorded probabilities are those that the actions were drawn from;
rewards are in [0, 1] on a scale known beforehand (a margin is in the same units); rounds come in decision order, all
of them, each once, a reward that never came counting as the default; contexts are drawn, not dealt without replacement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seamark.estimation.eprocess import NO_FLOOR_TRUNCATION, truncations
from seamark.estimation.reward_models import RewardModelChoice
from seamark.estimation.reward_models import reward_model as reward_model_of
from seamark.gates.base import Decision, GateRefusal, Records, Verdict
from seamark.gates.directed import DirectedPolicy
from seamark.gates.scoring import Blocked, Incumbent, Scorer
from seamark.gates.slots import PINNED, Slot, Slots
from seamark.gates.spending import Guarantee, Spending, reign_margin
from seamark.policies import Policy
from seamark.policies.saving import policy_from, policy_state
from seamark.rounds import FloatArray, Rounds

PINNED_GROWTH = 1.5
"""The former incumbent's evidence starts anew whenever the reign has become so many times longer. A larger ratio helps
where small differences turn early in a reign, a smaller one where they turn late."""

_COLUMNS = ("at", "log_evidence", "threshold", "mean_lift", "verdict")
_ROUNDING = 1e-12
_LIFT_LOWER_IS = "a looser, separate statement (empirical Bernstein) at the same level; often negative at a promotion"


class ChallengerGate:
    """Deploys a frozen candidate when a betting e-process on its paired scores reaches 1 / alpha.

    delta, guarantee: see `Spending`. margin: gain that a candidate must show (> 0), or total loss allowed over the run
    (< 0). slots: candidates under test at a time; the former incumbent, tested if `rollback`, has a place of its own.
    first_freeze, growth: a candidate is frozen this many rounds after a deployment, and at each growth of that number.
    estimators, bets: what the evidence mixes; see `estimation.eprocess`. reward_model: see `estimation.reward_models`.
    explore_share: share of the deployed policy's uniform exploration spent on what challengers would do. Then rounds
    must carry `probabilities`, and exploration follows uncertified policies. min_rounds: never needed for validity.
    """

    name = "challenger"

    def __init__(
        self,
        n_actions: int,
        *,
        delta: float = 0.05,
        guarantee: Guarantee = "run",
        margin: float = 0.0,
        slots: int = 4,
        first_freeze: int = 500,
        growth: float = 1.3,
        estimators: Sequence[float] = (0, 8, 32, math.inf),
        bets: int = 12,
        reward_model: RewardModelChoice = "mean",
        explore_share: float = 0.0,
        rollback: bool = True,
        min_rounds: int = 0,
    ) -> None:
        _require("n_actions", n_actions, n_actions >= 1, "must be at least 1")
        _require("margin", margin, -1 < margin < 1, "must be in reward units, between -1 and 1")
        _require("slots", slots, slots >= 1, "must be at least 1")
        _require("first_freeze", first_freeze, first_freeze >= 1, "must be at least 1 round")
        _require("growth", growth, growth > 1, "must be above 1, or levels run out")
        _require("estimators", estimators, len(estimators) > 0 and min(estimators) >= 0, "must be truncations k >= 0")
        _require("bets", bets, bets >= 1, "must be at least 1")
        _require("explore_share", explore_share, 0 <= explore_share < 1, "must be in [0, 1)")
        self.spending = Spending(delta, guarantee)
        self.n_actions, self.margin, self.first_freeze, self.growth = n_actions, margin, first_freeze, growth
        self.estimators, self.bets = tuple(float(k) for k in estimators), bets
        self.explore_share, self.rollback, self.min_rounds = explore_share, rollback, min_rounds
        self.events: list[dict[str, Any]] = []
        """Every freeze, eviction and deployment with its numbers."""
        self._slots = Slots(slots + 1, n_actions)
        self._scorer = Scorer(slots + 1, n_actions, reward_model_of(reward_model, n_actions))
        self._records = Records(*_COLUMNS)
        self._incumbent: Incumbent | None = None
        self._seen = 0
        self._next: int | None = None  # sequence number of the round to come
        self._reign = self._challenger = self._frozen = self._deployments = 0
        self._began = self._next_freeze = self._next_pin = 0
        self._blocked: str | None = None
        self._chosen: str | None = None  # id of the policy that the last decision deployed

    # -- the gate's protocol -------------------------------------------------------------------------------------

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        """A new incumbent: all evidence was about the old one. Also unblocks, after the cause was removed."""
        _require("deployed", deployed.n_actions, deployed.n_actions == self.n_actions, f"must have {self.n_actions}")
        floor = deployed.min_probability
        if self.explore_share > 0 and floor <= 0 and self._incumbent is None:
            raise GateRefusal(
                "explore_share: the deployed policy has no floor of uniform exploration to share. "
                "Mix one in (floor=0.05), or leave explore_share at 0."
            )
        former, share = self._incumbent, self.explore_share if floor > 0 else 0.0
        self._incumbent = Incumbent(deployed.frozen(), deployed.id, version, share)
        self._deployments += self._chosen == deployed.id
        self._seen, self._reign, self._challenger = at, self._reign + 1, 0
        self._began, self._next_freeze, self._next_pin = at, self.first_freeze, self.first_freeze
        self._blocked = self._chosen = None
        self._scorer.mismatches = self._scorer.compared = 0
        self._slots.clear(self._truncations(floor, share), reign_margin(self.margin, self._reign), self.bets)
        if self.rollback and former is not None and former.id != deployed.id:
            self._freeze(former.policy, at, PINNED, self._next or 0)

    def _truncations(self, floor: float, share: float) -> FloatArray:
        """k of each estimator; the largest is the largest weight u that the logging probabilities allow."""
        largest = NO_FLOOR_TRUNCATION
        if self._scorer.model is None:
            largest = 0.0  # without a reward model all truncations are the same score
        elif floor > 0 and share > 0:
            exploration = self.n_actions * floor
            largest = max(0.0, 1 - exploration) * self.n_actions / (exploration * (1 - share))
        elif floor > 0:
            largest = max(0.0, 1 / floor - 1)
        return truncations(self.estimators, largest)

    def acting(self, deployed: Policy) -> Policy:
        """The deployed policy; with `explore_share`, and while there is a challenger, its directed form."""
        challengers = tuple(slot.policy for _, slot in self._slots.live())
        share = self._incumbent.share if self._incumbent else 0.0
        if share == 0 or not challengers or self._blocked:
            return deployed
        return DirectedPolicy(deployed, challengers, share)

    def observe(self, rounds: Rounds, deployed: Policy) -> Decision | None:
        """Scores every challenger with the rounds of this reign that came after its freeze, then decides."""
        if not len(rounds):
            return None
        incumbent = self._check(rounds, deployed)
        self._next, self._seen = rounds.last, self._seen + len(rounds)
        dropped = [] if self._blocked else self._score(rounds, incumbent)
        decision = self._decide(dropped)
        if not (self._blocked or (decision and decision.deploys)):
            self._renew_pinned()
        return decision

    def wants(self, at: int) -> bool:
        return self._blocked is None and at - self._began >= self._next_freeze

    def offer(self, candidate: Policy, at: int, *, decided: int | None = None) -> None:
        """Freezes a copy when it is time. The candidate must depend on rounds before the next observed one only.

        decided: how many decisions have been drawn so far, by sequence number. Pass it where a learner may know more
        than the observed rounds (rewards in arrival order); the candidate is then scored from that decision on.
        """
        if not self.wants(at):
            return
        while at - self._began >= self._next_freeze:
            self._next_freeze = math.ceil(self.growth * self._next_freeze)
        policy = candidate.frozen()
        _require("candidate", policy.n_actions, policy.n_actions == self.n_actions, f"must have {self.n_actions}")
        known = [slot.id for _, slot in self._slots.live()]
        if self._incumbent is None or policy.id in (self._incumbent.id, *known):
            return
        place = self._slots.free()
        if place is None:
            place = self._slots.lowest()
            self._log("evict", at, place)
        self._freeze(policy, at, place, max(self._next or 0, decided or 0))

    def _freeze(self, policy: Policy, at: int, place: int, start: int) -> None:
        self._challenger += 1
        self._frozen += 1
        alpha = self.spending.level(
            self._reign, self._challenger, frozen=self._frozen, deployments=self._deployments
        )  # fmt: skip
        slot = Slot(policy, policy.id, self._challenger, alpha, start, at, self._ratio(policy))
        self._slots.put(place, slot)
        self._log("freeze", at, place)

    def _ratio(self, policy: Policy) -> float:
        """M with (d - h) / p <= M. Under directed exploration p >= (1 - eps) base: 1 if h has the floor of d, too."""
        assert self._incumbent is not None  # set by `reign`
        same_floor = policy.min_probability >= self._incumbent.policy.min_probability * (1 - _ROUNDING)
        return 1.0 if self._incumbent.share == 0 or same_floor else 1 / (1 - self._incumbent.share)

    def _renew_pinned(self) -> None:
        """Tests the former incumbent anew from time to time: old evidence against it must not weigh for ever."""
        slot = self._slots.slots[PINNED]
        if slot is None or self._seen - self._began < self._next_pin:
            return
        while self._seen - self._began >= self._next_pin:
            self._next_pin = math.ceil(PINNED_GROWTH * self._next_pin)
        self._log("evict", self._seen, PINNED)
        self._freeze(slot.policy, self._seen, PINNED, self._next or 0)

    # -- evidence ------------------------------------------------------------------------------------------------

    def _check(self, rounds: Rounds, deployed: Policy) -> Incumbent:
        """The incumbent, if these rounds can be evidence about it. Nothing has changed when it raises."""
        now = self._incumbent
        if now is None or (deployed is not now.policy and deployed.id != now.id):
            raise ValueError("deployed: not the policy of this reign; tell the gate of every change: reign(...).")
        if self._next is not None and rounds.first != self._next:
            what = "were observed already" if rounds.first < self._next else "are missing before it"
            raise ValueError(
                f"rounds: first is {rounds.first}, expected {self._next}; rounds {what}. Evidence takes every round in "
                "decision order, each once; one without a reward counts with the default. Number them: first=."
            )
        bad = ~((rounds.rewards >= 0) & (rounds.rewards <= 1))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ValueError(f"rewards: row {row} is {rounds.rewards[row]}; must be in [0, 1].")
        if now.share > 0 and rounds.probabilities is None and self._slots.live():
            raise ValueError(
                "rounds: explore_share needs the acting policy's probabilities of every action as they were at "
                "decision time; build rounds with probabilities=."
            )
        return now

    def _score(self, rounds: Rounds, incumbent: Incumbent) -> list[str]:
        """Moves the evidence on; returns why challengers were dropped, if any were. Blocks the gate on bad records."""
        try:
            dropped = self._scorer.score(rounds, incumbent, self._slots)
        except Blocked as reason:
            self._blocked = str(reason)
            return []
        except Exception as error:  # some evidence may have moved, some not: none of it can be trusted now
            self._blocked = f"error:{type(error).__name__}"
            raise
        return [self._discard(place, why) for place, why in dropped.items()]

    def _discard(self, place: int, why: str) -> str:
        slot = self._slots.slots[place]
        assert slot is not None  # callers take places of live slots
        self._log("evict", self._seen, place)
        self._slots.drop(place)
        return f"{why}:{slot.challenger}"

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
        slot = self._slots.slots[place]
        assert slot is not None  # a place of `standing`
        if slot.policy.id != slot.id:
            reason = self._discard(place, "candidate-changed-after-freeze")
            self._record(None, "blocked")
            return Decision("blocked", self._seen, reasons=(reason,))
        verdict: Verdict = "rollback" if place == PINNED else "promote"
        self._chosen = slot.id
        self._log("deploy", self._seen, place)
        self._record(place, verdict)
        evidence = self._numbers(place) | {
            "lift_lower": self._slots.lift_lower(place, slot.alpha), "lift_lower_is": _LIFT_LOWER_IS,
        }  # fmt: skip
        return Decision(verdict, self._seen, slot.policy, evidence, ("evidence-reached-threshold",))

    def _numbers(self, place: int) -> dict[str, Any]:
        slot = self._slots.slots[place]
        assert slot is not None  # callers take places of live slots
        return {
            "reign": self._reign, "challenger": slot.challenger, "alpha": slot.alpha, "threshold": slot.threshold,
            "log_evidence": self._slots.log_evidence(place), "n": self._slots.n(place),
            "mean_lift": self._slots.mean_lift(place), "policy": slot.id, "pinned": place == PINNED,
        }  # fmt: skip

    def _record(self, place: int | None, verdict: Verdict) -> None:
        empty = {"log_evidence": math.nan, "threshold": math.nan, "mean_lift": math.nan}
        numbers = empty if place is None else self._numbers(place)
        self._records.add(at=self._seen, verdict=verdict, **{name: numbers[name] for name in empty})

    def _log(self, event: str, at: int, place: int) -> None:
        numbers = self._numbers(place)
        lower = self._slots.lift_lower(place, numbers["alpha"])
        self.events.append({"event": event, "at": at, **numbers, "lift_lower": lower})

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
        unsupported = self._slots.unsupported(place)
        if unsupported:
            # with this floor no weight on those actions exceeds the truncation used where no floor is known
            floor = min(1.0, self.n_actions * unsupported["largest"] / (1 + NO_FLOOR_TRUNCATION))
            unsupported = unsupported | {"floor_for_support": floor}
        return numbers | {
            "frozen_at": slot.frozen_at,
            "lift_lower": self._slots.lift_lower(place, slot.alpha),
            "lift_lower_is": _LIFT_LOWER_IS,
            "rounds_needed": math.ceil(missing / (evidence / n)) if evidence > 0 else None,
            "share_differing": self._slots.share_differing(place),
            "unsupported": unsupported,
        }

    def records(self) -> dict[str, list[Any]]:
        return self._records.columns()

    # -- keeping -------------------------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        return {
            "n_actions": self.n_actions, "delta": self.spending.delta, "guarantee": self.spending.guarantee,
            "margin": self.margin, "slots": len(self._slots.slots), "estimators": list(self.estimators),
            "bets": self.bets, "explore_share": self.explore_share, "rollback": self.rollback,
            "reward_model": type(self._scorer.model).__name__,
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        now, model = self._incumbent, self._scorer.model
        return {
            "settings": self._settings(),
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "compared": [self._scorer.mismatches, self._scorer.compared],
            "incumbent": None if now is None else {**now._asdict(), "policy": self._kept(now.policy)},
            "slots": self._slots.state(),
            "model": None if model is None else model.state(),
            "records": self.records(),
            "events": [dict(event) for event in self.events],
        }

    def _kept(self, policy: Policy) -> dict[str, Any] | None:
        """The incumbent's state; None in the first reign, whose policy may be code: it is passed in again."""
        return policy_state(policy) if self._reign > 1 else None

    def restore(self, state: dict[str, Any]) -> None:
        mine, theirs = self._settings(), state["settings"]
        for name in mine:
            if mine[name] != theirs[name]:
                raise ValueError(f"{name}: {mine[name]}, but the saved gate has {theirs[name]}; build it alike.")
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        self._scorer.mismatches, self._scorer.compared = state["compared"]
        now = state["incumbent"]
        if now is not None and now["policy"] is None:  # still the first reign: its policy is the one we were given
            given = self._incumbent
            if given is None or given.id != now["id"]:
                raise ValueError("deployed: not the policy that the saved gate began with; build it alike.")
            now = {**now, "policy": given.policy}
        elif now is not None:
            now = {**now, "policy": policy_from(now["policy"])}
        self._incumbent = None if now is None else Incumbent(**now)
        self._slots.restore(state["slots"])
        if self._scorer.model is not None:
            self._scorer.model.restore(state["model"])
        self._records.restore(state["records"])
        self.events = [dict(event) for event in state["events"]]


_COUNTERS = (
    "_seen", "_next", "_reign", "_challenger", "_frozen", "_deployments", "_began", "_next_freeze", "_next_pin",
    "_blocked", "_chosen",
)  # fmt: skip


def _require(name: str, value: Any, good: bool, remedy: str) -> None:
    if not good:
        raise ValueError(f"{name}: {value}; {remedy}.")
