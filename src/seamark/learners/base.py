"""The role of a learner: weights that improve from rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from seamark.policies import Policy
from seamark.rounds import Features, FloatArray, IntArray, Rounds


class Learner(Protocol):
    """Improves from rounds, in their order. Where it acts is somebody else's business."""

    def update(self, rounds: Rounds) -> FloatArray | None:
        """Learns from the rounds one after the other; may return its predictions made before learning."""
        ...

    def candidate(self) -> Policy:
        """What it would deploy now, in its acting form: a live view, `frozen()` keeps it."""
        ...

    def state(self) -> dict[str, Any]:
        """Arrays and plain values from which `restore` continues with the same bits."""
        ...

    def restore(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True, eq=False)
class Answers:
    """How a simulated labelled world answers: reward 1 with probability `right` for the label, else `wrong`."""

    features: Features
    labels: IntArray
    right: float
    wrong: float


class Draws(NamedTuple):
    """The contexts of a leg and its randomness, drawn outside the kernels by role."""

    rows: IntArray
    actions: FloatArray
    """One uniform per round, for the action."""
    rewards: FloatArray
    """One uniform per round, for the reward."""
    learner: np.random.Generator
    """For what a method draws itself (posterior samples, perturbations)."""


class Acted(NamedTuple):
    actions: IntArray
    rewards: FloatArray
    propensities: FloatArray
    expected: FloatArray
    """Expected reward, given the context, of the policy that acted."""


def acted(n: int) -> Acted:
    """Room for the results of n rounds."""
    return Acted(np.empty(n, dtype=np.int64), np.empty(n), np.empty(n), np.empty(n))


class OnlineLearner(Learner, Protocol):
    """A learner whose own policy acts and moves every round, in one compiled loop over a leg."""

    def run(self, answers: Answers, draws: Draws) -> Acted: ...
