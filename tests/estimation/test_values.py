"""Values per round: unbiased where they promise it, by enumeration over actions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.estimation import (
    dm_values,
    dr_values,
    ips_values,
    probability_of_actions,
    snips_mean,
    snips_values,
    translated_ips_values,
)
from seamark.policies import ConstantPolicy
from seamark.rounds import FloatArray, Rounds
from support import drawn_rounds, random_linear, with_zeros

seeds = st.integers(0, 2**32 - 1)


class OneContext:
    """Every action of one context as a round of its own: an expectation over actions is a sum weighted with p."""

    def __init__(self, seed: int, n_actions: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.p = rng.dirichlet(np.ones(n_actions)) * 0.9 + 0.1 / n_actions
        self.pi = rng.dirichlet(np.ones(n_actions))
        self.rewards = rng.random(n_actions)
        self.rounds = Rounds.of(
            np.ones((n_actions, 1)), np.arange(n_actions), self.rewards, self.p, n_actions=n_actions
        )
        self.value = float(self.pi @ self.rewards)
        self.q = np.tile(rng.normal(size=n_actions), (n_actions, 1))
        self.table = np.tile(self.pi, (n_actions, 1))

    def expectation(self, values: FloatArray) -> float:
        return float(self.p @ values)


@given(seeds)
def test_ips_is_unbiased(seed: int) -> None:
    """sum_a p(a) r(a) pi(a) / p(a) = V(pi); forgetting to divide is caught."""
    one = OneContext(seed)

    assert one.expectation(ips_values(one.rounds, one.pi)) == pytest.approx(one.value, abs=1e-12)


@given(seeds, st.floats(-1, 2))
def test_translated_ips_is_unbiased_for_any_shift(seed: int, shift: float) -> None:
    """The shift is added back; (r - shift) pi / p alone, as the learner uses it, is off by shift and is caught."""
    one = OneContext(seed)
    values = translated_ips_values(one.rounds, one.pi, shift=shift)

    assert one.expectation(values) == pytest.approx(one.value, abs=1e-12)


@given(seeds)
def test_doubly_robust_is_unbiased_for_any_reward_model(seed: int) -> None:
    """Whatever q predicts; leaving out the residual, or its weight, is caught."""
    one = OneContext(seed)

    assert one.expectation(dr_values(one.rounds, one.table, one.q)) == pytest.approx(one.value, abs=1e-12)


@given(seeds)
def test_the_direct_method_is_right_when_the_model_is(seed: int) -> None:
    """sum_a pi(a) q(a): the value where q is the reward, and off by the model's error otherwise."""
    one = OneContext(seed)
    true = np.tile(one.rewards, (4, 1))

    assert dm_values(one.table, true) == pytest.approx(np.full(4, one.value), abs=1e-12)
    assert dm_values(one.table, true + 0.1) == pytest.approx(np.full(4, one.value + 0.1), abs=1e-12)
    assert dr_values(one.rounds, one.table, true) == pytest.approx(np.full(4, one.value), abs=1e-12)


@given(seeds)
def test_ips_of_the_logging_policy_is_the_mean_reward(seed: int) -> None:
    """pi = p gives weights of exactly one, in IPS as in SNIPS."""
    rng = np.random.default_rng(seed)
    policy = random_linear(rng, 3, 4)
    rounds = drawn_rounds(rng, policy, with_zeros(rng, 6, 4), 30)
    pi = probability_of_actions(policy, rounds)

    assert pi == pytest.approx(rounds.propensities, rel=1e-15)
    assert ips_values(rounds, pi).mean() == pytest.approx(rounds.rewards.mean(), rel=1e-15)
    assert snips_mean(rounds, pi) == pytest.approx(rounds.rewards.mean(), rel=1e-12)


def test_snips_divides_by_the_weights() -> None:
    """sum r w / sum w on three records, always within the rewards."""
    rounds = Rounds.of(np.ones((3, 1)), [0, 1, 0], [1.0, 0.5, 0.0], [0.5, 0.1, 0.8], n_actions=2)
    pi = np.array([0.3, 0.7, 0.3])
    w = [0.3 / 0.5, 0.7 / 0.1, 0.3 / 0.8]

    assert snips_mean(rounds, pi) == pytest.approx((1.0 * w[0] + 0.5 * w[1] + 0.0 * w[2]) / sum(w))
    assert ips_values(rounds, pi).tolist() == pytest.approx([1.0 * w[0], 0.5 * w[1], 0.0])
    assert snips_values(rounds, pi).mean() == pytest.approx(snips_mean(rounds, pi))


@given(seeds, st.floats(-0.2, 0.2))
def test_snips_is_indifferent_to_a_common_shift_of_the_rewards(seed: int, shift: float) -> None:
    """Adding a constant to all rewards adds it to the estimate, which IPS does not do."""
    one = OneContext(seed)
    r = 0.2 + 0.6 * one.rewards
    before, after = (
        Rounds.of(np.ones((4, 1)), np.arange(4), rewards, one.p, n_actions=4) for rewards in (r, r + shift)
    )

    assert snips_mean(after, one.pi) == pytest.approx(snips_mean(before, one.pi) + shift, abs=1e-12)


def test_snips_without_any_overlap_is_no_number() -> None:
    """Where the policy takes none of the logged actions there is nothing to normalise by."""
    rounds = Rounds.of(np.ones((2, 1)), [0, 0], [1, 0], [0.5, 0.5], n_actions=2)

    assert np.isnan(snips_mean(rounds, probability_of_actions(ConstantPolicy([0.0, 1.0]), rounds)))


@given(seeds)
def test_order_and_repetition_do_not_matter_to_means(seed: int) -> None:
    """Permuting a log, or repeating it whole, leaves every estimate."""
    rng = np.random.default_rng(seed)
    one = OneContext(seed)
    i = np.concatenate([rng.permutation(4), rng.permutation(4)])
    again = Rounds.of(np.ones((8, 1)), i, one.rewards[i], one.p[i], n_actions=4)

    assert ips_values(again, one.pi[i]).mean() == pytest.approx(ips_values(one.rounds, one.pi).mean(), rel=1e-12)
    assert snips_mean(again, one.pi[i]) == pytest.approx(snips_mean(one.rounds, one.pi), rel=1e-12)
