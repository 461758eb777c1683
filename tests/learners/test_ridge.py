"""Ridge learners against NumPy twins, brute force, and their promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ridge_twins import ClucbTwin, RidgeTwin, ridge_twin
from scipy.stats import binom, ks_2samp, norm

from seamark.learners.base import Acted, Answers, Draws
from seamark.learners.clucb import CLUCB
from seamark.learners.ridge import LinUCB, RidgeStart, Thompson, bytes_needed, ridge_start
from seamark.policies import ConstantPolicy, EstimatorPolicy, UniformPolicy, draw
from seamark.policies.optimistic import OptimisticPolicy, highest_of_normals
from seamark.rounds import Csr, Rounds, as_features

K, D = 3, 5
FALSE_ALARM = 1e-6


def world(d: int = D, *, pool: int = 20, right: float = 0.8, wrong: float = 0.2, seed: int = 1) -> Answers:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((pool, d)) / np.sqrt(d)
    features[rng.random((pool, d)) < 0.2] = 0.0
    return Answers(features, rng.integers(0, K, pool), right, wrong)


def leg(n: int, *, pool: int = 20, seed: int = 2) -> Draws:
    rng = np.random.default_rng(seed)
    return Draws(rng.integers(0, pool, n), rng.random(n), rng.random(n), np.random.default_rng((seed, 1)))


def part(draws: Draws, some: slice) -> Draws:
    return Draws(draws.rows[some], draws.actions[some], draws.rewards[some], draws.learner)


def rounds_of(answers: Answers, draws: Draws, acted: Acted) -> Rounds:
    return Rounds.of(
        answers.features, acted.actions, acted.rewards, acted.propensities, n_actions=K, context_ids=draws.rows
    )


def warm(answers: Answers, l2: float = 2.0, **targets: float) -> RidgeStart:
    return ridge_start(np.asarray(answers.features)[:8], answers.labels[:8], K, l2, **targets)


def baseline_of(answers: Answers, *, good: float = 0.5) -> EstimatorPolicy:
    """Gives the label's action probability `good`, the others shares of the rest."""
    x = np.asarray(answers.features)
    labels = answers.labels

    class Table:
        classes_ = np.arange(K)

        def predict_proba(self, contexts: Any) -> Any:
            nearest = ((contexts[:, None, :] - x[None]) ** 2).sum(axis=2).argmin(axis=1)
            return np.where(labels[nearest][:, None] == np.arange(K), good, (1 - good) / (K - 1))

    return EstimatorPolicy(Table(), K, "table")


def clucb(answers: Answers, **options: Any) -> CLUCB:
    d = np.asarray(answers.features).shape[1]
    settings = {
        "baseline": baseline_of(answers, good=0.8), "alpha": 0.1, "l2": 2.0, "delta": 0.1, "norm_bound": 0.2,
        "beta_scale": 0.5,
    }  # fmt: skip
    return CLUCB(K, d, **(settings | options))


def clucb_twin(learner: CLUCB, d: int, start: RidgeStart | None = None) -> ClucbTwin:
    return ClucbTwin(
        K, d, learner.l2, start, alpha=learner.alpha, delta=learner.delta, norm_bound=learner.norm_bound,
        noise=learner.noise, beta_scale=learner.beta_scale,
    )  # fmt: skip


def learners(answers: Answers) -> list[Any]:
    return [
        LinUCB(K, D, alpha=0.7, l2=2.0, start=warm(answers), floor=0.1),
        Thompson(K, D, alpha=0.7, l2=2.0, start=warm(answers), floor=0.1),
        clucb(answers, start=warm(answers)),
    ]


def assert_same_run(acted: Acted, twin: list[tuple[int, float, float, float]]) -> None:
    actions, rewards, propensities, expected = (np.array(column) for column in zip(*twin))
    np.testing.assert_array_equal(acted.actions, actions)
    np.testing.assert_array_equal(acted.rewards, rewards)
    np.testing.assert_allclose(acted.propensities, propensities, atol=1e-10)
    np.testing.assert_allclose(acted.expected, expected, atol=1e-10)


