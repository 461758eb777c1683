"""The safety benchmark: gates x learners x worlds x seeds. Does a run deploy a worse policy, and what does it earn?

Every value is exact, by enumeration of the world's contexts. A deployment is false when the policy that comes in is no
better than it may be: worse than the one that goes (where candidates are fixed and none is better: not better), on
average over the rounds that the gate judged it by. Only with drift does that average matter.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from seamark.estimation import ActionSums, maurer_pontil_radius
from seamark.experiments.run import read_cell, write_json
from seamark.experiments.safety_learners import LEARNERS, FixedCandidates, ScoredPolicy
from seamark.experiments.tables import Table
from seamark.explorer import Explorer
from seamark.gates import ChallengerGate, Decision, Gate, HoldoutGate, MeansGate, PaperGate, Schedule
from seamark.gates.base import Records
from seamark.learners.base import Learner
from seamark.policies import ActingForm, LinearPolicy, Policy
from seamark.randomness import Stream, stream
from seamark.rounds import FloatArray, IntArray, Rounds, n_features
from seamark.worlds.datasets import load
from seamark.worlds.drift import DriftingWorld
from seamark.worlds.supervised import SupervisedWorld, train_baseline

SCHEMA = 1
EPSILON = 0.1
FIXED = "fixed"
EQUAL = 1e-9
"""Values closer than this are equal: both are sums of thousands of floats."""
FALSE_ALARM = 1e-3
"""The challenger's false runs are a failure when so many had at most this probability at the promised rate."""


# -- gates ---------------------------------------------------------------------------------------------------------


class PairedReusedGate:
    """Maurer-Pontil on the paired difference, on the data that the candidate learned from: a repair that is none.

    b is the span of the difference: 1 / p_min while every logged round has p = d, twice that after a deployment.
    """

    name = "paired-mp"

    def __init__(self, n_actions: int, *, delta: float = 0.05) -> None:
        self.delta, self.sums = delta, ActionSums(n_actions)
        self._deployed: Policy | None = None
        self._p_min, self._reigns = math.inf, 0
        self._records = Records("at", "mean_lift", "lower", "verdict")

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        self._deployed, self._reigns = deployed, self._reigns + 1
        self._p_min = min(self._p_min, deployed.min_probability)

    def acting(self, deployed: Policy) -> Policy:
        return deployed

    def observe(self, rounds: Rounds, deployed: Policy) -> None:
        self.sums.add(rounds, deployed)

    def wants(self, at: int) -> bool:
        return True

    def offer(self, candidate: Policy, at: int) -> Decision:
        assert self._deployed is not None  # `reign` comes first
        moments = self.sums.paired_moments(candidate, self._deployed)
        span = (1 if self._reigns == 1 else 2) / self._p_min
        lower = moments.mean - maurer_pontil_radius(moments, upper=span, delta=self.delta)
        verdict: Literal["promote", "hold"] = "promote" if lower > 0 else "hold"
        self._records.add(at=at, mean_lift=moments.mean, lower=lower, verdict=verdict)
        evidence = {"mean_lift": moments.mean, "lower": lower}
        return Decision(verdict, at, candidate.frozen() if lower > 0 else None, evidence, ("paired-bound",))

    def records(self) -> dict[str, list[Any]]:
        return self._records.columns()

    def state(self) -> dict[str, Any]:
        return {"sums": self.sums.state(), "p_min": self._p_min, "reigns": self._reigns, "records": self.records()}

    def restore(self, state: dict[str, Any]) -> None:
        self.sums.restore(state["sums"])
        self._p_min, self._reigns = float(state["p_min"]), int(state["reigns"])
        self._records.restore(state["records"])


def _challenger(world: SupervisedWorld, delta: float, seed: int) -> Gate:
    narrow = isinstance(world.features, np.ndarray) and 8 <= n_features(world.features) <= 256
    return ChallengerGate(world.n_actions, delta=delta, reward_model="ridge" if narrow else "mean")


GATES: dict[str, Callable[[SupervisedWorld, float, int], Gate]] = {
    "paper": lambda world, delta, seed: PaperGate(world.n_actions, delta=delta),
    # uncapped: the published cap of 0.1 would count the explored tenth of these worlds at a tenth of its worth
    "released": lambda world, delta, seed: PaperGate(world.n_actions, delta=delta, semantics="released", cap=0.0),
    "means": lambda world, delta, seed: MeansGate(world.n_actions),
    "paired-mp": lambda world, delta, seed: PairedReusedGate(world.n_actions, delta=delta),
    "holdout": lambda world, delta, seed: HoldoutGate(world.n_actions, delta=delta, seed=seed),
    "challenger": _challenger,
}
PROMISING = ("holdout", "challenger")
"""Gates that promise at most delta false runs whatever the learner."""


