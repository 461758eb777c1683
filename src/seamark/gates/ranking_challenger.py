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
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from seamark.estimation.eprocess import N_BETS
from seamark.estimation.ranking_scores import NoFloor, NotDisplayed, RankingScorer
from seamark.gates.base import GateRefusal, require
from seamark.gates.contest import Blocked, Contest, Incumbent
from seamark.gates.spending import Guarantee
from seamark.policies.combined import BudgetedRanker, RerankedRanker
from seamark.policies.displays import AsRanked, Display
from seamark.policies.rankers import Ranker, UnsoundRanker
from seamark.rankings import RankingRounds
from seamark.rounds import FloatArray

Form: TypeAlias = Literal["full", "reranked"]


class RankingChallengerGate(Contest):
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
        require("margin", margin, -bound < margin < bound, f"must be in units of V, between -{bound:g} and {bound:g}")
        good = len(forms) > 0 and set(forms) <= {"full", "reranked"}
        require("forms", tuple(forms), good, "must be 'full', 'reranked' or both")
        require("slots", slots, slots >= len(forms), "must be at least the number of forms")
        require("budget", budget, budget is None or budget > 0, "must be positive, or None")
        if budget is not None and not isinstance(self.scorer.display, AsRanked):
            raise ValueError("budget: policy surgery needs orders shown as they are; give examination probabilities.")
        super().__init__(
            n_actions=0, scale=float(self.scorer.discounts.sum()), delta=delta, guarantee=guarantee, margin=margin,
            slots=slots, first_freeze=first_freeze, growth=growth, bets=bets, rollback=rollback, min_rounds=min_rounds,
        )  # fmt: skip
        self.forms: tuple[Form, ...] = tuple(forms)
        self.budget = budget

    def reign(self, deployed: Ranker, at: int, version: int) -> None:
        """A new incumbent: all evidence was about the old one. Also unblocks, after the cause was removed."""
        self._begin(Incumbent(deployed.frozen(), deployed.id, version), at)

    def acting(self, deployed: Ranker) -> Ranker:
        return deployed

    # -- what is scored, and how -----------------------------------------------------------------------------------

    def _score(self, rounds: RankingRounds, incumbent: Incumbent) -> dict[int, str]:
        from seamark.kernels.ranking_scores import bet_on_scores

        mine = rounds.versions == incumbent.version
        numbers = rounds.first + np.arange(len(rounds))
        evidence, dropped = self._slots.evidence, {}
        for place, slot in self._slots.live():
            part = rounds.where(mine & (numbers >= slot.start))
            try:
                z = self.scorer.paired(slot.policy, incumbent.policy, part).values
            except UnsoundRanker:
                dropped[place] = "candidate-not-finite"
                continue
            except NotDisplayed:
                raise Blocked("display-mismatch") from None
            bet_on_scores(
                z, self._slots.margins[place], self._slots.bets[place, 0], evidence.capital[place, 0],
                evidence.log_capital[place, 0], evidence.s1[place], evidence.s2[place],
            )  # fmt: skip
            evidence.scored[place] += z.size
            evidence.differed[place] += np.count_nonzero(z)
        return dropped

    def _truncations(self, incumbent: Incumbent) -> FloatArray:
        return np.zeros(1)

    def _bounds(self, candidate: Ranker, incumbent: Incumbent) -> FloatArray:
        return np.array([self.scorer.bound(candidate, incumbent.policy)])

    def _forms(self, candidate: Ranker, incumbent: Incumbent) -> Sequence[Ranker]:
        return [self._formed(candidate, incumbent.policy, form) for form in self.forms]

    def _formed(self, candidate: Ranker, incumbent: Ranker, form: Form) -> Ranker:
        display, formed = self.scorer.display, candidate
        if form == "reranked":
            formed = RerankedRanker.of(formed, incumbent, display.depth)
        if self.budget is not None:
            formed = BudgetedRanker(formed, incumbent, display.examination, self.scorer.discounts, self.budget)
        return formed.frozen()

    def _settings(self) -> dict[str, Any]:
        return {
            "examination": self.scorer.display.examination.tolist(), "display": type(self.scorer.display).__name__,
            "discounts": self.scorer.discounts.tolist(), "forms": list(self.forms), "budget": self.budget,
        }  # fmt: skip
