"""The propensity audit: right records pass, wrong ones block the gate, and the audit spends a level of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.gates.challenger_kit import ONE_CONTEXT, assert_rate_at_most, play, two_actions
from tests.support import random_linear

from seamark.estimation.audit import Audit, PropensityAudit, WeightTest, audit_rounds
from seamark.gates import AuditedGate, ChallengerGate
from seamark.policies import ActingForm, ConstantPolicy, LinearPolicy, UniformPolicy, draw
from seamark.rounds import Rounds

HALF = np.full((1, 2), 0.5)


def _kinds(audit: Audit) -> set[str]:
    return {f.kind for f in audit.findings}


def _logged(rng: Any, acted: Any, recorded: Any, n: int, *, n_actions: int = 2) -> Rounds:
    """Actions drawn from one distribution, recorded with the probabilities of another."""
    p, q = (np.tile(np.asarray(v, dtype=float), (n, 1)) for v in (acted, recorded))
    actions = draw(p, rng.random(n)).actions
    here = np.arange(n)
    rewards = rng.integers(0, 2, n).astype(float)
    return Rounds.of(np.zeros((n, 1)), actions, rewards, q[here, actions], n_actions=n_actions)


def test_right_records_pass() -> None:
    rng = np.random.default_rng(1)
    deployed, pool = random_linear(rng, 3, 2), rng.normal(size=(5, 2))
    rounds = play(deployed, pool, np.full((5, 3), 0.5), 3000, rng)
    audit = audit_rounds(rounds, n_actions=3, deployed=deployed, candidate=random_linear(rng, 3, 2))

    assert audit.verdict == "ok"
    assert audit.reasons == ()
    assert audit.numbers["mismatches"] == 0


def test_a_propensity_that_is_not_the_policys_blocks() -> None:
    """Catches clipping before logging, whatever it does to the estimates."""
    rng = np.random.default_rng(2)
    deployed = two_actions(0.95)
    rounds = _logged(rng, [0.95, 0.05], [0.95, 0.1], 200)
    audit = audit_rounds(rounds, n_actions=2, deployed=deployed)

    assert audit.verdict == "blocked"
    assert "propensity-mismatch" in _kinds(audit)
    assert any(reason.startswith("propensity-mismatch:") for reason in audit.reasons)


def test_propensities_off_by_rounding_only_are_let_pass() -> None:
    rng = np.random.default_rng(3)
    deployed = two_actions(0.9)
    rounds = _logged(rng, [0.9, 0.1], [0.9 * (1 + 1e-9), 0.1], 200)

    assert audit_rounds(rounds, n_actions=2, deployed=deployed).verdict == "ok"


def test_actions_drawn_from_something_else_than_recorded_are_found_without_a_policy() -> None:
    rng = np.random.default_rng(4)
    audit = audit_rounds(_logged(rng, [0.5, 0.5], [0.9, 0.1], 500), n_actions=2)

    assert audit.verdict == "blocked"
    assert "weights-above-one" in _kinds(audit)


def test_a_constant_propensity_is_pointed_out_and_refuted_where_actions_are_not_uniform() -> None:
    rng = np.random.default_rng(5)
    fair = audit_rounds(_logged(rng, [0.5, 0.5], [0.5, 0.5], 1000), n_actions=2)
    unfair = audit_rounds(_logged(rng, [0.9, 0.1], [0.5, 0.5], 1000), n_actions=2)
    policy = audit_rounds(_logged(rng, [0.5, 0.5], [0.5, 0.5], 100), n_actions=2, deployed=two_actions(0.9))

    assert (fair.verdict, _kinds(fair)) == ("warning", {"propensity-constant"})
    assert unfair.verdict == "blocked"
    assert "propensity-mismatch" in _kinds(policy)


def test_propensities_raised_to_a_cap_are_suspected() -> None:
    rng = np.random.default_rng(6)
    p = np.maximum(rng.uniform(0.02, 1.0, 500), 0.1)
    rounds = Rounds.of(np.zeros((500, 1)), rng.integers(0, 2, 500), np.zeros(500), p, n_actions=2)

    assert "propensity-clipped" in _kinds(audit_rounds(rounds, n_actions=2))


def test_clipping_reports_whom_it_would_concern() -> None:
    rng = np.random.default_rng(7)
    audit = audit_rounds(_logged(rng, [0.95, 0.05], [0.95, 0.05], 2000), n_actions=2, cap=0.1)

    assert audit.numbers["share_clipped"] == pytest.approx(0.05, abs=0.03)
    assert "clipping" in _kinds(audit)


def test_actions_that_were_never_logged_are_named() -> None:
    rng = np.random.default_rng(8)
    rounds = _logged(rng, [0.5, 0.5, 0.0], [0.5, 0.5, 0.0], 200, n_actions=3)
    audit = audit_rounds(rounds, n_actions=3, candidate=UniformPolicy(3))

    assert "actions-never-logged" in _kinds(audit)
    assert audit.numbers["share_on_actions_never_logged"] == pytest.approx(1 / 3)
    assert audit.verdict == "warning"


def test_few_effective_rounds_are_a_warning() -> None:
    """Two rounds in a thousand carry all the weight."""
    p = np.full(1000, 0.999)
    p[:2] = 1e-4
    actions = np.ones(1000, dtype=int)
    actions[:2] = 0
    rounds = Rounds.of(np.zeros((1000, 1)), actions, np.zeros(1000), p, n_actions=2)
    audit = PropensityAudit(2, delta=1e-3)
    audit.watch(ConstantPolicy([1.0, 0.0]))
    audit.observe(rounds)

    assert "few-effective-rounds" in _kinds(audit.result())
    assert next(iter(audit.result().numbers["policies"].values()))["effective_share"] == pytest.approx(2 / 1000)


def test_propensity_overfitting_is_an_ips_mean_that_no_policy_can_have() -> None:
    """A candidate that repeats every action of its log earns the mean of r / p there, far above 1."""
    rng = np.random.default_rng(9)
    n = 2000
    pool = np.arange(float(n))[:, None]
    actions = draw(np.tile([0.7, 0.1, 0.1, 0.1], (n, 1)), rng.random(n)).actions
    p = np.where(actions == 0, 0.7, 0.1)
    rewards = rng.integers(0, 2, n).astype(float)
    rounds = Rounds.of(pool, actions, rewards, p, n_actions=4)

    class Echo:
        n_actions, min_probability, id = 4, 0.0, "echo"

        def probabilities(self, contexts: Any) -> Any:
            return np.eye(4)[actions[contexts[:, 0].astype(int)]]

        def frozen(self) -> Any:
            return self

    audit = audit_rounds(rounds, n_actions=4, candidate=Echo(), is_trained_on=True)

    assert "propensity-overfitting" in _kinds(audit)
    assert audit.numbers["ips_mean_on_training_log"] == pytest.approx(float((rewards / p).mean()))
    assert "propensity-overfitting" not in _kinds(
        audit_rounds(rounds, n_actions=4, candidate=UniformPolicy(4), is_trained_on=True)
    )


def test_weights_that_are_too_low_prove_something_only_where_a_floor_bounds_them() -> None:
    low = np.full((5000, 1), 0.8)
    bounded, unbounded = WeightTest(alpha=0.01, floor=0.1), WeightTest(alpha=0.01, floor=0.0)
    for test in (bounded, unbounded):
        test.add(low)

    assert bounded.too_low
    assert unbounded.too_low
    assert bounded.is_bounded
    assert not unbounded.is_bounded


def test_a_weight_that_is_not_a_number_blocks() -> None:
    rng = np.random.default_rng(10)
    audit = PropensityAudit(2)
    audit.watch(LinearPolicy(np.full((2, 1), np.nan), ActingForm.softmax(1.0)))
    audit.observe(_logged(rng, [0.5, 0.5], [0.5, 0.5], 50))

    assert audit.result().verdict == "blocked"
    assert "weights-not-finite" in _kinds(audit.result())


def test_evidence_does_not_depend_on_batches() -> None:
    rng = np.random.default_rng(11)
    rounds = _logged(rng, [0.6, 0.4], [0.6, 0.4], 300)
    audits = [PropensityAudit(2, floor=0.4), PropensityAudit(2, floor=0.4)]
    for audit in audits:
        audit.watch(two_actions(0.3))
    audits[0].observe(rounds)
    for i in range(0, 300, 17):
        audits[1].observe(rounds[i : i + 17])
    first, second = (a.result().numbers for a in audits)

    np.testing.assert_allclose(first["log_evidence_actions"], second["log_evidence_actions"], rtol=1e-10)


def test_levels_of_watched_policies_sum_to_what_the_audit_may_spend() -> None:
    """Trap 13. Catches: every policy tested at the full level."""
    rng = np.random.default_rng(12)
    audit = PropensityAudit(3, delta=0.01)
    for _ in range(200):
        audit.watch(random_linear(rng, 3, 2))
    spent = 2 * np.exp(-audit._marginals.threshold)
    spent += sum(2 * np.exp(-test.threshold) for _, test in audit._watched.values())

    assert spent <= 0.01


# -- before a gate ----------------------------------------------------------------------------------------------------


def _gate(**options: Any) -> AuditedGate:
    return AuditedGate(ChallengerGate(2, first_freeze=1, **options), 2)


def test_an_audited_gate_deploys_on_right_records() -> None:
    rng = np.random.default_rng(13)
    gate, deployed = _gate(), two_actions(0.9)
    gate.reign(deployed, 0, 0)
    gate.offer(two_actions(0.1), 1)
    means = np.array([[0.2, 0.8]])
    verdicts = set()
    for t in range(0, 3000, 100):
        decision = gate.observe(play(deployed, ONE_CONTEXT, means, 100, rng, first=t), deployed)
        verdicts.add(decision.verdict if decision else None)
        if decision and decision.deploys:
            break

    assert "promote" in verdicts


def test_an_audited_gate_is_frozen_before_it_decides_on_refuted_records() -> None:
    """A second service picks action 1 half of the time, while every record says what the deployed policy would do.

    Equality of propensities cannot see that: catches an audit that only compares. Both actions earn the same; the
    challenger gate alone deploys the candidate in this run.
    """

    def first_verdicts(gate: Any) -> list[str]:
        rng = np.random.default_rng(14)
        deployed, candidate = two_actions(0.9), two_actions(0.1)
        gate.reign(deployed, 0, 0)
        gate.offer(candidate, 1)
        seen = []
        for t in range(0, 2000, 50):
            rounds = play(two_actions(0.5), ONE_CONTEXT, HALF, 50, rng, first=t)
            wrong = Rounds.of(
                np.zeros((50, 1)), rounds.actions, rounds.rewards, np.where(rounds.actions == 0, 0.9, 0.1),
                n_actions=2, first=t,
            )  # fmt: skip
            decision = gate.observe(wrong, deployed)
            seen.append(decision.verdict if decision else "")
            if decision and decision.deploys:
                break
        return seen

    assert "promote" in first_verdicts(ChallengerGate(2, first_freeze=1))
    audited = _gate()
    verdicts = first_verdicts(audited)
    assert "promote" not in verdicts
    assert verdicts[-1] == "blocked"
    assert not audited.wants(10_000)
    decision = audited.offer(two_actions(0.3), 10_000)
    assert decision is not None
    assert any(reason.startswith("weights-above-one:") for reason in decision.reasons)


def test_a_blocked_gate_stays_blocked_when_restored_and_starts_anew_with_a_reign() -> None:
    rng = np.random.default_rng(15)
    gate, deployed = _gate(), two_actions(0.9)
    gate.reign(deployed, 0, 0)
    gate.observe(_logged(rng, [0.9, 0.1], [0.8, 0.2], 100), deployed)
    again = _gate()
    again.reign(deployed, 0, 0)
    again.restore(gate.state())

    assert not again.wants(10_000)
    again.reign(deployed, 100, 1)
    assert again.wants(10_000)


@pytest.mark.statistical
def test_right_records_are_blocked_at_most_delta_of_the_time_with_all_looks() -> None:
    """500 runs of 40 looks, three policies watched, at delta = .05 to be seen. False alarm 1e-6; bets on v without
    halving for the two sides, or a fixed-time z-test looked at every time, exceed it."""
    rng = np.random.default_rng(16)
    p = np.array([0.8, 0.15, 0.05])
    blocked = 0
    for _ in range(500):
        audit = PropensityAudit(3, delta=0.05, floor=0.05)
        for h in ([0.1, 0.1, 0.8], [0.3, 0.4, 0.3], [0.0, 1.0, 0.0]):
            audit.watch(ConstantPolicy(h))
        rounds = _logged(rng, p, p, 800, n_actions=3)
        for t in range(0, 800, 20):
            audit.observe(rounds[t : t + 20])
        blocked += audit.result().verdict == "blocked"

    assert_rate_at_most(blocked, 500, 0.05)


def test_a_restored_audit_knows_the_floor_of_the_policy_that_acts_now() -> None:
    """The baseline's floor is 0.5, its successor's 0.05. Caught: right records of the successor blocked."""
    base, new = ConstantPolicy([0.5, 0.5]), ConstantPolicy([0.95, 0.05])

    def build() -> AuditedGate:
        gate = AuditedGate(ChallengerGate(2), 2)
        gate.reign(base, 0, 0)
        return gate

    gate, again = build(), build()
    gate.reign(new, 0, 1)
    rounds = play(new, ONE_CONTEXT, np.array([[0.5, 0.5]]), 600, np.random.default_rng(0), version=1)
    for restored in (gate, again):
        if restored is again:
            again.restore(gate.state())
        decision = restored.observe(rounds[300:] if restored is again else rounds[:300], new)
        assert decision is None or decision.verdict == "hold"
