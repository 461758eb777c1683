"""Rankers, displays and the learners of rankings, against brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from ranking_twins import (
    BubbleTwin,
    click,
    order,
    pdgd_gradient,
    pl_probability,
    ranksvm_loss,
    ranksvm_step,
    small_pool,
    small_users,
    team_draft,
    top_list,
)

from seamark.estimation.ranking_metrics import dcg_weights
from seamark.kernels import ranking as kernels
from seamark.kernels import ranking_learn as learning
from seamark.learners.bubblerank import BubbleRank
from seamark.learners.dbgd import DBGD
from seamark.learners.pdgd import PDGD
from seamark.learners.ranksvm import RankSVM
from seamark.policies.combined import BudgetedRanker, RerankedRanker, ranker_from, ranker_state
from seamark.policies.displays import AsRanked, PlackettLuceDisplay, SwapDisplay, plackett_luce_expectation, serve
from seamark.policies.rankers import LinearRanker, ListCache, TableRanker, UnsoundRanker, scores_of, top_lists
from seamark.rankings import RankingDraws, RankingRounds, Users, documents

KAPPA = 4


def draws(rng, pool, n, kappa=KAPPA, seed=5):
    return RankingDraws(
        rng.integers(0, pool.n_queries, n), rng.random((n, kappa)), rng.random((n, kappa)), np.random.default_rng(seed)
    )


def part(d, leg):
    return RankingDraws(d.queries[leg], d.actions[leg], d.clicks[leg], d.learner)


# -- records and rankers ----------------------------------------------------------------------------------------------


def test_rounds_refuse_what_cannot_have_happened() -> None:
    pool = documents(np.zeros((5, 1)), [0, 2, 5])
    good = {"queries": [1], "displayed": [[2, 4]], "clicks": [[0, 1]], "examination": [1.0, 0.5]}
    assert RankingRounds.of(pool, **good).n_clicks == 1
    for change, message in (
        ({"displayed": [[1, 4]]}, "its query has documents 2 to 4"),
        ({"displayed": [[2, 2]]}, "twice"),
        ({"displayed": [[2, -1]]}, "0 where nothing was displayed"),
        ({"clicks": [[0, 2]]}, "0 or 1"),
        ({"examination": [1.0, 0.0]}, "in \\(0, 1\\]"),
        ({"queries": [2]}, "0 to 1"),
        ({"displayed": [[2]]}, "shapes"),
        ({"propensities": [[0.5, 0.0]]}, "propensities"),
    ):
        with pytest.raises(ValueError, match=message):
            RankingRounds.of(pool, **{**good, **change})
    with pytest.raises(ValueError, match="offsets"):
        documents(np.zeros((3, 1)), [0, 2])
    with pytest.raises(ValueError, match="finite"):
        documents([[np.nan]], [0, 1])


def test_parts_of_rounds_keep_their_numbers() -> None:
    pool = documents(np.zeros((4, 1)), [0, 4])
    log = RankingRounds.of(
        pool, [0] * 5, [[0, 1]] * 5, [[1, 0]] * 5, examination=[1, 0.5], first=7, versions=[0, 0, 1, 1, 2]
    )
    assert (log[2:4].first, log[2:4].last, len(log[2:4])) == (9, 11, 2)
    assert log.where(log.versions == 1).first == 9
    assert np.shares_memory(log.where(log.versions == 1).clicks, log.clicks)
    assert len(log.where(log.versions != 1)) == 3
    assert len(log.where(log.versions == 9)) == 0
    with pytest.raises(ValueError, match="contiguous"):
        log[::2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lists_are_by_score_and_equal_scores_by_key(dtype) -> None:
    """Caught: ranking by place among equal scores, and a top list that forgets the key at its last position."""
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum([1, 3, 4, 11, 30])])
    pool = documents(rng.integers(0, 2, (offsets[-1], 3)).astype(dtype), offsets, rng.permutation(offsets[-1]))
    ranker = LinearRanker(np.array([1.0, 0.5, 0.0]))

    lists = top_lists(ranker, pool, KAPPA)

    np.testing.assert_allclose(ranker.scores(pool), pool.features @ ranker.weights, rtol=1e-12)
    assert lists.tolist() == [top_list(ranker.weights, pool, q, KAPPA) for q in range(pool.n_queries)]


def test_a_cache_ranks_what_is_asked_and_tells_rankers_apart() -> None:
    rng = np.random.default_rng(1)
    pool = small_pool(rng)
    weights = rng.normal(size=4)
    live, cache = LinearRanker(weights), ListCache(KAPPA, capacity=2)

    before = cache.lists(live, pool, np.array([3])).copy()
    weights *= -1
    after = cache.lists(live, pool, np.array([3, 4]))

    assert before[3].tolist() == top_list(-weights, pool, 3, KAPPA)
    assert [after[q].tolist() for q in (3, 4)] == [top_list(weights, pool, q, KAPPA) for q in (3, 4)]
    assert live.frozen().id == live.id
    assert live.frozen().frozen() is not live


def test_rankers_without_an_order_are_refused_and_others_are_saved() -> None:
    rng = np.random.default_rng(2)
    pool = small_pool(rng)
    for bad in (LinearRanker(np.full(4, np.nan)), TableRanker(np.full(pool.n_docs, np.inf))):
        with pytest.raises(UnsoundRanker):
            top_lists(bad, pool)
    new, old = LinearRanker(rng.normal(size=4)), LinearRanker(rng.normal(size=4))
    for ranker in (
        new,
        TableRanker(rng.normal(size=pool.n_docs)),
        BudgetedRanker(new, old, np.ones(2), np.ones(2), 1.0),
        RerankedRanker(new, old, 2),
    ):
        again = ranker_from(ranker_state(ranker.frozen()))
        assert again.id == ranker.id
        assert np.array_equal(top_lists(again, pool), top_lists(ranker, pool))
    with pytest.raises(ValueError, match="features"):
        LinearRanker(np.zeros(3)).scores(pool)


def test_policy_surgery_keeps_the_new_order_where_leaving_costs_at_most_the_budget() -> None:
    """The cost is written as its formula. Caught: the budget compared with the mean over queries."""
    rng = np.random.default_rng(3)
    pool = small_pool(rng, lengths=(6, 1, 3, 9, 12, 7, 8))
    new, old = LinearRanker(rng.normal(size=4)), LinearRanker(rng.normal(size=4))
    e, lam = 1 / np.arange(1.0, KAPPA + 1), dcg_weights(KAPPA)
    costs = []
    for q in range(pool.n_queries):
        a, b = top_list(new.weights, pool, q, KAPPA), top_list(old.weights, pool, q, KAPPA)
        costs.append(
            sum(max(0.0, lam[j] - (lam[a.index(d)] if d in a else 0.0)) / e[j] for j, d in enumerate(b) if d >= 0)
        )
    budget = float(np.median(costs))
    cut = BudgetedRanker(new, old, e, lam, budget)

    np.testing.assert_allclose(cut.costs(pool), costs, atol=1e-12)
    lists = top_lists(cut, pool, KAPPA)
    for q in range(pool.n_queries):
        assert lists[q].tolist() == top_list((new if costs[q] <= budget else old).weights, pool, q, KAPPA)
    assert 0 < sum(c <= budget for c in costs) < len(costs)


def test_reranking_orders_the_incumbents_best_and_leaves_the_rest() -> None:
    """Caught: the order of new scores leaking below the depth, and ties by place."""
    rng = np.random.default_rng(22)
    pool = small_pool(rng, lengths=(6, 1, 3, 0, 12))
    new, old = TableRanker(rng.integers(0, 3, pool.n_docs).astype(float)), LinearRanker(100 * rng.normal(size=4))

    lists = top_lists(RerankedRanker(new, old, 4), pool, 12)

    for q in range(pool.n_queries):
        before = [d for d in top_list(old.weights, pool, q, 12) if d >= 0]
        best = sorted(before[:4], key=lambda d: (-new.values[d], int(pool.keys[d])))
        assert [d for d in lists[q] if d >= 0] == best + before[4:]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_listed_documents_alone_are_scored_and_as_in_whole_lists(dtype) -> None:
    """Caught: scores written by place in the list, and lists that end early read on."""
    rng = np.random.default_rng(23)
    pool = small_pool(rng, lengths=(0, 1, 2, 3, 5, 8, 11, 40, 43), d=37, dtype=dtype)
    ranker = LinearRanker(rng.normal(size=37))
    lists = np.full((pool.n_queries, 9), -1, dtype=np.int64)
    for q in range(pool.n_queries):
        some = rng.permutation(np.arange(pool.offsets[q], pool.offsets[q + 1]))[:9]
        lists[q, : some.size] = some
    asked = np.arange(1, pool.n_queries)

    scores = scores_of(ranker, pool, asked, np.full(pool.n_docs, np.nan), lists)

    known = lists[lists >= 0]
    np.testing.assert_allclose(scores[known], ranker.scores(pool)[known], rtol=1e-12)
    assert np.isnan(np.delete(scores, known)).all()


@pytest.mark.parametrize("depth", [3, 5, 7])
def test_lists_of_combined_rankers_are_those_of_their_scores(depth) -> None:
    """Caught: an outer list shorter than the depth that is reranked, and a budget on lists cut too early."""
    rng = np.random.default_rng(24)
    pool = small_pool(rng, lengths=(6, 1, 3, 9, 12, 7, 8))
    one, two, three = (LinearRanker(rng.normal(size=4)) for _ in range(3))
    e, lam = 1 / np.arange(1.0, 6), dcg_weights(5)
    cut = BudgetedRanker(one, two, e, lam, 1.0)
    for ranker in (cut, RerankedRanker(three, cut, 5), BudgetedRanker(RerankedRanker(three, cut, 5), cut, e, lam, 2.0)):
        cache, asked = ListCache(depth), np.array([0, 3, 4])

        lists = cache.lists(ranker, pool, asked)

        plain = top_lists(TableRanker(ranker.scores(pool)), pool, depth)
        assert np.array_equal(lists[asked], plain[asked])
        assert np.array_equal(cache.lists(ranker, pool), plain)


@pytest.mark.parametrize("capacity", [1, 16])
def test_ten_nested_deployments_score_each_part_a_few_times(capacity) -> None:
    """Policy surgery deploys rankers within rankers; each costs its own parts, not all of theirs again.

    Caught: both parts asked anew for all that is below them (4 ** 10 rankings).
    """
    rng = np.random.default_rng(25)
    pool = small_pool(rng)
    e, lam = 1 / np.arange(1.0, KAPPA + 1), dcg_weights(KAPPA)
    asked = []

    class Opaque:
        """Not linear, so that every ranking asks for `scores`."""

        def __init__(self):
            self.id, self.values = f"opaque-{rng.integers(1 << 60)}", rng.normal(size=pool.n_docs)

        def scores(self, pool):
            asked.append(self)
            return self.values

        def frozen(self):
            return self

    ranker = Opaque()
    for _ in range(10):
        ranker = BudgetedRanker(RerankedRanker(Opaque(), ranker, KAPPA), ranker, e, lam, 1.0).frozen()

    lists = ListCache(KAPPA, capacity=capacity).lists(ranker, pool)

    assert len(asked) <= 11
    asked.clear()
    assert np.array_equal(lists, top_lists(TableRanker(ranker.scores(pool)), pool, KAPPA))
    assert len(asked) <= 11 + 2 * 10 * 11  # a level compares lists, once each
    assert ranker.frozen() is ranker


def test_a_combined_ranker_freezes_its_parts_and_follows_them_until_then() -> None:
    """Caught: an id that is kept while a part still learns."""
    weights = np.array([1.0, -1.0])
    live = RerankedRanker(LinearRanker(weights), LinearRanker(np.zeros(2)).frozen(), 3)
    frozen, before = live.frozen(), live.id

    weights *= -1

    assert live.id != before == frozen.id
    assert frozen.frozen() is frozen


# -- displays ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 9])
def test_swap_display_has_the_propensities_that_it_records(length, extra) -> None:
    """All coin flips of one query are enumerated. Caught: rho of a short list taken from a long one."""
    pool = documents(-np.arange(float(length))[:, None], [0, length])
    display = SwapDisplay([1.0, 0.5, 0.3, 0.2], probability=0.3, extra=extra)
    rho, shown_lists, chances = np.zeros(length), [], []
    for coin, *swaps in itertools.product((0.25, 0.75), *[(0.1, 0.9)] * 3):
        chance = 0.5 * math.prod(0.3 if s == 0.1 else 0.7 for s in swaps)
        shown = display.show(
            ListCache(display.depth), LinearRanker(np.ones(1)), pool, np.array([0]), np.array([[coin, *swaps]])
        )
        chances.append(chance)
        shown_lists.append(shown)
        for j, d in enumerate(shown.displayed[0]):
            if d >= 0:
                rho[d] += chance * display.examination[j]
                assert abs(d - j) <= 1
    assert math.isclose(sum(chances), 1.0)
    for shown in shown_lists:
        for j, d in enumerate(shown.displayed[0]):
            if d >= 0:
                assert math.isclose(shown.propensities[0, j], rho[d], rel_tol=1e-12)
    assert (rho[: min(length, display.depth)] > 0).all()


def test_as_ranked_shows_the_order_and_plackett_luce_knows_its_propensities() -> None:
    rng = np.random.default_rng(4)
    pool = small_pool(rng, lengths=(5, 3))
    ranker, e, queries = LinearRanker(rng.normal(size=4)), np.array([1.0, 0.5, 0.25]), np.array([1, 0, 1])

    as_ranked = AsRanked(e).show(ListCache(3), ranker, pool, queries, rng.random((3, 3)))
    sampled = PlackettLuceDisplay(e, tau=0.7).show(ListCache(3), ranker, pool, queries, rng.random((3, 3)))

    assert as_ranked.propensities is None
    assert as_ranked.displayed.tolist() == [top_list(ranker.weights, pool, q, 3) for q in queries]
    assert sampled.propensities is not None
    for t, q in enumerate(queries):
        a, b = pool.offsets[q], pool.offsets[q + 1]
        rho = plackett_luce_expectation(ranker.scores(pool)[a:b] / 0.7, e)
        np.testing.assert_allclose(sampled.propensities[t], rho[sampled.displayed[t] - a])


@pytest.mark.parametrize(("n", "kappa"), [(1, 3), (3, 2), (4, 4), (5, 3)])
def test_expectations_under_plackett_luce_equal_enumeration(n, kappa) -> None:
    rng = np.random.default_rng(n)
    s, e = rng.normal(size=n) * 2, rng.random(kappa)
    expected = np.zeros(n)
    for ranking in itertools.permutations(range(n), min(n, kappa)):
        for j, d in enumerate(ranking):
            expected[d] += pl_probability(s, ranking) * e[j]
    np.testing.assert_allclose(plackett_luce_expectation(s, e), expected, rtol=1e-12)


@pytest.mark.parametrize(("n", "kappa"), [(1, 2), (3, 3), (4, 2), (5, 4), (5, 5)])
def test_the_sampled_ranking_has_the_plackett_luce_law(n, kappa) -> None:
    """Exact: every ranking is drawn on a box of uniforms whose volume is its probability; both ends of every side are
    tried. Caught: an inverse CDF over the first scores, without removing what was drawn."""
    s = np.random.default_rng(n + kappa).normal(size=n) * 2
    volume = 0.0
    for ranking in itertools.permutations(range(n), min(n, kappa)):
        left, sides = list(range(n)), []
        for d in ranking:
            weights = np.exp([s[i] for i in left])
            cdf = np.concatenate([[0.0], np.cumsum(weights) / weights.sum()])
            sides.append((cdf[left.index(d)], cdf[left.index(d) + 1]))
            left.remove(d)
        volume += math.prod(b - a for a, b in sides)
        for at in (1e-9, 1 - 1e-9):
            out, uniforms = np.empty(kappa, dtype=np.int64), np.zeros(kappa)
            uniforms[: len(sides)] = [a + at * (b - a) for a, b in sides]
            kernels.plackett_luce_list(s, 100, n, uniforms, np.empty(n), out)
            assert out[: len(ranking)].tolist() == [100 + d for d in ranking]
            assert (out[len(ranking) :] == -1).all()
        assert math.isclose(math.prod(b - a for a, b in sides), pl_probability(s, ranking), rel_tol=1e-9)
    assert math.isclose(volume, 1.0, rel_tol=1e-9)


def test_a_dominating_document_does_not_stop_the_sampling() -> None:
    """Scores thousands apart: the rest is drawn relative to its own best. Caught: a total of 0 after the first draw."""
    s = np.array([0.0, 3000.0, 1.0, -4000.0])
    out = np.empty(4, dtype=np.int64)
    kernels.plackett_luce_list(s, 0, 4, np.array([0.5, 0.5, 0.9, 0.5]), np.empty(4), out)
    assert out.tolist() == [1, 2, 0, 3]


# -- RankSVM ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("published", [True, False])
def test_the_ranksvm_step_is_the_gradient_of_minus_one_over_log2(published) -> None:
    """Of sum (1/p) * -1 / log2(1 + H), H + 1 in place of H as published; against central differences.
    Caught: ln 2 missing, the hinge's own document counted in G, the sign."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        n = int(rng.integers(1, 9))
        features, w = rng.normal(size=(n, 3)), rng.normal(size=3)
        clicked = rng.choice(n, size=int(rng.integers(1, n + 1)), replace=False)
        inverse = rng.uniform(1, 5, clicked.size)
        numeric = np.array([
            (ranksvm_loss(w + step, features, clicked, inverse, published)
             - ranksvm_loss(w - step, features, clicked, inverse, published)) / 2e-6
            for step in 1e-6 * np.eye(3)
        ])  # fmt: skip
        new = w.copy()
        learning.ranksvm_step(
            features, 0, n, clicked, np.ones(clicked.size, dtype=np.uint8), inverse, new, 1.0, published,
            features @ w, np.empty(n),
        )  # fmt: skip
        np.testing.assert_allclose(w - new, numeric, atol=1e-7)


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("cap", [0.0, 0.5])
@pytest.mark.parametrize("random_display", [False, True])
def test_ranksvm_learns_as_the_pairwise_form(published, cap, random_display) -> None:
    """Twin: every pair, every feature; all clicks of a round use the scores from before it. Caught: scores refreshed
    between two clicks, the cap on 1/p from the wrong side, j over displayed documents only."""
    rng = np.random.default_rng(7)
    pool = small_pool(rng, lengths=(6, 1, 3, 9, 0, 12))
    queries = rng.choice([0, 1, 2, 3, 5], 60)
    displayed = np.full((60, KAPPA), -1)
    for t, q in enumerate(queries):
        docs = rng.permutation(np.arange(pool.offsets[q], pool.offsets[q + 1]))[:KAPPA]
        displayed[t, : docs.size] = docs
    clicks = (rng.random((60, KAPPA)) < 0.4) & (displayed >= 0)
    e = np.array([1.0, 0.7, 0.4, 0.2])
    rho = rng.uniform(0.1, 1, (60, KAPPA)) if random_display else None
    log = RankingRounds.of(pool, queries, displayed, clicks, examination=e, propensities=rho)
    start = rng.normal(size=4)
    learner = RankSVM(start, lr=0.3, cap=cap, published=published)

    learner.update(log[:20])
    learner.update(log[20:])

    w = start.copy()
    for t in range(60):
        a, b = pool.offsets[queries[t]], pool.offsets[queries[t] + 1]
        at = np.flatnonzero(clicks[t])
        p = np.maximum(e[at] if rho is None else rho[t, at], cap)
        w = ranksvm_step(w, pool.features[a:b], displayed[t, at] - a, 1 / p, 0.3, published)
    np.testing.assert_allclose(learner.weights, w, rtol=1e-10)
    assert learner.candidate().weights.base is not None
    assert not np.shares_memory(learner.candidate().frozen().weights, w)


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ranksvm_online_is_display_click_learn(dtype, weighted, stops) -> None:
    """Caught: learning from the display of the round before; propensities used although unweighted."""
    rng = np.random.default_rng(8)
    pool = small_pool(rng, dtype=dtype)
    users, start = small_users(rng, pool, stops=stops), rng.normal(size=4)
    d = draws(rng, pool, 80)
    learner = RankSVM(start, lr=0.2, weighted=weighted)

    rounds = learner.run(users, d, first=3)

    w = start.copy()
    for t, q in enumerate(d.queries):
        shown = top_list(w, pool, q, KAPPA)
        clicks = click(users, shown, d.clicks[t])
        assert rounds.displayed[t].tolist() == shown
        assert rounds.clicks[t].tolist() == clicks
        a, b = pool.offsets[q], pool.offsets[q + 1]
        at = np.flatnonzero(clicks)
        inverse = 1 / users.examination[at] if weighted else np.ones(at.size)
        features = pool.features[a:b].astype(np.float64)
        w = ranksvm_step(w, features, np.array(shown)[at] - a, inverse, 0.2, True)
    np.testing.assert_allclose(learner.weights, w, rtol=1e-9)
    assert rounds.first == 3
    assert rounds.n_clicks > 20


