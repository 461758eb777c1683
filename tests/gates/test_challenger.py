"""The challenger gate: its score, its evidence, what it promises and what it remembers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from challenger_kit import ONE_CONTEXT, assert_rate_at_most, null_runs, play, run_pair, two_actions

from seamark.estimation.eprocess import BettingMixture, bet_grid, score_bounds, truncations
from seamark.gates import GateRefusal, PaperGate
from seamark.gates.base import Gate
from seamark.gates.challenger import ChallengerGate
from seamark.kernels.challenger import paired_scores
from seamark.persist import load_state, save_state
from seamark.policies import ActingForm, CallablePolicy, ConstantPolicy, LinearPolicy, UniformPolicy, draw
from seamark.rounds import Rounds

LAST = math.inf


def score(h: Any, d: Any, p: Any, q: Any, a: int, r: float, k: Any) -> Any:
    """The score by its formula, one estimator at a time: the NumPy twin of the kernel."""
    z = []
    for limit in k:
        total, direct = 0.0, 0.0
        for b in range(h.size):
            if p[b] == 0:
                continue
            u = (h[b] - d[b]) / p[b]
            qt = 0.0 if limit == 0 else min(q[b], limit / u) if u > 0 else q[b]
            total += (h[b] - d[b]) * qt
            direct = u * (r - qt) if b == a else direct
        z.append(total + direct)
    return np.array(z)


def kernel_score(h: Any, d: Any, p: Any, q: Any, a: int, r: float, k: Any) -> Any:
    z = np.empty(k.size)
    paired_scores(h, d, p, q, a, r, k, z)
    return z


def random_logging(kind: str, rng: np.random.Generator, n: int) -> tuple[Any, Any, Any, float]:
    """h, d, p and M for one random table. Sharp distributions (Dirichlet 0.2), so that weights get large."""
    base_d, base_h = rng.dirichlet(np.full(n, 0.2)) + 1e-12, rng.dirichlet(np.full(n, 0.2))
    base_d /= base_d.sum()
    eps, s = rng.uniform(0.01, 0.5), rng.uniform(0.0, 0.9)
    d = (1 - eps) * base_d + eps / n
    directed = d + eps * s * (np.eye(n)[rng.integers(n)] - 1 / n)
    if kind == "p = d":
        return base_h, base_d, base_d, 1.0
    if kind == "explore_share, same floor":
        return (1 - eps) * base_h + eps / n, d, directed, 1.0
    if kind == "explore_share, no floor":
        return base_h, d, directed, 1 / (1 - s)
    return base_h, base_d, (1 - eps) * base_d + eps * rng.dirichlet(np.ones(n)), 1 / (1 - eps)


@pytest.mark.parametrize("kind", ["p = d", "explore_share, same floor", "explore_share, no floor", "d / p <= M"])
def test_score_is_unbiased_and_bounded_below(kind: str) -> None:
    """2,000 random tables by enumeration over actions (and both rewards, for the bound), reward models wrong at will.

    Catches: capping u instead of q, leaving out the direct term, q not the same in both sums, B = max(M, k).
    """
    rng = np.random.default_rng(len(kind))
    k = np.array([0.0, 0.5, 8.0, 32.0, 1e4])
    bias, slack = 0.0, np.inf
    for _ in range(2_000):
        n = int(rng.integers(2, 7))
        h, d, p, ratio = random_logging(kind, rng, n)
        q, mean = rng.choice([0.0, 1.0, rng.random()], n), rng.random(n)
        expected = sum(p[a] * kernel_score(h, d, p, q, a, mean[a], k) for a in range(n))
        scale = 1 + np.abs(h - d).sum()
        bias = max(bias, float(np.abs(expected - ((h - d) * mean).sum()).max() / scale))
        for a in range(n):
            for r in (0.0, 1.0):
                z = kernel_score(h, d, p, q, a, r, k)
                assert np.allclose(z, score(h, d, p, q, a, r, k), rtol=1e-12, atol=1e-12)
                slack = min(slack, float((z / score_bounds(k, ratio)).min()))

    assert bias < 1e-12
    assert slack >= -1 - 1e-9
    assert slack < -0.9  # the bound is not vacuous


def test_unsupported_actions_are_left_out_of_both_sums() -> None:
    """E z <= the true difference where h > 0 = p: what was never tried earns nothing. Catches leaving one sum alone."""
    h, d = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.4, 0.0])
    mean, q, k = np.array([0.3, 0.9, 1.0]), np.full(3, 0.8), np.array([0.0, 8.0])
    expected = sum(d[a] * kernel_score(h, d, d, q, a, mean[a], k) for a in range(2))

    np.testing.assert_allclose(expected, ((h - d) * mean)[:2].sum())
    assert (expected <= ((h - d) * mean).sum()).all()


# -- the leg -----------------------------------------------------------------------------------------------------


def linear_world(seed: int = 0, n_contexts: int = 60) -> tuple[Any, Any, LinearPolicy, LinearPolicy]:
    """Contexts, mean rewards, a deployed policy and a better one, both epsilon-greedy over four actions."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_contexts, 5))
    truth = rng.normal(size=(4, 5))
    right = (features @ truth.T).argmax(axis=1)
    means = np.where(np.arange(4) == right[:, None], 0.9, 0.1)
    acts = ActingForm.epsilon_greedy(0.2)
    deployed = LinearPolicy(truth + 1.5 * rng.normal(size=truth.shape), acts).frozen()
    return features, means, deployed, LinearPolicy(truth + 0.1, acts).frozen()


