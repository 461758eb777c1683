"""The validation part of a training set: rows or queries held out by a fixed draw."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np

from seamark.rounds import as_features, take
from seamark.worlds.datasets import SupervisedData
from seamark.worlds.letor import RankingData

VALIDATION_SHARE = 0.2
SPLIT_SEED = 0


def _split(n: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
    """Rows to learn from and rows to validate on, both in order, the same for every search."""
    if n < 2:
        raise ValueError(f"data: {n} training rows; a validation part takes at least 2.")
    order = np.random.default_rng(SPLIT_SEED).permutation(n).astype(np.int64)
    m = max(1, round(VALIDATION_SHARE * n))
    return np.sort(order[m:]), np.sort(order[:m])


def _told(n_kept: int, n_held: int, what: str) -> str:
    return (
        f"validation: {n_held:,} of the {n_kept + n_held:,} training {what} are held out and stand where the test "
        f"part would; the test part is not used"
    )


def _hash(sha256: str) -> str:
    """The hash of the split set: cells of a search are never those of a run."""
    return hashlib.sha256(f"{sha256} validation {VALIDATION_SHARE} {SPLIT_SEED}".encode()).hexdigest()


def split_rows(data: SupervisedData) -> SupervisedData:
    """The set with a fixed fifth of its training rows in place of the test rows."""
    kept, held = _split(data.train_labels.size)
    features: Any = data.train_features
    if not isinstance(features, np.ndarray):
        train, held_out = features[kept], features[held]
    else:
        rows = as_features(features)
        train, held_out = take(rows, kept), take(rows, held)
    return replace(
        data, train_features=train, train_labels=data.train_labels[kept], test_features=held_out,
        test_labels=data.train_labels[held], sha256=_hash(data.sha256),
        notes=(*data.notes, _told(kept.size, held.size, "rows")),
    )  # fmt: skip


def split_queries(data: RankingData) -> RankingData:
    """The set with a fixed fifth of its training queries in place of the test queries."""
    kept, held = _split(len(data.train))
    return replace(
        data, train=data.train.take(kept), test=data.train.take(held), vali=None, sha256=_hash(data.sha256),
        notes=(*data.notes, _told(kept.size, held.size, "queries")),
    )  # fmt: skip
