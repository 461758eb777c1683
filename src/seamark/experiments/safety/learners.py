"""Learners of the safety benchmark: what people fit on logs, good practice or not. They fit when asked, on all rounds.

Contexts come from a pool, so a log is a table of sums per (context, action). Candidates act in the baseline's form.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from seamark.learners.base import Learner
from seamark.learners.gradient import IPSGradient
from seamark.policies import ActingForm, LinearPolicy, Policy
from seamark.policies.base import content_id
from seamark.policies.simple import for_estimators
from seamark.rounds import Features, FloatArray, Rounds
from seamark.worlds.supervised import SupervisedWorld

FIXED = "fixed"
"""Name of the learner that does not learn."""


@dataclass(frozen=True, eq=False)
class ScoredPolicy:
    """Acts on the scores of any function of contexts, which must not change. Its identity is how it acts on `pool`."""

    function: Callable[[Any], FloatArray]
    pool: Features
    acts: ActingForm
    table: FloatArray
    """Its probabilities on the pool."""

    @classmethod
    def of(cls, function: Callable[[Any], FloatArray], pool: Features, acts: ActingForm) -> ScoredPolicy:
        return cls(function, pool, acts, acts.probabilities(function(for_estimators(pool))))

    @property
    def n_actions(self) -> int:
        return int(self.table.shape[1])

    @property
    def min_probability(self) -> float:
        return self.acts.min_probability(self.n_actions)

    @property
    def id(self) -> str:
        return content_id("scored", {"table": self.table})

    def probabilities(self, contexts: Features) -> FloatArray:
        if contexts is self.pool:
            return self.table
        return self.acts.probabilities(self.function(for_estimators(contexts)))

    def frozen(self) -> ScoredPolicy:
        return self


class _TableLearner:
    """Keeps the log as sums per (context, action); `_fit` turns them into scores."""

    def __init__(self, world: SupervisedWorld, baseline: Policy, acts: ActingForm, seed: int) -> None:
        self.pool, self.baseline, self.acts, self.seed = world.features, baseline, acts, seed
        self.count, self.reward, self.ips = np.zeros((3, world.n_contexts, world.n_actions))
        self.fits = 0

    def update(self, rounds: Rounds) -> None:
        at = (rounds.rows, rounds.actions)
        np.add.at(self.count, at, 1.0)
        np.add.at(self.reward, at, rounds.rewards)
        np.add.at(self.ips, at, rounds.rewards / rounds.propensities)

    def candidate(self) -> Policy:
        self.fits += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an optimiser that stops early is part of the experiment
            scores = self._fit(for_estimators(self.pool))
        return self.baseline if scores is None else ScoredPolicy.of(scores, self.pool, self.acts)

    def _fit(self, x: Any) -> Callable[[Any], FloatArray] | None:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "reward": self.reward, "ips": self.ips, "fits": self.fits}

    def restore(self, state: dict[str, Any]) -> None:
        self.count, self.reward, self.ips = (np.array(state[k]) for k in ("count", "reward", "ips"))
        self.fits = int(state["fits"])


class IPSClassifier(_TableLearner):
    """Any classifier of contexts to actions, with the weight r/p on each rewarded round: untranslated IPS."""

    def __init__(self, make: Callable[[int], Any], *args: Any) -> None:
        super().__init__(*args)
        self.make = make

    def _fit(self, x: Any) -> Callable[[Any], FloatArray] | None:
        rows, actions = np.nonzero(self.ips)
        if np.unique(actions).size < 2:
            return None
        model = self.make(self.seed + self.fits)
        model.fit(x[rows], actions, sample_weight=self.ips[rows, actions] / self.ips[rows, actions].mean())
        n_actions, classes = self.count.shape[1], model.classes_

        def scores(contexts: Any) -> FloatArray:
            full = np.zeros((contexts.shape[0], n_actions))
            full[:, classes] = model.predict_proba(contexts)
            return full

        return scores


class RidgeDirect(_TableLearner):
    """Ridge regression of r - mean r with an intercept, per action: a direct method. `strength` of l2 is in mean
    squared lengths of a context."""

    def __init__(self, strength: float, norm: float, *args: Any) -> None:
        super().__init__(*args)
        self.l2, self.constant = strength * norm, math.sqrt(norm)

    def _fit(self, x: Any) -> Callable[[Any], FloatArray] | None:
        if not self.count.any():
            return None
        from sklearn.linear_model import Ridge

        mean = self.reward.sum() / self.count.sum()
        x = self._with_constant(x)
        weights = np.zeros((self.count.shape[1], x.shape[1]))
        for a in range(self.count.shape[1]):
            rows = np.flatnonzero(self.count[:, a])
            if rows.size:
                n = self.count[rows, a]
                solver = "cholesky" if isinstance(x, np.ndarray) else "sparse_cg"
                model = Ridge(alpha=self.l2, fit_intercept=False, solver=solver, tol=1e-3)
                weights[a] = model.fit(x[rows], self.reward[rows, a] / n - mean, sample_weight=n).coef_

        def scores(contexts: Any) -> FloatArray:
            return np.asarray(self._with_constant(contexts) @ weights.T)

        return scores

    def _with_constant(self, x: Any) -> Any:
        ones = np.full((x.shape[0], 1), self.constant)
        if isinstance(x, np.ndarray):
            return np.hstack([x, ones])
        from scipy.sparse import hstack

        return hstack([x, ones], format="csr")


class FixedCandidates:
    """No learning: every offer is another policy, from `make(number)`."""

    def __init__(self, make: Callable[[int], Policy]) -> None:
        self.make, self.offers = make, 0

    def update(self, rounds: Rounds) -> None: ...

    def candidate(self) -> Policy:
        self.offers += 1
        return self.make(self.offers)

    def state(self) -> dict[str, Any]:
        return {"offers": self.offers}

    def restore(self, state: dict[str, Any]) -> None:
        self.offers = int(state["offers"])


# -- by name ----------------------------------------------------------------------------------------------------


def _sgd(world: SupervisedWorld, baseline: Policy, acts: ActingForm, seed: int) -> Learner:
    """Translated IPS, the paper's learner: warm-started on digits; from nothing, with long steps, on sparse text."""
    assert isinstance(baseline, LinearPolicy)  # of every world with a learner
    if isinstance(world.features, np.ndarray):
        return IPSGradient(baseline.weights, acts, tau=1.0, lr=0.1 / world.norm, cap=0.0)
    return IPSGradient(np.zeros_like(baseline.weights), acts, tau=1.0, lr=1.0, cap=0.05)


