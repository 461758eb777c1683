"""When a policy may act."""

from seamark.gates.audited import AuditedGate
from seamark.gates.base import Decision, Gate, GateRefusal, Schedule, Verdict
from seamark.gates.challenger import ChallengerGate
from seamark.gates.fixed import AlwaysGate, NeverGate
from seamark.gates.holdout import HoldoutGate
from seamark.gates.paper import MeansGate, PaperGate

__all__ = [
    "AlwaysGate",
    "AuditedGate",
    "ChallengerGate",
    "Decision",
    "Gate",
    "GateRefusal",
    "HoldoutGate",
    "MeansGate",
    "NeverGate",
    "PaperGate",
    "Schedule",
    "Verdict",
]