def assert_same_state(one: Any, other: Any) -> None:
    ours, theirs = one.state(), other.state()
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


# the NumPy twins


@pytest.mark.parametrize("d", [5, 6])
@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_linucb_is_its_numpy_twin(d: int, is_warm: bool, clip: bool) -> None:
    """Same actions, propensities, weights as inverting every matrix in every round. Caught: a dropped 2 x0 x1 r1[i]."""
    answers, draws = world(d), leg(200)
    start = warm(answers) if is_warm else None
    learner = LinUCB(K, d, alpha=1.0, l2=2.0, start=start, clip=clip, floor=0.1)
    learner.refresh_every = 13
    twin = RidgeTwin(K, d, 2.0, start)

    acted = learner.run(answers, draws)

    assert_same_run(acted, ridge_twin(twin, answers, draws, alpha=1.0, clip=clip, floor=0.1))
    np.testing.assert_allclose(learner.weights, [twin.theta(a) for a in range(K)], atol=1e-10)
    np.testing.assert_allclose(learner.inverses, [twin.inverse(a) for a in range(K)], atol=1e-10)


def test_thompson_sampling_is_its_numpy_twin() -> None:
    """Same run as inverting every matrix, on the same normals. Caught: a variance in place of the deviation."""
    answers, draws = world(), leg(200)
    learner = Thompson(K, D, alpha=0.5, l2=2.0, start=warm(answers), floor=0.05)
    normals = np.random.default_rng((2, 1)).standard_normal((200, K))
    twin = RidgeTwin(K, D, 2.0, warm(answers))

    acted = learner.run(answers, draws)

    assert_same_run(acted, ridge_twin(twin, answers, draws, alpha=0.5, clip=False, floor=0.05, normals=normals))
    np.testing.assert_allclose(learner.weights, [twin.theta(a) for a in range(K)], atol=1e-10)


@pytest.mark.parametrize("is_warm", [False, True])
def test_clucb_is_its_numpy_twin(is_warm: bool) -> None:
    """Same run, count and slack as the constraint summed over all rounds. Caught: images not moved by learning."""
    answers, draws = world(right=0.9, wrong=0.1), leg(200)
    start = warm(answers) if is_warm else None
    learner = clucb(answers, start=start)
    learner.refresh_every = 17
    twin = clucb_twin(learner, D, start)
    table = learner.baseline.probabilities(answers.features)

    acted = learner.run(answers, draws)

    assert_same_run(acted, twin.run(answers, draws, table))
    np.testing.assert_allclose(learner.weights, [twin.theta(a) for a in range(K)], atol=1e-10)
    assert learner.beta == pytest.approx(twin.beta(), abs=1e-10)
    assert (learner.n_rounds, learner.n_conservative) == (200, sum(twin.conservative))
    assert 10 < learner.n_conservative < 180  # both branches are exercised
    assert learner.slack == pytest.approx(twin.slacks[-1], abs=1e-9)
    assert learner.smallest_slack == pytest.approx(min(twin.slacks), abs=1e-9)


@pytest.mark.parametrize("refresh_every", [7, 5000])
def test_the_incremental_constraint_of_clucb_is_the_brute_force_one(refresh_every: int) -> None:
    """min <theta, y> agrees to 1e-9 in every context and baseline action. Caught: 1 - alpha not squared in ||y||."""
    from seamark.kernels.ridge import clucb_bounds

    answers, draws = world(right=0.9, wrong=0.1), leg(200)
    learner = clucb(answers, start=warm(answers))
    learner.refresh_every = refresh_every
    twin = clucb_twin(learner, D, warm(answers))
    table = learner.baseline.probabilities(answers.features)
    x = np.asarray(answers.features)

    for first in range(0, 200, 20):
        learner.run(answers, part(draws, slice(first, first + 20)))
        twin.run(answers, part(draws, slice(first, first + 20)), table)

        squares = np.einsum("nd,ade,ne->na", x, learner.inverses, x)
        for i in range(0, 20, 5):
            for best in range(K):
                bounds = np.empty(K)
                clucb_bounds(
                    learner._budget, learner.weights @ x[i], squares[i], learner._budget.images @ x[i],
                    best, 1 - learner.alpha, learner.beta, bounds,
                )  # fmt: skip
                brute = [np.inf if b == best else twin.bound(x[i], best, b) for b in range(K)]
                np.testing.assert_allclose(bounds, brute, rtol=0, atol=1e-9)


