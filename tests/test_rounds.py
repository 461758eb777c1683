"""Rounds: what is let in, what is refused and in which words, and parts of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, csr_matrix

from seamark.rounds import Csr, Rounds, as_features, n_contexts, n_features, stack, take
from support import csr, with_zeros

GOOD: dict[str, Any] = {
    "contexts": [[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]],
    "actions": [0, 1, 2],
    "rewards": [0.0, 0.5, 1.0],
    "propensities": [0.2, 0.5, 1.0],
    "n_actions": 3,
}


def dense_of(features: Csr) -> np.ndarray:
    return csr_matrix(
        (features.data, features.indices, features.indptr), shape=(n_contexts(features), features.n_features)
    ).toarray()


def test_good_columns_are_kept_as_they_are() -> None:
    """Nothing is changed on the way in, but types."""
    rounds = Rounds.of(**GOOD)

    assert len(rounds) == 3
    assert rounds.rows.tolist() == [0, 1, 2]
    assert rounds.actions.dtype == np.int64
    assert rounds.rewards.tolist() == [0.0, 0.5, 1.0]
    assert rounds.propensities.tolist() == [0.2, 0.5, 1.0]
    assert rounds.versions.tolist() == [0, 0, 0]
    assert not rounds.recurring
    assert (rounds.first, rounds.last) == (0, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": [0.0, 1.5, 1.0]}, r"rewards: row 1 is 1.5; must be in \[0, 1\]\. Declare the scale"),
        ({"rewards": [0.0, -0.1, 1.0]}, "rewards: row 1 is -0.1"),
        ({"rewards": [0.0, np.nan, 1.0]}, "rewards: row 1 is nan; must be a finite number"),
        ({"rewards": ["a", "b", "c"]}, "rewards: not numbers"),
        ({"rewards": [0.0, 1.0]}, "rewards: 2 rows, but actions has 3"),
        ({"rewards": [[0.0], [1.0], [1.0]]}, r"rewards: shape \(3, 1\); must be one value per round"),
        ({"propensities": [0.2, 0.0, 1.0]}, r"propensities: row 1 is 0.0; must be in \(0, 1\]\. Log the probability"),
        ({"propensities": [0.2, 1.01, 1.0]}, "propensities: row 1 is 1.01"),
        ({"propensities": [0.2, np.inf, 1.0]}, "propensities: row 1 is inf"),
        ({"actions": [0, 3, 1]}, "actions: row 1 is 3; must be 0 to 2. Number the actions from 0"),
        ({"actions": [0, -1, 1]}, "actions: row 1 is -1"),
        ({"actions": [0, 0.5, 1]}, "actions: row 1 is 0.5; must be a whole number"),
        ({"contexts": [[1.0, np.nan], [0.0, 2.0], [3.0, 3.0]]}, "contexts: row 0, feature 1 is nan; must be finite"),
        ({"contexts": csr_matrix([[1.0, 0], [0, np.inf], [3, 3]])}, "contexts: row 1, feature 1 is inf"),
        ({"contexts": [["x"], ["y"], ["z"]]}, "contexts: not an array of numbers"),
        ({"contexts": np.zeros((3, 1, 1))}, r"contexts: shape \(3, 1, 1\)"),
        ({"contexts": [[1.0, 0.0]]}, "contexts: 1 rows, but actions has 3"),
        ({"context_ids": [0, 1, 3]}, "context_ids: row 2 is 3; must be a row of contexts, 0 to 2"),
        ({"context_ids": [0, 1]}, "contexts: 2 rows, but actions has 3"),
        ({"reward_range": (1, 1)}, r"reward_range: \(1, 1\); must be \(low, high\) with low < high"),
        ({"probabilities": np.ones((3, 2))}, r"probabilities: shape \(3, 2\); must be \(3, 3\)"),
    ],
)
def test_a_bad_column_is_refused_with_its_name_and_row(changes: dict[str, Any], message: str) -> None:
    """Every message says which column, which row, what it was and what is allowed."""
    with pytest.raises(ValueError, match=message):
        Rounds.of(**{**GOOD, **changes})


def test_rewards_of_a_declared_scale_are_rescaled() -> None:
    """(r - low) / (high - low), with the scale known beforehand, never read off the data."""
    rounds = Rounds.of(**{**GOOD, "rewards": [-1, 2, 4]}, reward_range=(-1, 4))

    assert rounds.rewards.tolist() == [0.0, (2 + 1) / 5, 1.0]


def test_a_part_keeps_its_sequence_numbers() -> None:
    """`first` moves with the start of the part, and parts of parts add up."""
    rounds = Rounds.of(**GOOD, first=10, versions=[0, 1, 1], probabilities=np.full((3, 3), 1 / 3))
    part = rounds[1:][1:]

    assert (part.first, part.last, len(part)) == (12, 13, 1)
    assert part.actions.tolist() == [2]
    assert part.versions.tolist() == [1]
    assert part.probabilities is not None
    assert part.probabilities.shape == (1, 3)
    assert np.asarray(part.contexts()).tolist() == [[3.0, 3.0]]
    with pytest.raises(ValueError, match="contiguous"):
        rounds[::2]


def test_context_ids_name_rows_of_the_pool() -> None:
    """With ids, contexts recur and are looked up."""
    rounds = Rounds.of([[1.0], [2.0]], [0, 1, 0], [1, 0, 1], [0.5] * 3, n_actions=2, context_ids=[1, 0, 1])

    assert rounds.recurring
    assert np.asarray(rounds.contexts()).ravel().tolist() == [2.0, 1.0, 2.0]


@given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_sparse_rows_are_taken_and_stacked_like_dense_ones(n: int, d: int, seed: int) -> None:
    """`take` and `stack` on Csr equal the same on arrays; an off-by-one in `indptr` is caught."""
    rng = np.random.default_rng(seed)
    x = with_zeros(rng, n, d)
    rows = rng.integers(0, n, 2 * n)
    taken = take(csr(x), rows)
    stacked = stack([csr(x), taken])

    assert isinstance(taken, Csr)
    assert isinstance(stacked, Csr)
    assert np.array_equal(dense_of(taken), x[rows])
    assert np.array_equal(dense_of(stacked), np.concatenate([x, x[rows]]))
    assert n_features(stacked) == d


def test_any_scipy_form_becomes_sorted_csr() -> None:
    """Columns are sorted within rows, entries given twice are added, and the caller's matrix is left as it was."""
    theirs = csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    ours = as_features(theirs)

    assert isinstance(ours, Csr)
    assert ours.indices.tolist() == [0, 2]
    assert ours.data.tolist() == [2.0, 1.0 + 4.0]
    assert theirs.indices.tolist() == [2, 0, 2]
    assert isinstance(as_features(csc_matrix(np.eye(3))), Csr)


def test_one_context_may_be_given_as_a_vector() -> None:
    """A (d,) context is one row."""
    assert np.asarray(as_features([1.0, 2.0])).shape == (1, 2)