def test_simulated_users_click_the_same_on_the_same_lists() -> None:
    """The world's users and the kernels' agree on every click, cascade users included."""
    from seamark.worlds.clicks import find_model

    rng = np.random.default_rng(9)
    pool = small_pool(rng)
    grades = rng.integers(0, 5, pool.n_docs)
    for name in ("position-biased", "navigational"):
        simulated = find_model(name).users(grades, cutoff=KAPPA)
        users = Users(pool, simulated.examination, simulated.attraction, simulated.stop)
        d = draws(rng, pool, 200)
        rounds = RankSVM(rng.normal(size=4), lr=0.1).run(users, d)
        assert np.array_equal(simulated.clicks(rounds.displayed, d.clicks), rounds.clicks)


@pytest.mark.parametrize("display", [AsRanked([1.0, 0.5, 0.3, 0.2]), SwapDisplay([1.0, 0.5, 0.3, 0.2])])
def test_serving_a_leg_is_display_then_click(display) -> None:
    """Users may look otherwise than the display assumes; the record keeps what is assumed, the clicks what they do."""
    rng = np.random.default_rng(21)
    pool = small_pool(rng)
    users, d, ranker = (
        small_users(rng, pool, eta=0.5, stops=True),
        draws(rng, pool, 100),
        LinearRanker(rng.normal(size=4)),
    )

    rounds = serve(ranker, display, users, d, ListCache(display.depth), first=9, version=2)

    shown = display.show(ListCache(display.depth), ranker, pool, d.queries, d.actions)
    assert np.array_equal(rounds.displayed, shown.displayed)
    assert [click(users, row, u) for row, u in zip(shown.displayed, d.clicks)] == rounds.clicks.tolist()
    again = RankingRounds.of(
        pool, d.queries, rounds.displayed, rounds.clicks, examination=display.examination, versions=2, first=9,
        propensities=shown.propensities,
    )  # fmt: skip
    for name in ("examination", "versions", "first", "last"):
        assert np.array_equal(getattr(again, name), getattr(rounds, name))


