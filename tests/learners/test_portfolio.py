"""The portfolio: what its score knows, what it chooses, and what it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support import drawn_rounds, in_form, random_linear, with_zeros

from seamark.kernels.direct import gain_scores
from seamark.learners import default, direct, portfolio
from seamark.learners.default import Shape, default_portfolio, mean_square
from seamark.learners.direct import DirectRidge
from seamark.learners.gradient import IPSGradient, SquaredLoss
from seamark.learners.portfolio import Member, Portfolio
from seamark.persist import load_state, save_state
from seamark.policies import ActingForm, CallablePolicy, ConstantPolicy, LinearPolicy, Policy, UniformPolicy
from seamark.rounds import FloatArray, Rounds

K, D = 3, 5
SOFTMAX = ActingForm.softmax(0.5)


class Standing:
    """A learner that never moves."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def update(self, rounds: Rounds) -> None: ...

    def candidate(self) -> Policy:
        return self.policy

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


class Cheat(Standing):
    """Memorises the leg that it learned from last: perfect on what it has seen, worst on everything else.

    Contexts are one-hot, so that weights can hold the memory.
    """

    def __init__(self, d: int) -> None:
        self.weights = np.zeros((K, d))

    def update(self, rounds: Rounds) -> None:
        self.weights[:] = 0.0
        self.weights[0] = 1.0  # the action that never pays
        for x, a, r in zip(rounds.rows, rounds.actions, rounds.rewards):
            self.weights[a, x] = 10 * r

    def candidate(self) -> LinearPolicy:
        return LinearPolicy(self.weights.view(), ActingForm.greedy())


def learnable(rng: np.random.Generator, n: int = 400, *, sparse: bool = False, recurring: bool = True) -> Rounds:
    """Rounds of a mild policy; the right action is linear in the context."""
    x = with_zeros(rng, 40, D)
    truth = rng.normal(size=(K, D))

    def rewards(rows: Any, actions: Any) -> FloatArray:
        return (actions == (x @ truth.T).argmax(axis=1)[rows]).astype(float)

    logger = random_linear(rng, K, D, tau=3.0)
    return drawn_rounds(rng, logger, in_form(x, sparse), n, rewards=rewards, recurring=recurring)


def baseline(rng: np.random.Generator, *, floor: float = 0.0) -> LinearPolicy:
    return LinearPolicy(0.1 * rng.normal(size=(K, D)), ActingForm.softmax(0.5, floor=floor)).frozen()


def legs_of(rounds: Rounds, *ends: int) -> list[Rounds]:
    return [rounds[a:b] for a, b in zip((0, *ends), (*ends, len(rounds)))]


def test_a_member_that_remembers_the_leg_it_is_scored_on_does_not_win() -> None:
    """Catches learning before scoring (broken on purpose: the cheat then wins with a score of about 1)."""
    rng, d = np.random.default_rng(1), 300
    honest = ConstantPolicy([0.1, 0.6, 0.3])
    rounds = drawn_rounds(
        rng, UniformPolicy(K), np.eye(d), 600, rewards=lambda rows, a: (rng.random(rows.size) < 0.4 * a).astype(float)
    )
    members = [Member("cheat", Cheat(d)), Member("honest", Standing(honest))]
    chosen = Portfolio(members, caution=0.0)
    for leg in legs_of(rounds, *range(20, 600, 20)):
        chosen.update(leg)

    assert chosen.candidate() is honest
    assert chosen.scores()[0] < chosen.scores()[1]

    last = Portfolio(members, caution=0.0)  # what it would score on what it has learned
    last._score(rounds[580:])
    assert last.ranking()[0].member == "cheat"


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("recurring", [False, True])
def test_the_better_of_two_members_is_chosen_in_its_better_form(sparse: bool, recurring: bool) -> None:
    """Catches a score with the wrong sign, and forms or members that are mixed up."""
    rng = np.random.default_rng(2)
    rounds = learnable(rng, 600, sparse=sparse, recurring=recurring)
    forms = (ActingForm.softmax(50.0), ActingForm.softmax(0.02))
    good, bad = DirectRidge(K, D, l2s=(1e6, 0.1)), random_linear(rng, K, D)

    chosen = Portfolio([Member("bad", Standing(bad), forms), Member("good", good, forms)])
    for leg in legs_of(rounds, 60, 200, 400):
        chosen.update(leg)

    best = chosen.candidate()
    assert isinstance(best, LinearPolicy)
    assert str(chosen.ranking()[0]) == "good l2=0.1 softmax(0.02)"
    assert best.acts == forms[1]
    np.testing.assert_array_equal(best.weights, good.solved("l2=0.1"))


