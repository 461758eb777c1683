"""Compiled kernels against their NumPy twins, on dense and sparse contexts."""

from __future__ import annotations

from typing import Any

import linear_twins as twins
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from seamark.kernels import linear as kernels
from seamark.policies import ActingForm, draw
from seamark.rounds import FloatArray
from support import in_form, with_zeros

K, D, POOL, N = 4, 7, 12, 150
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
DECAYS = [(0.0, False), (0.3, False), (0.3, True)]

sparse_or_dense = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
decays = pytest.mark.parametrize(("l2", "everywhere"), DECAYS, ids=["none", "published", "ridge"])


class Case:
    """Contexts, labels, a log and uniforms, all from one seed."""

    def __init__(self, *, sparse: bool, seed: int = 11, n: int = N, n_actions: int = K) -> None:
        rng = np.random.default_rng(seed)
        self.x = with_zeros(rng, POOL, D)
        self.features: Any = in_form(self.x, sparse)
        self.sparse = sparse
        self.rows = rng.integers(0, POOL, n)
        self.labels = rng.integers(0, n_actions, POOL)
        self.actions = rng.integers(0, n_actions, n)
        self.rewards = rng.random(n)
        self.propensities = rng.uniform(0.01, 1, n)
        self.u_actions, self.u_rewards = rng.random(n), rng.random(n)
        self.start = rng.normal(size=(n_actions, D)) / 2
        self.out = (np.empty(n, dtype=np.int64), np.empty(n), np.empty(n), np.empty(n))

    def weights(self) -> FloatArray:
        """A copy of the start in the kernels' layout."""
        return np.ascontiguousarray(self.start.T) if self.sparse else self.start.copy()

    def plain(self, w: FloatArray) -> FloatArray:
        return w.T if self.sparse else w

    def acted(self) -> list[list[float]]:
        return [list(row) for row in zip(*(column.tolist() for column in self.out))]


@sparse_or_dense
@decays
@pytest.mark.parametrize("n_actions", [2, 3, 4])
def test_ips_learning_equals_its_twin(sparse: bool, l2: float, everywhere: bool, n_actions: int) -> None:
    """Round by round to 1e-10; decaying before instead of after the scores, or a wrong cap, is caught."""
    case, options = Case(sparse=sparse, n_actions=n_actions), {"tau": 0.7, "lr": 0.1, "shift": 0.2, "cap": 0.1}
    w = case.weights()
    kernels.ips_learn(
        case.features, case.rows, case.actions, case.rewards, case.propensities, w,
        options["tau"], options["lr"], l2, options["shift"], options["cap"], everywhere,
    )  # fmt: skip
    expected = twins.ips_learn(
        case.x, case.rows, case.actions, case.rewards, case.propensities, case.start,
        l2=l2, everywhere=everywhere, **options,
    )  # fmt: skip

    np.testing.assert_allclose(case.plain(w), expected, **CLOSE)


@sparse_or_dense
def test_strong_ridge_decay_neither_vanishes_nor_explodes(sparse: bool) -> None:
    """A decay of one half per round takes the lazy scale below 1e-9 five times; not folding it back is caught."""
    case = Case(sparse=sparse)
    w = case.weights()
    kernels.ips_learn(
        case.features, case.rows, case.actions, case.rewards, case.propensities, w, 0.7, 0.5, 1.0, 0.2, 0.1, True
    )
    expected = twins.ips_learn(
        case.x, case.rows, case.actions, case.rewards, case.propensities, case.start,
        tau=0.7, lr=0.5, l2=1.0, shift=0.2, cap=0.1, everywhere=True,
    )  # fmt: skip

    np.testing.assert_allclose(case.plain(w), expected, **CLOSE)


@sparse_or_dense
@decays
@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_the_boltzmann_run_equals_its_twin(sparse: bool, l2: float, everywhere: bool, floor: float) -> None:
    """Actions, rewards, propensities, expected rewards and weights; pi for p in the weight is caught."""
    case = Case(sparse=sparse)
    w = case.weights()
    kernels.boltzmann_run(
        case.features, case.rows, case.labels, 0.9, 0.1, case.u_actions, case.u_rewards, w,
        0.7, floor, 0.1, l2, 0.05, everywhere, *case.out,
    )  # fmt: skip
    expected, acted = twins.boltzmann_run(
        case.x, case.rows, case.labels, 0.9, 0.1, case.u_actions, case.u_rewards, case.start,
        tau=0.7, floor=floor, lr=0.1, l2=l2, shift=0.05, everywhere=everywhere,
    )  # fmt: skip

    np.testing.assert_allclose(case.acted(), acted, **CLOSE)
    np.testing.assert_allclose(case.plain(w), expected, **CLOSE)


@pytest.mark.parametrize(
    ("sparse", "l2", "everywhere"), [(s, *d) for s in (False, True) for d in DECAYS if not (s and d[1])]
)
def test_squared_loss_equals_its_twin(sparse: bool, l2: float, everywhere: bool) -> None:
    """Learning from a log and the acting run (sparse ridge does not exist here)."""
    case = Case(sparse=sparse)
    w, v = case.weights(), case.weights()
    kernels.squared_learn(case.features, case.rows, case.actions, case.rewards, w, 0.05, l2, everywhere)
    kernels.epsilon_greedy_run(
        case.features, case.rows, case.labels, 0.9, 0.1, case.u_actions, case.u_rewards, v,
        0.2, 0.05, l2, everywhere, *case.out,
    )  # fmt: skip
    options: dict[str, Any] = {"lr": 0.05, "l2": l2, "everywhere": everywhere}
    learned = twins.squared_learn(case.x, case.rows, case.actions, case.rewards, case.start, **options)
    expected, acted = twins.epsilon_greedy_run(
        case.x, case.rows, case.labels, 0.9, 0.1, case.u_actions, case.u_rewards, case.start, epsilon=0.2, **options
    )

    np.testing.assert_allclose(case.plain(w), learned, **CLOSE)
    np.testing.assert_allclose(case.acted(), acted, **CLOSE)
    np.testing.assert_allclose(case.plain(v), expected, **CLOSE)


