"""One run: a gate, a learner and a world for a seed, judged by exact values."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from seamark.experiments.safety.gates import GATES, CpuWatch
from seamark.experiments.safety.learners import LEARNERS, FixedCandidates
from seamark.experiments.safety.worlds import NEVER, WORLDS
from seamark.explorer import Explorer
from seamark.gates import Decision, Gate, Schedule
from seamark.learners.base import Learner
from seamark.policies import Policy
from seamark.randomness import Stream, stream
from seamark.rounds import Rounds

SCHEMA = 1
RESULT = ("id", "gate", "learner", "world", "rounds", "deployments", "worst_value_change", "reward_over_baseline",
          "us_per_round")  # fmt: skip
"""What a summary needs of a finished run."""
EQUAL = 1e-9
"""Values closer than this are equal: both are sums of thousands of floats."""


@dataclass(frozen=True)
class SafetyCell:
    gate: str
    learner: str
    world: str
    seed: int
    rounds: int
    check: int
    delta: float = 0.05

    @property
    def id(self) -> str:
        text = json.dumps({"safety": SCHEMA, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_cell(cell: SafetyCell) -> dict[str, Any]:
    """One run: its deployments with their true values, what it earned, and the time its gate took."""
    from seamark.kernels.linear import act_from_table

    setup = WORLDS[cell.world](cell.seed)
    drifting, base = setup.world, setup.baseline
    world = drifting.before
    learner: Learner
    if setup.candidates is not None:
        learner = FixedCandidates(setup.candidates)
    else:
        learner = LEARNERS[cell.learner](world, base, setup.acts, cell.seed)
    watch = CpuWatch(GATES[cell.gate](world, cell.delta, cell.seed))
    schedule = Schedule("every", cell.check)
    explorer = Explorer(base, learner=learner, gate=cast(Gate, watch), schedule=schedule)
    contexts, actions, rewards = (stream(cell.seed, r) for r in (Stream.CONTEXTS, Stream.ACTIONS, Stream.REWARDS))
    base_table = base.probabilities(world.features)
    table, acting, t, gain = base_table, explorer.acting, 0, 0.0
    values = {0: (drifting.before.value(base), drifting.after.value(base))}
    deployments: list[dict[str, Any]] = []
    worst = 0.0
    policies: list[Policy] = [base]
    while t < cell.rounds:
        n = min(schedule.after(t), cell.rounds, drifting.at if t < drifting.at else NEVER) - t
        now = drifting.world(t)
        rows = now.contexts(contexts.random(n))
        acted, p = np.empty(n, dtype=np.int64), np.empty(n)
        act_from_table(table, rows, actions.random(n), acted, p)
        gained = table - base_table
        gain += float((now.right - now.wrong) * gained[rows, now.labels[rows]].sum())
        reward = now.rewards(rows, acted, rewards.random(n))
        versions = np.full(n, explorer.version, dtype=np.int64)
        explorer.absorb(Rounds(world.features, rows, acted, reward, p, versions, t, True))
        t += n
        for decision in explorer.deployments[len(deployments) :]:
            assert decision.policy is not None  # it deploys
            policies.append(decision.policy)
            k = len(deployments)
            values[k + 1] = (drifting.before.value(decision.policy), drifting.after.value(decision.policy))
            late = decision.at >= drifting.at
            start = _judged_from(cell.gate, decision, deployments)
            early = min(max(drifting.at - start, 0), decision.at - start) / (decision.at - start)
            change = [new - old for new, old in zip(values[k + 1], values[k])]
            judged = early * change[0] + (1 - early) * change[1]
            allowed = EQUAL if setup.candidates is not None else -EQUAL
            deployments.append(
                {
                    "at": decision.at, "verdict": decision.verdict, "value_change": judged,
                    "is_false": judged <= allowed, "value_over_baseline": values[k + 1][late] - values[0][late],
                }
            )  # fmt: skip
        after = t >= drifting.at
        worst = min(worst, values[len(deployments)][after] - values[0][after])
        if explorer.acting is not acting:
            acting = explorer.acting
            table = acting.probabilities(world.features)
    return {
        "schema": SCHEMA, "id": cell.id, **asdict(cell), "deployments": deployments,
        "worst_value_change": min([worst, *(d["value_over_baseline"] for d in deployments)]),
        "reward_over_baseline": gain, "us_per_round": 1e6 * watch.seconds / cell.rounds,
        "value_of_baseline": values[0][0], "value_at_end": values[len(deployments)][t >= drifting.at],
    }  # fmt: skip


def _judged_from(gate: str, decision: Decision, before: list[dict[str, Any]]) -> int:
    """The first round that the gate's evidence is about."""
    if gate == "challenger":
        return decision.at - int(decision.evidence["n"])
    return int(before[-1]["at"]) if gate == "holdout" and before else 0
