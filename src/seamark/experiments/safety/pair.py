"""Two policies that do not learn: how many rounds a gate takes to see that one is better, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from seamark.experiments.safety.gates import CpuWatch
from seamark.experiments.safety.summary import median_with_never
from seamark.experiments.safety.worlds import by_row, choosing, digits_world, numbered
from seamark.gates import ChallengerGate, Gate, PaperGate
from seamark.policies import Policy
from seamark.randomness import Stream, stream
from seamark.rounds import FloatArray, Rounds
from seamark.worlds.supervised import SupervisedWorld


@dataclass(frozen=True, eq=False)
class FixedPair:
    """Two policies that do not learn, and the reward model of an outsider."""

    world: SupervisedWorld
    deployed: Policy
    candidate: Policy
    reward_model: Callable[[Any], FloatArray]

    @property
    def gain(self) -> float:
        return self.world.value(self.candidate) - self.world.value(self.deployed)


PAIR_LABELS = {"reward model": 200, "deployed": 60, "candidate": 300}


@cache
def fixed_pair(rewards: str = "perfect") -> FixedPair:
    """ "Perfect, mid": logistic regressions on 60 and on 300 labels of digits, epsilon-greedy at 0.1; gain about 0.09.

    The reward model is a logistic regression on 200 other labels: its probability of the action being right, turned
    into an expected reward. Labels are disjoint, drawn by a fixed permutation.
    """
    from sklearn.linear_model import LogisticRegression

    digits = digits_world(rewards)
    x, world = np.asarray(digits.features), numbered(digits)
    order = np.random.default_rng(20200406).permutation(digits.n_contexts)
    models, start = {}, 0
    for name, n in PAIR_LABELS.items():
        rows = order[start : start + n]
        models[name] = LogisticRegression(C=1.0, max_iter=500).fit(x[rows], digits.labels[rows])
        start += n
    policies = {name: choosing(world, models[name].predict(x)) for name in ("deployed", "candidate")}
    q = world.expected_reward(models["reward model"].predict_proba(x))
    return FixedPair(world, policies["deployed"], policies["candidate"], by_row(q))


def rounds_to_deploy(pair: FixedPair, gate: str, *, seed: int, limit: int, leg: int = 100) -> tuple[int | None, float]:
    """Rounds until the pair's candidate, offered from the start, is deployed, looked at every `leg` rounds; and the
    gate's microseconds per round. Gates: paper, challenger (with the pair's reward model), challenger-mean."""
    from seamark.kernels.linear import act_from_table

    world = pair.world
    made: Gate
    if gate == "paper":
        made = PaperGate(world.n_actions)
    else:
        model = "mean" if gate == "challenger-mean" else pair.reward_model
        made = ChallengerGate(world.n_actions, reward_model=model, first_freeze=1)  # type: ignore[arg-type]  # a union
    contexts, actions, rewards = (stream(seed, r) for r in (Stream.CONTEXTS, Stream.ACTIONS, Stream.REWARDS))
    made.reign(pair.deployed, 0, 0)
    watch = CpuWatch(made)
    if gate != "paper":
        made.offer(pair.candidate, 1)
    table = pair.deployed.probabilities(world.features)
    for t in range(0, limit, leg):
        rows = world.contexts(contexts.random(leg))
        acted, p = np.empty(leg, dtype=np.int64), np.empty(leg)
        act_from_table(table, rows, actions.random(leg), acted, p)
        reward = world.rewards(rows, acted, rewards.random(leg))
        rounds = Rounds(world.features, rows, acted, reward, p, np.zeros(leg, dtype=np.int64), t, True)
        decision = watch.observe(rounds, pair.deployed)
        if gate == "paper":
            decision = watch.offer(pair.candidate, t + leg)
        if decision is not None and decision.deploys:
            return t + leg, 1e6 * watch.seconds / (t + leg)
    return None, 1e6 * watch.seconds / limit


def pair_medians(rewards: str = "perfect", *, seeds: int = 20, limit: int = 150_000) -> list[dict[str, Any]]:
    """Median rounds to deploy on the fixed pair, per gate."""
    pair, rows = fixed_pair(rewards), []
    for gate in ("paper", "challenger-mean", "challenger"):
        found = [rounds_to_deploy(pair, gate, seed=4200 + i, limit=limit) for i in range(seeds)]
        times = [math.inf if t is None else float(t) for t, _ in found]
        median = median_with_never(times)
        rows.append(
            {
                "gate": gate, "gain": pair.gain, "seeds": seeds, "deployed": sum(map(math.isfinite, times)),
                "median": median if math.isfinite(median) else None,
                "us_per_round": float(np.median([us for _, us in found])),
            }
        )  # fmt: skip
    return rows


def cost_per_slot(*, slots: int = 4, rounds: int = 200_000, leg: int = 1_000, reward_model: Any = "mean") -> float:
    """CPU microseconds per round and slot of the challenger gate: digits, 10 actions, candidates that always differ."""
    from seamark.kernels.linear import act_from_table

    pair = fixed_pair("near-random")
    world, base = pair.world, pair.deployed.probabilities(pair.world.features).argmax(axis=1).astype(np.int64)
    gate = ChallengerGate(
        world.n_actions, slots=slots, first_freeze=1, growth=1.01, rollback=False, reward_model=reward_model
    )
    gate.reign(pair.deployed, 0, 0)
    for i in range(slots):  # differ from the deployed policy in every context, mostly for the worse: they stay
        gate.offer(choosing(world, (base + i + 1) % world.n_actions), 10 * (i + 1))
    watch, table = CpuWatch(gate), pair.deployed.probabilities(world.features)
    rng, warm = np.random.default_rng(0), 0.0
    for t in range(0, rounds, leg):
        rows = world.contexts(rng.random(leg))
        acted, p = np.empty(leg, dtype=np.int64), np.empty(leg)
        act_from_table(table, rows, rng.random(leg), acted, p)
        reward = world.rewards(rows, acted, rng.random(leg))
        watch.observe(
            Rounds(world.features, rows, acted, reward, p, np.zeros(leg, dtype=np.int64), t, True), pair.deployed
        )
        if t == 0:
            warm = watch.seconds  # compiling, and filling the tables
    assert len(gate.why()["challengers"]) == slots
    return 1e6 * (watch.seconds - warm) / (rounds - leg) / slots
