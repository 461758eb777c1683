"""The role of a policy, drawing actions from one, and its identity."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from seamark.rounds import Features, FloatArray, IntArray


@runtime_checkable
class Policy(Protocol):
    """Who acts: probabilities over a fixed set of actions. Deterministic given the context."""

    @property
    def n_actions(self) -> int: ...

    @property
    def min_probability(self) -> float:
        """Known lower bound of every action's probability; 0 where nothing is known beforehand."""
        ...

    @property
    def id(self) -> str:
        """Hash of the content: two policies with one id act alike."""
        ...

    def probabilities(self, contexts: Features) -> FloatArray:
        """Action probabilities, shape (n, n_actions); every row sums to one."""
        ...

    def frozen(self) -> Policy:
        """A policy that later training cannot change; `self` where that holds already."""
        ...


class Draw(NamedTuple):
    actions: IntArray
    propensities: FloatArray


def draw(probabilities: FloatArray, uniforms: FloatArray) -> Draw:
    """Actions by inverse CDF, one uniform each, with their true propensities.

    Takes the first action whose cumulated probability exceeds the uniform, hence never one of probability 0.
    """
    if not np.isfinite(probabilities).all():
        row = int(np.flatnonzero(~np.isfinite(probabilities).all(axis=1))[0])
        raise ValueError(
            f"probabilities: row {row} is {probabilities[row]}; must be finite, or no action can be drawn."
        )
    cumulated = np.cumsum(probabilities, axis=1)
    beyond = uniforms[:, None] * cumulated[:, -1:] >= cumulated
    actions = np.minimum(beyond.sum(axis=1), probabilities.shape[1] - 1).astype(np.int64)
    # rounding at the very end of the CDF must not pick an action of probability zero
    while (zero := probabilities[np.arange(actions.size), actions] <= 0).any():
        actions[zero] -= 1
    return Draw(actions, probabilities[np.arange(actions.size), actions])


def content_id(kind: str, parts: dict[str, Any]) -> str:
    """Hash of a policy's content, 16 hex digits; equal content gives equal ids on every machine."""
    digest = hashlib.sha256(kind.encode())
    for name in sorted(parts):
        value = parts[name]
        digest.update(name.encode())
        if isinstance(value, np.ndarray):
            digest.update(str((value.shape, value.dtype.str)).encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            digest.update(json.dumps(value, sort_keys=True, default=str).encode())
    return digest.hexdigest()[:16]
