"""What happened when documents were ranked: queries, what was displayed, what was clicked.

Arrays: a pool of queries has its documents one query after the other, rows `offsets[q] : offsets[q + 1]`. A list is a
row of document rows (int64), best first, -1 where it has ended; column j of anything shaped (n, kappa) belongs to
position j + 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seamark.rounds import FloatArray, IntArray

Clicks: TypeAlias = NDArray[np.uint8]
"""Clicked or not, shape (n, kappa)."""


class Documents(NamedTuple):
    """The documents of a pool of queries. Build with `documents`."""

    features: NDArray[Any]
    """Shape (n_docs, d), float32 or float64, C-ordered, finite."""
    offsets: IntArray
    """Shape (n_queries + 1,)."""
    keys: NDArray[np.uint64]
    """A fixed hash per document: of equal scores the smaller ranks first."""

    @property
    def n_queries(self) -> int:
        return self.offsets.size - 1

    @property
    def n_docs(self) -> int:
        return int(self.offsets[-1])


def documents(features: Any, offsets: ArrayLike, keys: ArrayLike | None = None) -> Documents:
    """Validated documents. Features keep their type (float32 halves the memory traffic); without `keys`, a hash of
    the document's number stands in.

    >>> documents([[0.1], [0.2], [0.3]], [0, 2, 3]).n_queries
    2
    """
    array = np.asarray(features)
    array = np.ascontiguousarray(array, dtype=np.float32 if array.dtype == np.float32 else np.float64)
    if array.ndim != 2:
        raise ValueError(f"features: shape {array.shape}; must be (documents, features).")
    if not np.isfinite(array).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"features: document {row}, feature {column} is {array[row, column]}; must be finite.")
    bounds = np.ascontiguousarray(offsets, dtype=np.int64)
    if (
        bounds.ndim != 1
        or bounds.size < 1
        or bounds[0] != 0
        or bounds[-1] != array.shape[0]
        or (np.diff(bounds) < 0).any()
    ):
        raise ValueError(f"offsets: must rise from 0 to the number of documents, {array.shape[0]}.")
    hashed = _hash(np.arange(array.shape[0])) if keys is None else np.asarray(keys).astype(np.uint64)
    if hashed.shape != (array.shape[0],):
        raise ValueError(f"keys: shape {hashed.shape}; must be one per document, ({array.shape[0]},).")
    return Documents(*(_read_only(part) for part in (array, bounds, np.ascontiguousarray(hashed))))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written: kernels compile once for it."""
    view = array.view()
    view.flags.writeable = False
    return view


