"""What several test modules need: rates, sparse copies, small worlds and random logs."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.stats import binom

from seamark.policies import ActingForm, LinearPolicy, Policy, draw
from seamark.rounds import Csr, Features, FloatArray, Rounds, as_features, n_contexts, take
from seamark.worlds.supervised import SupervisedWorld


def assert_rate_at_most(misses: int, trials: int, rate: float, *, false_alarm: float = 1e-6) -> None:
    """Fails when so many misses would have a probability below `false_alarm` at the promised rate."""
    p_value = binom.sf(misses - 1, trials, rate)
    assert p_value > false_alarm, f"{misses}/{trials} misses where at most {rate} was promised (p = {p_value:.1e})"


def csr(array: FloatArray) -> Csr:
    features = as_features(csr_matrix(array))
    assert isinstance(features, Csr)
    return features


def in_form(array: FloatArray, sparse: bool) -> Features:
    return csr(array) if sparse else array


def with_zeros(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Contexts, some of whose features are zero."""
    x = rng.normal(size=(n, d))
    x[rng.random((n, d)) < 0.3] = 0.0
    return x


def random_linear(
    rng: np.random.Generator, n_actions: int, d: int, *, tau: float = 0.7, floor: float = 0.1
) -> LinearPolicy:
    return LinearPolicy(rng.normal(size=(n_actions, d)), ActingForm(tau, floor)).frozen()


def drawn_rounds(
    rng: np.random.Generator,
    policy: Policy,
    pool: Features,
    n: int,
    *,
    rewards: Any = None,
    recurring: bool = True,
    version: int = 0,
    first: int = 0,
) -> Rounds:
    """Rounds that the policy drew over a pool of contexts; rewards(rows, actions), or coin tosses of random bias."""
    rows = rng.integers(0, n_contexts(pool), n)
    probabilities = policy.probabilities(pool)[rows]
    drawn = draw(probabilities, rng.random(n))
    reward = rng.integers(0, 2, n).astype(float) if rewards is None else rewards(rows, drawn.actions)
    return Rounds.of(
        pool if recurring else take(pool, rows),
        drawn.actions,
        reward,
        drawn.propensities,
        n_actions=policy.n_actions,
        context_ids=rows if recurring else None,
        versions=version,
        first=first,
        probabilities=probabilities,
    )


def small_world(
    *, sparse: bool = False, n: int = 60, d: int = 6, n_actions: int = 3, right: float = 1.0, wrong: float = 0.0,
    seed: int = 5, name: str = "small", sha256: str = "0123",
) -> SupervisedWorld:  # fmt: skip
    """Clusters around one direction per label, with a little noise: learnable, not trivial."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_actions, d))

    def part(m: int) -> tuple[Features, Any]:
        labels = np.arange(m, dtype=np.int64) % n_actions
        x = centres[labels] + 0.5 * rng.normal(size=(m, d))
        x[rng.random((m, d)) < 0.2] = 0.0
        return in_form(x / np.sqrt(d), sparse), labels

    features, labels = part(n)
    test_features, test_labels = part(n // 2)
    return SupervisedWorld(
        name, features, labels, test_features, test_labels, n_actions, right, wrong, sha256, ()
    )  # fmt: skip


class Raising:
    """A learner that fails when it is to learn; a factory of it stands in a methods table."""

    def __init__(self, policy: Any, error: BaseException) -> None:
        self.policy, self.error = policy, error

    @classmethod
    def factory(cls, error: BaseException) -> Any:
        def make(options: Any, world: Any, baseline: Any, setting: Any) -> Raising:
            return cls(getattr(baseline, "policy", None) or baseline.ranker, error)

        return make

    def update(self, rounds: Any) -> None:
        raise self.error

    def candidate(self) -> Any:
        return self.policy
