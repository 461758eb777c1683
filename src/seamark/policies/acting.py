"""Acting forms: how a policy's scores become probabilities. Weights and form are two things."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seamark.rounds import FloatArray


@dataclass(frozen=True, slots=True)
class ActingForm:
    """Softmax of scores / tau (tau = 0: greedy, ties shared), mixed with a floor of uniform exploration.

    p(a|x) = (1 - floor) * base(a|x) + floor / n_actions. So epsilon-greedy is greedy with floor = epsilon.

    >>> ActingForm.epsilon_greedy(0.3).probabilities(np.array([[0.0, 2.0, 2.0]])).round(2).tolist()
    [[0.1, 0.45, 0.45]]
    """

    tau: float = 0.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.tau) and self.tau >= 0):
            raise ValueError(f"tau: {self.tau}; must be 0 (greedy) or positive.")
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor: {self.floor}; must be in [0, 1].")

    @classmethod
    def greedy(cls) -> ActingForm:
        return cls()

    @classmethod
    def epsilon_greedy(cls, epsilon: float) -> ActingForm:
        return cls(tau=0.0, floor=epsilon)

    @classmethod
    def softmax(cls, tau: float, *, floor: float = 0.0) -> ActingForm:
        if tau <= 0:
            raise ValueError(f"tau: {tau}; a softmax needs a positive temperature.")
        return cls(tau=tau, floor=floor)

    def probabilities(self, scores: FloatArray) -> FloatArray:
        """Action probabilities, shape of `scores` (n, n_actions); every row sums to one."""
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp((scores - top) / self.tau) if self.tau > 0 else (scores == top).astype(np.float64)
        base: FloatArray = weights / weights.sum(axis=1, keepdims=True)
        if self.floor == 0.0:
            return base
        mixed: FloatArray = (1 - self.floor) * base + self.floor / scores.shape[1]
        return mixed

    def min_probability(self, n_actions: int) -> float:
        """What every action's probability is known to reach beforehand; 0 where nothing is known."""
        return self.floor / n_actions

    def __str__(self) -> str:
        if self.tau == 0:
            return f"epsilon-greedy({self.floor:g})" if self.floor else "greedy"
        return f"softmax({self.tau:g})" + (f" with floor {self.floor:g}" if self.floor else "")
