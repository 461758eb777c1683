"""The methods table of the ranking task: who displays, who learns, which gate, with its hyper-parameters."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from seamark.estimation.ranking_sums import RankingSums
from seamark.experiments.methods import Options, _like, _rounded, hyperparameters
from seamark.gates import Gate, MeansGate, NeverGate
from seamark.gates.ranking_challenger import RankingChallengerGate
from seamark.gates.ranking_paper import RankingPaperGate
from seamark.learners.bubblerank import BubbleRank
from seamark.learners.dbgd import DBGD
from seamark.learners.pdgd import PDGD
from seamark.learners.ranksvm import RankSVM
from seamark.policies.displays import AsRanked, Display, SwapDisplay
from seamark.policies.rankers import LinearRanker
from seamark.rounds import FloatArray
from seamark.worlds.ranking import RankingBaseline, RankingWorld

DEFAULT_METHODS = "ips,sea,bsea,seamark,seamark-swaps,ranksvm-online,pdgd"


@dataclass(frozen=True)
class RankingSetting:
    """What a run fixes for all its methods."""

    semantics: str
    delta: float
    rounds: int


@dataclass(frozen=True)
class RankingMethod:
    """One row. `acts`: "deployed" (gated) or "learner" (its own displays move every round)."""

    name: str
    acts: Literal["deployed", "learner"]
    about: str
    learner: Callable[[Options, RankingWorld, RankingBaseline, RankingSetting], Any]
    gate: Callable[[Options, RankingWorld, RankingSetting], Gate] | None = None
    defaults: Options = field(default_factory=dict)
    draws: bool = False
    """Whether its displays are random."""

    def display(self, options: Options, world: RankingWorld) -> Display:
        """How a deployed ranker is shown: as it ranks, or with swaps of neighbours."""
        if "swap" not in options:
            return AsRanked(world.examination)
        return SwapDisplay(world.examination, probability=options["swap"], extra=int(options["extra"]))


# -- learners ---------------------------------------------------------------------------------------------------------


def _start(options: Options, baseline: RankingBaseline) -> FloatArray:
    weights = baseline.ranker.weights
    return weights if options["warm"] else weights * 0.0


def _counterfactual(o: Options, world: RankingWorld, baseline: RankingBaseline, setting: RankingSetting) -> RankSVM:
    return RankSVM(_start(o, baseline), lr=o["lr"], cap=o["cap"], published=o["published"])


def _ranksvm(o: Options, world: RankingWorld, baseline: RankingBaseline, setting: RankingSetting) -> RankSVM:
    return RankSVM(_start(o, baseline), lr=o["lr"], cap=o["cap"], published=o["published"], weighted=o["weighted"])


def _dbgd(o: Options, world: RankingWorld, baseline: RankingBaseline, setting: RankingSetting) -> DBGD:
    return DBGD(_start(o, baseline), lr=o["lr"], reach=o["reach"])


def _pdgd(o: Options, world: RankingWorld, baseline: RankingBaseline, setting: RankingSetting) -> PDGD:
    return PDGD(_start(o, baseline), lr=o["lr"])


def _bubblerank(o: Options, world: RankingWorld, baseline: RankingBaseline, setting: RankingSetting) -> BubbleRank:
    delta = o["delta"] or None
    return BubbleRank(baseline.ranker, world.pool, kappa=world.kappa, horizon=max(2, setting.rounds), delta=delta)


# -- gates ------------------------------------------------------------------------------------------------------------
# a ranker takes the place of a policy in the roles of `Gate`, as in `gates.ranking_paper`


def _never(options: Options, world: RankingWorld, setting: RankingSetting) -> Gate:
    return NeverGate()


def _paper(options: Options, world: RankingWorld, setting: RankingSetting) -> Gate:
    semantics: Literal["paper", "released"] = "released" if setting.semantics == "released" else "paper"
    return cast(
        Gate,
        RankingPaperGate(world.examination, delta=setting.delta, semantics=semantics, cap=options["gate_cap"]),
    )


def _means(options: Options, world: RankingWorld, setting: RankingSetting) -> Gate:
    if setting.semantics == "released":  # where BSEA differs from SEA in names only
        return _paper(options, world, setting)
    return MeansGate(0, sums=cast(Any, RankingSums(world.examination, after_deployment="keep")))


def _challenger(options: Options, world: RankingWorld, setting: RankingSetting) -> Gate:
    display = METHODS["seamark-swaps" if "swap" in options else "seamark"].display(options, world)
    gate = RankingChallengerGate(
        display, delta=setting.delta, slots=int(options["slots"]), first_freeze=int(options["first_freeze"]),
        growth=options["growth"], forms=tuple(cast(Any, options["forms"].split("+"))),
        budget=options["budget"] or None, margin=options["margin"],
    )  # fmt: skip
    return cast(Gate, gate)


_SGD: Options = {"lr": 0.01, "cap": 0.01, "published": True, "warm": True}
_GATED: Options = {**_SGD, "gate_cap": 0.01}
_SEAMARK: Options = {
    **_SGD, "slots": 8, "first_freeze": 500, "growth": 1.3, "forms": "full+reranked", "budget": 0.0, "margin": 0.0,
}  # fmt: skip
# of each candidate itself and its order of what the deployed ranker shows: with long lists the score of the first is so
# conservative that it hardly ever deploys (docs/ranking.md)

METHODS: dict[str, RankingMethod] = {
    m.name: m
    for m in (
        RankingMethod("ips", "deployed", "the baseline serves; learns from its log", _counterfactual, _never, _SGD),
        RankingMethod(
            "sea", "deployed", "SEA: deploys when LCB(new) >= UCB(deployed)", _counterfactual, _paper, _GATED
        ),
        RankingMethod(
            "bsea", "deployed", "BSEA: deploys when the estimated mean is as good", _counterfactual, _means, _GATED
        ),
        RankingMethod(
            "seamark", "deployed", "anytime-valid challengers; shows exactly the deployed ranker", _counterfactual,
            _challenger, _SEAMARK,
        ),
        RankingMethod(
            "seamark-swaps", "deployed", "the same; neighbours are swapped at random, which its rewards pay for",
            _counterfactual, _challenger, {**_SEAMARK, "swap": 0.5, "extra": 1}, draws=True,
        ),
        RankingMethod(
            "ranksvm-online", "learner", "RankSVM shows its own ranking and learns from its clicks", _ranksvm,
            defaults={**_SGD, "weighted": False},
        ),
        RankingMethod(
            "dbgd", "learner", "dueling bandit, team-draft interleaving", _dbgd,
            defaults={"lr": 0.01, "reach": 1.0, "warm": True}, draws=True,
        ),
        RankingMethod(
            "pdgd", "learner", "pairwise differentiable gradient, sampled rankings", _pdgd,
            defaults={"lr": 0.1, "warm": True}, draws=True,
        ),
        RankingMethod(
            "bubblerank", "learner", "per query, exchanges neighbours that clicks refute", _bubblerank,
            defaults={"delta": 0.0}, draws=True,
        ),
    )
}  # fmt: skip

PAPER_METHODS = ("ranksvm-online", "dbgd", "ips", "bsea", "sea")


def try_out(name: str, options: Options, world: RankingWorld, setting: RankingSetting) -> None:
    """Makes the learner and the gate of a method: refuses what they cannot do before anything runs."""
    nobody = np.zeros(world.n_queries)
    lists = np.full((world.n_queries, world.kappa), -1, dtype=np.int64)
    standing = RankingBaseline(LinearRanker(np.zeros(world.n_features)).frozen(), lists, nobody, nobody, {})
    try:
        METHODS[name].learner(options, world, standing, setting)
        if (gate := METHODS[name].gate) is not None:
            gate(options, world, setting)
    except ValueError as error:
        raise ValueError(f"--set {name}: {error}") from None


def resolve_methods(text: str | Iterable[str]) -> list[str]:
    """Names from "a,b" or "all"; an unknown one raises with the nearest."""
    names = [n.strip() for n in text.split(",")] if isinstance(text, str) else list(text)
    if names == ["all"]:
        return list(METHODS)
    for name in names:
        if name not in METHODS:
            near = difflib.get_close_matches(name, METHODS, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"method: {name!r} does not rank; choose from {', '.join(METHODS)}.{hint}")
    return list(dict.fromkeys(names))


# -- hyper-parameters -------------------------------------------------------------------------------------------------


def _set_of(data: str) -> str:
    """The set that hyper-parameters go by: all folds share them."""
    return data.split(":")[0]


def baseline_options(world: RankingWorld) -> Options:
    """How the baseline is trained: as published for the sets that the paper used, else ours, relative to the features.

    A step of 1 / (mean squared distance of a document from the middle of its query * documents per query) is one that
    a whole query's pairs can bear; ours is a tenth of that, and takes two queries where 0.1 % are fewer.
    """
    table = hyperparameters()["ranking"]["baselines"]
    options: Options = {**table["default"], **table.get(_set_of(world.name), {})}
    step = options.pop("step")
    if "lr" not in options:
        options["lr"] = float(f"{step * world.n_queries / max(world.norm * world.pool.n_docs, 1e-9):.3g}")
    return options


def method_options(name: str, *, data: str, clicks: str, norm: float, overrides: Options | None = None) -> Options:
    """The hyper-parameters of a method: published for the sets they name, else ours.

    Ours are dimensionless: `norm` (see `RankingWorld.norm`) turns `step` into a learning rate.
    """
    table = hyperparameters()["ranking"]
    own = table["own"]["scopes"]
    options: Options = {**METHODS[name].defaults}
    chosen: Options = {**own["any"].get(name, {}), **own.get(clicks, {}).get(name, {})}
    if "step" in chosen:
        chosen["lr"] = _rounded(chosen.pop("step") / max(norm, 1e-9))
    options |= chosen
    published = table["published"].get(_set_of(data), {}).get(clicks, {})
    options |= published.get(name) or published.get("sea" if name.startswith("seamark") else name, {})
    for key, value in (overrides or {}).items():
        if key not in options:
            raise ValueError(f"--set {name}.{key}: {name} has {', '.join(sorted(options))}.")
        options[key] = _like(options[key], value, f"--set {name}.{key}")
    return options