# -- PDGD -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "kappa"), [(1, 2), (2, 2), (3, 3), (4, 2), (4, 4), (5, 3), (5, 5)])
def test_pdgd_weighs_preferences_as_enumeration_over_rankings_does(n, kappa) -> None:
    """All rankings x all click patterns; rho from P(R) and P(R*) themselves. Caught: rho = P(R) / (P(R) + P(R*)),
    factors outside the pair left in, preferences against documents two below the last click."""
    s = np.random.default_rng(10 * n + kappa).normal(size=n) * 1.5
    for ranking in itertools.permutations(range(n), min(n, kappa)):
        for clicks in itertools.product((0, 1), repeat=len(ranking)):
            row, pattern = np.full(kappa, -1, dtype=np.int64), np.zeros(kappa, dtype=np.uint8)
            row[: len(ranking)], pattern[: len(ranking)] = np.array(ranking) + 7, clicks
            out = np.zeros(n)
            some = learning.pdgd_coefficients(s, 7, n, row, pattern, out)
            expected = pdgd_gradient(s, ranking, clicks)
            assert some == bool(np.any(expected))
            if some:
                np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-15)


def test_pdgd_does_not_move_between_equally_attractive_documents() -> None:
    """Documents of different scores, all of one attraction, under position bias: the expected step is 0, over all
    rankings and clicks. That is what rho is for: with rho = 1 it is .012 for the document of the highest score."""
    s, e = np.array([0.3, -0.2, 1.0]), np.array([1.0, 0.5, 0.3])
    total = np.zeros(3)
    for ranking in itertools.permutations(range(3)):
        for clicks in itertools.product((0, 1), repeat=3):
            p = math.prod(0.4 * e[j] if c else 1 - 0.4 * e[j] for j, c in enumerate(clicks))
            out = np.zeros(3)
            if learning.pdgd_coefficients(s, 0, 3, np.array(ranking), np.array(clicks, dtype=np.uint8), out):
                total += pl_probability(s, ranking) * p * out
    np.testing.assert_allclose(total, 0.0, atol=1e-12)


