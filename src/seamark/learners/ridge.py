"""Ridge learners, one regression per action, dense contexts: LinUCB, Thompson sampling (and CLUCB, in `clucb`).

Per action V = l2 I + sum x x', b = sum r x, theta = V^-1 b, over the rounds in which it was played (and a warm
start's rows). O(n_actions d^2) per round: for d up to about 1,000 (`bytes_needed`); the published implementation
inverts by O(d^3) products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from seamark.learners.base import Acted, Answers, Draws, acted
from seamark.policies import ActingForm, LinearPolicy
from seamark.policies.optimistic import OptimisticPolicy, PosteriorPolicy, refuse_sparse
from seamark.rounds import Features, FloatArray, IntArray, Rounds, as_features, n_contexts, n_features

_LEG = 65_536  # rounds whose normals Thompson sampling holds at a time


def bytes_needed(n_actions: int, n_features: int) -> int:
    """Memory of the matrices of a ridge learner: n_actions d^2 numbers of 8 bytes.

    >>> bytes_needed(10, 256), bytes_needed(20, 62_061)
    (5242880, 616250835360)
    """
    return n_actions * n_features**2 * 8


class Arms(NamedTuple):
    """What the kernels keep per action; the layout is described in `seamark.kernels.ridge`."""

    packed: FloatArray
    diagonals: FloatArray
    weights: FloatArray
    responses: FloatArray
    counts: IntArray


class Budget(NamedTuple):
    """CLUCB's constraint, kept in step round by round. y = (phi of what is played) - (1 - alpha) phi_b, summed: m."""

    balances: FloatArray
    """m, per action, (n_actions, d)."""
    images: FloatArray
    """g_a = A_a m_a, (n_actions, d)."""
    norms: FloatArray
    """m_a' A_a m_a, (n_actions,)."""
    values: FloatArray
    """theta_a m_a, (n_actions,)."""
    log_dets: FloatArray
    """ln(det V_a / det l2 I), (n_actions,)."""
    ledger: FloatArray
    """Slack of the constraint in true expected rewards, and the smallest it has been."""
    tally: IntArray
    """Rounds, and those played conservatively."""


@dataclass(frozen=True, eq=False)
class RidgeStart:
    """Full-information ridge: every labelled row informs all actions, so they share one Gram matrix.

    That is more than a bandit could know; it is the published warm start of LinUCB and Thompson sampling.
    """

    gram: FloatArray
    """l2 I + X'X, shape (d, d)."""
    responses: FloatArray
    """b = X' targets per action, shape (n_actions, d)."""
    inverse: FloatArray
    """Shape (d, d), the same for all actions."""
    log_det: float
    """ln(det gram / det l2 I)."""
    l2: float

    @property
    def n_actions(self) -> int:
        return int(self.responses.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.responses.shape[1])

    @property
    def weights(self) -> FloatArray:
        """theta, shape (n_actions, d)."""
        return self.responses @ self.inverse

    @property
    def inverses(self) -> FloatArray:
        """Shape (n_actions, d, d), a view without copies."""
        return np.broadcast_to(self.inverse, (self.n_actions, *self.inverse.shape))


