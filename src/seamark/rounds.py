"""What happened: the one record type that everything passes around.

Arrays: float64 and int64, one entry per round. A round's context is a row of a pool of contexts (`features`),
so that a world with recurring contexts never copies one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


class Csr(NamedTuple):
    """Rows of sparse features, column indices sorted within a row (compressed sparse rows)."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    data: FloatArray
    n_features: int


Features: TypeAlias = FloatArray | Csr
"""Contexts: a dense C-ordered array (n, d), or `Csr`."""


def as_features(contexts: Any) -> Features:
    """The contexts as `Features`; accepts a (n, d) array, one (d,) context, or a scipy sparse matrix."""
    if isinstance(contexts, Csr):
        return contexts
    if hasattr(contexts, "tocsr"):
        matrix = contexts.tocsr(copy=True)
        matrix.sum_duplicates()  # sorts within rows, too
        features = Csr(
            matrix.indptr.astype(np.int64),
            matrix.indices.astype(np.int32),
            matrix.data.astype(np.float64),
            int(matrix.shape[1]),
        )
        bad = np.flatnonzero(~np.isfinite(features.data))
        if bad.size:
            row = int(np.searchsorted(features.indptr, bad[0], side="right") - 1)
            raise _not_finite(row, int(features.indices[bad[0]]), features.data[bad[0]])
        return features
    try:
        array = np.ascontiguousarray(contexts, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"contexts: not an array of numbers ({error}).") from None
    if array.ndim == 1:
        array = array[None, :]
    if array.ndim != 2:
        raise ValueError(f"contexts: shape {array.shape}; must be (rounds, features).")
    if not np.isfinite(array).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise _not_finite(row, column, array[row, column])
    return array


def _not_finite(row: int, column: int, value: float) -> ValueError:
    return ValueError(
        f"contexts: row {row}, feature {column} is {value}; must be finite. Impute or drop it before logging."
    )


def n_contexts(features: Features) -> int:
    return features.indptr.size - 1 if isinstance(features, Csr) else int(features.shape[0])


def n_features(features: Features) -> int:
    return features.n_features if isinstance(features, Csr) else int(features.shape[1])


def take(features: Features, rows: ArrayLike) -> Features:
    """The chosen rows, copied."""
    rows = np.asarray(rows, dtype=np.int64)
    if not isinstance(features, Csr):
        chosen: FloatArray = features[rows]
        return chosen
    counts = np.diff(features.indptr)[rows]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    source = np.arange(indptr[-1]) + np.repeat(features.indptr[rows] - indptr[:-1], counts)
    return Csr(indptr, features.indices[source], features.data[source], features.n_features)


def stack(parts: Sequence[Features]) -> Features:
    """The rows of all parts, one after the other."""
    if not isinstance(parts[0], Csr):
        return np.concatenate([np.asarray(p) for p in parts])
    sparse = [p for p in parts if isinstance(p, Csr)]
    counts = np.concatenate([np.diff(p.indptr) for p in sparse])
    return Csr(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([p.indices for p in sparse]),
        np.concatenate([p.data for p in sparse]),
        sparse[0].n_features,
    )


