"""The direct method: against the normal equations, across forms of contexts, and saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support import csr, drawn_rounds, in_form, random_linear, with_zeros

from seamark.kernels.direct import conjugate_gradients, count_cells
from seamark.learners import direct
from seamark.learners.direct import CellSums, DirectRidge, GramSums
from seamark.persist import load_state, save_state
from seamark.policies import UniformPolicy
from seamark.rounds import FloatArray, Rounds

K, D = 3, 5
L2S = (0.5, 4.0)


def log(rng: np.random.Generator, n: int = 200, *, sparse: bool = False, recurring: bool = True) -> Rounds:
    """Rounds of a policy that favours some actions, with rewards that depend on context and action."""
    x = with_zeros(rng, 25, D)
    truth = rng.normal(size=(K, D))

    def rewards(rows: Any, actions: Any) -> FloatArray:
        return (rng.random(rows.size) < 1 / (1 + np.exp(-(x[rows] * truth[actions]).sum(axis=1)))).astype(float)

    policy = random_linear(rng, K, D)
    return drawn_rounds(rng, policy, in_form(x, sparse), n, rewards=rewards, recurring=recurring)


def dense_contexts(rounds: Rounds) -> FloatArray:
    """One row of features per round."""
    contexts = rounds.contexts()
    if isinstance(contexts, np.ndarray):
        return contexts
    x = np.zeros((len(rounds), D))
    for i in range(len(rounds)):
        part = slice(contexts.indptr[i], contexts.indptr[i + 1])
        x[i, contexts.indices[part]] = contexts.data[part]
    return x


def ridge(
    rounds: Rounds, l2: float, *, centre: float = 0.0, towards: FloatArray | None = None, weights: Any = None
) -> FloatArray:
    """The twin: weighted ridge of r - c, shrunk towards given weights, by stacking rows and least squares."""
    x, v = dense_contexts(rounds), np.zeros((K, D)) if towards is None else towards
    out = np.empty((K, D))
    root = np.ones(len(rounds)) if weights is None else np.sqrt(weights)
    for a in range(K):
        mine = rounds.actions == a
        rows = np.vstack([x[mine] * root[mine, None], np.sqrt(l2) * np.eye(D)])
        target = np.concatenate([(rounds.rewards[mine] - centre) * root[mine], np.sqrt(l2) * v[a]])
        out[a] = np.linalg.lstsq(rows, target, rcond=None)[0]
    return out


def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the tests' few features too many for a matrix per action."""
    monkeypatch.setattr(direct, "WIDEST_GRAM", D - 1)


def learner(**options: Any) -> DirectRidge:
    return DirectRidge(K, D, **{"l2s": L2S, "tolerance": 1e-12, "iterations": 200} | options)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("recurring", [False, True])
@pytest.mark.parametrize("cap", [None, 0.3])
def test_every_head_solves_the_normal_equations(sparse: bool, recurring: bool, cap: float | None) -> None:
    """Catches sums that miss a round or an action, a prior that is not the least-squares fit, weights left out."""
    rng = np.random.default_rng(1)
    rounds = log(rng, sparse=sparse, recurring=recurring)
    warm = rng.normal(size=(K, D))
    weights = None if cap is None else 1 / np.maximum(rounds.propensities, cap)

    fitted = learner(warm=warm, cap=cap)
    fitted.update(rounds)

    played = (dense_contexts(rounds) * warm[rounds.actions]).sum(axis=1)
    design = np.column_stack([played, np.ones(len(rounds))])
    root = np.ones(len(rounds)) if weights is None else np.sqrt(weights)
    beta, centre = np.linalg.lstsq(design * root[:, None], rounds.rewards * root, rcond=None)[0]
    if beta < 0:
        beta, centre = 0.0, np.average(rounds.rewards, weights=weights)
    assert fitted.names == ("l2=0.5", "l2=4", "l2=0.5 residual", "l2=4 residual")
    for l2, name in zip(L2S, fitted.names):
        np.testing.assert_allclose(fitted.solved(name), ridge(rounds, l2, weights=weights), atol=1e-10)
        shrunk = ridge(rounds, l2, centre=centre, towards=beta * warm, weights=weights)
        np.testing.assert_allclose(fitted.solved(f"{name} residual"), shrunk, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"warm": np.arange(15.0).reshape(3, 5) / 7}, {"centred": True}])
