"""A judged ranking set as a bandit: queries drawn with replacement, simulated users who click."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from seamark.estimation.ranking_metrics import CUTOFF, dcg_weights, ideal_dcg, ndcg
from seamark.estimation.ranking_scores import shown_discounts
from seamark.policies.displays import Display
from seamark.policies.rankers import LinearRanker, Ranker, top_lists
from seamark.randomness import Stream, stream
from seamark.rankings import Clicks, Documents, Users, documents
from seamark.rounds import FloatArray, IntArray
from seamark.worlds.clicks import ClickModel, find_model
from seamark.worlds.letor import Queries, RankingData

ASSUMED_UNDER_CASCADE = 1.0
"""eta that gates and learners assume of users who go down the list until satisfied, as published: e(j) = 1 / j."""


@dataclass(frozen=True, eq=False)
class Judged:
    """One part of a set: its documents, what the judges say of them, what its users do."""

    pool: Documents
    grades: IntArray
    users: Users

    @classmethod
    def of(cls, queries: Queries, model: ClickModel, max_grade: int) -> Judged:
        pool = documents(queries.features, queries.offsets, queries.doc_hash)
        su = model.users(queries.grades, max_grade=max_grade)
        return cls(pool, queries.grades, Users(pool, su.examination, su.attraction, su.stop))

    @cached_property
    def ideal(self) -> FloatArray:
        return ideal_dcg(self.grades, self.pool.offsets)

    def gain(self, lists: IntArray) -> FloatArray:
        """Exact expected click-DCG@10 of each list: what gates certify.

        Position by position, so that equal lists have equal gains to the bit, whatever they stand beside.
        """
        total = np.zeros(lists.shape[0])
        for place, weight in zip(lists.T, dcg_weights(lists.shape[1])):
            total += weight * np.where(place >= 0, self.users.attraction[place], 0.0)
        return total

    def ndcg(self, lists: IntArray, queries: IntArray) -> FloatArray:
        """nDCG@10 of each list, shown for these queries; 0 where a query has no relevant document."""
        from seamark.kernels.clicks import dcg

        reached = np.empty(queries.size)
        dcg(lists, self.grades, dcg_weights(), reached)
        ideal = self.ideal[queries]
        return np.divide(reached, ideal, out=np.zeros(queries.size), where=ideal > 0)

    def clicks(self, lists: IntArray, uniforms: FloatArray) -> Clicks:
        """Who clicks what, given one uniform per position."""
        from seamark.kernels.clicks import click_lists

        out = np.empty(lists.shape, dtype=np.uint8)
        click_lists(lists, self.users.examination, self.users.attraction, self.users.stop, uniforms, out)
        return out

    def score(self, ranker: Ranker) -> tuple[float, float]:
        """Mean nDCG@10 and mean expected click-DCG@10 of a ranker shown as it ranks, exact."""
        lists = top_lists(ranker, self.pool, CUTOFF)
        return float(ndcg(lists, self.grades, self.pool.offsets).mean()), float(self.gain(lists).mean())

    def shown_value(self, ranker: Ranker, display: Display) -> float:
        """Mean expected click-DCG@10 of a ranker shown through `display`, exact: over its draws, too."""
        worth = shown_discounts(display, dcg_weights(display.examination.size))
        lists = top_lists(ranker, self.pool, display.depth)
        there = lists >= 0
        attraction = np.where(there, self.users.attraction[lists], 0.0)
        return float((attraction * worth[there.sum(axis=1)]).sum(axis=1).mean())


@dataclass(frozen=True, eq=False)
class RankingWorld:
    """`train` is the population of queries; the test queries never enter a round."""

    name: str
    train: Judged
    test: Judged
    model: ClickModel
    max_grade: int
    sha256: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: RankingData, clicks: str = "perfect") -> RankingWorld:
        model = find_model(clicks)
        notes = list(data.notes)
        if model.is_cascade:
            notes.append(f"{clicks} users read down the list until they leave; gates assume e(j) = 1/j: no certificate")
        return cls(
            data.name, Judged.of(data.train, model, data.max_grade), Judged.of(data.test, model, data.max_grade),
            model, data.max_grade, data.sha256, tuple(notes),
        )  # fmt: skip

    @property
    def pool(self) -> Documents:
        return self.train.pool

    @property
    def n_queries(self) -> int:
        return self.train.pool.n_queries

    @property
    def n_features(self) -> int:
        return int(self.train.pool.features.shape[1])

    @property
    def kappa(self) -> int:
        return int(self.train.users.examination.size)

    @property
    def examination(self) -> FloatArray:
        """e(j) as gates and learners assume it; what position-based users do, and false of cascade users."""
        if self.model.is_cascade:
            return np.arange(1, self.kappa + 1, dtype=np.float64) ** -ASSUMED_UNDER_CASCADE
        return self.train.users.examination

    @cached_property
    def norm(self) -> float:
        """Mean squared length of a document's distance from the mean document of its query: what rankings see."""
        pool = self.pool
        total = 0.0
        for q in range(pool.n_queries):
            x = pool.features[pool.offsets[q] : pool.offsets[q + 1]].astype(np.float64)
            total += float(((x - x.mean(axis=0)) ** 2).sum())
        return total / max(1, pool.n_docs)

    def queries(self, uniforms: FloatArray) -> IntArray:
        """Queries, uniformly with replacement."""
        return np.minimum((uniforms * self.n_queries).astype(np.int64), self.n_queries - 1)

    def value(self, ranker: Ranker, display: Display | None = None) -> float:
        """Exact expected click-DCG@10 over the population of queries, shown as ranked or through `display`: the judge
        of safety."""
        return self.train.score(ranker)[1] if display is None else self.train.shown_value(ranker, display)