@dataclass(frozen=True, eq=False)
class Rounds:
    """Columns of consecutive rounds: context, action, reward in [0, 1], propensity, and who acted.

    Build with `Rounds.of`, which validates; the constructor itself trusts its arguments.

    >>> log = Rounds.of([[1.0, 0.0], [0.0, 1.0]], actions=[0, 2], rewards=[1, 0], propensities=[0.5, 0.25], n_actions=3)
    >>> len(log), log.rewards.tolist()
    (2, [1.0, 0.0])
    >>> Rounds.of([[1.0]], actions=[0], rewards=[1.5], propensities=[0.5], n_actions=2)
    Traceback (most recent call last):
    ValueError: rewards: row 0 is 1.5; must be in [0, 1]. Declare the scale: reward_range=(low, high).
    """

    features: Features
    rows: IntArray
    """Row of `features` that each round saw."""
    actions: IntArray
    rewards: FloatArray
    propensities: FloatArray
    """Probability with which the acting policy drew the action, as it was at decision time."""
    versions: IntArray
    """Version of the policy that acted; counts deployments, 0 is the baseline."""
    first: int = 0
    """Sequence number of the first round."""
    recurring: bool = False
    """Whether `rows` name contexts that come back, so that tables per (context, action) are exact."""
    probabilities: FloatArray | None = None
    """The acting policy's p(.|x) at decision time, shape (n, n_actions), where it was kept."""

    @classmethod
    def of(
        cls,
        contexts: Any,
        actions: ArrayLike,
        rewards: ArrayLike,
        propensities: ArrayLike,
        *,
        n_actions: int,
        reward_range: tuple[float, float] = (0.0, 1.0),
        context_ids: ArrayLike | None = None,
        versions: ArrayLike | int = 0,
        first: int = 0,
        probabilities: ArrayLike | None = None,
    ) -> Rounds:
        """Validated rounds. Rewards in `reward_range` (known beforehand) are rescaled to [0, 1].

        With `context_ids`, `contexts` is the pool and each id a row of it; without, one row per round.
        """
        features = as_features(contexts)
        acted = _column("actions", actions, integer=True)
        n = acted.size
        recurring = context_ids is not None
        rows = (
            _column("context_ids", context_ids, integer=True).astype(np.int64)
            if recurring
            else np.arange(n_contexts(features), dtype=np.int64)
        )
        reward = _column("rewards", rewards)
        propensity = _column("propensities", propensities)
        for name, column in (("contexts", rows), ("rewards", reward), ("propensities", propensity)):
            if column.size != n:
                raise ValueError(f"{name}: {column.size} rows, but actions has {n}; all columns must be as long.")
        _require(
            "context_ids",
            rows,
            (rows >= 0) & (rows < n_contexts(features)),
            f"must be a row of contexts, 0 to {n_contexts(features) - 1}.",
        )
        _require(
            "actions",
            acted,
            (acted >= 0) & (acted < n_actions),
            f"must be 0 to {n_actions - 1}. Number the actions from 0, or pass the right n_actions.",
        )
        low, high = reward_range
        if not low < high:
            raise ValueError(f"reward_range: {reward_range}; must be (low, high) with low < high.")
        _require(
            "rewards",
            reward,
            (reward >= low) & (reward <= high),
            f"must be in [{low:g}, {high:g}]. Declare the scale: reward_range=(low, high).",
        )
        _require(
            "propensities",
            propensity,
            (propensity > 0) & (propensity <= 1),
            "must be in (0, 1]. Log the probability used to draw the action.",
        )
        scaled = reward if (low, high) == (0.0, 1.0) else (reward - low) / (high - low)
        by = np.broadcast_to(np.asarray(versions, dtype=np.int64), (n,)).copy()
        full = None if probabilities is None else np.ascontiguousarray(probabilities, dtype=np.float64)
        if full is not None and full.shape != (n, n_actions):
            raise ValueError(f"probabilities: shape {full.shape}; must be ({n}, {n_actions}).")
        return cls(features, rows, acted.astype(np.int64), scaled, propensity, by, first, recurring, full)

    def __len__(self) -> int:
        return int(self.actions.size)

    def __getitem__(self, part: slice) -> Rounds:
        """A contiguous part, sharing memory."""
        start, _, step = part.indices(len(self))
        if step != 1:
            raise ValueError("rounds: take a contiguous part; order is part of the evidence.")
        return replace(
            self,
            rows=self.rows[part],
            actions=self.actions[part],
            rewards=self.rewards[part],
            propensities=self.propensities[part],
            versions=self.versions[part],
            first=self.first + start,
            probabilities=None if self.probabilities is None else self.probabilities[part],
        )

    @property
    def last(self) -> int:
        """Sequence number of the last round, plus one: how many rounds there have been."""
        return self.first + len(self)

    def contexts(self) -> Features:
        """One row of features per round, copied."""
        return take(self.features, self.rows)


def _column(name: str, values: ArrayLike | None, *, integer: bool = False) -> NDArray[Any]:
    try:
        column = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise ValueError(f"{name}: not numbers; convert the column before building rounds.") from None
    if column.ndim != 1:
        raise ValueError(f"{name}: shape {column.shape}; must be one value per round.")
    _require(name, column, np.isfinite(column), "must be a finite number.")
    if integer:
        _require(name, column, column == np.floor(column), "must be a whole number.")
        return column.astype(np.int64)
    return np.ascontiguousarray(column)


def _require(name: str, column: NDArray[Any], good: NDArray[np.bool_], remedy: str) -> None:
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise ValueError(f"{name}: row {row} is {column[row]}; {remedy}")
