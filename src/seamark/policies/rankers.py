"""Who orders the documents of a query, and how an order is displayed.

A ranker gives every document a score; the order is by score, ties by the documents' fixed hash, so it is a function of
the scores. How the order is shown is a second thing: as it is, with swaps of neighbours, or sampled (Plackett-Luce).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from seamark.policies.base import content_id
from seamark.rankings import Documents, RankingDraws, RankingRounds, Users
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

        if isinstance(ranker, CombinedRanker):
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


# -- displays ---------------------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    displayed: IntArray
    """Document rows, (n, kappa)."""
    propensities: FloatArray | None
    """rho of each displayed document; None where the order is shown as it is."""


class Display(Protocol):
    """How a ranker's order is shown at positions that are examined with known probabilities."""

    @property
    def examination(self) -> FloatArray: ...

    @property
    def depth(self) -> int:
        """How many ranks can be displayed."""
        ...

    def law(self, n: int) -> FloatArray | None:
        """P(position | rank) among n <= depth documents, (depth, kappa); None where it depends on the scores."""
        ...

    def show(self, lists: ListCache, ranker: Ranker, pool: Documents, queries: IntArray, uniforms: FloatArray) -> Shown:
        """What the users of a leg see; `lists` has depth `depth`."""
        ...


def check_examination(examination: ArrayLike) -> FloatArray:
    e = np.ascontiguousarray(examination, dtype=np.float64)
    if e.ndim != 1 or not e.size or not ((e > 0) & (e <= 1)).all():
        raise ValueError(f"examination: {e.tolist()}; must be probabilities in (0, 1], one per displayed position.")
    return e


class AsRanked:
    """The order is shown as it is: rank j at position j."""

    def __init__(self, examination: ArrayLike) -> None:
        self.examination = check_examination(examination)
        self.depth = self.examination.size

    def law(self, n: int) -> FloatArray:
        return np.eye(self.depth)

    def show(self, lists: ListCache, ranker: Ranker, pool: Documents, queries: IntArray, uniforms: FloatArray) -> Shown:
        return Shown(lists.lists(ranker, pool, queries)[queries], None)


class SwapDisplay:
    """Swap exploration: a coin picks the pairs (1,2), (3,4), ... or (2,3), (4,5), ..., each swapped with `probability`.

    With `extra` = 1 the document at rank kappa + 1 takes part, so that a document from below can be credited. Every
    displayed document has a propensity known beforehand from its rank: rho(rank) = sum P(position | rank) e(position).
    """

    def __init__(self, examination: ArrayLike, *, probability: float = 0.5, extra: int = 1) -> None:
        self.examination = check_examination(examination)
        if self.examination.size < 2:
            raise ValueError("examination: swaps need at least two displayed positions.")
        if not 0 < probability < 1:
            raise ValueError(f"probability: {probability}; must be in (0, 1), so that every order stays possible.")
        if extra not in (0, 1):
            raise ValueError(f"extra: {extra}; must be 0 or 1.")
        self.probability, self.extra = float(probability), extra
        self.depth = self.examination.size + extra
        self._rho = np.stack([self.law(n) @ self.examination for n in range(self.depth + 1)])

    def law(self, n: int) -> FloatArray:
        to = np.zeros((self.depth, self.depth))
        for rank in range(self.depth):
            for start in (0, 1):
                partner = rank + 1 if (rank - start) % 2 == 0 else rank - 1
                if rank >= start and partner >= start and max(rank, partner) < n:
                    to[rank, rank] += 0.5 * (1 - self.probability)
                    to[rank, partner] += 0.5 * self.probability
                else:
                    to[rank, rank] += 0.5
        return np.ascontiguousarray(to[:, : self.examination.size])

    def show(self, lists: ListCache, ranker: Ranker, pool: Documents, queries: IntArray, uniforms: FloatArray) -> Shown:
        from seamark.kernels.ranking import swap_display

        shape = (queries.size, self.examination.size)
        displayed, rho = np.empty(shape, dtype=np.int64), np.empty(shape)
        top = lists.lists(ranker, pool, queries)
        swap_display(top, queries, self.probability, self.depth, self._rho, uniforms, displayed, rho)
        return Shown(displayed, rho)


