"""Scoring a leg: the probabilities it needs, the check of what was recorded, and the compiled loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from seamark.estimation.eprocess import ScoreBelowBound
from seamark.estimation.reward_models import RewardModel, RunningMean
from seamark.gates.contest import Blocked, Incumbent
from seamark.gates.slots import Slots
from seamark.rounds import Features, FloatArray, IntArray, Rounds, n_contexts

TABLE_CELLS = 40_000_000
"""Largest contexts x actions x places for which probabilities are kept per context."""

BATCH_CELLS = 4_000_000
"""Largest rounds x actions x places that are scored in one batch where they are not."""

PROPENSITY_TOLERANCE = 1e-9
_RARE_MISMATCHES, _RARE_SHARE = 10, 0.01  # ties that rounding breaks differently are rarer than this


def is_distribution(p: FloatArray) -> bool:
    """Whether every row is finite, non-negative and sums to one."""
    return bool(np.isfinite(p).all() and (p >= 0).all() and (np.abs(p.sum(axis=1) - 1) < 1e-6).all())


class Probabilities:
    """h(.|x), d(.|x) and q(x, .) of a leg: from tables where contexts recur and they fit, else in one batch.

    A table is filled for the whole pool at once, so that its bits do not depend on when that happens.
    """

    def __init__(self, n_places: int, n_actions: int, table_cells: int) -> None:
        self.n_places, self.n_actions, self.table_cells = n_places, n_actions, table_cells
        self._pool: Features | None = None
        self._tables = np.zeros((0, 0, 0))
        self._filled: dict[int, tuple[Any, bool]] = {}  # place -> what is in its table, whether it is valid

    def tabulated(self, rounds: Rounds) -> bool:
        """Whether tables serve these rounds; makes room for them at the first sight of a pool."""
        cells = n_contexts(rounds.features) * self.n_actions * (self.n_places + 2)
        if not rounds.recurring or cells > self.table_cells:
            return False
        if self._pool is not rounds.features:
            self._pool, self._filled = rounds.features, {}
            self._tables = np.empty((self.n_places + 2, n_contexts(rounds.features), self.n_actions))
        return True

    def table(self, place: int, key: Any, predict: Any) -> tuple[FloatArray, bool]:
        """The table of a place for `key` (slot, incumbent, number of fits), filled by `predict` if it holds another's;
        and its validity. The key is the slot itself, not its id: a name may come back with another content."""
        if place not in self._filled or self._filled[place][0] != key:
            assert self._pool is not None  # `tabulated` was asked
            self._tables[place] = predict(self._pool)
            self._filled[place] = (key, is_distribution(self._tables[place]))
        return self._tables[place], self._filled[place][1]

    def of_slots(self, slots: Slots, rounds: Rounds, tabulated: bool) -> tuple[FloatArray, list[int]]:
        """h(.|x) of all places, shape (places, contexts, actions), and the places whose h is no distribution."""
        bad = []
        if tabulated:
            for place, slot in slots.live():
                if not self.table(place, slot, slot.policy.probabilities)[1]:
                    bad.append(place)
            return self._tables, bad
        h = np.zeros((self.n_places, len(rounds), self.n_actions))
        contexts = rounds.contexts()
        for place, slot in slots.live():
            h[place] = slot.policy.probabilities(contexts)
            if not is_distribution(h[place]):
                bad.append(place)
        return h, bad

    def of_deployed(self, incumbent: Incumbent, rounds: Rounds, tabulated: bool) -> tuple[FloatArray, bool]:
        if tabulated:
            return self.table(self.n_places, incumbent, incumbent.policy.probabilities)
        d = np.ascontiguousarray(incumbent.policy.probabilities(rounds.contexts()), dtype=np.float64)
        return d, is_distribution(d)

    def of_rewards(self, model: RewardModel | None, rounds: Rounds, tabulated: bool) -> FloatArray:
        """q(x, .); one row of zeros for models that have none."""
        if model is None or isinstance(model, RunningMean):
            return np.zeros((1, self.n_actions))
        if tabulated:
            return self.table(self.n_places + 1, model.fits, model.predict)[0]
        return model.predict(rounds.contexts())


class _Logging(NamedTuple):
    """d(.|x) and p(.|x), and the row in which each round finds its own."""

    d: FloatArray
    d_at: IntArray
    p: FloatArray
    p_at: IntArray


class Scorer:
    """Moves the evidence of all slots on by rounds, in order."""

    def __init__(self, n_places: int, n_actions: int, model: RewardModel | None) -> None:
        self.n_actions, self.model = n_actions, model
        self.mismatches = self.compared = 0
        self._probabilities = Probabilities(n_places, n_actions, TABLE_CELLS)
        self._batch = max(1, BATCH_CELLS // (n_actions * (n_places + 2)))

    def score(self, rounds: Rounds, incumbent: Incumbent, slots: Slots) -> dict[int, str]:
        """Scores all slots, then lets the reward model learn. Returns the places that cannot go on, and why.

        Raises `Blocked` where the recorded probabilities are wrong, `ScoreBelowBound` where a score proves it.
        """
        dropped: dict[int, str] = {}
        for first in range(0, len(rounds), self._batch):
            dropped |= self._score(rounds[first : first + self._batch], incumbent, slots)
        if self.model is not None:
            self.model.learn(rounds)  # only now: it must not have seen the rounds that it scored
        return dropped

    def _score(self, rounds: Rounds, incumbent: Incumbent, slots: Slots) -> dict[int, str]:
        from seamark.kernels.challenger import learn_mean, score_leg

        mean = self.model.sums if isinstance(self.model, RunningMean) else None
        mine = rounds.versions == incumbent.version
        if not (slots.live() and mine.any()):
            if mean is not None:
                learn_mean(rounds.rewards, mean)
            return {}
        tabulated = self._probabilities.tabulated(rounds)
        here = np.arange(len(rounds), dtype=np.int64)
        at = rounds.rows if tabulated else here
        logging = self._logging(rounds, mine, incumbent, tabulated, at)
        h, bad = self._probabilities.of_slots(slots, rounds, tabulated)
        dropped = dict.fromkeys(bad, "candidate-not-a-distribution")
        starts = slots.starts.copy()
        starts[bad] = np.iinfo(np.int64).max
        q = self._probabilities.of_rewards(self.model, rounds, tabulated)
        place, row = score_leg(
            rounds.first, rounds.actions, rounds.rewards, rounds.versions, incumbent.version,
            *logging, h, at, q, np.zeros_like(at) if self.model is None else at,
            mean is not None, np.zeros(2) if mean is None else mean,
            starts, slots.margins, slots.truncations, slots.bounds, slots.bets,
            np.empty(slots.truncations.size), np.empty(self.n_actions), slots.evidence,
        )  # fmt: skip
        if place >= 0:
            raise ScoreBelowBound(
                f"rounds: the score of round {rounds.first + row} is below its bound. Its recorded probabilities are "
                "not those of the deployed policy (with directed exploration, where declared). The gate is blocked."
            )
        invalid = [place for place, _ in slots.live() if slots.evidence.invalid[place]]
        return dropped | dict.fromkeys(invalid, "candidate-not-finite")

    def _logging(self, rounds: Rounds, mine: Any, incumbent: Incumbent, tabulated: bool, at: IntArray) -> _Logging:
        """Checks the records of the rounds that count (`mine`) against the deployed policy."""
        d, valid = self._probabilities.of_deployed(incumbent, rounds, tabulated)
        if not valid:
            raise Blocked("deployed-not-a-distribution")
        p, here = rounds.probabilities, np.arange(len(rounds), dtype=np.int64)
        expected = (d[at, rounds.actions] if p is None else p[here, rounds.actions])[mine]
        off = ~(np.abs(rounds.propensities[mine] - expected) <= PROPENSITY_TOLERANCE * expected)
        if off.any() or (p is not None and not is_distribution(p[mine])):
            raise _mismatch(rounds, mine, off)
        if p is None:
            return _Logging(d, at, d, at)
        deployed = d[at]
        if ((p <= 0) & (deployed > PROPENSITY_TOLERANCE))[mine].any():
            raise ValueError(
                "probabilities: 0 for an action that the deployed policy takes; its value cannot be estimated. "
                "Record the probabilities of the policy that acted. The gate is blocked."
            )
        if incumbent.share > 0:
            off = (deployed * (1 - incumbent.share) > p * (1 + PROPENSITY_TOLERANCE))[mine].any(axis=1)
            if off.any():
                raise _mismatch(rounds, mine, off)
            return _Logging(d, at, p, here)
        # What acted is what is compared: p itself. Rounding may break ties between actions differently in a batch of
        # another size, so single disagreements with d are let pass; anything more is a wrong record.
        off = (np.abs(deployed - p) > PROPENSITY_TOLERANCE)[mine].any(axis=1)
        self.mismatches, self.compared = self.mismatches + int(off.sum()), self.compared + off.size
        if self.mismatches >= _RARE_MISMATCHES and self.mismatches > _RARE_SHARE * self.compared:
            raise _mismatch(rounds, mine, off)
        return _Logging(p, here, p, here)


def _mismatch(rounds: Rounds, mine: Any, off: Any) -> Blocked:
    return Blocked(f"propensity-mismatch:round {rounds.first + int(np.flatnonzero(mine)[np.argmax(off)])}")
