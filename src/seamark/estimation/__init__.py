"""What a round says of a policy."""

from seamark.estimation.bounds import Moments, hoeffding_radius, maurer_pontil_radius
from seamark.estimation.tables import ActionSums
from seamark.estimation.values import (
    dm_values,
    dr_values,
    ips_values,
    probability_of_actions,
    snips_mean,
    snips_values,
    translated_ips_values,
)

__all__ = [
    "ActionSums",
    "Moments",
    "dm_values",
    "dr_values",
    "hoeffding_radius",
    "ips_values",
    "maurer_pontil_radius",
    "probability_of_actions",
    "snips_mean",
    "snips_values",
    "translated_ips_values",
]
