"""Moments of any ranker over all rounds so far, from tables of clicks: the paper's W form, for rankings."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from seamark.estimation.bounds import Moments
from seamark.estimation.ranking_scores import as_display, discounts_at, shown_discounts
from seamark.policies.displays import Display
from seamark.policies.rankers import Ranker, UnsoundRanker, scores_of
from seamark.rankings import Documents, RankingRounds
from seamark.rounds import FloatArray, IntArray

RankingSemantics = Literal["paper", "released"]


AfterDeployment = Literal["restart", "keep"]


RELEASED_CAP = 0.01


class RankingSums:
    """S1 and S2 of any ranker over all rounds so far, from tables of clicks (the paper's W form, for rankings).

    W1[d] = sum c_d / e and, because clicks of one round multiply, for every pair of documents clicked in one round
    G[d, d'] = sum c_d c_d' / (e e'): then S1(h) = sum lam_h W1 and S2(h) = lam_h' G lam_h, exactly, for any h. Memory:
    one number per document and one per pair that was ever clicked together.

    semantics:
      "paper"     a sample is a round; lambda is cut at the display; 1/e exact.
      "released"  what made the published tables: a sample is a click, the sums are divided by the number of clicks,
                  lambda runs over the whole list, e is raised to `cap`, `largest` is the largest accumulated cell.
    after_deployment:
      "restart"   (paper's default) the tables begin anew, because documents that an earlier ranker did not display
                  are missing from its rounds: the deployed ranker's estimate would be too low on them, which voids
                  an upper bound. Rounds of another version (in flight at the deployment) are skipped.
      "keep"      (released's default) all rounds stay, as in the paper's Algorithm 1.

    It also follows one ranker, the deployed one, with running sums, so that a check costs one ranker, not two.
    """

    def __init__(
        self,
        display: Display | ArrayLike,
        *,
        discounts: ArrayLike | None = None,
        semantics: RankingSemantics = "paper",
        cap: float = RELEASED_CAP,
        after_deployment: AfterDeployment | None = None,
    ) -> None:
        if semantics not in ("paper", "released"):
            raise ValueError(f"semantics: {semantics!r}; must be 'paper' or 'released'.")
        self.display = as_display(display)
        self.kappa = int(self.display.examination.size)
        self.discounts = discounts_at(self.kappa, discounts)
        self._by_rank = np.zeros((0, 0)) if semantics == "released" else shown_discounts(self.display, self.discounts)
        self.semantics = semantics
        self.cap = cap if semantics == "released" else 0.0
        self.after_deployment = after_deployment or ("restart" if semantics == "paper" else "keep")
        if semantics == "released" and discounts is not None:
            raise ValueError("discounts: the released metric is fixed, 1/log2(1 + rank) over the whole list.")
        self.n = 0
        self._version = 0
        self._rounds_version = 0
        self._followed = Moments(0, 0.0, 0.0, 0.0)
        self._pool: Documents | None = None
        self._pending: dict[str, Any] | None = None
        self._deployed_discounts: tuple[str, FloatArray] | None = None

    # -- taking rounds in ---------------------------------------------------------------------------------------------

    def add(self, rounds: RankingRounds, deployed: Ranker) -> None:
        from seamark.kernels.ranking_scores import add_clicks, followed_sums

        self._room(rounds.documents)
        if self.after_deployment == "restart":
            rounds = rounds.where(rounds.versions == self._version)
        inverse = rounds.weights()
        if self.cap:
            inverse = np.minimum(inverse, 1.0 / self.cap)
        at = 0
        while at < len(rounds):
            at = add_clicks(
                at, rounds.queries, rounds.displayed, rounds.clicks, inverse,
                self._w1, self._w2, self._seen, self._keys, self._values, self._size,
            )  # fmt: skip
            if at < len(rounds):
                self._grow()
        per_click = self.semantics == "released"
        self.n += rounds.n_clicks if per_click else len(rounds)
        own = rounds.versions == self._version
        if rounds.propensities is not None:
            own = np.zeros(len(rounds), dtype=bool)
        lam = self._w1 if own.all() else self._discounts_of_deployed(deployed)
        f = self._followed
        s1, s2, largest = followed_sums(
            rounds.displayed, rounds.clicks, inverse, self.discounts, lam, own, per_click, self._w1,
            f.s1, f.s2, f.largest,
        )  # fmt: skip
        self._followed = Moments(self.n, s1, s2, largest)

    def _room(self, pool: Documents) -> None:
        if self._pool is None:
            self._pool = pool
            self._scores, self._lam = np.zeros(pool.n_docs), np.zeros(pool.n_docs)
            self._clear()
            if self._pending is not None:
                self._fill(self._pending)
                self._pending = None
        elif pool is not self._pool and (pool.n_docs, pool.n_queries) != (self._pool.n_docs, self._pool.n_queries):
            raise ValueError(
                f"rounds: a pool of {pool.n_queries} queries and {pool.n_docs} documents, but the tables were made for "
                f"{self._pool.n_queries} and {self._pool.n_docs}."
            )

    def _clear(self) -> None:
        assert self._pool is not None
        self._w1, self._w2 = np.zeros(self._pool.n_docs), np.zeros(self._pool.n_docs)
        self._seen = np.zeros(self._pool.n_queries, dtype=bool)
        self._keys, self._values = np.full(1024, -1, dtype=np.int64), np.zeros(1024)
        self._size = np.zeros(1, dtype=np.int64)

    def _grow(self) -> None:
        from seamark.kernels.ranking_scores import rehash

        keys, values = np.full(2 * self._keys.size, -1, dtype=np.int64), np.zeros(2 * self._keys.size)
        rehash(self._keys, self._values, keys, values)
        self._keys, self._values = keys, values

    # -- the deployed ranker ------------------------------------------------------------------------------------------

    def follow(self, moments: Moments, version: int) -> None:
        """From now on the running sums are those of another ranker, whose moments so far are given."""
        if self.after_deployment == "restart" and version != self._version:
            self.n = 0
            moments = Moments(0, 0.0, 0.0, 0.0)
            self._pending = None
            if self._pool is not None:
                self._clear()
        self._followed, self._version = moments, version
        self._deployed_discounts = None
        if self.n == 0:
            self._rounds_version = version

    @property
    def deployed(self) -> Moments:
        """Moments of the followed ranker."""
        return self._followed

    @property
    def is_own(self) -> bool:
        """Whether every round in the tables was displayed by the ranker that is followed now."""
        return self._rounds_version == self._version

    def _discounts_of_deployed(self, deployed: Ranker) -> FloatArray:
        """lambda of every document under the deployed ranker: for rounds that it did not display as they are."""
        assert self._pool is not None
        key = deployed.id
        if self._deployed_discounts is None or self._deployed_discounts[0] != key:
            everything = np.arange(self._pool.n_queries)
            lam = np.zeros(self._pool.n_docs)
            self._discounts_into(deployed, everything, np.ones(self._pool.n_docs), lam)
            self._deployed_discounts = (key, lam)
        return self._deployed_discounts[1]

    # -- moments ------------------------------------------------------------------------------------------------------

    def moments(self, policy: Ranker) -> Moments:
        """Moments of sum_d c_d lam(rank(d)) / e. Not-a-number for a ranker without an order: nothing deploys it."""
        if self._pool is None or not self.n:
            return Moments(self.n, 0.0, 0.0, 0.0)
        try:
            self._discounts_into(policy, self.seen, self._w1, self._lam)
        except UnsoundRanker:
            return Moments(self.n, math.nan, math.nan, math.nan)
        return self._sums(self._lam)

    def paired_moments(self, new: Ranker, deployed: Ranker) -> Moments:
        """Moments of the paired score z of the rounds in the tables.

        Conservative only while every round was displayed by `deployed` itself (see `is_own`).
        """
        if self._pool is None or not self.n:
            return Moments(self.n, 0.0, 0.0, 0.0)
        old = np.zeros(self._pool.n_docs)
        try:
            self._discounts_into(new, self.seen, self._w1, self._lam)
            self._discounts_into(deployed, self.seen, self._w1, old)
        except UnsoundRanker:
            return Moments(self.n, math.nan, math.nan, math.nan)
        return self._sums(self._lam - old)

    @property
    def seen(self) -> IntArray:
        """Queries with a click."""
        return np.flatnonzero(self._seen)

    def _discounts_into(self, ranker: Ranker, queries: IntArray, weights: FloatArray, out: FloatArray) -> None:
        from seamark.kernels.ranking_scores import discounts_of_list, discounts_of_top

        assert self._pool is not None
        pool = self._pool
        scores = scores_of(ranker, pool, queries, self._scores)
        if self.semantics == "released":
            discounts_of_list(scores, pool.offsets, pool.keys, queries, weights, out)
        else:
            scratch = np.empty(self.display.depth, dtype=np.int64)
            discounts_of_top(scores, pool.offsets, pool.keys, queries, self._by_rank, scratch, out)

    def _sums(self, lam: FloatArray) -> Moments:
        from seamark.kernels.ranking_scores import sums_of_discounts

        assert self._pool is not None
        pairs = self.semantics == "paper"
        return Moments(
            self.n,
            *sums_of_discounts(lam, self._pool.offsets, self.seen, self._w1, self._w2, self._keys, self._values, pairs),
        )

    # -- state --------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        f = self._followed
        tables: dict[str, Any] | None = self._pending
        if self._pool is not None:
            docs = np.flatnonzero(self._w1)
            tables = {
                "n_docs": self._pool.n_docs, "docs": docs, "w1": self._w1[docs], "w2": self._w2[docs],
                "seen": self.seen, "keys": self._keys.copy(), "values": self._values.copy(), "size": self._size.copy(),
            }  # fmt: skip
        return {
            "n": self.n, "version": self._version, "rounds_version": self._rounds_version,
            "followed": [f.n, f.s1, f.s2, f.largest], "tables": tables,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self.n, self._version = int(state["n"]), int(state["version"])
        self._rounds_version = int(state["rounds_version"])
        n, s1, s2, largest = state["followed"]
        self._followed = Moments(int(n), float(s1), float(s2), float(largest))
        self._deployed_discounts, self._pending = None, state["tables"]
        if self._pool is not None:
            self._clear()
            if self._pending is not None:
                self._fill(self._pending)
                self._pending = None

    def _fill(self, tables: dict[str, Any]) -> None:
        assert self._pool is not None
        if int(tables["n_docs"]) != self._pool.n_docs:
            raise ValueError(
                f"state: made for a pool of {tables['n_docs']} documents; these rounds have {self._pool.n_docs}."
            )
        docs = np.asarray(tables["docs"], dtype=np.int64)
        self._w1[docs], self._w2[docs] = tables["w1"], tables["w2"]
        self._seen[np.asarray(tables["seen"], dtype=np.int64)] = True
        self._keys, self._values = (
            np.array(tables["keys"], dtype=np.int64),
            np.array(tables["values"], dtype=np.float64),
        )
        self._size = np.array(tables["size"], dtype=np.int64)
