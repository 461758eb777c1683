"""Reward models q(x, a) for the control variate of paired scores. A bad one costs power, never validity.

The one rule: a model that scores a round must not have seen it. A model here is asked for predictions first and
learns from the rounds afterwards; a `callable` is the caller's promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from seamark.policies.simple import for_estimators
from seamark.rounds import Csr, Features, FloatArray, Rounds, n_contexts, n_features

RewardModel: TypeAlias = "RunningMean | RidgeModel | FixedModel"
RewardModelChoice: TypeAlias = Literal["mean", "ridge"] | Callable[[Any], ArrayLike] | None

LARGEST_RIDGE = 1_024


def reward_model(choice: RewardModelChoice, n_actions: int) -> RewardModel | None:
    """ "mean" (running mean of the rewards), "ridge" (per action, on contexts), a fixed callable, or None (zero)."""
    if choice is None:
        return None
    if choice == "mean":
        return RunningMean()
    if choice == "ridge":
        return RidgeModel(n_actions)
    if callable(choice):
        return FixedModel(choice, n_actions)
    raise ValueError(f"reward_model: {choice!r}; must be 'mean', 'ridge', a callable from contexts, or None.")


class RunningMean:
    """The mean of all rewards of rounds before the one that is scored, begun at one half. Kept by the kernel."""

    fits = 0

    def __init__(self) -> None:
        self.sums = np.zeros(2)
        """Rounds, sum of their rewards."""

    def learn(self, rounds: Rounds) -> None:
        """Nothing: the kernel that scored the rounds has moved `sums` on, round by round."""

    def state(self) -> dict[str, Any]:
        return {"sums": self.sums.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        self.sums = np.array(state["sums"], dtype=np.float64)


class FixedModel:
    """A function from contexts to rewards (n, n_actions), fixed beforehand; clipped to [0, 1]."""

    fits = 0

    def __init__(self, function: Callable[[Any], ArrayLike], n_actions: int) -> None:
        self.function, self.n_actions = function, n_actions

    def predict(self, contexts: Features) -> FloatArray:
        q = np.asarray(self.function(for_estimators(contexts)), dtype=np.float64)
        shape = (n_contexts(contexts), self.n_actions)
        if q.shape != shape or not np.isfinite(q).all():
            raise ValueError(f"reward_model: returned shape {q.shape}; must be finite numbers of shape {shape}.")
        return np.ascontiguousarray(np.clip(q, 0.0, 1.0))

    def learn(self, rounds: Rounds) -> None:
        """Nothing: the function is fixed."""

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


class RidgeModel:
    """Ridge regression of the reward on the context with an intercept, per action; zero before the first fit.

    Sums are kept from every leg after it was scored; weights change only at geometric numbers of rounds.
    """

    def __init__(self, n_actions: int, *, l2: float = 1.0, first_fit: int = 100, growth: float = 1.3) -> None:
        self.n_actions, self.l2, self.growth = n_actions, l2, growth
        self.fits = 0
        """How often the predictions have changed."""
        self._n, self._next_fit = 0, first_fit
        self._weights: FloatArray | None = None  # (n_actions, d + 1)
        self._gram = np.zeros((0, 0, 0))
        self._responses = np.zeros((0, 0))

    def predict(self, contexts: Features) -> FloatArray:
        if self._weights is None:
            return np.zeros((n_contexts(contexts), self.n_actions))
        x = _dense(contexts)
        return np.ascontiguousarray(np.clip(x @ self._weights[:, :-1].T + self._weights[:, -1], 0.0, 1.0))

    def learn(self, rounds: Rounds) -> None:
        x = _dense(rounds.contexts())
        x = np.column_stack([x, np.ones(len(rounds))])
        if not self._gram.size:
            d = x.shape[1]
            self._gram, self._responses = np.zeros((self.n_actions, d, d)), np.zeros((self.n_actions, d))
        for a in np.unique(rounds.actions):
            chosen = rounds.actions == a
            self._gram[a] += x[chosen].T @ x[chosen]
            self._responses[a] += rounds.rewards[chosen] @ x[chosen]
        self._n += len(rounds)
        if self._n >= self._next_fit:
            ridge = self.l2 * np.eye(x.shape[1])
            solved = np.linalg.solve(self._gram + ridge, self._responses[:, :, None])
            self._weights = solved[:, :, 0].astype(np.float64)
            self._next_fit = max(self._next_fit, math.ceil(self.growth * self._n))
            self.fits += 1

    def state(self) -> dict[str, Any]:
        return {
            "n": self._n, "next_fit": self._next_fit, "fits": self.fits, "weights": self._weights,
            "gram": self._gram, "responses": self._responses,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._n, self._next_fit, self.fits = int(state["n"]), int(state["next_fit"]), int(state["fits"])
        self._weights = None if state["weights"] is None else np.array(state["weights"])
        self._gram, self._responses = np.array(state["gram"]), np.array(state["responses"])


def _dense(contexts: Features) -> FloatArray:
    if isinstance(contexts, Csr) or n_features(contexts) > LARGEST_RIDGE:
        raise ValueError(
            f"reward_model: 'ridge' needs dense contexts of at most {LARGEST_RIDGE} features; use 'mean' or a callable."
        )
    return contexts