class CpuWatch:
    """A gate and the CPU seconds that it takes; other programs on the machine do not count."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.seconds = gate, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.gate, name)

    def observe(self, rounds: Rounds, deployed: Policy) -> Any:
        start = time.thread_time()
        decision = self.gate.observe(rounds, deployed)
        self.seconds += time.thread_time() - start
        return decision

    def offer(self, candidate: Policy, at: int) -> Any:
        start = time.thread_time()
        decision = self.gate.offer(candidate, at)
        self.seconds += time.thread_time() - start
        return decision


# -- worlds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Setup:
    """A world for one seed, with who serves it. `candidates`: fixed ones, none of them better than the baseline."""

    world: DriftingWorld
    baseline: Policy
    acts: ActingForm
    candidates: Callable[[int], Policy] | None = None


ACTS = ActingForm.epsilon_greedy(EPSILON)
NEVER = 2**62


def still(world: SupervisedWorld) -> DriftingWorld:
    """The same world, for ever."""
    return DriftingWorld(world, world, NEVER)


@cache
def _digits(rewards: str) -> SupervisedWorld:
    return SupervisedWorld.of(load("digits"), rewards)


@cache
def text_world(rewards: str = "near-random", *, contexts: int = 3_000, words: int = 10_000, n_actions: int = 10) -> Any:
    """Sparse text-like contexts: words by a power law, a label's own words six times as likely; unit length."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(20200406)
    labels = rng.integers(0, n_actions, contexts).astype(np.int64)
    base = 1.0 / (np.arange(words) + 10.0)
    topical = rng.random((n_actions, words)) < 0.05
    rows, columns = [], []
    for label in range(n_actions):
        p = base * np.where(topical[label], 6.0, 1.0)
        mine = np.flatnonzero(labels == label)
        drawn = rng.choice(words, size=(mine.size, 40), p=p / p.sum())
        rows.append(np.repeat(mine, 40))
        columns.append(drawn.ravel())
    r, c = np.concatenate(rows), np.concatenate(columns)
    x = csr_matrix((np.ones(r.size), (r, c)), shape=(contexts, words))
    x.sum_duplicates()
    x.data = np.log1p(x.data)
    x = x.multiply(1.0 / np.sqrt(np.asarray(x.multiply(x).sum(axis=1)))).tocsr()
    from seamark.rounds import as_features
    from seamark.worlds.supervised import reward_noise

    features = as_features(x)
    right, wrong = reward_noise(rewards)
    return SupervisedWorld(f"text-{rewards}", features, labels, features, labels, n_actions, right, wrong)


def _linear(world: SupervisedWorld, seed: int, rows: int) -> LinearPolicy:
    fraction = rows / world.n_contexts
    return train_baseline(world, seed=seed, fraction=fraction, lr=0.05 / world.norm, epochs=20, acts=ACTS).policy


def _learned(make: Callable[[], SupervisedWorld], rows: int) -> Callable[[int], Setup]:
    def setup(seed: int) -> Setup:
        world = make()
        return Setup(still(world), _linear(world, seed, rows), ACTS)

    return setup


def by_row(table: FloatArray) -> Callable[[Any], FloatArray]:
    """Scores looked up by the context's only feature, its number."""
    return lambda contexts: table[np.asarray(contexts)[:, 0].astype(np.int64)]


def numbered(world: SupervisedWorld) -> SupervisedWorld:
    """The world with the number of each context as its only feature, for policies that are tables."""
    rows = np.arange(world.n_contexts, dtype=np.float64)[:, None]
    return SupervisedWorld(
        f"{world.name}-numbered", rows, world.labels, rows, world.labels, world.n_actions, world.right, world.wrong
    )


def choosing(world: SupervisedWorld, actions: IntArray) -> ScoredPolicy:
    """The policy that prefers the given action in each numbered context, in the baseline's form."""
    one_hot = np.eye(world.n_actions)[actions]
    return ScoredPolicy.of(by_row(one_hot), world.features, ACTS)


