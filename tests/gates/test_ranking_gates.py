"""Gates for rankers: what they deploy, what they must not, and that they resume."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from seamark.estimation.bounds import Moments, maurer_pontil_radius
from seamark.estimation.eprocess import BettingMixture
from seamark.estimation.ranking_scores import RankingScorer
from seamark.estimation.ranking_sums import RankingSums
from seamark.explorer import Explorer
from seamark.gates import GateRefusal, MeansGate, Schedule
from seamark.gates.ranking_challenger import RankingChallengerGate
from seamark.gates.ranking_paper import RankingPaperGate
from seamark.gates.slots import PINNED
from seamark.gates.spending import Spending
from seamark.learners.ranksvm import RankSVM
from seamark.persist import load_state, save_state
from seamark.policies.combined import BudgetedRanker, RerankedRanker
from seamark.policies.displays import PlackettLuceDisplay, SwapDisplay, serve
from seamark.policies.rankers import LinearRanker, ListCache, TableRanker, top_lists
from seamark.rankings import RankingDraws, RankingRounds, Users, documents
from seamark.worlds.clicks import find_model
from seamark.worlds.ranking import Judged, RankingWorld


def table(values) -> TableRanker:
    return TableRanker(np.asarray(values, dtype=float)).frozen()


class Fixed:
    """A learner that always proposes one ranker."""

    def __init__(self, ranker):
        self.ranker = ranker

    def update(self, rounds):
        pass

    def candidate(self):
        return self.ranker

    def state(self):
        return {}

    def restore(self, state):
        pass


class World:
    """Position-based users in front of a pool; a leg of rounds under a fixed ranker."""

    def __init__(self, alpha, lengths, e, seed=0):
        self.pool = documents(np.zeros((len(alpha), 1)), np.concatenate([[0], np.cumsum(lengths)]))
        self.alpha, self.e = np.asarray(alpha, dtype=float), np.asarray(e, dtype=float)
        self.rng, self.t, self.cache = np.random.default_rng(seed), 0, ListCache(len(e))

    def leg(self, ranker, n, version=0, pool=None) -> RankingRounds:
        queries = self.rng.integers(0, self.pool.n_queries, n)
        displayed = self.cache.lists(ranker, self.pool)[queries]
        p = self.e * np.where(displayed >= 0, self.alpha[displayed], 0.0)
        clicks = self.rng.random(p.shape) < p
        self.t += n
        return RankingRounds.of(
            self.pool, queries, displayed, clicks, examination=self.e, versions=version, first=self.t - n
        )

    def value(self, ranker) -> float:
        lists = top_lists(ranker, self.pool, self.e.size)
        lam = 1 / np.log2(2 + np.arange(self.e.size))
        return float((np.where(lists >= 0, self.alpha[lists], 0.0) * lam).sum(axis=1).mean())


def run(world, gate, baseline, candidate, legs):
    explorer = Explorer(baseline, gate=gate, learner=Fixed(candidate), schedule="every:500")
    for n in legs:
        explorer.absorb(world.leg(explorer.deployed, n, explorer.version))
    return explorer


E10 = 1 / np.arange(1.0, 11)
BAD, GOOD = 0.1, 0.9


def two_sided_world(seed=0, e=E10):
    """20 queries of 10 documents, all displayed; the baseline has them upside down."""
    alpha = np.tile(np.linspace(GOOD, BAD, 10), 20)
    return World(alpha, [10] * 20, e, seed), table(np.tile(np.arange(10.0), 20)), table(np.tile(-np.arange(10.0), 20))


# -- the paper's gate -------------------------------------------------------------------------------------------------


def test_the_paper_gate_compares_bounds_with_ranges_known_beforehand() -> None:
    """LCB with b_h, UCB with b_d, both from the naive scores. Caught: one b for both; n as the number of clicks."""
    world, old, new = two_sided_world()
    gate = RankingPaperGate(E10)
    gate.reign(old, 0, 0)
    log = world.leg(old, 4000)
    gate.observe(log, old)

    decision = gate.offer(new, 4000)

    lam, j = 1 / np.log2(2 + np.arange(10)), np.arange(1, 11)
    ranks = {}
    for name, ranker in (("old", old), ("new", new)):
        top = top_lists(ranker, world.pool, 10)[log.queries]
        at = log.displayed[:, :, None] == top[:, None, :]
        worth = (at * lam).sum(axis=2) * log.clicks / E10
        x = worth.sum(axis=1)
        ranks[name] = Moments(4000, x.sum(), (x * x).sum())
    lower = ranks["new"].mean - maurer_pontil_radius(ranks["new"], upper=(lam * j[::-1]).sum(), delta=0.05)
    upper = ranks["old"].mean + maurer_pontil_radius(ranks["old"], upper=(lam * j).sum(), delta=0.05)
    np.testing.assert_allclose([decision.evidence["new_lower"], decision.evidence["deployed_upper"]], [lower, upper])
    assert decision.deploys == (lower >= upper)


@pytest.mark.parametrize("semantics", ["paper", "released"])
def test_a_much_better_ranker_is_deployed_and_a_worse_one_is_not(semantics) -> None:
    world, bad, good = two_sided_world(e=np.ones(10))
    up = run(world, RankingPaperGate(np.ones(10), semantics=semantics), bad, good, [500] * 12)
    world, bad, good = two_sided_world(e=np.ones(10))
    down = run(world, RankingPaperGate(np.ones(10), semantics=semantics), good, bad, [500] * 12)
    assert up.version == 1
    assert down.version == 0


def trap(seed):
    """200 queries alike, perfect examination. The candidate lifts d10 to the top and throws d7, d8, d9 off the list for
    documents that attract nobody: worse at 10 by .07, better over the whole list by .17 on what was displayed."""
    alpha = np.zeros(30)
    alpha[6:10] = 0.3
    order = [9, 0, 1, 2, 3, 4, 5, 20, 21, 22, 6, 7, 8]
    candidate = np.full(30, -100.0)
    candidate[order] = -np.arange(len(order))
    return (
        World(np.tile(alpha, 200), [30] * 200, np.ones(10), seed),
        table(np.tile(-np.arange(30.0), 200)),
        table(np.tile(candidate, 200)),
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_ranker_worse_at_ten_but_better_down_the_list_fools_the_released_gate_only(seed) -> None:
    """The certified metric must be the reported one. Released deploys it in every run; no gate with the cut metric
    does, the one without bounds included. Caught: lambda of the whole list in any of them."""
    e, legs = np.ones(10), [500] * 20
    world, old, new = trap(seed)
    assert world.value(new) < world.value(old) - 0.05
    released = run(world, RankingPaperGate(e, semantics="released"), old, new, legs)
    assert released.version == 1
    for make in (
        lambda: RankingPaperGate(e),
        lambda: MeansGate(0, sums=RankingSums(e)),
        lambda: RankingChallengerGate(e, first_freeze=1),
    ):
        assert run(trap(seed)[0], make(), old, new, legs).version == 0


def test_under_swaps_the_gate_certifies_what_users_are_shown() -> None:
    """Exchanging ranks 1 and 2 changes little of what swaps show, ranks 3 and 5 much: better as it ranks, worse as it
    is shown. Never deployed; with the discount of the rank it was, at once."""
    e = np.ones(10)
    alpha = np.tile([0.2, 0.45, 0.9, 0.1, 0.2, *[0.1] * 15], 50)
    pool = documents(np.zeros((alpha.size, 1)), np.arange(0, alpha.size + 1, 20))
    part = Judged(pool, np.zeros(alpha.size, dtype=np.int64), Users.position_based(pool, e, alpha))
    world = RankingWorld("swaps", part, part, find_model("perfect"), 4)
    old = table(np.tile(-np.arange(20.0), 50))
    order = np.arange(20)
    order[[0, 1, 2, 4]] = [1, 0, 4, 2]
    values = np.zeros(20)
    values[order] = -np.arange(20.0)
    new, display = table(np.tile(values, 50)), SwapDisplay(e)
    assert world.value(new) > world.value(old) + 0.01
    assert world.value(new, display) < world.value(old, display) - 0.01

    gate = RankingChallengerGate(display, first_freeze=1)
    explorer = Explorer(old, gate=gate, learner=Fixed(new), schedule="every:500")
    rng, cache = np.random.default_rng(0), ListCache(display.depth)
    for t in range(0, 20_000, 500):
        draws = RankingDraws(world.queries(rng.random(500)), rng.random((500, 10)), rng.random((500, 10)), rng)
        explorer.absorb(serve(explorer.deployed, display, world.train.users, draws, cache, first=t, version=0))
    assert explorer.version == 0


def test_the_deployed_rankers_upper_bound_starts_anew_with_its_own_rounds() -> None:
    """Rounds that an earlier ranker displayed miss documents of the deployed one, so its estimate would be too low.
    Kept (as published), it is; begun anew, it is not. Both stated: .3 is far beyond the noise of 4,000 rounds."""
    alpha = np.array([0.9, 0.9, 0.1, 0.1])
    old, new = table([1, 1, 2, 2]), table([2, 2, 1, 1])
    truth = World(alpha, [4], np.ones(2)).value(new)
    means = {}
    for choice in ("restart", "keep"):
        world, gate = World(alpha, [4], np.ones(2)), RankingPaperGate(np.ones(2), after_deployment=choice)
        gate.reign(old, 0, 0)
        gate.observe(world.leg(old, 2000), old)
        gate.reign(new, 2000, 1)
        gate.observe(world.leg(new, 2000, version=1), new)
        means[choice] = gate.offer(old, 4000).evidence["deployed_mean"]
    assert abs(means["restart"] - truth) < 0.05
    assert means["keep"] < truth - 0.3


def test_gates_refuse_a_display_without_a_floor() -> None:
    for gate in (RankingPaperGate, RankingChallengerGate):
        with pytest.raises(GateRefusal, match="SwapDisplay"):
            gate(PlackettLuceDisplay(E10))
    with pytest.raises(ValueError, match="delta"):
        RankingPaperGate(E10, delta=0)


GATES = [
    lambda e: RankingPaperGate(e),
    lambda e: RankingPaperGate(e, semantics="released"),
    lambda e: MeansGate(0, sums=RankingSums(e)),
    lambda e: MeansGate(0, sums=RankingSums(e, semantics="released")),
    lambda e: RankingChallengerGate(e, first_freeze=1),
    lambda e: RankingChallengerGate(e, first_freeze=1, budget=2.0, forms=("full", "reranked")),
]


@pytest.mark.parametrize("make", GATES)
def test_without_clicks_nothing_is_ever_deployed(make) -> None:
    world, old, new = two_sided_world()
    world.alpha = np.zeros(200)
    explorer = run(world, make(E10), old, new, [1, 1, 3, 5, 100, 1000])
    assert explorer.version == 0
    if hasattr(explorer.gate, "why"):
        assert all(slot["log_evidence"] == 0.0 for slot in explorer.gate.why()["challengers"])


@pytest.mark.parametrize("make", GATES)
def test_a_learner_that_diverged_is_never_deployed(make) -> None:
    world, old, _ = two_sided_world()
    explorer = run(world, make(E10), old, table(np.full(200, np.nan)), [1, 10, 500, 500])
    assert explorer.version == 0


@pytest.mark.parametrize("make", GATES)
def test_short_lists_and_single_documents_are_no_trouble(make) -> None:
    """Queries of 1 and 3 documents under a display of ten."""
    world = World([0.5, 0.1, 0.5, 0.9], [1, 3], E10)
    explorer = run(world, make(E10), table([0, 3, 2, 1]), table([0, 1, 2, 3]), [1, 100] + [1000] * 6)
    assert explorer.t == 6101
    for decision in explorer.deployments:
        assert all(np.isfinite(x) for x in decision.evidence.values() if isinstance(x, float))


@pytest.mark.parametrize("make", GATES)
def test_gates_resume_with_the_same_bits(make, tmp_path) -> None:
    """State through a file after the second leg; every later decision and record equal."""

    def legs():
        world, old, new = two_sided_world(seed=3)
        return old, new, [world.leg(old, n) for n in (50, 350, 200, 400)]

    old, new, rounds = legs()
    whole, first, second = (make(E10) for _ in range(3))
    for gate in (whole, first, second):
        gate.reign(old, 0, 0)

    def drive(gate, leg):
        decisions = [gate.observe(leg, old)]
        if gate.wants(leg.last):
            decisions.append(gate.offer(new, leg.last))
        return [(d.verdict, d.at, repr(d.evidence)) for d in decisions if d]

    expected = [drive(whole, leg) for leg in rounds]
    got = [drive(first, leg) for leg in rounds[:2]]
    save_state(tmp_path / "gate.npz", first.state())
    second.restore(load_state(tmp_path / "gate.npz"))
    got += [drive(second, leg) for leg in rounds[2:]]

    assert got == expected
    assert repr(second.records()) == repr(whole.records())


# -- the challenger gate ----------------------------------------------------------------------------------------------


def test_evidence_is_the_betting_mixture_of_paired_scores_after_the_freeze() -> None:
    """Twin: `BettingMixture` on the scorer's z. Caught: scoring the rounds before the freeze; bets of another bound."""
    world, old, new = two_sided_world()
    gate = RankingChallengerGate(E10, first_freeze=100, delta=1e-300, guarantee="deployment")
    gate.reign(old, 0, 0)
    legs = [world.leg(old, n) for n in (100, 37, 900, 1)]
    gate.observe(legs[0], old)
    gate.offer(new, 100)
    for leg in legs[1:]:
        gate.observe(leg, old)

    scorer, mixture = RankingScorer(E10), BettingMixture([scorer_bound := 20.013043470031203])
    assert math.isclose(scorer.ranges.lower, scorer_bound)
    for leg in legs[1:]:
        mixture.update(scorer.paired(new, old, leg).values[:, None])
    slot = gate.why()["challengers"][0]
    assert slot["n"] == 938
    assert math.isclose(slot["log_evidence"], mixture.log_evidence, rel_tol=1e-10)
    assert slot["log_evidence"] > 5