def value(policy: Any, features: Any, means: Any) -> float:
    return float((policy.probabilities(features) * means).sum(axis=1).mean())


def started(gate: ChallengerGate, deployed: Any, *candidates: Any) -> ChallengerGate:
    """The gate with all candidates under test from round 0."""
    gate.reign(deployed, 0, 0)
    for candidate in candidates:
        gate._next_freeze = gate.first_freeze
        gate.offer(candidate, gate.first_freeze)
    return gate


def twin(gate: ChallengerGate, rounds: Rounds, deployed: Any, candidate: Any, start: int) -> BettingMixture:
    """Evidence by plain Python, with a running mean as the reward model."""
    k = gate._slots.truncations
    evidence = BettingMixture(score_bounds(k), margin=gate._slots.margin)
    h, d = candidate.probabilities(rounds.contexts()), deployed.probabilities(rounds.contexts())
    seen, total = 0, 0.0
    for t in range(len(rounds)):
        if rounds.first + t >= start and rounds.versions[t] == 0:
            q = np.full(gate.n_actions, (total + 0.5) / (seen + 1))
            z = score(h[t], d[t], d[t], q, int(rounds.actions[t]), float(rounds.rewards[t]), k)
            evidence.update(z[None])
        seen, total = seen + 1, total + float(rounds.rewards[t])
    return evidence