def _no_better(n_right: int, n_wrong: int) -> Callable[[int], Setup]:
    """Candidates that set `n_right` of the baseline's errors right and spoil `n_wrong` of its right answers."""

    def setup(seed: int) -> Setup:
        digits = _digits("perfect")
        chosen = _linear(digits, seed, 100).probabilities(digits.features).argmax(axis=1).astype(np.int64)
        world = numbered(digits)

        def candidate(number: int) -> Policy:
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(99, number)))
            is_right = chosen == world.labels
            actions = chosen.copy()
            fixed = rng.choice(np.flatnonzero(~is_right), n_right, replace=False)
            spoilt = rng.choice(np.flatnonzero(is_right), n_wrong, replace=False)
            actions[fixed] = world.labels[fixed]
            actions[spoilt] = (world.labels[spoilt] + rng.integers(1, world.n_actions, n_wrong)) % world.n_actions
            return choosing(world, actions)

        return Setup(still(world), choosing(world, chosen), ACTS, candidate)

    return setup


def _drift(at: int) -> Callable[[int], Setup]:
    """Is the digit 5 or more? From round `at` on the answers are swapped."""

    def setup(seed: int) -> Setup:
        digits = _digits("perfect")
        labels, test_labels = ((y >= 5).astype(np.int64) for y in (digits.labels, digits.test_labels))
        x, test = (
            np.column_stack([f, np.ones(len(f))]) for f in map(np.asarray, (digits.features, digits.test_features))
        )
        world = SupervisedWorld("digits-halves", x, labels, test, test_labels, 2, 1.0, 0.0)
        return Setup(DriftingWorld.permuting(world, [1, 0], at), _linear(world, seed, 20), ACTS)

    return setup


WEAK, STRONG = 30, 1_000
DRIFT_AT = 5_000
WORLDS: dict[str, Callable[[int], Setup]] = {
    "digits-perfect-weak": _learned(lambda: _digits("perfect"), WEAK),
    "digits-perfect-strong": _learned(lambda: _digits("perfect"), STRONG),
    "digits-near-random-weak": _learned(lambda: _digits("near-random"), WEAK),
    "digits-near-random-strong": _learned(lambda: _digits("near-random"), STRONG),
    "text-perfect-weak": _learned(lambda: text_world("perfect"), 100),
    "text-near-random-weak": _learned(lambda: text_world("near-random"), 100),
    "text-near-random-strong": _learned(lambda: text_world("near-random"), 2_000),
    "null": _no_better(100, 100),
    "worse": _no_better(100, 110),
    "drift": _drift(DRIFT_AT),
}
FIXED_WORLDS = ("null", "worse")


