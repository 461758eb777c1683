"""A supervised set as a bandit: exact values, the law of rewards, baselines, and projected contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, vstack

from seamark.policies import ActingForm, ConstantPolicy, Policy
from seamark.rounds import Csr, as_features, n_contexts, take
from seamark.worlds import supervised
from seamark.worlds.datasets import load
from seamark.worlds.projection import dense, hash_features
from seamark.worlds.supervised import Baseline, SupervisedWorld, reward_noise, train_baseline
from support import assert_rate_at_most, csr, random_linear, small_world, with_zeros


def trained(world: SupervisedWorld, seed: int, **options: Any) -> Baseline:
    defaults: dict[str, Any] = {"fraction": 0.2, "lr": 0.05, "epochs": 3, "acts": ActingForm.softmax(0.5, floor=0.1)}
    return train_baseline(world, seed=seed, **{**defaults, **options})


def brute_force_value(world: SupervisedWorld, policy: Policy) -> float:
    """Sum over contexts, actions and rewards of their probabilities times the reward."""
    total = 0.0
    for i in range(world.n_contexts):
        p = policy.probabilities(take(world.features, [i]))[0]
        for a in range(world.n_actions):
            probability_of_reward = world.right if a == world.labels[i] else world.wrong
            total += 1 / world.n_contexts * p[a] * probability_of_reward * 1.0
    return total


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("noise", [(1.0, 0.0), (0.6, 0.4), (0.3, 0.8)])
def test_the_value_is_the_expected_reward_by_brute_force(sparse: bool, noise: tuple[float, float]) -> None:
    """The judge of safety is exact; accuracy in place of value under noise is caught."""
    world = small_world(sparse=sparse, right=noise[0], wrong=noise[1])
    policy = random_linear(np.random.default_rng(1), world.n_actions, world.n_features)

    assert world.value(policy) == pytest.approx(brute_force_value(world, policy), rel=1e-12)


def test_the_value_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large populations are scored block by block."""
    world = small_world()
    policy = random_linear(np.random.default_rng(1), world.n_actions, world.n_features)
    whole = world.value(policy)
    monkeypatch.setattr(supervised, "BLOCK", 7)

    assert world.value(policy) == pytest.approx(whole, rel=1e-13)


def test_held_out_accuracy_is_that_of_the_test_rows() -> None:
    """Expected share of right labels, by hand, on rows that never enter a round."""
    world = small_world()
    policy = ConstantPolicy([0.5, 0.3, 0.2])
    expected = np.mean([[0.5, 0.3, 0.2][label] for label in world.test_labels])

    assert world.test_accuracy(policy) == pytest.approx(expected)
    assert n_contexts(world.features) == world.labels.size == 60
    assert world.contexts(np.array([0.0, 0.999999999999])).tolist() == [0, 59]


def test_contexts_are_uniform_with_replacement() -> None:
    """Uniforms in the middle of k n equal intervals give every context exactly k times."""
    world = small_world()
    rows = world.contexts((np.arange(60 * 7) + 0.5) / (60 * 7))

    assert np.bincount(rows, minlength=60).tolist() == [7] * 60
    assert world.contexts(np.array([np.nextafter(1.0, 0.0)])).tolist() == [59]


@pytest.mark.parametrize("action_is_right", [True, False])
def test_rewards_are_coin_tosses_of_the_right_bias(action_is_right: bool) -> None:
    """Over uniforms in the middle of 1,000 intervals exactly 1,000 P(reward) of them pay; exchanging right and
    wrong is caught."""
    world = small_world(right=0.7, wrong=0.2)
    rows = np.zeros(1000, dtype=np.int64)
    actions = np.full(1000, world.labels[0] if action_is_right else (world.labels[0] + 1) % 3)
    rewards = world.rewards(rows, actions, (np.arange(1000) + 0.5) / 1000)

    assert rewards.sum() == (700 if action_is_right else 200)
    assert set(rewards.tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("perfect", (1.0, 0.0)), ("near-random", (0.6, 0.4)), ("noisy", (0.9, 0.1)), ("0.7:0.2", (0.7, 0.2))],
)
def test_noise_by_name_or_numbers(text: str, expected: tuple[float, float]) -> None:
    """P(1 | right), P(1 | wrong)."""
    assert reward_noise(text) == expected


@pytest.mark.parametrize("text", ["", "good", "0.7", "0.7:0.2:0.1", "1.7:0.2", "0.7:-0.2", "a:b", "nan:0.2", "0.2:nan"])
def test_unknown_noise_is_refused(text: str) -> None:
    """The message lists what there is."""
    with pytest.raises(ValueError, match=r"rewards: .*(must be one of perfect|both probabilities)"):
        reward_noise(text)


def test_a_baseline_is_drawn_anew_per_seed() -> None:
    """Same seed: same rows and bits; another seed: other rows and other weights."""
    world = small_world()
    one, again, other = trained(world, 1), trained(world, 1), trained(world, 2)

    assert one.policy.id == again.policy.id
    assert np.array_equal(one.rows, again.rows)
    assert one.policy.id != other.policy.id
    assert sorted(one.rows) != sorted(other.rows)


def test_a_baseline_sees_its_share_of_labels_only() -> None:
    """Labels of other rows can be changed without changing it; they are what the share says."""
    world = small_world()
    one = trained(world, 1)
    labels = world.labels.copy()
    elsewhere = np.setdiff1d(np.arange(60), one.rows)
    labels[elsewhere] = (labels[elsewhere] + 1) % 3
    changed = SupervisedWorld(
        "other", world.features, labels, world.test_features, world.test_labels, 3, world.right, world.wrong
    )

    assert one.rows.size == 12
    assert one.config["rows"] == 12
    assert np.unique(one.rows).size == 12
    assert trained(changed, 1).policy.id == one.policy.id