@dataclass(frozen=True, eq=False)
class RankingBaseline:
    """The production ranker of a run, with what it shows for every query of the population."""

    ranker: LinearRanker
    lists: IntArray
    gain: FloatArray
    """Expected click-DCG@10 of each list."""
    ndcg: FloatArray
    config: dict[str, Any]


def train_production(
    world: RankingWorld, *, seed: int, fraction: float, lr: float, epochs: int, least: int = 1
) -> RankingBaseline:
    """A linear ranker by pairwise hinge SGD on the grades of a share of the queries, drawn anew per seed.

    Only queries with documents of different grades are drawn: others teach nothing. At least `least` of them, or as
    many as there are; without any, the ranker scores everything 0 and documents stand in the order of their hash.
    One step per document i that is better than others:
    w += lr * sum over worse j with s_i - s_j < 1 of (f_i - f_j).
    """
    rng = stream(seed, Stream.BASELINE)
    pool, grades = world.pool, world.train.grades
    low, high = (f.reduceat(grades, pool.offsets[:-1]) for f in (np.minimum, np.maximum))
    useful = np.flatnonzero(high > low)
    m = min(useful.size, max(least, round(fraction * world.n_queries)))
    chosen = rng.permutation(useful)[:m]
    weights = np.zeros(world.n_features)
    for _ in range(epochs):
        for q in rng.permutation(chosen):
            rows = slice(pool.offsets[q], pool.offsets[q + 1])
            x, g = pool.features[rows].astype(np.float64), grades[rows]
            for i in rng.permutation(np.flatnonzero(g > low[q])):
                scores = x @ weights
                close = x[(g < g[i]) & (scores[i] - scores < 1)]
                weights += lr * (close.shape[0] * x[i] - close.sum(axis=0))
    ranker = LinearRanker(weights).frozen()
    lists = top_lists(ranker, pool, world.kappa)
    config = {"fraction": m / world.n_queries, "queries": int(m), "lr": lr, "epochs": epochs}
    everything = np.arange(world.n_queries)
    return RankingBaseline(ranker, lists, world.train.gain(lists), world.train.ndcg(lists, everything), config)