def test_a_candidate_is_scored_on_rounds_decided_after_it_was_frozen() -> None:
    """With delayed clicks a learner may know decisions that the gate has not read yet: `decided` says how many."""
    world, old, new = two_sided_world()
    gate = RankingChallengerGate(E10, first_freeze=1, delta=1e-300, guarantee="deployment")
    gate.reign(old, 0, 0)
    gate.observe(world.leg(old, 10), old)
    gate.offer(new, 10, decided=150)
    leg = world.leg(old, 400)
    gate.observe(leg[:100], old)
    gate.observe(leg[100:], old)
    mixture = BettingMixture([gate.scorer.ranges.lower])
    mixture.update(gate.scorer.paired(new, old, leg[140:]).values[:, None])
    slot = gate.why()["challengers"][0]
    assert slot["n"] == 260
    assert math.isclose(slot["log_evidence"], mixture.log_evidence, rel_tol=1e-10)


@pytest.mark.parametrize("margin", [0.5, -0.5])
def test_with_a_margin_rounds_without_a_score_count_too(margin) -> None:
    """Trap 2: a skipped round still owes log1p(-lambda mu0); a negative margin is a budget over reigns."""
    world, old, new = two_sided_world()
    gate = RankingChallengerGate(E10, first_freeze=1, margin=margin, delta=1e-300, guarantee="deployment")
    gate.reign(old, 0, 0)
    gate.offer(new, 1)
    leg = world.leg(old, 500)
    gate.observe(leg, old)
    mu = margin if margin > 0 else margin / 2
    mixture = BettingMixture([gate.scorer.ranges.lower], margin=mu)
    z = gate.scorer.paired(new, old, leg).values
    mixture.update(z[:, None])
    assert (z == 0).any()
    assert math.isclose(gate.why()["challengers"][0]["log_evidence"], mixture.log_evidence, rel_tol=1e-10)