def test_scores_are_the_clipped_gains_of_what_stood_before_the_leg() -> None:
    """Catches a kernel, a forgetting or an error bar that is not what the docstring says (twin by direct sums)."""
    rng = np.random.default_rng(3)
    rounds = learnable(rng, 300)
    forms = (ActingForm.softmax(0.3), ActingForm.epsilon_greedy(0.2), ActingForm.greedy())
    moving = IPSGradient(np.zeros((K, D)), SOFTMAX, tau=0.5, lr=0.05)
    code = CallablePolicy(lambda x: np.full((x.shape[0], K), 1 / K), K, "even")
    chosen = Portfolio(
        [Member("moving", moving, forms), Member("code", Standing(code))], cap=2.0, forgetting=3.0, caution=2.0
    )
    ends = [40, 100, 180, 300]
    gains, at = [], 0
    for leg in legs_of(rounds, *ends[:-1]):
        policies = [LinearPolicy(moving.weights.copy(), form) for form in forms] + [code]
        h = np.stack([p.probabilities(leg.contexts())[np.arange(len(leg)), leg.actions] for p in policies], axis=1)
        gains.append((np.minimum(h / leg.propensities[:, None], 2.0) - 1) * leg.rewards[:, None])
        chosen.update(leg)
        at += len(leg)

    weights = np.concatenate([np.full(len(g), (end / 300) ** 3.0) for g, end in zip(gains, ends)])
    g = np.concatenate(gains)
    mean = np.average(g, axis=0, weights=weights)
    error = np.sqrt((np.average(g**2, axis=0, weights=weights) - mean**2) / weights.sum())
    np.testing.assert_allclose(chosen.scores(), mean - 2.0 * error, atol=1e-12)


def test_the_gain_kernel_agrees_with_its_twin() -> None:
    """Catches sources that read another source's scores, and clipping on the wrong side."""
    rng = np.random.default_rng(4)
    n, scores = 30, rng.normal(size=(30, 2, K))
    source, taus, floors = np.array([0, 1, 1]), np.array([0.3, 0.0, 0.7]), np.array([0.0, 0.2, 0.1])
    actions, rewards, p = rng.integers(0, K, n), rng.random(n), rng.uniform(0.05, 1, n)
    out = np.empty((n, 3))

    gain_scores(scores, source, taus, floors, actions, rewards, p, 1.5, out)

    for h in range(3):
        chosen = ActingForm(taus[h], floors[h]).probabilities(scores[:, source[h]])[np.arange(n), actions]
        np.testing.assert_allclose(out[:, h], (np.minimum(chosen / p, 1.5) - 1) * rewards)


def test_large_legs_are_scored_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a batch that is scored after an earlier one was learned from, or left out."""
    rounds = learnable(np.random.default_rng(5), 500)
    standing = [random_linear(np.random.default_rng(i), K, D) for i in range(2)]
    scores = []
    for cells in (10**6, 200):
        monkeypatch.setattr(portfolio, "SCORE_CELLS", cells)
        chosen = Portfolio([Member(str(i), Standing(p)) for i, p in enumerate(standing)], forgetting=0.0)
        chosen.update(rounds)
        scores.append(chosen.scores())
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-12)


def test_members_end_with_the_weights_they_would_have_alone() -> None:
    """Catches scoring that disturbs learning: alone or in company, in one leg or many, the same weights."""
    rng = np.random.default_rng(6)
    rounds, start = learnable(rng), baseline(rng)

    def members() -> list[Member]:
        return [
            Member("ips", IPSGradient(start.weights, start.acts, tau=0.5, lr=0.1), (SOFTMAX,)),
            Member("direct", DirectRidge(K, D, l2s=(1.0,), warm=start.weights), (SOFTMAX,)),
        ]

    together, alone = Portfolio(members()), members()
    for leg in legs_of(rounds, 1, 2, 50, 51, 300):
        together.update(leg)
        together.candidate()
    for member in alone:
        member.learner.update(rounds)

    ips, ridge = (m.learner for m in together.members.values())
    np.testing.assert_array_equal(ips.candidate().weights, alone[0].learner.candidate().weights)  # type: ignore[attr-defined]
    np.testing.assert_allclose(
        ridge.candidate().weights,  # type: ignore[attr-defined]
        alone[1].learner.candidate().weights,  # type: ignore[attr-defined]
        atol=1e-9,
    )


def test_looking_at_candidates_changes_nothing() -> None:
    """Catches a `candidate` that solves, learns or counts on the side: runs must not depend on who looks."""
    rng = np.random.default_rng(7)
    rounds, start = learnable(rng), baseline(rng)
    seen, unseen = (default_portfolio(start, Shape.of(rounds.features)) for _ in range(2))
    for leg in legs_of(rounds, 10, 60, 200):
        seen.update(leg)
        unseen.update(leg)
        seen.candidates(4)
        seen.report()
    assert seen.candidate().id == unseen.candidate().id
    np.testing.assert_array_equal(seen.scores(), unseen.scores())


@pytest.mark.parametrize("kind", ["dense", "sparse", "wide"])
def test_a_saved_portfolio_continues_with_the_same_bits(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Catches members or scores that are left out of the state."""
    if kind == "wide":
        monkeypatch.setattr(direct, "WIDEST_GRAM", D - 1)
        monkeypatch.setattr(default, "WIDEST_GRAM", D - 1)
    rng = np.random.default_rng(8)
    rounds, start = learnable(rng, sparse=kind != "dense"), baseline(rng, floor=0.1)
    one, two = (default_portfolio(start, Shape.of(rounds.features)) for _ in range(2))
    for leg in legs_of(rounds, 5, 90)[:2]:
        one.update(leg)
    save_state(tmp_path / "saved", one.state())
    two.restore(load_state(tmp_path / "saved"))

    assert two.candidate().id == one.candidate().id
    for leg in legs_of(rounds, 90, 150, 300)[1:]:
        one.update(leg)
        two.update(leg)

    np.testing.assert_array_equal(two.scores(), one.scores())
    assert [p.id for p in two.candidates(5)] == [p.id for p in one.candidates(5)]