# ridge regression


def test_a_start_is_full_information_ridge() -> None:
    """Every labelled row informs all actions. Caught: 0 in place of `wrong`."""
    answers = world()
    start = warm(answers, right=0.8, wrong=0.2)
    x, labels = np.asarray(answers.features)[:8], answers.labels[:8]
    gram = 2.0 * np.eye(D) + x.T @ x

    assert start.inverses.shape == (K, D, D)
    np.testing.assert_allclose(start.inverse, np.linalg.inv(gram), atol=1e-12)
    assert start.log_det == pytest.approx(np.linalg.slogdet(gram)[1] - D * np.log(2.0))
    for a in range(K):
        targets = [0.8 if label == a else 0.2 for label in labels]
        np.testing.assert_allclose(start.weights[a], np.linalg.solve(gram, x.T @ targets), atol=1e-12)


@pytest.mark.parametrize("refresh_every", [100, 10**9])
def test_rank_one_updates_give_the_inverse(refresh_every: int) -> None:
    """20,000 updates end at np.linalg.inv of the Gram matrix. Caught: V grown by 0.99 x x'."""
    answers = world(8, pool=300)
    n, rng = 20_000, np.random.default_rng(3)
    rows, actions = rng.integers(0, 300, n), rng.integers(0, K, n)
    rounds = Rounds.of(answers.features, actions, rng.random(n), np.ones(n), n_actions=K, context_ids=rows)
    learner = LinUCB(K, 8, alpha=1.0, l2=0.5)
    learner.refresh_every = refresh_every

    learner.update(rounds)

    for a in range(K):
        x = np.asarray(answers.features)[rows[actions == a]]
        gram = 0.5 * np.eye(8) + x.T @ x
        np.testing.assert_allclose(learner.inverses[a], np.linalg.inv(gram), rtol=0, atol=1e-10)
        weights = np.linalg.solve(gram, x.T @ rounds.rewards[actions == a])
        np.testing.assert_allclose(learner.weights[a], weights, rtol=0, atol=1e-10)


def test_recomputing_the_inverse_removes_drift() -> None:
    """Spoilt inverses and weights are exact again after a refresh, in CLUCB's budget too. Caught: g kept."""
    answers = world()
    learner, twin = clucb(answers), clucb(answers)
    learner.refresh_every = twin.refresh_every = 5
    for each in (learner, twin):
        each.run(answers, leg(40))
    twin._arms.packed[:] += 1e-3 * np.tril(np.ones((D, D)))
    twin._arms.weights[:] += 1e-3
    actions = np.repeat(np.arange(K), 5)
    rounds = Rounds.of(answers.features, actions, np.ones(15), np.ones(15), n_actions=K, context_ids=np.arange(15))

    for each in (learner, twin):
        each.update(rounds)

    for ours, theirs in zip((*learner._arms, *learner._budget), (*twin._arms, *twin._budget)):
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-12)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_update_learns_what_acting_learnt(which: int) -> None:
    """Fed with the rounds another instance played, a learner has its weights. Caught: rows ignored by update."""
    answers, draws = world(), leg(200)
    one, other = learners(answers)[which], learners(answers)[which]

    other.update(rounds_of(answers, draws, one.run(answers, draws)))

    np.testing.assert_allclose(other.weights, one.weights, atol=1e-12)
    np.testing.assert_allclose(other.inverses, one.inverses, atol=1e-12)
    if which == 2:
        assert other.beta == pytest.approx(one.beta)
        assert (other.n_rounds, other.slack, other._budget.norms.sum()) == (0, 0.0, 0.0)