def test_a_rollback_must_be_better_even_under_a_negative_margin() -> None:
    """With a budget for losses two rankers that are about equal would take turns. Caught: one margin for all."""
    _, old, new = two_sided_world()
    gate = RankingChallengerGate(E10, first_freeze=1, margin=-0.5)
    gate.reign(old, 0, 0)
    gate.reign(new, 10, 1)
    gate.offer(table(np.ones(200)), 11)

    assert gate._slots.margins[PINNED] == 0.0
    assert gate._slots.margins[1] == -0.5 / 6


def test_a_better_ranker_is_deployed_and_then_guarded_by_the_former_one() -> None:
    world, old, new = two_sided_world()
    gate = RankingChallengerGate(E10)
    explorer = run(world, gate, old, new, [500] * 10)
    assert explorer.version == 1
    assert explorer.deployed.id == new.id
    decision = explorer.deployments[0]
    assert decision.verdict == "promote"
    assert decision.evidence["log_evidence"] >= decision.evidence["threshold"]
    assert decision.evidence["alpha"] == Spending(0.05).level(1, 1)
    assert decision.evidence["bounds"] == [gate.scorer.ranges.lower]
    pinned = [slot for slot in gate.why()["challengers"] if slot["pinned"]]
    assert [slot["policy"] for slot in pinned] == [old.id]


