"""A supervised set as a bandit: contexts drawn with replacement, reward 1 more often for the right label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from seamark.learners.base import Answers
from seamark.policies import ActingForm, LinearPolicy, Policy
from seamark.randomness import Stream, stream
from seamark.rounds import Features, FloatArray, IntArray, as_features, n_contexts, n_features, take
from seamark.worlds.datasets import SupervisedData

NOISE = {"perfect": (1.0, 0.0), "near-random": (0.6, 0.4), "noisy": (0.9, 0.1)}
BLOCK = 8192


def reward_noise(text: str) -> tuple[float, float]:
    """P(reward = 1) for the right and for a wrong label, by name or as P:Q.

    >>> reward_noise("near-random"), reward_noise("0.7:0.2")
    ((0.6, 0.4), (0.7, 0.2))
    """
    if text in NOISE:
        return NOISE[text]
    try:
        right, wrong = (float(part) for part in text.split(":"))
    except ValueError:
        names = ", ".join(NOISE)
        raise ValueError(f"rewards: {text!r}; must be one of {names}, or P:Q such as 0.7:0.2.") from None
    if not (0 <= wrong <= 1 and 0 <= right <= 1):
        raise ValueError(f"rewards: {text!r}; both probabilities must be in [0, 1].")
    return right, wrong


@dataclass(frozen=True, eq=False)
class SupervisedWorld:
    """`features` and `labels` are the population of contexts; the test rows never enter a round."""

    name: str
    features: Features
    labels: IntArray
    test_features: Features
    test_labels: IntArray
    n_actions: int
    right: float
    wrong: float
    sha256: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: SupervisedData, rewards: str = "perfect") -> SupervisedWorld:
        right, wrong = reward_noise(rewards)
        return cls(
            data.name, as_features(data.train_features), data.train_labels, as_features(data.test_features),
            data.test_labels, data.n_actions, right, wrong, data.sha256, data.notes,
        )  # fmt: skip

    @property
    def n_contexts(self) -> int:
        return n_contexts(self.features)

    @property
    def n_features(self) -> int:
        return n_features(self.features)

    @cached_property
    def norm(self) -> float:
        """Mean squared length of a context; 1 where every context is zero."""
        data = self.features if isinstance(self.features, np.ndarray) else self.features.data
        return float((data * data).sum()) / self.n_contexts or 1.0

    @cached_property
    def answers(self) -> Answers:
        return Answers(self.features, self.labels, self.right, self.wrong)

    def contexts(self, uniforms: FloatArray) -> IntArray:
        """Rows of contexts, uniformly with replacement."""
        return np.minimum((uniforms * self.n_contexts).astype(np.int64), self.n_contexts - 1)

    def rewards(self, rows: IntArray, actions: IntArray, uniforms: FloatArray) -> FloatArray:
        from seamark.kernels.linear import rewards_of

        out = np.empty(rows.size)
        rewards_of(self.labels, self.right, self.wrong, rows, actions, uniforms, out)
        return out

    def expected_reward(self, right_probability: Any) -> Any:
        """Expected reward of acting right with the given probability."""
        return self.wrong + (self.right - self.wrong) * right_probability

    def value(self, policy: Policy) -> float:
        """Exact expected reward over the population of contexts: the judge of safety."""
        return float(self.expected_reward(accuracy(policy, self.features, self.labels)))

    def test_accuracy(self, policy: Policy) -> float:
        """Expected share of right labels on the held-out rows."""
        return accuracy(policy, self.test_features, self.test_labels)


def accuracy(policy: Policy, features: Features, labels: IntArray) -> float:
    """Mean probability of the right label, exact, block by block."""
    total = 0.0
    for start in range(0, labels.size, BLOCK):
        rows = np.arange(start, min(start + BLOCK, labels.size))
        whole = rows.size == labels.size
        p = policy.probabilities(features if whole else take(features, rows))
        total += float(p[np.arange(rows.size), labels[rows]].sum())
    return total / labels.size


@dataclass(frozen=True, eq=False)
class Baseline:
    """The trusted policy of a run, with the labelled rows that it was fitted on (warm starts may use them)."""

    policy: LinearPolicy
    rows: IntArray
    config: dict[str, Any]


def train_baseline(
    world: SupervisedWorld, *, seed: int, fraction: float, lr: float, epochs: int, acts: ActingForm, l2: float = 0.0
) -> Baseline:
    """Multiclass hinge SGD on a random share of the labels, drawn anew per seed; acts in the given form."""
    from seamark.kernels.linear import hinge_train

    rng = stream(seed, Stream.BASELINE)
    m = max(1, round(fraction * world.n_contexts))
    rows = rng.permutation(world.n_contexts)[:m].astype(np.int64)
    order = np.concatenate([rng.permutation(rows) for _ in range(epochs)])
    sparse = not isinstance(world.features, np.ndarray)
    shape = (world.n_features, world.n_actions) if sparse else (world.n_actions, world.n_features)
    weights = np.zeros(shape)
    hinge_train(world.features, order, world.labels, weights, lr, l2)
    config = {"fraction": m / world.n_contexts, "rows": m, "lr": lr, "l2": l2, "epochs": epochs, "acts": str(acts)}
    return Baseline(LinearPolicy(weights.T if sparse else weights, acts).frozen(), rows, config)