def test_pdgd_survives_scores_far_apart() -> None:
    out = np.zeros(3)
    for s in ([0.0, 2000.0, -3000.0], [2000.0, 0.0, 0.0], [-2000.0, -2000.0, 5000.0]):
        for ranking in itertools.permutations(range(3)):
            learning.pdgd_coefficients(np.array(s), 0, 3, np.array(ranking), np.array([0, 1, 1], dtype=np.uint8), out)
            assert np.isfinite(out).all()


def test_pdgd_online_is_sample_click_step() -> None:
    rng = np.random.default_rng(11)
    pool = small_pool(rng)
    users, start, d = small_users(rng, pool), rng.normal(size=4), draws(rng, pool, 60)
    learner = PDGD(start, lr=0.3)

    rounds = learner.run(users, d)

    w = start.copy()
    for t, q in enumerate(d.queries):
        a, b = pool.offsets[q], pool.offsets[q + 1]
        s, out = pool.features[a:b] @ w, np.empty(KAPPA, dtype=np.int64)
        kernels.plackett_luce_list(s, a, b - a, d.actions[t], np.empty(b - a), out)
        clicks = click(users, out, d.clicks[t])
        assert rounds.displayed[t].tolist() == out.tolist()
        assert rounds.clicks[t].tolist() == clicks
        length = min(KAPPA, b - a)
        w = w + 0.3 * pdgd_gradient(s, (out[:length] - a).tolist(), clicks[:length]) @ pool.features[a:b]
    np.testing.assert_allclose(learner.weights, w, rtol=1e-9)