def _logistic(world: SupervisedWorld, baseline: Policy, acts: ActingForm, seed: int) -> Learner:
    from sklearn.linear_model import LogisticRegression

    return IPSClassifier(lambda _: LogisticRegression(C=1.0, max_iter=60), world, baseline, acts, seed)


def _tree(world: SupervisedWorld, baseline: Policy, acts: ActingForm, seed: int) -> Learner:
    from sklearn.tree import DecisionTreeClassifier

    return IPSClassifier(lambda s: DecisionTreeClassifier(random_state=s), world, baseline, acts, seed)


def _forest(world: SupervisedWorld, baseline: Policy, acts: ActingForm, seed: int) -> Learner:
    from sklearn.ensemble import RandomForestClassifier

    def make(s: int) -> Any:
        return RandomForestClassifier(30, max_depth=10, min_samples_leaf=5, random_state=s, n_jobs=1)

    return IPSClassifier(make, world, baseline, acts, seed)


def _ridge(world: SupervisedWorld, baseline: Policy, acts: ActingForm, seed: int) -> Learner:
    return RidgeDirect(1.0, world.norm, world, baseline, acts, seed)


LEARNERS: dict[str, Callable[[SupervisedWorld, Policy, ActingForm, int], Learner]] = {
    "sgd": _sgd,
    "logistic": _logistic,
    "tree": _tree,
    "forest": _forest,
    "ridge": _ridge,
}