def test_a_state_of_other_members_is_refused() -> None:
    """Catches scores that are given to the wrong sources."""
    one = Portfolio([Member("a", Standing(UniformPolicy(K)))])
    two = Portfolio([Member("b", Standing(UniformPolicy(K)))])
    with pytest.raises(ValueError, match="saved with sources"):
        two.restore(one.state())


def test_before_any_score_the_candidate_is_the_first_member_in_its_first_form() -> None:
    """Catches a portfolio that has nothing to offer at the start; the default one then offers the baseline."""
    start = baseline(np.random.default_rng(9))
    chosen = default_portfolio(start, Shape.of(np.ones((2, D))))
    assert chosen.candidate().frozen().id == start.id
    assert chosen.ranking() == []
    chosen.update(learnable(np.random.default_rng(9))[:0])
    assert chosen.ranking() == []


def test_candidates_are_distinct_and_in_the_order_of_their_scores() -> None:
    """Catches the same policy taking two places, and a ranking that is not by score."""
    uniform, skewed = UniformPolicy(K), ConstantPolicy([0.2, 0.2, 0.6])
    rounds = drawn_rounds(
        np.random.default_rng(10), uniform, np.eye(D), 300, rewards=lambda rows, a: (a == 2).astype(float)
    )
    chosen = Portfolio([Member(str(i), Standing(p)) for i, p in enumerate((uniform, skewed, uniform))])
    chosen.update(rounds)
    assert chosen.candidates(5) == [skewed, uniform]
    assert [row["source"] for row in chosen.report()] == ["1", "0", "2"]


def test_a_member_that_diverges_is_never_chosen() -> None:
    """Catches a score that is not a number and sorts first."""
    rng = np.random.default_rng(11)
    rounds = learnable(rng)
    lost = Standing(LinearPolicy(np.full((K, D), np.nan), ActingForm.softmax(1.0)))
    chosen = Portfolio([Member("lost", lost), Member("even", Standing(UniformPolicy(K)))])
    for leg in legs_of(rounds, 100):
        chosen.update(leg)
    assert [source.member for source in chosen.ranking()] == ["even"]


def test_actions_hardly_ever_tried_earn_nothing() -> None:
    """Catches uncut importance weights: one lucky round of an action of probability 0.001 must not decide."""
    rounds = Rounds.of(np.ones((100, 1)), [0] * 99 + [1], [1.0] * 100, [0.999] * 99 + [0.001], n_actions=2)
    members = [Member(str(a), Standing(ConstantPolicy(p))) for a, p in enumerate(([0.9, 0.1], [0.0, 1.0]))]
    by_weight = [Portfolio(members, cap=cap, caution=0.0) for cap in (32.0, 1e9)]
    for chosen in by_weight:
        chosen.update(rounds)
    assert [chosen.ranking()[0].member for chosen in by_weight] == ["0", "1"]


def test_the_time_of_every_member_is_kept() -> None:
    """Catches members that are not timed."""
    rng = np.random.default_rng(12)
    rounds, start = learnable(rng), baseline(rng)
    chosen = default_portfolio(start, Shape.of(rounds.features))
    chosen.update(rounds)
    assert set(chosen.seconds) == {*chosen.members, "scoring"}
    assert all(seconds > 0 for seconds in chosen.seconds.values())


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_default_sources_keep_the_floor_of_the_baseline(floor: float) -> None:
    """And explore where they are in doubt. Caught: a greedy source, after which hardly anything can be learned."""
    start = baseline(np.random.default_rng(13), floor=floor)
    forms = [source.form for source in default_portfolio(start, Shape.of(np.ones((2, D)))).sources]
    assert {form.floor for form in forms if form} == {floor}
    assert all(form.tau > 0 for form in forms if form)


