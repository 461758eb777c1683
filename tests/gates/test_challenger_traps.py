"""Every way that is known to void the challenger gate's promise: the wrong variant fails here, ours does not.

Rates are over seeded runs; `assert_rate_at_most` has a false alarm of 1e-6 or less each. Runs of the gate use a level
of their own (`LEVEL`), not delta, so that few runs tell .0016 from what the wrong variants do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from challenger_kit import ONE_CONTEXT, assert_rate_at_most, play, run_pair, two_actions

from seamark import Explorer
from seamark.estimation.eprocess import (
    BettingMixture,
    ScoreBelowBound,
    bet_grid,
    empirical_bernstein_log_evidence,
    score_bounds,
)
from seamark.gates import contest
from seamark.gates.challenger import ChallengerGate
from seamark.gates.directed import DirectedPolicy
from seamark.policies import ActingForm, CallablePolicy, ConstantPolicy, LinearPolicy
from seamark.rounds import Rounds

pytestmark = pytest.mark.statistical

LEVEL = 0.05 / 2 / 32
"""The first challenger's alpha."""

FLAT = np.array([[0.5, 0.5]])
"""Both actions earn the same: an exact null for any pair of policies."""


def under_test(gate: ChallengerGate, deployed: Any, candidate: Any) -> ChallengerGate:
    gate.reign(deployed, 0, 0)
    gate.offer(candidate, gate.first_freeze)
    return gate


class Offers:
    """A learner that has its candidate already."""

    def __init__(self, candidate: Any) -> None:
        self._candidate = candidate

    def update(self, rounds: Rounds) -> None: ...

    def candidate(self) -> Any:
        return self._candidate


# -- 1: delays ---------------------------------------------------------------------------------------------------


def slow_conversions(rng: Any, actions: Any) -> tuple[Any, Any]:
    """Rewards of an exact null, and after how many further decisions they are known: conversions under the
    incumbent's action 0 come late, all else at once."""
    rewards = (rng.random(actions.size) < 0.5).astype(float)
    return rewards, np.where((actions == 0) & (rewards == 1), 5_000, 1)


def deploys_by_arrival(rng: Any, d: Any, h: Any, n: int) -> bool:
    gate = under_test(ChallengerGate(2), d, h)
    rounds = play(d, ONE_CONTEXT, FLAT, n, rng)
    rewards, delays = slow_conversions(rng, rounds.actions)
    order = np.argsort(np.arange(n) + delays, kind="stable")
    known = order[: int((np.arange(n) + delays < n).sum())]
    rounds = replace(
        rounds, rows=rounds.rows[known], actions=rounds.actions[known], rewards=rewards[known],
        propensities=rounds.propensities[known], versions=rounds.versions[known],
    )  # fmt: skip
    return any(bool((x := gate.observe(rounds[t : t + 50], d)) and x.deploys) for t in range(0, len(rounds), 50))


def test_trap_1_scoring_in_the_order_of_arrival_fires() -> None:
    """The broken variant: the challenger's conversions are seen first."""
    d, h = two_actions(0.9), two_actions(0.1)
    rng = np.random.default_rng(1)
    assert sum(deploys_by_arrival(rng, d, h, 1_500) for _ in range(20)) >= 18


def test_trap_1_an_explorer_waits_for_the_first_open_decision() -> None:
    """The same delays through `Explorer`, all rewards coming in the end: 40 runs of an exact null."""
    d, h = two_actions(0.9), two_actions(0.1)
    rng, fired = np.random.default_rng(2), 0
    for _ in range(40):
        gate = ChallengerGate(2, first_freeze=50, rollback=False)
        explorer = Explorer(d, gate=gate, learner=Offers(h), schedule="every:50", seed=int(rng.integers(2**31)))
        late: list[tuple[int, int, float]] = []
        for t in range(0, 1_500, 50):
            decided = explorer.decide(np.zeros((50, 1)))
            rewards = (rng.random(50) < 0.5).astype(float)
            wait = (decided.actions == 0) & (rewards == 1)
            explorer.reward(decided.ids[~wait], rewards[~wait])
            late += [(t + 400, int(i), 1.0) for i in decided.ids[wait]]
            due = [x for x in late if x[0] <= t]
            late = [x for x in late if x[0] > t]
            if due:
                explorer.reward([i for _, i, _ in due], [r for _, _, r in due])
        assert gate._seen >= 1_000
        assert gate._slots.live()
        fired += explorer.version > 0

    assert_rate_at_most(fired, 40, LEVEL)


