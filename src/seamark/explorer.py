"""Algorithm 1 on one page: a trusted policy serves, a learner improves, a gate hands over.

`Explorer.absorb` is one leg of the loop, for rounds that happened. `decide` and `reward` feed it from live traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from seamark.gates import ChallengerGate, Decision, Gate, Schedule
from seamark.gates.base import training_part
from seamark.learners.base import Learner
from seamark.learners.default import default_learner
from seamark.pending import Pending
from seamark.persist import load_state, save_state
from seamark.policies import Policy, as_policy, draw
from seamark.policies.saving import policy_from, policy_state
from seamark.rounds import FloatArray, IntArray, Rounds, as_features, n_contexts


class Decisions(NamedTuple):
    """What was decided: an id for the reward, the action, and the probability with which it was drawn."""

    ids: IntArray
    actions: IntArray
    propensities: FloatArray
    version: int


class Explorer:
    """Keeps `baseline` serving, learns from its traffic, deploys a candidate when `gate` says so.

    Without a gate named it is the challenger gate: valid for any learner, over the whole run (docs/guarantee.md).

    >>> import numpy as np, seamark
    >>> from seamark.policies import ActingForm, LinearPolicy
    >>> baseline = LinearPolicy(np.zeros((2, 1)), ActingForm.softmax(1.0, floor=0.1))
    >>> explorer = seamark.Explorer(baseline, seed=1)
    >>> while explorer.version == 0:                                  # action 1 is right when x > 0
    ...     x = np.array([[1.0], [-1.0]]).repeat(50, axis=0)
    ...     decisions = explorer.decide(x)
    ...     explorer.reward(decisions.ids, decisions.actions == (x[:, 0] > 0))
    >>> bool(explorer.deployed.probabilities(np.array([[1.0]]))[0, 1] > 0.6)
    True

    baseline: a policy, or a classifier with scikit-learn's interface whose classes are the actions 0, 1, ...
    learner: "portfolio" (the default, needs no tuning), "ips" (the paper's, from a linear baseline), or any `Learner`.
    schedule: when candidates are offered to the gate; see `Schedule.parse`.
    window: a decision still without reward after this many later ones is closed with `default_reward` (None: wait
    for ever; the first open decision holds up all later ones, because evidence is read in decision order).
    """

    def __init__(
        self,
        baseline: Any,
        *,
        gate: Gate | None = None,
        learner: Learner | str = "portfolio",
        schedule: Schedule | str = "published",
        seed: int = 0,
        window: int | None = None,
        default_reward: float = 0.0,
        on_decision: Callable[[Decision], None] | None = None,
    ) -> None:
        self.baseline = self.deployed = as_policy(baseline).frozen()
        self.learner = default_learner(learner, self.baseline) if isinstance(learner, str) else learner
        self.gate: Gate = gate if gate is not None else ChallengerGate(self.baseline.n_actions)
        self.schedule = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
        self.version = 0
        self.t = 0
        self.deployments: list[Decision] = []
        self.on_decision = on_decision
        self._rng = np.random.default_rng(seed)
        self._pending = Pending(window, default_reward)
        self.gate.reign(self.deployed, 0, 0)

    # -- Algorithm 1 ---------------------------------------------------------------------------------------------

    def absorb(self, rounds: Rounds) -> Decision | None:
        """One leg of Algorithm 1 for closed rounds (lines 6-15); returns what the gate decided, if it did.

        The order is part of the guarantee: evidence first, then learning, then the offer of what was learned.
        """
        decision = self._deploy(self.gate.observe(rounds, self.deployed))
        self.learner.update(training_part(self.gate, rounds))
        due = self.t + len(rounds) >= self.schedule.after(self.t)
        self.t += len(rounds)
        if due and not (decision and decision.deploys) and self.gate.wants(self.t):
            decision = self._deploy(self.gate.offer(self.learner.candidate(), self.t)) or decision
        return decision

    def _deploy(self, decision: Decision | None) -> Decision | None:
        if decision is not None:
            if decision.deploys and decision.policy is not None:
                self.deployed = decision.policy
                self.version += 1
                self.deployments.append(decision)
                self.gate.reign(self.deployed, decision.at, self.version)
            if self.on_decision:
                self.on_decision(decision)
        return decision

    @property
    def acting(self) -> Policy:
        """Who draws the actions: the deployed policy, unless the gate spends exploration on its candidates."""
        return self.gate.acting(self.deployed)

    # -- live traffic --------------------------------------------------------------------------------------------

    def decide(self, contexts: Any) -> Decisions:
        """Actions for contexts (n, d), drawn from the deployed policy, with their true propensities."""
        features = as_features(contexts)
        probabilities = self.acting.probabilities(features)
        drawn = draw(probabilities, self._rng.random(n_contexts(features)))
        version = self.version  # before rounds that this call closes may deploy another
        ids = self._pending.add(features, drawn.actions, drawn.propensities, version, probabilities)
        self._absorb_closed()
        return Decisions(ids, drawn.actions, drawn.propensities, version)

    def reward(self, ids: ArrayLike, values: ArrayLike) -> None:
        """Final rewards in [0, 1] of earlier decisions, in any order."""
        self._pending.close(np.atleast_1d(np.asarray(ids)), np.atleast_1d(np.asarray(values, dtype=np.float64)))
        self._absorb_closed()

    def expire(self, before: int) -> None:
        """Closes all decisions with an id below `before` that still have no reward, with the default reward."""
        self._pending.expire(before)
        self._absorb_closed()

    @property
    def open_decisions(self) -> int:
        """How many decisions wait for their reward."""
        return self._pending.n_open

    def _absorb_closed(self) -> None:
        while self._pending.n_ready >= (leg := self.schedule.after(self.t) - self.t):
            if (rounds := self._pending.take(leg)) is not None:  # a leg ends at a check
                self.absorb(rounds)

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Writes everything that the next decisions depend on; of past deployments the record, not the policies."""
        save_state(
            path,
            {
                "baseline": self.baseline.id, "deployed": policy_state(self.deployed, self.baseline),
                "version": self.version, "t": self.t,
                "deployments": [
                    {"verdict": d.verdict, "at": d.at, "evidence": d.evidence, "reasons": list(d.reasons)}
                    for d in self.deployments
                ],
                "schedule": [self.schedule.kind, self.schedule.every],
                "learner": self.learner.state(), "gate": self.gate.state(), "pending": self._pending.state(),
                "rng": self._rng.bit_generator.state,
            },
        )  # fmt: skip

    def load(self, path: str | Path) -> Explorer:
        """Continues where the saved explorer stopped; `self` must be built with the same baseline, learner and gate.

        Returns self, so `Explorer(baseline).load(path)` reads as one step.
        """
        state = load_state(path)
        if state["baseline"] != self.baseline.id:
            raise ValueError(
                f"baseline: not the one of {path}; build the explorer with the same, then load. "
                "A policy that is code is known by its name=."
            )
        self.deployed = policy_from(state["deployed"], self.baseline)
        self.deployments = [Decision(**{**d, "reasons": tuple(d["reasons"])}) for d in state["deployments"]]
        self.version, self.t = int(state["version"]), int(state["t"])
        kind, every = state["schedule"]
        self.schedule = Schedule(kind, int(every))
        self.learner.restore(state["learner"])
        self.gate.restore(state["gate"])
        self._pending.restore(state["pending"])
        self._rng.bit_generator.state = state["rng"]
        return self
