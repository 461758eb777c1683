"""Hashes of content: equal for copies, different for another fit, and honest about what cannot be looked into."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from seamark.policies import EstimatorPolicy
from seamark.policies.content import digest

X = np.random.default_rng(0).normal(size=(60, 4))
Y = (X[:, 0] > 0).astype(int)
MODELS = [
    LogisticRegression(), RandomForestClassifier(5, random_state=0), HistGradientBoostingClassifier(max_iter=3),
    make_pipeline(StandardScaler(), LogisticRegression()), MLPClassifier(max_iter=3, random_state=0),
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_copies_of_a_model_are_equal_and_another_fit_is_not(model: Any) -> None:
    """Caught: a hash of the pickle, whose bytes depend on which parts are shared; a hash of names or addresses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, Y)
        kept = digest(model)
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        assert [digest(c) for c in copies] == [kept, kept]
        model.fit(X[:50], Y[:50])
    assert digest(model) != kept


class Changing:
    """A model that holds code: nobody can tell what it does."""

    classes_ = np.arange(2)

    def __init__(self) -> None:
        self.function = lambda x: x

    def predict_proba(self, x: Any) -> Any:
        return np.full((len(x), 2), 0.5)


def test_a_model_that_cannot_be_looked_into_needs_a_name() -> None:
    with pytest.raises(ValueError, match=r"cannot be hashed .* give every fit a name"):
        _ = EstimatorPolicy(Changing(), 2).id
    assert EstimatorPolicy(Changing(), 2, "a").id != EstimatorPolicy(Changing(), 2, "b").id


def test_a_name_does_not_make_two_fits_one() -> None:
    one, two = (LogisticRegression().fit(X[:n], Y[:n]) for n in (30, 60))
    assert EstimatorPolicy(one, 2, "model").id != EstimatorPolicy(two, 2, "model").id
    assert EstimatorPolicy(one, 2, "model").id == EstimatorPolicy(copy.deepcopy(one), 2, "model").id


def test_what_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="holds itself"):
        digest(loop)
