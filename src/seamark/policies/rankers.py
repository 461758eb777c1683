"""Who orders the documents of a query: by decreasing score, ties by the documents' fixed hash.

So an order is a function of the scores. How it is shown is a second thing (`displays`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from seamark.policies.base import content_id
from seamark.rankings import Documents
from seamark.rounds import FloatArray, IntArray

CUTOFF = 10


@runtime_checkable
class Ranker(Protocol):
    """Orders the documents of a query, by decreasing score. Deterministic given the documents."""

    @property
    def id(self) -> str:
        """Hash of the content: two rankers with one id rank alike."""
        ...

    def scores(self, pool: Documents) -> FloatArray:
        """One score per document, shape (n_docs,); compared within a query only."""
        ...

    def frozen(self) -> Ranker:
        """A ranker that later training cannot change; `self` where that holds already."""
        ...


@dataclass(frozen=True, eq=False)
class LinearRanker:
    """Scores <weights, document>. `weights` (d,) may be a live view of a learner's; `frozen()` copies them."""

    weights: FloatArray

    def __post_init__(self) -> None:
        if self.weights.ndim != 1:
            raise ValueError(f"weights: shape {self.weights.shape}; must be (n_features,).")

    def scores(self, pool: Documents) -> FloatArray:
        return self.scores_of(pool, np.arange(pool.n_queries), np.empty(pool.n_docs))

    def scores_of(self, pool: Documents, queries: IntArray, out: FloatArray) -> FloatArray:
        """The scores of some queries' documents, written into `out` (n_docs,), which is returned."""
        from seamark.kernels.ranking import score_queries

        score_queries(pool.features, pool.offsets, queries, self._checked(pool), out)
        return out

    def listed_scores(self, pool: Documents, queries: IntArray, lists: IntArray, out: FloatArray) -> FloatArray:
        """The scores of the documents in some queries' `lists` (n_queries, depth) alone."""
        from seamark.kernels.ranking import score_listed

        score_listed(pool.features, queries, lists, self._checked(pool), out)
        return out

    def _checked(self, pool: Documents) -> FloatArray:
        if pool.features.shape[1] != self.weights.size:
            raise ValueError(
                f"documents: {pool.features.shape[1]} features, but the ranker has weights for {self.weights.size}."
            )
        return np.array(self.weights, dtype=np.float64)

    def frozen(self) -> LinearRanker:
        if not self.weights.flags.writeable and self.weights.base is None:
            return self
        weights = np.array(self.weights, dtype=np.float64)
        weights.setflags(write=False)
        return LinearRanker(weights)

    @property
    def id(self) -> str:
        return self._content_id() if self.weights.flags.writeable else self._id

    def _content_id(self) -> str:
        return content_id("linear-ranker", {"weights": np.asarray(self.weights, dtype=np.float64)})

    @cached_property
    def _id(self) -> str:
        return self._content_id()


@dataclass(frozen=True, eq=False)
class TableRanker:
    """Fixed scores for the documents of one pool, (n_docs,): for rankers that have no features, as BubbleRank's."""

    values: FloatArray

    def scores(self, pool: Documents) -> FloatArray:
        if self.values.shape != (pool.n_docs,):
            raise ValueError(
                f"documents: {pool.n_docs}, but this ranker knows {self.values.size}; it cannot rank others."
            )
        return self.values

    def frozen(self) -> TableRanker:
        if not self.values.flags.writeable and self.values.base is None:
            return self
        values = np.array(self.values, dtype=np.float64)
        values.setflags(write=False)
        return TableRanker(values)

    @cached_property
    def id(self) -> str:
        return content_id("table-ranker", {"values": self.values})