# -- 2: rounds in which both agree -------------------------------------------------------------------------------


def test_trap_2_rounds_in_which_both_agree_still_cost_the_margin() -> None:
    """True gain = margin = .05, all of it in a fifth of the contexts. Skipping the rest tests a gain of .25 there."""
    features = np.arange(5.0)[:, None]
    d = CallablePolicy(lambda x: np.where(x > -1, [0.75, 0.25], 0.0), 2, "d", min_probability=0.25)
    h = CallablePolicy(lambda x: np.where(x == 0, [0.25, 0.75], [0.75, 0.25]), 2, "h", min_probability=0.25)
    means = np.where(np.arange(5)[:, None] == 0, [0.25, 0.75], [0.5, 0.5])
    rng, ours, skipping = np.random.default_rng(3), 0, 0
    for _ in range(40):
        gate = under_test(ChallengerGate(2, margin=0.05, reward_model=None), d, h)
        rounds = play(d, features, means, 3_000, rng)
        decision = gate.observe(rounds, d)
        ours += bool(decision and decision.deploys)
        apart = np.flatnonzero(rounds.rows == 0)
        u = np.where(rounds.actions[apart] == 0, -0.5 / 0.75, 0.5 / 0.25)
        broken = BettingMixture([1.0], margin=0.05)
        broken.update((u * rounds.rewards[apart])[:, None])
        skipping += broken.log_evidence >= -math.log(LEVEL)
        assert gate._slots.n(1) == 3_000

    assert skipping >= 30
    assert_rate_at_most(ours, 40, LEVEL)


# -- 3: order inside a leg ---------------------------------------------------------------------------------------


class Memory:
    """A reward model that knows by heart what it has seen, and is an optimist elsewhere."""

    fits = 0

    def __init__(self, n: int) -> None:
        self.q = np.ones((n, 2))

    def predict(self, contexts: Any) -> Any:
        return self.q[contexts[:, 0].astype(int)]

    def learn(self, rounds: Rounds) -> None:
        self.q[rounds.rows, rounds.actions] = rounds.rewards


def fresh_contexts(d: Any, n: int, rng: Any) -> Rounds:
    """Rounds whose contexts never come back."""
    rounds = play(d, ONE_CONTEXT, FLAT, n, rng)
    return replace(rounds, features=np.arange(float(n))[:, None], rows=np.arange(n), recurring=False)


def test_trap_3_the_reward_model_has_not_seen_the_round_that_it_scores() -> None:
    """A memorising model fires in every run of an exact null if it learns the leg first."""
    d, h = two_actions(0.9), two_actions(0.1)
    rng, fired = np.random.default_rng(4), {True: 0, False: 0}
    for early in (False, True):
        for _ in range(30):
            gate = under_test(ChallengerGate(2, reward_model=lambda x: np.ones((len(x), 2))), d, h)
            gate._scorer.model = memory = Memory(1_500)  # type: ignore[assignment]
            rounds = fresh_contexts(d, 1_500, rng)
            for t in range(0, 1_500, 100):
                if early:
                    memory.learn(rounds[t : t + 100])
                decision = gate.observe(rounds[t : t + 100], d)
                if decision and decision.deploys:
                    fired[early] += 1
                    break

    assert fired[True] >= 28
    assert_rate_at_most(fired[False], 30, LEVEL)


