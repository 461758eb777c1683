"""A world whose best actions change in the middle of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from seamark.policies import Policy
from seamark.worlds.supervised import SupervisedWorld


@dataclass(frozen=True, eq=False)
class DriftingWorld:
    """`before` until round `at`, `after` from then on; the contexts and their law stay the same."""

    before: SupervisedWorld
    after: SupervisedWorld
    at: int

    def __post_init__(self) -> None:
        if self.at < 1:
            raise ValueError(f"at: {self.at}; the change must come after at least one round.")

    @classmethod
    def permuting(cls, world: SupervisedWorld, permutation: ArrayLike, at: int) -> DriftingWorld:
        """From round `at` on, the right action where it was a is permutation[a].

        >>> import numpy as np
        >>> from seamark.worlds.supervised import SupervisedWorld
        >>> labels = np.array([0, 1, 1])
        >>> x = np.zeros((3, 1))
        >>> world = DriftingWorld.permuting(SupervisedWorld("two", x, labels, x, labels, 2, 1.0, 0.0), [1, 0], at=10)
        >>> world.world(9).labels.tolist(), world.world(10).labels.tolist()
        ([0, 1, 1], [1, 0, 0])
        """
        p = np.asarray(permutation, dtype=np.int64)
        if sorted(p.tolist()) != list(range(world.n_actions)):
            raise ValueError(f"permutation: {p.tolist()}; must name each of {world.n_actions} actions once.")
        after = replace(world, name=f"{world.name}-drifted", labels=p[world.labels], test_labels=p[world.test_labels])
        return cls(world, after, at)

    def world(self, t: int) -> SupervisedWorld:
        """What answers round t (counted from 0)."""
        return self.before if t < self.at else self.after

    def value(self, policy: Policy, t: int) -> float:
        """Exact expected reward of the policy at round t."""
        return self.world(t).value(policy)

    def mean_value(self, policy: Policy, start: int, stop: int) -> float:
        """Mean over rounds start to stop - 1 of the exact expected reward: what evidence from them is about."""
        if not start < stop:
            raise ValueError(f"start, stop: {start}, {stop}; at least one round is needed.")
        early = min(max(self.at - start, 0), stop - start) / (stop - start)
        total = 0.0
        if early > 0:
            total += early * self.before.value(policy)
        if early < 1:
            total += (1 - early) * self.after.value(policy)
        return total
