"""The paper's gate: deploy when LCB(new) >= UCB(deployed), and its variant without bounds.

What is promised: for *fixed* policies, one check errs with probability at most 2 delta [Theorem 1]. What voids it:
the candidate learned from the very rounds that judge it, and the check is repeated. See docs/guarantee.md.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from seamark.estimation import ActionSums, Moments, maurer_pontil_radius
from seamark.gates.base import Decision, GateRefusal, Records
from seamark.policies import Policy
from seamark.rounds import Rounds

Semantics = Literal["paper", "released"]
_ROUNDING = 1e-9  # relative: a propensity is computed, p_min is written down
COLUMNS = ("at", "new_mean", "new_lower", "new_upper", "deployed_mean", "deployed_lower", "deployed_upper", "verdict")


def compare(
    candidate: Any,
    at: int,
    moments: tuple[Moments, Moments],
    ranges: tuple[float, float],
    *,
    delta: float,
    strict: bool,
) -> Decision:
    """Promotes where LCB(new) >= UCB(deployed) (`strict`: >), from the moments and ranges (b) of new and deployed."""
    new, old = moments
    cb_new, cb_old = (maurer_pontil_radius(m, upper=b, delta=delta) for m, b in zip(moments, ranges))
    lower, upper = new.mean - cb_new, old.mean + cb_old
    evidence = {
        "new_mean": new.mean, "new_lower": lower, "new_upper": new.mean + cb_new,
        "deployed_mean": old.mean, "deployed_lower": old.mean - cb_old, "deployed_upper": upper,
    }  # fmt: skip
    # comparisons with NaN are false: nothing is deployed on nothing
    if lower > upper or (lower == upper and not strict):
        return Decision("promote", at, candidate.frozen(), evidence, ("lower-bound-above-upper-bound",))
    return Decision("hold", at, evidence=evidence, reasons=("bounds-overlap",))


class PaperGate:
    """LCB(new) against UCB(deployed) with Maurer-Pontil bounds on the W tables.

    semantics:
      "paper"     b = r_max / p_min, known beforehand (refuses where no floor gives p_min, and a round whose propensity
                  is below it); exact propensities; >=.
      "released"  what made the published tables: propensities raised to `cap`, b = the largest accumulated cell
                  (not a valid range), strict >. `delta=1` is the released BSEA.
    """

    def __init__(
        self,
        n_actions: int,
        *,
        delta: float = 0.05,
        semantics: Semantics = "paper",
        cap: float = 0.1,
        log_limit: int = 1_000_000,
        sums: Any = None,
    ) -> None:
        if not 0 < delta <= 1:
            raise ValueError(f"delta: {delta}; must be in (0, 1].")
        if semantics not in ("paper", "released"):
            raise ValueError(f"semantics: {semantics!r}; must be 'paper' or 'released'.")
        if n_actions < 1:
            raise ValueError(f"n_actions: {n_actions}; must be at least 1.")
        if not 0 <= cap <= 1:
            raise ValueError(f"cap: {cap}; must be in [0, 1]: propensities below it are raised to it.")
        self.n_actions, self.delta, self.semantics = n_actions, delta, semantics
        self.cap = cap if semantics == "released" else 0.0
        self.sums = sums or ActionSums(n_actions, cap=self.cap, log_limit=log_limit)
        self._p_min = math.inf
        self._version = 0
        self._checked: Moments | None = None
        self._records = Records(*COLUMNS)

    @property
    def name(self) -> str:
        return "paper" if self.semantics == "paper" else "released"

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        if deployed.n_actions != self.n_actions:
            raise ValueError(f"deployed: {deployed.n_actions} actions; must have {self.n_actions}, as the gate.")
        if self.semantics == "paper":
            if deployed.min_probability <= 0:
                raise GateRefusal(
                    "paper gate: the deployed policy has no floor, so b = r_max / p_min does not exist. "
                    "Mix in uniform exploration (floor=0.05), or use semantics='released'."
                )
            self._p_min = min(self._p_min, deployed.min_probability)
        self._version = version
        moments = self._checked if self._checked is not None else self.sums.moments(deployed)
        self.sums.follow(moments, version)
        self._checked = None

    def acting(self, deployed: Policy) -> Policy:
        return deployed

    def observe(self, rounds: Rounds, deployed: Policy) -> None:
        if self.semantics == "paper":
            low = rounds.propensities < self._p_min * (1 - _ROUNDING)
            if low.any():
                row = int(low.argmax())
                raise GateRefusal(
                    f"paper gate: the propensity of round {rounds.first + row} is {rounds.propensities[row]:.3g}, less "
                    f"than {self._p_min:.3g}, the lowest that the deployed policy's floor allows, so b = r_max / p_min "
                    "does not hold. Log the probability used to draw the action, or declare the floor that acted."
                )
        self.sums.add(rounds, deployed)

    def wants(self, at: int) -> bool:
        return True

    def offer(self, candidate: Policy, at: int) -> Decision:
        new, old = self.sums.moments(candidate), self.sums.deployed
        known = 1.0 / self._p_min
        ranges = (known, known) if self.semantics == "paper" else (new.largest, old.largest)
        decision = compare(candidate, at, (new, old), ranges, delta=self.delta, strict=self.semantics == "released")
        self._records.add(at=at, verdict=decision.verdict, **decision.evidence)
        self._checked = new if decision.deploys else self._checked
        return decision

    def records(self) -> dict[str, list[Any]]:
        return self._records.columns()

    def state(self) -> dict[str, Any]:
        return {"sums": self.sums.state(), "p_min": self._p_min, "version": self._version, "records": self.records()}

    def restore(self, state: dict[str, Any]) -> None:
        self.sums.restore(state["sums"])
        self._p_min, self._version = float(state["p_min"]), int(state["version"])
        self._records.restore(state["records"])


class MeansGate:
    """BSEA: deploy when the estimated mean of the candidate is at least the deployed policy's. No guarantee."""

    name = "means"

    def __init__(self, n_actions: int, *, log_limit: int = 1_000_000, sums: Any = None) -> None:
        self.sums = sums or ActionSums(n_actions, log_limit=log_limit)
        self._checked: Moments | None = None
        self._records = Records("at", "new_mean", "deployed_mean", "verdict")

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        moments = self._checked if self._checked is not None else self.sums.moments(deployed)
        self.sums.follow(moments, version)
        self._checked = None

    def acting(self, deployed: Policy) -> Policy:
        return deployed

    def observe(self, rounds: Rounds, deployed: Policy) -> None:
        self.sums.add(rounds, deployed)

    def wants(self, at: int) -> bool:
        return True

    def offer(self, candidate: Policy, at: int) -> Decision:
        new, old = self.sums.moments(candidate), self.sums.deployed
        evidence = {"new_mean": new.mean, "deployed_mean": old.mean}
        # false for NaN; and two policies with the same sums, such as 0 before the first reward, are one to the evidence
        differ = not (math.isclose(new.s1, old.s1) and math.isclose(new.s2, old.s2))
        promotes = new.mean >= old.mean and differ
        verdict: Literal["promote", "hold"] = "promote" if promotes else "hold"
        self._records.add(at=at, verdict=verdict, **evidence)
        if not promotes:
            return Decision("hold", at, evidence=evidence, reasons=("mean-below-deployed",))
        self._checked = new
        return Decision("promote", at, candidate.frozen(), evidence, ("mean-at-least-deployed",))

    def records(self) -> dict[str, list[Any]]:
        return self._records.columns()

    def state(self) -> dict[str, Any]:
        return {"sums": self.sums.state(), "records": self.records()}

    def restore(self, state: dict[str, Any]) -> None:
        self.sums.restore(state["sums"])
        self._records.restore(state["records"])