def test_trap_3_a_candidate_is_scored_only_on_legs_after_the_one_it_was_fitted_to() -> None:
    """Candidates that know the leg's rewards by heart. Frozen before the leg is scored they win; after, never."""

    class Hindsight:
        """Takes the logged action where it paid, another where it did not."""

        def __init__(self, rounds: Rounds) -> None:
            self.p = np.full((1_500, 2), 0.5)
            self.p[rounds.rows] = 0.05
            self.p[rounds.rows, np.where(rounds.rewards == 1, rounds.actions, 1 - rounds.actions)] = 0.95

        def __call__(self, x: Any) -> Any:
            return self.p[x[:, 0].astype(int)]

    d = two_actions(0.5)
    rng, fired = np.random.default_rng(5), {True: 0, False: 0}
    for early in (False, True):
        for _ in range(20):
            gate = ChallengerGate(2, first_freeze=100, rollback=False)
            gate.reign(d, 0, 0)
            rounds = fresh_contexts(d, 1_500, rng)
            for t in range(0, 1_500, 100):
                leg = rounds[t : t + 100]
                candidate = CallablePolicy(Hindsight(leg), 2, f"hindsight {t}")
                if early:
                    gate.offer(candidate, t + 100)
                decision = gate.observe(leg, d)
                if decision and decision.deploys:
                    fired[early] += 1
                    break
                if not early:
                    gate.offer(candidate, t + 100)
            assert gate._challenger >= 1

    assert fired[True] == 20
    assert_rate_at_most(fired[False], 20, 0.05)


# -- 4: constant control variate on moments ----------------------------------------------------------------------


def test_trap_4_an_untruncated_control_variate_has_its_own_bound() -> None:
    """z = u (r - c) is at least -max(1 - c, c u_max); with B = 1 the evidence from moments fires on an exact null.

    Rewards .99, c = 1: many small gains, now and then a loss of 18 that the bound 1 denies."""
    rng, c, fired = np.random.default_rng(6), 1.0, {1.0: 0, 18.0: 0}
    for _ in range(100):
        swap = rng.random(3_000) < 0.05
        u = np.where(swap, 0.95 / 0.05 - 1, 0.05 / 0.95 - 1)
        z = u * ((rng.random(3_000) < 0.99) - c)
        assert z.min() >= -max(1 - c, c * 18) - 1e-9
        s1, s2 = np.cumsum(z), np.cumsum(z * z)
        for bound in fired:
            fired[bound] += any(
                empirical_bernstein_log_evidence(n, s1[n - 1], s2[n - 1], bound=bound) >= math.log(20)
                for n in range(10, 3_001, 30)
            )

    assert fired[1.0] >= 20
    assert_rate_at_most(fired[18.0], 100, 0.05)


# -- 5: the largest weight under directed exploration ------------------------------------------------------------


def test_trap_5_the_largest_weight_follows_the_directed_law() -> None:
    """(1 - eps) K / (eps (1 - s)) for candidates with the same floor, at most (1 / floor - 1) / (1 - s) for any; not
    1 / floor - 1: with that as bound of an uncapped score, log1p is NaN."""
    k, eps, s = 10, 0.1, 0.5
    acts = ActingForm.epsilon_greedy(eps)
    d, h, other = (LinearPolicy(np.eye(k)[[i]].T.copy(), acts).frozen() for i in (0, 1, 2))
    gate = under_test(ChallengerGate(k, explore_share=s), d, other)
    largest = gate._slots.truncations[-1]
    assert largest == pytest.approx((1 / (eps / k) - 1) / (1 - s))

    x = np.ones((1, 1))
    p = gate.acting(d).probabilities(x)[0]  # directed at `other`, so that the actions of h get least
    u = (h.probabilities(x)[0] - d.probabilities(x)[0]) / p
    assert u.max() == pytest.approx((1 - eps) * k / (eps * (1 - s)))
    assert u.max() <= largest
    uncapped = (h.probabilities(x)[0] - d.probabilities(x)[0]).sum() - u.max()  # q = 1, r = 0
    wrong = score_bounds([1 / (eps / k) - 1])
    assert 1 + bet_grid(wrong)[0, 0] * uncapped < 0
    with pytest.raises(ScoreBelowBound):
        BettingMixture(wrong).update([[uncapped]])
    right = BettingMixture(score_bounds([largest]))
    right.update([[uncapped]])
    assert math.isfinite(right.log_evidence)


# -- 7: stale loggers --------------------------------------------------------------------------------------------


