"""The paper's W form: sums per (context, action) from which mean and variance of any policy's IPS follow.

Where contexts recur, the tables W1 = sum r/p and W2 = sum (r/p)^2 per (context, action) are sufficient
(paper, "Efficient policy evaluation"; the variance needs W2, which the paper leaves to the reader):

    S1(pi) = sum_{a,x} pi(a|x) W1[x, a]        S2(pi) = sum_{a,x} pi(a|x)^2 W2[x, a]

and the same with h - d in place of pi for the paired difference. Where contexts do not recur, the table has one
row per round, which is the log itself: `RoundLog` keeps it up to a declared limit.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from seamark.estimation.bounds import Moments
from seamark.policies import LinearPolicy, Policy
from seamark.rounds import Features, FloatArray, IntArray, Rounds, n_contexts, stack, take

DENSE_CELLS = 8_000_000
"""Largest contexts x actions for which the tables are dense arrays; above, only cells that were visited are kept."""

BLOCK = 4096
"""Contexts scored at a time where there is no compiled way."""


class Sums(Protocol):
    """Whatever S1 and S2 of any policy can be computed from."""

    def add(self, rounds: Rounds, values: FloatArray) -> None: ...
    def moments(self, policy: Policy) -> tuple[float, float, float]: ...
    def paired(self, new: Policy, deployed: Policy) -> tuple[float, float, float]: ...
    def cells(self, rounds: Rounds) -> FloatArray: ...
    def state(self) -> dict[str, Any]: ...


class DenseTables:
    """W1, W2 as arrays (contexts, actions)."""

    def __init__(self, features: Features, n_actions: int) -> None:
        shape = (n_contexts(features), n_actions)
        self.features = features
        self.w1, self.w2 = np.zeros(shape), np.zeros(shape)
        self._seen = np.zeros(shape[0], dtype=bool)

    def add(self, rounds: Rounds, values: FloatArray) -> None:
        from seamark.kernels.linear import add_to_tables

        add_to_tables(rounds.rows, rounds.actions, values, self.w1, self.w2, self._seen)

    def cells(self, rounds: Rounds) -> FloatArray:
        return self.w1[rounds.rows, rounds.actions]

    @property
    def seen(self) -> IntArray:
        return np.flatnonzero(self._seen)

    def moments(self, policy: Policy) -> tuple[float, float, float]:
        if isinstance(policy, LinearPolicy):
            from seamark.kernels.linear import table_moments

            weights = policy.weights if isinstance(self.features, np.ndarray) else policy.weights.T
            return table_moments(  # type: ignore[no-any-return]
                self.features, self.seen, np.ascontiguousarray(weights), policy.acts.tau, policy.acts.floor,
                self.w1, self.w2,
            )  # fmt: skip
        return self._sums(lambda contexts: policy.probabilities(contexts))

    def paired(self, new: Policy, deployed: Policy) -> tuple[float, float, float]:
        return self._sums(lambda contexts: new.probabilities(contexts) - deployed.probabilities(contexts))

    def _sums(self, factor: Any) -> tuple[float, float, float]:
        s1, s2, largest, seen = 0.0, 0.0, 0.0, self.seen
        for start in range(0, seen.size, BLOCK):
            rows = seen[start : start + BLOCK]
            f = factor(take(self.features, rows))
            v = f * self.w1[rows]
            s1 += float(v.sum())
            s2 += float((f * f * self.w2[rows]).sum())
            largest = max(largest, float(v.max(initial=0.0)))
        return s1, s2, largest

    def state(self) -> dict[str, Any]:
        seen = self.seen
        return {"form": "dense", "seen": seen, "w1": self.w1[seen], "w2": self.w2[seen]}

    def restore(self, state: dict[str, Any]) -> None:
        seen = np.asarray(state["seen"], dtype=np.int64)
        self._seen[seen] = True
        self.w1[seen], self.w2[seen] = state["w1"], state["w2"]


class SparseTables:
    """W1, W2 only for the (context, action) pairs that were visited, sorted by context and action."""

    def __init__(self, features: Features, n_actions: int) -> None:
        self.features, self.n_actions = features, n_actions
        self._keys = np.empty(0, dtype=np.int64)
        self._w = np.empty((2, 0))

    def add(self, rounds: Rounds, values: FloatArray) -> None:
        visited: IntArray = rounds.rows * self.n_actions + rounds.actions
        keys, inverse = np.unique(visited, return_inverse=True)
        new = keys[~np.isin(keys, self._keys, assume_unique=True)]
        if new.size:
            places = np.searchsorted(self._keys, new)
            self._keys = np.insert(self._keys, places, new)
            self._w = np.insert(self._w, places, 0.0, axis=1)
        at = np.searchsorted(self._keys, keys)[inverse]
        np.add.at(self._w[0], at, values)
        np.add.at(self._w[1], at, values * values)

    def cells(self, rounds: Rounds) -> FloatArray:
        at = np.searchsorted(self._keys, rounds.rows * self.n_actions + rounds.actions)
        cells: FloatArray = self._w[0, at]
        return cells

    def moments(self, policy: Policy) -> tuple[float, float, float]:
        return self._sums(lambda contexts: policy.probabilities(contexts))

    def paired(self, new: Policy, deployed: Policy) -> tuple[float, float, float]:
        return self._sums(lambda contexts: new.probabilities(contexts) - deployed.probabilities(contexts))

    def _sums(self, factor: Any) -> tuple[float, float, float]:
        rows, actions = np.divmod(self._keys, self.n_actions)
        seen, where = np.unique(rows, return_inverse=True)
        s1, s2, largest = 0.0, 0.0, 0.0
        for start in range(0, seen.size, BLOCK):
            stop = min(start + BLOCK, seen.size)
            cells = slice(*np.searchsorted(where, [start, stop]))
            f = factor(take(self.features, seen[start:stop]))[where[cells] - start, actions[cells]]
            v = f * self._w[0, cells]
            s1 += float(v.sum())
            s2 += float((f * f * self._w[1, cells]).sum())
            largest = max(largest, float(v.max(initial=0.0)))
        return s1, s2, largest

    def state(self) -> dict[str, Any]:
        return {"form": "sparse", "keys": self._keys, "w": self._w}

    def restore(self, state: dict[str, Any]) -> None:
        self._keys, self._w = np.asarray(state["keys"], dtype=np.int64), np.asarray(state["w"])


class RoundLog:
    """Contexts that do not recur: the log itself, up to `limit` rounds."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._parts: list[Features] = []
        self._actions, self._values = np.empty(0, dtype=np.int64), np.empty(0)

    def add(self, rounds: Rounds, values: FloatArray) -> None:
        if self._actions.size + len(rounds) > self.limit:
            raise RuntimeError(
                f"log: {self.limit} rounds are reached. This gate needs the whole log where contexts do not recur: "
                "raise log_limit, pass context_ids, or use a gate that keeps no log."
            )
        self._parts.append(rounds.contexts())
        self._actions = np.concatenate([self._actions, rounds.actions])
        self._values = np.concatenate([self._values, values])

    def cells(self, rounds: Rounds) -> FloatArray:
        return self._values[self._values.size - len(rounds) :]

    def _contexts(self) -> Features:
        if len(self._parts) > 1:
            self._parts = [stack(self._parts)]
        return self._parts[0]

    def moments(self, policy: Policy) -> tuple[float, float, float]:
        return self._sums(lambda contexts: policy.probabilities(contexts))

    def paired(self, new: Policy, deployed: Policy) -> tuple[float, float, float]:
        return self._sums(lambda contexts: new.probabilities(contexts) - deployed.probabilities(contexts))

    def _sums(self, factor: Any) -> tuple[float, float, float]:
        if not self._actions.size:
            return 0.0, 0.0, 0.0
        v = factor(self._contexts())[np.arange(self._actions.size), self._actions] * self._values
        return float(v.sum()), float((v * v).sum()), float(v.max(initial=0.0))

    def state(self) -> dict[str, Any]:
        contexts = self._contexts() if self._parts else np.empty((0, 0))
        packed = {"contexts": contexts} if isinstance(contexts, np.ndarray) else contexts._asdict()
        return {"form": "log", "actions": self._actions, "values": self._values, "limit": self.limit, **packed}

    def restore(self, state: dict[str, Any]) -> None:
        from seamark.rounds import Csr

        self._actions, self._values = np.asarray(state["actions"], dtype=np.int64), np.asarray(state["values"])
        if "contexts" in state:
            self._parts = [state["contexts"]] if state["contexts"].size else []
        else:
            self._parts = [Csr(state["indptr"], state["indices"], state["data"], int(state["n_features"]))]


