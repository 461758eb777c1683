"""A learner's recent weights, averaged: its candidates without the noise of single steps.

Polynomial decay [SZ13]: after t rounds the weights as of round s count in proportion to s^(power - 1), so about the
last 1 / power of the rounds decide, however many there were. The learner itself goes on from its own weights.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from seamark.learners.base import Learner
from seamark.policies import ActingForm, LinearPolicy
from seamark.rounds import FloatArray, Rounds


class LinearLearner(Learner, Protocol):
    """A learner of weights (n_actions, n_features)."""

    acts: ActingForm

    @property
    def weights(self) -> FloatArray: ...


class Averaged:
    """`learner` trains; the candidate is the average of its weights at every `every`-th round.

    The average does not depend on how the rounds are cut into legs.
    """

    def __init__(self, learner: LinearLearner, *, power: float = 4.0, every: int = 100) -> None:
        if not power >= 1:
            raise ValueError(f"power: {power}; must be at least 1, which counts all rounds alike.")
        if not every >= 1:
            raise ValueError(f"every: {every}; must be at least 1 round.")
        self.learner, self.power, self.every = learner, float(power), int(every)
        self._t = 0
        self._mean: FloatArray | None = None

    def update(self, rounds: Rounds) -> None:
        first = 0
        while first < len(rounds):
            last = min(len(rounds), first + self.every - self._t % self.every)
            self.learner.update(rounds[first:last])
            self._t += last - first
            if self._t % self.every == 0:
                self._take()
            first = last

    def _take(self) -> None:
        now = self.learner.weights
        if self._mean is None:
            self._mean = now.copy(order="K")
        else:  # sums of s^(power - 1) grow like t^power
            self._mean += (1 - (1 - self.every / self._t) ** self.power) * (now - self._mean)

    def candidate(self) -> LinearPolicy:
        """The average so far; the learner's weights before there is one."""
        weights = self.learner.weights if self._mean is None else self._mean
        return LinearPolicy(weights.view(), self.learner.acts)

    def state(self) -> dict[str, Any]:
        mean = None if self._mean is None else np.ascontiguousarray(self._mean).copy()
        return {"learner": self.learner.state(), "t": self._t, "mean": mean}

    def restore(self, state: dict[str, Any]) -> None:
        self.learner.restore(state["learner"])
        self._t, self._mean = int(state["t"]), None if state["mean"] is None else np.array(state["mean"])