class PlackettLuceDisplay:
    """Rankings drawn without replacement, with probabilities proportional to exp(score / tau).

    rho is exact, by dynamic programming over sets, hence only for lists of at most `LONGEST` documents; longer ones are
    shown without it. It has no floor: gates that need one refuse this display.
    """

    LONGEST = 14

    def __init__(self, examination: ArrayLike, *, tau: float = 1.0) -> None:
        self.examination = check_examination(examination)
        if not tau > 0:
            raise ValueError(f"tau: {tau}; must be positive.")
        self.tau, self.depth = float(tau), self.examination.size

    def law(self, n: int) -> None:
        return None

    def show(self, lists: ListCache, ranker: Ranker, pool: Documents, queries: IntArray, uniforms: FloatArray) -> Shown:
        from seamark.kernels.ranking import plackett_luce_display

        displayed = np.empty((queries.size, self.examination.size), dtype=np.int64)
        scores = scores_of(ranker, pool, queries, np.empty(pool.n_docs)) / self.tau
        plackett_luce_display(scores, pool.offsets, queries, uniforms, displayed)
        if np.diff(pool.offsets)[queries].max(initial=0) > self.LONGEST:
            return Shown(displayed, None)
        rho = np.ones(displayed.shape)
        for q in np.unique(queries):
            start, stop = pool.offsets[q], pool.offsets[q + 1]
            of = plackett_luce_expectation(scores[start:stop], self.examination)
            at = queries == q
            rho[at] = np.where(displayed[at] >= 0, of[np.maximum(displayed[at] - start, 0)], 1.0)
        return Shown(displayed, rho)


def plackett_luce_expectation(scores: FloatArray, values: FloatArray) -> FloatArray:
    """E[values at the document's position] under Plackett-Luce, per document; 0 beyond the last position.

    reached(S) = P(the first |S| documents are the set S), summed over sets; exact, O(2^n n).
    """
    n = scores.size
    if n > PlackettLuceDisplay.LONGEST:
        raise ValueError(f"scores: {n} documents; exact propensities are computed for {PlackettLuceDisplay.LONGEST}.")
    weight = np.exp(scores - scores.max())
    reached = np.zeros(1 << n)
    reached[0] = 1.0
    expected = np.zeros(n)
    for chosen in range(1 << n):
        position = chosen.bit_count()
        if reached[chosen] == 0.0 or position >= min(n, values.size):
            continue
        left = [d for d in range(n) if not chosen >> d & 1]
        total = weight[left].sum()
        for d in left:
            p = reached[chosen] * weight[d] / total
            expected[d] += p * values[position]
            reached[chosen | 1 << d] += p
    return expected


def serve(
    ranker: Ranker, display: Display, users: Users, draws: RankingDraws, lists: ListCache, *, first: int, version: int
) -> RankingRounds:
    """A leg in which a fixed ranker is deployed: what is displayed, what is clicked.

    `lists` (of depth `display.depth`) is kept by the caller, so that a leg costs look-ups only. `display.examination`
    is what gates and learners will assume, `users.examination` what users do; they differ where a test wants them to.
    """
    from seamark.kernels.clicks import click_lists

    shown = display.show(lists, ranker, users.documents, draws.queries, draws.actions)
    clicks = np.empty(shown.displayed.shape, dtype=np.uint8)
    click_lists(shown.displayed, users.examination, users.attraction, users.stop, draws.clicks, clicks)
    versions = np.full(draws.queries.size, version, dtype=np.int64)
    return RankingRounds(
        users.documents,
        draws.queries,
        shown.displayed,
        clicks,
        display.examination,
        versions,
        first,
        shown.propensities,
    )