# -- one cell ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SafetyCell:
    gate: str
    learner: str
    world: str
    seed: int
    rounds: int
    check: int
    delta: float = 0.05

    @property
    def id(self) -> str:
        text = json.dumps({"safety": SCHEMA, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_cell(cell: SafetyCell) -> dict[str, Any]:
    """One run: its deployments with their true values, what it earned, and the time its gate took."""
    from seamark.kernels.linear import act_from_table

    setup = WORLDS[cell.world](cell.seed)
    drifting, base = setup.world, setup.baseline
    world = drifting.before
    learner: Learner
    if setup.candidates is not None:
        learner = FixedCandidates(setup.candidates)
    else:
        learner = LEARNERS[cell.learner](world, base, setup.acts, cell.seed)
    watch = CpuWatch(GATES[cell.gate](world, cell.delta, cell.seed))
    schedule = Schedule("every", cell.check)
    explorer = Explorer(base, learner=learner, gate=cast(Gate, watch), schedule=schedule)
    contexts, actions, rewards = (stream(cell.seed, r) for r in (Stream.CONTEXTS, Stream.ACTIONS, Stream.REWARDS))
    base_table = base.probabilities(world.features)
    table, acting, t, gain = base_table, explorer.acting, 0, 0.0
    values = {0: (drifting.before.value(base), drifting.after.value(base))}
    deployments: list[dict[str, Any]] = []
    worst = 0.0
    policies: list[Policy] = [base]
    while t < cell.rounds:
        n = min(schedule.after(t), cell.rounds, drifting.at if t < drifting.at else NEVER) - t
        now = drifting.world(t)
        rows = now.contexts(contexts.random(n))
        acted, p = np.empty(n, dtype=np.int64), np.empty(n)
        act_from_table(table, rows, actions.random(n), acted, p)
        gained = table - base_table
        gain += float((now.right - now.wrong) * gained[rows, now.labels[rows]].sum())
        reward = now.rewards(rows, acted, rewards.random(n))
        versions = np.full(n, explorer.version, dtype=np.int64)
        explorer.absorb(Rounds(world.features, rows, acted, reward, p, versions, t, True))
        t += n
        for decision in explorer.deployments[len(deployments) :]:
            assert decision.policy is not None  # it deploys
            policies.append(decision.policy)
            k = len(deployments)
            values[k + 1] = (drifting.before.value(decision.policy), drifting.after.value(decision.policy))
            late = decision.at >= drifting.at
            start = _judged_from(cell.gate, decision, deployments)
            early = min(max(drifting.at - start, 0), decision.at - start) / (decision.at - start)
            change = [new - old for new, old in zip(values[k + 1], values[k])]
            judged = early * change[0] + (1 - early) * change[1]
            allowed = EQUAL if setup.candidates is not None else -EQUAL
            deployments.append(
                {
                    "at": decision.at, "verdict": decision.verdict, "value_change": judged,
                    "is_false": judged <= allowed, "value_over_baseline": values[k + 1][late] - values[0][late],
                }
            )  # fmt: skip
        after = t >= drifting.at
        worst = min(worst, values[len(deployments)][after] - values[0][after])
        if explorer.acting is not acting:
            acting = explorer.acting
            table = acting.probabilities(world.features)
    return {
        "schema": SCHEMA, "id": cell.id, **asdict(cell), "deployments": deployments,
        "worst_value_change": min([worst, *(d["value_over_baseline"] for d in deployments)]),
        "reward_over_baseline": gain, "us_per_round": 1e6 * watch.seconds / cell.rounds,
        "value_of_baseline": values[0][0], "value_at_end": values[len(deployments)][t >= drifting.at],
    }  # fmt: skip


def _judged_from(gate: str, decision: Decision, before: list[dict[str, Any]]) -> int:
    """The first round that the gate's evidence is about."""
    if gate == "challenger":
        return decision.at - int(decision.evidence["n"])
    return int(before[-1]["at"]) if gate == "holdout" and before else 0


# -- a fixed pair --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FixedPair:
    """Two policies that do not learn, and the reward model of an outsider."""

    world: SupervisedWorld
    deployed: Policy
    candidate: Policy
    reward_model: Callable[[Any], FloatArray]

    @property
    def gain(self) -> float:
        return self.world.value(self.candidate) - self.world.value(self.deployed)


PAIR_LABELS = {"reward model": 200, "deployed": 60, "candidate": 300}


@cache
def fixed_pair(rewards: str = "perfect") -> FixedPair:
    """ "Perfect, mid": logistic regressions on 60 and on 300 labels of digits, epsilon-greedy at 0.1; gain about 0.09.

    The reward model is a logistic regression on 200 other labels: its probability of the action being right, turned
    into an expected reward. Labels are disjoint, drawn by a fixed permutation.
    """
    from sklearn.linear_model import LogisticRegression

    digits = _digits(rewards)
    x, world = np.asarray(digits.features), numbered(digits)
    order = np.random.default_rng(20200406).permutation(digits.n_contexts)
    models, start = {}, 0
    for name, n in PAIR_LABELS.items():
        rows = order[start : start + n]
        models[name] = LogisticRegression(C=1.0, max_iter=500).fit(x[rows], digits.labels[rows])
        start += n
    policies = {name: choosing(world, models[name].predict(x)) for name in ("deployed", "candidate")}
    q = world.expected_reward(models["reward model"].predict_proba(x))
    return FixedPair(world, policies["deployed"], policies["candidate"], by_row(q))


def rounds_to_deploy(pair: FixedPair, gate: str, *, seed: int, limit: int, leg: int = 100) -> tuple[int | None, float]:
    """Rounds until the pair's candidate, offered from the start, is deployed, looked at every `leg` rounds; and the
    gate's microseconds per round. Gates: paper, challenger (with the pair's reward model), challenger-mean."""
    from seamark.kernels.linear import act_from_table

    world = pair.world
    made: Gate
    if gate == "paper":
        made = PaperGate(world.n_actions)
    else:
        model = "mean" if gate == "challenger-mean" else pair.reward_model
        made = ChallengerGate(world.n_actions, reward_model=model, first_freeze=1)  # type: ignore[arg-type]  # a union
    contexts, actions, rewards = (stream(seed, r) for r in (Stream.CONTEXTS, Stream.ACTIONS, Stream.REWARDS))
    made.reign(pair.deployed, 0, 0)
    watch = CpuWatch(made)
    if gate != "paper":
        made.offer(pair.candidate, 1)
    table = pair.deployed.probabilities(world.features)
    for t in range(0, limit, leg):
        rows = world.contexts(contexts.random(leg))
        acted, p = np.empty(leg, dtype=np.int64), np.empty(leg)
        act_from_table(table, rows, actions.random(leg), acted, p)
        reward = world.rewards(rows, acted, rewards.random(leg))
        rounds = Rounds(world.features, rows, acted, reward, p, np.zeros(leg, dtype=np.int64), t, True)
        decision = watch.observe(rounds, pair.deployed)
        if gate == "paper":
            decision = watch.offer(pair.candidate, t + leg)
        if decision is not None and decision.deploys:
            return t + leg, 1e6 * watch.seconds / (t + leg)
    return None, 1e6 * watch.seconds / limit


def pair_medians(rewards: str = "perfect", *, seeds: int = 20, limit: int = 150_000) -> list[dict[str, Any]]:
    """Median rounds to deploy on the fixed pair, per gate."""
    pair, rows = fixed_pair(rewards), []
    for gate in ("paper", "challenger-mean", "challenger"):
        found = [rounds_to_deploy(pair, gate, seed=4200 + i, limit=limit) for i in range(seeds)]
        times = [math.inf if t is None else float(t) for t, _ in found]
        median = _median_with_never(times)
        rows.append(
            {
                "gate": gate, "gain": pair.gain, "seeds": seeds, "deployed": sum(map(math.isfinite, times)),
                "median": median if math.isfinite(median) else None,
                "us_per_round": float(np.median([us for _, us in found])),
            }
        )  # fmt: skip
    return rows


def cost_per_slot(*, slots: int = 4, rounds: int = 200_000, leg: int = 1_000, reward_model: Any = "mean") -> float:
    """CPU microseconds per round and slot of the challenger gate: digits, 10 actions, candidates that always differ."""
    from seamark.kernels.linear import act_from_table

    pair = fixed_pair("near-random")
    world, base = pair.world, pair.deployed.probabilities(pair.world.features).argmax(axis=1).astype(np.int64)
    gate = ChallengerGate(
        world.n_actions, slots=slots, first_freeze=1, growth=1.01, rollback=False, reward_model=reward_model
    )
    gate.reign(pair.deployed, 0, 0)
    for i in range(slots):  # differ from the deployed policy in every context, mostly for the worse: they stay
        gate.offer(choosing(world, (base + i + 1) % world.n_actions), 10 * (i + 1))
    watch, table = CpuWatch(gate), pair.deployed.probabilities(world.features)
    rng, warm = np.random.default_rng(0), 0.0
    for t in range(0, rounds, leg):
        rows = world.contexts(rng.random(leg))
        acted, p = np.empty(leg, dtype=np.int64), np.empty(leg)
        act_from_table(table, rows, rng.random(leg), acted, p)
        reward = world.rewards(rows, acted, rng.random(leg))
        watch.observe(
            Rounds(world.features, rows, acted, reward, p, np.zeros(leg, dtype=np.int64), t, True), pair.deployed
        )
        if t == 0:
            warm = watch.seconds  # compiling, and filling the tables
    assert len(gate.why()["challengers"]) == slots
    return 1e6 * (watch.seconds - warm) / (rounds - leg) / slots


# -- many cells ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """Seeds, rounds by learner, and the (learner, world) pairs that are run; fixed candidates are learner `fixed`."""

    seeds: int
    rounds: dict[str, int]
    pairs: tuple[tuple[str, str], ...]
    gates: tuple[str, ...] = tuple(GATES)
    check: int = 500
    about: str = ""


_LEARNED_WORLDS = tuple(w for w in WORLDS if w not in FIXED_WORLDS and w != "drift")
_FIXED_PAIRS = ((FIXED, "null"), (FIXED, "worse"))
SCALES: dict[str, Scale] = {
    "tiny": Scale(
        2,
        {"tree": 5_000, "logistic": 4_000, "ridge": 6_000, FIXED: 6_000, "drift": 12_000},
        (
            ("tree", "digits-near-random-strong"),
            ("logistic", "digits-near-random-strong"),
            ("ridge", "digits-perfect-weak"),
            (FIXED, "null"),
            ("ridge", "drift"),
        ),
        about="tree and logistic regression where the paper's gate fails, ridge where all is well, null, drift",
    ),
    "laptop": Scale(
        6,
        {
            "tree": 10_000, "logistic": 8_000, "forest": 6_000, "ridge": 40_000, "sgd": 40_000, FIXED: 20_000,
            "drift": 30_000,
        },
        (
            ("tree", "digits-near-random-strong"), ("tree", "digits-near-random-weak"), ("tree", "digits-perfect-weak"),
            ("forest", "digits-near-random-strong"), ("logistic", "digits-near-random-strong"),
            ("ridge", "digits-perfect-weak"), ("ridge", "digits-near-random-strong"), ("sgd", "digits-perfect-weak"),
            ("sgd", "digits-near-random-weak"), ("sgd", "text-near-random-strong"), ("sgd", "text-perfect-weak"),
            ("logistic", "text-near-random-strong"), *_FIXED_PAIRS, ("ridge", "drift"),
        ),
        about="every learner, every kind of world",
    ),
    "full": Scale(
        20,
        {
            "tree": 10_000, "logistic": 8_000, "forest": 6_000, "ridge": 40_000, "sgd": 40_000, FIXED: 20_000,
            "drift": 40_000,
        },
        (*((le, w) for le in LEARNERS for w in _LEARNED_WORLDS), *_FIXED_PAIRS, ("ridge", "drift")),
        about="everything",
    ),
}  # fmt: skip


def plan_cells(
    scale: str = "laptop",
    *,
    gates: Iterable[str] = (),
    learners: Iterable[str] = (),
    worlds: Iterable[str] = (),
    seeds: int = 0,
    first_seed: int = 4200,
    delta: float = 0.05,
) -> list[SafetyCell]:
    """The cells of a scale. Named learners and worlds are all combined, whether or not the scale pairs them."""
    chosen = SCALES[_known("scale", scale, SCALES)]
    gates, learners, worlds = tuple(gates) or chosen.gates, tuple(learners), tuple(worlds)
    for kind, names, known in (("gates", gates, GATES), ("worlds", worlds, WORLDS)):
        for name in names:
            _known(kind, name, known)
    for name in learners:
        _known("learners", name, {**LEARNERS, FIXED: None})
    pairs: list[tuple[str, str]] = [
        p for p in chosen.pairs if (not learners or p[0] in learners) and (not worlds or p[1] in worlds)
    ]
    if learners and worlds:
        pairs = [(le, w) for le in learners for w in worlds if (le == FIXED) == (w in FIXED_WORLDS)]
    elif worlds:
        pairs += [(FIXED, w) for w in worlds if w in FIXED_WORLDS and (FIXED, w) not in pairs]
        pairs += [(le, w) for w in worlds if not any(q[1] == w for q in pairs) for le in LEARNERS]
    elif learners:
        pairs += [(le, "digits-near-random-strong") for le in learners if not any(q[0] == le for q in pairs)]
    if not pairs:
        raise ValueError("learners, worlds: nothing is left to run; worlds null and worse go with the learner 'fixed'.")
    default = max(chosen.rounds.values())
    seeds = seeds or chosen.seeds
    return [
        SafetyCell(
            gate, learner, world, seed,
            chosen.rounds.get("drift" if world == "drift" else learner, default), chosen.check, delta,
        )
        for learner, world in pairs for gate in gates for seed in range(first_seed, first_seed + seeds)
    ]  # fmt: skip


def _known(kind: str, name: str, known: dict[str, Any]) -> str:
    if name not in known:
        raise ValueError(f"{kind}: {name!r} is not known; choose from {', '.join(known)}.")
    return name


def execute(cells: list[SafetyCell], out: Path | None = None, *, jobs: int = 1) -> Iterator[dict[str, Any]]:
    """Results as they come; those that are in `out` are not run again. The first runs alone: it compiles for all."""
    folder = None if out is None else out / "cells"
    todo = []
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        kept = None if folder is None else read_cell(folder / f"{cell.id}.json")
        if kept is None:
            todo.append(cell)
        else:
            yield kept
    for result in _run(todo, jobs or os.cpu_count() or 1):
        if folder is not None:
            write_json(folder / f"{result['id']}.json", result)
        yield result


def _run(cells: list[SafetyCell], jobs: int) -> Iterator[dict[str, Any]]:
    alone = cells if jobs == 1 else cells[:1]
    for cell in alone:
        yield _run_quietly(cell)
    if len(alone) == len(cells):
        return
    import multiprocessing

    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_run_quietly, cell) for cell in cells[1:]]
        for future in as_completed(futures):
            yield future.result()


