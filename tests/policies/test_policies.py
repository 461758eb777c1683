"""Policies: one contract for all, acting forms, adapters, and the draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from seamark.policies import (
    ActingForm,
    CallablePolicy,
    ConstantPolicy,
    EstimatorPolicy,
    LinearPolicy,
    MixturePolicy,
    Policy,
    UniformPolicy,
    draw,
    with_floor,
)
from seamark.policies.saving import policy_from, policy_state
from support import csr, in_form, with_zeros

K, D = 3, 4
WEIGHTS = np.random.default_rng(1).normal(size=(K, D))
X = with_zeros(np.random.default_rng(2), 25, D)


def fitted(classes: list[int]) -> LogisticRegression:
    rng = np.random.default_rng(3)
    return LogisticRegression().fit(rng.normal(size=(60, D)), np.resize(classes, 60))


def first_feature(contexts: Any) -> np.ndarray:
    column = np.asarray(contexts[:, [0]].todense() if hasattr(contexts, "todense") else contexts[:, [0]])
    right = 1 / (1 + np.exp(-column))
    return np.hstack([right, 1 - right, np.zeros_like(right)])


POLICIES: dict[str, Callable[[], Policy]] = {
    "greedy": lambda: LinearPolicy(WEIGHTS.copy()),
    "epsilon-greedy": lambda: LinearPolicy(WEIGHTS.copy(), ActingForm.epsilon_greedy(0.3)),
    "softmax": lambda: LinearPolicy(WEIGHTS.copy(), ActingForm.softmax(0.5)),
    "softmax-floor": lambda: LinearPolicy(WEIGHTS.copy(), ActingForm.softmax(0.01, floor=0.05)),
    "uniform": lambda: UniformPolicy(K),
    "constant": lambda: ConstantPolicy([0.2, 0.0, 0.8]),
    "mixture": lambda: MixturePolicy([LinearPolicy(WEIGHTS.copy()), UniformPolicy(K)], [0.75, 0.25]),
    "with-floor": lambda: with_floor(CallablePolicy(first_feature, K, "first"), 0.2),
    "callable": lambda: CallablePolicy(first_feature, K, "first"),
    "estimator": lambda: EstimatorPolicy(fitted([0, 2]), K, "logistic"),
    "estimator-floor": lambda: with_floor(EstimatorPolicy(fitted([0, 1, 2]), K, "logistic"), 0.1),
}


@pytest.fixture(params=POLICIES, ids=str)
def policy(request: pytest.FixtureRequest) -> Policy:
    return POLICIES[request.param]()


def test_rows_are_probabilities_and_reach_the_known_floor(policy: Policy) -> None:
    """Every row is non-negative, sums to one, and no action is below `min_probability`; wrong floors are caught."""
    p = policy.probabilities(X)

    assert p.shape == (len(X), K)
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-12
    assert p.min() >= policy.min_probability - 1e-15
    assert (p >= 0).all()
    assert policy.n_actions == K
    assert isinstance(policy, Policy)


def test_sparse_contexts_give_the_same_probabilities(policy: Policy) -> None:
    """Dense and sparse contexts are the same contexts."""
    assert policy.probabilities(csr(X)) == pytest.approx(policy.probabilities(X), abs=1e-12)


def test_a_frozen_copy_is_the_same_policy(policy: Policy) -> None:
    """`frozen` keeps id, probabilities and the known floor; a copy that forgets its floor is caught."""
    frozen = policy.frozen()

    assert frozen.id == policy.id
    assert frozen.min_probability == policy.min_probability
    assert np.array_equal(frozen.probabilities(X), policy.probabilities(X))
    assert frozen.frozen().id == policy.id


def test_policies_that_act_differently_have_different_ids() -> None:
    """No two of the policies here share an id; the same content built twice does."""
    ids = {name: make().id for name, make in POLICIES.items()}

    assert len(set(ids.values())) == len(ids)
    assert ids == {name: make().id for name, make in POLICIES.items()}
    assert all(len(one) == 16 for one in ids.values())


@pytest.mark.parametrize(
    "other",
    [
        LinearPolicy(WEIGHTS + np.eye(K, D) * 1e-15),
        LinearPolicy(WEIGHTS, ActingForm(0.0, 1e-9)),
        LinearPolicy(WEIGHTS, ActingForm(1e-9)),
        LinearPolicy(np.hstack([WEIGHTS, np.zeros((K, 1))])),
    ],
)
def test_any_change_of_content_changes_the_id(other: LinearPolicy) -> None:
    """Weights, shape, temperature and floor are all part of the id; the memory order is not."""
    assert LinearPolicy(WEIGHTS).id != other.id
    assert LinearPolicy(WEIGHTS).id == LinearPolicy(np.asfortranarray(WEIGHTS)).id


def test_a_frozen_copy_is_unaffected_by_training() -> None:
    """A live view follows its weights, id included; its frozen copy does not: sharing memory is caught."""
    weights = WEIGHTS.copy()
    live = LinearPolicy(weights.view(), ActingForm.softmax(1.0))
    frozen, id_before, p_before = live.frozen(), live.id, live.probabilities(X)
    weights += 1.0 + np.arange(K)[:, None]

    assert frozen.id == id_before
    assert np.array_equal(frozen.probabilities(X), p_before)
    assert live.id != id_before
    assert not np.allclose(live.probabilities(X), p_before)
    with pytest.raises(ValueError, match="read-only"):
        frozen.weights[0, 0] = 1.0


def test_a_refitted_estimator_does_not_change_the_frozen_copy() -> None:
    """The estimator itself is copied."""
    policy = EstimatorPolicy(fitted([0, 1, 2]), K, min_probability=0.01)
    frozen = policy.frozen()
    before = frozen.probabilities(X)
    policy.estimator.coef_ += np.arange(K)[:, None]

    assert np.array_equal(frozen.probabilities(X), before)
    assert not np.allclose(policy.probabilities(X), before)
    assert frozen.id != policy.id
    assert frozen.min_probability == 0.01


def test_ties_are_shared() -> None:
    """Greedy gives every best action the same share, so zero weights act uniformly."""
    scores = np.array([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0]])

    assert ActingForm.greedy().probabilities(scores).tolist() == [[0, 1 / 2, 1 / 2], [1 / 3] * 3]
    assert ActingForm.epsilon_greedy(0.3).probabilities(scores)[0] == pytest.approx(
        [0.3 / 3, 0.7 / 2 + 0.3 / 3, 0.7 / 2 + 0.3 / 3]
    )


def test_softmax_with_a_floor_is_the_mixture_it_says() -> None:
    """(1 - floor) exp(s / tau) / sum + floor / K, also where exp would overflow."""
    scores = np.array([[0.1, 0.5, 0.2], [1000.0, 0.0, -1000.0]])
    e = np.exp((scores - scores.max(axis=1, keepdims=True)) / 0.5)
    expected = 0.9 * e / e.sum(axis=1, keepdims=True) + 0.1 / 3

    assert ActingForm.softmax(0.5, floor=0.1).probabilities(scores) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ActingForm(tau=-1),
        lambda: ActingForm(tau=float("nan")),
        lambda: ActingForm(floor=1.5),
        lambda: ActingForm(floor=float("nan")),
        lambda: ActingForm.softmax(0.0),
        lambda: LinearPolicy(np.zeros(3)),
        lambda: ConstantPolicy([0.5, 0.6]),
        lambda: ConstantPolicy([1.5, -0.5]),
        lambda: MixturePolicy([UniformPolicy(2), UniformPolicy(3)], [0.5, 0.5]),
        lambda: MixturePolicy([UniformPolicy(2)], [0.5]),
        lambda: MixturePolicy([UniformPolicy(2)] * 2, [1.5, -0.5]),
        lambda: with_floor(UniformPolicy(2), 1.5),
        lambda: LinearPolicy(WEIGHTS).probabilities(np.zeros((1, D + 1))),
    ],
)
def test_impossible_policies_are_refused(make: Callable[[], Any]) -> None:
    """Bad temperatures, floors, shares and shapes raise at construction or first use."""
    with pytest.raises(ValueError, match=r"tau|floor|weights|distribution|policies|contexts"):
        make()


def test_a_mixture_is_the_weighted_sum() -> None:
    """p = sum_i w_i p_i, and its known floor the same sum of floors."""
    one, two = LinearPolicy(WEIGHTS, ActingForm.epsilon_greedy(0.3)), ConstantPolicy([0.5, 0.3, 0.2])
    mixture = MixturePolicy([one, two], [0.25, 0.75])

    assert mixture.probabilities(X) == pytest.approx(0.25 * one.probabilities(X) + 0.75 * two.probabilities(X))
    assert mixture.min_probability == pytest.approx(0.25 * 0.1 + 0.75 * 0.2)
    assert with_floor(one, 0.0) is one


def test_classes_the_model_never_saw_get_probability_zero() -> None:
    """Columns follow `classes_`, not their position."""
    model = fitted([0, 2])
    p = EstimatorPolicy(model, K).probabilities(X)

    assert (p[:, 1] == 0).all()
    assert np.array_equal(p[:, [0, 2]], model.predict_proba(X))


def test_estimators_and_callables_get_scipy_matrices_for_sparse_contexts() -> None:
    """Other libraries see a (n, d) CSR matrix with all columns."""
    seen: list[Any] = []

    def function(contexts: Any) -> np.ndarray:
        seen.append(contexts)
        return np.full((contexts.shape[0], 2), 0.5)

    CallablePolicy(function, 2, "f").probabilities(csr(X))

    assert isinstance(seen[0], csr_matrix)
    assert np.array_equal(seen[0].toarray(), X)


@pytest.mark.parametrize("bad", [[0.5, 0.6], [1.5, -0.5], [np.nan, 1.0], [0.5, 0.25, 0.25]])
def test_a_callable_that_returns_no_probabilities_is_refused(bad: list[float]) -> None:
    """Wrong sums, negative values, NaN and wrong shapes are named."""
    with pytest.raises(ValueError, match=r"probabilities: (row 0 is|shape)"):
        CallablePolicy(lambda x: np.array([bad] * len(x)), 2, "bad").probabilities(X)


def uniforms_in_the_middle(n: int) -> np.ndarray:
    return (np.arange(n) + 0.5) / n


def test_the_draw_follows_the_inverse_cdf_exactly() -> None:
    """Over n uniforms in the middle of n equal intervals action a is drawn exactly n p_a times, in order."""
    n = 1000
    p = np.array([0.1, 0.0, 0.25, 0.65])
    drawn = draw(np.tile(p, (n, 1)), uniforms_in_the_middle(n))

    assert np.bincount(drawn.actions, minlength=4).tolist() == (n * p).tolist()
    assert (np.diff(drawn.actions) >= 0).all()
    assert np.array_equal(drawn.propensities, p[drawn.actions])


@given(
    arrays(np.float64, 5, elements=st.sampled_from([0.0, 1e-300, 1e-17, 0.1, 0.3, 1.0])).filter(lambda p: p.sum() > 0),
    st.sampled_from([0.0, 5e-324, 0.1, 0.5, 1 - 2**-53, 1.0]) | st.floats(0, 1, exclude_max=True),
)
@example(np.array([0.0, 1.0, 0.0]), 0.0)
@example(np.array([0.0, 1.0, 0.0]), 1.0)
def test_an_action_of_probability_zero_is_never_drawn(p: np.ndarray, uniform: float) -> None:
    """At either end of the CDF, a uniform of one included; dropping the final guard, or `>` for `>=`, is caught."""
    p = p / p.sum()
    drawn = draw(p[None, :], np.array([uniform]))

    assert drawn.propensities[0] > 0
    assert drawn.propensities[0] == p[drawn.actions[0]]


@pytest.mark.parametrize("name", [n for n in POLICIES if "estimator" not in n and n not in ("callable", "with-floor")])
def test_a_saved_policy_comes_back_as_it_was(name: str) -> None:
    """State and back gives the same id and the same bits, in either memory order."""
    policy = POLICIES[name]().frozen()
    back = policy_from(policy_state(policy))

    assert back.id == policy.id
    assert np.array_equal(back.probabilities(X), policy.probabilities(X))


def test_weights_keep_their_memory_order_when_saved() -> None:
    """Sums depend on the order in the last bit, so it is part of the state."""
    policy = LinearPolicy(np.asfortranarray(WEIGHTS)).frozen()
    back = policy_from(policy_state(policy))

    assert isinstance(back, LinearPolicy)
    assert back.weights.flags.f_contiguous
    assert policy.weights.flags.f_contiguous


def test_a_policy_that_is_code_says_that_it_is_not_saved() -> None:
    """Callables and estimators are kept by the caller."""
    with pytest.raises(TypeError, match="CallablePolicy: its content is code"):
        policy_state(CallablePolicy(first_feature, K, "first"))
    with pytest.raises(ValueError, match="policy kind 'forest'"):
        policy_from({"kind": "forest"})


def test_linear_scores_are_weights_times_context() -> None:
    """Both forms of context against the plain product."""
    for sparse in (False, True):
        assert LinearPolicy(WEIGHTS).scores(in_form(X, sparse)) == pytest.approx(X @ WEIGHTS.T, abs=1e-12)


def test_what_is_frozen_already_is_not_copied_again() -> None:
    """Gates know the deployed policy by being the same object; a copy would be hashed anew for every leg of traffic."""
    frozen = with_floor(EstimatorPolicy(fitted([0, 1, 2]), K), 0.1).frozen()
    assert frozen.frozen() is frozen
