"""The W form against the sums it replaces, and running sums against recomputation."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.estimation import ActionSums, Moments, tables
from seamark.estimation.tables import DenseTables, RoundLog, SparseTables
from seamark.persist import load_state, save_state
from seamark.policies import ActingForm, CallablePolicy, LinearPolicy, Policy
from seamark.rounds import FloatArray, Rounds, take
from support import drawn_rounds, in_form, random_linear, with_zeros

STORAGES = {"dense": DenseTables, "sparse": SparseTables, "log": RoundLog}


def naive(rounds: Rounds, factor: FloatArray, cap: float = 0.0) -> tuple[float, float, float]:
    """The paper's sums as written: mean, sum over i and j of (R_i - R_j)^2, and the scale of both."""
    r = rounds.rewards / np.maximum(rounds.propensities, cap) * factor
    double = 0.0
    for one in r:
        for other in r:
            double += (one - other) ** 2
    return r.mean(), double, float(np.abs(r).max())


def random_log(rng: np.random.Generator, *, sparse: bool, recurring: bool) -> tuple[Rounds, int, int]:
    """Any log: real or binary rewards, any propensities, whoever drew it."""
    n_actions, d, pool, n = (int(rng.integers(*r)) for r in ((2, 5), (1, 4), (1, 6), (1, 25)))
    features = in_form(with_zeros(rng, pool, d), sparse)
    rows = rng.integers(0, pool, n)
    rewards = rng.random(n) if rng.random() < 0.5 else rng.integers(0, 2, n).astype(float)
    rounds = Rounds.of(
        features if recurring else take(features, rows), rng.integers(0, n_actions, n), rewards,
        10 ** rng.uniform(-3, 0, n), n_actions=n_actions, context_ids=rows if recurring else None,
    )  # fmt: skip
    return rounds, n_actions, d


def chosen(policy: Policy, rounds: Rounds) -> FloatArray:
    return policy.probabilities(rounds.contexts())[np.arange(len(rounds)), rounds.actions]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense-x", "sparse-x"])
