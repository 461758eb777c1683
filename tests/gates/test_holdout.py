"""The holdout gate: rounds that judge never teach, and levels are spent over checks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.gates.challenger_kit import ONE_CONTEXT, assert_rate_at_most, play, two_actions
from tests.support import drawn_rounds, random_linear

from seamark.explorer import Explorer
from seamark.gates import HoldoutGate
from seamark.policies import ActingForm, ConstantPolicy, LinearPolicy
from seamark.rounds import Rounds

MEANS = np.array([[0.3, 0.7]])


class _Spy:
    """A learner that remembers what it was taught."""

    def __init__(self, policy: Any) -> None:
        self.policy, self.taught = policy, []

    def update(self, rounds: Rounds) -> None:
        self.taught.append(rounds)

    def candidate(self) -> Any:
        return self.policy

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


def _full_difference(gate: HoldoutGate, rounds: Rounds, new: Any, deployed: Any, centre: float) -> Any:
    judging = gate.set_aside(rounds)
    contexts, here = rounds.contexts(), np.arange(len(rounds))
    u = (new.probabilities(contexts) - deployed.probabilities(contexts))[here, rounds.actions] / rounds.propensities
    return (u * (rounds.rewards - centre))[judging]


@pytest.mark.parametrize("recurring", [True, False])
def test_evidence_is_that_of_the_set_aside_rounds_scored_one_by_one(recurring: bool) -> None:
    """Catches: tables that hold training rounds; the constant control variate left out of the second moment."""
    rng = np.random.default_rng(1)
    pool = rng.normal(size=(7, 3))
    deployed, new = random_linear(rng, 3, 3), random_linear(rng, 3, 3)
    gate = HoldoutGate(3, centres=(0.0, 0.25), share=0.4)
    gate.reign(deployed, 0, 0)
    rounds = drawn_rounds(rng, deployed, pool, 500, recurring=recurring)
    for part in (rounds[:123], rounds[123:124], rounds[124:]):
        gate.observe(part, deployed)
    s1, s2 = gate._moments(new)

    for i, centre in enumerate((0.0, 0.25)):
        z = _full_difference(gate, rounds, new, deployed, centre)
        np.testing.assert_allclose([s1[i], s2[i]], [z.sum(), (z * z).sum()], rtol=1e-10)
    assert gate.lift(new).n == gate.set_aside(rounds).sum()


def test_tables_per_centre_equal_the_general_form_with_n1_n2_and_c2() -> None:
    """sum u (r - c) = sum (h - d)(W1 - c N1), and the same for squares with C2."""
    rng = np.random.default_rng(2)
    deployed, new, c = two_actions(0.8), two_actions(0.3), 0.25
    gate = HoldoutGate(2, centres=(0.0, c))
    gate.reign(deployed, 0, 0)
    rounds = play(deployed, ONE_CONTEXT, MEANS, 300, rng)
    gate.observe(rounds, deployed)
    judging = gate.set_aside(rounds)
    a, r, p = rounds.actions[judging], rounds.rewards[judging], rounds.propensities[judging]
    difference = new.distribution - deployed.distribution
    first = second = 0.0
    for b in range(2):
        r_b, p_b = r[a == b], p[a == b]
        first += difference[b] * ((r_b / p_b).sum() - c * (1 / p_b).sum())
        squares = (r_b / p_b) ** 2
        second += difference[b] ** 2 * (squares.sum() - 2 * c * (r_b / p_b**2).sum() + c * c * (1 / p_b**2).sum())
    s1, s2 = gate._moments(new)

    np.testing.assert_allclose([s1[1], s2[1]], [first, second], rtol=1e-12)


def test_no_score_is_below_its_bound_in_the_hardest_case() -> None:
    """Trap 4: z = u (r - c) reaches -c u_max, not -1. Catches: B = 1 for every centre."""
    floor = 0.05
    gate = HoldoutGate(2, centres=(0.0, 0.5))
    gate.reign(two_actions(1 - floor), 0, 0)
    u_max = (1 - floor) / floor

    np.testing.assert_allclose(gate._bounds(), [1.0, max(0.5, 0.5 * u_max)])


def test_centres_above_zero_are_left_out_where_no_floor_bounds_the_weights() -> None:
    gate = HoldoutGate(2, centres=(0.0, 0.5))
    gate.reign(LinearPolicy(np.zeros((2, 1)), ActingForm.softmax(1.0)), 0, 0)

    assert gate._bounds().tolist() == [1.0]


def test_the_learner_never_sees_a_round_that_judges() -> None:
    """Catches: an explorer that feeds the learner whole legs."""
    rng = np.random.default_rng(3)
    deployed = two_actions(0.9)
    gate = HoldoutGate(2, share=0.3, seed=4)
    spy = _Spy(two_actions(0.8))
    explorer = Explorer(deployed, gate=gate, learner=spy, schedule="every:100")
    rounds = play(deployed, np.arange(1000.0)[:, None], np.full((1000, 2), 0.5), 1000, rng)
    judging = gate.set_aside(rounds)
    for start in range(0, 1000, 50):
        explorer.absorb(rounds[start : start + 50])
    taught = np.concatenate([part.rows for part in spy.taught])

    np.testing.assert_array_equal(taught, rounds.rows[~judging])
    assert 0.2 < judging.mean() < 0.4


def test_which_rounds_judge_depends_on_seed_and_number_alone() -> None:
    rng = np.random.default_rng(5)
    rounds = play(two_actions(0.5), ONE_CONTEXT, MEANS, 1000, rng)
    gate = HoldoutGate(2, share=0.5, seed=1)
    whole = gate.set_aside(rounds)
    parts = np.concatenate([gate.set_aside(rounds[i : i + 7]) for i in range(0, 1000, 7)])

    np.testing.assert_array_equal(whole, parts)
    assert (whole != HoldoutGate(2, share=0.5, seed=2).set_aside(rounds)).mean() > 0.4


def test_a_better_candidate_is_deployed_and_the_set_aside_rounds_are_discarded() -> None:
    rng = np.random.default_rng(6)
    deployed, better = two_actions(0.9), two_actions(0.1)
    gate = HoldoutGate(2)
    gate.reign(deployed, 0, 0)
    gate.observe(play(deployed, ONE_CONTEXT, MEANS, 2000, rng), deployed)
    decision = gate.offer(better, 2000)

    assert decision is not None
    assert decision.verdict == "promote"
    assert decision.evidence["alpha"] == pytest.approx(0.05 / 2 / 32)
    gate.reign(better, 2000, 1)
    assert gate.lift(deployed).n == 0


def test_rounds_of_an_earlier_version_do_not_judge() -> None:
    """Trap 7. Catches: (d - h) / p without its bound."""
    rng = np.random.default_rng(7)
    old, now = two_actions(0.99), two_actions(0.5)
    gate = HoldoutGate(2)
    gate.reign(now, 100, 1)
    gate.observe(play(old, ONE_CONTEXT, MEANS, 200, rng, version=0), now)

    assert gate.lift(old).n == 0


def test_checks_come_at_geometric_times_and_each_costs_its_share() -> None:
    rng = np.random.default_rng(8)
    deployed = two_actions(0.5)
    gate = HoldoutGate(2, first_check=100, growth=2.0)
    gate.reign(deployed, 0, 0)
    rounds = play(deployed, ONE_CONTEXT, np.full((1, 2), 0.5), 1000, rng)
    checked = []
    for t in range(0, 1000, 50):
        gate.observe(rounds[t : t + 50], deployed)
        if gate.offer(two_actions(0.4), t + 50) is not None:
            checked.append(t + 50)

    assert checked == [100, 200, 400, 800]
    assert gate.records()["threshold"] == pytest.approx([math.log(2 * 32 / 0.05)] * 4)


def test_nan_never_deploys() -> None:
    rng = np.random.default_rng(9)
    deployed = LinearPolicy(np.zeros((2, 1)), ActingForm.softmax(1.0, floor=0.1))
    gate = HoldoutGate(2)
    gate.reign(deployed, 0, 0)
    pool = np.ones((3, 1))
    gate.observe(drawn_rounds(rng, deployed, pool, 1000), deployed)
    decision = gate.offer(LinearPolicy(np.full((2, 1), np.nan), ActingForm.softmax(1.0, floor=0.1)), 1000)

    assert decision is not None
    assert not decision.deploys
    assert decision.reasons == ("candidate-not-finite",)


def test_a_restored_gate_decides_alike() -> None:
    rng = np.random.default_rng(10)
    deployed, better = two_actions(0.9), two_actions(0.4)
    rounds = play(deployed, ONE_CONTEXT, MEANS, 3000, rng)
    gates = [HoldoutGate(2, seed=3), HoldoutGate(2, seed=3)]
    gates[0].reign(deployed, 0, 0)
    gates[0].observe(rounds[:700], deployed)
    gates[1].reign(deployed, 0, 0)
    gates[1].restore(gates[0].state())
    decisions = []
    for gate in gates:
        gate.observe(rounds[700:], deployed)
        decisions.append(gate.offer(better, 3000))

    assert decisions[0] is not None
    assert decisions[1] is not None
    assert decisions[0].evidence == decisions[1].evidence
    with pytest.raises(ValueError, match="seed"):
        HoldoutGate(2, seed=4).restore(gates[0].state())


@pytest.mark.parametrize("options", [{"share": 0.0}, {"growth": 1.0}, {"centres": (0.5,)}, {"margin": 1.0}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        HoldoutGate(2, **options)


@pytest.mark.statistical
def test_a_memorising_learner_on_noise_deploys_at_most_delta_of_the_time() -> None:
    """Rewards are coin tosses; every candidate plays what was rewarded in its training rounds. 200 whole runs of 12
    checks. False alarm 1e-6; a learner that sees the set-aside rounds too is deployed in nearly all runs."""
    rng = np.random.default_rng(11)
    n, false = 300, 0
    pool, means = np.arange(float(n))[:, None], np.full((n, 2), 0.5)
    deployed = two_actions(0.5)
    for run in range(200):
        gate = HoldoutGate(2, first_check=40, growth=1.3, seed=run)
        gate.reign(deployed, 0, 0)
        score = np.zeros((n, 2))
        for t in range(0, 800, 20):
            rounds = play(deployed, pool, means, 20, rng, first=t)
            gate.observe(rounds, deployed)
            mine = gate.training_part(rounds)
            np.add.at(score, (mine.rows, mine.actions), mine.rewards - 0.5)
            if gate.wants(t + 20):
                decision = gate.offer(_Memory(score.copy()), t + 20)
                if decision is not None and decision.deploys:
                    false += 1
                    break

    assert_rate_at_most(false, 200, 0.05)


class _Memory:
    """Plays in each numbered context what scored best there."""

    n_actions, min_probability = 2, 0.05

    def __init__(self, score: Any) -> None:
        self.score = score

    @property
    def id(self) -> str:
        return str(hash(self.score.tobytes()))

    def probabilities(self, contexts: Any) -> Any:
        return ActingForm.epsilon_greedy(0.1).probabilities(self.score[np.asarray(contexts)[:, 0].astype(int)])

    def frozen(self) -> _Memory:
        return self


@pytest.mark.statistical
def test_the_lower_limit_of_the_lift_holds_at_all_times_together() -> None:
    """400 runs, looked at 20 times each. False alarm 1e-6; a limit without the spread of the weights misses often."""
    rng = np.random.default_rng(12)
    deployed, other = two_actions(0.9), ConstantPolicy([0.7, 0.3])
    truth, misses = 0.2 * 0.4, 0
    for run in range(400):
        gate = HoldoutGate(2, seed=run)
        gate.reign(deployed, 0, 0)
        missed = False
        for t in range(0, 600, 30):
            gate.observe(play(deployed, ONE_CONTEXT, MEANS, 30, rng, first=t), deployed)
            missed = missed or gate.lift(other).lower > truth
        misses += missed

    assert_rate_at_most(misses, 400, 0.05)


def test_rounds_twice_missing_or_with_wrong_propensities_raise_and_change_nothing() -> None:
    """A leg counted ten times fired in 44 of 400 exact nulls; propensities raised to a cap promoted a worse policy."""
    d, rng = two_actions(0.5), np.random.default_rng(0)
    gate = HoldoutGate(2)
    gate.reign(d, 0, 0)
    rounds = play(d, ONE_CONTEXT, MEANS, 60, rng)
    gate.observe(rounds[:20], d)
    n = gate._n
    with pytest.raises(ValueError, match="observed already"):
        gate.observe(rounds[:20], d)
    with pytest.raises(ValueError, match="missing before it"):
        gate.observe(rounds[30:], d)
    with pytest.raises(ValueError, match=r"propensities: 0\.6 is recorded where the deployed policy has 0\.5"):
        gate.observe(replace(rounds[20:40], propensities=np.full(20, 0.6)), d)
    assert gate._n == n
    gate.observe(rounds[20:], d)
    assert gate._n > n


def test_reigns_that_the_gate_did_not_decide_earn_no_level() -> None:
    """e-LOND pays for the gate's own deployments only. Caught: every change of the deployed policy counted."""
    gate = HoldoutGate(2, guarantee="fdr", first_check=10)
    for version in range(10):
        deployed = two_actions(0.5 if version % 2 else 0.4)
        gate.reign(deployed, 0, version)
    gate.observe(play(deployed, ONE_CONTEXT, MEANS, 100, np.random.default_rng(0), version=9), deployed)
    decision = gate.offer(two_actions(0.9), 100)

    assert decision is not None
    assert decision.evidence["alpha"] == pytest.approx(0.05 / 32)


def test_a_restored_gate_can_be_asked_after_rounds_of_another_version_only() -> None:
    d = two_actions(0.5)
    first, second = (HoldoutGate(2, first_check=10) for _ in range(2))
    for gate in (first, second):
        gate.reign(d, 0, 1)
    rounds = play(d, ONE_CONTEXT, MEANS, 100, np.random.default_rng(0), version=1)
    first.observe(rounds[:80], d)
    second.restore(first.state())
    stale = replace(rounds[80:], versions=np.zeros(20, dtype=np.int64))
    decisions = []
    for gate in (first, second):
        gate.observe(stale, d)
        decisions.append(gate.offer(two_actions(0.9), 100))

    assert decisions[0] is not None
    assert decisions[1] is not None
    assert decisions[0].evidence == decisions[1].evidence
