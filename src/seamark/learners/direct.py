"""The direct method: ridge regression of the reward per action, several regularisations from one set of sums.

Per action a: V_a = sum x x', b_a = sum r x, m_a = sum x over the rounds in which it was played. Shrunk towards v_a,
with the rewards taken from c: (V_a + l2 I)(w_a - v_a) = b_a - c m_a - V_a v_a. Nothing is solved until it is asked for.
Up to `WIDEST_GRAM` features V_a is kept; wider sparse contexts keep counts and sums per (context, action), which
needs contexts that recur, and solve by conjugate gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seamark.policies import ActingForm, LinearPolicy
from seamark.policies.linear import linear_scores
from seamark.rounds import Csr, Features, FloatArray, IntArray, Rounds, n_contexts, n_features, take

WIDEST_GRAM = 1_500
"""Most features for which a matrix per action is kept."""


class Prior(NamedTuple):
    """What a fit is shrunk towards."""

    centre: float
    """c, taken from every reward."""
    weights: FloatArray
    """v, (n_actions, n_features)."""


class GramSums:
    """V_a, b_a and m_a as arrays; contexts may recur or not."""

    def __init__(self, n_actions: int, n_features: int) -> None:
        self.gram = np.zeros((n_actions, n_features, n_features))
        self.responses = np.zeros((n_actions, n_features))
        self.sums = np.zeros((n_actions, n_features))
        self.totals = np.zeros((n_actions, 2))
        """Per action: weight of its rounds, weighted sum of their rewards."""

    def add(self, rounds: Rounds, weights: FloatArray | None) -> None:
        for a in np.unique(rounds.actions):
            chosen = np.flatnonzero(rounds.actions == a)
            x = _dense(rounds.features, rounds.rows[chosen], self.sums.shape[1])
            root = np.ones(chosen.size) if weights is None else np.sqrt(weights[chosen])
            v, r = x if weights is None else x * root[:, None], rounds.rewards[chosen] * root
            self.gram[a] += v.T @ v  # half the work of a product: numpy knows that it is symmetric
            self.responses[a] += r @ v
            self.sums[a] += root @ v
            self.totals[a] += root @ root, r @ root

    def moments(self, weights: FloatArray) -> tuple[float, float, float]:
        """Sums over rounds of s, s^2 and s r, with s = weights_a x of the action a that was played."""
        images = np.matmul(self.gram, weights[:, :, None])[:, :, 0]
        return tuple(float((array * weights).sum()) for array in (self.sums, images, self.responses))  # type: ignore[return-value]

    def solve(self, l2: float, priors: Sequence[Prior], starts: Sequence[FloatArray | None]) -> list[FloatArray]:
        out = [prior.weights.copy() for prior in priors]
        ridge = l2 * np.eye(self.sums.shape[1])
        for a in np.flatnonzero(self.totals[:, 0]):
            targets = [self.responses[a] - p.centre * self.sums[a] - self.gram[a] @ p.weights[a] for p in priors]
            solved = np.linalg.solve(self.gram[a] + ridge, np.array(targets).T)
            for w, column in zip(out, solved.T):
                w[a] += column
        return out

    def state(self) -> dict[str, Any]:
        return {name: array.copy() for name, array in vars(self).items()}

    def restore(self, state: dict[str, Any]) -> None:
        _check_shapes(vars(self), state)
        for name, array in vars(self).items():
            array[...] = state[name]


class CellSums:
    """Weight and weighted sum of rewards per (context, action): wide sparse contexts that recur."""

    def __init__(self, n_actions: int, n_features: int, *, tolerance: float, iterations: int) -> None:
        self.tolerance, self.iterations = tolerance, iterations
        self.n_features = n_features
        self.weights = np.zeros((0, n_actions))
        self.rewards = np.zeros((0, n_actions))
        self.totals = np.zeros((n_actions, 2))
        self._pool: Csr | None = None

    def add(self, rounds: Rounds, weights: FloatArray | None) -> None:
        from seamark.kernels.direct import count_cells

        pool = rounds.features
        if not (rounds.recurring and isinstance(pool, Csr)):
            raise ValueError(
                f"contexts: {n_features(pool)} features that do not recur as sparse rows. The direct method keeps a "
                f"matrix per action up to {WIDEST_GRAM} features, beyond that sums per context (context_ids=); "
                "use learners.gradient.SquaredLoss."
            )
        if n_features(pool) != self.n_features:
            raise ValueError(f"contexts: {n_features(pool)} features, but the learner has {self.n_features}.")
        if self._pool is None:
            self.weights, self.rewards = (np.zeros((n_contexts(pool), self.totals.shape[0])) for _ in range(2))
        if n_contexts(pool) != self.weights.shape[0]:
            raise ValueError(f"contexts: a pool of {n_contexts(pool)}, but it was one of {self.weights.shape[0]}.")
        self._pool = pool
        weight = np.ones(len(rounds)) if weights is None else weights
        count_cells(rounds.rows, rounds.actions, rounds.rewards, weight, self.weights, self.rewards, self.totals)

    def _seen(self) -> IntArray:
        return np.flatnonzero(self.weights.any(axis=1))

    def _scores(self, weights: FloatArray, seen: IntArray) -> FloatArray:
        assert self._pool is not None  # callers have seen rounds
        return linear_scores(weights, take(self._pool, seen))

    def moments(self, weights: FloatArray) -> tuple[float, float, float]:
        seen = self._seen()
        if not seen.size:
            return 0.0, 0.0, 0.0
        score, n, s = self._scores(weights, seen), self.weights[seen], self.rewards[seen]
        return float((n * score).sum()), float((n * score * score).sum()), float((s * score).sum())

    def solve(self, l2: float, priors: Sequence[Prior], starts: Sequence[FloatArray | None]) -> list[FloatArray]:
        return [self._solve(l2, prior, start) for prior, start in zip(priors, starts)]

    def _solve(self, l2: float, prior: Prior, start: FloatArray | None) -> FloatArray:
        from seamark.kernels.direct import conjugate_gradients

        out, seen = np.array(prior.weights, order="F"), self._seen()
        if not seen.size:
            return out
        score = self._scores(prior.weights, seen) if prior.weights.any() else np.zeros((seen.size, 1))
        for a in range(out.shape[0]):
            here = np.flatnonzero(self.weights[seen, a])
            rows = seen[here]
            n = self.weights[rows, a]
            target = self.rewards[rows, a] - n * (prior.centre + score[here, a % score.shape[1]])
            w = np.zeros(self.n_features) if start is None else np.ascontiguousarray(start[a] - prior.weights[a])
            conjugate_gradients(self._pool, rows, n, target, l2, w, self.iterations, self.tolerance)
            out[a] += w
        return out

    def state(self) -> dict[str, Any]:
        pool = None if self._pool is None else self._pool._asdict()
        arrays = {name: getattr(self, name).copy() for name in ("weights", "rewards", "totals")}
        return arrays | {"pool": pool}

    def restore(self, state: dict[str, Any]) -> None:
        _check_shapes({"totals": self.totals}, state)
        self._pool = None if state["pool"] is None else Csr(**state["pool"])
        self.weights, self.rewards, self.totals = (np.array(state[k]) for k in ("weights", "rewards", "totals"))


def _check_shapes(arrays: dict[str, Any], state: dict[str, Any]) -> None:
    for name, array in arrays.items():
        if np.shape(state[name]) != array.shape:
            raise ValueError(f"state: {name} has shape {np.shape(state[name])}; must be {array.shape}.")


def _dense(features: Features, rows: IntArray, d: int) -> FloatArray:
    """The chosen rows as an array (m, d)."""
    if n_features(features) != d:
        raise ValueError(f"contexts: {n_features(features)} features, but the learner has {d}.")
    if not isinstance(features, Csr):
        chosen: FloatArray = features[rows]
        return chosen
    chosen_rows = take(features, rows)
    assert isinstance(chosen_rows, Csr)  # as `features` is
    x = np.zeros((rows.size, d))
    x[np.repeat(np.arange(rows.size), np.diff(chosen_rows.indptr)), chosen_rows.indices] = chosen_rows.data
    return x


class DirectRidge:
    """Predicts the reward of every action and acts on the predictions. One head per regularisation, and per prior.

    l2s: regularisations, in the units of x x' (typically a multiple of the mean of |x|^2). warm: with weights of
    another policy there is a second head per l2, shrunk towards beta * warm + c instead of zero, beta >= 0 and c
    fitted to the rewards by least squares. centred: the first heads are fitted to r - mean reward, so that what is
    unknown counts as average. cap: rounds weigh 1 / max(p, cap); None: all the same, the direct method.
    `heads` are solved anew when the rounds have grown by `solve_growth`; `solved` and `candidate` are as of now.
    """

    def __init__(
        self,
        n_actions: int,
        n_features: int,
        *,
        l2s: Sequence[float] = (1.0,),
        acts: ActingForm | None = None,
        warm: FloatArray | None = None,
        centred: bool = False,
        cap: float | None = None,
        first_solve: int = 50,
        solve_growth: float = 1.2,
        tolerance: float = 1e-3,
        iterations: int = 12,
    ) -> None:
        if not (len(l2s) and all(np.isfinite(l2) and l2 > 0 for l2 in l2s)):
            raise ValueError(f"l2s: {tuple(l2s)}; must be positive numbers.")
        if warm is not None and warm.shape != (n_actions, n_features):
            raise ValueError(f"warm: shape {warm.shape}; must be ({n_actions}, {n_features}).")
        if cap is not None and not 0 < cap <= 1:
            raise ValueError(f"cap: {cap}; must be in (0, 1], or None for no weights.")
        if not solve_growth > 1:
            raise ValueError(f"solve_growth: {solve_growth}; must be above 1.")
        self.l2s, self.acts = tuple(float(l2) for l2 in l2s), acts or ActingForm.greedy()
        self.centred, self.cap, self.solve_growth = centred, cap, solve_growth
        self._warm = None if warm is None else np.array(warm, dtype=np.float64)
        self._zero = np.zeros((n_actions, n_features))
        self._sums: GramSums | CellSums = (
            GramSums(n_actions, n_features)
            if n_features <= WIDEST_GRAM
            else CellSums(n_actions, n_features, tolerance=tolerance, iterations=iterations)
        )
        self._heads: dict[str, FloatArray] = {}
        self._seen, self._next_solve = 0, int(first_solve)
        self._solved: tuple[str, int, FloatArray] = ("", -1, self._zero)  # what was last asked for, and when

    @property
    def names(self) -> tuple[str, ...]:
        """One per head; the first is what `candidate` acts on."""
        plain = tuple(f"l2={l2:g}" for l2 in self.l2s)
        return plain if self._warm is None else plain + tuple(f"{name} residual" for name in plain)

    def update(self, rounds: Rounds) -> None:
        if not len(rounds):
            return
        self._sums.add(rounds, None if self.cap is None else 1 / np.maximum(rounds.propensities, self.cap))
        self._seen += len(rounds)
        if self._seen >= self._next_solve:
            self._next_solve = math.ceil(self.solve_growth * self._seen)
            self._heads = self._solve(self.names)

    def heads(self) -> dict[str, FloatArray]:
        """Weights by head as last solved; none before the first time. They stand still."""
        return dict(self._heads)

    def solved(self, name: str) -> FloatArray:
        """The weights of one head, fitted to all rounds so far; they stand still."""
        if self._solved[:2] != (name, self._seen):
            self._solved = (name, self._seen, self._solve((name,))[name])
        return self._solved[2]

    def candidate(self) -> LinearPolicy:
        """The first head, fitted to all rounds so far."""
        return LinearPolicy(self.solved(self.names[0]), self.acts)

    def _solve(self, names: Sequence[str]) -> dict[str, FloatArray]:
        """The heads of one l2 share its factorisation."""
        out: dict[str, FloatArray] = {}
        priors = {residual: self._prior(residual) for residual in {name.endswith("residual") for name in names}}
        for i, l2 in enumerate(self.l2s):
            mine = [name for name in self.names[i :: len(self.l2s)] if name in names]
            if mine:
                chosen = [priors[name.endswith("residual")] for name in mine]
                out |= zip(mine, self._sums.solve(l2, chosen, [self._heads.get(name) for name in mine]))
        return {name: out[name] for name in names}

    def _prior(self, residual: bool) -> Prior:
        weight, reward = (float(total) for total in self._sums.totals.sum(axis=0))
        mean = reward / weight if weight else 0.0
        if not residual or self._warm is None:
            return Prior(mean if self.centred else 0.0, self._zero)
        s, ss, sr = self._sums.moments(self._warm)
        spread = ss * weight - s * s
        beta = max(0.0, (sr * weight - s * reward) / spread) if spread > 1e-12 * ss * weight else 0.0
        return Prior(mean - beta * s / weight if weight else 0.0, beta * self._warm)

    def state(self) -> dict[str, Any]:
        heads = {name: np.ascontiguousarray(w).copy() for name, w in self._heads.items()}
        return {"sums": self._sums.state(), "seen": self._seen, "next_solve": self._next_solve, "heads": heads}

    def restore(self, state: dict[str, Any]) -> None:
        self._sums.restore(state["sums"])
        self._seen, self._next_solve = int(state["seen"]), int(state["next_solve"])
        self._solved = ("", -1, self._zero)
        wide = isinstance(self._sums, CellSums)  # the memory order is kept: sums depend on it in the last bit
        self._heads = {name: np.array(w, order="F" if wide else "C") for name, w in state["heads"].items()}