def test_the_former_ranker_comes_back_when_users_change() -> None:
    """Rollback: after the promotion attraction is reversed."""
    world, old, new = two_sided_world()
    explorer = run(world, RankingChallengerGate(E10), old, new, [500] * 6)
    assert explorer.version == 1
    world.alpha = 1 - world.alpha
    while explorer.version == 1 and explorer.t < 200_000:
        explorer.absorb(world.leg(explorer.deployed, 2000, explorer.version))
    assert explorer.deployments[-1].verdict == "rollback"
    assert explorer.deployed.id == old.id


def test_policy_surgery_certifies_and_deploys_the_cut_ranker() -> None:
    world, old, new = two_sided_world()
    gate = RankingChallengerGate(E10, budget=100.0, first_freeze=1)
    explorer = run(world, gate, old, new, [1] + [500] * 10)
    assert explorer.version == 1
    assert isinstance(explorer.deployed, BudgetedRanker)
    assert gate.scorer.bound(explorer.deployed, old) == gate.scorer.ranges.lower
    small = RankingChallengerGate(E10, budget=1.0, first_freeze=1)
    small.reign(old, 0, 0)
    small.offer(new, 1)
    assert small.why()["challengers"][0]["bounds"] == [1.0]
    with pytest.raises(ValueError, match="surgery"):
        RankingChallengerGate(SwapDisplay(E10), budget=1.0)


