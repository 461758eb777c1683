"""Reward models for the control variate: what they predict, and when they learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from seamark.estimation.reward_models import FixedModel, RidgeModel, RunningMean, reward_model
from seamark.gates.challenger import ChallengerGate
from seamark.policies import ConstantPolicy
from seamark.rounds import Rounds, as_features


def some_rounds(n: int, seed: int = 0, first: int = 0) -> Rounds:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    actions = rng.integers(0, 2, n)
    rewards = np.clip(0.5 + 0.2 * x[:, 0] * (2 * actions - 1), 0, 1)
    zeros = np.zeros(n, dtype=np.int64)
    return Rounds(x, np.arange(n), actions, rewards, np.full(n, 0.5), zeros, first)


def test_choices_are_built_by_name_or_from_a_function() -> None:
    assert reward_model(None, 2) is None
    assert isinstance(reward_model("mean", 2), RunningMean)
    assert isinstance(reward_model("ridge", 2), RidgeModel)
    assert isinstance(reward_model(lambda x: x, 2), FixedModel)
    with pytest.raises(ValueError, match="reward_model: 'best'"):
        reward_model("best", 2)  # type: ignore[arg-type]


def test_ridge_equals_its_normal_equations_over_several_legs() -> None:
    """theta_a = (X'X + I)^-1 X'r of the action's rounds, with an intercept; catches a leg that is not learned."""
    model, rounds = RidgeModel(2, first_fit=90), some_rounds(90)
    for t in range(0, 90, 30):
        model.learn(rounds[t : t + 30])
    new = np.random.default_rng(1).normal(size=(5, 3))

    x = np.column_stack([rounds.contexts(), np.ones(90)])
    for a in range(2):
        mine = rounds.actions == a
        theta = np.linalg.solve(x[mine].T @ x[mine] + np.eye(4), x[mine].T @ rounds.rewards[mine])
        expected = np.clip(np.column_stack([new, np.ones(5)]) @ theta, 0, 1)
        np.testing.assert_allclose(model.predict(new)[:, a], expected, atol=1e-12)


def test_ridge_changes_at_geometric_times_only() -> None:
    model, changed = RidgeModel(2, first_fit=100, growth=1.5), []
    for t in range(0, 1_000, 10):
        before = model.fits
        model.learn(some_rounds(10, seed=t))
        if model.fits > before:
            changed.append(t + 10)
    assert changed == [100, 150, 230, 350, 530, 800]


def test_a_gate_with_ridge_scores_a_leg_before_it_learns_from_it() -> None:
    """Trap 3: the first leg is scored with no model at all, though it would be enough for a fit."""
    d = ConstantPolicy([0.5, 0.5])
    gate = ChallengerGate(2, reward_model="ridge")
    gate.reign(d, 0, 0)
    gate.offer(ConstantPolicy([0.9, 0.1]), 500)
    model: Any = gate._scorer.model
    asked: list[int] = []
    predict = model.predict

    def spy(contexts: Any) -> Any:
        asked.append(model.fits)
        return predict(contexts)

    model.predict = spy
    for leg in range(3):
        gate.observe(some_rounds(200, seed=leg, first=200 * leg), d)
    assert asked == [0, 1, 2]
    assert model.fits == 3


def test_ridge_refuses_sparse_contexts() -> None:
    """A dense matrix of features x features per action would not fit."""
    sparse = as_features(csr_matrix(np.eye(3)))
    rounds = some_rounds(3)
    with pytest.raises(ValueError, match="needs dense contexts"):
        RidgeModel(2).learn(Rounds(**{**vars(rounds), "features": sparse}))


def test_fixed_model_is_clipped_and_checked() -> None:
    x = np.zeros((2, 3))
    model = FixedModel(lambda x: [[-1.0, 0.5], [2.0, 0.5]], 2)
    np.testing.assert_array_equal(model.predict(x), [[0.0, 0.5], [1.0, 0.5]])
    with pytest.raises(ValueError, match="returned shape"):
        FixedModel(lambda x: np.zeros((2, 3)), 2).predict(x)
    with pytest.raises(ValueError, match="must be finite"):
        FixedModel(lambda x: np.full((2, 2), np.nan), 2).predict(x)
