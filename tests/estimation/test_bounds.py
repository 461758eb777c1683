"""Confidence radii: worked values, and the promise in the hard case."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.estimation import Moments, hoeffding_radius, maurer_pontil_radius
from seamark.rounds import FloatArray
from support import assert_rate_at_most

DELTA = 0.05


def moments_of(x: FloatArray) -> Moments:
    return Moments(x.size, float(x.sum()), float((x * x).sum()))


def test_the_radius_is_the_formula_of_the_paper() -> None:
    """CB as printed, with the double sum written out, on four records."""
    x = [0.0, 1.0, 4.0, 1.0]
    t, b, log_term = 4, 5.0, math.log(2 / DELTA)
    double_sum = sum((one - other) ** 2 for one in x for other in x)
    expected = 7 * b * log_term / (3 * (t - 1)) + 1 / t * math.sqrt(log_term / (t - 1) * double_sum)

    assert moments_of(np.array(x)).spread == double_sum
    assert maurer_pontil_radius(moments_of(np.array(x)), upper=b, delta=DELTA) == pytest.approx(expected, rel=1e-15)


def test_the_radius_is_maurer_and_pontils_theorem_scaled() -> None:
    """b times their radius of x / b: sqrt(2 V ln(2/delta) / n) + 7 ln(2/delta) / (3 (n - 1)), V unbiased."""
    x = np.random.default_rng(1).random(50) * 3
    v = (x / 3).var(ddof=1)
    theirs = math.sqrt(2 * v * math.log(2 / DELTA) / 50) + 7 * math.log(2 / DELTA) / (3 * 49)

    assert maurer_pontil_radius(moments_of(x), upper=3.0, delta=DELTA) == pytest.approx(3 * theirs, rel=1e-12)


def test_hoeffdings_radius_is_its_formula() -> None:
    """b sqrt(ln(1/delta) / (2 n))."""
    assert hoeffding_radius(8, upper=3.0, delta=0.1) == 3 * math.sqrt(math.log(1 / 0.1) / 16)
    assert hoeffding_radius(0, upper=3.0, delta=0.1) == math.inf


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_rounds_bound_nothing(n: int) -> None:
    """The radius is infinite where the variance does not exist."""
    assert maurer_pontil_radius(Moments(n, 0.0, 0.0), upper=1.0, delta=DELTA) == math.inf


def test_equal_values_have_no_spread_whatever_rounding_does() -> None:
    """n S2 - S1^2 may come out below zero; without the clamp the root fails."""
    x = np.full(1000, 0.1)

    assert Moments(3, 3.0, 3.0 - 1e-12).spread == 0.0
    assert moments_of(x).spread < 1e-8
    assert math.isfinite(maurer_pontil_radius(moments_of(x), upper=1.0, delta=DELTA))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20), st.floats(0.001, 0.5), st.floats(1.01, 10))
def test_radii_grow_with_certainty_and_range_and_shrink_with_repetition(
    values: list[float], delta: float, factor: float
) -> None:
    """Smaller delta or larger b: wider; the whole log repeated: narrower."""
    x = np.array(values)

    def radius(x: FloatArray, b: float, d: float) -> float:
        return maurer_pontil_radius(moments_of(x), upper=b, delta=d)

    assert radius(x, 1.0, delta / factor) > radius(x, 1.0, delta)
    assert radius(x, factor, delta) > radius(x, 1.0, delta)
    assert radius(np.tile(x, 2), 1.0, delta) < radius(x, 1.0, delta)
    assert hoeffding_radius(x.size, upper=1.0, delta=delta / factor) > hoeffding_radius(x.size, upper=1.0, delta=delta)


def misses(x: FloatArray, mean: float, *, above: bool, upper: float = 1.0) -> int:
    """In how many rows the mean lies beyond the radius."""
    sign = 1 if above else -1
    return sum(
        sign * (mean - row.mean()) > maurer_pontil_radius(moments_of(row), upper=upper, delta=DELTA) for row in x
    )


@pytest.mark.statistical
def test_the_upper_bound_misses_a_rare_reward_at_most_delta_of_the_time() -> None:
    """False alarm <= 1e-6; a miss rate of 2 delta is caught with probability > 1 - 1e-6.

    200 rounds of a reward of 2 %: without the 7b term it misses 360 of 4,000, where 200 are promised: a
    variance of 0 in rows without any reward is what the term is for.
    """
    x = np.random.default_rng(20200406).binomial(1, 0.02, size=(4000, 200)).astype(float)

    assert_rate_at_most(misses(x, 0.02, above=True), 4000, DELTA)


@pytest.mark.statistical
def test_the_lower_bound_misses_a_rare_failure_at_most_delta_of_the_time() -> None:
    """False alarm <= 1e-6; the other side, where failures are rare: without the 7b term 360 of 4,000 are missed."""
    x = 1 - np.random.default_rng(20200406).binomial(1, 0.02, size=(4000, 200)).astype(float)

    assert_rate_at_most(misses(x, 0.98, above=False), 4000, DELTA)


@pytest.mark.statistical
@pytest.mark.parametrize("above", [True, False], ids=["upper", "lower"])
def test_both_bounds_hold_for_a_rarely_explored_action(above: bool) -> None:
    """False alarm <= 1e-6: IPS values r / p of an action of propensity 0.02 (b = 50), mean reward 1/2.

    b = 1 in place of 50 misses 558 of 4,000 above, but none below: a long right tail fails on one side only.
    """
    rng = np.random.default_rng(7)
    x = (rng.random((4000, 200)) < 0.02) * (rng.random((4000, 200)) < 0.5) / 0.02

    assert_rate_at_most(misses(x, 0.5, above=above, upper=50.0), 4000, DELTA)


@pytest.mark.statistical
@pytest.mark.parametrize("above", [True, False], ids=["upper", "lower"])
def test_hoeffdings_bound_holds_where_it_is_tight(above: bool) -> None:
    """False alarm <= 1e-6: a fair coin, the widest reward; ln(1/delta)/(8n) for ln(1/delta)/(2n) misses 9.6 %."""
    means = np.random.default_rng(3).binomial(100, 0.5, size=20_000) / 100
    radius = hoeffding_radius(100, upper=1.0, delta=DELTA)
    missed = (0.5 - means > radius) if above else (means - 0.5 > radius)

    assert_rate_at_most(int(missed.sum()), 20_000, DELTA)
