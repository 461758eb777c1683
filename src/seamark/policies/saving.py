"""Policies and rankers as plain state and back. A policy that is code (a callable, an estimator) says so instead."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from seamark.policies.acting import ActingForm
from seamark.policies.base import Policy
from seamark.policies.combined import ranker_from, ranker_state
from seamark.policies.linear import LinearPolicy
from seamark.policies.rankers import Ranker
from seamark.policies.simple import ConstantPolicy, MixturePolicy, UniformPolicy


def policy_state(policy: Policy, given: Policy | None = None) -> dict[str, Any]:
    """A policy as arrays and plain values. given: one that may be code, because whoever restores has it at hand."""
    try:
        return _content(policy, given)
    except TypeError:
        if given is None or policy.id != given.id:
            raise
        return {"kind": "given", "id": policy.id}


def _content(policy: Policy, given: Policy | None) -> dict[str, Any]:
    if isinstance(policy, LinearPolicy):
        # the memory order is kept: sums depend on it in the last bit
        fortran = policy.weights.flags.f_contiguous and not policy.weights.flags.c_contiguous
        return {
            "kind": "linear", "weights": policy.weights, "fortran": bool(fortran),
            "tau": policy.acts.tau, "floor": policy.acts.floor,
        }  # fmt: skip
    if isinstance(policy, UniformPolicy):
        return {"kind": "uniform", "n_actions": policy.n_actions}
    if isinstance(policy, ConstantPolicy):
        return {"kind": "constant", "distribution": policy.distribution}
    if isinstance(policy, MixturePolicy):
        members = [policy_state(p, given) for p in policy.policies]
        return {"kind": "mixture", "policies": members, "weights": list(policy.weights)}
    if isinstance(policy, Ranker):  # in an explorer of rankers they stand where policies do
        return ranker_state(policy)
    raise TypeError(
        f"{type(policy).__name__}: its content is code, so it is not saved. Keep the object and pass it to load."
    )


def policy_from(state: dict[str, Any], given: Policy | None = None) -> Policy:
    kind = state["kind"]
    if kind == "given":
        if given is None or given.id != state["id"]:
            raise ValueError("baseline: not the policy that was deployed first when this was saved; build it alike.")
        return given
    if kind == "linear":
        weights = np.array(state["weights"], order="F" if state["fortran"] else "C")
        weights.setflags(write=False)
        return LinearPolicy(weights, ActingForm(state["tau"], state["floor"]))
    if kind == "uniform":
        return UniformPolicy(int(state["n_actions"]))
    if kind == "constant":
        return ConstantPolicy(state["distribution"])
    if kind == "mixture":
        return MixturePolicy([policy_from(p, given) for p in state["policies"]], state["weights"])
    if str(kind).endswith("-ranker"):
        return cast(Policy, ranker_from(state))
    raise ValueError(f"policy kind {kind!r}; this version knows linear, uniform, constant, mixture.")