def test_trap_7_rounds_of_an_earlier_version_are_skipped_whatever_they_show() -> None:
    """In flight at a deployment. Their propensities agree with the new policy here; the version decides."""
    d, h = two_actions(0.5), two_actions(0.9)
    gate = under_test(ChallengerGate(2), d, h)
    rounds = play(d, ONE_CONTEXT, FLAT, 100, np.random.default_rng(0))
    gate.observe(replace(rounds, versions=np.where(np.arange(100) < 30, -1, 0)), d)
    assert gate._slots.n(1) == 70


def test_trap_7_rounds_of_an_earlier_version_break_the_bound_if_scored() -> None:
    """Relabelled as the new version's they block the gate: what acted was another policy."""
    old, d, h = two_actions(0.99), two_actions(0.3), two_actions(0.5)
    gate = under_test(ChallengerGate(2), d, h)
    decision = gate.observe(play(old, ONE_CONTEXT, FLAT, 100, np.random.default_rng(0)), d)
    assert decision is not None
    assert decision.verdict == "blocked"

    u = (h.distribution - d.distribution) / old.distribution
    swapped = (d.distribution - h.distribution) / old.distribution
    with pytest.raises(ScoreBelowBound):
        BettingMixture([1.0]).update(np.array([[min(u.min(), swapped.min()) * 1.0]]))


def test_trap_7_skipping_by_score_fires() -> None:
    """Leaving out the rounds with the worst scores of an exact null selects; by version it does not."""
    d = two_actions(0.5)
    rng, fired = np.random.default_rng(7), 0
    for _ in range(20):
        rounds = play(d, ONE_CONTEXT, FLAT, 1_000, rng)
        z = np.where(rounds.actions == 0, 0.8, -0.8) * rounds.rewards
        evidence = BettingMixture([1.0])
        evidence.update(z[(z >= 0) | (rng.random(1_000) < 0.5)][:, None])
        fired += evidence.log_evidence >= -math.log(LEVEL)
    assert fired >= 15


# -- 8: rewards --------------------------------------------------------------------------------------------------


def test_trap_8_rewards_are_scaled_beforehand_or_refused() -> None:
    """Revenue in [0, 100] taken as it is has scores far below the bound; with its range declared it is sound."""
    d, h = two_actions(0.5), two_actions(0.9)
    gate = under_test(ChallengerGate(2), d, h)
    rounds = play(d, ONE_CONTEXT, FLAT, 10, np.random.default_rng(0))
    with pytest.raises(ValueError, match="must be in"):
        gate.observe(replace(rounds, rewards=100 * rounds.rewards), d)

    scaled = Rounds.of(
        ONE_CONTEXT, rounds.actions, 100 * rounds.rewards, rounds.propensities, n_actions=2, reward_range=(0, 100),
        context_ids=rounds.rows,
    )  # fmt: skip
    gate.observe(scaled, d)
    assert gate._slots.n(1) == 10


# -- 10: the limit at a promotion --------------------------------------------------------------------------------


def test_trap_10_the_lift_limit_is_reported_apart_from_the_evidence() -> None:
    """It is looser: at most promotions it is negative. A gate that waited for it would be slower by far."""
    d, h = two_actions(0.9), two_actions(0.6)
    means = np.array([[0.4, 0.7]])
    found = [run_pair(ChallengerGate(2), d, h, ONE_CONTEXT, means, np.random.default_rng(s), n=20_000, leg=50)
             for s in range(30)]  # fmt: skip
    lower = [x.evidence["lift_lower"] for x in found if x is not None]

    assert len(lower) == 30
    assert np.mean(np.array(lower) < 0) > 0.7
    assert all("looser, separate" in x.evidence["lift_lower_is"] for x in found if x is not None)


# -- 11: rollback ------------------------------------------------------------------------------------------------