def ridge_start(
    features: Features, labels: ArrayLike, n_actions: int, l2: float, *, right: float = 1.0, wrong: float = 0.0
) -> RidgeStart:
    """Ridge on labelled rows (m, d), m = 0 being a cold start: the target is `right` for the label, else `wrong`.

    1 and 0 are the published targets, whatever the noise of the rewards. CLUCB's promise needs targets whose mean
    is the expected reward.

    >>> ridge_start(np.eye(2), [0, 1], n_actions=2, l2=1.0).weights.tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    from seamark.kernels.ridge import invert

    if not l2 > 0:
        raise ValueError(f"l2: {l2}; must be positive, else the Gram matrix has no inverse.")
    features = as_features(features)
    x = refuse_sparse(features, n_features(features))
    label = np.asarray(labels, dtype=np.int64)
    if label.shape != (x.shape[0],):
        raise ValueError(f"labels: shape {label.shape}; must be one label per row, ({x.shape[0]},).")
    if label.size and not (label.min() >= 0 and label.max() < n_actions):
        raise ValueError(f"labels: from {label.min()} to {label.max()}; must be 0 to {n_actions - 1}.")
    targets = np.where(label[:, None] == np.arange(n_actions), float(right), float(wrong))
    gram = l2 * np.eye(x.shape[1]) + x.T @ x
    inverse = gram.copy()
    log_det = float(invert(inverse)) - x.shape[1] * float(np.log(l2))
    return RidgeStart(gram, targets.T @ x, (inverse + inverse.T) / 2, log_det, float(l2))


class RidgeLearner:
    """Ridge regression of the reward per action. Between the kernels' calls the state is five arrays."""

    refresh_every = 5_000
    """After so many updates of an action its inverse and weights are recomputed, against drift."""

    def __init__(self, n_actions: int, n_features: int, l2: float, start: RidgeStart | None) -> None:
        if not l2 > 0:
            raise ValueError(f"l2: {l2}; must be positive, else the Gram matrix has no inverse.")
        if start is None:
            start = ridge_start(np.empty((0, n_features)), [], n_actions, l2)
        if (start.n_actions, start.n_features) != (n_actions, n_features) or start.l2 != l2:
            raise ValueError(
                f"start: made for {start.n_actions} actions, {start.n_features} features, l2 = {start.l2}; "
                f"this learner has {n_actions}, {n_features}, {l2}. Build both with the same."
            )
        packed = np.tril(start.inverse) + np.triu(start.gram, k=1)
        self.l2 = float(l2)
        self._arms = Arms(
            np.tile(packed, (n_actions, 1, 1)),
            np.tile(np.diag(start.gram), (n_actions, 1)),
            np.ascontiguousarray(start.weights),
            np.array(start.responses, order="C"),
            np.zeros(n_actions, dtype=np.int64),
        )
        self._squares: tuple[Features, FloatArray] | None = None

    bytes_needed = staticmethod(bytes_needed)

    @property
    def n_actions(self) -> int:
        return int(self._arms.weights.shape[0])

    @property
    def weights(self) -> FloatArray:
        """theta, shape (n_actions, d), a live view."""
        return self._arms.weights

    @property
    def inverses(self) -> FloatArray:
        """V_a^-1, shape (n_actions, d, d), a copy."""
        lower = np.tril(self._arms.packed)
        return lower + np.tril(lower, k=-1).transpose(0, 2, 1)

    def _dense(self, features: Features) -> FloatArray:
        d = self._arms.weights.shape[1]
        dense = refuse_sparse(features, d)
        if n_features(dense) != d:
            raise ValueError(f"contexts: {n_features(dense)} features, but the learner has {d}.")
        return dense

    def _run(
        self, answers: Answers, draws: Draws, normals: FloatArray, *, alpha: float, clip: bool, floor: float
    ) -> Acted:
        from seamark.kernels.ridge import ridge_run

        out = acted(draws.rows.size)
        ridge_run(
            self._dense(answers.features), draws.rows, answers.labels, answers.right, answers.wrong,
            draws.actions, draws.rewards, normals, self._arms, alpha, clip, floor, self.refresh_every,
            self._largest_squares(answers.features), *out,
        )  # fmt: skip
        return out

    def _largest_squares(self, features: Features) -> FloatArray:
        """Upper bounds of x'V_a^-1 x per context and action: they only fall, so they hold until another pool comes."""
        if self._squares is None or self._squares[0] is not features:
            self._squares = (features, np.full((n_contexts(features), self.n_actions), np.inf))
        return self._squares[1]

    def update(self, rounds: Rounds) -> None:
        """Learns from the given rounds, whoever played them."""
        from seamark.kernels.ridge import ridge_learn

        ridge_learn(
            self._dense(rounds.features), rounds.rows, rounds.actions, rounds.rewards,
            self._arms, self.refresh_every,
        )  # fmt: skip

    def candidate(self) -> LinearPolicy:
        """Greedy on theta (the posterior means), without optimism or floor: what the paper calls learned."""
        return LinearPolicy(self._arms.weights.view(), ActingForm.greedy())

    def state(self) -> dict[str, Any]:
        return {name: array.copy() for name, array in self._arms._asdict().items()}

    def restore(self, state: dict[str, Any]) -> None:
        copy_into(self._arms._asdict(), state)
        self._squares = None


