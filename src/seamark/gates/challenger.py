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

from seamark.estimation.eprocess import NO_FLOOR_TRUNCATION, score_bounds, truncations
from seamark.estimation.reward_models import RewardModelChoice
from seamark.estimation.reward_models import reward_model as reward_model_of
from seamark.gates.base import GateRefusal, check_rewards, require
from seamark.gates.contest import Contest, Incumbent
from seamark.gates.directed import DirectedPolicy
from seamark.gates.scoring import Scorer
from seamark.gates.slots import Slot
from seamark.gates.spending import Guarantee
from seamark.policies import Policy
from seamark.rounds import FloatArray, Rounds

_ROUNDING = 1e-12


class ChallengerGate(Contest):
    """Deploys a frozen candidate when a betting e-process on its paired scores reaches 1 / alpha.

    delta, guarantee: see `Spending`. margin: gain that a candidate must show (> 0), or total loss allowed over the run
    (< 0). slots: candidates under test at a time; the former incumbent, tested if `rollback`, has a place of its own.
    first_freeze, growth: a candidate is frozen this many rounds after a deployment, and at each growth of that number.
    estimators, bets: what the evidence mixes; see `estimation.eprocess`. reward_model: see `estimation.reward_models`.
    explore_share: share of the deployed policy's uniform exploration spent on what challengers would do. Then rounds
    must carry `probabilities`, and exploration follows uncertified policies. min_rounds: never needed for validity.
    """

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
        require("n_actions", n_actions, n_actions >= 1, "must be at least 1")
        require("margin", margin, -1 < margin < 1, "must be in reward units, between -1 and 1")
        require("estimators", estimators, len(estimators) > 0 and min(estimators) >= 0, "must be truncations k >= 0")
        require("explore_share", explore_share, 0 <= explore_share < 1, "must be in [0, 1)")
        super().__init__(
            n_actions=n_actions, scale=1.0, delta=delta, guarantee=guarantee, margin=margin, slots=slots,
            first_freeze=first_freeze, growth=growth, bets=bets, rollback=rollback, min_rounds=min_rounds,
        )  # fmt: skip
        self.n_actions, self.explore_share = n_actions, explore_share
        self.estimators = tuple(float(k) for k in estimators)
        self._scorer = Scorer(slots + 1, n_actions, reward_model_of(reward_model, n_actions))

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        """A new incumbent: all evidence was about the old one. Also unblocks, after the cause was removed."""
        require("deployed", deployed.n_actions, deployed.n_actions == self.n_actions, f"must have {self.n_actions}")
        floor = deployed.min_probability
        if self.explore_share > 0 and floor <= 0 and self._incumbent is None:
            raise GateRefusal(
                "explore_share: the deployed policy has no floor of uniform exploration to share. "
                "Mix one in (floor=0.05), or leave explore_share at 0."
            )
        share = self.explore_share if floor > 0 else 0.0
        self._scorer.mismatches = self._scorer.compared = 0
        self._begin(Incumbent(deployed.frozen(), deployed.id, version, share), at)

    def acting(self, deployed: Policy) -> Policy:
        """The deployed policy; with `explore_share`, and while there is a challenger, its directed form."""
        challengers = tuple(slot.policy for _, slot in self._slots.live())
        share = self._incumbent.share if self._incumbent else 0.0
        if share == 0 or not challengers or self._blocked:
            return deployed
        return DirectedPolicy(deployed, challengers, share)

    # -- what is scored, and how -----------------------------------------------------------------------------------

    def _check(self, rounds: Rounds, deployed: Policy) -> Incumbent:
        now = super()._check(rounds, deployed)
        check_rewards(rounds)
        if now.share > 0 and rounds.probabilities is None and self._slots.live():
            raise ValueError(
                "rounds: explore_share needs the acting policy's probabilities of every action as they were at "
                "decision time; build rounds with probabilities=."
            )
        return now

    def _score(self, rounds: Rounds, incumbent: Incumbent) -> dict[int, str]:
        return self._scorer.score(rounds, incumbent, self._slots)

    def _truncations(self, incumbent: Incumbent) -> FloatArray:
        """k of each estimator; the largest is the largest weight u that the logging probabilities allow."""
        floor, share = incumbent.policy.min_probability, incumbent.share
        largest = NO_FLOOR_TRUNCATION
        if self._scorer.model is None:
            largest = 0.0  # without a reward model all truncations are the same score
        elif floor > 0 and share > 0:
            largest = max(0.0, (1 / floor - 1) / (1 - share))  # p >= (1 - share) floor where the candidate explores
        elif floor > 0:
            largest = max(0.0, 1 / floor - 1)
        return truncations(self.estimators, largest)

    def _bounds(self, candidate: Policy, incumbent: Incumbent) -> FloatArray:
        """With M where (d - h) / p <= M: under directed exploration p >= (1 - eps) base, so 1 if h has d's floor."""
        same_floor = candidate.min_probability >= incumbent.policy.min_probability * (1 - _ROUNDING)
        ratio = 1.0 if incumbent.share == 0 or same_floor else 1 / (1 - incumbent.share)
        return score_bounds(self._slots.truncations, ratio)

    def _forms(self, candidate: Policy, incumbent: Incumbent) -> Sequence[Policy]:
        require("candidate", candidate.n_actions, candidate.n_actions == self.n_actions, f"must have {self.n_actions}")
        return (candidate,)

    def _details(self, place: int, slot: Slot) -> dict[str, Any]:
        unsupported = self._slots.unsupported(place)
        if unsupported:
            # with this floor no weight on those actions exceeds the truncation used where no floor is known
            floor = min(1.0, self.n_actions * unsupported["largest"] / (1 + NO_FLOOR_TRUNCATION))
            unsupported = unsupported | {"floor_for_support": floor}
        return {"unsupported": unsupported}

    # -- keeping -------------------------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        return {
            "n_actions": self.n_actions, "estimators": list(self.estimators), "explore_share": self.explore_share,
            "reward_model": type(self._scorer.model).__name__,
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        model = self._scorer.model
        return super().state() | {
            "compared": [self._scorer.mismatches, self._scorer.compared],
            "model": None if model is None else model.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._scorer.mismatches, self._scorer.compared = state["compared"]
        if self._scorer.model is not None:
            self._scorer.model.restore(state["model"])