def test_learning_uses_the_given_rows_only() -> None:
    """Contexts of the pool that no round names do not matter. Caught: rows ignored by update."""
    answers, draws = world(), leg(50)
    rounds = rounds_of(answers, draws, LinUCB(K, D, alpha=1.0, l2=2.0).run(answers, draws))
    few = rounds[:1]
    moved = np.asarray(answers.features) + (np.arange(20)[:, None] != few.rows[0])
    one, other = LinUCB(K, D, alpha=1.0, l2=2.0), LinUCB(K, D, alpha=1.0, l2=2.0)

    one.update(few)
    other.update(Rounds.of(moved, few.actions, few.rewards, few.propensities, n_actions=K, context_ids=few.rows))

    assert_same_state(one, other)


# LinUCB


def test_clipped_actions_share_the_probability() -> None:
    """Where all scores are cut at 1, a grid of 30 uniforms plays each action 10 times. Caught: first of the ties."""
    answers = world()
    learner = LinUCB(K, D, alpha=100.0, l2=2.0)
    fresh, played = learner.state(), []

    for u in (np.arange(30) + 0.5) / 30:
        learner.restore(fresh)
        acted = learner.run(answers, Draws(np.array([1]), np.array([u]), np.array([0.5]), leg(1).learner))
        played.append(acted.actions[0])
        assert acted.propensities[0] == 1 / K

    assert np.bincount(played).tolist() == [10, 10, 10]


def test_without_the_clip_the_most_uncertain_action_leads() -> None:
    """An action never played has the widest bonus; unclipped it is chosen with certainty. Caught: clip ignored."""
    answers = world()
    learner = LinUCB(K, D, alpha=100.0, l2=2.0, clip=False)
    x = np.asarray(answers.features)
    learner.update(Rounds.of(x[[1, 1]], [0, 1], [1, 1], [1, 1], n_actions=K))

    acted = learner.run(answers, Draws(np.array([1]), np.array([0.1]), np.array([0.5]), leg(1).learner))

    assert (acted.actions[0], acted.propensities[0]) == (2, 1.0)


@pytest.mark.parametrize("which", [0, 1])
def test_the_floor_is_respected(which: int) -> None:
    """Propensities are floor / K, or that plus 1 - floor where nothing ties. Caught: argmax of p played."""
    answers = world()
    kind = (LinUCB, Thompson)[which]
    learner = kind(K, D, alpha=0.2, l2=2.0, start=warm(answers), floor=0.3)

    acted = learner.run(answers, leg(400))

    assert np.unique(acted.propensities.round(12)).tolist() == [0.1, 0.8]
    best, rest = 0.8 * answers.right + 0.2 * answers.wrong, 0.1 * answers.right + 0.9 * answers.wrong
    assert np.unique(acted.expected.round(12)).tolist() == pytest.approx([rest, best])


def test_the_acting_policy_of_linucb_is_what_acts_next() -> None:
    """Batched probabilities equal the propensities of one more round, ties included. Caught: clip left out."""
    answers = world()
    for alpha in (0.3, 2.0):
        learner = LinUCB(K, D, alpha=alpha, l2=2.0, start=warm(answers), floor=0.1)
        learner.run(answers, leg(60))
        policy, state = learner.acting_policy(), learner.state()
        p = policy.probabilities(answers.features)

        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        assert policy.min_probability == pytest.approx(0.1 / K)
        for i in range(20):
            for u in (0.05, 0.35, 0.65, 0.95):
                learner.restore(state)
                acted = learner.run(answers, Draws(np.array([i]), np.array([u]), np.array([0.5]), leg(1).learner))
                assert acted.propensities[0] == pytest.approx(p[i, acted.actions[0]])


def test_policies_made_from_a_learner_stand_still() -> None:
    """Later learning moves the candidate, not the acting or frozen policies. Caught: a copy as candidate."""
    answers = world()
    for learner in learners(answers):
        live, kept = learner.candidate(), learner.candidate().frozen()
        still = learner.acting_policy()
        before = [(p.id, p.probabilities(answers.features)) for p in (kept, still)]

        learner.run(answers, leg(50))

        for policy, (name, p) in zip((kept, still), before):
            assert policy.id == name == policy.frozen().id
            np.testing.assert_array_equal(policy.probabilities(answers.features), p)
        assert live.weights is not kept.weights
        np.testing.assert_array_equal(live.weights, learner.weights)
        assert live.acts.floor == 0.0


