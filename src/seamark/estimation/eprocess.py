r"""Evidence that a challenger is better: betting e-processes on paired scores.

A score z of a round has E[z | past] = the challenger's gain over the deployed policy (or less), and z >= -B with B
known beforehand; there is no upper bound, and none is needed. Under H0: E[z | past] <= mu0,

.. math:: M_n = \prod_i (1 + \lambda (z_i - \mu_0)), \qquad 0 \le \lambda < 1 / (B + \max(\mu_0, 0))

is a non-negative supermartingale, so P(M_n >= 1/alpha for some n) <= alpha [Ville]. Averages of such processes over
scores and bets are such processes. Bets are constant: then the statement holds even if only the *average* of the
conditional means so far is at most mu0 (drift); with bets that adapt it would not.

Arrays: scores (rounds, estimators); bounds (estimators,); bets and log capitals (estimators, bets).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from seamark.rounds import FloatArray

N_BETS = 12
LARGEST_BET = 0.9  # share of what the bound allows, so that a factor is never below 0.1
LARGEST_EB_BET = 0.8
NO_FLOOR_TRUNCATION = 128.0
"""k of the estimator "inf" where no floor of the logging probabilities is known."""
TOLERANCE = 1e-9
"""Rounding allowed below a score's bound."""


class ScoreBelowBound(ValueError):
    """A score is below the bound that its evidence relies on: the recorded probabilities cannot be right."""


def truncations(estimators: Iterable[float], largest: float) -> FloatArray:
    """The distinct truncations k, ascending, none above `largest` (a larger one is the same score, bounded worse).

    >>> truncations((0, 8, 32, math.inf), 99.0).tolist(), truncations((0, 8, 32, math.inf), 19.0).tolist()
    ([0.0, 8.0, 32.0, 99.0], [0.0, 8.0, 19.0])
    """
    return np.array(sorted({min(float(k), largest) for k in estimators}))


def score_bounds(truncated_at: ArrayLike, ratio: float = 1.0) -> FloatArray:
    """B with z >= -B: M for k = 0 (IPS), else 1 + max(M, k), where (d - h) / p <= M = `ratio` is known beforehand.

    >>> score_bounds([0.0, 0.5, 8.0]).tolist(), score_bounds([0.0, 0.5, 8.0], ratio=2.0).tolist()
    ([1.0, 2.0, 9.0], [2.0, 3.0, 9.0])
    """
    k = np.asarray(truncated_at, dtype=np.float64)
    return np.where(k == 0, ratio, 1 + np.maximum(ratio, k))


def bet_grid(bounds: ArrayLike, margin: float = 0.0, n_bets: int = N_BETS) -> FloatArray:
    """Bets lambda_ej = 0.9 / (B_e + max(mu0, 0)) 2^-j, shape (estimators, n_bets)."""
    room = np.asarray(bounds, dtype=np.float64) + max(margin, 0.0)
    return LARGEST_BET / room[:, None] * 2.0 ** -np.arange(n_bets)


def log_mean_exp(log_values: FloatArray) -> float:
    """ln of the mean of exp(log_values); NaN if any is NaN."""
    top = float(log_values.max())
    if not math.isfinite(top):
        return top
    return top + math.log(float(np.exp(log_values - top).mean()))


class BettingMixture:
    """The e-process: an even mixture over estimators and constant bets.

    >>> evidence = BettingMixture(bounds=[1.0])
    >>> evidence.update(np.full((100, 1), 0.1))
    >>> evidence.log_evidence > math.log(1 / 0.05)
    True
    """

    def __init__(self, bounds: ArrayLike, *, margin: float = 0.0, n_bets: int = N_BETS) -> None:
        self.bounds, self.margin = np.atleast_1d(np.asarray(bounds, dtype=np.float64)), margin
        self.bets = bet_grid(self.bounds, margin, n_bets)
        self.log_capital = np.zeros_like(self.bets)
        self.n = 0

    def update(self, scores: ArrayLike) -> None:
        """Takes in rounds in decision order, each once; rounds of score 0 count too (they cost the margin)."""
        z = np.asarray(scores, dtype=np.float64)
        if z.ndim != 2 or z.shape[1] != self.bounds.size:
            raise ValueError(f"scores: shape {z.shape}; must be (rounds, {self.bounds.size}).")
        check_scores(z, self.bounds)
        self.log_capital += np.log1p(self.bets * (z[:, :, None] - self.margin)).sum(axis=0)
        self.n += z.shape[0]

    @property
    def log_evidence(self) -> float:
        """ln E; reject at level alpha when it reaches ln(1 / alpha), at whatever time."""
        return log_mean_exp(self.log_capital)

    def state(self) -> dict[str, Any]:
        return {"log_capital": self.log_capital.copy(), "n": self.n}

    def restore(self, state: dict[str, Any]) -> None:
        self.log_capital, self.n = np.array(state["log_capital"]), int(state["n"])


