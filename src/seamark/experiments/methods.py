"""The methods table: a method is a row (who acts, who learns, which gate), with its hyper-parameters."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

import numpy as np

from seamark.gates import ChallengerGate, Gate, MeansGate, NeverGate, PaperGate
from seamark.gates.paper import Semantics
from seamark.learners.base import Learner, OnlineLearner
from seamark.learners.clucb import CLUCB
from seamark.learners.default import Shape, default_portfolio
from seamark.learners.gradient import IPSGradient, PolicyGradient, SquaredLoss
from seamark.learners.ridge import LinUCB, RidgeStart, Thompson, bytes_needed, ridge_start
from seamark.policies import ActingForm, LinearPolicy
from seamark.randomness import Stream, stream
from seamark.rounds import n_contexts, n_features, take
from seamark.worlds.projection import SeenThrough, dense
from seamark.worlds.supervised import Baseline, SupervisedWorld

MEMORY_LIMIT = 4 * 2**30
"""Bytes of learner state above which a method is not started."""

Options = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What a run fixes for all its methods."""

    semantics: str
    delta: float
    floor: float


@dataclass(frozen=True)
class Method:
    """One row. `acts`: "deployed" (gated) or "learner" (its own policy acts and moves every round)."""

    name: str
    acts: Literal["deployed", "learner"]
    about: str
    learner: Callable[[Options, SupervisedWorld, Baseline, Setting], Learner | OnlineLearner]
    gate: Callable[[Options, SupervisedWorld, Setting], Gate] | None = None
    defaults: Options = field(default_factory=dict)
    is_ridge: bool = False


# -- learners ------------------------------------------------------------------------------------------------------


def _start(options: Options, baseline: Baseline) -> Any:
    weights = baseline.policy.weights
    return weights if options["warm"] else np.zeros_like(weights)


def _ips(options: Options, world: SupervisedWorld, baseline: Baseline, setting: Setting) -> Learner:
    return IPSGradient(
        _start(options, baseline), baseline.policy.acts, tau=options["tau"], lr=options["lr"], l2=options["l2"],
        shift=options["shift"], cap=options["cap"], decay=options["decay"],
    )  # fmt: skip


def _candidates(options: Options, world: SupervisedWorld, baseline: Baseline, setting: Setting) -> Learner:
    """The default portfolio, which nobody has to tune; its direct method alone; or the paper's learner."""
    if options["learner"] == "portfolio":
        return default_portfolio(baseline.policy, Shape.of(world.features))
    if options["learner"] == "ips":
        return _ips(options, world, baseline, setting)
    if options["learner"] == "direct":
        return default_portfolio(baseline.policy, Shape.of(world.features), gradients=False)
    raise ValueError(f"--set seamark.learner: {options['learner']!r}; must be portfolio, direct or ips.")


def _squared(options: Options, world: SupervisedWorld, baseline: Baseline, setting: Setting) -> Learner:
    return SquaredLoss(
        _start(options, baseline), epsilon=options["epsilon"], lr=options["lr"], l2=options["l2"],
        decay=options["decay"],
    )  # fmt: skip


def _boltzmann(options: Options, world: SupervisedWorld, baseline: Baseline, setting: Setting) -> Learner:
    return PolicyGradient(
        _start(options, baseline), tau=options["tau"], floor=setting.floor, lr=options["lr"], l2=options["l2"],
        shift=options["shift"], decay=options["decay"],
    )  # fmt: skip


def _ridge_start(
    options: Options, world: SupervisedWorld, baseline: Baseline, *, targets: tuple[float, float] = (1.0, 0.0)
) -> RidgeStart | None:
    """Full-information ridge on the baseline's labelled rows; targets 1 and 0 as published, or expected rewards."""
    if not options["warm"]:
        return None
    rows = baseline.rows
    right, wrong = targets
    return ridge_start(
        np.ascontiguousarray(take(world.features, rows)), world.labels[rows], world.n_actions, options["l2"],
        right=right, wrong=wrong,
    )  # fmt: skip


def _linucb(options: Options, world: SupervisedWorld, baseline: Baseline, setting: Setting) -> Learner:
    return LinUCB(
        world.n_actions, world.n_features, alpha=options["alpha"], l2=options["l2"],
        start=_ridge_start(options, world, baseline), clip=options["clip"], floor=setting.floor,
    )  # fmt: skip


def _thompson(options: Options, world: SupervisedWorld, baseline: Baseline, setting: Setting) -> Learner:
    return Thompson(
        world.n_actions, world.n_features, alpha=options["alpha"], l2=options["l2"],
        start=_ridge_start(options, world, baseline), floor=setting.floor,
    )  # fmt: skip


