"""Linear scores with an acting form: the policies that the paper learns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from seamark.policies.acting import ActingForm
from seamark.policies.base import content_id
from seamark.rounds import Csr, Features, FloatArray, n_features


def linear_scores(weights: FloatArray, contexts: Features) -> FloatArray:
    """Scores weights @ x of every context, shape (n, n_actions)."""
    if n_features(contexts) != weights.shape[1]:
        raise ValueError(
            f"contexts: {n_features(contexts)} features, but the policy has weights for {weights.shape[1]}."
        )
    if isinstance(contexts, Csr):
        from seamark.kernels.linear import sparse_scores

        return sparse_scores(contexts, np.ascontiguousarray(weights.T))  # type: ignore[no-any-return]
    return contexts @ weights.T


@dataclass(frozen=True, eq=False)
class LinearPolicy:
    """Acts on scores weights @ x through an acting form.

    weights: shape (n_actions, n_features). They may be a live view of a learner's; `frozen()` copies them.
    """

    weights: FloatArray
    acts: ActingForm = field(default_factory=ActingForm)

    def __post_init__(self) -> None:
        if self.weights.ndim != 2:
            raise ValueError(f"weights: shape {self.weights.shape}; must be (n_actions, n_features).")

    @property
    def n_actions(self) -> int:
        return int(self.weights.shape[0])

    @property
    def min_probability(self) -> float:
        return self.acts.min_probability(self.n_actions)

    def scores(self, contexts: Features) -> FloatArray:
        return linear_scores(self.weights, contexts)

    def probabilities(self, contexts: Features) -> FloatArray:
        return self.acts.probabilities(self.scores(contexts))

    def frozen(self) -> LinearPolicy:
        if not self.weights.flags.writeable and self.weights.base is None:
            return self
        weights = self.weights.copy(order="K")
        weights.setflags(write=False)
        return LinearPolicy(weights, self.acts)

    @property
    def id(self) -> str:
        return self._id if not self.weights.flags.writeable else self._content_id()

    def _content_id(self) -> str:
        return content_id("linear", {"weights": self.weights, "tau": self.acts.tau, "floor": self.acts.floor})

    @cached_property
    def _id(self) -> str:
        return self._content_id()
