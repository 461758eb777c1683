"""Dueling bandit gradient descent with team-draft interleaving [Yue and Joachims 2009; Radlinski et al. 2008].

Every round a direction u is drawn uniformly from the unit sphere; the rankings of w and of w + reach u are interleaved
by team draft; if more clicks fall on documents that the second contributed, w moves lr along u. Documents of the
prefix that both rankings share belong to nobody (as in the public multileaving code; without it a click on a shared
first document is a coin flip that counts). Ties change nothing. Published: lr 0.01, reach 1.
"""

from __future__ import annotations

import numpy as np

from seamark.learners.ranksvm import LinearRankingLearner
from seamark.rankings import RankingDraws, RankingRounds, Users, room
from seamark.rounds import FloatArray

_LEG = 8_192  # rounds whose directions are held at a time


class DBGD(LinearRankingLearner):
    """Takes one normal per feature and round from `draws.learner`, and coin flips from `draws.actions`."""

    def __init__(self, start: FloatArray, *, lr: float = 0.01, reach: float = 1.0) -> None:
        super().__init__(start, lr)
        if not (np.isfinite(reach) and reach > 0):
            raise ValueError(f"reach: {reach}; must be positive.")
        self.reach = float(reach)

    def run(self, users: Users, draws: RankingDraws, first: int = 0) -> RankingRounds:
        from seamark.kernels.ranking_learn import dbgd_run

        pool = users.documents
        self._check(pool.features.shape[1])
        rounds = room(users, draws.queries, first)
        for start in range(0, len(rounds), _LEG):
            leg = slice(start, min(start + _LEG, len(rounds)))
            directions = draws.learner.standard_normal((leg.stop - leg.start, self._weights.size))
            dbgd_run(
                pool.features, pool.offsets, pool.keys, draws.queries[leg], users.examination, users.attraction,
                users.stop, draws.actions[leg], draws.clicks[leg], directions, self._weights, self.lr, self.reach,
                rounds.displayed[leg], rounds.clicks[leg],
            )  # fmt: skip
        return rounds
