"""The challenger gate for rankers: frozen candidates, scored on later rounds only, by betting on paired clicks.

Freezing, spending, rollback and decisions are those of `ChallengerGate`; the score is the paired ranking score, whose
lower bound B is a sum over positions (20.0 for ten positions, eta = 1), so that one estimator is enough: with a
deterministic display the doubly-robust correction cancels identically.

What is promised (guarantee="run"): with probability at least 1 - delta, no candidate is ever deployed whose gain in V
(metric cut at the display) over the deployed ranker was at most the margin on average over the rounds that scored it.
Assumes users who examine position j with the known probability e(j) whatever they saw. Under cascade users or a
wrong e the certificate is about another quantity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from seamark.estimation.eprocess import N_BETS, ScoreBelowBound, bet_grid, lift_lower, log_mean_exp
from seamark.estimation.ranking_scores import NoFloor, NotDisplayed, RankingScorer
from seamark.gates.base import Decision, GateRefusal, Records, Verdict
from seamark.gates.spending import Guarantee, Spending, reign_margin
from seamark.policies.rankers import (
    AsRanked,
    BudgetedRanker,
    Display,
    Ranker,
    RerankedRanker,
    UnsoundRanker,
    ranker_from,
    ranker_state,
)
from seamark.rankings import RankingRounds
from seamark.rounds import FloatArray

PINNED = 0
"""The place of the former incumbent."""

PINNED_GROWTH = 2.0
"""The former incumbent's evidence starts anew whenever the reign has become so many times longer."""

Form: TypeAlias = Literal["full", "reranked"]

_COLUMNS = ("at", "log_evidence", "threshold", "mean_lift", "verdict")


@dataclass(frozen=True, eq=False)
class RankingSlot:
    """One challenger: what was frozen, when, at which level it may be deployed, and its evidence."""

    ranker: Ranker
    id: str
    challenger: int
    """j, counted within the reign."""
    alpha: float
    start: int
    """Sequence number of the first round that may score it."""
    frozen_at: int
    bound: float
    """B: its scores are at least -B."""
    scale: float
    """Largest possible gain in V: the sum of the discounts."""
    bets: FloatArray
    capital: FloatArray
    log_capital: FloatArray
    sums: FloatArray
    """Of z and z squared."""
    counts: FloatArray
    """Rounds scored, rounds with a score other than 0."""

    @property
    def threshold(self) -> float:
        """ln(1 / alpha)."""
        return -math.log(self.alpha)

    @property
    def n(self) -> int:
        return int(self.counts[0])

    @property
    def log_evidence(self) -> float:
        return log_mean_exp(self.log_capital + np.log(self.capital))

    @property
    def mean_lift(self) -> float:
        """Mean score, a conservative estimate of the gain; NaN before the first round."""
        return float(self.sums[0] / self.counts[0]) if self.counts[0] else math.nan

    def lift_lower(self) -> float:
        """A looser, separate statement than the evidence (empirical Bernstein), in units of V, at the slot's level."""
        # gains lie in [-scale, scale]; the search is over [-1, 1]
        s1, s2 = self.sums[0] / self.scale, self.sums[1] / self.scale**2
        return self.scale * lift_lower(self.n, s1, s2, bound=self.bound / self.scale, alpha=self.alpha)


