"""Gradient learners: translated IPS (the paper's), policy gradient (Boltzmann), squared loss (epsilon-greedy).

Weights are kept as the kernels want them: (actions, features) for dense contexts, (features, actions) for sparse.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from seamark.learners.base import Acted, Answers, Draws, acted
from seamark.policies import ActingForm, LinearPolicy
from seamark.rounds import Csr, Features, FloatArray, Rounds, n_features

Decay = Literal["published", "ridge"]


class _LinearLearner:
    """Weights warm-started from a policy's (or zeros), laid out at the first sight of contexts."""

    def __init__(self, start: FloatArray, acts: ActingForm, lr: float, l2: float, decay: Decay) -> None:
        if not 0 < lr < math.inf:
            raise ValueError(f"lr: {lr}; must be positive.")
        if not (l2 >= 0 and lr * l2 < 1):
            raise ValueError(f"l2: {l2}; must be non-negative with lr * l2 below 1.")
        if decay not in ("published", "ridge"):
            raise ValueError(f"decay: {decay!r}; must be 'published' or 'ridge'.")
        self.acts, self.lr, self.l2, self.everywhere = acts, float(lr), float(l2), decay == "ridge"
        self._weights = np.array(start, dtype=np.float64)  # (actions, features), any memory order
        self._sparse: bool | None = None

    @property
    def weights(self) -> FloatArray:
        """Shape (n_actions, n_features), a live view."""
        return self._weights

    def _kernel_weights(self, features: Features) -> FloatArray:
        """The weights in the layout of the kernels, sharing memory with `weights`."""
        sparse = isinstance(features, Csr)
        if n_features(features) != self._weights.shape[1]:
            raise ValueError(
                f"contexts: {n_features(features)} features, but the learner has {self._weights.shape[1]}."
            )
        if self._sparse is not sparse:
            order: Literal["C", "F"] = "F" if sparse else "C"
            self._weights, self._sparse = np.array(self._weights, order=order), sparse
        return self._weights.T if sparse else self._weights

    def candidate(self) -> LinearPolicy:
        view = self._weights.view()
        return LinearPolicy(view, self.acts)

    def state(self) -> dict[str, Any]:
        return {"weights": np.ascontiguousarray(self._weights).copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self._weights, self._sparse = np.array(state["weights"], dtype=np.float64), None


class IPSGradient(_LinearLearner):
    """The paper's learner: stochastic gradient ascent on (r - shift) / p * pi_w(a|x), pi_w a softmax at `tau`.

    [Algorithm 1, line 11], with the translation of lambda-IPS: shift = 0.2 is the published choice, 0 the plain
    estimator. Propensities below `cap` are raised to it, in learning only (0.1 as published; 0: exact).
    The published step size belongs to the softmax without its floor.
    """

    def __init__(
        self,
        start: FloatArray,
        acts: ActingForm,
        *,
        tau: float,
        lr: float,
        l2: float = 0.0,
        shift: float = 0.2,
        cap: float = 0.1,
        decay: Decay = "published",
    ) -> None:
        super().__init__(start, acts, lr, l2, decay)
        if not tau > 0:
            raise ValueError(f"tau: {tau}; the learner's softmax needs a positive temperature.")
        if not 0 <= cap <= 1:
            raise ValueError(f"cap: {cap}; must be in [0, 1].")
        self.tau, self.shift, self.cap = float(tau), float(shift), float(cap)

    def update(self, rounds: Rounds) -> None:
        from seamark.kernels.linear import ips_learn

        ips_learn(
            rounds.features, rounds.rows, rounds.actions, rounds.rewards, rounds.propensities,
            self._kernel_weights(rounds.features),
            self.tau, self.lr, self.l2, self.shift, self.cap, self.everywhere,
        )  # fmt: skip


class PolicyGradient(_LinearLearner):
    """Ascent on (r - shift) log pi_w(a|x) while pi_w itself acts: Boltzmann exploration (paper, section 7.1).

    Fed with rounds that another policy drew, it weighs them with pi_w(a|x) / p.
    """

    def __init__(
        self, start: FloatArray, *, tau: float, floor: float = 0.0, lr: float, l2: float = 0.0,
        shift: float = 0.0, decay: Decay = "published",
    ) -> None:  # fmt: skip
        super().__init__(start, ActingForm.softmax(tau, floor=floor), lr, l2, decay)
        self.shift = float(shift)

    def update(self, rounds: Rounds) -> None:
        from seamark.kernels.linear import ips_learn

        ips_learn(
            rounds.features, rounds.rows, rounds.actions, rounds.rewards, rounds.propensities,
            self._kernel_weights(rounds.features),
            self.acts.tau, self.lr, self.l2, self.shift, 0.0, self.everywhere,
        )  # fmt: skip

    def run(self, answers: Answers, draws: Draws) -> Acted:
        from seamark.kernels.linear import boltzmann_run

        out = acted(draws.rows.size)
        boltzmann_run(
            answers.features, draws.rows, answers.labels, answers.right, answers.wrong,
            draws.actions, draws.rewards, self._kernel_weights(answers.features),
            self.acts.tau, self.acts.floor, self.lr, self.l2, self.shift, self.everywhere, *out,
        )  # fmt: skip
        return out


class SquaredLoss(_LinearLearner):
    """Regression of the reward on the context, per action, by stochastic gradient: epsilon-greedy as published."""

    def __init__(
        self, start: FloatArray, *, epsilon: float, lr: float, l2: float = 0.0, decay: Decay = "published"
    ) -> None:
        super().__init__(start, ActingForm.epsilon_greedy(epsilon), lr, l2, decay)

    def _check_decay(self, features: Features) -> None:
        if self.everywhere and isinstance(features, Csr) and self.l2 > 0:
            raise ValueError("decay: 'ridge' is not available for squared loss on sparse contexts; use 'published'.")

    def update(self, rounds: Rounds) -> None:
        from seamark.kernels.linear import squared_learn

        self._check_decay(rounds.features)
        squared_learn(
            rounds.features, rounds.rows, rounds.actions, rounds.rewards,
            self._kernel_weights(rounds.features), self.lr, self.l2, self.everywhere,
        )  # fmt: skip

    def run(self, answers: Answers, draws: Draws) -> Acted:
        from seamark.kernels.linear import epsilon_greedy_run

        self._check_decay(answers.features)
        out = acted(draws.rows.size)
        epsilon_greedy_run(
            answers.features, draws.rows, answers.labels, answers.right, answers.wrong,
            draws.actions, draws.rewards, self._kernel_weights(answers.features),
            self.acts.floor, self.lr, self.l2, self.everywhere, *out,
        )  # fmt: skip
        return out
