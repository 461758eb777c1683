"""One integer seed per run; streams derive from it by role, so adding a role changes no other."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Append only."""

    CONTEXTS = 0
    ACTIONS = 1
    REWARDS = 2
    LEARNER = 3
    BASELINE = 4
    EVALUATION = 5


def stream(seed: int, role: Stream) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(role),)))