def scores_of(
    ranker: Ranker, pool: Documents, queries: IntArray, out: FloatArray, lists: IntArray | None = None
) -> FloatArray:
    """Scores of (at least) the documents of these queries, (n_docs,); `out` is scratch that may be returned.

    lists: where given, only the documents in these lists (n_queries, depth) are needed. A ranker that cannot score a
    document has no order: a NaN or an infinity raises.
    """
    if isinstance(ranker, LinearRanker):
        if lists is None:
            scores = ranker.scores_of(pool, queries, out)
        else:
            scores = ranker.listed_scores(pool, queries, lists, out)
        sound = np.isfinite(ranker.weights).all()
    else:
        scores = np.ascontiguousarray(ranker.scores(pool), dtype=np.float64)
        if scores.shape != (pool.n_docs,):
            raise ValueError(f"scores: shape {scores.shape}; must be one per document, ({pool.n_docs},).")
        sound = np.isfinite(scores).all()
    if not sound:
        raise UnsoundRanker("ranker: some scores are not finite numbers, so it has no order.")
    return scores


class UnsoundRanker(ValueError):
    """Scores that are NaN or infinite: a learner has diverged. Gates answer with `hold`."""


@runtime_checkable
class FromLists(Protocol):
    """A ranker that makes its lists of those of others, rather than of scores of its own."""

    def rank(self, lists: ListCache, pool: Documents, queries: IntArray, out: IntArray) -> None:
        """Writes the lists of the queries into `out`."""
        ...


class ListCache:
    """Top lists of rankers over one pool, computed per query when asked, kept for the latest `capacity` rankers.

    A ranker that combines others (policy surgery) is ranked from their lists, which are kept here as well: what it
    costs does not depend on how deeply deployments have nested it.
    """

    def __init__(self, depth: int = CUTOFF, *, capacity: int = 16) -> None:
        self.depth, self.capacity = depth, capacity
        self._pool: Documents | None = None
        self._kept: OrderedDict[tuple[str, int], tuple[IntArray, Any]] = OrderedDict()
        self._scratch = np.empty(0)

    def lists(
        self, ranker: Ranker, pool: Documents, queries: IntArray | None = None, *, depth: int | None = None
    ) -> IntArray:
        """Document rows (n_queries, depth), best first, -1 where a list has ended; filled for `queries` (None: all)."""
        if self._pool is None or self._pool.offsets is not pool.offsets:
            self._pool, self._scratch = pool, np.empty(pool.n_docs)
            self._kept.clear()
        key = ranker.id, depth or self.depth
        kept = self._kept.get(key)
        if kept is None:
            kept = np.empty((pool.n_queries, key[1]), dtype=np.int64), np.zeros(pool.n_queries, dtype=bool)
        top, done = kept
        if queries is None:
            missing = np.flatnonzero(~done)
        else:
            wanted = np.zeros(pool.n_queries, dtype=bool)
            wanted[queries] = True
            missing = np.flatnonzero(wanted & ~done)
        if missing.size:
            self._fill(ranker, pool, missing, top)
            done[missing] = True
        # after the parts that it is made of, so that none of them pushes it out
        self._kept[key] = kept
        self._kept.move_to_end(key)
        while len(self._kept) > self.capacity:
            self._kept.popitem(last=False)
        return top

    def _fill(self, ranker: Ranker, pool: Documents, queries: IntArray, out: IntArray) -> None:
        from seamark.kernels.ranking import rank_queries

        if isinstance(ranker, FromLists):
            ranker.rank(self, pool, queries, out)
        else:
            rank_queries(scores_of(ranker, pool, queries, self._scratch), pool.offsets, pool.keys, queries, out)

    def reorder(
        self, ranker: Ranker, pool: Documents, queries: IntArray, lists: IntArray, first: int, out: IntArray
    ) -> None:
        """Some queries' `lists` with their `first` documents in a ranker's order, written into `out`."""
        from seamark.kernels.ranking import reorder_lists

        scores = scores_of(ranker, pool, queries, self._scratch, np.ascontiguousarray(lists[:, :first]))
        reorder_lists(scores, pool.keys, queries, lists, first, out)


def top_lists(ranker: Ranker, pool: Documents, depth: int = CUTOFF) -> IntArray:
    """The best `depth` documents of every query, as rows, (n_queries, depth), -1 where a list has ended."""
    return ListCache(depth, capacity=4).lists(ranker, pool)
