"""nDCG and click-DCG: worked values, scikit-learn, brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamark.estimation.ranking_metrics import (
    click_dcg,
    dcg_weights,
    ideal_dcg,
    mean_ndcg,
    ndcg,
    rank_documents,
    rank_queries,
)

GRADES = np.array([0, 3, 1, 0, 0, 2, 2, 4], dtype=np.int64)
OFFSETS = np.array([0, 3, 5, 8], dtype=np.int64)  # the second query has no relevant document


def hashes(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**63, n, dtype=np.uint64)


def test_ndcg_of_worked_lists() -> None:
    display = np.array([[2, 1, 0], [3, 4, -1], [5, 6, 7]])

    values = ndcg(display, GRADES, OFFSETS)

    first = (1 / math.log2(2) + 7 / math.log2(3)) / (7 / math.log2(2) + 1 / math.log2(3))
    third = (3 / math.log2(2) + 3 / math.log2(3) + 15 / math.log2(4)) / (
        15 / math.log2(2) + 3 / math.log2(3) + 3 / math.log2(4)
    )
    np.testing.assert_allclose(values, [first, 0, third], rtol=1e-14)
    assert math.isclose(mean_ndcg(display, GRADES, OFFSETS), (first + 0 + third) / 3)
    assert math.isclose(mean_ndcg(display, GRADES, OFFSETS, skip_unjudged=True), (first + third) / 2)


def test_the_best_list_comes_from_all_documents_and_is_cut() -> None:
    np.testing.assert_allclose(ideal_dcg(GRADES, OFFSETS, cutoff=2), [7 + 1 / math.log2(3), 0, 15 + 3 / math.log2(3)])
    assert ndcg([[5, 6], [3, 4], [7, 5]], GRADES, OFFSETS, cutoff=2)[2] == 1.0
    assert ndcg([[1], [3], [5]], GRADES, OFFSETS, cutoff=1).tolist() == [1.0, 0.0, 3 / 15]


def test_the_best_list_is_best_by_brute_force() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        grades = rng.integers(0, 5, 5)
        offsets = np.array([0, 5])
        reached = [
            sum((2.0 ** grades[d] - 1) * w for d, w in zip(order, dcg_weights(3)))
            for order in itertools.permutations(range(5), 3)
        ]
        assert math.isclose(ideal_dcg(grades, offsets, cutoff=3)[0], max(reached))


@pytest.mark.parametrize("n_documents", [2, 9, 10, 40])
def test_ndcg_equals_that_of_scikit_learn(n_documents: int) -> None:
    from sklearn.metrics import ndcg_score

    rng = np.random.default_rng(n_documents)
    n_queries = 30
    grades = rng.integers(0, 5, (n_queries, n_documents))
    scores = rng.permutation(n_queries * n_documents).reshape(grades.shape).astype(float)  # no ties
    offsets = np.arange(n_queries + 1) * n_documents

    display = rank_queries(scores.ravel(), offsets, hashes(scores.size))
    values = ndcg(display, grades.ravel(), offsets)

    expected = [ndcg_score([2.0**g - 1], [s], k=10) for g, s in zip(grades, scores)]
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_only_queries_without_any_relevance_cannot_be_averaged() -> None:
    with pytest.raises(ValueError, match="no query has a grade above 0"):
        mean_ndcg([[0]], np.array([0]), np.array([0, 1]), skip_unjudged=True)


def test_click_dcg_of_worked_lists() -> None:
    attraction = np.array([0.1, 0.5, 1.0])

    values = click_dcg([[2, 0, 1], [1, -1, -1]], attraction)

    np.testing.assert_allclose(values, [1.0 + 0.1 / math.log2(3) + 0.5 / 2, 0.5])
    np.testing.assert_allclose(click_dcg([[2, 0, 1]], attraction, cutoff=2), [1.0 + 0.1 / math.log2(3)])
    np.testing.assert_allclose(
        click_dcg([[2, 0, 1]], attraction, weights=np.array([1.0, 1 / 2, 1 / 3])), [1.0 + 0.05 + 0.5 / 3]
    )


def test_equal_scores_are_ordered_by_the_hash() -> None:
    doc_hash = np.array([30, 10, 20, 5], dtype=np.uint64)

    np.testing.assert_array_equal(rank_documents([1.0, 1.0, 1.0, 0.5], doc_hash), [1, 2, 0, 3])
    np.testing.assert_array_equal(rank_documents([1.0, 1.0, 1.0, 0.5], doc_hash, 2), [1, 2])
    np.testing.assert_array_equal(rank_documents([0.0, -0.0], doc_hash[:2], 1), [1])
    large = np.array([2**63 + 1, 2**63], dtype=np.uint64)  # beyond int64
    np.testing.assert_array_equal(rank_documents([0.0, 0.0], large), [1, 0])
    np.testing.assert_array_equal(rank_documents([0.0, 0.0], large, 1), [1])


def test_short_lists_end_with_minus_one() -> None:
    display = rank_queries([0.1, 0.9, 0.5, 7.0, 8.0, 1.0, 2.0, 3.0], OFFSETS, hashes(8), cutoff=4)

    np.testing.assert_array_equal(display, [[1, 2, 0, -1], [4, 3, -1, -1], [7, 6, 5, -1]])


@settings(deadline=None)
@given(st.data())
def test_the_top_of_a_list_is_the_beginning_of_the_full_order(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 30))
    scores = np.array(
        data.draw(st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf]), min_size=n, max_size=n))
    )
    doc_hash = hashes(n, seed=data.draw(st.integers(0, 99)))
    cutoff = data.draw(st.integers(0, n + 3))

    order = rank_documents(scores, doc_hash)
    top = rank_queries(scores, np.array([0, n]), doc_hash, cutoff=cutoff)[0]

    keys = [(-scores[d], int(doc_hash[d])) for d in order]
    assert keys == sorted(keys)
    assert sorted(order) == list(range(n))
    np.testing.assert_array_equal(top, [*order[:cutoff], *[-1] * (cutoff - n)])
    np.testing.assert_array_equal(rank_documents(scores, doc_hash, cutoff), order[:cutoff])


def test_a_ranking_does_not_depend_on_the_order_of_the_rows() -> None:
    rng = np.random.default_rng(8)
    scores, doc_hash = rng.integers(0, 3, 40).astype(float), hashes(40)
    shuffle = rng.permutation(40)

    order = rank_documents(scores, doc_hash)
    shuffled = rank_documents(scores[shuffle], doc_hash[shuffle], 10)

    np.testing.assert_array_equal(shuffle[shuffled], order[:10])


def test_wrong_scores_and_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="document 1 is NaN; a NaN has no rank"):
        rank_documents([0.0, math.nan], hashes(2))
    with pytest.raises(ValueError, match=r"scores have shape \(3,\); must be \(2,\)"):
        rank_documents([0.0, 1.0, 2.0], hashes(2))
    with pytest.raises(ValueError, match="a list for each of 3 queries"):
        ndcg([[0]], GRADES, OFFSETS)