def _hash(numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """Fibonacci hashing followed by a shift-xor: fixed, spread, and cheap."""
    x = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(x ^ (x >> np.uint64(29)), dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class RankingRounds:
    """Columns of consecutive rounds: query, what was displayed, what was clicked, and who displayed it.

    Build with `RankingRounds.of`, which validates; the constructor itself trusts its arguments.

    >>> pool = documents([[0.0], [1.0], [2.0]], [0, 2, 3])
    >>> log = RankingRounds.of(pool, [0, 1], [[1, 0], [2, -1]], [[1, 0], [0, 0]], examination=[1.0, 0.5])
    >>> len(log), log.last, log.n_clicks
    (2, 2, 1)
    """

    documents: Documents
    queries: IntArray
    displayed: IntArray
    """Document rows, shape (n, kappa), -1 where a list has ended."""
    clicks: Clicks
    examination: FloatArray
    """e(j), shape (kappa,): probability that a user looks at position j. Known, never estimated here."""
    versions: IntArray
    """Version of the ranker that displayed; counts deployments, 0 is the baseline."""
    first: int = 0
    """Sequence number of the first round."""
    propensities: FloatArray | None = None
    """Where the display was random: rho, the expected examination of each displayed document over the draws of the
    display, shape (n, kappa). None: the display was the ranker's order, so e(j) itself is the propensity."""

    @classmethod
    def of(
        cls,
        pool: Documents,
        queries: ArrayLike,
        displayed: ArrayLike,
        clicks: ArrayLike,
        *,
        examination: ArrayLike,
        versions: ArrayLike | int = 0,
        first: int = 0,
        propensities: ArrayLike | None = None,
    ) -> RankingRounds:
        """Validated rounds."""
        query = np.atleast_1d(np.asarray(queries, dtype=np.int64))
        places = np.ascontiguousarray(displayed, dtype=np.int64)
        clicked = np.ascontiguousarray(clicks, dtype=np.uint8)
        e = np.ascontiguousarray(examination, dtype=np.float64)
        n, kappa = query.size, e.size
        if places.shape != (n, kappa) or clicked.shape != (n, kappa):
            raise ValueError(
                f"displayed, clicks: shapes {places.shape}, {clicked.shape}; both must be "
                f"(rounds, positions of examination) = ({n}, {kappa})."
            )
        if not ((e > 0) & (e <= 1)).all():
            raise ValueError(f"examination: {e.tolist()}; must be in (0, 1] at every displayed position.")
        if n and not (query.min() >= 0 and query.max() < pool.n_queries):
            raise ValueError(f"queries: from {query.min()} to {query.max()}; must be 0 to {pool.n_queries - 1}.")
        start, stop = pool.offsets[query][:, None], pool.offsets[query + 1][:, None]
        strange = ((places != -1) & ((places < start) | (places >= stop))).any(axis=1)
        if strange.any():
            row = int(np.flatnonzero(strange)[0])
            raise ValueError(
                f"displayed: row {row} is {places[row].tolist()}; its query has documents {start[row, 0]} to "
                f"{stop[row, 0] - 1}, and -1 pads."
            )
        ordered = np.sort(places, axis=1)
        if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
            raise ValueError("displayed: a document appears twice in one list.")
        if (clicked > 1).any() or (clicked[places < 0] != 0).any():
            raise ValueError("clicks: must be 0 or 1, and 0 where nothing was displayed.")
        rho = None if propensities is None else np.ascontiguousarray(propensities, dtype=np.float64)
        if rho is not None and (rho.shape != (n, kappa) or not ((rho > 0) & (rho <= 1))[places >= 0].all()):
            raise ValueError("propensities: must be (rounds, positions), in (0, 1] where a document was displayed.")
        by = np.broadcast_to(np.asarray(versions, dtype=np.int64), (n,)).copy()
        return cls(pool, query, places, clicked, e, by, first, rho)

    def __len__(self) -> int:
        return int(self.queries.size)

    def __getitem__(self, part: slice) -> RankingRounds:
        """A contiguous part, sharing memory."""
        start, _, step = part.indices(len(self))
        if step != 1:
            raise ValueError("rounds: take a contiguous part; order is part of the evidence.")
        return replace(
            self,
            queries=self.queries[part],
            displayed=self.displayed[part],
            clicks=self.clicks[part],
            versions=self.versions[part],
            first=self.first + start,
            propensities=None if self.propensities is None else self.propensities[part],
        )

    def where(self, mask: NDArray[np.bool_]) -> RankingRounds:
        """The rounds chosen, in order; a contiguous part shares memory and keeps its numbers."""
        at = np.flatnonzero(mask)
        if at.size == 0 or at[-1] - at[0] + 1 == at.size:
            return self[slice(int(at[0]), int(at[-1]) + 1) if at.size else slice(0, 0)]
        return replace(
            self,
            queries=self.queries[at],
            displayed=self.displayed[at],
            clicks=self.clicks[at],
            versions=self.versions[at],
            first=self.first + int(at[0]),
            propensities=None if self.propensities is None else self.propensities[at],
        )

    @property
    def last(self) -> int:
        """Sequence number of the last round, plus one: how many rounds there have been."""
        return self.first + len(self)

    @property
    def n_clicks(self) -> int:
        return int(np.count_nonzero(self.clicks))

    @property
    def kappa(self) -> int:
        """How many positions are displayed."""
        return int(self.examination.size)

    def weights(self) -> FloatArray:
        """1 / propensity of each displayed document: shape (1, kappa) or (n, kappa). Padding reads as 1."""
        if self.propensities is None:
            return (1.0 / self.examination)[None, :]
        return np.asarray(1.0 / np.where(self.displayed >= 0, self.propensities, 1.0))


@dataclass(frozen=True, eq=False)
class Users:
    """Who clicks, in a simulation: a document is clicked with probability e(position) times its attraction."""

    documents: Documents
    examination: FloatArray
    """e(j), shape (kappa,): as many positions are displayed."""
    attraction: FloatArray
    """P(click | examined) per document, shape (n_docs,)."""
    stop: FloatArray
    """P(leave | clicked) per document, shape (n_docs,): zeros for position-based users."""

    @classmethod
    def position_based(cls, pool: Documents, examination: ArrayLike, attraction: ArrayLike) -> Users:
        a = np.ascontiguousarray(attraction, dtype=np.float64)
        return cls(pool, np.ascontiguousarray(examination, dtype=np.float64), a, np.zeros_like(a))


class RankingDraws(NamedTuple):
    """The queries of a leg and its randomness, drawn outside the kernels by role."""

    queries: IntArray
    actions: FloatArray
    """Uniforms for the display (samples, coin flips, swaps), shape (n, kappa); unused by deterministic displays."""
    clicks: FloatArray
    """Uniforms for the clicks, shape (n, kappa): position j is clicked where its uniform is below e(j) attraction."""
    learner: np.random.Generator
    """For what a method draws itself (perturbations)."""


def room(users: Users, queries: IntArray, first: int, version: int = 0) -> RankingRounds:
    """Rounds to be filled in by a kernel: nothing displayed, nothing clicked yet."""
    shape = (queries.size, users.examination.size)
    return RankingRounds(
        users.documents,
        queries,
        np.full(shape, -1, dtype=np.int64),
        np.zeros(shape, dtype=np.uint8),
        users.examination,
        np.full(queries.size, version, dtype=np.int64),
        first,
    )