@pytest.mark.parametrize("margin", [0.0, 0.05, -0.1])
@pytest.mark.parametrize("recurring", [True, False])
def test_leg_equals_the_plain_loop(margin: float, recurring: bool) -> None:
    """The compiled leg against `twin`. Catches a mean that has seen its round and a wrong start of a slot."""
    features, means, deployed, better = linear_world()
    gate = started(ChallengerGate(4, margin=margin, first_freeze=150), deployed)
    rounds = replace(play(deployed, features, means, 700, np.random.default_rng(3)), recurring=recurring)
    gate.observe(rounds[:150], deployed)
    gate.offer(better, 150)
    gate.observe(rounds[150:], deployed)

    expected = twin(gate, rounds, deployed, better, 150)
    assert gate.events[-1]["event"] in ("freeze", "deploy")
    assert gate._slots.n(1) == expected.n == 550
    assert gate._slots.log_evidence(1) == pytest.approx(expected.log_evidence, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("sizes", [[1] * 400, [7, 1, 92, 300], [399, 1]])
def test_any_split_of_a_leg_gives_the_same_bits(sizes: list[int]) -> None:
    """Rounds of an earlier version in between. Catches state that lives for one call only."""
    features, means, deployed, better = linear_world()
    rounds = play(deployed, features, means, 400, np.random.default_rng(5))
    rounds = replace(rounds, versions=np.where(np.arange(400) % 7 == 3, -1, 0))
    whole, parts = (started(ChallengerGate(4, margin=0.01), deployed, better) for _ in range(2))
    whole.observe(rounds, deployed)
    at = 0
    for size in sizes:
        parts.observe(rounds[at : at + size], deployed)
        at += size

    for one, other in zip(whole._slots.evidence, parts._slots.evidence):
        np.testing.assert_array_equal(one, other)


def test_tables_batches_and_parts_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached per context, computed per leg, computed per part of a leg: equal to rounding."""
    features, means, deployed, better = linear_world()
    rounds = play(deployed, features, means, 500, np.random.default_rng(6))
    evidence = []
    for recurring, batch in ((True, 10**6), (False, 10**6), (False, 50)):
        gate = started(ChallengerGate(4), deployed, better)
        gate._scorer._batch = batch
        gate.observe(replace(rounds, recurring=recurring), deployed)
        evidence.append(gate._slots.log_evidence(1))

    assert evidence[1] == pytest.approx(evidence[0], abs=1e-12)
    assert evidence[2] == pytest.approx(evidence[0], abs=1e-12)


def test_capital_beyond_floating_point_is_kept() -> None:
    """e^3000 and e^-3000: capitals move into their logarithms. Catches overflow to infinity, which never deploys."""
    d, h = two_actions(0.5), two_actions(0.9)
    gate = started(ChallengerGate(2), d, h)
    n = 9_000
    actions = np.zeros(n, dtype=np.int64)
    rounds = Rounds(ONE_CONTEXT, actions, actions, np.ones(n), np.full(n, 0.5), actions, 0, True)
    decision = gate.observe(rounds, d)

    assert decision is not None
    assert decision.deploys
    expected = twin(gate, rounds, d, h, 0)
    assert expected.log_evidence > 3_000
    assert gate._slots.log_evidence(1) == pytest.approx(expected.log_evidence, rel=1e-10)


# -- what is promised --------------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(("p0", "h0"), [(0.5, 0.9), (0.95, 0.05), (0.99, 0.01), (0.9, 0.99)])
def test_exact_null_fires_at_most_alpha_of_the_time_looked_at_after_every_round(p0: float, h0: float) -> None:
    """1,000 runs x 5,000 looks, alpha = .05, false alarm <= 1e-6; a true rate of .09 is caught with probability .97.

    Caught on purpose: q of one sum not truncated like the other's. A wrong B alone hardly shows here; `slack` above
    is the test for that.
    """
    d, h = np.array([p0, 1 - p0]), np.array([h0, 1 - h0])
    k = truncations((0, 8, 32, LAST), 1 / d.min() - 1)
    bounds = score_bounds(k)
    rng = np.random.default_rng(20200406)
    fired = null_runs(1_000, 5_000, d, h, np.array([0.5, 0.5]), k, bounds, bet_grid(bounds), math.log(20), rng)

    assert_rate_at_most(fired, 1_000, 0.05)


@pytest.mark.statistical
def test_a_run_of_a_learner_without_anything_to_learn_deploys_nothing_worse() -> None:
    """100 runs, many challengers each, all slightly worse; false alarm <= 1e-6. Testing each at delta itself fails
    only rarely here; deploying on the mean (`log_evidence > 0`) fails in most runs."""
    rng, false = np.random.default_rng(7), 0
    means = np.array([[0.5, 0.49]])
    for _ in range(100):
        d = two_actions(0.6)
        gate = ChallengerGate(2, first_freeze=50)
        gate.reign(d, 0, 0)
        for first in range(0, 3_000, 50):
            decision = gate.observe(play(d, ONE_CONTEXT, means, 50, rng, first=first), d)
            if decision and decision.deploys:
                false += 1
                break
            gate.offer(two_actions(rng.uniform(0.0, 0.55)), first + 50)

    assert_rate_at_most(false, 100, 0.05)


@pytest.mark.statistical
def test_a_fixed_better_policy_is_deployed_long_before_the_papers_gate() -> None:
    """Ten pairs, each with the same rounds for both gates; the paper's needs more than five times the rounds.

    Also the other side of the promise: a gate that never fires would pass every null test.
    """
    features, means, deployed, better = linear_world(1)
    assert value(better, features, means) - value(deployed, features, means) > 0.1
    ours, paper = [], []
    for seed in range(10):
        decision = run_pair(ChallengerGate(4), deployed, better, features, means, np.random.default_rng(seed), n=20_000)
        assert decision is not None
        assert decision.verdict == "promote"
        ours.append(decision.at - 500)
        gate = PaperGate(4)
        gate.reign(deployed, 0, 0)
        rng, at = np.random.default_rng(seed), 0
        while at < 20_000:
            gate.observe(play(deployed, features, means, 500, rng, first=at), deployed)
            at += 500
            if gate.offer(better, at).deploys:
                break
        paper.append(at)

    assert np.median(ours) * 5 < np.median(paper), (np.median(ours), np.median(paper))


@pytest.mark.statistical
def test_directed_exploration_deploys_sooner_and_keeps_its_promise() -> None:
    """Same total exploration: under half the rounds to deploy a better policy; an exact null stays at most at delta."""
    features, means, deployed, better = linear_world(1)
    medians = []
    for share in (0.0, 0.5):
        found = [
            run_pair(
                ChallengerGate(4, explore_share=share), deployed, better, features, means, np.random.default_rng(s),
                n=10_000, leg=50,
            )
            for s in range(12)
        ]  # fmt: skip
        assert all(found)
        medians.append(np.median([d.at for d in found if d]) - 500)
    assert medians[1] < medians[0] / 1.5, medians

    flat = np.full_like(means, 0.5)
    fired = sum(
        run_pair(
            ChallengerGate(4, explore_share=0.5, guarantee="deployment", delta=0.5), deployed, better, features, flat,
            np.random.default_rng(100 + s), n=2_000,
        )
        is not None
        for s in range(100)
    )  # fmt: skip
    assert_rate_at_most(fired, 100, 0.5 / 32)


# -- slots and decisions -----------------------------------------------------------------------------------------


def test_it_is_a_gate() -> None:
    gate: Gate = ChallengerGate(2)
    assert gate.name == "challenger"


def test_candidates_are_frozen_at_geometric_times_once_per_leg() -> None:
    gate = ChallengerGate(2, first_freeze=100, growth=1.5, slots=99)
    gate.reign(two_actions(0.5), 0, 0)
    offered = [
        at for at in range(10, 1001, 10) if gate.wants(at) and gate.offer(two_actions(0.3 + at / 1e4), at) is None
    ]
    assert offered == [100, 150, 230, 340, 510, 770]  # at multiples of 10, from 100, 150, 225, 338, 507, 761
    gate.offer(two_actions(0.9), 5_000)

    assert [e["at"] for e in gate.events] == [*offered, 5_000]
    assert not gate.wants(5_000)
    assert [e["alpha"] for e in gate.events[:2]] == [0.05 / 2 / 32] * 2


def test_candidates_equal_to_the_incumbent_or_a_live_slot_are_not_frozen() -> None:
    """They would spend a level on nothing."""
    gate = started(ChallengerGate(2), two_actions(0.5), two_actions(0.5), two_actions(0.7), two_actions(0.7))
    assert [e["challenger"] for e in gate.events] == [1]


def test_the_candidate_with_least_evidence_is_evicted_never_the_former_incumbent() -> None:
    old, d = two_actions(0.99), two_actions(0.5)
    gate = ChallengerGate(2, slots=2)
    gate.reign(old, 0, 0)
    started(gate, d, two_actions(0.9), two_actions(0.1))
    means = np.array([[0.0, 0.6]])  # action 0 is worse: the pinned slot loses most, then .9
    gate.observe(play(d, ONE_CONTEXT, means, 20, np.random.default_rng(0)), d)
    assert gate._slots.log_evidence(0) < gate._slots.log_evidence(1) < 0 < gate._slots.log_evidence(2)
    gate._next_freeze = 500
    gate.offer(two_actions(0.3), 500)

    evicted = [e for e in gate.events if e["event"] == "evict"]
    assert [e["policy"] for e in evicted] == [two_actions(0.9).id]
    assert [slot.policy.id for _, slot in gate._slots.live()] == [
        p.id for p in (old, two_actions(0.3), two_actions(0.1))
    ]
    assert evicted[0]["log_evidence"] < 0
    assert evicted[0]["n"] == 20


def test_promotion_carries_its_evidence_and_starts_a_new_reign() -> None:
    """Levels shrink with the reign, slots are cleared, the former incumbent is tested from then on."""
    d, h = two_actions(0.5), two_actions(0.95)
    gate = ChallengerGate(2)
    decision = run_pair(gate, d, h, ONE_CONTEXT, np.array([[0.9, 0.1]]), np.random.default_rng(0), n=5_000, leg=10)
    assert decision is not None
    assert decision.verdict == "promote"
    assert decision.policy is not None
    assert decision.policy.id == h.id
    numbers = decision.evidence
    assert numbers["log_evidence"] >= numbers["threshold"] == -math.log(0.05 / 2 / 32)
    assert numbers["n"] == decision.at - 500 or numbers["n"] % 10 == 0
    assert numbers["mean_lift"] > 0
    assert decision.reasons == ("evidence-reached-threshold",)
    assert gate.records()["verdict"][-1] == "promote"

    gate.reign(h, decision.at, 1)
    assert [slot.policy.id for _, slot in gate._slots.live()] == [d.id]
    assert gate.events[-1]["alpha"] == pytest.approx(0.05 / 6 / 32)
    assert gate.events[-1]["pinned"]


def test_several_crossings_deploy_the_one_furthest_above_its_threshold() -> None:
    d, good, best = two_actions(0.5), two_actions(0.7), two_actions(0.95)
    gate = started(ChallengerGate(2), d, good, best)
    decision = gate.observe(play(d, ONE_CONTEXT, np.array([[1.0, 0.0]]), 500, np.random.default_rng(0)), d)
    assert all(gate._slots.log_evidence(place) >= slot.threshold for place, slot in gate._slots.live())

    assert decision is not None
    assert decision.policy is not None
    assert decision.policy.id == best.id


def test_min_rounds_holds_a_promotion_back() -> None:
    d, h = two_actions(0.5), two_actions(0.95)
    gate = started(ChallengerGate(2, min_rounds=600), d, h)
    rng, means = np.random.default_rng(0), np.array([[1.0, 0.0]])
    hold = gate.observe(play(d, ONE_CONTEXT, means, 599, rng), d)
    promote = gate.observe(play(d, ONE_CONTEXT, means, 1, rng, first=599), d)

    assert hold is not None
    assert (hold.verdict, hold.reasons) == ("hold", ("fewer-than-min-rounds",))
    assert promote is not None
    assert promote.verdict == "promote"


def test_frozen_challenger_is_unaffected_by_further_training() -> None:
    """A live view of a learner's weights is copied deeply. Catches keeping the candidate itself."""
    features, means, deployed, better = linear_world()
    live = LinearPolicy(better.weights.copy(), better.acts)
    gates = [started(ChallengerGate(4), deployed, c) for c in (better, live)]
    live.weights[:] = np.random.default_rng(0).normal(size=live.weights.shape)
    rounds = play(deployed, features, means, 300, np.random.default_rng(1))
    for gate in gates:
        gate.observe(rounds, deployed)

    assert gates[0]._slots.log_evidence(1) == gates[1]._slots.log_evidence(1) != 0.0


def test_a_candidate_of_a_learner_that_knows_more_is_scored_from_the_decisions_to_come() -> None:
    """Rewards in arrival order may have told it of rounds 40 to 69, decided but not observed yet."""
    d, h = two_actions(0.5), two_actions(0.9)
    gate = ChallengerGate(2, first_freeze=40)
    gate.reign(d, 0, 0)
    rounds = play(d, ONE_CONTEXT, np.array([[0.5, 0.5]]), 100, np.random.default_rng(0))
    gate.observe(rounds[:40], d)
    gate.offer(h, 40, decided=70)
    gate.observe(rounds[40:], d)

    assert gate._slots.n(1) == 30


def test_policy_that_changed_after_its_freeze_is_not_deployed() -> None:
    d, table = two_actions(0.5), np.array([0.95, 0.05])

    class Sly(ConstantPolicy):
        def frozen(self) -> ConstantPolicy:
            return self

    h = Sly(table)
    gate = started(ChallengerGate(2), d, h)
    object.__setattr__(h, "distribution", np.array([0.9, 0.1]))
    decision = gate.observe(play(d, ONE_CONTEXT, np.array([[1.0, 0.0]]), 500, np.random.default_rng(0)), d)

    assert decision is not None
    assert decision.verdict == "blocked"
    assert decision.policy is None
    assert decision.reasons == ("candidate-changed-after-freeze:1",)


# -- records that cannot be right --------------------------------------------------------------------------------


def test_capped_propensities_block_the_gate_until_a_new_reign() -> None:
    """Guard (a): propensities raised to 0.1, as the released code does, make a biased score. No evidence is moved."""
    d, h = ConstantPolicy([0.95, 0.05]), two_actions(0.5)
    gate = started(ChallengerGate(2), d, h)
    rounds = play(d, ONE_CONTEXT, np.array([[0.5, 0.5]]), 200, np.random.default_rng(0))
    capped = replace(rounds, propensities=np.maximum(rounds.propensities, 0.1))
    row = int(np.argmax(capped.propensities != rounds.propensities))
    decision = gate.observe(capped, d)

    assert decision is not None
    assert decision.verdict == "blocked"
    assert decision.reasons == (f"propensity-mismatch:round {row}",)
    assert gate._slots.n(1) == 0
    assert not gate.wants(10_000)
    assert gate.why()["blocked"] == decision.reasons[0]
    again = gate.observe(replace(rounds, first=200), d)
    assert again is not None
    assert again.verdict == "blocked"
    gate.reign(d, 400, 1)
    assert gate.wants(10_000)


def test_zero_probability_of_an_action_of_the_deployed_policy_raises() -> None:
    d = two_actions(0.5)
    gate = started(ChallengerGate(2), d, two_actions(0.9))
    rounds = replace(
        play(two_actions(1.0), ONE_CONTEXT, np.array([[0.5, 0.5]]), 5, np.random.default_rng(0), keep=True)
    )
    with pytest.raises(ValueError, match="0 for an action that the deployed policy takes"):
        gate.observe(rounds, d)
    blocked = gate.observe(play(d, ONE_CONTEXT, np.array([[0.5, 0.5]]), 5, np.random.default_rng(0), first=5), d)
    assert blocked is not None
    assert blocked.verdict == "blocked"


def test_score_below_its_bound_raises_and_blocks() -> None:
    """A deployed policy that claims a floor it does not have makes weights of d beyond M."""
    eps = 0.5

    class Claims(ConstantPolicy):
        min_probability = eps / 2  # type: ignore[assignment]

        def frozen(self) -> Any:
            return self

    h, d = Claims([0.01, 0.99]), ConstantPolicy([1 - eps / 2, eps / 2])
    gate = started(ChallengerGate(2, explore_share=0.9), d, h)
    p = np.array([[1 - eps / 2 - 0.9 * eps / 2, eps / 2 + 0.9 * eps / 2]])
    one = np.zeros(1, dtype=np.int64)
    rounds = Rounds(ONE_CONTEXT, one, one, np.ones(1), p[:, 0], one, 0, True, p)
    with pytest.raises(ValueError, match="below its bound"):
        gate.observe(rounds, d)
    assert gate.why()["blocked"] == "error:ScoreBelowBound"


@pytest.mark.parametrize("reward", [math.nan, -0.1, 1.1])
def test_reward_that_is_no_number_in_the_unit_interval_raises_and_changes_nothing(reward: float) -> None:
    """Trap 8: the scale is known beforehand. A NaN compared with a bound is merely false."""
    d = two_actions(0.5)
    gate = started(ChallengerGate(2), d, two_actions(0.9))
    rounds = play(d, ONE_CONTEXT, np.array([[0.5, 0.5]]), 3, np.random.default_rng(0))
    with pytest.raises(ValueError, match="rewards: row 1"):
        gate.observe(replace(rounds, rewards=np.array([1.0, reward, 0.0])), d)

    gate.observe(rounds, d)
    assert gate._slots.n(1) == 3


class Broken(ConstantPolicy):
    """Probabilities of NaN, as a diverged model gives."""

    def probabilities(self, contexts: Any) -> Any:
        return np.full((len(contexts), 2), np.nan)

    def frozen(self) -> Any:
        return self


def test_a_candidate_that_is_not_a_number_is_blocked_and_others_go_on() -> None:
    d = two_actions(0.5)
    gate = started(ChallengerGate(2), d, Broken([0.2, 0.8]), two_actions(0.9))
    rounds = play(d, ONE_CONTEXT, np.array([[0.5, 0.5]]), 50, np.random.default_rng(0))
    decision = gate.observe(rounds, d)

    assert decision is not None
    assert (decision.verdict, decision.policy) == ("blocked", None)
    assert decision.reasons == ("candidate-not-a-distribution:1",)
    assert [slot.challenger for _, slot in gate._slots.live()] == [2]
    assert gate._slots.n(2) == 50


def test_a_deployed_policy_that_is_not_a_number_blocks() -> None:
    d = Broken([0.5, 0.5])
    gate = started(ChallengerGate(2), d, two_actions(0.9))
    decision = gate.observe(
        play(two_actions(0.5), ONE_CONTEXT, np.array([[1.0, 0.0]]), 500, np.random.default_rng(0)), d
    )

    assert decision is not None
    assert (decision.verdict, decision.reasons) == ("blocked", ("deployed-not-a-distribution",))


def test_evidence_that_is_not_finite_never_deploys() -> None:
    """NaN and infinity in the state itself, however they got there."""
    for poison in (math.nan, math.inf):
        d = two_actions(0.5)
        gate = started(ChallengerGate(2), d, two_actions(0.9))
        gate._slots.evidence.log_capital[1, 0, 0] = poison
        decision = gate.observe(play(d, ONE_CONTEXT, np.array([[1.0, 0.0]]), 900, np.random.default_rng(0)), d)
        assert decision is not None
        assert (decision.verdict, decision.policy) == ("blocked", None)


def test_rounds_twice_missing_or_of_another_policy_raise() -> None:
    """Trap 1: a replay after a crash multiplies evidence; a dropped round without a reward selects."""
    d = two_actions(0.5)
    gate = started(ChallengerGate(2), d, two_actions(0.9))
    rounds = play(d, ONE_CONTEXT, np.array([[0.5, 0.5]]), 20, np.random.default_rng(0))
    gate.observe(rounds[:10], d)
    with pytest.raises(ValueError, match="observed already"):
        gate.observe(rounds[5:], d)
    with pytest.raises(ValueError, match="missing before it"):
        gate.observe(rounds[11:], d)
    with pytest.raises(ValueError, match="not the policy of this reign"):
        gate.observe(rounds[10:], two_actions(0.6))

    gate.observe(rounds[10:], d)
    assert gate._slots.n(1) == 20


def test_kept_probabilities_may_break_a_tie_differently_now_and_then() -> None:
    """What acted is what is compared; more than 1 % of disagreement is a wrong record."""
    d = CallablePolicy(lambda x: np.where(x > 0, [0.9, 0.1], [0.1, 0.9]), 2, "sign", min_probability=0.1)
    rng, n = np.random.default_rng(0), 2_000
    x = rng.normal(size=(n, 1))
    p = d.probabilities(x)
    rows = np.arange(n)
    for share, verdict in ((0.005, "hold"), (0.05, "blocked")):
        flipped = np.where(rng.random(n)[:, None] < share, p[:, ::-1], p)
        a = (rng.random(n) > flipped[:, 0]).astype(np.int64)
        gate = started(ChallengerGate(2), d, UniformPolicy(2))
        rounds = Rounds(x, rows, a, np.full(n, 0.5), flipped[rows, a], np.zeros(n, dtype=np.int64), 0, False, flipped)
        decision = gate.observe(rounds, d)
        assert decision is not None
        assert decision.verdict == verdict


# -- memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"reward_model": "ridge"}, {"explore_share": 0.5}, {"guarantee": "fdr"}])
def test_resuming_mid_run_gives_the_same_bits(settings: dict[str, Any], tmp_path: Path) -> None:
    """Two deployed policies, challengers in flight, freezes and a re-freeze after the restart."""
    features, means, deployed, better = linear_world()
    middle = LinearPolicy((deployed.weights + better.weights) / 2, deployed.acts).frozen()
    acts = deployed.acts

    def run(gate: ChallengerGate, policy: Any, version: int, legs: range) -> Any:
        for leg in legs:
            rng = np.random.default_rng(leg)
            acting = gate.acting(policy)
            rounds = play(acting, features, means, 100, rng, first=100 * leg, version=version, keep=bool(settings))
            decision = gate.observe(rounds, policy)
            if decision and decision.deploys:
                policy, version = decision.policy, version + 1
                gate.reign(policy, decision.at, version)
            elif gate.wants(100 * leg + 100):
                blend = rng.uniform(0, 1)
                weights = blend * better.weights + (1 - blend) * deployed.weights
                gate.offer(LinearPolicy(weights, acts), 100 * leg + 100)
        return policy, version

    straight = ChallengerGate(4, first_freeze=100, **settings)
    straight.reign(deployed, 0, 0)
    straight.reign(middle, 0, 0)
    run(straight, *run(straight, middle, 0, range(15)), range(15, 40))

    first = ChallengerGate(4, first_freeze=100, **settings)
    first.reign(deployed, 0, 0)
    first.reign(middle, 0, 0)
    policy, version = run(first, middle, 0, range(15))
    save_state(tmp_path / "gate", first.state())
    second = ChallengerGate(4, first_freeze=100, **settings)
    second.restore(load_state(tmp_path / "gate"))
    run(second, policy, version, range(15, 40))

    np.testing.assert_equal(second.events, straight.events)
    np.testing.assert_equal(second.records(), straight.records())
    np.testing.assert_equal(second.state(), straight.state())
    assert {e["event"] for e in straight.events} == {"freeze", "evict", "deploy"}


def test_a_restored_gate_still_knows_what_it_observed_and_that_it_is_blocked(tmp_path: Path) -> None:
    d = two_actions(0.5)
    gate = started(ChallengerGate(2), d, two_actions(0.9))
    rounds = play(d, ONE_CONTEXT, np.array([[0.5, 0.5]]), 20, np.random.default_rng(0))
    gate.observe(rounds[:10], d)
    gate.observe(replace(rounds[10:], propensities=np.full(10, 0.6)), d)
    save_state(tmp_path / "gate", gate.state())
    again = ChallengerGate(2)
    again.reign(d, 0, 0)
    again.restore(load_state(tmp_path / "gate"))

    assert again.why()["blocked"] == "propensity-mismatch:round 10"
    with pytest.raises(ValueError, match="observed already"):
        again.observe(rounds, d)


def test_restoring_into_other_settings_is_refused() -> None:
    gate = started(ChallengerGate(2), two_actions(0.5), two_actions(0.9))
    with pytest.raises(ValueError, match=r"delta: 0\.1, but the saved gate has 0\.05"):
        ChallengerGate(2, delta=0.1).restore(gate.state())


# -- why not yet -------------------------------------------------------------------------------------------------


def test_why_counts_what_is_missing() -> None:
    """Contexts where both agree, actions that are never tried, rounds still needed."""
    features = np.array([[1.0], [0.0]])
    d = CallablePolicy(lambda x: np.where(x > 0, [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]), 3, "d")
    h = CallablePolicy(lambda x: np.where(x > 0, [0.2, 0.5, 0.3], [1.0, 0.0, 0.0]), 3, "h")
    gate = started(ChallengerGate(3), d, h)
    means = np.array([[0.2, 0.9, 1.0], [0.5, 0.5, 0.5]])
    rounds = play(d, features, means, 400, np.random.default_rng(0))
    gate.observe(rounds, d)
    (answer,) = gate.why()["challengers"]

    differing = float((rounds.rows == 0).mean())
    assert answer["n"] == 400
    assert answer["share_differing"] == differing
    assert answer["unsupported"]["actions"] == [2]
    assert answer["unsupported"]["share_of_rounds"] == differing
    assert answer["unsupported"]["probability"] == pytest.approx(0.3 * differing)
    assert answer["unsupported"]["floor_for_support"] == pytest.approx(3 * 0.3 / 129)
    assert answer["rounds_needed"] is None  # what it would do is never tried: no evidence for it
    assert -1 <= answer["lift_lower"] <= answer["mean_lift"]


def test_why_tells_the_rounds_needed_at_the_current_rate() -> None:
    d = two_actions(0.5)
    gate = started(ChallengerGate(2), d, two_actions(0.7))
    gate.observe(play(d, ONE_CONTEXT, np.array([[0.8, 0.2]]), 60, np.random.default_rng(0)), d)
    (answer,) = gate.why()["challengers"]

    missing, rate = answer["threshold"] - answer["log_evidence"], answer["log_evidence"] / 60
    assert missing > 0
    assert answer["rounds_needed"] == math.ceil(missing / rate)
    assert answer["unsupported"] is None


# -- settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta": 1.0}, "delta"), ({"margin": 2.0}, "margin"), ({"slots": 0}, "slots"), ({"growth": 1.0}, "growth"),
        ({"first_freeze": 0}, "first_freeze"), ({"estimators": ()}, "estimators"), ({"bets": 0}, "bets"),
        ({"explore_share": 1.0}, "explore_share"), ({"reward_model": "mode"}, "reward_model"),
        ({"guarantee": "hope"}, "guarantee"),
    ],
)  # fmt: skip
def test_settings_without_meaning_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChallengerGate(2, **settings)