# -- DBGD -------------------------------------------------------------------------------------------------------------


def draft(one, two, coins, kappa):
    out, owners = np.empty(kappa, dtype=np.int64), np.empty(kappa, dtype=np.int8)
    learning.team_draft(np.array(one), np.array(two), np.array(coins), out, owners)
    return out.tolist(), owners.tolist()


def test_team_draft_by_hand() -> None:
    """1 2 3 4 against 1 4 3 2: 1 is shared; then 2|4 by the first coin, then 3 by the second pair's first player."""
    assert draft([1, 2, 3, 4], [1, 4, 3, 2], [0.1, 0.1], 4) == ([1, 2, 4, 3], [-1, 0, 1, 0])
    assert draft([1, 2, 3, 4], [1, 4, 3, 2], [0.9, 0.9], 4) == ([1, 4, 2, 3], [-1, 1, 0, 1])
    assert draft([5, 6, -1], [6, 5, -1], [0.1, 0.1], 3) == ([5, 6, -1], [0, 1, -1])


def test_team_draft_equals_its_twin_and_favours_nobody() -> None:
    """All coin flips of random pairs of rankings: beyond the shared prefix each player owns every position with
    chance one half, so a click that ignores documents has expected lead 0; identical rankers own nothing.
    Caught: the first player fixed over pairs of turns (positions then favour one)."""
    rng = np.random.default_rng(12)
    for _ in range(40):
        n, kappa = int(rng.integers(1, 8)), 5
        one, two = rng.permutation(n), rng.permutation(n)
        if rng.random() < 0.2:
            two = one
        tops = [np.concatenate([r[:kappa], np.full(max(0, kappa - n), -1)]).tolist() for r in (one, two)]
        lead = np.zeros(kappa)
        for coins in itertools.product((0.2, 0.8), repeat=3):
            shown, owners = draft(*tops, coins, kappa)
            twin, twin_owners = team_draft(*tops, coins, kappa)
            length = min(n, kappa)
            assert shown[:length] == twin
            assert owners[:length] == [-1 if o is None else o for o in twin_owners]
            lead += [(o == 1) - (o == 0) for o in owners]
        np.testing.assert_array_equal(lead, 0.0)
        if np.array_equal(one, two):
            assert set(owners) == {-1}


