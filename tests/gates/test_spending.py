"""The error budget over challengers and reigns."""

from __future__ import annotations

import numpy as np
import pytest

from seamark.gates.spending import Spending, challenger_share, reign_margin, reign_share


def test_shares_sum_to_one_and_never_beyond() -> None:
    """Closed forms: 1 - 1/(n+1) for reigns; 1/2 + 8 (1/16 - 1/n) for challengers. Catches an index shifted by one."""
    n = 10_000
    assert sum(map(reign_share, range(1, n + 1))) == pytest.approx(1 - 1 / (n + 1))
    assert sum(map(challenger_share, range(1, n + 1))) == pytest.approx(1 - 8 / n)
    assert sum(map(challenger_share, range(1, 17))) == 0.5


def test_a_run_spends_at_most_delta_over_all_reigns_and_challengers() -> None:
    """10^4 x 10^4 levels, by their product form; `run` must pay for reigns too."""
    spending = Spending(0.05, "run")
    j = np.array([spending.level(1, j) for j in range(1, 10_001)])
    k = np.array([spending.level(k, 1) for k in range(1, 10_001)])

    assert j.sum() * k.sum() / spending.level(1, 1) <= 0.05
    assert spending.level(3, 20) == pytest.approx(j[19] * k[2] / spending.level(1, 1))


def test_a_deployment_spends_at_most_delta_within_any_reign() -> None:
    spending = Spending(0.05, "deployment")
    for reign in (1, 7):
        assert sum(spending.level(reign, j) for j in range(1, 10_001)) <= 0.05


def test_fdr_levels_count_over_the_run_and_grow_with_deployments() -> None:
    """e-LOND: alpha_j = min(delta g_j (deployments + 1), 1/2); without deployments it sums to at most delta."""
    spending = Spending(0.05, "fdr")
    assert sum(spending.level(5, 1, frozen=j) for j in range(1, 10_001)) <= 0.05
    assert spending.level(5, 1, frozen=20, deployments=4) == pytest.approx(0.05 * 8 / (20 * 19) * 5)
    assert spending.level(2, 1, frozen=1, deployments=10_000) == 0.5


def test_negative_margin_is_a_budget_over_all_reigns() -> None:
    """Trap 16: the same -m in every reign would lose k m after k deployments."""
    lost = [-reign_margin(-0.1, k) for k in range(1, 10_001)]
    assert sum(lost) <= 0.1
    assert lost[2] == pytest.approx(0.1 / 12)
    assert reign_margin(0.02, 9) == 0.02


def test_settings_that_promise_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="delta: 0"):
        Spending(0.0)
    with pytest.raises(ValueError, match="guarantee: 'always'"):
        Spending(0.05, "always")  # type: ignore[arg-type]