def rounds_to_roll_back(rng: Any, turn: int, limit: int) -> float:
    """How long after a reversal at round `turn` the former policy is back. It was worse by .16 before, better after."""
    old, new = two_actions(0.9), two_actions(0.5)
    gate = ChallengerGate(2, first_freeze=500)
    gate.reign(old, 0, 0)
    gate.reign(new, 0, 1)
    for first in range(0, turn + limit, 250):
        means = np.array([[0.3, 0.7]]) if first < turn else np.array([[0.7, 0.3]])
        decision = gate.observe(play(new, ONE_CONTEXT, means, 250, rng, first=first, version=1), new)
        if decision and decision.deploys:
            assert decision.verdict == "rollback"
            assert decision.policy is not None
            assert decision.policy.id == old.id
            return decision.at - turn
    return math.inf


def test_trap_11_the_former_incumbent_is_tested_anew_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that keeps what spoke against the former policy before things turned takes far longer to speak for it."""
    renewed = [rounds_to_roll_back(np.random.default_rng(s), 9_000, 40_000) for s in range(5)]
    monkeypatch.setattr(contest, "PINNED_GROWTH", 1e12)
    kept = [rounds_to_roll_back(np.random.default_rng(s), 9_000, 40_000) for s in range(5)]

    assert np.median(renewed) < 9_500
    assert np.median(kept) > 1.5 * np.median(renewed), (renewed, kept)


def test_trap_11_every_renewal_has_a_level_of_its_own() -> None:
    gate = ChallengerGate(2, first_freeze=100)
    gate.reign(two_actions(0.9), 0, 0)
    d = two_actions(0.5)
    gate.reign(d, 0, 1)
    rng = np.random.default_rng(0)
    for first in range(0, 1_000, 50):
        gate.observe(play(d, ONE_CONTEXT, FLAT, 50, rng, first=first, version=1), d)
    pinned = [e for e in gate.events if e["event"] == "freeze"]

    assert [e["at"] for e in pinned] == [0, 100, 150, 250, 350, 550, 800]
    assert [e["challenger"] for e in pinned] == list(range(1, 8))
    assert gate._slots.n(0) == 200


# -- 12: constant bets -------------------------------------------------------------------------------------------


def test_trap_12_constant_bets_cover_drift_on_average_and_adaptive_ones_do_not() -> None:
    """The challenger loses .4 for 600 rounds, then gains .4: on average so far it is never better."""
    rng, constant, adaptive = np.random.default_rng(8), 0, 0
    for _ in range(200):
        means = np.repeat([-0.4, 0.4], 600)
        z = np.where(rng.random(1_200) < (1 + means) / 2, 1.0, -1.0)
        log_capital = np.cumsum(np.log1p(z[:, None] * bet_grid([1.0])[0]), axis=0)
        constant += np.logaddexp.reduce(log_capital, axis=1).max() - math.log(12) >= math.log(20)
        recent = np.concatenate([[0.0], np.cumsum(z)])
        window = np.array([(recent[t] - recent[max(0, t - 50)]) / 50 for t in range(1_200)])
        adaptive += np.cumsum(np.log1p(np.clip(window, 0.0, 0.9) * z)).max() >= math.log(20)

    assert adaptive >= 190
    assert_rate_at_most(constant, 200, 0.05)


def test_trap_12_bets_do_not_move_with_the_rounds() -> None:
    d, h = two_actions(0.5), two_actions(0.9)
    gate = under_test(ChallengerGate(2), d, h)
    before = gate._slots.bets.copy()
    gate.observe(play(d, ONE_CONTEXT, FLAT, 500, np.random.default_rng(0)), d)
    np.testing.assert_array_equal(gate._slots.bets, before)
    np.testing.assert_array_equal(before[1], bet_grid(gate._slots.bounds[1]))


# -- 14: what held at decision time ------------------------------------------------------------------------------


def test_trap_14_directed_exploration_starts_with_the_first_challenger() -> None:
    """p = (1 - eps) base + eps [(1 - s) / K + s mean over challengers of their greedy action]."""
    acts = ActingForm.epsilon_greedy(0.2)
    d, one, two = (LinearPolicy(np.eye(4)[[i]].T.copy(), acts).frozen() for i in (0, 1, 2))
    gate = ChallengerGate(4, explore_share=0.5)
    gate.reign(d, 0, 0)
    assert gate.acting(d) is d
    gate.offer(one, 500)
    gate.offer(two, 1_000)
    acting = gate.acting(d)
    assert isinstance(acting, DirectedPolicy)
    share = 0.2 * 0.5 / 4
    np.testing.assert_allclose(
        acting.probabilities(np.ones((1, 1))), [[0.8 + share, 0.05 + share, 0.05 + share, share]]
    )
    assert acting.min_probability == pytest.approx(share)
    assert acting.frozen().id == acting.id


def test_trap_14_directed_rounds_need_the_probabilities_of_decision_time() -> None:
    """Challengers change later; from the deployed policy p cannot be told any more. Nothing is counted on refusal."""
    d, h = two_actions(0.8), two_actions(0.3)
    gate = under_test(ChallengerGate(2, explore_share=0.5), d, h)
    acting = gate.acting(d)
    rounds = play(acting, ONE_CONTEXT, FLAT, 50, np.random.default_rng(0), keep=True)
    with pytest.raises(ValueError, match="build rounds with probabilities"):
        gate.observe(replace(rounds, probabilities=None), d)

    gate.observe(rounds, d)
    assert gate._slots.n(1) == 50


def test_trap_14_a_candidate_without_the_floor_has_a_larger_bound() -> None:
    """(d - h) / p reaches 1 / (1 - s) where neither d's base nor a challenger goes; M = 1 would be broken there."""
    d, h = ConstantPolicy([0.8, 0.1, 0.1]), ConstantPolicy([0.5, 0.5, 0.0])
    gate = under_test(ChallengerGate(3, explore_share=0.5), d, h)
    p = gate.acting(d).probabilities(np.ones((1, 1)))[0]
    u = (h.distribution - d.distribution) / p
    assert u.min() == pytest.approx(-2.0)
    np.testing.assert_array_equal(gate._slots.bounds[1], score_bounds(gate._slots.truncations, 2.0))

    columns = np.zeros(1, dtype=np.int64)
    rounds = Rounds(ONE_CONTEXT, columns, columns + 2, np.ones(1), p[2:], columns, 0, True, p[None])
    gate.observe(rounds, d)  # z = -2 is as low as it may be
    with pytest.raises(ScoreBelowBound):
        BettingMixture([1.0]).update([[u[2]]])


