"""Gradient learners: the gradient is that of the objective, the form of the contexts and of the legs is no matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from seamark.learners.base import Answers, Draws
from seamark.learners.gradient import IPSGradient, PolicyGradient, SquaredLoss
from seamark.policies import ActingForm, LinearPolicy
from seamark.rounds import FloatArray, Rounds
from support import csr, drawn_rounds, in_form, random_linear, with_zeros

K, D, POOL = 3, 5, 9
RNG = np.random.default_rng(21)
X = with_zeros(RNG, POOL, D)
START = RNG.normal(size=(K, D)) / 2
LABELS = RNG.integers(0, K, POOL)


def log(n: int = 80, *, sparse: bool = False, seed: int = 1) -> Rounds:
    rng = np.random.default_rng(seed)
    return drawn_rounds(rng, random_linear(np.random.default_rng(0), K, D), in_form(X, sparse), n)


def ips(start: FloatArray = START, **options: Any) -> IPSGradient:
    return IPSGradient(start, ActingForm.softmax(0.7, floor=0.1), **{"tau": 0.7, "lr": 0.05, **options})


LEARNERS: dict[str, Callable[..., Any]] = {
    "ips": ips,
    "ips-published-decay": lambda start=START, **o: ips(start, l2=0.3, **o),
    "policy-gradient": lambda start=START, **o: PolicyGradient(start, tau=0.7, floor=0.1, lr=0.05, **o),
    "squared": lambda start=START, **o: SquaredLoss(start, epsilon=0.1, lr=0.05, l2=0.1, **o),
}
every_learner = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)


def numeric_gradient(objective: Callable[[FloatArray], float], w: FloatArray, h: float = 1e-6) -> FloatArray:
    gradient = np.empty_like(w)
    for at in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[at] = h
        gradient[at] = (objective(w + step) - objective(w - step)) / (2 * h)
    return gradient


def one_round(reward: float = 1.0, propensity: float = 0.05) -> Rounds:
    return Rounds.of(X[[2]], [1], [reward], [propensity], n_actions=K)


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("cap", [0.0, 0.1])
def test_an_ips_step_climbs_the_translated_ips_objective(reward: float, cap: float) -> None:
    """lr times the numeric gradient of (r - 0.2) / max(p, cap) pi_w(a|x); forgetting 1/tau or the cap is caught."""

    def objective(w: FloatArray) -> float:
        pi = LinearPolicy(w, ActingForm.softmax(0.7)).probabilities(X[[2]])[0, 1]
        return float((reward - 0.2) / max(0.05, cap) * pi)

    learner = ips(shift=0.2, cap=cap)
    learner.update(one_round(reward))

    assert learner.weights - START == pytest.approx(0.05 * numeric_gradient(objective, START), abs=1e-8)


def test_policy_gradient_on_its_own_rounds_climbs_the_logarithm() -> None:
    """Where p = pi_w(a|x) the step is lr (r - shift) grad log pi_w(a|x), numerically."""
    acts = ActingForm.softmax(0.7)
    pi = LinearPolicy(START, acts).probabilities(X[[2]])[0, 1]
    learner = PolicyGradient(START, tau=0.7, lr=0.05, shift=0.1)
    learner.update(one_round(1.0, pi))

    def objective(w: FloatArray) -> float:
        return float((1.0 - 0.1) * np.log(LinearPolicy(w, acts).probabilities(X[[2]])[0, 1]))

    assert learner.weights - START == pytest.approx(0.05 * numeric_gradient(objective, START), abs=1e-8)


def test_a_squared_loss_step_descends_the_loss_of_the_action_taken() -> None:
    """lr times minus the numeric gradient of (w_a x - r)^2 / 2; other actions are left alone."""
    learner = SquaredLoss(START, epsilon=0.1, lr=0.05)
    learner.update(one_round(1.0))

    def loss(w: FloatArray) -> float:
        return float((w[1] @ X[2] - 1.0) ** 2 / 2)

    assert learner.weights - START == pytest.approx(-0.05 * numeric_gradient(loss, START), abs=1e-8)


@every_learner
def test_dense_and_sparse_contexts_teach_the_same(make: Callable[..., Any]) -> None:
    """The same log in both forms gives the same weights to 1e-12."""
    dense, sparse = make(), make()
    dense.update(log())
    sparse.update(log(sparse=True))

    assert not np.allclose(dense.weights, START)
    np.testing.assert_allclose(sparse.weights, dense.weights, rtol=1e-12, atol=1e-12)


@every_learner
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_legs_do_not_matter(make: Callable[..., Any], sparse: bool) -> None:
    """One leg or many: the same bits; a learner that keeps anything but its weights over a leg is caught."""
    whole, parts, rounds = make(), make(), log(sparse=sparse)
    whole.update(rounds)
    for start, stop in ((0, 1), (1, 1), (1, 30), (30, 80)):
        parts.update(rounds[start:stop])

    assert np.array_equal(whole.weights, parts.weights)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_legs_do_not_matter_for_ridge_decay_but_for_rounding(sparse: bool) -> None:
    """Folding the lazy scale back at the end of every leg changes no more than the last bits."""
    rounds = log(sparse=sparse)
    whole, parts = ips(l2=0.3, decay="ridge"), ips(l2=0.3, decay="ridge")
    whole.update(rounds)
    for start in range(80):
        parts.update(rounds[start : start + 1])

    np.testing.assert_allclose(parts.weights, whole.weights, rtol=1e-12, atol=1e-14)


@every_learner
def test_a_learner_starts_from_a_copy_of_what_it_is_given(make: Callable[..., Any]) -> None:
    """Warm: the baseline's weights, which stay as they are; cold: zeros, whose greedy form shares all ties."""
    warm_start = START.copy()
    warm, cold = make(warm_start), make(np.zeros((K, D)))

    assert np.array_equal(warm.candidate().weights, START)
    assert LinearPolicy(cold.weights).probabilities(X) == pytest.approx(1 / K)
    warm.update(log())
    assert np.array_equal(warm_start, START)


