"""A world whose best actions change, and the challenger gate's way back."""

from __future__ import annotations

import numpy as np
import pytest
from tests.gates.challenger_kit import ONE_CONTEXT, play, two_actions
from tests.support import random_linear, small_world

from seamark.gates import ChallengerGate
from seamark.worlds.drift import DriftingWorld


def test_the_right_action_is_permuted_from_the_round_of_the_change_on() -> None:
    world = small_world(n_actions=3)
    drifting = DriftingWorld.permuting(world, [2, 0, 1], at=100)

    assert drifting.world(99) is world
    np.testing.assert_array_equal(drifting.world(100).labels, np.array([2, 0, 1])[world.labels])
    assert drifting.world(100).features is world.features


def test_values_are_exact_in_each_part_and_weighted_over_both() -> None:
    rng = np.random.default_rng(1)
    world = small_world(n_actions=3)
    drifting = DriftingWorld.permuting(world, [2, 0, 1], at=100)
    policy = random_linear(rng, 3, 6)
    early, late = drifting.value(policy, 0), drifting.value(policy, 100)

    assert early != pytest.approx(late)
    assert drifting.mean_value(policy, 90, 130) == pytest.approx(0.25 * early + 0.75 * late)
    assert drifting.mean_value(policy, 0, 50) == early
    assert drifting.mean_value(policy, 200, 250) == late


@pytest.mark.parametrize(("permutation", "at"), [([0, 0, 1], 5), ([0, 1], 5), ([1, 2, 0], 0)])
def test_impossible_changes_are_refused(permutation: list[int], at: int) -> None:
    with pytest.raises(ValueError, match=r"permutation|at"):
        DriftingWorld.permuting(small_world(n_actions=3), permutation, at)


def _rounds_after_reversal(rollback: bool, *, limit: int) -> int | None:
    """Rounds from the reversal of a deployed gain of .3 until the former incumbent is back; None beyond the limit."""
    rng = np.random.default_rng(20200406)
    first, second = two_actions(0.8), two_actions(0.2)
    before, after = np.array([[0.25, 0.75]]), np.array([[0.75, 0.25]])
    gate = ChallengerGate(2, first_freeze=1, rollback=rollback)
    gate.reign(first, 0, 0)
    gate.offer(second, 1)
    t, decision = 0, None
    while not (decision and decision.deploys):
        decision = gate.observe(play(first, ONE_CONTEXT, before, 100, rng, first=t), first)
        t += 100
    gate.reign(second, t, 1)
    for start in range(t, t + 6_000, 100):  # all is well
        decision = gate.observe(play(second, ONE_CONTEXT, before, 100, rng, first=start, version=1), second)
        assert not (decision and decision.deploys)
    reversed_at = t + 6_000
    for start in range(reversed_at, reversed_at + limit, 100):
        decision = gate.observe(play(second, ONE_CONTEXT, after, 100, rng, first=start, version=1), second)
        if decision and decision.deploys:
            assert decision.verdict == "rollback"
            assert decision.policy is not None
            assert decision.policy.id == first.id
            return start + 100 - reversed_at
    return None


def test_a_reversal_brings_the_former_incumbent_back() -> None:
    """Trap 11. Catches: a former incumbent that is not frozen anew, so that 6,000 rounds of evidence against it must be
    undone first (7,700 rounds instead of 2,400)."""
    took = _rounds_after_reversal(True, limit=8_000)

    assert took is not None
    assert took <= 5_000


def test_without_rollback_nothing_comes_back() -> None:
    assert _rounds_after_reversal(False, limit=2_000) is None
