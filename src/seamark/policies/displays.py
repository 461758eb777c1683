"""How an order of documents is shown: as it is, with swaps of neighbours, or sampled (Plackett-Luce)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from seamark.policies.rankers import ListCache, Ranker, scores_of
from seamark.rankings import Documents, RankingDraws, RankingRounds, Users
from seamark.rounds import FloatArray, IntArray


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
