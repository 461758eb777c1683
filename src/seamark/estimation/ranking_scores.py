r"""What a round with clicks says of a ranker, or of a pair of rankers.

Worth of a ranker f, additive over documents and cut at the display (position-based users, examination e known):

.. math:: V(f) = E_q \sum_d \lambda(rank_f(d|q)) \alpha(q, d), \quad \lambda(j) = 1\{j \le \kappa\} / \log_2(1 + j)

alpha: probability of a click once looked at. Where the order is not shown as it is, lambda(rank) is the expected
discount of the position at which that rank is shown (`shown_discounts`): V is what users are shown, of both rankers.
The incumbent d displays D_t; a click at position j counts 1/e(j):

.. math:: z_t = \sum_{d \in D_t} c_d [\lambda(rank_h(d)) - \lambda(rank_d(d))] / e(j_d)

Documents that h would show and the incumbent did not count nothing, where the truth counts at least nothing: so
E z <= V(h) - V(incumbent), with equality where both show the same documents. **This needs lambda = 0 below the
display.** With a metric of the whole list (as released) documents that nobody was shown are credited to the incumbent
as well, and worse rankers win: the certified metric must be the reported one.

A sample is a round, not a click: clicks of one round are dependent, and their number is random.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from seamark.estimation.bounds import Moments
from seamark.estimation.eprocess import TOLERANCE, ScoreBelowBound
from seamark.estimation.ranking_metrics import dcg_weights
from seamark.policies.combined import BudgetedRanker
from seamark.policies.displays import AsRanked, Display
from seamark.policies.rankers import ListCache, Ranker, UnsoundRanker, scores_of
from seamark.rankings import Documents, RankingRounds
from seamark.rounds import FloatArray, IntArray

RankingSemantics = Literal["paper", "released"]
AfterDeployment = Literal["restart", "keep"]
RELEASED_CAP = 0.01


class NoFloor(ValueError):
    """The display has no propensity that is known beforehand, so a score has no bound."""


class NotDisplayed(ValueError):
    """The rounds do not show what the deployed ranker displays: the propensities do not belong to them."""


class Ranges(NamedTuple):
    """What one round's score can be, known beforehand."""

    lower: float
    """B: the paired score is at least -B."""
    candidate: float
    """b_h: the score of any ranker on rounds that somebody else displayed is in [0, b_h]."""
    incumbent: float
    """b_d: the incumbent's own score on rounds that it displayed is in [0, b_d]; equals B."""


def discounts_at(kappa: int, discounts: ArrayLike | None = None) -> FloatArray:
    """lambda(1..kappa): the given ones, checked, or those of DCG."""
    lam = dcg_weights(kappa) if discounts is None else np.ascontiguousarray(discounts, dtype=np.float64)
    if lam.shape != (kappa,) or not (np.isfinite(lam) & (lam >= 0)).all() or (np.diff(lam) > 0).any():
        raise ValueError(f"discounts: {lam.tolist()}; must be {kappa} numbers, non-negative, not increasing.")
    return lam


def shown_discounts(display: Display, discounts: FloatArray) -> FloatArray:
    """E[lambda(position) | rank] among n documents at [n, rank - 1], shape (depth + 1, depth); 0 where not shown."""
    out = np.zeros((display.depth + 1, display.depth))
    for n in range(1, display.depth + 1):
        law = display.law(n)
        if law is None:
            raise NoFloor(
                "display: its propensities have no floor that is known beforehand, so the score of a round has no "
                "bound. Show the order as it is, or with swaps (SwapDisplay)."
            )
        out[n, :n] = law[:n] @ discounts
    return out


def ranges(display: Display, discounts: FloatArray) -> Ranges:
    r"""Bounds of one round's scores under a display whose propensities follow from ranks.

    Shown as ranked: :math:`B = b_d = \sum_j \lambda(j)/e(j)`, and b_h pairs the largest lambda with the largest
    1/e. With eta = 1, ten positions and DCG:

    >>> r = ranges(AsRanked(1 / np.arange(1, 11)), discounts_at(10))
    >>> round(r.lower, 3), round(r.candidate, 3)
    (20.013, 29.966)

    Under swaps, rho(rank) replaces e and the worst displayable list of any length counts. Assumes discounts that
    are non-negative and a deterministic incumbent (the order that is swapped).
    """
    lower, candidate = 0.0, 0.0
    worth, looked_at = shown_discounts(display, discounts), shown_discounts(display, display.examination)
    for n in range(1, display.depth + 1):
        lam, inverse = worth[n, :n], 1.0 / looked_at[n, :n]
        shown = min(n, display.examination.size)
        lower = max(lower, float(np.sort(lam * inverse)[::-1][:shown].sum()))
        candidate = max(candidate, float((np.sort(lam)[::-1] * np.sort(inverse)[::-1])[:shown].sum()))
    return Ranges(lower, candidate, lower)