class LinUCB(RidgeLearner):
    """Plays the action of the highest theta_a x + alpha sqrt(x' V_a^-1 x), ties shared, plus a floor. [Li10], disjoint.

    `clip`: scores are at most 1, as published; the actions that reach it tie and are drawn uniformly.
    """

    def __init__(
        self, n_actions: int, n_features: int, *, alpha: float, l2: float,
        start: RidgeStart | None = None, clip: bool = True, floor: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(n_actions, n_features, l2, start)
        self.alpha, self.clip, self.floor = at_least_zero("alpha", alpha), bool(clip), share_of_one("floor", floor)

    def run(self, answers: Answers, draws: Draws) -> Acted:
        return self._run(answers, draws, np.empty((0, 0)), alpha=self.alpha, clip=self.clip, floor=self.floor)

    def acting_policy(self) -> OptimisticPolicy:
        """What would act in the next round, as a policy that stands still (a copy)."""
        return OptimisticPolicy(self.weights.copy(), self.inverses, self.alpha, self.clip, self.floor).frozen()


class Thompson(RidgeLearner):
    """Plays the action of the highest w_a x with w_a drawn from N(theta_a, alpha^2 V_a^-1), plus a floor.

    Drawn as theta_a x + alpha sqrt(x' V_a^-1 x) g_a with one standard normal per action and round: the same law,
    since one round looks at w_a in the one direction x. Propensities and `expected` are those given the drawn
    scores: 1 - floor + floor / n_actions for the played action where no scores tie.
    """

    def __init__(
        self, n_actions: int, n_features: int, *, alpha: float, l2: float,
        start: RidgeStart | None = None, floor: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(n_actions, n_features, l2, start)
        self.alpha, self.floor = at_least_zero("alpha", alpha), share_of_one("floor", floor)

    def run(self, answers: Answers, draws: Draws) -> Acted:
        """Acts and learns; takes n_actions normals per round from `draws.learner`."""
        out = acted(draws.rows.size)
        for first in range(0, draws.rows.size, _LEG):
            leg = slice(first, min(first + _LEG, draws.rows.size))
            normals = draws.learner.standard_normal((leg.stop - leg.start, self.n_actions))
            part = Draws(draws.rows[leg], draws.actions[leg], draws.rewards[leg], draws.learner)
            played = self._run(answers, part, normals, alpha=self.alpha, clip=False, floor=self.floor)
            for column, values in zip(out, played):
                column[leg] = values
        return out

    def acting_policy(self) -> PosteriorPolicy:
        """What would act in the next round, before its scores are drawn, as a policy that stands still (a copy)."""
        return PosteriorPolicy(self.weights.copy(), self.inverses, self.alpha, self.floor).frozen()


def copy_into(arrays: dict[str, Any], state: dict[str, Any]) -> None:
    for name, array in arrays.items():
        if np.shape(state[name]) != array.shape:
            raise ValueError(f"state: {name} has shape {np.shape(state[name])}; must be {array.shape}.")
    for name, array in arrays.items():
        array[...] = state[name]


def at_least_zero(name: str, value: float) -> float:
    if not (np.isfinite(value) and value >= 0):
        raise ValueError(f"{name}: {value}; must be a number, at least 0.")
    return float(value)


def share_of_one(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: {value}; must be in [0, 1].")
    return float(value)