class RankingChallengerGate:
    """Deploys a frozen candidate when a betting e-process on its paired scores reaches 1 / alpha.

    display: the examination probabilities (orders shown as they are), or a `Display` whose propensities have a floor.
    delta, guarantee: see `Spending`. margin: in units of V, below B in size; see `ChallengerGate`, as for slots,
    first_freeze, growth, rollback, min_rounds. ceiling: see `RankingScorer`.
    forms: what is frozen of a candidate, one challenger each. "full": the candidate; its score is conservative where it
    brings in other documents, with long lists by so much that it may never be deployed (swaps help). "reranked": its
    order of the documents that the incumbent can display (`RerankedRanker`); unbiased, early, but no document enters.
    budget: policy surgery. A candidate is cut to the queries where leaving the incumbent costs at most this in one
    round (`BudgetedRanker`), which allows larger bets; what is certified and deployed is the cut ranker.
    """

    name = "challenger"

    def __init__(
        self,
        display: Display | ArrayLike,
        *,
        delta: float = 0.05,
        guarantee: Guarantee = "run",
        margin: float = 0.0,
        slots: int = 4,
        first_freeze: int = 500,
        growth: float = 1.3,
        bets: int = N_BETS,
        discounts: ArrayLike | None = None,
        ceiling: float = math.inf,
        forms: Sequence[Form] = ("full",),
        budget: float | None = None,
        rollback: bool = True,
        min_rounds: int = 0,
    ) -> None:
        try:
            self.scorer = RankingScorer(display, discounts=discounts, ceiling=ceiling, rankers_kept=2 * slots + 4)
        except NoFloor as error:
            raise GateRefusal(f"challenger gate: {error}") from None
        bound = self.scorer.ranges.lower
        _require("margin", margin, -bound < margin < bound, f"must be in units of V, between -{bound:g} and {bound:g}")
        _require("slots", slots, slots >= 1, "must be at least 1")
        _require("first_freeze", first_freeze, first_freeze >= 1, "must be at least 1 round")
        _require("growth", growth, growth > 1, "must be above 1, or levels run out")
        _require("bets", bets, bets >= 1, "must be at least 1")
        good = len(forms) > 0 and set(forms) <= {"full", "reranked"}
        _require("forms", tuple(forms), good, "must be 'full', 'reranked' or both")
        _require("slots", slots, slots >= len(forms), "must be at least the number of forms")
        _require("budget", budget, budget is None or budget > 0, "must be positive, or None")
        if budget is not None and not isinstance(self.scorer.display, AsRanked):
            raise ValueError("budget: policy surgery needs orders shown as they are; give examination probabilities.")
        self.spending = Spending(delta, guarantee)
        self.margin, self.first_freeze, self.growth, self.bets = margin, first_freeze, growth, bets
        self.forms: tuple[Form, ...] = tuple(forms)
        self.budget, self.rollback, self.min_rounds = budget, rollback, min_rounds
        self.events: list[dict[str, Any]] = []
        """Every freeze, eviction and deployment with its numbers."""
        self._slots: list[RankingSlot | None] = [None] * (slots + 1)
        self._records = Records(*_COLUMNS)
        self._incumbent: Ranker | None = None
        self._incumbent_id = ""
        self._reign_margin = 0.0
        self._version = self._seen = 0
        self._next: int | None = None  # sequence number of the round to come
        self._reign = self._challenger = self._frozen = self._deployments = 0
        self._began = self._next_freeze = self._next_pin = 0
        self._blocked: str | None = None
        self._chosen: str | None = None  # id of the ranker that the last decision deployed

    # -- the gate's protocol ------------------------------------------------------------------------------------------

    def reign(self, deployed: Ranker, at: int, version: int) -> None:
        """A new incumbent: all evidence was about the old one. Also unblocks, after the cause was removed."""
        former, former_id = self._incumbent, self._incumbent_id
        self._incumbent, self._incumbent_id = deployed.frozen(), deployed.id
        self._deployments += self._chosen == self._incumbent_id
        self._version, self._seen = version, at
        self._reign, self._challenger = self._reign + 1, 0
        self._began, self._next_freeze, self._next_pin = at, self.first_freeze, self.first_freeze
        self._blocked = self._chosen = None
        self._slots = [None] * len(self._slots)
        self._reign_margin = reign_margin(self.margin, self._reign)
        if self.rollback and former is not None and former_id != self._incumbent_id:
            self._freeze(former, at, PINNED, self._next or 0)

    def acting(self, deployed: Ranker) -> Ranker:
        return deployed

    def observe(self, rounds: RankingRounds, deployed: Ranker) -> Decision | None:
        """Scores every challenger with the rounds of this reign that came after its freeze, then decides."""
        if not len(rounds):
            return None
        self._check(rounds, deployed)
        self._next, self._seen = rounds.last, self._seen + len(rounds)
        dropped = [] if self._blocked else self._score(rounds)
        decision = self._decide(dropped)
        if self._blocked is None and not (decision and decision.deploys):
            self._renew_pinned()
        return decision

    def wants(self, at: int) -> bool:
        return self._blocked is None and at - self._began >= self._next_freeze

    def offer(self, candidate: Ranker, at: int, *, decided: int | None = None) -> None:
        """Freezes a copy when it is time. The candidate must depend on rounds before the next observed one only.

        decided: how many decisions have been drawn so far, where a learner may know more than the observed rounds.
        """
        if not self.wants(at):
            return
        while at - self._began >= self._next_freeze:
            self._next_freeze = math.ceil(self.growth * self._next_freeze)
        ranker = candidate.frozen()
        if self._incumbent is None or ranker.id == self._incumbent_id:
            return
        fresh: list[int] = []  # places taken by this candidate's other forms
        for form in self.forms:
            formed = self._form(ranker, form)
            if formed.id in (slot.id for _, slot in self._live()):
                continue
            place = next((p for p, slot in enumerate(self._slots) if slot is None and p != PINNED), None)
            if place is None:
                old = [p for p, _ in self._live() if p != PINNED and p not in fresh]
                place = min(old, key=lambda p: self._at(p).log_evidence)
                self._log("evict", at, place)
            self._freeze(formed, at, place, max(self._next or 0, decided or 0))
            fresh.append(place)

    def _form(self, candidate: Ranker, form: Form) -> Ranker:
        """What is certified, and deployed, of a candidate."""
        assert self._incumbent is not None  # `offer` asked
        display, formed = self.scorer.display, candidate
        if form == "reranked":
            formed = RerankedRanker(formed, self._incumbent, display.depth)
        if self.budget is not None:
            formed = BudgetedRanker(formed, self._incumbent, display.examination, self.scorer.discounts, self.budget)
        return formed.frozen()

    def _freeze(self, ranker: Ranker, at: int, place: int, start: int) -> None:
        assert self._incumbent is not None  # set by `reign`
        self._challenger += 1
        self._frozen += 1
        alpha = self.spending.level(
            self._reign, self._challenger, frozen=self._frozen, deployments=self._deployments
        )  # fmt: skip
        bound = self.scorer.bound(ranker, self._incumbent)
        bets = bet_grid([bound], self._reign_margin, self.bets)[0]
        self._slots[place] = RankingSlot(
            ranker, ranker.id, self._challenger, alpha, start, at, bound, float(self.scorer.discounts.sum()),
            bets, np.ones(self.bets), np.zeros(self.bets), np.zeros(2), np.zeros(2),
        )  # fmt: skip
        self._log("freeze", at, place)

    def _renew_pinned(self) -> None:
        """Tests the former incumbent anew from time to time: old evidence against it must not weigh for ever."""
        slot = self._slots[PINNED]
        if slot is None or self._seen - self._began < self._next_pin:
            return
        while self._seen - self._began >= self._next_pin:
            self._next_pin = math.ceil(PINNED_GROWTH * self._next_pin)
        self._log("evict", self._seen, PINNED)
        self._freeze(slot.ranker, self._seen, PINNED, self._next or 0)

    def _live(self) -> list[tuple[int, RankingSlot]]:
        return [(place, slot) for place, slot in enumerate(self._slots) if slot is not None]

    def _at(self, place: int) -> RankingSlot:
        slot = self._slots[place]
        assert slot is not None  # callers take places of live slots
        return slot

    # -- evidence -----------------------------------------------------------------------------------------------------

    def _check(self, rounds: RankingRounds, deployed: Ranker) -> None:
        if self._incumbent is None or (deployed is not self._incumbent and deployed.id != self._incumbent_id):
            raise ValueError("deployed: not the ranker of this reign; tell the gate of every change: reign(...).")
        if self._next is not None and rounds.first != self._next:
            what = "were observed already" if rounds.first < self._next else "are missing before it"
            raise ValueError(
                f"rounds: first is {rounds.first}, expected {self._next}; rounds {what}. Evidence takes every round in "
                "decision order, each once; one without a click counts, too. Number them: first=."
            )

    def _score(self, rounds: RankingRounds) -> list[str]:
        """Moves the evidence on by these rounds; returns why challengers were dropped, if any were."""
        from seamark.kernels.ranking import bet_on_scores

        assert self._incumbent is not None  # `_check` was called
        mine = rounds.versions == self._version
        numbers = rounds.first + np.arange(len(rounds))
        reasons = []
        for place, slot in self._live():
            part = rounds.where(mine & (numbers >= slot.start))
            try:
                z = self.scorer.paired(slot.ranker, self._incumbent, part).values
            except UnsoundRanker:
                reasons.append(self._discard(place, "candidate-not-finite"))
                continue
            except NotDisplayed:
                self._blocked = "display-mismatch"
                return reasons
            except ScoreBelowBound:
                self._blocked = "score-below-bound"
                raise
            bet_on_scores(z, self._reign_margin, slot.bets, slot.capital, slot.log_capital, slot.sums)
            slot.counts[0] += z.size
            slot.counts[1] += np.count_nonzero(z)
        return reasons

    def _discard(self, place: int, why: str) -> str:
        challenger = self._at(place).challenger
        self._log("evict", self._seen, place)
        self._slots[place] = None
        return f"{why}:{challenger}"

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _decide(self, dropped: list[str]) -> Decision | None:
        standing = [(slot.log_evidence - slot.threshold, place) for place, slot in self._live()]
        if self._blocked or not standing:
            verdict: Verdict = "blocked" if self._blocked or dropped else "hold"
            self._record(None, verdict)
            if verdict == "hold":
                return None
            return Decision("blocked", self._seen, reasons=(self._blocked,) if self._blocked else tuple(dropped))
        best = max(standing)[1]
        # false for NaN
        ready = [(over, place) for over, place in standing if over >= 0 and self._at(place).n >= self.min_rounds]
        if ready:
            return self._deploy(max(ready)[1])
        verdict = "blocked" if dropped else "hold"
        self._record(best, verdict)
        reason = "fewer-than-min-rounds" if max(standing)[0] >= 0 else "evidence-below-threshold"
        return Decision(verdict, self._seen, evidence=self._numbers(best), reasons=tuple(dropped) or (reason,))

    def _deploy(self, place: int) -> Decision:
        slot = self._at(place)
        if slot.ranker.id != slot.id:
            reason = self._discard(place, "candidate-changed-after-freeze")
            self._record(None, "blocked")
            return Decision("blocked", self._seen, reasons=(reason,))
        verdict: Verdict = "rollback" if place == PINNED else "promote"
        self._chosen = slot.id
        self._log("deploy", self._seen, place)
        self._record(place, verdict)
        evidence = self._numbers(place) | {"lift_lower": slot.lift_lower()}
        # a Ranker takes the place of a Policy: the driver only freezes and passes it on
        return Decision(verdict, self._seen, cast(Any, slot.ranker), evidence, ("evidence-reached-threshold",))

    def _numbers(self, place: int) -> dict[str, Any]:
        slot = self._at(place)
        return {
            "reign": self._reign, "challenger": slot.challenger, "alpha": slot.alpha, "threshold": slot.threshold,
            "log_evidence": slot.log_evidence, "n": slot.n, "mean_lift": slot.mean_lift, "bound": slot.bound,
            "policy": slot.id, "pinned": place == PINNED,
        }  # fmt: skip

    def _record(self, place: int | None, verdict: Verdict) -> None:
        empty = {"log_evidence": math.nan, "threshold": math.nan, "mean_lift": math.nan}
        numbers = empty if place is None else self._numbers(place)
        self._records.add(at=self._seen, verdict=verdict, **{name: numbers[name] for name in empty})

    def _log(self, event: str, at: int, place: int) -> None:
        self.events.append({"event": event, "at": at, **self._numbers(place)})

    # -- answers ------------------------------------------------------------------------------------------------------

    def why(self) -> dict[str, Any]:
        """Why nothing is deployed yet: per challenger how far its evidence is, and what it needs at this rate."""
        return {
            "at": self._seen,
            "reign": self._reign,
            "blocked": self._blocked,
            "next_freeze_at": self._began + self._next_freeze,
            "challengers": [self._why(place, slot) for place, slot in self._live()],
        }

    def _why(self, place: int, slot: RankingSlot) -> dict[str, Any]:
        missing = max(0.0, slot.threshold - slot.log_evidence)
        return self._numbers(place) | {
            "frozen_at": slot.frozen_at,
            "lift_lower": slot.lift_lower(),
            "rounds_needed": math.ceil(missing / (slot.log_evidence / slot.n)) if slot.log_evidence > 0 else None,
            "share_differing": float(slot.counts[1] / slot.counts[0]) if slot.counts[0] else math.nan,
        }

    def records(self) -> dict[str, list[Any]]:
        return self._records.columns()

    # -- keeping ------------------------------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        return {
            "examination": self.scorer.display.examination.tolist(), "display": type(self.scorer.display).__name__,
            "discounts": self.scorer.discounts.tolist(), "delta": self.spending.delta,
            "guarantee": self.spending.guarantee, "margin": self.margin, "slots": len(self._slots), "bets": self.bets,
            "forms": list(self.forms), "budget": self.budget, "rollback": self.rollback,
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        slots: list[dict[str, Any] | None] = []
        for slot in self._slots:
            if slot is None:
                slots.append(None)
                continue
            copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in vars(slot).items()}
            slots.append({**copies, "ranker": ranker_state(slot.ranker)})
        return {
            "settings": self._settings(),
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "incumbent": None if self._incumbent is None else ranker_state(self._incumbent),
            "slots": slots,
            "records": self.records(),
            "events": [dict(event) for event in self.events],
        }

    def restore(self, state: dict[str, Any]) -> None:
        mine, theirs = self._settings(), state["settings"]
        for name in mine:
            if mine[name] != theirs[name]:
                raise ValueError(f"{name}: {mine[name]}, but the saved gate has {theirs[name]}; build it alike.")
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        self._incumbent = None if state["incumbent"] is None else ranker_from(state["incumbent"])
        self._slots = [None if s is None else _slot_from(s) for s in state["slots"]]
        self._records.restore(state["records"])
        self.events = [dict(event) for event in state["events"]]


_COUNTERS = (
    "_version", "_seen", "_next", "_reign", "_challenger", "_frozen", "_deployments", "_began", "_next_freeze",
    "_next_pin", "_blocked", "_chosen", "_incumbent_id", "_reign_margin",
)  # fmt: skip


def _slot_from(kept: dict[str, Any]) -> RankingSlot:
    copies: dict[str, Any] = {k: np.array(v) if isinstance(v, np.ndarray) else v for k, v in kept.items()}
    copies["ranker"] = ranker_from(kept["ranker"])
    return RankingSlot(**copies)


def _require(name: str, value: Any, good: bool, remedy: str) -> None:
    if not good:
        raise ValueError(f"{name}: {value}; {remedy}.")