def check_scores(scores: FloatArray, bounds: FloatArray) -> None:
    """Raises unless every score is a number and at least -B. Never clips: a clipped score proves nothing."""
    if np.isnan(scores).any():
        row, e = (int(i) for i in np.argwhere(np.isnan(scores))[0])
        raise ValueError(f"scores: row {row}, estimator {e} is NaN; evidence needs a number in every round.")
    low = scores < -bounds - TOLERANCE
    if low.any():
        row, e = (int(i) for i in np.argwhere(low)[0])
        raise ScoreBelowBound(
            f"scores: row {row} is {scores[row, e]}, below its bound -{bounds[e]:g}. Record the probabilities that the "
            "actions were drawn from, unclipped."
        )


def empirical_bernstein_log_evidence(
    n: int, s1: ArrayLike, s2: ArrayLike, *, bound: ArrayLike, margin: float = 0.0, n_bets: int = N_BETS
) -> float:
    r"""ln E from the moments n, S1 = sum z, S2 = sum z^2 alone; weaker than `BettingMixture`.

    .. math:: \ln E = \ln \frac1J \sum_j \exp(\lambda_j S_1' - \psi(\lambda_j) S_2')

    with v = (z - mu0) / (B + max(mu0, 0)), S1' = sum v, S2' = sum v^2, psi(l) = -ln(1 - l) - l, lambda_j = 0.8 2^-j
    [Fan, Grama and Liu 2015]. n counts all rounds, those of score 0 too. With arrays s1, s2,
    bound: an even mixture over scores for one and the same null.
    """
    room = np.atleast_1d(np.asarray(bound, dtype=np.float64)) + max(margin, 0.0)
    return log_mean_exp(_eb_terms(n, np.atleast_1d(s1), np.atleast_1d(s2), room, margin, n_bets))


def _eb_terms(n: int, s1: FloatArray, s2: FloatArray, room: FloatArray, margin: float, n_bets: int) -> FloatArray:
    """lambda_j S1' - psi(lambda_j) S2', shape (scores, bets); each is concave in the margin while `room` is fixed."""
    bets = LARGEST_EB_BET * 2.0 ** -np.arange(n_bets)
    psi = -np.log1p(-bets) - bets
    first = (s1 - n * margin) / room
    second = np.maximum(s2 - 2 * margin * s1 + n * margin * margin, 0.0) / room**2
    terms: FloatArray = bets * first[:, None] - psi * second[:, None]
    return terms


def lift_lower(
    n: int,
    s1: ArrayLike,
    s2: ArrayLike,
    *,
    bound: ArrayLike,
    alpha: float,
    n_bets: int = N_BETS,
    tolerance: float = 1e-7,
) -> float:
    """Lower confidence limit of the mean score: the smallest m in [-1, 1] not rejected at level alpha, at any time.

    inf{m in [-1, 1]: ln E(m) < ln(1/alpha)}, with B + 1 in place of B so that one scaling serves all m; -1 if even
    m = -1 is not rejected, 1 if everything is. The limit is a looser, separate statement than the betting evidence:
    it is usually still negative when that fires. Never combine the two at one level.
    """
    if n == 0:
        return -1.0
    room = np.atleast_1d(np.asarray(bound, dtype=np.float64)) + 1.0
    first, second = np.atleast_1d(s1), np.atleast_1d(s2)
    needed = math.log(1 / alpha)

    def terms(m: float) -> FloatArray:
        return _eb_terms(n, first, second, room, m, n_bets)

    # ln E(m) need not fall everywhere. Its terms are concave, so on an interval each is at least its lower end:
    # where that is enough, the whole interval is rejected; where not, halve it, left half first.
    todo = [(-1.0, 1.0, terms(-1.0), terms(1.0))]
    while todo:
        low, high, at_low, at_high = todo.pop()
        if log_mean_exp(np.minimum(at_low, at_high)) >= needed:
            continue
        if high - low <= tolerance or not log_mean_exp(at_low) >= needed:
            return low
        middle = (low + high) / 2
        at_middle = terms(middle)
        todo += [(middle, high, at_middle, at_high), (low, middle, at_low, at_middle)]
    return 1.0