def test_the_reranked_form_takes_the_good_part_of_a_bad_candidate() -> None:
    """In the trap the candidate's order of the displayed documents is better and its new documents are worthless: only
    its reranked form is deployed, and its mean score is the true gain (not only a bound: .20, known to .03)."""
    world, old, new = trap(0)
    gate = RankingChallengerGate(np.ones(10), first_freeze=1, forms=("full", "reranked"))
    explorer = run(world, gate, old, new, [1] + [500] * 20)
    assert explorer.version == 1
    deployed = explorer.deployed
    assert isinstance(deployed, RerankedRanker)
    assert deployed.new.id == new.id
    gain = world.value(deployed) - world.value(old)
    scored = RankingScorer(np.ones(10)).paired(deployed, old, world.leg(old, 5000)).values
    assert abs(scored.mean() - gain) < 0.03 < 0.1 < gain
    for bad in ((), ("half",)):
        with pytest.raises(ValueError, match="forms"):
            RankingChallengerGate(E10, forms=bad)


def test_under_swaps_a_document_from_below_can_win() -> None:
    """Two positions, the best document at rank 3: with the order shown as it is nothing ever credits it; with swaps it
    is seen, its propensity is known, and the ranker that lifts it is deployed."""
    e, alpha = np.array([1.0, 0.8]), np.array([0.1, 0.1, 0.9])
    old, new = table([3, 2, 1]), table([1, 2, 3])
    world, display = World(alpha, [3], e), SwapDisplay(e)
    plain = run(world, RankingChallengerGate(e, first_freeze=1), old, new, [1] + [500] * 8)
    assert plain.version == 0
    gate, rng, lists = (
        RankingChallengerGate(display, first_freeze=1),
        np.random.default_rng(0),
        ListCache(display.depth),
    )
    explorer = Explorer(old, gate=gate, learner=Fixed(new), schedule="every:500")
    while explorer.version == 0 and explorer.t < 10_000:
        n = 1 if explorer.t == 0 else 500
        queries = np.zeros(n, dtype=int)
        shown = display.show(lists, explorer.deployed, world.pool, queries, rng.random((n, 2)))
        clicks = rng.random((n, 2)) < e * alpha[shown.displayed]
        explorer.absorb(
            RankingRounds.of(
                world.pool,
                queries,
                shown.displayed,
                clicks,
                examination=e,
                propensities=shown.propensities,
                first=explorer.t,
            )
        )
    assert explorer.version == 1


