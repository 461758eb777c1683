"""Averaged weights: the average by hand, whatever the legs, and what it is good for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support import drawn_rounds, in_form, random_linear, with_zeros

from seamark.learners.averaged import Averaged
from seamark.learners.gradient import IPSGradient
from seamark.persist import load_state, save_state
from seamark.policies import ActingForm
from seamark.rounds import FloatArray, Rounds

K, D = 3, 5
SOFTMAX = ActingForm.softmax(0.5)


def ips(lr: float = 0.1, l2: float = 0.0) -> IPSGradient:
    return IPSGradient(np.zeros((K, D)), SOFTMAX, tau=0.5, lr=lr, l2=l2)


def learnable(n: int, *, sparse: bool = False, noise: float = 0.0) -> Rounds:
    rng = np.random.default_rng(3)
    x, truth = with_zeros(rng, 40, D), rng.normal(size=(K, D))

    def rewards(rows: Any, actions: Any) -> FloatArray:
        right = actions == (x @ truth.T).argmax(axis=1)[rows]
        return (right ^ (rng.random(right.size) < noise)).astype(float)

    return drawn_rounds(rng, random_linear(rng, K, D, tau=3.0), in_form(x, sparse), n, rewards=rewards)


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_candidate_is_the_weighted_mean_of_the_weights_at_every_so_many_rounds(power: float) -> None:
    """By hand: weights after s rounds count like s^power - (s - every)^power. Caught: a mean that counts them alike."""
    rounds, every = learnable(100), 10
    averaged, plain = Averaged(ips(), power=power, every=every), ips()
    averaged.update(rounds)

    snapshots = []
    for first in range(0, 100, every):
        plain.update(rounds[first : first + every])
        snapshots.append(plain.weights.copy())
    s = np.arange(1, 11) * every
    shares = s**power - (s - every) ** power
    expected = np.tensordot(shares / shares.sum(), snapshots, axes=1)
    np.testing.assert_allclose(averaged.candidate().weights, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(averaged.learner.weights, plain.weights)  # which goes on from its own


@pytest.mark.parametrize("sparse", [False, True])
def test_legs_change_nothing(sparse: bool) -> None:
    rounds = learnable(95, sparse=sparse)
    whole, cut = Averaged(ips(), every=10), Averaged(ips(), every=10)
    whole.update(rounds)
    for a, b in ((0, 1), (1, 10), (10, 37), (37, 37), (37, 95)):
        cut.update(rounds[a:b])

    assert whole.candidate().id == cut.candidate().id


def test_before_the_first_average_the_candidate_is_the_learners() -> None:
    averaged = Averaged(ips(), every=50)
    averaged.update(learnable(20))

    np.testing.assert_array_equal(averaged.candidate().weights, averaged.learner.weights)
    assert averaged.candidate().acts == SOFTMAX


@pytest.mark.parametrize("sparse", [False, True])
def test_saved_in_the_middle_it_continues_with_the_same_bits(tmp_path: Any, sparse: bool) -> None:
    rounds, whole, first, second = (
        learnable(90, sparse=sparse), Averaged(ips(), every=20), Averaged(ips(), every=20), Averaged(ips(), every=20),
    )  # fmt: skip
    whole.update(rounds)
    first.update(rounds[:47])
    save_state(tmp_path / "state.npz", first.state())
    second.restore(load_state(tmp_path / "state.npz"))
    second.update(rounds[47:])

    assert whole.candidate().id == second.candidate().id


def test_candidates_move_less_than_the_weights_that_they_average() -> None:
    """What averaging is for: once there is nothing left to learn, a candidate must not jump with every reward."""
    rounds, averaged = learnable(8_000, noise=0.3), Averaged(ips(lr=0.3, l2=0.1))
    moved, before = np.zeros(2), [np.zeros((K, D))] * 2
    for first in range(0, 8_000, 200):
        averaged.update(rounds[first : first + 200])
        now = [averaged.candidate().weights.copy(), averaged.learner.weights.copy()]
        if first >= 4_000:
            moved += [((a - b) ** 2).sum() for a, b in zip(now, before)]
        before = now

    assert moved[0] < 0.1 * moved[1]


@pytest.mark.parametrize(("option", "value"), [("power", 0.5), ("power", float("nan")), ("every", 0)])
def test_bad_options_are_refused_by_name(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=option):
        Averaged(ips(), **{option: value})