@pytest.mark.parametrize("cap", [0.0, 0.1])
@given(seed=st.integers(0, 2**32 - 1))
def test_the_w_form_equals_the_naive_sums_on_any_log(storage: str, sparse: bool, cap: float, seed: int) -> None:
    """Mean and double sum to 1e-12; pi W2 in place of pi^2 W2, or W1^2 in place of W2, is caught."""
    rng = np.random.default_rng(seed)
    rounds, n_actions, d = random_log(rng, sparse=sparse, recurring=storage != "log")
    policy = random_linear(rng, n_actions, d, tau=float(rng.choice([0.0, 0.7])), floor=float(rng.choice([0.0, 0.2])))
    other = CallablePolicy(policy.probabilities, n_actions, "the same, by another way")
    sums = ActionSums(n_actions, cap=cap)
    with mock.patch.object(tables, "DENSE_CELLS", 0 if storage == "sparse" else 10**9):
        for part in (rounds[: len(rounds) // 2], rounds[len(rounds) // 2 :]):
            sums.add(part, policy)
    mean, double, scale = naive(rounds, chosen(policy, rounds), cap)

    assert type(sums._sums) is STORAGES[storage]
    ways = [policy] if sparse else [policy, other]
    for moments in map(sums.moments, ways):
        assert moments.n == len(rounds)
        assert moments.mean == pytest.approx(mean, rel=1e-12)
        assert moments.spread == pytest.approx(double, rel=1e-12, abs=1e-12 * len(rounds) ** 2 * scale**2)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense-x", "sparse-x"])
@given(seed=st.integers(0, 2**32 - 1))
def test_the_w_form_of_the_paired_difference_equals_the_naive_sums(storage: str, sparse: bool, seed: int) -> None:
    """R_i(h) - R_i(d) from the same two tables; the difference of the two second moments is caught."""
    rng = np.random.default_rng(seed)
    rounds, n_actions, d = random_log(rng, sparse=sparse, recurring=storage != "log")
    new, old = random_linear(rng, n_actions, d, tau=0.0), random_linear(rng, n_actions, d, floor=0.0)
    sums = ActionSums(n_actions)
    with mock.patch.object(tables, "DENSE_CELLS", 0 if storage == "sparse" else 10**9):
        sums.add(rounds, old)
    mean, double, scale = naive(rounds, chosen(new, rounds) - chosen(old, rounds))
    moments = sums.paired_moments(new, old)

    assert moments.mean == pytest.approx(mean, rel=1e-12, abs=1e-12 * scale)
    assert moments.spread == pytest.approx(double, rel=1e-12, abs=1e-12 * len(rounds) ** 2 * scale**2)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("cap", [0.0, 0.3])
def test_running_sums_of_the_followed_policy_equal_recomputation(storage: str, cap: float) -> None:
    """After deployments, with rounds still coming from earlier policies, with and without a cap.

    Taking the recorded propensity for the deployed policy's probability in stale rounds is caught.
    """
    rng = np.random.default_rng(8)
    pool, n_actions = with_zeros(rng, 7, 3), 3
    policies = [random_linear(rng, n_actions, 3, tau=t, floor=0.2) for t in (0.5, 0.0, 1.0)]
    sums = ActionSums(n_actions, cap=cap)
    version = 0
    with mock.patch.object(tables, "DENSE_CELLS", 0 if storage == "sparse" else 10**9):
        for leg in range(24):
            if leg in (8, 16):
                version += 1
                moments = sums.moments(policies[version])
                sums.follow(moments, version)
            acted = max(0, version - int(rng.integers(0, 2)))
            fresh = drawn_rounds(
                rng, policies[acted], pool, 11, recurring=storage != "log", version=acted, first=sums.n
            )
            sums.add(fresh, policies[version])
            again = sums.moments(policies[version])
            running = sums.deployed
            assert running.n == again.n == 11 * (leg + 1)
            assert running.s1 == pytest.approx(again.s1, rel=1e-12)
            assert running.s2 == pytest.approx(again.s2, rel=1e-12)
            assert running.largest == pytest.approx(again.largest, rel=1e-12)

    assert version == 2


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense-x", "sparse-x"])
def test_restored_sums_continue_with_the_same_bits(storage: str, sparse: bool, tmp_path: Path) -> None:
    """Saved to a file, read back, fed on: everything is as if nothing had happened."""
    rng = np.random.default_rng(9)
    pool, policy = in_form(with_zeros(rng, 6, 3), sparse), random_linear(rng, 2, 3)
    legs = [drawn_rounds(rng, policy, pool, 20, recurring=storage != "log") for _ in range(3)]
    one, two = ActionSums(2), ActionSums(2)
    with mock.patch.object(tables, "DENSE_CELLS", 0 if storage == "sparse" else 10**9):
        for leg in legs[:2]:
            one.add(leg, policy)
        save_state(tmp_path / "sums", one.state())
        two.restore(load_state(tmp_path / "sums"))
        save_state(tmp_path / "again", two.state())  # before any round has come
        two = ActionSums(2)
        two.restore(load_state(tmp_path / "again"))
        for sums in (one, two):
            sums.add(legs[2], policy)
    other = random_linear(rng, 2, 3)

    assert one.deployed == two.deployed
    assert one.moments(other) == two.moments(other)
    assert one.paired_moments(other, policy) == two.paired_moments(other, policy)


def test_restored_tables_do_not_answer_before_they_know_the_contexts() -> None:
    """After a restore the tables wait for the pool of contexts; answering zero over n rounds is caught."""
    rng = np.random.default_rng(9)
    policy = random_linear(rng, 2, 3)
    one, two = ActionSums(2), ActionSums(2)
    one.add(drawn_rounds(rng, policy, with_zeros(rng, 6, 3), 20), policy)
    two.restore(one.state())

    with pytest.raises(RuntimeError, match="add rounds first"):
        two.moments(policy)
    with pytest.raises(RuntimeError, match="add rounds first"):
        two.paired_moments(policy, policy)


def test_no_rounds_give_no_mean() -> None:
    """NaN, not zero: an empty log says nothing of anybody."""
    moments = ActionSums(2).moments(LinearPolicy(np.zeros((2, 1))))

    assert (moments.n, moments.s1, moments.s2) == (0, 0.0, 0.0)
    assert np.isnan(moments.mean)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_log_without_any_reward_has_mean_zero(storage: str) -> None:
    """Rounds without reward count, although no cell of W is above zero."""
    rng = np.random.default_rng(1)
    policy = random_linear(rng, 2, 3)
    rounds = drawn_rounds(
        rng, policy, with_zeros(rng, 4, 3), 10, rewards=lambda i, a: np.zeros(i.size), recurring=storage != "log"
    )
    sums = ActionSums(2)
    with mock.patch.object(tables, "DENSE_CELLS", 0 if storage == "sparse" else 10**9):
        sums.add(rounds, policy)

    assert sums.moments(policy) == Moments(10, 0.0, 0.0, 0.0)
    assert sums.deployed == Moments(10, 0.0, 0.0, 0.0)


def test_the_largest_cell_is_the_accumulated_one() -> None:
    """max over cells of pi W1, a sum over visits: the released b."""
    policy = LinearPolicy(np.zeros((2, 1)), ActingForm.softmax(1.0)).frozen()
    sums = ActionSums(2)
    sums.add(
        Rounds.of([[1.0], [2.0]], [0, 0, 1], [1, 1, 1], [0.5, 0.25, 0.5], n_actions=2, context_ids=[0, 0, 1]), policy
    )

    assert sums.moments(policy).largest == 0.5 * (1 / 0.5 + 1 / 0.25)


def test_a_log_is_kept_up_to_its_limit_only() -> None:
    """Memory is declared, and the message says what to do."""
    policy = LinearPolicy(np.zeros((2, 1)))
    sums = ActionSums(2, log_limit=3)
    sums.add(Rounds.of(np.ones((3, 1)), [0] * 3, [1] * 3, [0.5] * 3, n_actions=2), policy)

    with pytest.raises(RuntimeError, match=r"log: 3 rounds are reached.*raise log_limit, pass context_ids"):
        sums.add(Rounds.of(np.ones((1, 1)), [0], [1], [0.5], n_actions=2), policy)


def test_tables_larger_than_the_limit_keep_visited_cells_only() -> None:
    """contexts x actions above DENSE_CELLS is stored sparsely."""
    policy = LinearPolicy(np.zeros((2, 1)))
    sums = ActionSums(2)
    with mock.patch.object(tables, "DENSE_CELLS", 3):
        sums.add(Rounds.of(np.ones((2, 1)), [0], [1], [0.5], n_actions=2, context_ids=[0]), policy)

    assert isinstance(sums._sums, SparseTables)
    assert sums._sums._keys.size == 1


@pytest.mark.parametrize("storage", STORAGES)
def test_blocks_do_not_matter(storage: str) -> None:
    """Scoring contexts block by block gives the same sums."""
    rng = np.random.default_rng(2)
    policy = random_linear(rng, 3, 4)
    other = CallablePolicy(policy.probabilities, 3, "other")
    sums = ActionSums(3)
    with mock.patch.object(tables, "DENSE_CELLS", 0 if storage == "sparse" else 10**9):
        sums.add(drawn_rounds(rng, policy, with_zeros(rng, 13, 4), 60, recurring=storage != "log"), policy)
    whole = sums.moments(other)
    with mock.patch.object(tables, "BLOCK", 4):
        blocks = sums.moments(other)

    assert blocks.s1 == pytest.approx(whole.s1, rel=1e-13)
    assert blocks.s2 == pytest.approx(whole.s2, rel=1e-13)
    assert blocks.largest == whole.largest
