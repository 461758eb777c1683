"""Any gate behind a propensity audit: while the records are refuted, nothing is deployed."""

from __future__ import annotations

from typing import Any

from seamark.estimation.audit import AUDIT_DELTA, Audit, PropensityAudit
from seamark.gates.base import Decision, Gate
from seamark.policies import Policy
from seamark.rounds import Rounds

WATCHED = 4
"""Candidates whose weights are watched at a time: the ones offered last."""


class AuditedGate:
    """Audits rounds before the gate sees them; once the audit fails, the gate is frozen until the next reign.

    The audit's level is its own: P(right records are ever blocked) <= audit_delta, over all reigns. It watches the
    frequency of every action, and the importance weights of candidates from their offer on.
    """

    def __init__(self, gate: Gate, n_actions: int, *, audit_delta: float = AUDIT_DELTA) -> None:
        self.gate, self.n_actions, self.audit_delta = gate, n_actions, audit_delta
        self._reigns = self._version = 0
        self.audit = PropensityAudit(n_actions, delta=audit_delta)
        self._blocked: Audit | None = None

    def __getattr__(self, name: str) -> Any:
        """What a gate has beyond the protocol (why, events, training_part, ...)."""
        if name == "gate":
            raise AttributeError(name)
        return getattr(self.gate, name)

    @property
    def name(self) -> str:
        return self.gate.name

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        """A new audit: another policy draws the actions now. Also unblocks, after the cause was removed."""
        self._reigns += 1
        delta = self.audit_delta / (self._reigns * (self._reigns + 1))
        directed = getattr(self.gate, "explore_share", 0.0)
        self.audit = PropensityAudit(self.n_actions, delta=delta, floor=deployed.min_probability * (1 - directed))
        self._blocked, self._version = None, version
        self.gate.reign(deployed, at, version)

    def acting(self, deployed: Policy) -> Policy:
        return self.gate.acting(deployed)

    def observe(self, rounds: Rounds, deployed: Policy) -> Decision | None:
        mine = rounds.versions == self._version
        if self._blocked is None and mine.any():
            # rounds in flight from an earlier version come first
            self.audit.observe(rounds[int(mine.argmax()) :], deployed, version=self._version)
            result = self.audit.result()
            self._blocked = result if result.verdict == "blocked" else None
        if self._blocked is not None:
            return self._refusal(rounds.last)
        return self.gate.observe(rounds, deployed)

    def _refusal(self, at: int) -> Decision:
        assert self._blocked is not None  # asked when blocked
        return Decision("blocked", at, evidence={"audit": self._blocked.as_dict()}, reasons=self._blocked.reasons)

    def wants(self, at: int) -> bool:
        return self._blocked is None and self.gate.wants(at)

    def offer(self, candidate: Policy, at: int) -> Decision | None:
        if self._blocked is not None:
            return self._refusal(at)
        if self.gate.wants(at):
            watched = self.audit.watched
            if len(watched) >= WATCHED:
                self.audit.forget(watched[0])
            self.audit.watch(candidate)
        return self.gate.offer(candidate, at)

    def records(self) -> dict[str, list[Any]]:
        return self.gate.records()

    def state(self) -> dict[str, Any]:
        blocked = None if self._blocked is None else list(self._blocked.reasons)
        return {
            "gate": self.gate.state(), "reigns": self._reigns, "version": self._version, "blocked": blocked,
            "floor": self.audit.floor,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """The gate's bits; the audit begins anew at a level of its own, unless it had blocked."""
        from seamark.estimation.audit import Finding

        self.gate.restore(state["gate"])
        self._reigns, self._version = int(state["reigns"]) + 1, int(state["version"])
        delta = self.audit_delta / (self._reigns * (self._reigns + 1))
        self.audit = PropensityAudit(self.n_actions, delta=delta, floor=state["floor"])
        self._blocked = None
        if state["blocked"] is not None:
            parts = [reason.partition(":") for reason in state["blocked"]]
            found = tuple(Finding(kind, detail, "Blocked before it was saved.", "blocked") for kind, _, detail in parts)
            self._blocked = Audit("blocked", found)