def test_a_greedy_baseline_has_a_default_portfolio() -> None:
    """Catches a gradient learner without a temperature."""
    start = LinearPolicy(np.zeros((K, D)), ActingForm.epsilon_greedy(0.1))
    chosen = default_portfolio(start, Shape.of(np.ones((2, D))))
    assert chosen.sources[0].form == start.acts
    chosen.update(learnable(np.random.default_rng(14)))
    assert len(chosen.ranking()) == len(chosen.sources) - len(direct_sources(chosen))


def direct_sources(chosen: Portfolio) -> list[Any]:
    """The sources of the direct method: without a score until they have been solved once."""
    return [source for source in chosen.sources if source.member == "direct"]


def test_wide_contexts_that_do_not_recur_are_regressed_by_gradient_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a default portfolio that refuses live text traffic."""
    monkeypatch.setattr(default, "WIDEST_GRAM", D - 1)
    rng = np.random.default_rng(15)
    rounds, start = learnable(rng, sparse=True, recurring=False), baseline(rng)
    chosen = default_portfolio(start, Shape.of(rounds.features, recurring=False))
    assert isinstance(chosen.members["direct"].learner, SquaredLoss)
    for leg in legs_of(rounds, 200):
        chosen.update(leg)
    assert len(chosen.ranking()) == len(chosen.sources)


def test_the_mean_square_is_that_of_all_contexts_dense_or_sparse() -> None:
    """Catches a mean over stored values instead of contexts."""
    x = with_zeros(np.random.default_rng(16), 20, D)
    expected = (x**2).sum(axis=1).mean()
    assert mean_square(x) == pytest.approx(expected)
    assert mean_square(in_form(x, True)) == pytest.approx(expected)
    assert mean_square(np.zeros((0, D))) == mean_square(np.zeros((2, D))) == 1.0


@pytest.mark.parametrize(
    ("members", "options", "message"),
    [
        ([], {}, "members"),
        ([Member("a", Standing(UniformPolicy(K)))] * 2, {}, "members"),
        ([Member("a", Standing(UniformPolicy(K)))], {"cap": 0.5}, "cap"),
        ([Member("a", Standing(UniformPolicy(K)))], {"forgetting": -1.0}, "forgetting"),
        ([Member("a", Standing(UniformPolicy(K)))], {"caution": np.nan}, "caution"),
    ],
)
def test_options_that_make_no_sense_are_refused(members: list[Member], options: Any, message: str) -> None:
    """Catches options that would fail later, or silently."""
    with pytest.raises(ValueError, match=message):
        Portfolio(members, **options)


def test_forms_are_refused_for_policies_without_scores() -> None:
    """Catches a form that is silently ignored."""
    chosen = Portfolio([Member("even", Standing(UniformPolicy(K)), (SOFTMAX,))])
    with pytest.raises(TypeError, match="even: forms are for linear policies"):
        chosen.candidate()


def test_the_default_learner_measures_the_first_contexts_and_then_is_the_default_portfolio() -> None:
    """The shape is the mean over all contexts so far, whatever the legs; rounds before it is known teach nothing."""
    rng = np.random.default_rng(12)
    rounds, start = learnable(rng, 120), baseline(rng, floor=0.1)
    lazy = default.DefaultLearner(start)
    for leg in legs_of(rounds[:60], 1, 2, 10, 49):
        lazy.update(leg)
    shape = Shape.of(rounds[:60].contexts())
    assert lazy._shape is not None
    assert lazy._shape == shape._replace(square=pytest.approx(shape.square, rel=1e-12))
    known = default_portfolio(start, lazy._shape)
    known.update(rounds[49:60])
    for learner in (lazy, known):
        learner.update(rounds[60:])

    assert lazy.candidate().id == known.candidate().id
    fresh = default.DefaultLearner(start)
    fresh.update(rounds[:49])
    assert fresh.candidate().id == start.id


def test_a_uniform_baseline_is_not_copied_by_its_candidates() -> None:
    """Its floor is all there is: candidates keep a tenth of it."""
    chosen = default_portfolio(UniformPolicy(K), Shape.of(np.ones((2, D))))
    assert {source.form.floor for source in chosen.sources if source.form} == {0.1}
    assert {source.member for source in chosen.sources} == {"direct"}
