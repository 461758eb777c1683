"""Decisions that wait for their reward, released in decision order once everything before them is closed."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from seamark.rounds import Csr, Features, FloatArray, IntArray, Rounds, stack, take


@dataclass(eq=False)
class _Batch:
    first: int
    features: Features
    actions: IntArray
    propensities: FloatArray
    version: int
    probabilities: FloatArray
    rewards: FloatArray
    """NaN while open."""

    def __len__(self) -> int:
        return int(self.actions.size)


class Pending:
    """Head of line: a round leaves only when every earlier one is closed, so evidence is read in decision order."""

    def __init__(self, window: int | None, default_reward: float) -> None:
        if window is not None and window < 1:
            raise ValueError(f"window: {window}; must be a positive number of decisions, or None.")
        if not 0 <= default_reward <= 1:
            raise ValueError(f"default_reward: {default_reward}; must be in [0, 1].")
        self.window, self.default_reward = window, default_reward
        self._batches: list[_Batch] = []
        self._next = 0
        self._n_whole = self._n_ready = 0  # closed batches at the head, and rounds in them

    @property
    def n_open(self) -> int:
        return sum(int(np.isnan(b.rewards).sum()) for b in self._batches)

    def add(
        self, features: Features, actions: IntArray, propensities: FloatArray, version: int, probabilities: FloatArray
    ) -> IntArray:
        n = actions.size
        kept = take(features, np.arange(n))  # a copy: the caller may use its array again before the reward comes
        batch = _Batch(self._next, kept, actions, propensities, version, probabilities, np.full(n, np.nan))
        self._batches.append(batch)
        self._next += n
        if self.window is not None:
            self.expire(self._next - self.window)
        return np.arange(batch.first, self._next, dtype=np.int64)

    def close(self, ids: IntArray, values: FloatArray) -> None:
        if ids.shape != values.shape:
            raise ValueError(f"rewards: {values.size} values for {ids.size} ids; give one per id.")
        starts = [b.first for b in self._batches]
        places: dict[int, tuple[_Batch, float]] = {}
        for one, value in zip(ids.tolist(), values.tolist()):
            if not 0 <= value <= 1:
                raise ValueError(f"rewards: {value} for id {one}; must be in [0, 1].")
            if one != int(one) or not 0 <= one < self._next:
                raise ValueError(f"ids: {one} was never decided.")
            at = bisect_right(starts, one) - 1
            batch = self._batches[at] if at >= 0 else None
            if batch is None or one in places or not np.isnan(batch.rewards[int(one) - batch.first]):
                raise ValueError(
                    f"ids: {one} already has its final reward, or its window is over; each decision is scored once."
                )
            places[int(one)] = batch, value
        for one, (batch, value) in places.items():  # only now: a refused call has changed nothing
            batch.rewards[one - batch.first] = value

    def expire(self, before: int) -> None:
        for batch in self._batches:
            if batch.first >= before:
                break
            early = batch.rewards[: max(0, before - batch.first)]
            early[np.isnan(early)] = self.default_reward

    @property
    def n_ready(self) -> int:
        """How many rounds could be taken: all up to the first open one."""
        while self._n_whole < len(self._batches) and not np.isnan(self._batches[self._n_whole].rewards).any():
            self._n_ready += len(self._batches[self._n_whole])
            self._n_whole += 1
        if self._n_whole == len(self._batches):
            return self._n_ready
        return self._n_ready + int(np.argmax(np.isnan(self._batches[self._n_whole].rewards)))

    def take(self, n: int | None = None) -> Rounds | None:
        """The next `n` rounds (None: all that are ready); None where there are none."""
        n = self.n_ready if n is None else min(n, self.n_ready)
        parts: list[_Batch] = []
        missing = n
        while missing:
            batch = self._batches[0]
            if len(batch) <= missing:
                parts.append(self._batches.pop(0))
            else:
                parts.append(_part(batch, 0, missing))
                self._batches[0] = _part(batch, missing, len(batch))
            missing -= len(parts[-1])
        self._n_whole = self._n_ready = 0
        if not parts:
            return None
        return Rounds(
            stack([p.features for p in parts]),
            np.arange(n, dtype=np.int64),
            np.concatenate([p.actions for p in parts]),
            np.concatenate([p.rewards for p in parts]),
            np.concatenate([p.propensities for p in parts]),
            np.concatenate([np.full(len(p), p.version, dtype=np.int64) for p in parts]),
            first=parts[0].first,
            probabilities=np.concatenate([p.probabilities for p in parts]),
        )

    def state(self) -> dict[str, Any]:
        return {
            "next": self._next,
            "batches": [{**vars(b), "features": _packed(b.features)} for b in self._batches],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._next = int(state["next"])
        self._batches = [_Batch(**{**b, "features": _unpacked(b["features"])}) for b in state["batches"]]
        self._n_whole = self._n_ready = 0


def _part(batch: _Batch, start: int, stop: int) -> _Batch:
    s = slice(start, stop)
    return _Batch(
        batch.first + start, take(batch.features, np.arange(start, stop)), batch.actions[s], batch.propensities[s],
        batch.version, batch.probabilities[s], batch.rewards[s],
    )  # fmt: skip


def _packed(features: Features) -> dict[str, Any]:
    return {"dense": features} if isinstance(features, np.ndarray) else features._asdict()


def _unpacked(state: dict[str, Any]) -> Features:
    return state["dense"] if "dense" in state else Csr(**state)