# -- policy surgery ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CombinedRanker(ABC):
    """A ranker made of two, as certified and deployed: `new` in some respect, the incumbent in all others.

    Deployments nest: the incumbent may be combined itself, and appear in `new` as well. So whatever walks down the
    parts (lists, scores, id, freezing) takes each of them once.
    """

    new: Ranker
    incumbent: Ranker

    def __post_init__(self) -> None:
        is_frozen = self.new.frozen() is self.new and self.incumbent.frozen() is self.incumbent
        object.__setattr__(self, "_is_frozen", is_frozen)

    @abstractmethod
    def rank(self, lists: ListCache, pool: Documents, queries: IntArray, out: IntArray) -> None:
        """Writes the top lists of some queries into `out` (n_queries, depth), from the lists of the parts."""

    @abstractmethod
    def _content_id(self) -> str: ...

    @abstractmethod
    def _combine(self, pool: Documents, known: dict[str, FloatArray]) -> FloatArray:
        """Scores (n_docs,); `known` has those of the parts that were met so far."""

    def scores(self, pool: Documents) -> FloatArray:
        return _known_scores(self, pool, {})

    def frozen(self) -> Self:
        if self._is_frozen:  # type: ignore[attr-defined]  # set above; no field, as it is no content
            return self
        return replace(self, new=self.new.frozen(), incumbent=self.incumbent.frozen())

    @property
    def id(self) -> str:
        return self._id if self._is_frozen else self._content_id()  # type: ignore[attr-defined]  # see `frozen`

    @cached_property
    def _id(self) -> str:
        return self._content_id()


def _known_scores(ranker: Ranker, pool: Documents, known: dict[str, FloatArray]) -> FloatArray:
    key = ranker.id
    if key not in known:
        if isinstance(ranker, CombinedRanker):
            known[key] = ranker._combine(pool, known)
        else:
            known[key] = scores_of(ranker, pool, np.arange(pool.n_queries), np.empty(pool.n_docs))
    return known[key]


@dataclass(frozen=True, eq=False)
class BudgetedRanker(CombinedRanker):
    """`new` where leaving the incumbent's order costs at most `budget` in one round, else the incumbent.

    The cost of a query is sum over documents of (lam(rank by incumbent) - lam(rank by new))_+ / e(rank by incumbent):
    what one round can at most say against `new` there. So the paired score of this ranker against that incumbent is
    at least -budget, and larger bets are allowed. It is this ranker that is certified, and this one that is deployed.
    """

    examination: FloatArray
    discounts: FloatArray
    budget: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.budget > 0:
            raise ValueError(f"budget: {self.budget}; must be positive.")

    def rank(self, lists: ListCache, pool: Documents, queries: IntArray, out: IntArray) -> None:
        depth = max(out.shape[1], self.examination.size)
        theirs = lists.lists(self.incumbent, pool, queries, depth=depth)[queries]
        ours = lists.lists(self.new, pool, queries, depth=depth)[queries]
        within = (self._costs(ours, theirs) <= self.budget)[:, None]
        out[queries] = np.where(within, ours, theirs)[:, : out.shape[1]]

    def costs(self, pool: Documents) -> FloatArray:
        """Of every query, shape (n_queries,)."""
        kappa = self.examination.size
        return self._costs(top_lists(self.new, pool, kappa), top_lists(self.incumbent, pool, kappa))

    def _costs(self, ours: IntArray, theirs: IntArray) -> FloatArray:
        from seamark.kernels.ranking import switching_costs

        out, kappa = np.empty(ours.shape[0]), self.examination.size
        new, old = (np.ascontiguousarray(lists[:, :kappa]) for lists in (ours, theirs))
        switching_costs(new, old, self.discounts, 1.0 / self.examination, out)
        return out

    def _combine(self, pool: Documents, known: dict[str, FloatArray]) -> FloatArray:
        theirs, ours = (_known_scores(part, pool, known) for part in (self.incumbent, self.new))
        return np.where(np.repeat(self.costs(pool) <= self.budget, np.diff(pool.offsets)), ours, theirs)

    def _content_id(self) -> str:
        parts = {
            "new": self.new.id, "incumbent": self.incumbent.id, "budget": self.budget,
            "examination": self.examination, "discounts": self.discounts,
        }  # fmt: skip
        return content_id("budgeted-ranker", parts)


