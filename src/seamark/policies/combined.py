"""Rankers made of two, as gates certify and deploy them: policy surgery. And rankers as plain state and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from seamark.policies.base import content_id
from seamark.policies.rankers import LinearRanker, ListCache, Ranker, TableRanker, scores_of, top_lists
from seamark.rankings import Documents
from seamark.rounds import FloatArray, IntArray


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
        from seamark.kernels.ranking_scores import switching_costs

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
