"""Worlds with known values, and compiled runs of a fixed pair, for the tests of the challenger gate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from scipy.stats import binom

from seamark.gates.base import Decision
from seamark.kernels.challenger import mean_reward, multiply, paired_scores
from seamark.policies import ConstantPolicy
from seamark.policies.base import draw
from seamark.rounds import Rounds


def assert_rate_at_most(misses: int, trials: int, rate: float, *, false_alarm: float = 1e-6) -> None:
    p_value = binom.sf(misses - 1, trials, rate)
    assert p_value > false_alarm, f"{misses}/{trials} where at most {rate} was promised (p = {p_value:.1e})"


def play(
    acting: Any, features: Any, means: Any, n: int, rng: Any, *, first: int = 0, version: int = 0, keep: bool = False
) -> Rounds:
    """n rounds of a policy in random contexts of the pool, with Bernoulli rewards of the given means."""
    rows = rng.integers(0, len(features), n)
    p = acting.probabilities(features)[rows]
    drawn = draw(p, rng.random(n))
    rewards = (rng.random(n) < means[rows, drawn.actions]).astype(float)
    versions = np.full(n, version, dtype=np.int64)
    full = p if keep else None
    return Rounds(features, rows, drawn.actions, rewards, drawn.propensities, versions, first, True, full)


def run_pair(
    gate: Any, deployed: Any, candidate: Any, features: Any, means: Any, rng: Any, *, n: int, leg: int = 100
) -> Decision | None:
    """The decision that deploys `candidate`, tested from the first round on, within n rounds; None if there is none."""
    gate.reign(deployed, 0, 0)
    gate.offer(candidate, gate.first_freeze)
    for first in range(0, n, leg):
        acting = gate.acting(deployed)
        rounds = play(acting, features, means, leg, rng, first=first, keep=gate.explore_share > 0)
        decision = gate.observe(rounds, deployed)
        if decision and decision.deploys:
            return decision
    return None


ONE_CONTEXT = np.zeros((1, 1))


def two_actions(first: float) -> ConstantPolicy:
    return ConstantPolicy([first, 1 - first])


@njit
def null_runs(n_runs, n_rounds, d, h, means, truncations, bounds, bets, threshold, rng):
    """Number of runs in which the mixture ever, looked at after every round, reaches the threshold. One context."""
    e, j = bets.shape
    z = np.empty(e)
    q = np.empty(d.size)
    fired = 0
    needed = math.exp(threshold) * e * j
    for _ in range(n_runs):
        log_capital = np.zeros((e, j))
        capital = np.ones((e, j))
        mean = np.zeros(2)
        for _ in range(n_rounds):
            u = rng.random()
            a = 0
            below = d[0]
            while u >= below and a < d.size - 1:
                a += 1
                below += d[a]
            r = 1.0 if rng.random() < means[a] else 0.0
            q[:] = mean_reward(mean)
            paired_scores(h, d, d, q, a, r, truncations, z)
            mean[0] += 1.0
            mean[1] += r
            total = 0.0
            for i in range(e):
                multiply(log_capital[i], capital[i], bets[i], z[i])
                for k in range(j):
                    total += capital[i, k] if log_capital[i, k] == 0.0 else capital[i, k] * math.exp(log_capital[i, k])
            if total >= needed:
                fired += 1
                break
    return fired
