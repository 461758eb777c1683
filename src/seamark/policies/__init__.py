"""Who acts: probabilities over actions given contexts. Immutable once frozen, deterministic given the context."""

from seamark.policies.acting import ActingForm
from seamark.policies.base import Draw, Policy, draw
from seamark.policies.linear import LinearPolicy
from seamark.policies.simple import (
    CallablePolicy,
    ConstantPolicy,
    EstimatorPolicy,
    MixturePolicy,
    UniformPolicy,
    as_policy,
    with_floor,
)

__all__ = [
    "ActingForm",
    "CallablePolicy",
    "ConstantPolicy",
    "Draw",
    "EstimatorPolicy",
    "LinearPolicy",
    "MixturePolicy",
    "Policy",
    "UniformPolicy",
    "as_policy",
    "draw",
    "with_floor",
]