def test_dbgd_is_interleave_click_compare() -> None:
    """Caught: a tie that moves the weights; a direction that is not scaled to the sphere."""
    rng = np.random.default_rng(13)
    pool = small_pool(rng)
    users, start, d = small_users(rng, pool), rng.normal(size=4), draws(rng, pool, 80)
    learner = DBGD(start, lr=0.5, reach=2.0)

    rounds = learner.run(users, d)

    w, generator, moves = start.copy(), np.random.default_rng(5), 0
    for t, q in enumerate(d.queries):
        u = generator.standard_normal(4)
        u /= np.linalg.norm(u)
        tops = [top_list(v, pool, q, KAPPA) for v in (w, w + 2.0 * u)]
        shown, owners = team_draft(*tops, d.actions[t], KAPPA)
        shown += [-1] * (KAPPA - len(shown))
        clicks = click(users, shown, d.clicks[t])
        assert rounds.displayed[t].tolist() == shown
        assert rounds.clicks[t].tolist() == clicks
        if sum((o == 1) - (o == 0) for o, c in zip(owners, clicks) if c and o is not None) > 0:
            w, moves = w + 0.5 * u, moves + 1
    np.testing.assert_allclose(learner.weights, w, rtol=1e-9)
    assert 5 < moves < 60


# -- BubbleRank -------------------------------------------------------------------------------------------------------