@dataclass(frozen=True, eq=False)
class RerankedRanker(CombinedRanker):
    """The incumbent's best `depth` documents in the order of `new`, the documents below as the incumbent has them.

    It shows nothing that the incumbent does not show, so its paired score is unbiased where that of `new` itself is
    only conservative: documents that nobody was shown earn `new` nothing, and it pays for those that they replace.
    Ranking costs the scores of `depth` documents per query, once the incumbent's lists are there.
    """

    depth: int

    @classmethod
    def of(cls, new: Ranker, incumbent: Ranker, depth: int) -> RerankedRanker:
        """The same order with one reranking, where the incumbent is a reranking itself.

        Reranking keeps the set of the best `depth` documents and the order of all others, so the order in which an
        inner one of the same depth left them is overwritten. Without this every deployment would nest one deeper.
        """
        while isinstance(incumbent, RerankedRanker) and incumbent.depth == depth:
            incumbent = incumbent.incumbent
        return cls(new, incumbent, depth)

    def rank(self, lists: ListCache, pool: Documents, queries: IntArray, out: IntArray) -> None:
        theirs = lists.lists(self.incumbent, pool, queries, depth=max(out.shape[1], self.depth))
        lists.reorder(self.new, pool, queries, theirs, self.depth, out)

    def _combine(self, pool: Documents, known: dict[str, FloatArray]) -> FloatArray:
        values = np.array(_known_scores(self.incumbent, pool, known))
        lists = top_lists(self, pool, self.depth)
        there = lists >= 0
        best = np.where(there, values[lists], -np.inf).max(axis=1, keepdims=True)
        # above the incumbent's best, hence above everything that stays below
        values[lists[there]] = (best + np.arange(self.depth, 0, -1))[there]
        return values

    def _content_id(self) -> str:
        parts = {"new": self.new.id, "incumbent": self.incumbent.id, "depth": self.depth}
        return content_id("reranked-ranker", parts)


# -- saving -----------------------------------------------------------------------------------------------------------


def ranker_state(ranker: Ranker) -> dict[str, Any]:
    """A ranker as arrays and plain values. A ranker that is code says so instead."""
    if isinstance(ranker, LinearRanker):
        return {"kind": "linear-ranker", "weights": np.asarray(ranker.weights)}
    if isinstance(ranker, TableRanker):
        return {"kind": "table-ranker", "values": np.asarray(ranker.values)}
    if isinstance(ranker, BudgetedRanker):
        return {
            "kind": "budgeted-ranker", "new": ranker_state(ranker.new), "incumbent": ranker_state(ranker.incumbent),
            "examination": ranker.examination, "discounts": ranker.discounts, "budget": ranker.budget,
        }  # fmt: skip
    if isinstance(ranker, RerankedRanker):
        return {
            "kind": "reranked-ranker", "new": ranker_state(ranker.new), "incumbent": ranker_state(ranker.incumbent),
            "depth": ranker.depth,
        }  # fmt: skip
    raise TypeError(f"{type(ranker).__name__}: its content is code, so it is not saved. Keep the object.")


def ranker_from(state: dict[str, Any]) -> Ranker:
    kind = state["kind"]
    if kind == "linear-ranker":
        return LinearRanker(np.array(state["weights"], dtype=np.float64)).frozen()
    if kind == "table-ranker":
        return TableRanker(np.array(state["values"], dtype=np.float64)).frozen()
    if kind == "budgeted-ranker":
        return BudgetedRanker(
            ranker_from(state["new"]), ranker_from(state["incumbent"]), np.asarray(state["examination"]),
            np.asarray(state["discounts"]), float(state["budget"]),
        )  # fmt: skip
    if kind == "reranked-ranker":
        return RerankedRanker(ranker_from(state["new"]), ranker_from(state["incumbent"]), int(state["depth"]))
    known = "linear-ranker, table-ranker, budgeted-ranker, reranked-ranker"
    raise ValueError(f"ranker kind {kind!r}; this version knows {known}.")
