r"""BubbleRank [Li, Kveton, Lattimore, Markov, de Rijke, Szepesvari, Zoghi, UAI 2019]: bubbles attractive items up.

Per query, a list that begins as the production ranker's top; neighbours whose order is undecided are displayed in
either order with equal chance, and exchanged for good once clicks refute their order:

    display: h = t mod 2; for k: i, j at positions 2k-1+h, 2k+h; if s(i,j) <= 2 sqrt(n(i,j) ln(1/delta)) swap w.p. 1/2
    learn:   if exactly one of them was clicked: s(i,j) += c_i - c_j, s(j,i) -= the same, n(i,j) = n(j,i) += 1
    decide:  for neighbours i above j, from the top: if s(j,i) > 2 sqrt(n(j,i) ln(1/delta)) exchange them

In theory delta = n^-4 with n the rounds, and then the number of incorrectly ordered pairs of the displayed list never
exceeds that of the initial list by more than K/2, with probability at least 1 - delta^{1/2} K^2 n. Algorithm and
constants are from memory, not checked: the public text at hand when this was written held the paper's first page
(authors and idea), neither its algorithm nor an implementation. t counts the rounds of the query, so that its pairs
alternate.

No features: it learns nothing about queries that do not come back, and no document from below the display enters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seamark.policies.rankers import Ranker, TableRanker, scores_of, top_lists
from seamark.rankings import Documents, RankingDraws, RankingRounds, Users, room
from seamark.rounds import FloatArray, IntArray


class BubbleRank:
    """One BubbleRank per query of a pool, starting from `production`'s lists.

    horizon: rounds of the run; delta = horizon^-4 unless given.
    """

    def __init__(
        self,
        production: Ranker,
        pool: Documents,
        *,
        kappa: int = 10,
        horizon: int | None = None,
        delta: float | None = None,
    ) -> None:
        if delta is None:
            if horizon is None or horizon < 2:
                raise ValueError(f"horizon: {horizon}; must be the number of rounds (at least 2), or give delta.")
            delta = float(horizon) ** -4
        if not 0 < delta < 1:
            raise ValueError(f"delta: {delta}; must be in (0, 1).")
        self.delta, self.kappa = delta, kappa
        self._pool = pool
        scores = scores_of(production, pool, np.arange(pool.n_queries), np.empty(pool.n_docs))
        self._production: FloatArray = np.array(scores)
        self._items = top_lists(production, pool, kappa)
        n = pool.n_queries
        self._base = np.tile(np.arange(kappa, dtype=np.int64), (n, 1))
        self._wins, self._counts = np.zeros((n, kappa, kappa), np.int32), np.zeros((n, kappa, kappa), np.int32)
        self._rounds = np.zeros(n, dtype=np.int64)

    @property
    def lists(self) -> IntArray:
        """The current list of every query, document rows (n_queries, kappa)."""
        return np.take_along_axis(self._items, self._base, axis=1)

    def run(self, users: Users, draws: RankingDraws, first: int = 0) -> RankingRounds:
        from seamark.kernels.ranking_learn import bubble_run

        if users.documents.n_docs != self._pool.n_docs or users.examination.size != self.kappa:
            raise ValueError(
                f"users: {users.documents.n_docs} documents and {users.examination.size} positions; BubbleRank was "
                f"built for {self._pool.n_docs} and {self.kappa}."
            )
        rounds = room(users, draws.queries, first)
        bubble_run(
            draws.queries, users.examination, users.attraction, users.stop, draws.actions, draws.clicks,
            self._items, self._base, self._wins, self._counts, self._rounds, math.log(1 / self.delta),
            rounds.displayed, rounds.clicks,
        )  # fmt: skip
        return rounds

    def candidate(self) -> TableRanker:
        """The current lists, the documents below in production's order; for this pool only."""
        starts = self._pool.offsets[:-1]
        lengths = np.diff(self._pool.offsets)
        lowest = np.lexsort((self._pool.keys, -self._production, np.repeat(np.arange(lengths.size), lengths)))
        values = np.empty(self._pool.n_docs)
        values[lowest] = -(np.arange(self._pool.n_docs) - np.repeat(starts, lengths)).astype(np.float64)
        lists = self.lists
        shown = lists >= 0
        values[lists[shown]] = self.kappa + 1.0 - np.broadcast_to(np.arange(self.kappa), lists.shape)[shown]
        return TableRanker(values)

    def state(self) -> dict[str, Any]:
        return {
            "base": self._base.copy(), "wins": self._wins.copy(), "counts": self._counts.copy(),
            "rounds": self._rounds.copy(), "delta": self.delta,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        for name, array in (
            ("base", self._base), ("wins", self._wins), ("counts", self._counts), ("rounds", self._rounds),
        ):  # fmt: skip
            if np.shape(state[name]) != array.shape:
                raise ValueError(f"state: {name} has shape {np.shape(state[name])}; must be {array.shape}.")
            array[...] = state[name]
        self.delta = float(state["delta"])
