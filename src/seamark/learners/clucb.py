"""CLUCB: optimistic only inside a budget of the baseline's reward."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamark.learners.base import Acted, Answers, Draws, acted
from seamark.learners.ridge import Budget, RidgeLearner, RidgeStart, at_least_zero, copy_into, ridge_start, share_of_one
from seamark.policies import Policy
from seamark.policies.optimistic import ConservativePolicy
from seamark.rounds import Features, FloatArray, Rounds


class CLUCB(RidgeLearner):
    r"""Optimism inside a budget: the expected rewards so far sum to at least 1 - alpha times the baseline's.

    With :math:`y = m + \phi_{a'} - (1 - \alpha) \phi_b` (m: what has been played minus 1 - alpha times what the
    baseline drew), the optimistic a' is played where :math:`\min_\theta \langle\theta, y\rangle =
    \langle\hat\theta, y\rangle - \beta \|y\|_{V^{-1}} \ge 0`, the baseline's own action b elsewhere, with

    .. math:: \beta = R \sqrt{\ln(\det V / \det \lambda I) + 2 \ln(1/\delta)} + \sqrt\lambda S, \quad \lambda = l2.

    Holds with probability 1 - delta, in all rounds at once, if: expected rewards are linear in x per action with
    the stacked weights' norm at most S = `norm_bound`; rewards are R-sub-Gaussian (`noise` = 1/2 holds in [0, 1]);
    a warm start's targets are honest (mean = expected reward); `beta_scale` = 1. Another `beta_scale` is tuned and
    has no guarantee. The baseline is counted by the actions it draws, and alpha is a share of its *cumulated* reward:
    weaker than never deploying a worse policy.

    Theirs [Kazerouni17, section on an unknown baseline reward, there CLUCB2; recalled, not checked against the
    text]: optimism, a constraint estimated from one ellipsoid, baseline rounds that learn too. Ours: the whole
    constraint as *one* minimum in closed form (theirs bounds played and baseline sums apart, which is looser, though
    it may use that rewards are not negative); the self-normalised beta for their d-log form; a baseline that
    draws; the O(n_actions d^2) bookkeeping per action. Garcelon et al. 2020 call another method CLUCB2.

    The round's action uniform draws b by inverse CDF, so a conservative round plays exactly what the baseline would.
    Propensities are p(a|x) = sum_b d(b|x) 1{b leads to a}: all b are decided, for O(n_actions) more. Optimistic ties
    go to the lowest action, so that a round has one optimistic action.
    """

    def __init__(
        self, n_actions: int, n_features: int, *, baseline: Policy, alpha: float, l2: float, delta: float,
        norm_bound: float, noise: float = 0.5, beta_scale: float = 1.0, start: RidgeStart | None = None,
    ) -> None:  # fmt: skip
        if start is None:
            start = ridge_start(np.empty((0, n_features)), [], n_actions, l2)
        super().__init__(n_actions, n_features, l2, start)
        if not 0 < delta < 1:
            raise ValueError(f"delta: {delta}; must be in (0, 1).")
        if baseline.n_actions != n_actions:
            raise ValueError(f"baseline: {baseline.n_actions} actions; must have {n_actions}.")
        self.baseline = baseline.frozen()
        self.alpha, self.delta = share_of_one("alpha", alpha), float(delta)
        self.norm_bound = at_least_zero("norm_bound", norm_bound)
        self.noise = at_least_zero("noise", noise)
        self.beta_scale = at_least_zero("beta_scale", beta_scale)
        self._log_det_start = n_features * float(np.log(l2))
        self._table: tuple[Features, Policy, FloatArray] | None = None
        self._budget = Budget(
            np.zeros((n_actions, n_features)),
            np.zeros((n_actions, n_features)),
            np.zeros(n_actions),
            np.zeros(n_actions),
            np.full(n_actions, start.log_det),
            np.array([0.0, np.inf]),
            np.zeros(2, dtype=np.int64),
        )

    @property
    def is_guaranteed(self) -> bool:
        """Whether beta is the honest one; the other assumptions are about the world."""
        return self.beta_scale >= 1

    @property
    def beta(self) -> float:
        """Radius of the ellipsoid now."""
        from seamark.kernels.ridge import clucb_beta

        return float(clucb_beta(self._budget, self.delta, self._bias, self.noise, self.beta_scale))

    @property
    def _bias(self) -> float:
        return float(np.sqrt(self.l2)) * self.norm_bound

    @property
    def n_rounds(self) -> int:
        """Rounds it has acted in."""
        return int(self._budget.tally[0])

    @property
    def n_conservative(self) -> int:
        """Rounds in which the constraint forbade the optimistic action."""
        return int(self._budget.tally[1])

    @property
    def slack(self) -> float:
        """Sum of played minus (1 - alpha) times baseline, in true expected rewards: known in a simulation only."""
        return float(self._budget.ledger[0])

    @property
    def smallest_slack(self) -> float:
        """The smallest `slack` of all rounds (infinite before the first); negative means a broken constraint."""
        return float(self._budget.ledger[1])

    def update(self, rounds: Rounds) -> None:
        """Learns from rounds of somebody else: they narrow the ellipsoid and leave the budget alone."""
        from seamark.kernels.ridge import clucb_learn

        clucb_learn(
            self._dense(rounds.features), rounds.rows, rounds.actions, rounds.rewards,
            self._arms, self._budget, self._log_det_start, self.refresh_every,
        )  # fmt: skip

    def run(self, answers: Answers, draws: Draws) -> Acted:
        from seamark.kernels.ridge import clucb_run

        dense, out = self._dense(answers.features), acted(draws.rows.size)
        clucb_run(
            dense, draws.rows, answers.labels, answers.right, answers.wrong,
            draws.actions, draws.rewards, self._baseline_table(answers.features), self._arms, self._budget,
            self.alpha, self.delta, self._bias, self.noise, self.beta_scale,
            self._log_det_start, self.refresh_every, *out,
        )  # fmt: skip
        return out

    def _baseline_table(self, features: Features) -> FloatArray:
        """The baseline's probabilities in all contexts, kept until other contexts come."""
        if self._table is None or self._table[0] is not features or self._table[1] is not self.baseline:
            table = np.ascontiguousarray(self.baseline.probabilities(features))
            self._table = (features, self.baseline, table)
        return self._table[2]

    def acting_policy(self) -> ConservativePolicy:
        """What would act in the next round, as a policy that stands still (a copy)."""
        return ConservativePolicy(
            self.baseline, self.weights.copy(), self.inverses, self._budget.balances.copy(), self.beta, self.alpha
        ).frozen()

    def state(self) -> dict[str, Any]:
        return super().state() | {name: array.copy() for name, array in self._budget._asdict().items()}

    def restore(self, state: dict[str, Any]) -> None:
        copy_into(self._arms._asdict() | self._budget._asdict(), state)
