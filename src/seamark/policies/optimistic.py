"""What acts while a ridge learner explores: optimistic scores, and optimism inside a budget."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seamark.policies.acting import ActingForm
from seamark.policies.base import Policy, content_id
from seamark.policies.linear import linear_scores
from seamark.rounds import Csr, Features, FloatArray, n_contexts

_CHUNK = 4096  # contexts per matrix product, so that memory does not grow with their number


def refuse_sparse(features: Features, n_features: int) -> FloatArray:
    """The contexts, known to be dense."""
    if isinstance(features, Csr):
        raise ValueError(
            f"contexts: sparse with {features.n_features} features; ridge learners keep a dense "
            f"{n_features} x {n_features} matrix per action. Project them to at most about 1,000 dense features: hash=."
        )
    return features


def squared_widths(inverses: FloatArray, contexts: FloatArray) -> FloatArray:
    """x' A_a x of every context and action, shape (n, n_actions), never negative."""
    out = np.empty((contexts.shape[0], inverses.shape[0]))
    for first in range(0, contexts.shape[0], _CHUNK):
        x = contexts[first : first + _CHUNK]
        for a, inverse in enumerate(inverses):
            out[first : first + _CHUNK, a] = np.einsum("nd,nd->n", x @ inverse, x)
    return np.maximum(out, 0.0)


def _checked(weights: FloatArray, inverses: FloatArray) -> None:
    if weights.ndim != 2 or inverses.shape != (*weights.shape, weights.shape[1]):
        raise ValueError(
            f"inverses: shape {inverses.shape}, weights: shape {weights.shape}; "
            "must be (n_actions, d, d) and (n_actions, d)."
        )


def _kept(array: FloatArray) -> FloatArray:
    """The array, or a copy of it that nobody can change."""
    if not array.flags.writeable and array.base is None:
        return array
    copy = np.array(array, order="C")
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True, eq=False)
class OptimisticPolicy:
    """LinUCB, standing still: greedy on theta_a x + alpha sqrt(x' A_a x), ties shared, plus a uniform floor.

    weights (n_actions, d), inverses (n_actions, d, d). With `clip`, scores are at most 1, as published: actions that
    may reach the highest possible reward tie and share the probability.
    """

    weights: FloatArray
    inverses: FloatArray
    alpha: float
    clip: bool = True
    floor: float = 0.0

    def __post_init__(self) -> None:
        _checked(self.weights, self.inverses)

    @property
    def n_actions(self) -> int:
        return int(self.weights.shape[0])

    @property
    def min_probability(self) -> float:
        return self.floor / self.n_actions

    @cached_property
    def _id(self) -> str:
        return self._content_id()

    @property
    def id(self) -> str:
        still = not (self.weights.flags.writeable or self.inverses.flags.writeable)
        return self._id if still else self._content_id()

    def _content_id(self) -> str:
        names = ("weights", "inverses", "alpha", "clip", "floor")
        return content_id("optimistic", {name: getattr(self, name) for name in names})

    def scores(self, contexts: Features) -> FloatArray:
        dense = refuse_sparse(contexts, self.weights.shape[1])
        scores = linear_scores(self.weights, dense)
        scores += self.alpha * np.sqrt(squared_widths(self.inverses, dense))
        return np.minimum(scores, 1.0) if self.clip else scores

    def probabilities(self, contexts: Features) -> FloatArray:
        return ActingForm.epsilon_greedy(self.floor).probabilities(self.scores(contexts))

    def frozen(self) -> OptimisticPolicy:
        return OptimisticPolicy(_kept(self.weights), _kept(self.inverses), self.alpha, self.clip, self.floor)


@dataclass(frozen=True, eq=False)
class ConservativePolicy:
    """CLUCB's next round, in any context: the optimistic action where the budget allows it, else the baseline's.

    p(a|x) sums the baseline's d(b|x) over the actions b of the baseline that lead to a. `balances` (n_actions, d) is
    m, what has been played minus (1 - alpha) times what the baseline would have; `radius` is beta.
    """

    baseline: Policy
    weights: FloatArray
    inverses: FloatArray
    balances: FloatArray
    radius: float
    alpha: float

    def __post_init__(self) -> None:
        _checked(self.weights, self.inverses)
        if self.baseline.n_actions != self.n_actions:
            raise ValueError(f"baseline: {self.baseline.n_actions} actions; must have {self.n_actions}.")

    @property
    def n_actions(self) -> int:
        return int(self.weights.shape[0])

    @property
    def min_probability(self) -> float:
        return 0.0

    @property
    def id(self) -> str:
        names = ("weights", "inverses", "balances", "radius", "alpha")
        return content_id(
            "conservative", {"baseline": self.baseline.id} | {name: getattr(self, name) for name in names}
        )

    def probabilities(self, contexts: Features) -> FloatArray:
        dense = refuse_sparse(contexts, self.weights.shape[1])
        keep, rows = 1 - self.alpha, np.arange(n_contexts(dense))
        images = np.einsum("aij,aj->ai", self.inverses, self.balances)
        means, along = linear_scores(self.weights, dense), linear_scores(images, dense)
        squares = squared_widths(self.inverses, dense)
        best = np.argmax(means + self.radius * np.sqrt(squares), axis=1)

        norm = (self.balances * images).sum() + 2 * along[rows, best] + squares[rows, best]
        square = norm[:, None] - 2 * keep * along + keep**2 * squares
        value = (self.weights * self.balances).sum() + means[rows, best][:, None] - keep * means
        allowed = value - self.radius * np.sqrt(np.maximum(square, 0.0)) >= 0

        # where b is the optimistic action both outcomes are b
        of_baseline = self.baseline.probabilities(dense)
        p: FloatArray = np.where(allowed, 0.0, of_baseline)
        p[rows, best] += np.where(allowed, of_baseline, 0.0).sum(axis=1)
        return p

    def frozen(self) -> ConservativePolicy:
        return ConservativePolicy(
            self.baseline.frozen(), _kept(self.weights), _kept(self.inverses), _kept(self.balances),
            self.radius, self.alpha,
        )  # fmt: skip