def test_legs_leave_the_same_evidence() -> None:
    """Same bits whether rounds come in one leg or in many."""
    world, old, new = two_sided_world()
    leg = world.leg(old, 1000)
    seen = []
    for cuts in ((0, 1000), (0, 1, 400, 1000)):
        gate = RankingChallengerGate(E10, first_freeze=1, delta=1e-300, guarantee="deployment")
        gate.reign(old, 0, 0)
        gate.offer(new, 1)
        for a, b in itertools.pairwise(cuts):
            gate.observe(leg[a:b], old)
        slot = gate.why()["challengers"][0]
        seen.append((slot["log_evidence"], slot["n"], slot["mean_lift"]))
    assert seen[0] == seen[1]


def test_rounds_of_an_earlier_version_are_skipped_by_version() -> None:
    """Trap 7: in flight at the deployment; they show another ranker's lists and say nothing about this pair."""
    world, old, new = two_sided_world()
    gate = RankingChallengerGate(E10, first_freeze=1, rollback=False)
    gate.reign(new, 0, 1)
    gate.offer(old, 1)
    stale, own = world.leg(old, 50, version=0), world.leg(new, 70, version=1)
    both = dataclasses.replace(
        own, first=0, queries=np.concatenate([stale.queries, own.queries]),
        displayed=np.concatenate([stale.displayed, own.displayed]), clicks=np.concatenate([stale.clicks, own.clicks]),
        versions=np.concatenate([stale.versions, own.versions]),
    )  # fmt: skip
    gate.observe(both, new)
    assert gate.why()["challengers"][0]["n"] == 70


def test_records_that_cannot_be_evidence_are_refused() -> None:
    """A gap, a replay, another deployed ranker: raise. Lists that the deployed ranker does not show: blocked until the
    next reign, because propensities are then unknown."""
    world, old, new = two_sided_world()
    gate = RankingChallengerGate(E10, first_freeze=1)
    gate.reign(old, 0, 0)
    gate.offer(new, 1)
    first = world.leg(old, 10)
    gate.observe(first, old)
    for bad, who in ((first, old), (world.leg(old, 5)[3:], old), (world.leg(old, 5), new)):
        with pytest.raises(ValueError, match=r"rounds|deployed"):
            gate.observe(bad, who)
    wrong = dataclasses.replace(world.leg(new, 20), first=10)
    decision = gate.observe(wrong, old)
    assert decision is not None
    assert decision.verdict == "blocked"
    assert decision.reasons == ("display-mismatch",)
    assert not gate.wants(10**9)


