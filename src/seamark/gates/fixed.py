"""Gates that ask for no evidence: `never` (learning from the log only) and `always` (online learning)."""

from __future__ import annotations

from typing import Any

from seamark.gates.base import Decision
from seamark.policies import Policy
from seamark.rounds import Rounds


class NeverGate:
    """The baseline acts for ever."""

    name = "never"

    def reign(self, deployed: Policy, at: int, version: int) -> None: ...

    def acting(self, deployed: Policy) -> Policy:
        return deployed

    def observe(self, rounds: Rounds, deployed: Policy) -> None: ...

    def wants(self, at: int) -> bool:
        return False

    def offer(self, candidate: Policy, at: int) -> Decision | None:
        return None

    def records(self) -> dict[str, list[Any]]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


class AlwaysGate(NeverGate):
    """Whatever is offered acts."""

    name = "always"

    def wants(self, at: int) -> bool:
        return True

    def offer(self, candidate: Policy, at: int) -> Decision:
        return Decision("promote", at, candidate.frozen(), reasons=("no-gate",))
