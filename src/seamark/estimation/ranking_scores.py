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
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from seamark.estimation.eprocess import TOLERANCE, ScoreBelowBound
from seamark.estimation.ranking_metrics import dcg_weights
from seamark.policies.combined import BudgetedRanker
from seamark.policies.displays import AsRanked, Display
from seamark.policies.rankers import ListCache, Ranker
from seamark.rankings import RankingRounds
from seamark.rounds import FloatArray


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
