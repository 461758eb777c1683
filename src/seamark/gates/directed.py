"""Exploration directed at what challengers would do, out of the exploration that the deployed policy does anyway."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seamark.policies import Policy
from seamark.policies.base import content_id
from seamark.rounds import Features, FloatArray


@dataclass(frozen=True, eq=False)
class DirectedPolicy:
    """Explores where challengers would act: d + eps s (mean over challengers of their greedy action - 1 / n_actions).

    Equals (1 - eps) base + eps [(1 - s) / n_actions + s mean] for d = (1 - eps) base + eps / n_actions, which every
    policy with a known floor is; eps = n_actions * floor, s = `share`.
    """

    deployed: Policy
    challengers: tuple[Policy, ...]
    share: float

    @property
    def n_actions(self) -> int:
        return self.deployed.n_actions

    @property
    def min_probability(self) -> float:
        return self.deployed.min_probability * (1 - self.share)

    @property
    def id(self) -> str:
        members = [p.id for p in (self.deployed, *self.challengers)]
        return content_id("directed", {"policies": members, "share": self.share})

    def probabilities(self, contexts: Features) -> FloatArray:
        shift = np.full((1, self.n_actions), -1.0 / self.n_actions)
        for challenger in self.challengers:
            h = challenger.probabilities(contexts)
            greedy = h == h.max(axis=1, keepdims=True)
            shift = shift + greedy / greedy.sum(axis=1, keepdims=True) / len(self.challengers)
        exploration = self.n_actions * self.deployed.min_probability
        p: FloatArray = self.deployed.probabilities(contexts) + exploration * self.share * shift
        return p

    def frozen(self) -> DirectedPolicy:
        return DirectedPolicy(self.deployed.frozen(), tuple(p.frozen() for p in self.challengers), self.share)
