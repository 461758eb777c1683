"""The holdout gate: some rounds are set aside to judge, all others teach.

What is promised (guarantee="run"): with probability at least 1 - delta, no candidate is ever deployed that is not
better, by more than the margin, than the policy it replaces. What it assumes: contexts and rewards are independent and
identically distributed; whoever makes candidates (learner, tuning, scalers, vocabularies) never saw a round that was
set aside, its context included; the recorded propensities are those that the actions were drawn from. Within a reign
the learner knows of the set-aside rounds only that nothing was deployed yet, so a union over checks suffices.

Unlike challengers, a candidate that learned up to now is judged on all set-aside rounds of the reign. Unlike them, it
needs stationarity, and no round both teaches and judges. It was never the faster one in our runs (docs/guarantee.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from seamark.estimation.eprocess import empirical_bernstein_log_evidence, lift_lower
from seamark.estimation.tables import DENSE_CELLS, DenseTables, RoundLog, SparseTables
from seamark.gates.base import Decision, Records, Verdict, check_next, check_rewards
from seamark.gates.scoring import PROPENSITY_TOLERANCE
from seamark.gates.spending import Guarantee, Spending, reign_margin
from seamark.policies import Policy
from seamark.rounds import FloatArray, Rounds, n_contexts

_Tables: TypeAlias = DenseTables | SparseTables | RoundLog
_COLUMNS = ("at", "n", "log_evidence", "threshold", "mean_lift", "lift_lower", "verdict")
_GOLDEN, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class Lift:
    """Gain of a policy over the deployed one on n set-aside rounds: mean, and a limit that may be read at any time."""

    n: int
    mean: float
    lower: float
    """Misses the true gain with probability at most `alpha`, for one policy fixed beforehand."""
    alpha: float


class HoldoutGate:
    """Deploys the current candidate when an e-value of the set-aside rounds reaches 1 / alpha.

    delta, guarantee: see `Spending`; a check is what a challenger is there. share: probability with which a round is
    set aside. first_check, growth: it checks this many rounds after a deployment, and at each growth of that number.
    centres: constants subtracted from the reward (control variates), fixed beforehand; the e-value is their even
    mixture. Those above 0 need a floor under the deployed policy, which bounds the weights, and are left out without.
    The evidence is a function of two moments per centre: tables where contexts recur, else a log up to `log_limit`.
    """

    name = "holdout"

    def __init__(
        self,
        n_actions: int,
        *,
        delta: float = 0.05,
        guarantee: Guarantee = "run",
        share: float = 0.5,
        margin: float = 0.0,
        first_check: int = 500,
        growth: float = 1.3,
        centres: Sequence[float] = (0.0, 0.5),
        seed: int = 0,
        log_limit: int = 1_000_000,
    ) -> None:
        if not 0 < share < 1:
            raise ValueError(f"share: {share}; must be between 0 and 1, or nothing judges or nothing teaches.")
        if not -1 < margin < 1:
            raise ValueError(f"margin: {margin}; must be in reward units, between -1 and 1.")
        if first_check < 1 or growth <= 1:
            raise ValueError(f"first_check, growth: {first_check}, {growth}; must be at least 1 and above 1.")
        if not centres or min(centres) < 0 or max(centres) > 1 or 0.0 not in centres:
            raise ValueError(f"centres: {tuple(centres)}; must be in [0, 1], with 0 among them.")
        self.n_actions, self.share, self.margin, self.seed = n_actions, share, margin, seed
        self.spending = Spending(delta, guarantee)
        self.first_check, self.growth, self.log_limit = first_check, growth, log_limit
        self.centres = tuple(sorted({float(c) for c in centres}))
        self._records = Records(*_COLUMNS)
        self._deployed: Policy | None = None
        self._given: Policy | None = None  # the first one: it may be code, so it is not saved but given again
        self._version = self._reign = self._checked = self._checks = self._deployments = 0
        self._began = self._next_check = self._n = 0
        self._next: int | None = None  # sequence number of the round to come
        self._chosen: str | None = None  # id of the policy that the last decision deployed
        self._sums: list[_Tables] = []
        self._pending: list[dict[str, Any]] | None = None

    # -- which rounds judge --------------------------------------------------------------------------------------

    def set_aside(self, rounds: Rounds) -> Any:
        """Which rounds judge: a mask drawn from the seed and the sequence number alone."""
        numbers = np.arange(rounds.first, rounds.last, dtype=np.uint64)
        return _uniforms(self.seed, numbers) < self.share

    def training_part(self, rounds: Rounds) -> Rounds:
        """The rounds that may teach. A learner fed with anything else voids the promise."""
        return _chosen(rounds, ~self.set_aside(rounds))

    # -- the gate's protocol -------------------------------------------------------------------------------------

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        """A new incumbent: the set-aside rounds have spoken, so they are discarded."""
        self._deployments += self._chosen == deployed.id
        self._deployed, self._version = deployed.frozen(), version
        self._given = self._deployed if self._given is None else self._given
        self._reign, self._checked, self._n = self._reign + 1, 0, 0
        self._began, self._next_check, self._chosen = at, self.first_check, None
        self._sums, self._pending = [], None

    def acting(self, deployed: Policy) -> Policy:
        return deployed

    def observe(self, rounds: Rounds, deployed: Policy) -> None:
        """Keeps the set-aside rounds that the deployed policy decided. Nothing has changed when it raises."""
        check_next(rounds, self._next)
        mine = _chosen(rounds, self.set_aside(rounds) & (rounds.versions == self._version))
        self._check(mine)
        self._next = rounds.last
        if len(rounds) and not self._sums:
            self._sums = [self._storage(rounds) for _ in self._used_centres()]
            for sums, state in zip(self._sums, self._pending or ()):
                sums.restore(state)
            self._pending = None
        if not len(mine):
            return
        for sums, centre in zip(self._sums, self._used_centres()):
            sums.add(mine, (mine.rewards - centre) / mine.propensities)
        self._n += len(mine)

    def _check(self, mine: Rounds) -> None:
        """Raises unless rewards are in [0, 1] and propensities those of the deployed policy."""
        assert self._deployed is not None  # `reign` comes first
        if not len(mine):
            return
        check_rewards(mine)
        expected = self._deployed.probabilities(mine.contexts())[np.arange(len(mine)), mine.actions]
        off = ~(np.abs(mine.propensities - expected) <= PROPENSITY_TOLERANCE * expected)
        if off.any():
            row = int(off.argmax())
            raise ValueError(
                f"propensities: {mine.propensities[row]:.3g} is recorded where the deployed policy has "
                f"{expected[row]:.3g}. Log the probability used to draw the action, unclipped."
            )

    def _storage(self, rounds: Rounds) -> _Tables:
        if not rounds.recurring:
            return RoundLog(self.log_limit)
        if n_contexts(rounds.features) * self.n_actions <= DENSE_CELLS:
            return DenseTables(rounds.features, self.n_actions)
        return SparseTables(rounds.features, self.n_actions)

    def _used_centres(self) -> tuple[float, ...]:
        """Without a floor the weights have no bound, and z = u (r - c) none from below unless c = 0."""
        assert self._deployed is not None  # `reign` comes first
        return self.centres if self._deployed.min_probability > 0 else (0.0,)

    def wants(self, at: int) -> bool:
        return at - self._began >= self._next_check

    def offer(self, candidate: Policy, at: int) -> Decision | None:
        """Judges the candidate when it is time. It must depend on the training part of rounds only."""
        if not self.wants(at) or self._deployed is None:
            return None
        while at - self._began >= self._next_check:
            self._next_check = math.ceil(self.growth * self._next_check)
        if candidate.n_actions != self.n_actions:
            raise ValueError(f"candidate: {candidate.n_actions} actions; must have {self.n_actions}.")
        policy = candidate.frozen()
        if self._n == 0 or policy.id == self._deployed.id:
            return None
        self._checked += 1
        self._checks += 1
        alpha = self.spending.level(self._reign, self._checked, frozen=self._checks, deployments=self._deployments)
        evidence, threshold = self.log_evidence(policy), -math.log(alpha)
        lift = self.lift(policy, alpha)
        promotes = evidence >= threshold  # false for NaN
        verdict: Verdict = "promote" if promotes else "hold"
        numbers = {
            "reign": self._reign, "check": self._checked, "alpha": alpha, "threshold": threshold, "n": self._n,
            "log_evidence": evidence, "mean_lift": lift.mean, "lift_lower": lift.lower, "policy": policy.id,
        }  # fmt: skip
        self._records.add(at=at, verdict=verdict, **{name: numbers[name] for name in _COLUMNS[1:-1]})
        self._chosen = policy.id if promotes else None
        reason = "evidence-reached-threshold" if promotes else "evidence-below-threshold"
        if not math.isfinite(evidence):
            reason = "candidate-not-finite"
        return Decision(verdict, at, policy if promotes else None, numbers, (reason,))

    # -- evidence ------------------------------------------------------------------------------------------------

    def _moments(self, candidate: Policy) -> tuple[FloatArray, FloatArray]:
        """S1 and S2 of the paired score z = u (r - c), one entry per centre."""
        if self._pending is not None:
            raise RuntimeError("holdout: restored tables do not hold the contexts; observe rounds first.")
        assert self._deployed is not None  # asked after `reign` only
        found = np.array([sums.paired(candidate, self._deployed)[:2] for sums in self._sums])
        return found[:, 0], found[:, 1]

    def _bounds(self) -> FloatArray:
        """B with z >= -B: u >= -1 where r > c, u <= u_max = 1 / floor - 1 where r < c; so B = max(1 - c, c u_max)."""
        assert self._deployed is not None  # asked after `reign` only
        floor = self._deployed.min_probability
        u_max = 1 / floor - 1 if floor > 0 else 0.0
        return np.array([max(1 - c, c * u_max) for c in self._used_centres()])

    def log_evidence(self, candidate: Policy) -> float:
        """ln of the e-value of the set-aside rounds against "not better than the deployed policy by the margin"."""
        if not self._n:
            return 0.0
        s1, s2 = self._moments(candidate)
        if not (np.isfinite(s1).all() and np.isfinite(s2).all()):
            return math.nan
        margin = reign_margin(self.margin, self._reign)
        return empirical_bernstein_log_evidence(self._n, s1, s2, bound=self._bounds(), margin=margin)

    def lift(self, candidate: Policy, alpha: float | None = None) -> Lift:
        """Estimated gain over the deployed policy with a lower limit at level alpha (default: delta)."""
        alpha = self.spending.delta if alpha is None else alpha
        if not self._n:
            return Lift(0, math.nan, -1.0, alpha)
        s1, s2 = self._moments(candidate)
        if not (np.isfinite(s1).all() and np.isfinite(s2).all()):
            return Lift(self._n, math.nan, math.nan, alpha)
        best = int(np.argmin(s2 - s1 * s1 / self._n))  # all are unbiased, this one varies least
        lower = lift_lower(self._n, s1, s2, bound=self._bounds(), alpha=alpha)
        return Lift(self._n, float(s1[best]) / self._n, lower, alpha)

    # -- keeping -------------------------------------------------------------------------------------------------

    def records(self) -> dict[str, list[Any]]:
        return self._records.columns()

    def state(self) -> dict[str, Any]:
        from seamark.policies.saving import policy_state

        return {
            "settings": self._settings(),
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "deployed": None if self._deployed is None else policy_state(self._deployed, self._given),
            "sums": [sums.state() for sums in self._sums] or (self._pending or []),
            "records": self.records(),
        }

    def _settings(self) -> dict[str, Any]:
        return {
            "n_actions": self.n_actions, "delta": self.spending.delta, "guarantee": self.spending.guarantee,
            "share": self.share, "margin": self.margin, "centres": list(self.centres), "seed": self.seed,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        from seamark.policies.saving import policy_from

        for name, mine in self._settings().items():
            if mine != state["settings"][name]:
                theirs = state["settings"][name]
                raise ValueError(f"{name}: {mine}, but the saved gate has {theirs}; build it alike.")
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        if state["deployed"] is not None:
            self._deployed = policy_from(state["deployed"], self._given)
        self._sums, self._pending = [], list(state["sums"]) or None
        self._records.restore(state["records"])


_COUNTERS = (
    "_version", "_reign", "_checked", "_checks", "_deployments", "_began", "_next_check", "_n", "_next", "_chosen",
)  # fmt: skip


def _uniforms(seed: int, numbers: Any) -> FloatArray:
    """One uniform per sequence number, whatever the batches: SplitMix64 [SLF14] of seed and number."""
    with np.errstate(over="ignore"):
        z = (numbers + np.uint64(1)) * _GOLDEN + np.uint64(seed % 2**64) * _MIX_1
        for _ in range(2):  # twice, so that neighbouring seeds share no pattern
            z = (z ^ (z >> np.uint64(30))) * _MIX_1
            z = (z ^ (z >> np.uint64(27))) * _MIX_2
            z = z ^ (z >> np.uint64(31))
    uniforms: FloatArray = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniforms


def _chosen(rounds: Rounds, mask: Any) -> Rounds:
    """The rounds of a mask; their numbers are no longer consecutive, so only the first is kept."""
    if mask.all():
        return rounds
    return replace(
        rounds, rows=rounds.rows[mask], actions=rounds.actions[mask], rewards=rounds.rewards[mask],
        propensities=rounds.propensities[mask], versions=rounds.versions[mask],
        probabilities=None if rounds.probabilities is None else rounds.probabilities[mask],
    )  # fmt: skip