def test_scores_that_cannot_lead_are_left_out_and_change_nothing() -> None:
    """Bounds from earlier visits give the run of one that knows none, stay above the truth, and fall.

    Caught: half of the last square as a bound; the square of another action.
    """
    answers = world()
    for lazy, full in zip(learners(answers)[:2], learners(answers)[:2]):
        for first in range(0, 300, 50):
            draws = leg(300)
            part = slice(first, first + 50)
            rng = np.random.default_rng(first), np.random.default_rng(first)
            one, other = (Draws(draws.rows[part], draws.actions[part], draws.rewards[part], g) for g in rng)
            kept = lazy._largest_squares(answers.features).copy()
            full._largest_squares(answers.features)[...] = np.inf

            for a, b in zip(lazy.run(answers, one), full.run(answers, other)):
                np.testing.assert_array_equal(a, b)

            squares = lazy._largest_squares(answers.features)
            exact = np.einsum("nd,ade,ne->na", answers.features, lazy.inverses, answers.features)
            assert (squares >= exact * (1 - 1e-9)).all()
            assert (squares <= kept * (1 + 1e-6)).all()
        assert np.isfinite(squares[np.unique(draws.rows)]).any(axis=1).all()


# Thompson sampling


def posterior(floor: float = 0.0) -> Thompson:
    answers = world()
    learner = Thompson(K, D, alpha=0.6, l2=2.0, start=warm(answers), floor=floor)
    learner.run(answers, leg(60))
    return learner


@pytest.mark.statistical
def test_scores_have_the_law_of_weights_drawn_from_the_posterior() -> None:
    """KS of 20,000 draws per action against weights of multivariate_normal(theta, alpha^2 V^-1), times x.

    False alarm <= 1e-6 over the seed (1e-6 / 3 per action, and 5 standard errors for each correlation, 6e-7 each).
    Caught: alpha squared in the deviation; the variance in its place.
    """
    from seamark.kernels.ridge import score_of

    learner, x = posterior(), np.asarray(world().features)[3]
    n, rng = 20_000, np.random.default_rng(5)
    scores = np.array(
        [
            [score_of(learner._arms, a, x, learner.alpha, g, np.empty(K)) for a, g in enumerate(normals)]
            for normals in rng.standard_normal((n, K))
        ]
    )

    for a in range(K):
        weights = rng.multivariate_normal(learner.weights[a], learner.alpha**2 * learner.inverses[a], n)
        assert ks_2samp(scores[:, a], weights @ x).pvalue > FALSE_ALARM / K
    correlations = np.corrcoef(scores.T)[np.triu_indices(K, 1)]
    assert (np.abs(correlations) < 5 / np.sqrt(n)).all()


@pytest.mark.statistical
def test_the_acting_policy_of_thompson_sampling_is_how_often_drawn_scores_win() -> None:
    """Frequencies of 300,000 draws of the scores per context, 20 contexts and 3 actions, plus the floor.

    False alarm <= 1e-6 over the seed: Hoeffding, 2 exp(-2 n eps^2) = 1e-6 / 60 at eps = 0.0056. Caught: the greedy
    policy of the posterior means; alpha squared; one deviation for all actions; a floor left out.
    """
    learner, x = posterior(floor=0.1), np.asarray(world().features)
    n, rng = 300_000, np.random.default_rng(8)

    p = learner.acting_policy().probabilities(x)

    widths = learner.alpha * np.sqrt(np.einsum("nd,ade,ne->na", x, learner.inverses, x))
    for mean, width, row in zip(x @ learner.weights.T, widths, p):
        won = np.bincount((mean + width * rng.standard_normal((n, K))).argmax(axis=1), minlength=K) / n
        np.testing.assert_allclose(row, 0.9 * won + 0.1 / K, atol=np.sqrt(np.log(2 * p.size / FALSE_ALARM) / (2 * n)))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert learner.acting_policy().min_probability == pytest.approx(0.1 / K)


