"""Decisions that wait: released in decision order, each scored once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.pending import Pending
from seamark.rounds import FloatArray, IntArray
from support import csr


def decided(pending: Pending, n: int, *, sparse: bool = False, version: int = 0) -> IntArray:
    """n decisions, whose context and action say which one they are."""
    first = pending._next
    x = np.arange(first, first + n, dtype=float)[:, None] + 1
    actions = np.arange(first, first + n) % 2
    return pending.add(csr(x) if sparse else x, actions, np.full(n, 0.5), version, np.full((n, 2), 0.5))


def rewards_taken(pending: Pending) -> list[float]:
    rounds = pending.take()
    return [] if rounds is None else rounds.rewards.tolist()


def test_an_open_decision_holds_up_all_later_ones() -> None:
    """Evidence is read in decision order: releasing rounds as they close is the trap of slow conversions."""
    pending = Pending(None, 0.0)
    ids = decided(pending, 3)
    pending.close(ids[1:], np.array([1.0, 1.0]))
    before = rewards_taken(pending)
    pending.close(ids[:1], np.array([0.25]))

    assert before == []
    assert rewards_taken(pending) == [0.25, 1.0, 1.0]
    assert pending.n_open == 0


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_rounds_leave_complete_and_in_order_whatever_the_order_of_rewards(seed: int, sparse: bool) -> None:
    """Any interleaving of decisions, rewards and takes gives every round once, with its own context and reward."""
    rng = np.random.default_rng(seed)
    pending = Pending(None, 0.0)
    open_: list[int] = []
    rewards: dict[int, float] = {}
    taken: list[tuple[int, float, float, int]] = []
    for _ in range(30):
        if rng.random() < 0.5 or not open_:
            open_ += decided(pending, int(rng.integers(1, 4)), sparse=sparse).tolist()
        else:
            some = rng.permutation(open_)[: rng.integers(1, len(open_) + 1)]
            values = rng.random(some.size)
            pending.close(some, values)
            rewards |= dict(zip(some.tolist(), values.tolist()))
            open_ = [i for i in open_ if i not in set(some.tolist())]
        if rng.random() < 0.6 and (rounds := pending.take()) is not None:
            x = rounds.contexts()
            context: FloatArray = x if isinstance(x, np.ndarray) else x.data
            columns = (range(rounds.first, rounds.last), context.ravel(), rounds.rewards, rounds.actions)
            taken += list(zip(*(list(c) for c in columns)))

    closed = next((i for i in range(pending._next) if i not in rewards), pending._next)
    assert pending.n_open == len(open_)
    assert len(taken) <= closed
    assert [t[0] for t in taken] == list(range(len(taken)))
    assert all(t == (i, i + 1, rewards[i], i % 2) for i, t in enumerate(taken))


def test_a_decision_is_scored_once() -> None:
    """A second reward, an unknown id and a reward out of range raise, and say which and why."""
    pending = Pending(None, 0.0)
    ids = decided(pending, 3)
    pending.close(ids[:1], np.array([1.0]))

    with pytest.raises(
        ValueError, match=r"ids: 0 already has its final reward, or its window is over; each decision is scored once"
    ):
        pending.close(ids[:1], np.array([1.0]))
    pending.take()
    with pytest.raises(ValueError, match=r"ids: 0 already has its final reward"):
        pending.close(ids[:1], np.array([1.0]))
    with pytest.raises(ValueError, match=r"ids: 3 was never decided"):
        pending.close(np.array([3]), np.array([1.0]))
    with pytest.raises(ValueError, match=r"ids: -1 was never decided"):
        pending.close(np.array([-1]), np.array([1.0]))
    for bad in (1.5, -0.1, np.nan):
        with pytest.raises(ValueError, match=rf"rewards: {bad} for id 1; must be in \[0, 1\]"):
            pending.close(ids[1:2], np.array([bad]))
    with pytest.raises(ValueError, match="2 values for 1 ids"):
        pending.close(ids[1:2], np.array([1.0, 1.0]))


def test_a_refused_call_changes_nothing() -> None:
    """Where one reward of several is refused none is taken, so that the corrected call can be made again."""
    pending = Pending(None, 0.0)
    ids = decided(pending, 2)
    for bad_ids, bad_values in ((ids, [1.0, 7.0]), (np.array([0, 9]), [1.0, 1.0]), (np.array([0, 0]), [1.0, 1.0])):
        with pytest.raises(ValueError, match=r"rewards: 7|never decided|already has"):
            pending.close(bad_ids, np.array(bad_values))
    pending.close(ids, np.array([1.0, 0.5]))

    assert rewards_taken(pending) == [1.0, 0.5]


def test_the_window_closes_a_decision_with_the_default_reward() -> None:
    """A decision with `window` later ones is closed; the last `window` stay open."""
    pending = Pending(2, 0.25)
    ids = decided(pending, 2)
    pending.close(ids[1:], np.array([1.0]))
    decided(pending, 1)

    assert rewards_taken(pending) == [0.25, 1.0]
    assert pending.n_open == 1
    with pytest.raises(ValueError, match="already has its final reward"):
        pending.close(ids[:1], np.array([1.0]))


def test_expiring_spares_later_decisions_and_given_rewards() -> None:
    """`expire(before)` closes only what is older and still open."""
    pending = Pending(None, 0.0)
    ids = decided(pending, 4)
    pending.close(ids[1:2], np.array([1.0]))
    pending.expire(3)

    assert rewards_taken(pending) == [0.0, 1.0, 0.0]
    assert pending.n_open == 1


def test_the_callers_array_may_be_used_again() -> None:
    """What was decided on is kept, not the caller's buffer; storing a reference is caught."""
    pending = Pending(None, 0.0)
    buffer = np.array([[1.0]])
    ids = pending.add(buffer, np.array([0]), np.array([0.5]), 0, np.full((1, 2), 0.5))
    buffer[:] = 99.0
    pending.close(ids, np.array([1.0]))
    rounds = pending.take()

    assert rounds is not None
    assert np.asarray(rounds.contexts()).tolist() == [[1.0]]


@pytest.mark.parametrize(("window", "default"), [(0, 0.0), (-1, 0.0), (None, 1.5), (None, float("nan"))])
def test_bad_settings_are_refused(window: int | None, default: float) -> None:
    """A window is a positive count, the default reward a reward."""
    with pytest.raises(ValueError, match=r"window|default_reward"):
        Pending(window, default)