class ActionSums:
    """S1 and S2 of any policy over all rounds so far, by tables where contexts recur, else from the log.

    It also follows one policy, the deployed one, with running sums, so that a check costs one policy, not two.
    `cap` raises propensities to it (released semantics; 0: exact, always use that for a guarantee).
    """

    def __init__(self, n_actions: int, *, cap: float = 0.0, log_limit: int = 1_000_000) -> None:
        self.n_actions, self.cap, self.log_limit = n_actions, cap, log_limit
        self.n = 0
        self._sums: DenseTables | SparseTables | RoundLog | None = None
        self._pending: dict[str, Any] | None = None
        self._followed = Moments(0, 0.0, 0.0, 0.0)
        self._version = 0

    def add(self, rounds: Rounds, deployed: Policy) -> None:
        if self._sums is None:
            self._sums = self._storage(rounds)
        values = rounds.rewards / (np.maximum(rounds.propensities, self.cap) if self.cap else rounds.propensities)
        self._sums.add(rounds, values)
        self.n += len(rounds)
        stale = rounds.versions != self._version
        pi = rounds.propensities
        if stale.any():  # decided by an earlier policy: ask the deployed one what it would have done
            pi = pi.copy()
            pi[stale] = deployed.probabilities(take(rounds.features, rounds.rows[stale]))[
                np.arange(int(stale.sum())), rounds.actions[stale]
            ]
        v = pi * values
        self._followed = Moments(
            self.n,
            self._followed.s1 + float(v.sum()),
            self._followed.s2 + float((v * v).sum()),
            max(self._followed.largest, float((pi * self._sums.cells(rounds)).max(initial=0.0))),
        )

    def _storage(self, rounds: Rounds) -> DenseTables | SparseTables | RoundLog:
        sums: DenseTables | SparseTables | RoundLog
        if not rounds.recurring:
            sums = RoundLog(self.log_limit)
        elif n_contexts(rounds.features) * self.n_actions <= DENSE_CELLS:
            sums = DenseTables(rounds.features, self.n_actions)
        else:
            sums = SparseTables(rounds.features, self.n_actions)
        if self._pending is not None:
            sums.restore(self._pending)
            self._pending = None
        return sums

    def follow(self, moments: Moments, version: int) -> None:
        """From now on the running sums are those of another policy, whose moments so far are given."""
        self._followed, self._version = moments, version

    @property
    def deployed(self) -> Moments:
        """Moments of the followed policy."""
        return self._followed

    def moments(self, policy: Policy) -> Moments:
        sums = self._known()
        return Moments(self.n, *(sums.moments(policy) if sums else (0.0, 0.0, 0.0)))

    def paired_moments(self, new: Policy, deployed: Policy) -> Moments:
        """Moments of R_i(new) - R_i(deployed)."""
        sums = self._known()
        return Moments(self.n, *(sums.paired(new, deployed) if sums else (0.0, 0.0, 0.0)))

    def _known(self) -> DenseTables | SparseTables | RoundLog | None:
        if self._pending is not None:
            raise RuntimeError("sums: restored tables do not hold the contexts; add rounds first.")
        return self._sums

    def state(self) -> dict[str, Any]:
        f = self._followed
        return {
            "n": self.n, "followed": [f.n, f.s1, f.s2, f.largest], "version": self._version,
            "sums": self._sums.state() if self._sums else self._pending,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self.n, self._version = int(state["n"]), int(state["version"])
        n, s1, s2, largest = state["followed"]
        self._followed = Moments(int(n), float(s1), float(s2), float(largest))
        self._sums, self._pending = None, state["sums"]