def _clucb(options: Options, world: SupervisedWorld, baseline: Baseline, setting: Setting) -> Learner:
    return CLUCB(
        world.n_actions, world.n_features, baseline=baseline.policy, alpha=options["alpha"], l2=options["l2"],
        delta=setting.delta, norm_bound=options["norm_bound"], noise=options["noise"],
        beta_scale=options["beta_scale"],
        start=_ridge_start(options, world, baseline, targets=(world.right, world.wrong)),
    )  # fmt: skip


# -- gates ---------------------------------------------------------------------------------------------------------


def _semantics(name: str) -> Semantics:
    return "released" if name == "released" else "paper"


def _never(options: Options, world: SupervisedWorld, setting: Setting) -> Gate:
    return NeverGate()


def _sea(options: Options, world: SupervisedWorld, setting: Setting) -> Gate:
    return PaperGate(
        world.n_actions, delta=setting.delta, semantics=_semantics(setting.semantics), cap=options["gate_cap"]
    )


def _bsea(options: Options, world: SupervisedWorld, setting: Setting) -> Gate:
    if setting.semantics == "released":
        return PaperGate(world.n_actions, delta=1.0, semantics="released", cap=options["gate_cap"])
    return MeansGate(world.n_actions)


def _challenger(options: Options, world: SupervisedWorld, setting: Setting) -> Gate:
    return ChallengerGate(
        world.n_actions, delta=setting.delta, guarantee=options["guarantee"], margin=options["margin"],
        slots=options["slots"], first_freeze=options["first_freeze"], growth=options["growth"],
        reward_model=options["reward_model"], explore_share=options["explore_share"], rollback=options["rollback"],
    )  # fmt: skip


_SGD: Options = {"lr": 0.01, "l2": 0.0, "decay": "published", "warm": True}
_IPS: Options = {**_SGD, "tau": 0.5, "shift": 0.2, "cap": 0.1}
_GATED: Options = {**_IPS, "gate_cap": 0.1}
_CHALLENGER: Options = {
    "guarantee": "run", "margin": 0.0, "slots": 4, "first_freeze": 500, "growth": 1.3, "reward_model": "mean",
    "explore_share": 0.0, "rollback": True,
}  # fmt: skip
_RIDGE: Options = {"l2": 1.0, "warm": True, "hash": 0}

METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("ips", "deployed", "the baseline serves; translated IPS learns from its log", _ips, _never, _IPS),
        Method("sea", "deployed", "SEA: deploys when LCB(new) >= UCB(deployed)", _ips, _sea, _GATED),
        Method("bsea", "deployed", "BSEA: deploys when the estimated mean is as good", _ips, _bsea, _GATED),
        Method(
            "seamark", "deployed", "challengers tested on later rounds only; keeps its promise over the whole run",
            _candidates, _challenger, {**_IPS, **_CHALLENGER, "learner": "portfolio"},
        ),
        Method(
            "epsilon-greedy", "learner", "squared-loss regression, explores a share epsilon", _squared,
            defaults={**_SGD, "epsilon": 0.1},
        ),
        Method(
            "boltzmann", "learner", "policy gradient, acts by its softmax", _boltzmann,
            defaults={**_SGD, "tau": 0.5, "shift": 0.0},
        ),
        Method(
            "linucb", "learner", "ridge per action, optimistic", _linucb,
            defaults={**_RIDGE, "alpha": 1.0, "clip": True}, is_ridge=True,
        ),
        Method(
            "thompson", "learner", "ridge per action, posterior draws", _thompson,
            defaults={**_RIDGE, "alpha": 0.33333}, is_ridge=True,
        ),
        Method(
            "clucb", "learner", "optimistic only inside a budget of the baseline's reward", _clucb,
            defaults={**_RIDGE, "alpha": 0.1, "beta_scale": 1.0, "norm_bound": 1.0, "noise": 0.5}, is_ridge=True,
        ),
    )
}  # fmt: skip

PAPER_METHODS = ("sea", "bsea", "ips", "epsilon-greedy", "boltzmann", "linucb", "thompson")


def resolve_methods(text: str | Iterable[str]) -> list[str]:
    """Names from "a,b" or "all"; an unknown one raises with the nearest."""
    names = [n.strip() for n in text.split(",")] if isinstance(text, str) else list(text)
    if names == ["all"]:
        return list(METHODS)
    for name in names:
        if name not in METHODS:
            near = difflib.get_close_matches(name, METHODS, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"method: {name!r} is not known; choose from {', '.join(METHODS)}.{hint}")
    return list(dict.fromkeys(names))


# -- hyper-parameters ----------------------------------------------------------------------------------------------


