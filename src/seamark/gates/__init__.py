"""When a policy may act."""

from seamark.gates.base import Decision, Gate, GateRefusal, Schedule, Verdict
from seamark.gates.fixed import AlwaysGate, NeverGate
from seamark.gates.paper import MeansGate, PaperGate

__all__ = [
    "AlwaysGate",
    "Decision",
    "Gate",
    "GateRefusal",
    "MeansGate",
    "NeverGate",
    "PaperGate",
    "Schedule",
    "Verdict",
]