@sparse_or_dense
def test_hinge_training_equals_its_twin(sparse: bool) -> None:
    """The baseline's fit, from zero weights."""
    case = Case(sparse=sparse)
    w = np.zeros_like(case.weights())
    kernels.hinge_train(case.features, case.rows, case.labels, w, 0.1, 0.2)

    expected = twins.hinge_train(case.x, case.rows, case.labels, np.zeros((K, D)), 0.1, 0.2)
    np.testing.assert_allclose(case.plain(w), expected, **CLOSE)


@given(
    arrays(
        np.float64, st.tuples(st.just(1), st.integers(1, 5)), elements=st.sampled_from([-3.0, 0.0, 0.5, 0.5, 200.0])
    ),
    st.sampled_from([0.0, 0.01, 1.0]),
    st.sampled_from([0.0, 0.05, 1.0]),
)
def test_acting_equals_the_acting_form(scores: FloatArray, tau: float, floor: float) -> None:
    """The kernel and `ActingForm` are one law, ties included."""
    out = np.empty(scores.shape[1])
    kernels.acting(scores[0], tau, floor, out)

    np.testing.assert_allclose(out, ActingForm(tau, floor).probabilities(scores)[0], rtol=1e-13, atol=1e-15)


@given(
    arrays(np.float64, 4, elements=st.sampled_from([0.0, 1e-300, 1e-17, 0.1, 0.3, 1.0])).filter(lambda p: p.sum() > 0),
    st.sampled_from([0.0, 5e-324, 0.1, 0.5, 1 - 2**-53, 1.0]) | st.floats(0, 1, exclude_max=True),
)
@example(np.array([0.0, 1.0, 0.0]), 0.0)
@example(np.array([0.0, 1.0, 0.0]), 1.0)
def test_pick_and_draw_take_the_same_action(p: FloatArray, uniform: float) -> None:
    """One uniform, one action, in NumPy and in the kernel: else the explorer and an experiment would differ."""
    p = p / p.sum()

    assert kernels.pick(p, uniform) == draw(p[None, :], np.array([uniform])).actions[0]


def test_acting_from_a_table_is_the_draw() -> None:
    """Cached probabilities give the same actions and propensities as `draw`."""
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.ones(K), POOL)
    rows, u = rng.integers(0, POOL, 500), rng.random(500)
    actions, propensities = np.empty(500, dtype=np.int64), np.empty(500)
    kernels.act_from_table(table, rows, u, actions, propensities)
    expected = draw(table[rows], u)

    assert np.array_equal(actions, expected.actions)
    assert np.array_equal(propensities, expected.propensities)


def test_rewards_follow_the_uniforms() -> None:
    """1 where the uniform is below the probability of the label's or of another action."""
    labels, rows = np.array([0, 1]), np.array([0, 0, 1, 1])
    actions, u, out = np.array([0, 1, 1, 0]), np.array([0.59, 0.4, 0.6, 0.39]), np.empty(4)
    kernels.rewards_of(labels, 0.6, 0.4, rows, actions, u, out)

    assert out.tolist() == [1, 0, 0, 1]


@sparse_or_dense
@pytest.mark.parametrize("n_actions", [2, 3, 4])
@pytest.mark.parametrize("n_contexts", [0, 1, POOL - 1, POOL])
@pytest.mark.parametrize("acts", [ActingForm(0.0, 0.1), ActingForm(0.5, 0.0)], ids=str)
def test_table_moments_equal_the_sums_of_the_formula(
    sparse: bool, n_actions: int, n_contexts: int, acts: ActingForm
) -> None:
    """sum pi W1, sum pi^2 W2 and max pi W1 over the chosen contexts, empty cells included, for odd and even counts."""
    case = Case(sparse=sparse, n_actions=n_actions)
    rng = np.random.default_rng(4)
    w1 = rng.random((POOL, n_actions)) * (rng.random((POOL, n_actions)) < 0.4)
    w2 = w1**2
    chosen = rng.permutation(POOL)[:n_contexts]
    s1, s2, largest = kernels.table_moments(case.features, chosen, case.weights(), acts.tau, acts.floor, w1, w2)
    pi = acts.probabilities(case.x @ case.start.T)[chosen]

    assert s1 == pytest.approx((pi * w1[chosen]).sum(), rel=1e-12)
    assert s2 == pytest.approx((pi**2 * w2[chosen]).sum(), rel=1e-12)
    assert largest == pytest.approx((pi * w1[chosen]).max(initial=0.0), rel=1e-12)


def test_adding_to_tables_adds_value_and_square() -> None:
    """Repeated cells accumulate, and contexts are marked seen even for a value of zero."""
    w1, w2, seen = np.zeros((3, 2)), np.zeros((3, 2)), np.zeros(3, dtype=bool)
    kernels.add_to_tables(np.array([0, 0, 2]), np.array([1, 1, 0]), np.array([2.0, 3.0, 0.0]), w1, w2, seen)

    assert w1.tolist() == [[0, 2 + 3], [0, 0], [0, 0]]
    assert w2.tolist() == [[0, 2**2 + 3**2], [0, 0], [0, 0]]
    assert seen.tolist() == [True, False, True]