def test_bubblerank_exchanges_after_five_one_sided_comparisons_when_ln_one_over_delta_is_one() -> None:
    """s > 2 sqrt(n ln(1/delta)): with s = n the first such n is 5, for exchanging and for no longer trying.
    Caught: sqrt(2 n ln), and >= in place of >."""
    pool = documents([[1.0], [0.0]], [0, 2])
    bubble = BubbleRank(LinearRanker(np.ones(1)), pool, kappa=2, delta=math.exp(-1))
    users = Users.position_based(pool, [1.0, 1.0], [0.0, 1.0])  # only the lower document is ever clicked
    for t in range(12):
        # pairs exist in every second round
        before = bubble.lists[0].tolist()
        rounds = bubble.run(
            users, RankingDraws(np.array([0]), np.full((1, 2), 0.1), np.full((1, 2), 0.5), np.random.default_rng(0)), t
        )
        comparisons = (t // 2) + 1
        assert before == ([0, 1] if t <= 8 else [1, 0])
        assert bubble.lists[0].tolist() == ([0, 1] if comparisons < 5 else [1, 0])
        swapped = rounds.displayed[0].tolist() != before
        assert swapped == (t % 2 == 0 and t <= 8)


def test_bubblerank_equals_its_twin() -> None:
    rng = np.random.default_rng(14)
    pool = small_pool(rng, lengths=(6, 1, 3))
    users, production = small_users(rng, pool), LinearRanker(rng.normal(size=4))
    bubble = BubbleRank(production, pool, kappa=KAPPA, delta=0.5)
    twins = [
        BubbleTwin([d for d in top_list(production.weights, pool, q, KAPPA) if d >= 0], math.log(2)) for q in range(3)
    ]
    d = draws(rng, pool, 600)

    rounds = bubble.run(users, part(d, slice(0, 250)))
    later = bubble.run(users, part(d, slice(250, 600)), first=250)

    moved = 0
    for t, q in enumerate(d.queries):
        shown, _clicks = twins[q].step(d.actions[t], lambda s, u=d.clicks[t]: click(users, s, u))
        happened = rounds if t < 250 else later
        row = happened.displayed[t - (0 if t < 250 else 250)]
        assert row[row >= 0].tolist() == shown
    for q, twin in enumerate(twins):
        assert bubble.lists[q][bubble.lists[q] >= 0].tolist() == twin.base
        moved += twin.base != [x for x in top_list(production.weights, pool, q, KAPPA) if x >= 0]
    assert moved
    assert np.array_equal(top_lists(bubble.candidate(), pool, KAPPA), bubble.lists)
    below = order(production.scores(pool)[:6], pool.keys[:6])[KAPPA:]
    assert top_lists(bubble.candidate(), pool, 6)[0, KAPPA:].tolist() == below


def test_a_displayed_list_has_at_most_half_its_length_more_wrong_pairs_than_the_base() -> None:
    """Every pattern of swaps of a list of 5, both parities: neighbours in the set trade places, nothing else moves."""
    for start, swaps in itertools.product((0, 1), itertools.product((0.1, 0.9), repeat=2)):
        out, base = np.empty(5, dtype=np.int64), np.arange(5)
        zeros = np.zeros((5, 5), dtype=np.int32)
        learning.bubble_display(base, zeros, zeros, start, 1.0, np.array(swaps), out)
        wrong = sum(out[a] > out[b] for a, b in itertools.combinations(range(5), 2))
        assert wrong == sum(u < 0.5 for u in swaps) <= 5 / 2
        for pair, u in enumerate(swaps):
            k = start + 2 * pair
            assert out[k : k + 2].tolist() == ([k + 1, k] if u < 0.5 else [k, k + 1])


def test_bubblerank_improves_a_bad_list_without_ever_getting_worse() -> None:
    """Reversed ideal list, noiseless clicks by attraction: the exchanged list's wrong pairs never rise."""
    pool = documents(-np.arange(5.0)[:, None], [0, 5])
    users = Users.position_based(pool, np.ones(5), np.array([0.05, 0.25, 0.5, 0.75, 0.95]))
    bubble = BubbleRank(LinearRanker(np.ones(1)), pool, kappa=5, horizon=5000)
    rng, wrong = np.random.default_rng(15), [10]
    for t in range(50):
        d = RankingDraws(np.zeros(100, dtype=np.int64), rng.random((100, 5)), rng.random((100, 5)), rng)
        bubble.run(users, d, 100 * t)
        base = bubble.lists[0]
        wrong.append(sum(base[a] < base[b] for a, b in itertools.combinations(range(5), 2)))
    assert all(b <= a for a, b in itertools.pairwise(wrong))
    assert wrong[-1] <= 1


# -- all of them ------------------------------------------------------------------------------------------------------


def learners(pool, start):
    return [
        RankSVM(start, lr=0.1), PDGD(start), DBGD(start, lr=0.1),
        BubbleRank(LinearRanker(start), pool, kappa=KAPPA, horizon=1000),
    ]  # fmt: skip


@pytest.mark.parametrize("which", range(4))
def test_legs_and_restarts_leave_the_same_bits(which) -> None:
    rng = np.random.default_rng(16)
    pool = small_pool(rng, lengths=(6, 1, 2, 9, 12))
    users, start = small_users(rng, pool), rng.normal(size=4)
    whole, split, resumed = (learners(pool, start)[which] for _ in range(3))
    d = draws(rng, pool, 300)
    whole.run(users, d)

    d = d._replace(learner=np.random.default_rng(5))
    split.run(users, part(d, slice(0, 1)))
    split.run(users, part(d, slice(1, 170)), 1)
    resumed.restore(split.state())
    last = resumed.run(users, part(d, slice(170, 300)), 170)

    for name, value in whole.state().items():
        assert np.array_equal(value, resumed.state()[name])
    assert last.last == 300
    with pytest.raises(ValueError, match="shape"):
        resumed.restore({name: np.zeros(3) for name in whole.state()})


@pytest.mark.parametrize("which", range(4))
def test_queries_with_one_document_teach_nothing_and_break_nothing(which) -> None:
    rng = np.random.default_rng(17)
    pool = small_pool(rng, lengths=(1, 1, 1))
    start = rng.normal(size=4)
    learner = learners(pool, start)[which]
    users = Users.position_based(pool, np.ones(KAPPA), np.ones(3))

    rounds = learner.run(users, draws(rng, pool, 50))

    assert (rounds.displayed[:, 0] == pool.offsets[rounds.queries]).all()
    assert (rounds.displayed[:, 1:] == -1).all()
    assert rounds.clicks[:, 0].all()
    assert rounds.n_clicks == 50
    if which < 3:
        np.testing.assert_array_equal(learner.weights, start)


@pytest.mark.parametrize("which", range(4))
def test_without_clicks_nothing_is_learned(which) -> None:
    rng = np.random.default_rng(18)
    pool = small_pool(rng)
    start = rng.normal(size=4)
    learner = learners(pool, start)[which]

    rounds = learner.run(Users.position_based(pool, np.ones(KAPPA), np.zeros(pool.n_docs)), draws(rng, pool, 50))

    assert rounds.n_clicks == 0
    lists = top_lists(learner.candidate(), pool, KAPPA)
    assert np.array_equal(lists, top_lists(LinearRanker(start), pool, KAPPA))


def test_ranksvm_learns_to_rank() -> None:
    """A sign of life on 200 queries: the clicks of position-biased users make the order nearly that of attraction."""
    rng = np.random.default_rng(19)
    offsets = np.arange(0, 2001, 10)
    x = rng.normal(size=(2000, 5))
    pool = documents(x.astype(np.float32), offsets)
    attraction = 1 / (1 + np.exp(-3 * x[:, 0]))
    users = Users.position_based(pool, 1 / np.arange(1.0, 5), attraction)
    for learner in (RankSVM(np.zeros(5), lr=0.1, weighted=True), PDGD(np.zeros(5)), DBGD(np.zeros(5), lr=0.05)):
        before = attraction[top_lists(learner.candidate(), pool, 1)].mean()
        learner.run(users, draws(rng, pool, 6000))
        after = attraction[top_lists(learner.candidate(), pool, 1)].mean()
        assert after > before + 0.3


def test_what_cannot_work_is_refused() -> None:
    rng = np.random.default_rng(20)
    pool = small_pool(rng)
    users = small_users(rng, pool)
    weights, linear = np.zeros(4), LinearRanker(np.zeros(4))
    for make in (
        lambda: RankSVM(weights, lr=0.0), lambda: RankSVM(np.eye(2), lr=1), lambda: RankSVM(weights, lr=1, cap=2),
        lambda: DBGD(weights, reach=0), lambda: BubbleRank(linear, pool), lambda: BubbleRank(linear, pool, delta=1.0),
        lambda: SwapDisplay([1.0]), lambda: SwapDisplay([1.0, 0.5], probability=0.0),
        lambda: PlackettLuceDisplay([1.0], tau=0), lambda: AsRanked([0.0]),
        lambda: RankSVM(np.zeros(3), lr=1).run(users, draws(rng, pool, 1)),
        lambda: scores_of(TableRanker(np.zeros(2)), pool, np.arange(2), np.empty(pool.n_docs)),
        lambda: plackett_luce_expectation(np.zeros(20), np.ones(2)),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            make()
