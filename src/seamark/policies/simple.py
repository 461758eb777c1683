"""Policies without weights of ours: uniform, constant, mixtures, callables, fitted estimators."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from seamark.policies.base import Policy, content_id
from seamark.policies.content import digest
from seamark.rounds import Csr, Features, FloatArray, n_contexts


@dataclass(frozen=True)
class UniformPolicy:
    """Every action with the same probability."""

    n_actions: int

    @property
    def min_probability(self) -> float:
        return 1 / self.n_actions

    @property
    def id(self) -> str:
        return content_id("uniform", {"n_actions": self.n_actions})

    def probabilities(self, contexts: Features) -> FloatArray:
        return np.full((n_contexts(contexts), self.n_actions), 1 / self.n_actions)

    def frozen(self) -> UniformPolicy:
        return self


@dataclass(frozen=True, eq=False)
class ConstantPolicy:
    """The same probabilities in every context.

    >>> ConstantPolicy([0.2, 0.8]).min_probability
    0.2
    """

    distribution: Any

    def __post_init__(self) -> None:
        p = np.array(self.distribution, dtype=np.float64)
        if p.ndim != 1 or (p < 0).any() or not np.isclose(p.sum(), 1):
            raise ValueError(f"distribution: {self.distribution}; must be probabilities that sum to one.")
        p.setflags(write=False)
        object.__setattr__(self, "distribution", p)

    @property
    def n_actions(self) -> int:
        return int(self.distribution.size)

    @property
    def min_probability(self) -> float:
        return float(self.distribution.min())

    @property
    def id(self) -> str:
        return content_id("constant", {"distribution": self.distribution})

    def probabilities(self, contexts: Features) -> FloatArray:
        return np.tile(self.distribution, (n_contexts(contexts), 1))

    def frozen(self) -> ConstantPolicy:
        return self


@dataclass(frozen=True, eq=False)
class MixturePolicy:
    """Acts as policy i with probability weights[i]; `with_floor` mixes uniform exploration into any policy."""

    policies: tuple[Policy, ...]
    weights: tuple[float, ...]

    def __init__(self, policies: Sequence[Policy], weights: ArrayLike) -> None:
        shares = np.asarray(weights, dtype=np.float64)
        if len(policies) != shares.size or (shares < 0).any() or not np.isclose(shares.sum(), 1):
            raise ValueError(f"weights: {shares}; one share per policy, non-negative, summing to one.")
        if len({p.n_actions for p in policies}) != 1:
            raise ValueError("policies: all members of a mixture must have the same actions.")
        object.__setattr__(self, "policies", tuple(policies))
        object.__setattr__(self, "weights", tuple(float(w) for w in shares))

    @property
    def n_actions(self) -> int:
        return self.policies[0].n_actions

    @property
    def min_probability(self) -> float:
        return sum(w * p.min_probability for w, p in zip(self.weights, self.policies))

    @property
    def id(self) -> str:
        return content_id("mixture", {"policies": [p.id for p in self.policies], "weights": self.weights})

    def probabilities(self, contexts: Features) -> FloatArray:
        total = self.weights[0] * self.policies[0].probabilities(contexts)
        for w, p in zip(self.weights[1:], self.policies[1:]):
            total = total + w * p.probabilities(contexts)
        return total

    def frozen(self) -> MixturePolicy:
        members = [p.frozen() for p in self.policies]
        return self if all(map(operator.is_, members, self.policies)) else MixturePolicy(members, self.weights)


def with_floor(policy: Policy, floor: float) -> Policy:
    """The policy with a share `floor` of uniform exploration mixed in."""
    if floor == 0:
        return policy
    return MixturePolicy([policy, UniformPolicy(policy.n_actions)], [1 - floor, floor])


@dataclass(frozen=True, eq=False)
class CallablePolicy:
    """Any function from contexts (n, d) to probabilities (n, n_actions).

    The function must be deterministic and must not change while the policy is in use. `name` is its identity.
    """

    function: Callable[[Any], ArrayLike]
    n_actions: int
    name: str
    min_probability: float = 0.0

    @property
    def id(self) -> str:
        return content_id("callable", {"name": self.name, "n_actions": self.n_actions})

    def probabilities(self, contexts: Features) -> FloatArray:
        return checked_probabilities(self.function(for_estimators(contexts)), n_contexts(contexts), self.n_actions)

    def frozen(self) -> CallablePolicy:
        return self


@dataclass(frozen=True, eq=False)
class EstimatorPolicy:
    """Any fitted model with `predict_proba` and `classes_` (scikit-learn's interface) whose classes are actions.

    Its identity is its content, hashed: another fit is another policy. A model that cannot be hashed (it cannot be
    taken apart) is known by `name` alone, which must then be new for every fit.
    """

    estimator: Any
    n_actions: int
    name: str = ""
    min_probability: float = 0.0
    is_copy: bool = field(default=False, repr=False)
    """Whether the estimator is a copy of ours, which nobody else can fit again."""

    @property
    def id(self) -> str:
        return content_id(
            "estimator", {"name": self.name, "content": _content(self.estimator, self.name), "n": self.n_actions}
        )

    def probabilities(self, contexts: Features) -> FloatArray:
        n = n_contexts(contexts)
        full = np.zeros((n, self.n_actions))
        full[:, np.asarray(self.estimator.classes_, dtype=np.int64)] = self.estimator.predict_proba(
            for_estimators(contexts)
        )
        return checked_probabilities(full, n, self.n_actions)

    def frozen(self) -> EstimatorPolicy:
        return self if self.is_copy else replace(self, estimator=copy.deepcopy(self.estimator), is_copy=True)


def _content(estimator: Any, name: str) -> str:
    try:
        return digest(estimator)
    except Exception as error:  # whatever taking a stranger's object apart may raise
        if not name:
            raise ValueError(
                f"estimator: a {type(estimator).__name__} cannot be hashed ({error}); give every fit a name of its own."
            ) from None
        return ""


def for_estimators(contexts: Features) -> Any:
    """The contexts as other libraries take them: an array, or a scipy CSR matrix."""
    if not isinstance(contexts, Csr):
        return contexts
    from scipy.sparse import csr_matrix

    return csr_matrix(
        (contexts.data, contexts.indices, contexts.indptr), shape=(n_contexts(contexts), contexts.n_features)
    )


def checked_probabilities(values: ArrayLike, n: int, n_actions: int) -> FloatArray:
    p = np.ascontiguousarray(values, dtype=np.float64)
    if p.shape != (n, n_actions):
        raise ValueError(f"probabilities: shape {p.shape}; must be ({n}, {n_actions}).")
    bad = ~(np.isfinite(p).all(axis=1) & (p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) < 1e-6))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"probabilities: row {row} is {p[row]}; must be non-negative and sum to one.")
    return p


def as_policy(baseline: Any) -> Policy:
    """A policy (or a ranker) as it is, a classifier whose classes are the actions as one; raises with the remedy."""
    from seamark.policies.rankers import Ranker

    if isinstance(baseline, (Policy, Ranker)):
        return cast(Policy, baseline)
    if hasattr(baseline, "predict_proba") and hasattr(baseline, "classes_"):
        classes = np.asarray(baseline.classes_)
        if np.array_equal(classes, np.arange(classes.size)):
            return EstimatorPolicy(baseline, classes.size)
        raise ValueError(
            f"baseline: its classes are {classes.tolist()}, not the actions 0 to {classes.size - 1}. "
            "Fit it on action numbers, or wrap it: policies.EstimatorPolicy(model, n_actions)."
        )
    remedy = "policies.CallablePolicy(function, n_actions, name)" if callable(baseline) else "one of seamark.policies"
    raise TypeError(f"baseline: a {type(baseline).__name__} is no policy; give {remedy}.")
