"""The paper's gate for rankers: LCB(new) against UCB(deployed), with the ranges that displays and discounts give.

It is `PaperGate` with other sums and other ranges: a candidate's score of a round lies in [0, b_h], the incumbent's
own in [0, b_d] (`estimation.ranking_scores.ranges`; 29.97 and 20.01 for ten positions, eta = 1). What voids the promise
is the same as there: the candidate learned from the rounds that judge it, and the check is repeated.
For BSEA use `MeansGate(0, sums=RankingSums(...))`.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from seamark.estimation.bounds import Moments
from seamark.estimation.ranking_scores import NoFloor, ranges
from seamark.estimation.ranking_sums import RELEASED_CAP, AfterDeployment, RankingSemantics, RankingSums
from seamark.gates.base import Decision, GateRefusal, Records
from seamark.gates.paper import COLUMNS, compare
from seamark.policies.displays import Display
from seamark.policies.rankers import Ranker
from seamark.rankings import RankingRounds


class RankingPaperGate:
    """LCB(new) against UCB(deployed) with Maurer-Pontil bounds.

    semantics:
      "paper"     a sample is a round; metric cut at the display; b known beforehand; >=. Tables begin anew after a
                  deployment (`after_deployment="keep"`: as in Algorithm 1, with b_h for the deployed ranker too, and an
                  upper bound that is too low on rounds which earlier rankers displayed).
      "released"  what made the published tables: a sample is a click, the metric runs over the whole list (and so
                  credits the incumbent with documents that nobody saw), e raised to `cap`, b = the largest
                  accumulated cell, strict >. `delta=1` widens nothing; the released BSEA is this gate unchanged.
    """

    def __init__(
        self,
        display: Display | ArrayLike,
        *,
        delta: float = 0.05,
        semantics: RankingSemantics = "paper",
        discounts: ArrayLike | None = None,
        cap: float = RELEASED_CAP,
        after_deployment: AfterDeployment | None = None,
    ) -> None:
        if not 0 < delta <= 1:
            raise ValueError(f"delta: {delta}; must be in (0, 1].")
        self.delta, self.semantics = delta, semantics
        try:
            self.sums = RankingSums(
                display, discounts=discounts, semantics=semantics, cap=cap, after_deployment=after_deployment
            )
            self.ranges = ranges(self.sums.display, self.sums.discounts)
        except NoFloor as error:
            raise GateRefusal(f"paper gate: {error}") from None
        self._version = 0
        self._checked: Moments | None = None
        self._records = Records(*COLUMNS)

    @property
    def name(self) -> str:
        return "paper" if self.semantics == "paper" else "released"

    def reign(self, deployed: Ranker, at: int, version: int) -> None:
        self._version = version
        moments = self._checked if self._checked is not None else self.sums.moments(deployed)
        self.sums.follow(moments, version)
        self._checked = None

    def acting(self, deployed: Ranker) -> Ranker:
        return deployed

    def observe(self, rounds: RankingRounds, deployed: Ranker) -> None:
        self.sums.add(rounds, deployed)

    def wants(self, at: int) -> bool:
        return True

    def offer(self, candidate: Ranker, at: int) -> Decision:
        new, old = self.sums.moments(candidate), self.sums.deployed
        strict = self.semantics == "released"
        decision = compare(candidate, at, (new, old), self._ranges(new, old), delta=self.delta, strict=strict)
        self._records.add(at=at, verdict=decision.verdict, **decision.evidence)
        self._checked = new if decision.deploys else self._checked
        return decision

    def _ranges(self, new: Moments, old: Moments) -> tuple[float, float]:
        if self.semantics == "released":
            return new.largest, old.largest
        return self.ranges.candidate, self.ranges.incumbent if self.sums.is_own else self.ranges.candidate

    def records(self) -> dict[str, list[Any]]:
        return self._records.columns()

    def state(self) -> dict[str, Any]:
        return {"sums": self.sums.state(), "version": self._version, "records": self.records()}

    def restore(self, state: dict[str, Any]) -> None:
        self.sums.restore(state["sums"])
        self._version = int(state["version"])
        self._records.restore(state["records"])