# -- 16: margins -------------------------------------------------------------------------------------------------


def test_trap_16_every_reign_has_its_share_of_a_negative_margin() -> None:
    gate = ChallengerGate(2, margin=-0.12)
    margins = []
    for reign in range(3):
        gate.reign(two_actions(0.5 + reign / 10), 100 * reign, reign)
        margins.append(gate._slots.margin)
    assert margins == pytest.approx([-0.06, -0.02, -0.01])


def test_trap_16_a_loss_that_is_allowed_does_not_bring_the_former_incumbent_back() -> None:
    """Two policies of one value, a margin of -.3: the new one is deployed as not much worse, and that is the end."""
    d, h = two_actions(0.5), two_actions(0.6)
    gate = ChallengerGate(2, margin=-0.3)
    rng = np.random.default_rng(0)
    decision = run_pair(gate, d, h, ONE_CONTEXT, FLAT, rng, n=4_000)
    assert decision is not None
    assert decision.verdict == "promote"
    gate.reign(h, decision.at, 1)
    for first in range(decision.at, decision.at + 4_000, 200):
        back = gate.observe(play(h, ONE_CONTEXT, FLAT, 200, rng, first=first, version=1), h)
        assert back is not None
        assert back.verdict == "hold"


def test_trap_16_a_positive_margin_is_not_reached_by_a_smaller_gain() -> None:
    """True gain .05, margin .1: 40 runs; with margin 0 the same pair is deployed in all of them."""
    d, h = two_actions(0.5), two_actions(0.75)
    means = np.array([[0.6, 0.4]])
    fired = {0.0: 0, 0.1: 0}
    for margin in fired:
        for seed in range(40):
            gate = ChallengerGate(2, margin=margin)
            fired[margin] += run_pair(gate, d, h, ONE_CONTEXT, means, np.random.default_rng(seed), n=6_000) is not None

    assert fired[0.0] >= 35
    assert_rate_at_most(fired[0.1], 40, LEVEL)
