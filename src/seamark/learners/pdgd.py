r"""Pairwise differentiable gradient descent [Oosterhuis and de Rijke, CIKM 2018], linear.

Displays a ranking R drawn from the Plackett-Luce model of its scores. A clicked document k is preferred to an
unclicked l displayed no lower than one below the last click, and

.. math:: w \leftarrow w + lr \sum_{k > l} \rho(k, l) \frac{e^{f_k} e^{f_l}}{(e^{f_k} + e^{f_l})^2}
          (\nabla f_k - \nabla f_l), \qquad \rho = \frac{P(R^*)}{P(R) + P(R^*)}

with R* = R with k and l exchanged. Checked against the authors' public implementation: the same preferences, rho and
step (0.1, constant, without decay). That implementation draws without replacement in batches and never draws
documents below a probability of 1e-4 / n in the first of them; here the draw is exact, one uniform per position.
"""

from __future__ import annotations

from seamark.learners.ranksvm import LinearRankingLearner
from seamark.rankings import RankingDraws, RankingRounds, Users, room
from seamark.rounds import FloatArray


class PDGD(LinearRankingLearner):
    """Learns from the rankings that it samples itself; its candidate is the deterministic order."""

    def __init__(self, start: FloatArray, *, lr: float = 0.1) -> None:
        super().__init__(start, lr)

    def run(self, users: Users, draws: RankingDraws, first: int = 0) -> RankingRounds:
        from seamark.kernels.ranking_learn import pdgd_run

        pool = users.documents
        self._check(pool.features.shape[1])
        rounds = room(users, draws.queries, first)
        pdgd_run(
            pool.features, pool.offsets, draws.queries, users.examination, users.attraction, users.stop,
            draws.actions, draws.clicks, self._weights, self.lr, rounds.displayed, rounds.clicks,
        )  # fmt: skip
        return rounds