@pytest.mark.parametrize("ratio", [1.0, 30.0, 1e6, 1e15])
def test_the_higher_of_two_normals_has_its_closed_form(ratio: float) -> None:
    """Phi((m - k) / sqrt(s^2 + r^2)) to 1e-6, however narrow one of them is. Caught: nodes in one normal's scale."""
    means = np.random.default_rng(3).standard_normal((300, 2))
    deviations = np.array([1.0, 1 / ratio])

    p = highest_of_normals(means, np.tile(deviations, (300, 1)))

    expected = norm.cdf((means[:, 0] - means[:, 1]) / np.hypot(*deviations))
    np.testing.assert_allclose(p, np.stack([expected, 1 - expected], axis=1), atol=1e-6)


def test_normals_without_width_share_when_they_tie() -> None:
    """A posterior of width zero acts greedily. Caught: 0 / 0."""
    p = highest_of_normals(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), np.zeros((2, 3)))

    np.testing.assert_allclose(p, [[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.statistical
def test_thompson_sampling_plays_an_action_as_often_as_its_weights_win() -> None:
    """Actions of 4,000 first rounds against the argmax of drawn weights.

    False alarm <= 1e-6: difference of two frequencies within 5.5 standard errors at most (4e-8 per action).
    Caught: one normal shared by all actions.
    """
    learner, answers = posterior(), world()
    n, rng = 4000, np.random.default_rng(6)
    state, played = learner.state(), np.empty(n, dtype=np.int64)
    for t in range(n):
        learner.restore(state)
        played[t] = learner.run(answers, Draws(np.array([0]), np.full(1, 0.5), np.full(1, 0.5), rng)).actions[0]
    learner.restore(state)
    x = np.asarray(answers.features)[0]
    drawn = [
        rng.multivariate_normal(learner.weights[a], learner.alpha**2 * learner.inverses[a], n) @ x for a in range(K)
    ]

    difference = (np.bincount(played, minlength=K) - np.bincount(np.argmax(drawn, axis=0), minlength=K)) / n
    assert (np.abs(difference) < 5.5 * np.sqrt(2 * 0.25 / n)).all()


# CLUCB


def test_conservative_rounds_play_the_baselines_own_action() -> None:
    """With a huge radius nothing but the baseline's draws is played. Caught: a second draw for the fallback."""
    answers, draws = world(), leg(300)
    learner = clucb(answers, norm_bound=1e6, beta_scale=1.0)
    table = learner.baseline.probabilities(answers.features)

    acted = learner.run(answers, draws)

    expected = draw(table[draws.rows], draws.actions)
    np.testing.assert_array_equal(acted.actions, expected.actions)
    np.testing.assert_array_equal(acted.propensities, expected.propensities)
    np.testing.assert_allclose(
        acted.expected, answers.wrong + 0.6 * table[draws.rows, answers.labels[draws.rows]], atol=1e-12
    )
    assert 0 < learner.n_conservative <= 300


def test_rounds_that_leave_the_baselines_action_are_not_conservative() -> None:
    """Of the rounds, those unlike the baseline's draw are at most the optimistic ones. Caught: count inverted."""
    answers, draws = world(right=0.9, wrong=0.1), leg(2000)
    learner = clucb(answers)

    acted = learner.run(answers, draws)

    table = learner.baseline.probabilities(answers.features)
    others = (acted.actions != draw(table[draws.rows], draws.actions).actions).sum()
    assert 100 < others <= learner.n_rounds - learner.n_conservative


def test_the_propensity_of_clucb_is_the_frequency_of_the_action() -> None:
    """On a grid of 400 uniforms from one state, actions come as often as their propensity says, in every context.

    Caught: propensity 1 for optimistic rounds.
    """
    answers = world(right=0.9, wrong=0.1)
    learner = clucb(answers)
    mixed = 0
    for n in (20, 60, 100, 140):
        learner.run(answers, leg(n, seed=n))
        state, policy = learner.state(), learner.acting_policy()
        p = policy.probabilities(answers.features)
        for i in range(20):
            counts, seen = np.zeros(K), np.zeros(K)
            for u in (np.arange(400) + 0.5) / 400:
                learner.restore(state)
                acted = learner.run(answers, Draws(np.array([i]), np.array([u]), np.full(1, 0.5), leg(1).learner))
                counts[acted.actions[0]] += 1
                seen[acted.actions[0]] = acted.propensities[0]
                label = int(answers.labels[i])
                assert acted.expected[0] == pytest.approx(0.1 + 0.8 * p[i, label], abs=1e-12)
            np.testing.assert_allclose(counts / 400, p[i], atol=1 / 400)
            np.testing.assert_allclose(seen, p[i], atol=1e-12)
            mixed += 0 < (p[i] > 0).sum() < K and p[i].max() < 1
    assert mixed > 0  # some context had one action of the baseline allowed and another not


@pytest.mark.statistical
@pytest.mark.parametrize("good", [0.6, 0.95])
def test_honest_clucb_keeps_the_share_of_the_baselines_reward(good: float) -> None:
    """The true slack falls below zero in any of 2,000 rounds in at most delta = 5 % of 200 seeded runs.

    A linear world: contexts are unit vectors. False alarm <= 1e-6 (binomial tail); it explores, too. Caught:
    beta_scale 0 breaks the constraint in all 200 runs, beta_scale 0.1 in 28 (good .6) and 41 (good .95).
    """
    answers = Answers(np.eye(3), np.array([0, 1, 2]), 0.9, 0.1)
    norm_bound = float(np.sqrt(3 * (0.9**2 + 2 * 0.1**2)))
    misses, explored = 0, 0
    for seed in range(200):
        learner = clucb(
            answers, baseline=baseline_of(answers, good=good), alpha=0.2, l2=1.0, delta=0.05, norm_bound=norm_bound,
            beta_scale=1.0,
        )  # fmt: skip
        learner.run(answers, leg(2000, pool=3, seed=seed))
        misses += learner.smallest_slack < 0
        explored += learner.n_conservative < 1000

    assert binom.sf(misses - 1, 200, 0.05) > FALSE_ALARM, f"{misses} of 200 runs broke the constraint"
    assert explored == 200
    assert learner.is_guaranteed


def test_a_scaled_radius_is_labelled_as_tuned() -> None:
    """Only the honest radius may claim the guarantee."""
    assert not clucb(world(), beta_scale=0.1).is_guaranteed


def test_the_baseline_is_asked_once_per_pool_of_contexts() -> None:
    """Probabilities are computed for a pool at its first leg and again for another pool. Caught: no cache key."""
    answers, calls = world(), []
    learner = clucb(answers)
    inner = learner.baseline

    class Counting(UniformPolicy):
        def probabilities(self, contexts: Any) -> Any:
            calls.append(len(contexts))
            return inner.probabilities(contexts)

    learner.baseline = Counting(K)
    other = world(pool=7, seed=9)
    for each, pool in ((answers, 20), (answers, 20), (other, 7)):
        learner.run(each, leg(10, pool=pool))

    assert calls == [20, 7]


# legs, state, refusals


@pytest.mark.parametrize("which", [0, 1, 2])
def test_two_legs_are_one(which: int) -> None:
    """A run cut in two gives the same bits as in one. Caught: the refresh counted per leg."""
    answers = world()
    one, two = learners(answers)[which], learners(answers)[which]
    one.refresh_every = two.refresh_every = 30
    whole, cut = leg(300), leg(300)

    together = one.run(answers, whole)
    apart = [two.run(answers, part(cut, some)) for some in (slice(0, 77), slice(77, 300))]

    for column, parts in zip(together, zip(*apart)):
        np.testing.assert_array_equal(column, np.concatenate(parts))
    assert_same_state(one, two)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_restored_learner_continues_with_the_same_bits(which: int) -> None:
    """State of one learner put into a fresh one: the next leg is the same, and the state is a copy. Caught: no copy."""
    answers = world()
    one, two = learners(answers)[which], learners(answers)[which]
    one.refresh_every = two.refresh_every = 30
    one.run(answers, leg(150))
    state = one.state()

    two.restore(state)
    first = one.run(answers, leg(150, seed=8))
    second = two.run(answers, leg(150, seed=8))

    for ours, theirs in zip(first, second):
        np.testing.assert_array_equal(ours, theirs)
    assert_same_state(one, two)
    assert not np.array_equal(state["weights"], one.weights)


def test_thompson_sampling_draws_its_normals_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long legs hold few normals at a time, with the same bits. Caught: actions of the wrong part."""
    answers = world()
    one, two = learners(answers)[1], learners(answers)[1]
    together = one.run(answers, leg(100))
    monkeypatch.setattr("seamark.learners.ridge._LEG", 33)

    for ours, theirs in zip(together, two.run(answers, leg(100))):
        np.testing.assert_array_equal(ours, theirs)


def test_sparse_contexts_are_refused_with_a_remedy() -> None:
    """A d x d matrix per action needs few dense features; the message says how to get them."""
    answers = world()
    sparse = Csr(np.array([0, 1]), np.array([0], dtype=np.int32), np.ones(1), D)
    log = Rounds.of(sparse, [0], [1], [1], n_actions=K)

    with pytest.raises(ValueError, match="hash="):
        ridge_start(sparse, [0], K, 1.0)
    for learner in learners(answers):
        with pytest.raises(ValueError, match="hash="):
            learner.update(log)
        with pytest.raises(ValueError, match="hash="):
            learner.run(Answers(sparse, np.array([0]), 1.0, 0.0), leg(1, pool=1))
    with pytest.raises(ValueError, match="hash="):
        learners(answers)[0].acting_policy().probabilities(sparse)
    with pytest.raises(ValueError, match="hash="):
        clucb(answers).acting_policy().probabilities(sparse)


def test_memory_can_be_asked_for_beforehand() -> None:
    """The 62,061 features of news20 would need 616 GB."""
    assert bytes_needed(20, 62_061) == LinUCB.bytes_needed(20, 62_061) == 20 * 62_061**2 * 8
    learner = LinUCB(K, D, alpha=1.0, l2=1.0)
    assert learner._arms.packed.nbytes == bytes_needed(K, D)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l2": 0.0}, "l2"),
        ({"alpha": -0.1}, "alpha"),
        ({"alpha": 1.5}, "alpha"),
        ({"delta": 1.0}, "delta"),
        ({"norm_bound": np.inf}, "norm_bound"),
        ({"noise": -1.0}, "noise"),
        ({"beta_scale": np.nan}, "beta_scale"),
        ({"baseline": ConstantPolicy([0.5, 0.5])}, "baseline"),
        ({"start": "other l2"}, "start"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], message: str) -> None:
    """The message starts with the argument at fault."""
    answers = world()
    if "start" in options:
        options = {"start": warm(answers, l2=3.0)}
    with pytest.raises(ValueError, match=f"^{message}: "):
        clucb(answers, **options)


def test_wrong_data_are_named() -> None:
    """Labels, shapes and states that do not fit are refused before anything is learnt."""
    answers = world()
    x = np.asarray(answers.features)
    with pytest.raises(ValueError, match=r"^labels: "):
        ridge_start(x[:2], [0, K], K, 1.0)
    with pytest.raises(ValueError, match=r"^labels: "):
        ridge_start(x[:2], [0], K, 1.0)
    with pytest.raises(ValueError, match=r"^l2: "):
        ridge_start(x[:2], [0, 1], K, 0.0)
    with pytest.raises(ValueError, match=r"^floor: "):
        LinUCB(K, D, alpha=1.0, l2=1.0, floor=1.5)
    with pytest.raises(ValueError, match=r"^inverses: "):
        OptimisticPolicy(np.zeros((K, D)), np.zeros((K, D, 2)), 1.0)
    learner = LinUCB(K, 4, alpha=1.0, l2=2.0)
    with pytest.raises(ValueError, match=r"^contexts: 5 features"):
        learner.run(answers, leg(1))
    with pytest.raises(ValueError, match=r"^state: "):
        learner.restore(LinUCB(K, D, alpha=1.0, l2=2.0).state())
    assert as_features(x) is x
