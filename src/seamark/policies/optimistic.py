"""What acts while a ridge learner explores: optimistic scores, posterior draws, and optimism inside a budget."""

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
class PosteriorPolicy:
    """Thompson sampling, standing still: the highest of scores N(theta_a x, alpha^2 x' A_a x), plus a floor.

    weights (n_actions, d), inverses (n_actions, d, d). Probabilities are integrals, see `highest_of_normals`.
    """

    weights: FloatArray
    inverses: FloatArray
    alpha: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        _checked(self.weights, self.inverses)

    @property
    def n_actions(self) -> int:
        return int(self.weights.shape[0])

    @property
    def min_probability(self) -> float:
        return self.floor / self.n_actions

    @property
    def id(self) -> str:
        names = ("weights", "inverses", "alpha", "floor")
        return content_id("posterior", {name: getattr(self, name) for name in names})

    def probabilities(self, contexts: Features) -> FloatArray:
        dense = refuse_sparse(contexts, self.weights.shape[1])
        means = linear_scores(self.weights, dense)
        deviations = self.alpha * np.sqrt(squared_widths(self.inverses, dense))
        p: FloatArray = (1 - self.floor) * highest_of_normals(means, deviations) + self.floor / self.n_actions
        return p

    def frozen(self) -> PosteriorPolicy:
        return PosteriorPolicy(_kept(self.weights), _kept(self.inverses), self.alpha, self.floor)


def highest_of_normals(means: FloatArray, deviations: FloatArray) -> FloatArray:
    r"""Probability that each of independent normals is the highest of its row, (n, n_actions); rows sum to one.

    .. math:: p(a) = \int \varphi(z) \prod_{b \ne a} \Phi((\mu_a + \sigma_a z - \mu_b) / \sigma_b) \, dz

    by Gauss-Legendre between points at fixed distances, in deviations, from every mean: fine where any of the normals
    is narrow. Right to 1e-6, for deviations of whatever sizes; without any the highest means share.

    >>> highest_of_normals(np.array([[0.0, 0.0, -9.0]]), np.ones((1, 3))).round(3).tolist()
    [[0.5, 0.5, 0.0]]
    """
    out = np.empty_like(means)
    reach = _DISTANCES[-1] * deviations
    n_able = (means + reach > (means - reach).max(axis=1, keepdims=True)).sum(axis=1)
    order = np.argsort(n_able)  # rows with as many actions that can be the highest need as many points
    for first in range(0, order.size, _NORMALS_CHUNK):
        rows = order[first : first + _NORMALS_CHUNK]
        out[rows] = _highest_of_normals(means[rows], deviations[rows])
    return out


_NORMALS_CHUNK = 128
_DISTANCES = np.array([-6.0, -4.0, -2.5, -1.25, 0.0, 1.25, 2.5, 4.0, 6.0])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)


def _highest_of_normals(means: FloatArray, deviations: FloatArray) -> FloatArray:
    from scipy.special import ndtr

    n = means.shape[0]
    size = np.abs(means).max(axis=1, keepdims=True) + deviations.max(axis=1, keepdims=True)
    deviations = np.maximum(deviations, 1e-9 * size + np.finfo(float).tiny)  # a limit of normals, where there is none
    # below `low` the highest never is (1e-9); so each normal is below every t with at least that probability
    low = (means + _DISTANCES[0] * deviations).max(axis=1)[:, None]
    points = (means[:, :, None] + _DISTANCES * deviations[:, :, None]).reshape(n, -1)
    points = np.sort(np.maximum(points, low), axis=1)
    points = points[:, np.argmax((points > low).any(axis=0)) - 1 :]
    halves = np.diff(points, axis=1)[:, :, None] / 2
    t = (points[:, :-1, None] + halves * (1 + _NODES)).reshape(n, 1, -1)
    z = (t - means[:, :, None]) / deviations[:, :, None]
    below = ndtr(z)
    all_below = below.prod(axis=1, keepdims=True) * (halves * _WEIGHTS).reshape(n, 1, -1)
    densities = np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * deviations[:, :, None])
    p: FloatArray = (all_below * densities / below).sum(axis=2)
    p /= p.sum(axis=1, keepdims=True)
    return p


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