@every_learner
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_candidate_is_live_and_its_frozen_copy_is_not(make: Callable[..., Any], sparse: bool) -> None:
    """What a gate has frozen is unaffected by further training."""
    learner, rounds = make(), log(sparse=sparse)
    learner.update(rounds)
    candidate = learner.candidate()
    frozen, before = candidate.frozen(), learner.weights.copy()
    learner.update(rounds)

    assert np.array_equal(frozen.weights, before)
    assert np.array_equal(candidate.weights, learner.weights)
    assert not np.array_equal(learner.weights, before)
    assert frozen.acts == learner.acts


@every_learner
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_restored_learner_continues_with_the_same_bits(make: Callable[..., Any], sparse: bool) -> None:
    """State and back between two legs changes nothing."""
    one, two = make(), make(np.zeros((K, D)))
    one.update(log(sparse=sparse))
    two.restore(one.state())
    one.update(log(sparse=sparse, seed=2))
    two.update(log(sparse=sparse, seed=2))

    assert np.array_equal(one.weights, two.weights)
    assert np.array_equal(one.candidate().probabilities(X), two.candidate().probabilities(X))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ["policy-gradient", "squared"])
def test_learning_while_acting_is_learning_from_the_rounds_it_made(name: str, sparse: bool) -> None:
    """`run` equals `update` on its own rounds, and acts by the candidate of the moment."""
    rng = np.random.default_rng(5)
    features = in_form(X, sparse)
    answers = Answers(features, LABELS, 0.9, 0.1)
    draws = Draws(rng.integers(0, POOL, 60), rng.random(60), rng.random(60), rng)
    acting, logged = LEARNERS[name](), LEARNERS[name]()
    first = acting.candidate().frozen().probabilities(X)[draws.rows[0]]
    out = acting.run(answers, draws)
    logged.update(Rounds.of(features, out.actions, out.rewards, out.propensities, n_actions=K, context_ids=draws.rows))

    np.testing.assert_allclose(acting.weights, logged.weights, rtol=1e-10, atol=1e-12)
    assert out.propensities[0] == pytest.approx(first[out.actions[0]], rel=1e-12)
    assert out.expected[0] == pytest.approx(0.1 + 0.8 * first[LABELS[draws.rows[0]]], rel=1e-12)


def test_impossible_options_are_refused() -> None:
    """Step sizes, decays, caps, temperatures and shapes, each named."""
    for options, message in (
        ({"lr": 0.0}, "lr: 0.0"),
        ({"lr": float("nan")}, "lr: nan"),
        ({"lr": float("inf")}, "lr: inf"),
        ({"l2": -1.0}, "l2: -1.0"),
        ({"l2": float("nan")}, "l2: nan"),
        ({"lr": 0.5, "l2": 2.0}, "l2: 2.0; must be non-negative with lr \\* l2 below 1"),
        ({"decay": "some"}, "decay: 'some'"),
        ({"tau": 0.0}, "tau: 0.0"),
        ({"cap": 1.5}, "cap: 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            ips(**options)
    with pytest.raises(ValueError, match="contexts: 2 features, but the learner has 5"):
        ips().update(Rounds.of(np.ones((1, 2)), [0], [1], [0.5], n_actions=K))
    with pytest.raises(ValueError, match="'ridge' is not available for squared loss on sparse contexts"):
        SquaredLoss(START, epsilon=0.1, lr=0.05, l2=0.1, decay="ridge").update(
            Rounds.of(csr(X[:1]), [0], [1], [0.5], n_actions=K)
        )
