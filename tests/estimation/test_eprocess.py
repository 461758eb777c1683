"""Betting evidence, and the weaker evidence from moments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom

from seamark.estimation.eprocess import (
    BettingMixture,
    ScoreBelowBound,
    bet_grid,
    empirical_bernstein_log_evidence,
    lift_lower,
    score_bounds,
    truncations,
)


def test_mixture_is_the_average_of_products_over_estimators_and_bets() -> None:
    """Worked on three rounds with the formula itself; catches a missing log(count) and a wrong grid of bets."""
    z, bounds = np.array([[0.5, 1.0], [-1.0, -3.0], [4.0, 0.0]]), np.array([1.0, 9.0])
    evidence = BettingMixture(bounds, margin=0.1, n_bets=3)
    evidence.update(z)

    capitals = [
        np.prod([1 + 0.9 / (bounds[e] + 0.1) / 2**j * (z[i, e] - 0.1) for i in range(3)])
        for e in range(2)
        for j in range(3)
    ]
    assert evidence.log_evidence == pytest.approx(math.log(sum(capitals) / 6), abs=1e-12)


def test_negative_margin_does_not_enlarge_the_bets() -> None:
    """z - mu0 is above z then, so the bound B alone limits the bet."""
    np.testing.assert_array_equal(bet_grid([2.0], margin=-0.5), bet_grid([2.0]))
    assert bet_grid([2.0], margin=0.5)[0, 0] == 0.9 / 2.5


def test_equal_and_needlessly_large_truncations_merge() -> None:
    assert truncations((0, 8, 32, math.inf), 8.0).tolist() == [0.0, 8.0]
    assert score_bounds(truncations((0, 8, math.inf), 0.5)).tolist() == [1.0, 2.0]


def test_splitting_the_rounds_leaves_the_evidence() -> None:
    rng = np.random.default_rng(1)
    z = rng.exponential(2.0, size=(300, 2)) - 1
    whole, parts = BettingMixture([1.0, 2.0]), BettingMixture([1.0, 2.0])
    whole.update(z)
    for row in z:
        parts.update(row[None])

    assert parts.log_evidence == pytest.approx(whole.log_evidence, abs=1e-12)
    again = BettingMixture([1.0, 2.0])
    again.restore(parts.state())
    assert again.log_evidence == parts.log_evidence
    assert again.n == 300


def test_score_below_its_bound_raises_and_is_never_clipped() -> None:
    """Rounding is let pass (1e-9), more is not: a clipped score has a higher mean than the truth."""
    evidence = BettingMixture([1.0])
    evidence.update([[-1.0 - 1e-10]])
    with pytest.raises(ScoreBelowBound, match="below its bound"):
        evidence.update([[-1.0 - 1e-8]])
    with pytest.raises(ValueError, match="NaN"):
        evidence.update([[math.nan]])


@pytest.mark.parametrize("margin", [-0.2, 0.0, 0.3])
def test_evidence_from_moments_equals_the_sum_over_rounds(margin: float) -> None:
    """Trap 16: S2' = (S2 - 2 mu0 S1 + n mu0^2) / (B + max(mu0, 0))^2; S2 alone would be another, larger value."""
    rng = np.random.default_rng(2)
    z, bound = rng.exponential(1.0, 500) - 0.7, 1.0
    v = (z - margin) / (bound + max(margin, 0.0))
    bets = 0.8 / 2.0 ** np.arange(12)
    terms = bets * v.sum() - (-np.log1p(-bets) - bets) * (v**2).sum()

    got = empirical_bernstein_log_evidence(z.size, z.sum(), (z**2).sum(), bound=bound, margin=margin)
    assert got == pytest.approx(logsumexp(terms) - math.log(12), abs=1e-9)


def test_evidence_from_moments_never_exceeds_what_the_bets_earn() -> None:
    """Fan's inequality, bet by bet: exp(l v - psi(l) v^2) <= 1 + l v for v >= -1."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        z = rng.choice([-1.0, 0.0, 1.0, 30.0], size=50, p=[0.3, 0.4, 0.2, 0.1])
        for j in range(12):
            bet = 0.8 / 2**j
            earned = np.log1p(bet * z).sum()
            assert bet * z.sum() - (-math.log1p(-bet) - bet) * (z**2).sum() <= earned + 1e-9


@pytest.mark.parametrize("case", range(40))
def test_lift_lower_is_the_smallest_gain_that_is_not_rejected(case: int) -> None:
    """Against a fine grid from below; in some cases the evidence first rises with m (a plain bisection errs)."""
    rng = np.random.default_rng(case)
    n, bound, alpha = int(rng.integers(1, 3000)), float(rng.choice([1.0, 2.0, 9.0])), 10.0 ** -rng.uniform(0.5, 4)
    z = rng.choice([-bound, 0.0, 1.0, 5.0], size=n, p=rng.dirichlet([0.3, 1.0, 1.0, 0.3]))
    s1, s2 = z.sum(), (z**2).sum()

    def log_evidence(m: float) -> float:
        v = (z - m) / (bound + 1)
        bets = 0.8 / 2.0 ** np.arange(12)
        terms = bets * v.sum() - (-np.log1p(-bets) - bets) * (v**2).sum()
        return float(logsumexp(terms) - math.log(12))

    got = lift_lower(n, s1, s2, bound=bound, alpha=alpha)
    grid = np.linspace(-1, 1, 2001)
    accepted = [m for m in grid if log_evidence(m) < math.log(1 / alpha)]
    if accepted:
        assert accepted[0] - 0.001 - 1e-6 <= got <= accepted[0] + 1e-6
    else:
        assert got >= 1 - 0.001 - 1e-6


def test_lift_lower_stops_at_the_first_gap_of_the_rejected_gains() -> None:
    """1,000 scores of 1, B = 1, ln(1/alpha) = 193: rejected up to about -.17, then not, then again around 0.

    Gains of the first gap are not rejected, so a limit beyond it would be wrong; a plain bisection ends there.
    """
    alpha = math.exp(-193)
    rejected = {
        m: empirical_bernstein_log_evidence(1_000, 1_000 * (1 - m), 1_000 * (1 - m) ** 2, bound=2.0) >= 193
        for m in (-0.5, -0.15, 0.0)
    }
    assert rejected == {-0.5: True, -0.15: False, 0.0: True}
    assert -0.5 < lift_lower(1_000, 1_000.0, 1_000.0, bound=1.0, alpha=alpha) < -0.15


def test_lift_lower_is_minus_one_without_evidence() -> None:
    assert lift_lower(0, 0.0, 0.0, bound=1.0, alpha=0.05) == -1.0
    assert lift_lower(3, 0.0, 0.0, bound=1.0, alpha=1e-6) == -1.0


@pytest.mark.statistical
def test_lift_lower_exceeds_the_truth_at_most_alpha_of_the_time_at_any_look() -> None:
    """False alarm <= 1e-6. Rare large scores: half the variance term would give a rate above 0.1 here."""
    rng, runs, misses = np.random.default_rng(4), 400, 0
    for _ in range(runs):
        z = np.where(rng.random(3000) < 0.02, 49.0, -1.0)  # mean 0
        s1, s2 = np.cumsum(z), np.cumsum(z**2)
        misses += any(
            lift_lower(n, s1[n - 1], s2[n - 1], bound=1.0, alpha=0.05, tolerance=1e-3) > 0
            for n in range(50, 3001, 50)
            if s1[n - 1] > 0
        )

    assert binom.sf(misses - 1, runs, 0.05) > 1e-6, misses
