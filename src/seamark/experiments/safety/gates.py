"""The gates under test: ours, the paper's, and the obvious repair of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from seamark.estimation import ActionSums, maurer_pontil_radius
from seamark.gates import ChallengerGate, Decision, Gate, HoldoutGate, MeansGate, PaperGate
from seamark.gates.base import Records
from seamark.policies import Policy
from seamark.rounds import Rounds, n_features
from seamark.worlds.supervised import SupervisedWorld


class PairedReusedGate:
    """Maurer-Pontil on the paired difference, on the data that the candidate learned from: a repair that is none.

    b is the span of the difference: 1 / p_min while every logged round has p = d, twice that after a deployment.
    """

    name = "paired-mp"

    def __init__(self, n_actions: int, *, delta: float = 0.05) -> None:
        self.delta, self.sums = delta, ActionSums(n_actions)
        self._deployed: Policy | None = None
        self._p_min, self._reigns = math.inf, 0
        self._records = Records("at", "mean_lift", "lower", "verdict")

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        self._deployed, self._reigns = deployed, self._reigns + 1
        self._p_min = min(self._p_min, deployed.min_probability)

    def acting(self, deployed: Policy) -> Policy:
        return deployed

    def observe(self, rounds: Rounds, deployed: Policy) -> None:
        self.sums.add(rounds, deployed)

    def wants(self, at: int) -> bool:
        return True

    def offer(self, candidate: Policy, at: int) -> Decision:
        assert self._deployed is not None  # `reign` comes first
        moments = self.sums.paired_moments(candidate, self._deployed)
        span = (1 if self._reigns == 1 else 2) / self._p_min
        lower = moments.mean - maurer_pontil_radius(moments, upper=span, delta=self.delta)
        verdict: Literal["promote", "hold"] = "promote" if lower > 0 else "hold"
        self._records.add(at=at, mean_lift=moments.mean, lower=lower, verdict=verdict)
        evidence = {"mean_lift": moments.mean, "lower": lower}
        return Decision(verdict, at, candidate.frozen() if lower > 0 else None, evidence, ("paired-bound",))

    def records(self) -> dict[str, list[Any]]:
        return self._records.columns()

    def state(self) -> dict[str, Any]:
        return {"sums": self.sums.state(), "p_min": self._p_min, "reigns": self._reigns, "records": self.records()}

    def restore(self, state: dict[str, Any]) -> None:
        self.sums.restore(state["sums"])
        self._p_min, self._reigns = float(state["p_min"]), int(state["reigns"])
        self._records.restore(state["records"])


def _challenger(world: SupervisedWorld, delta: float, seed: int) -> Gate:
    narrow = isinstance(world.features, np.ndarray) and 8 <= n_features(world.features) <= 256
    return ChallengerGate(world.n_actions, delta=delta, reward_model="ridge" if narrow else "mean")


GATES: dict[str, Callable[[SupervisedWorld, float, int], Gate]] = {
    "paper": lambda world, delta, seed: PaperGate(world.n_actions, delta=delta),
    # uncapped: the published cap of 0.1 would count the explored tenth of these worlds at a tenth of its worth
    "released": lambda world, delta, seed: PaperGate(world.n_actions, delta=delta, semantics="released", cap=0.0),
    "means": lambda world, delta, seed: MeansGate(world.n_actions),
    "paired-mp": lambda world, delta, seed: PairedReusedGate(world.n_actions, delta=delta),
    "holdout": lambda world, delta, seed: HoldoutGate(world.n_actions, delta=delta, seed=seed),
    "challenger": _challenger,
}
PROMISING = ("holdout", "challenger")
"""Gates that promise at most delta false runs whatever the learner."""


class CpuWatch:
    """A gate and the CPU seconds that it takes; other programs on the machine do not count."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.seconds = gate, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.gate, name)

    def observe(self, rounds: Rounds, deployed: Policy) -> Any:
        start = time.thread_time()
        decision = self.gate.observe(rounds, deployed)
        self.seconds += time.thread_time() - start
        return decision

    def offer(self, candidate: Policy, at: int) -> Any:
        start = time.thread_time()
        decision = self.gate.offer(candidate, at)
        self.seconds += time.thread_time() - start
        return decision