def test_directed_exploration_without_a_floor_is_refused() -> None:
    with pytest.raises(GateRefusal, match="no floor"):
        ChallengerGate(2, explore_share=0.5).reign(two_actions(1.0), 0, 0)


@pytest.mark.parametrize("model", [None, "ridge", lambda x: np.full((len(x), 4), 0.3)])
def test_reward_models_change_the_power_and_not_the_direction(model: Any) -> None:
    features, means, deployed, better = linear_world(1)
    gate = ChallengerGate(4, reward_model=model)
    decision = run_pair(gate, deployed, better, features, means, np.random.default_rng(0), n=20_000)
    assert decision is not None
    assert decision.verdict == "promote"
    assert gate._slots.truncations.size == (1 if model is None else 3)


@pytest.mark.parametrize("rollback", [False, True])
def test_a_candidate_is_never_scored_by_the_table_of_another_with_its_name(rollback: bool) -> None:
    """Two functions of one name, the second a terrible one offered in a later reign. Caught: tables kept by id, which
    deployed the second on what the first would have done, in every run."""
    x, base = np.array([[1.0], [-1.0]]), UniformPolicy(2)

    def named(right: float) -> CallablePolicy:
        def function(contexts: Any) -> Any:
            p = np.where(contexts[:, 0] > 0, right, 1 - right)
            return np.column_stack([1 - p, p])

        return CallablePolicy(function, 2, "model")

    rng, gate, t = np.random.default_rng(0), ChallengerGate(2, first_freeze=200, rollback=rollback), 0
    for version, right in enumerate((0.9, 0.05)):
        gate.reign(base, t, version)
        for i in range(6 if version else 2):
            rows = rng.integers(0, 2, 200)
            actions, p = draw(base.probabilities(x)[rows], rng.random(200))
            rewards = (actions == (x[rows, 0] > 0)).astype(float)
            decision = gate.observe(Rounds(x, rows, actions, rewards, p, np.full(200, version), t, True), base)
            t += 200
            assert version == 0 or decision is None or not decision.deploys
            if i == 0:
                gate.offer(named(right), t)