@cache
def hyperparameters() -> dict[str, Any]:
    """Published ones (facts recorded with the paper's code) and our own for what the paper did not run."""
    text = files("seamark.experiments").joinpath("hyperparameters.json").read_text("utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def baseline_options(data: str, kind: str, n_rows: int, n_actions: int) -> Options:
    """How the baseline of this set is fitted, and at which temperature it acts when it is Boltzmann."""
    table = hyperparameters()["baselines"]
    options: Options = {**table["default"], **table.get(data, {})}
    if data not in hyperparameters()["published"]["sets"]:
        options["fraction"] = min(1.0, max(options["fraction"], 5 * n_actions / n_rows))
    return options


def method_options(
    name: str,
    *,
    data: str,
    rewards: str,
    baseline: str,
    tau: float,
    norm: float = 1.0,
    overrides: Options | None = None,
) -> Options:
    """The hyper-parameters of a method: published for the sets they name under a Boltzmann baseline, else ours.

    Ours are dimensionless; `norm` (mean squared length of a context) turns them into step sizes and ridge penalties.
    """
    options: Options = {**METHODS[name].defaults}
    if "tau" in options:
        options["tau"] = tau
    own = hyperparameters()["own"]["scopes"]
    chosen: Options = {**own["any"].get(name, {}), **own.get(rewards, {}).get(name, {})}
    if "step" in chosen:
        chosen["lr"] = _rounded(chosen.pop("step") * options.get("tau", 1.0) / norm)
    if "l2_per_norm" in chosen:
        chosen["l2"] = _rounded(chosen.pop("l2_per_norm") * norm)
    options |= chosen
    if baseline == "boltzmann":
        options |= hyperparameters()["published"]["sets"].get(data, {}).get(rewards, {}).get(name, {})
    for key, value in (overrides or {}).items():
        if key not in options:
            raise ValueError(f"--set {name}.{key}: {name} has {', '.join(sorted(options))}.")
        options[key] = _like(options[key], value, f"--set {name}.{key}")
    if options.get("hash", 0) < 0:
        raise ValueError(f"--set {name}.hash: {options['hash']}; must be 0 (no projection) or a number of features.")
    return options


def try_out(name: str, options: Options, world: SupervisedWorld, baseline: ActingForm, setting: Setting) -> None:
    """Makes the learner and the gate of a method for a few of the world's contexts: refuses bad options at once."""
    rows = np.arange(min(20, world.n_contexts))
    x, y = take(world.features, rows), world.labels[rows]
    few = replace(world, features=x, labels=y, test_features=x, test_labels=y)
    weights = np.zeros((world.n_actions, n_features(world.features)))
    standing = Baseline(LinearPolicy(weights, baseline), rows, {})
    try:
        METHODS[name].learner(options, projected(name, options, few), standing, setting)
        if (gate := METHODS[name].gate) is not None:
            gate(options, few, setting)
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith("--set") else f"--set {name}: {text}") from None


def _rounded(value: float) -> float:
    """Three significant digits: what a person would write down."""
    return float(f"{value:.3g}")


def _like(default: Any, value: Any, where: str) -> Any:
    """The value in the type of the default."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False, "1": True, "0": False}[str(value).lower()]
        if isinstance(default, (int, float)):
            number = float(value)
            if isinstance(value, bool) or (isinstance(default, int) and not number.is_integer()):
                raise ValueError
            return type(default)(number)
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{where}: {value!r}; must be like {default!r}.") from None
    return str(value)


def projected(name: str, options: Options, world: SupervisedWorld) -> SupervisedWorld:
    """The world as the method sees it: ridge methods need dense contexts, hashed to `hash` features if asked to."""
    return dense(world, int(options["hash"])) if METHODS[name].is_ridge else world


def as_seen(baseline: Baseline, world: SupervisedWorld, projected: SupervisedWorld) -> Baseline:
    """The baseline for a method that sees projected contexts: it still acts on the original ones."""
    if n_features(projected.features) == n_features(world.features):
        return baseline
    policy = SeenThrough.of(baseline.policy, world, projected)
    return replace(baseline, policy=cast(LinearPolicy, policy))  # whoever sees projected contexts needs no weights


def too_large(name: str, options: Options, world: SupervisedWorld) -> str | None:
    """Why the method cannot run at this size, or None."""
    if not METHODS[name].is_ridge:
        return None
    d = int(options["hash"]) or n_features(world.features)
    need = bytes_needed(world.n_actions, d)
    if need > MEMORY_LIMIT:
        return (
            f"{name} keeps a {d:,} x {d:,} matrix for each of {world.n_actions} actions: {_size(need)}. "
            f"--set {name}.hash=1024 projects the features."
        )
    table = 8 * d * n_contexts(world.features)
    if table > MEMORY_LIMIT:
        return f"{name} needs dense contexts: {_size(table)}. --set {name}.hash=1024 projects the features."
    return None


def _size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"


def normals(seed: int) -> np.random.Generator:
    """The stream that learners draw from."""
    return stream(seed, Stream.LEARNER)


def acting_form(kind: str, tau: float, floor: float) -> ActingForm:
    """The baseline's acting form: Boltzmann with a floor, or greedy with the floor as epsilon."""
    return ActingForm.epsilon_greedy(floor) if kind == "epsilon-greedy" else ActingForm.softmax(tau, floor=floor)