def test_a_baseline_is_better_than_chance_and_acts_in_its_form() -> None:
    """Something worth trusting, in the form asked for, whatever the form of the contexts."""
    acts = ActingForm.epsilon_greedy(0.3)
    values = []
    for sparse in (False, True):
        world = small_world(sparse=sparse)
        baseline = trained(world, 3, acts=acts)
        values.append(world.value(baseline.policy))
        assert baseline.policy.acts == acts
        assert baseline.policy.frozen() is baseline.policy

    assert values[0] > 1 / 3 + 0.1
    assert values[1] == pytest.approx(values[0], rel=1e-9)


def test_a_loaded_set_becomes_a_world() -> None:
    """digits, which ships with scikit-learn: classes are actions, and the checksum travels with it."""
    data = load("digits")
    world = SupervisedWorld.of(data, "near-random")

    assert (world.name, world.n_actions, world.n_features) == ("digits", 10, 64)
    assert (world.right, world.wrong, world.sha256) == (0.6, 0.4, data.sha256)
    assert world.value(ConstantPolicy(np.full(10, 0.1))) == pytest.approx(0.4 + 0.2 * 0.1)


def test_the_norm_is_the_mean_squared_length_of_a_context() -> None:
    """Step sizes are relative to it, in both forms of contexts; where all are zero it divides all the same."""
    x, labels = np.array([[3.0, 4.0], [0.0, 1.0]]), np.zeros(2, dtype=np.int64)

    for features in (x, csr(x)):
        assert SupervisedWorld("w", features, labels, features, labels, 2, 1.0, 0.0).norm == (25 + 1) / 2
    assert SupervisedWorld("w", 0 * x, labels, x, labels, 2, 1.0, 0.0).norm == 1.0


@given(st.integers(1, 300), st.integers(1, 64))
def test_the_hash_of_a_feature_is_fixed(n: int, n_hashed: int) -> None:
    """It depends on the index alone: more features do not move earlier ones, and SplitMix64 is what it was."""
    places, signs = hash_features(n, n_hashed)
    more_places, more_signs = hash_features(n + 10, n_hashed)

    assert np.array_equal(places, more_places[:n])
    assert np.array_equal(signs, more_signs[:n])
    assert ((places >= 0) & (places < n_hashed)).all()
    assert hash_features(3, 2**62)[0].tolist() == [z % 2**62 for z in map(splitmix64, range(3))]
    assert hash_features(3, 2)[1].tolist() == [1.0 if z >> 63 else -1.0 for z in map(splitmix64, range(3))]


def splitmix64(index: int) -> int:
    """Steele, Lea and Flood (2014), in plain integers."""
    mask = 2**64 - 1
    z = (index + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


def test_hashing_preserves_inner_products_on_average() -> None:
    """Over 200 pairs of rows, each on 200 features of its own, the mean error is within 5 standard errors of zero.

    Without the signs every collision of positive features adds, and it is caught by far.
    """
    rng = np.random.default_rng(1)
    one, two = rng.random((2, 200, 200))
    places = (np.repeat(np.arange(200), 200), np.arange(40_000))
    rows = as_features(vstack([csr_matrix((x.ravel(), places), shape=(200, 40_000)) for x in (one, two)]))
    labels = np.zeros(400, dtype=np.int64)
    z = np.asarray(dense(SupervisedWorld("w", rows, labels, rows, labels, 2, 1.0, 0.0), 128).features)
    errors = (z[:200] * z[200:]).sum(axis=1) - (one * two).sum(axis=1)

    assert z.shape == (400, 128)
    assert abs(errors.mean()) < 5 * errors.std() / np.sqrt(200)


def test_dense_and_sparse_contexts_are_projected_alike() -> None:
    """Hashed or not, training and test rows."""
    x = with_zeros(np.random.default_rng(2), 30, 50)
    labels = np.zeros(30, dtype=np.int64)
    ours, theirs = (SupervisedWorld("w", f, labels, f, labels, 2, 1.0, 0.0) for f in (x, csr(x)))
    assert isinstance(theirs.features, Csr)

    assert np.array_equal(np.asarray(dense(theirs).features), x)
    assert dense(ours).features is x
    for n_hashed in (4, 16):
        one, two = dense(ours, n_hashed), dense(theirs, n_hashed)
        assert np.asarray(one.features) == pytest.approx(np.asarray(two.features), abs=1e-12)
        assert np.asarray(one.test_features) == pytest.approx(np.asarray(two.test_features), abs=1e-12)


@pytest.mark.statistical
def test_the_value_is_what_simulation_finds() -> None:
    """False alarm <= 1e-6: mean reward over 40,000 drawn rounds against the exact value, on both sides."""
    world = small_world(right=0.8, wrong=0.1)
    policy = random_linear(np.random.default_rng(1), 3, world.n_features)
    rng = np.random.default_rng(2)
    rows = world.contexts(rng.random(40_000))
    p = policy.probabilities(world.features)[rows]
    actions = (np.cumsum(p, axis=1) < rng.random(40_000)[:, None]).sum(axis=1)
    rewards = world.rewards(rows, actions, rng.random(40_000))
    value = world.value(policy)

    assert_rate_at_most(int(rewards.sum()), 40_000, value)
    assert_rate_at_most(int(40_000 - rewards.sum()), 40_000, 1 - value)