def test_conjugate_gradients_on_counts_solve_what_the_matrices_solve(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a wrong product or target in the sparse solver: equal to 1e-8, from cold and from a warm start."""
    rounds = log(np.random.default_rng(2), sparse=True)
    narrow = learner(**options)
    narrow.update(rounds)
    wide(monkeypatch)

    counted = learner(**options)
    assert isinstance(counted._sums, CellSums)
    assert isinstance(narrow._sums, GramSums)
    for leg in (rounds[:70], rounds[70:]):
        counted.update(leg)  # solves after the first, so the second starts from there

    assert counted.heads()
    for name in narrow.names:
        np.testing.assert_allclose(counted.solved(name), narrow.solved(name), atol=1e-8)


def test_the_compiled_solver_agrees_with_its_twin_after_each_iteration() -> None:
    """Catches a step that is wrong but converges anyway; the twin is textbook conjugate gradients on the matrix."""
    rng = np.random.default_rng(3)
    x = with_zeros(rng, 12, D)
    counts, sums, l2 = rng.integers(1, 5, 12).astype(float), rng.normal(size=12), 0.7
    matrix = l2 * np.eye(D) + x.T @ (counts[:, None] * x)
    for iterations in range(D + 1):
        w = np.ones(D)
        r = x.T @ sums - matrix @ w
        p = r
        for _ in range(iterations):
            step = r @ r / (p @ matrix @ p)
            w, rest = w + step * p, r - step * matrix @ p
            p, r = rest + rest @ rest / (r @ r) * p, rest
        out = np.ones(D)

        took = conjugate_gradients(csr(x), np.arange(12), counts, sums, l2, out, iterations, 1e-15)

        assert took == iterations
        np.testing.assert_allclose(out, w, atol=1e-10)


def test_counting_agrees_with_its_twin() -> None:
    """Catches a kernel that overwrites where it should add, or mixes up contexts and actions."""
    rng = np.random.default_rng(4)
    rows, actions = rng.integers(0, 6, 50), rng.integers(0, K, 50)
    rewards, weights = rng.random(50), rng.random(50)
    n, s, totals = np.zeros((6, K)), np.zeros((6, K)), np.zeros((K, 2))

    count_cells(rows, actions, rewards, weights, n, s, totals)

    expected_n, expected_s = np.zeros((6, K)), np.zeros((6, K))
    np.add.at(expected_n, (rows, actions), weights)
    np.add.at(expected_s, (rows, actions), weights * rewards)
    np.testing.assert_allclose(n, expected_n)
    np.testing.assert_allclose(s, expected_s)
    np.testing.assert_allclose(totals, np.stack([expected_n.sum(axis=0), expected_s.sum(axis=0)], axis=1))


@pytest.mark.parametrize("many_features", [False, True])
def test_legs_may_be_split_anywhere(many_features: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches sums that depend on where a leg ends."""
    rounds = log(np.random.default_rng(5), sparse=True)
    if many_features:
        wide(monkeypatch)
    whole, split = learner(warm=np.ones((K, D))), learner(warm=np.ones((K, D)))
    whole.update(rounds)
    for first, last in ((0, 1), (1, 2), (2, 90), (90, 90), (90, 200)):
        split.update(rounds[first:last])
    for name in whole.names:
        np.testing.assert_allclose(split.solved(name), whole.solved(name), atol=1e-9)


def test_an_action_never_played_keeps_the_prior() -> None:
    """Catches a solve with an empty matrix that moves weights, and a prior that forgets the warm start's direction."""
    rng = np.random.default_rng(6)
    x, warm = rng.normal(size=(40, D)), np.arange(K * D, dtype=float).reshape(K, D)
    rewards = (x @ warm[0] > 0).astype(float)
    rounds = Rounds.of(x, np.zeros(40), rewards, np.full(40, 0.5), n_actions=K)

    fitted = learner(warm=warm)
    fitted.update(rounds)

    assert not fitted.solved("l2=4")[1:].any()
    beta = fitted.solved("l2=4 residual")[1, 0] / warm[1, 0]
    assert beta > 0
    np.testing.assert_allclose(fitted.solved("l2=4 residual")[1:], beta * warm[1:])


def test_a_warm_start_that_is_wrong_is_not_reversed() -> None:
    """Catches a negative scale: evidence against a policy is no evidence for its opposite on unseen actions."""
    rng = np.random.default_rng(7)
    x, warm = rng.normal(size=(60, D)), rng.normal(size=(K, D))
    rounds = Rounds.of(x, np.zeros(60), (x @ warm[0] < 0).astype(float), np.full(60, 0.5), n_actions=K)
    fitted = learner(warm=warm)
    fitted.update(rounds)
    assert not fitted.solved("l2=4 residual")[1:].any()


def test_heads_stand_still_between_solves_and_candidates_do_not() -> None:
    """Catches a candidate that is stale, and heads that move when somebody looks at a candidate."""
    rounds = log(np.random.default_rng(8))
    fitted = learner(first_solve=50, solve_growth=3.0)
    fitted.update(rounds[:49])
    assert fitted.heads() == {}
    fitted.update(rounds[49:60])
    before = {name: w.copy() for name, w in fitted.heads().items()}
    fitted.update(rounds[60:120])

    moved = fitted.candidate().weights

    np.testing.assert_array_equal(fitted.heads()["l2=0.5"], before["l2=0.5"])
    np.testing.assert_allclose(moved, ridge(rounds[:120], 0.5), atol=1e-10)
    fitted.update(rounds[120:])
    assert not np.array_equal(fitted.heads()["l2=0.5"], before["l2=0.5"])


@pytest.mark.parametrize("many_features", [False, True])
def test_a_saved_learner_continues_with_the_same_bits(
    many_features: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Catches state that is left out (counts, pool, start of the solver, time of the next solve)."""
    rounds = log(np.random.default_rng(9), sparse=many_features)
    if many_features:
        wide(monkeypatch)
    options: dict[str, Any] = {"warm": np.ones((K, D)), "tolerance": 1e-3, "iterations": 2}
    one, two = learner(**options), learner(**options)
    one.update(rounds[:80])
    save_state(tmp_path / "saved", one.state())
    two.restore(load_state(tmp_path / "saved"))

    np.testing.assert_array_equal(two.candidate().weights, one.candidate().weights)
    for part in (rounds[80:95], rounds[95:]):
        one.update(part)
        two.update(part)

    for name in one.names:
        np.testing.assert_array_equal(two.heads()[name], one.heads()[name])
        np.testing.assert_array_equal(two.solved(name), one.solved(name))


def test_a_learner_without_rounds_has_a_candidate_and_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches divisions by no rounds."""
    for _ in range(2):
        empty = learner(warm=np.ones((K, D)), centred=True)
        empty.restore(empty.state())
        assert all(not empty.solved(name).any() for name in empty.names)
        wide(monkeypatch)


def test_wide_contexts_that_do_not_recur_are_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches sums per row of a log that grows for ever."""
    wide(monkeypatch)
    rng = np.random.default_rng(10)
    with pytest.raises(ValueError, match="do not recur as sparse rows"):
        learner().update(log(rng, sparse=True, recurring=False))
    with pytest.raises(ValueError, match="do not recur as sparse rows"):
        learner().update(log(rng, sparse=False, recurring=True))
    fitted = learner()
    fitted.update(log(rng, sparse=True))
    other = drawn_rounds(rng, UniformPolicy(K), csr(with_zeros(rng, 7, D)), 20)
    with pytest.raises(ValueError, match="a pool of 7, but it was one of 25"):
        fitted.update(other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l2s": ()}, "l2s"),
        ({"l2s": (1.0, 0.0)}, "l2s"),
        ({"l2s": (np.nan,)}, "l2s"),
        ({"warm": np.zeros((K, D + 1))}, "warm"),
        ({"cap": 0.0}, "cap"),
        ({"solve_growth": 1.0}, "solve_growth"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    """Catches options that would fail later, or silently."""
    with pytest.raises(ValueError, match=message):
        learner(**options)


def test_a_state_of_another_shape_is_refused() -> None:
    """Catches sums restored by broadcasting."""
    with pytest.raises(ValueError, match="state: gram has shape"):
        learner().restore(DirectRidge(K, D + 1, l2s=L2S).state())


def test_contexts_of_another_width_are_refused() -> None:
    """Catches weights applied to the wrong features."""
    rng = np.random.default_rng(11)
    for pool in (rng.normal(size=(4, D + 1)), csr(with_zeros(rng, 4, D + 1))):
        with pytest.raises(ValueError, match="6 features, but the learner has 5"):
            learner().update(drawn_rounds(rng, UniformPolicy(K), pool, 10))
