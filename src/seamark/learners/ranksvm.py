r"""RankSVM with additive-DCG weighting, counterfactual and online; and the role of a learner of rankers.

For a click at document i, with s_j = <w, f_j> over *all* documents of the query:

.. math:: H_i = 1 + \sum_{j \ne i} \max(0, 1 - (s_i - s_j)), \qquad
          \text{loss} = \frac{1}{p_i} \cdot \frac{-1}{\log_2(1 + H_i)}

H_i is an upper bound of the rank of i. One step down the gradient is w <- w - lr (1/p_i) ln2 / ((1 + H) ln^2(1 + H)) G
with G = -sum_{j: s_i - s_j < 1} (f_i - f_j). The release compares the clicked document with itself as well, which adds
max(0, 1 - 0) = 1 to H and nothing to G: `published=True` (the default) is the gradient of -1 / log2(2 + H_i), that is
of the same loss one rank lower. The library that held hinge and additive DCG is not in the release: signs and
forms are inferred from their use.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from seamark.policies.rankers import LinearRanker, Ranker
from seamark.rankings import RankingDraws, RankingRounds, Users, room
from seamark.rounds import FloatArray

CAP = 0.01


class RankingLearner(Protocol):
    """Improves from rounds, in their order."""

    def update(self, rounds: RankingRounds) -> None: ...

    def candidate(self) -> Ranker:
        """What it would deploy now: a live view, `frozen()` keeps it."""
        ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


class OnlineRankingLearner(Protocol):
    """A learner whose own displays move every round, in one compiled loop over a leg."""

    def run(self, users: Users, draws: RankingDraws, first: int = 0) -> RankingRounds:
        """Acts and learns; returns what happened, numbered from `first`."""
        ...

    def candidate(self) -> Ranker: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


class LinearRankingLearner:
    """Weights (d,) warm-started from a ranker's, or zeros."""

    def __init__(self, start: FloatArray, lr: float) -> None:
        if not (np.isfinite(lr) and lr > 0):
            raise ValueError(f"lr: {lr}; must be positive.")
        self._weights = np.array(start, dtype=np.float64)
        if self._weights.ndim != 1:
            raise ValueError(f"start: shape {self._weights.shape}; must be (n_features,).")
        self.lr = float(lr)

    @property
    def weights(self) -> FloatArray:
        """A live view."""
        return self._weights

    def candidate(self) -> LinearRanker:
        return LinearRanker(self._weights.view())

    def state(self) -> dict[str, Any]:
        return {"weights": self._weights.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        weights = np.asarray(state["weights"], dtype=np.float64)
        if weights.shape != self._weights.shape:
            raise ValueError(f"state: weights of shape {weights.shape}; must be {self._weights.shape}.")
        self._weights[:] = weights

    def _check(self, n_features: int) -> None:
        if n_features != self._weights.size:
            raise ValueError(f"documents: {n_features} features, but the learner has {self._weights.size}.")


class RankSVM(LinearRankingLearner):
    """Counterfactual RankSVM (`update`, the paper's for ips, sea and bsea) and RankSVM online (`run`).

    update: learns from the clicks on what somebody displayed, each weighted 1 / max(cap, propensity); a round's clicks
    all use the scores from before the round; rounds without clicks cost nothing. run: displays its own ranking, and
    weighs its clicks equally (`weighted=False`, as published) or by 1 / max(cap, e).
    """

    def __init__(
        self, start: FloatArray, *, lr: float, cap: float = CAP, published: bool = True, weighted: bool = False
    ) -> None:
        super().__init__(start, lr)
        if not 0 <= cap <= 1:
            raise ValueError(f"cap: {cap}; must be in [0, 1].")
        self.cap, self.published, self.weighted = float(cap), published, weighted

    def update(self, rounds: RankingRounds) -> None:
        from seamark.kernels.ranking_learn import ranksvm_learn

        self._check(rounds.documents.features.shape[1])
        ranksvm_learn(
            rounds.documents.features, rounds.documents.offsets, rounds.queries, rounds.displayed, rounds.clicks,
            self._inverse(rounds.weights()), self._weights, self.lr, self.published,
        )  # fmt: skip

    def run(self, users: Users, draws: RankingDraws, first: int = 0) -> RankingRounds:
        from seamark.kernels.ranking_learn import ranksvm_run

        pool = users.documents
        self._check(pool.features.shape[1])
        rounds = room(users, draws.queries, first)
        weights = self._inverse(1.0 / users.examination) if self.weighted else np.ones(users.examination.size)
        ranksvm_run(
            pool.features, pool.offsets, pool.keys, draws.queries, users.examination, users.attraction, users.stop,
            draws.clicks, weights, self._weights, self.lr, self.published, rounds.displayed, rounds.clicks,
        )  # fmt: skip
        return rounds

    def _inverse(self, weights: FloatArray) -> FloatArray:
        return np.minimum(weights, 1.0 / self.cap) if self.cap else weights
