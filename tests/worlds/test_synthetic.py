"""Generated ranking sets: what the spec says, the same every time, and worth learning from."""

from __future__ import annotations

import numpy as np
import pytest

from seamark.estimation.ranking_metrics import mean_ndcg, rank_queries
from seamark.worlds.files import DataError
from seamark.worlds.letor import load
from seamark.worlds.queries import Queries
from seamark.worlds.synthetic import GRADE_SHARES, NAME, Synthetic, generate, parse_spec


def ridge(part: Queries) -> np.ndarray:
    """Weights of a pointwise linear fit of the grades."""
    features = part.features.astype(np.float64)
    centred = features - features.mean(axis=0)
    gram = centred.T @ centred + np.eye(part.n_features)
    return np.linalg.solve(gram, centred.T @ (part.grades - part.grades.mean()))


def quality(weights: np.ndarray, part: Queries) -> float:
    return mean_ndcg(rank_queries(part.features @ weights, part.offsets, part.doc_hash), part.grades, part.offsets)


def test_a_spec_says_what_is_generated() -> None:
    assert parse_spec(NAME) == Synthetic()
    assert parse_spec(f"{NAME}:yahoo") == Synthetic(shares="yahoo")
    asked = parse_spec(f"{NAME}:istella-s:queries=30:documents=7:features=9:seed=3")
    assert asked == Synthetic("istella-s", 30, 7, 9, 3)
    assert parse_spec(asked.spec) == asked

    data = load(asked.spec)

    assert data.name == asked.spec
    assert (len(data.train), len(data.test)) == (24, 6)
    assert data.n_features == 9
    assert data.max_grade == 4
    assert "generated, no real queries" in data.notes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("mslr", "grade shares 'mslr' are not known; give mslr10k, yahoo, istella-s"),
        ("queries=x", "queries=x is not a whole number"),
        ("queries=-5", "queries=-5 is not a whole number"),
        ("queries=1", "queries=1; must be at least 2"),
        ("documents=0", "documents=0; must be at least 1"),
        ("lists=5", "'lists' is not an option; give queries, documents, features, seed"),
        ("queries=5:queries=6", "queries is given twice"),
        ("yahoo:mslr10k", "shares is given twice"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(options: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(f"{NAME}:{options}")

    assert "\n" not in str(caught.value)


def test_the_same_spec_gives_the_same_set_and_another_seed_another() -> None:
    one, same, other = generate(), generate(), generate(Synthetic(seed=1))

    assert one.sha256 == same.sha256 != other.sha256
    np.testing.assert_array_equal(one.train.features, same.train.features)
    np.testing.assert_array_equal(one.test.doc_hash, same.test.doc_hash)
    assert not np.intersect1d(one.train.qids, one.test.qids).size


@pytest.mark.parametrize("shares", GRADE_SHARES)
def test_grades_have_the_published_shares(shares: str) -> None:
    data = generate(Synthetic(shares=shares))

    grades = np.concatenate([data.train.grades, data.test.grades])
    np.testing.assert_allclose(np.bincount(grades, minlength=5) / grades.size, GRADE_SHARES[shares], atol=1e-3)


def test_features_span_zero_to_one_within_queries() -> None:
    train = generate().train
    high = np.maximum.reduceat(train.features, train.offsets[:-1])
    low = np.minimum.reduceat(train.features, train.offsets[:-1])

    assert np.all(low == 0)
    assert np.all(high[train.lengths > 1] == 1)
    assert train.lengths.min() < train.lengths.mean() / 2
    assert 20 < train.lengths.mean() < 30


@pytest.mark.parametrize("shares", GRADE_SHARES)
def test_a_linear_ranker_is_clearly_better_than_a_weak_baseline(shares: str) -> None:
    """The baseline learns from one query's labels; ten of them, as how weak one is varies."""
    data = generate(Synthetic(shares=shares))
    learned = quality(ridge(data.train), data.test)
    weak = [quality(ridge(data.train.take(np.array([q]))), data.test) for q in range(10)]
    chance = quality(np.zeros(data.n_features), data.test)

    assert learned > np.mean(weak) + 0.05
    assert learned > chance + 0.2
    assert learned < 0.95  # and it is not perfect: some relevance no feature knows
