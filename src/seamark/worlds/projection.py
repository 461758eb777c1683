"""Contexts for methods that keep a d x d matrix: dense, hashed to fewer features where asked to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seamark.policies import Policy
from seamark.rounds import Csr, Features, FloatArray, n_contexts, n_features
from seamark.worlds.supervised import SupervisedWorld


def dense(world: SupervisedWorld, n_hashed: int = 0) -> SupervisedWorld:
    """The same world with dense contexts; `n_hashed` > 0 projects them by signed feature hashing."""
    return replace(
        world,
        features=_dense(world.features, n_hashed),
        test_features=_dense(world.test_features, n_hashed),
    )


@dataclass(frozen=True, eq=False)
class SeenThrough:
    """A policy of the original contexts, for whoever is given projected ones: pools are told apart as objects."""

    policy: Policy
    pools: tuple[tuple[Features, Features], ...]
    """(projected, original) pairs."""

    @classmethod
    def of(cls, policy: Policy, world: SupervisedWorld, projected: SupervisedWorld) -> SeenThrough:
        pairs = ((projected.features, world.features), (projected.test_features, world.test_features))
        return cls(policy, pairs)

    @property
    def n_actions(self) -> int:
        return self.policy.n_actions

    @property
    def min_probability(self) -> float:
        return self.policy.min_probability

    @property
    def id(self) -> str:
        return self.policy.id

    def probabilities(self, contexts: Features) -> FloatArray:
        for projected, original in self.pools:
            if contexts is projected:
                return self.policy.probabilities(original)
        raise ValueError("contexts: not of a pool that was projected; the policy needs the original ones.")

    def frozen(self) -> SeenThrough:
        return SeenThrough(self.policy.frozen(), self.pools)


def _dense(features: Features, n_hashed: int) -> FloatArray:
    if not n_hashed:
        if not isinstance(features, Csr):
            return features
        out = np.zeros((n_contexts(features), features.n_features))
        out[np.repeat(np.arange(out.shape[0]), np.diff(features.indptr)), features.indices] = features.data
        return out
    places, signs = hash_features(n_features(features), n_hashed)
    out = np.zeros((n_contexts(features), n_hashed))
    if isinstance(features, Csr):
        rows = np.repeat(np.arange(out.shape[0]), np.diff(features.indptr))
        np.add.at(out, (rows, places[features.indices]), features.data * signs[features.indices])
    else:
        np.add.at(out.T, places, (features * signs).T)
    return out


def hash_features(n: int, n_hashed: int) -> tuple[np.ndarray, FloatArray]:
    """A fixed place and sign for every feature index: SplitMix64 of the index."""
    with np.errstate(over="ignore"):
        z = np.arange(n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z % np.uint64(n_hashed)).astype(np.int64), np.where(z >> np.uint64(63), 1.0, -1.0)