class PairedScores(NamedTuple):
    """z per round and the bound B: z >= -B."""

    values: FloatArray
    bound: float


class RankingScorer:
    """Paired scores of rankers, from top lists that are computed once per query and ranker.

    Assumes: the rounds were displayed by the ranker passed as `deployed` through `display`, and users examine
    position j with probability e(j) whatever they saw. Under cascade users or a wrong e the score is unbiased for
    another quantity, and so is everything certified with it.

    ceiling: 1/e is cut to it on documents that the new ranker promotes (variance for power; stays conservative).
    """

    def __init__(
        self,
        display: Display | ArrayLike,
        *,
        discounts: ArrayLike | None = None,
        ceiling: float = math.inf,
        rankers_kept: int = 16,
    ) -> None:
        self.display = as_display(display)
        self.kappa = int(self.display.examination.size)
        self.discounts = discounts_at(self.kappa, discounts)
        if not ceiling > 0:
            raise ValueError(f"ceiling: {ceiling}; must be positive.")
        self.ceiling = float(ceiling)
        self.ranges = ranges(self.display, self.discounts)
        self._by_rank = shown_discounts(self.display, self.discounts)
        self._cache = ListCache(self.display.depth, capacity=rankers_kept)

    def bound(self, new: Ranker, deployed: Ranker) -> float:
        """B of this pair: the budget where `new` was cut to it against this very incumbent."""
        if (
            isinstance(new, BudgetedRanker)
            and isinstance(self.display, AsRanked)
            and new.incumbent.id == deployed.id
            and np.array_equal(new.discounts, self.discounts)
            and np.array_equal(new.examination, self.display.examination)
        ):
            return min(new.budget, self.ranges.lower)
        return self.ranges.lower

    def paired(self, new: Ranker, deployed: Ranker, rounds: RankingRounds) -> PairedScores:
        """z of every round; without a click it is 0. Raises if one is below its bound; never clips from below."""
        from seamark.kernels.ranking_scores import paired_scores

        bound = self.bound(new, deployed)
        z = np.zeros(len(rounds))
        if not len(rounds):
            return PairedScores(z, bound)
        pool = rounds.documents
        self._check(deployed, rounds)
        clicked = np.flatnonzero(rounds.clicks.any(axis=1))
        if clicked.size:
            asked = rounds.queries[clicked]
            top_old = self._cache.lists(deployed, pool, asked)
            top_new = self._cache.lists(new, pool, asked)
            paired_scores(
                rounds.queries, rounds.displayed, rounds.clicks, rounds.weights(),
                top_new, top_old, self._by_rank, self.ceiling, z,
            )  # fmt: skip
        if (z < -bound - TOLERANCE).any():
            row = int(np.argmin(z))
            raise ScoreBelowBound(
                f"scores: round {rounds.first + row} is {z[row]}, below its bound -{bound:g}. Record the examination "
                "probabilities, unclipped."
            )
        return PairedScores(z, bound)

    def _check(self, deployed: Ranker, rounds: RankingRounds) -> None:
        if not np.array_equal(rounds.examination, self.display.examination):
            raise ValueError(
                f"rounds: examination {rounds.examination.tolist()}; the gate was built for "
                f"{self.display.examination.tolist()}."
            )
        if isinstance(self.display, AsRanked):
            if rounds.propensities is not None:
                raise ValueError("rounds: displayed at random, but the gate was built for orders shown as they are.")
            top = self._cache.lists(deployed, rounds.documents, rounds.queries)
            if not np.array_equal(top[rounds.queries], rounds.displayed):
                raise NotDisplayed(
                    "rounds: not what the deployed ranker displays. Score rounds under the ranker that acted in them."
                )
        elif rounds.propensities is None:
            raise ValueError("rounds: no propensities; a random display must record rho of each displayed document.")


def as_display(display: Display | ArrayLike) -> Display:
    """Examination probabilities alone mean: shown as ranked."""
    return display if hasattr(display, "show") else AsRanked(display)  # type: ignore[return-value]


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
