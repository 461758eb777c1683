"""The benchmark's worlds: who serves in them, and, where candidates are fixed, what is offered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from seamark.experiments.safety.learners import ScoredPolicy
from seamark.policies import ActingForm, LinearPolicy, Policy
from seamark.rounds import FloatArray, IntArray, as_features
from seamark.worlds.datasets import load
from seamark.worlds.drift import DriftingWorld
from seamark.worlds.supervised import SupervisedWorld, reward_noise, train_baseline

EPSILON = 0.1


@dataclass(frozen=True, eq=False)
class Setup:
    """A world for one seed, with who serves it. `candidates`: fixed ones, none of them better than the baseline."""

    world: DriftingWorld
    baseline: Policy
    acts: ActingForm
    candidates: Callable[[int], Policy] | None = None


ACTS = ActingForm.epsilon_greedy(EPSILON)
NEVER = 2**62


def still(world: SupervisedWorld) -> DriftingWorld:
    """The same world, for ever."""
    return DriftingWorld(world, world, NEVER)


@cache
def digits_world(rewards: str) -> SupervisedWorld:
    return SupervisedWorld.of(load("digits"), rewards)


@cache
def text_world(rewards: str = "near-random", *, contexts: int = 3_000, words: int = 10_000, n_actions: int = 10) -> Any:
    """Sparse text-like contexts: words by a power law, a label's own words six times as likely; unit length."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(20200406)
    labels = rng.integers(0, n_actions, contexts).astype(np.int64)
    base = 1.0 / (np.arange(words) + 10.0)
    topical = rng.random((n_actions, words)) < 0.05
    rows, columns = [], []
    for label in range(n_actions):
        p = base * np.where(topical[label], 6.0, 1.0)
        mine = np.flatnonzero(labels == label)
        drawn = rng.choice(words, size=(mine.size, 40), p=p / p.sum())
        rows.append(np.repeat(mine, 40))
        columns.append(drawn.ravel())
    r, c = np.concatenate(rows), np.concatenate(columns)
    x = csr_matrix((np.ones(r.size), (r, c)), shape=(contexts, words))
    x.sum_duplicates()
    x.data = np.log1p(x.data)
    x = x.multiply(1.0 / np.sqrt(np.asarray(x.multiply(x).sum(axis=1)))).tocsr()
    features = as_features(x)
    right, wrong = reward_noise(rewards)
    return SupervisedWorld(f"text-{rewards}", features, labels, features, labels, n_actions, right, wrong)


def _linear(world: SupervisedWorld, seed: int, rows: int) -> LinearPolicy:
    fraction = rows / world.n_contexts
    return train_baseline(world, seed=seed, fraction=fraction, lr=0.05 / world.norm, epochs=20, acts=ACTS).policy


def _learned(make: Callable[[], SupervisedWorld], rows: int) -> Callable[[int], Setup]:
    def setup(seed: int) -> Setup:
        world = make()
        return Setup(still(world), _linear(world, seed, rows), ACTS)

    return setup


def by_row(table: FloatArray) -> Callable[[Any], FloatArray]:
    """Scores looked up by the context's only feature, its number."""
    return lambda contexts: table[np.asarray(contexts)[:, 0].astype(np.int64)]


def numbered(world: SupervisedWorld) -> SupervisedWorld:
    """The world with the number of each context as its only feature, for policies that are tables."""
    rows = np.arange(world.n_contexts, dtype=np.float64)[:, None]
    return SupervisedWorld(
        f"{world.name}-numbered", rows, world.labels, rows, world.labels, world.n_actions, world.right, world.wrong
    )


def choosing(world: SupervisedWorld, actions: IntArray) -> ScoredPolicy:
    """The policy that prefers the given action in each numbered context, in the baseline's form."""
    one_hot = np.eye(world.n_actions)[actions]
    return ScoredPolicy.of(by_row(one_hot), world.features, ACTS)


def _no_better(n_right: int, n_wrong: int) -> Callable[[int], Setup]:
    """Candidates that set `n_right` of the baseline's errors right and spoil `n_wrong` of its right answers."""

    def setup(seed: int) -> Setup:
        digits = digits_world("perfect")
        chosen = _linear(digits, seed, 100).probabilities(digits.features).argmax(axis=1).astype(np.int64)
        world = numbered(digits)

        def candidate(number: int) -> Policy:
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(99, number)))
            is_right = chosen == world.labels
            actions = chosen.copy()
            fixed = rng.choice(np.flatnonzero(~is_right), n_right, replace=False)
            spoilt = rng.choice(np.flatnonzero(is_right), n_wrong, replace=False)
            actions[fixed] = world.labels[fixed]
            actions[spoilt] = (world.labels[spoilt] + rng.integers(1, world.n_actions, n_wrong)) % world.n_actions
            return choosing(world, actions)

        return Setup(still(world), choosing(world, chosen), ACTS, candidate)

    return setup


def _drift(at: int) -> Callable[[int], Setup]:
    """Is the digit 5 or more? From round `at` on the answers are swapped."""

    def setup(seed: int) -> Setup:
        digits = digits_world("perfect")
        labels, test_labels = ((y >= 5).astype(np.int64) for y in (digits.labels, digits.test_labels))
        x, test = (
            np.column_stack([f, np.ones(len(f))]) for f in map(np.asarray, (digits.features, digits.test_features))
        )
        world = SupervisedWorld("digits-halves", x, labels, test, test_labels, 2, 1.0, 0.0)
        return Setup(DriftingWorld.permuting(world, [1, 0], at), _linear(world, seed, 20), ACTS)

    return setup


WEAK, STRONG = 30, 1_000
DRIFT_AT = 5_000
WORLDS: dict[str, Callable[[int], Setup]] = {
    "digits-perfect-weak": _learned(lambda: digits_world("perfect"), WEAK),
    "digits-perfect-strong": _learned(lambda: digits_world("perfect"), STRONG),
    "digits-near-random-weak": _learned(lambda: digits_world("near-random"), WEAK),
    "digits-near-random-strong": _learned(lambda: digits_world("near-random"), STRONG),
    "text-perfect-weak": _learned(lambda: text_world("perfect"), 100),
    "text-near-random-weak": _learned(lambda: text_world("near-random"), 100),
    "text-near-random-strong": _learned(lambda: text_world("near-random"), 2_000),
    "null": _no_better(100, 100),
    "worse": _no_better(100, 110),
    "drift": _drift(DRIFT_AT),
}
FIXED_WORLDS = ("null", "worse")