def _run_quietly(cell: SafetyCell) -> dict[str, Any]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return run_cell(cell)


# -- what they say ---------------------------------------------------------------------------------------------------


def summarise(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per gate, learner and world, in the order of the tables above."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["learner"], result["world"], result["gate"]), []).append(result)
    order = [[*LEARNERS, FIXED], list(WORLDS), list(GATES)]
    rows = []
    for key in sorted(groups, key=lambda k: [names.index(name) for names, name in zip(order, k)]):
        runs = groups[key]
        firsts = [r["deployments"][0]["at"] if r["deployments"] else math.inf for r in runs]
        median = float(np.median(firsts)) if all(map(math.isfinite, firsts)) else _median_with_never(firsts)
        deployments = [d for r in runs for d in r["deployments"]]
        rows.append(
            {
                "gate": key[2], "learner": key[0], "world": key[1], "seeds": len(runs), "rounds": runs[0]["rounds"],
                "runs_with_false_deployment": sum(any(d["is_false"] for d in r["deployments"]) for r in runs),
                "deployments": len(deployments),
                "false_deployments": sum(d["is_false"] for d in deployments),
                "rollbacks": sum(d["verdict"] == "rollback" for d in deployments),
                "worst_value_change": min(r["worst_value_change"] for r in runs),
                "median_first_deployment": median if math.isfinite(median) else None,
                "reward_over_baseline": float(np.mean([r["reward_over_baseline"] for r in runs])),
                "us_per_round": float(np.mean([r["us_per_round"] for r in runs])),
            }
        )  # fmt: skip
    return rows


def _median_with_never(firsts: list[float]) -> float:
    ordered = sorted(firsts)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2 if math.isfinite(high) else math.inf


def binomial_interval(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval of a rate of which k of n were seen.

    >>> [round(limit, 3) for limit in binomial_interval(0, 20)]
    [0.0, 0.168]
    """
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = float(beta.ppf(tail, k, n - k + 1)) if k else 0.0
    return low, float(beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0


def broken_promises(rows: Iterable[dict[str, Any]], delta: float) -> dict[str, float]:
    """Gates that promise delta and whose false runs, over all cells, have a probability below `FALSE_ALARM` at it."""
    from scipy.stats import binom

    found = {}
    rows = list(rows)
    for gate in PROMISING:
        mine = [r for r in rows if r["gate"] == gate]
        runs, false = sum(r["seeds"] for r in mine), sum(r["runs_with_false_deployment"] for r in mine)
        p = float(binom.sf(false - 1, runs, delta)) if runs else 1.0
        if p < FALSE_ALARM:
            found[gate] = p
    return found


def safety_benchmark_table(rows: list[dict[str, Any]]) -> Table:
    """The rows for a person."""

    def text(row: dict[str, Any]) -> tuple[str, ...]:
        k, n = row["runs_with_false_deployment"], row["seeds"]
        low, high = binomial_interval(k, n)
        first = row["median_first_deployment"]
        back = f" ({row['rollbacks']} back)" if row["rollbacks"] else ""
        return (
            f"{row['learner']}, {row['world']}", row["gate"], f"{k}/{n}", f"{100 * low:.0f}-{100 * high:.0f} %",
            f"{row['deployments']}{back}", f"{row['worst_value_change']:+.3f}",
            "never" if first is None else f"{first:,.0f}",
            f"{row['reward_over_baseline']:+,.0f}", f"{row['us_per_round']:.2f}",
        )  # fmt: skip

    return Table(
        name="safety-benchmark",
        title="Runs that deployed a worse policy",
        note=(
            "False: runs with a deployment truly worse than what it replaced (null, worse: with any), with a 95 % "
            "interval. Worst: lowest value reached, relative to the baseline. First: median first deployment. Gain: "
            "expected reward over the baseline per run. us: microseconds of the gate per round, scoring included."
        ),
        headers=("Learner, world", "Gate", "False", "95 %", "Deployed", "Worst", "First", "Gain", "us"),
        rows=tuple(text(row) for row in rows),
    )