def test_challengers_are_frozen_evicted_and_never_tested_twice() -> None:
    world, old, _ = two_sided_world()
    rng = np.random.default_rng(1)
    gate = RankingChallengerGate(E10, slots=2, first_freeze=10, growth=1.5)
    gate.reign(old, 0, 0)
    live = np.tile(np.arange(10.0), 20)
    for t in range(10, 200, 10):
        gate.observe(world.leg(old, 10), old)
        live += rng.normal(size=200) * 0.5
        gate.offer(TableRanker(live.copy()), t)
        gate.offer(TableRanker(live.copy()), t)
    freezes = [event["at"] for event in gate.events if event["event"] == "freeze"]
    assert freezes == [10, 20, 30, 40, 60, 80, 120, 180]
    assert len(gate.why()["challengers"]) == 2
    alphas = [event["alpha"] for event in gate.events if event["event"] == "freeze"]
    assert alphas == [Spending(0.05).level(1, j) for j in range(1, 9)]
    assert gate._slots.slots[PINNED] is None
    gate.offer(old, 10**6)
    assert len([e for e in gate.events if e["event"] == "freeze"]) == 8


@pytest.mark.statistical
def test_an_equally_good_ranker_reaches_evidence_twenty_in_at_most_one_run_in_twenty() -> None:
    """Exact null: documents of equal attraction trade places, so E z = 0; 400 runs of 1,500 rounds, looked at every 50.
    False alarm <= 1e-6. Caught: every round scored five times crosses in a third of the runs (honest: .01; scored twice
    it is .055, which this test lets pass and the twin of the evidence does not)."""
    alpha = np.tile([0.6, 0.3, 0.3, 0.6, 0.1], 10)
    e = 1 / np.arange(1.0, 5)
    old, new = table(np.tile([5, 4, 3, 2, 1], 10)), table(np.tile([2, 3, 4, 5, 1], 10))
    crossed = 0
    for seed in range(400):
        world = World(alpha, [5] * 10, e, seed)
        gate = RankingChallengerGate(e, delta=1e-300, guarantee="deployment", first_freeze=1)
        gate.reign(old, 0, 0)
        gate.offer(new, 1)
        leg = world.leg(old, 1500)
        for a in range(0, 1500, 50):
            gate.observe(leg[a : a + 50], old)
            if gate._slots.log_evidence(1) >= math.log(20):
                crossed += 1
                break
    assert binom.sf(crossed - 1, 400, 0.05) > 1e-6


def test_sea_learns_to_rank_in_the_explorer() -> None:
    """The whole loop: RankSVM learns from the deployed ranker's clicks, a gate, a better deployed ranker at the end."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2000, 5))
    world = World(1 / (1 + np.exp(-4 * x[:, 0])), [10] * 200, np.ones(5))
    world.pool = documents(x.astype(np.float32), np.arange(0, 2001, 10))
    start = np.array([0.05, 1.0, 0.0, 0.0, 0.0])
    for gate in (RankingPaperGate(np.ones(5)), RankingChallengerGate(np.ones(5))):
        world.t, world.cache = 0, ListCache(5)
        explorer = Explorer(
            LinearRanker(start), gate=gate, learner=RankSVM(start, lr=0.05),
            schedule=Schedule.parse("published", tail=10_000),
        )  # fmt: skip
        for at in explorer.schedule.times():
            explorer.absorb(world.leg(explorer.deployed, at - explorer.t, explorer.version))
            if at >= 6000:
                break
        assert explorer.version >= 1
        assert world.value(explorer.deployed) > world.value(LinearRanker(start)) + 0.2
