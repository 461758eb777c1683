"""Seamark: a better policy goes live only when the evidence says so."""

from seamark import estimation, gates, policies
from seamark.explorer import Decisions, Explorer
from seamark.gates import Decision, GateRefusal, Schedule
from seamark.rounds import Rounds

__version__ = "0.1.0"

__all__ = [
    "Decision",
    "Decisions",
    "Explorer",
    "GateRefusal",
    "Rounds",
    "Schedule",
    "estimation",
    "gates",
    "policies",
]
