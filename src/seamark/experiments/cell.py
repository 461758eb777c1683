"""One cell of an experiment: one method, one world, one seed, from the first round to a result that can be written."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol, cast

import numpy as np

from seamark import __version__
from seamark.experiments.methods import METHODS, Options, Setting, as_seen, normals, projected
from seamark.explorer import Explorer
from seamark.gates import Gate, NeverGate, Schedule
from seamark.learners.base import Acted, Draws, OnlineLearner, acted
from seamark.policies import ActingForm, LinearPolicy, Policy
from seamark.randomness import Stream, stream
from seamark.rounds import Rounds
from seamark.worlds.supervised import Baseline, SupervisedWorld, accuracy

SCHEMA = 1
MAX_LEG = 8192


class Stopped(Exception):
    """Somebody asked the cell to stop; nothing is written."""


@dataclass(frozen=True)
class CellConfig:
    """Everything that determines the numbers of a cell."""

    task: str
    data: str
    data_sha256: str
    method: str
    rewards: str
    right: float
    wrong: float
    semantics: str
    baseline: str
    baseline_options: Options
    floor: float
    delta: float
    seed: int
    rounds: int
    check: str
    options: Options

    @property
    def id(self) -> str:
        """Hash of the configuration: not of version, jobs or folder, but of the data's hash."""
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def acts(self) -> ActingForm:
        from seamark.experiments.methods import acting_form

        return acting_form(self.baseline, self.baseline_options["tau"], self.floor)


def evaluation_rounds(rounds: int) -> list[int]:
    """0 and ten log-spaced rounds per decade, every power of ten and the last round included.

    >>> evaluation_rounds(20)
    [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20]
    """
    points = {0, rounds}
    k = 0
    while (t := round(10 ** (k / 10))) <= rounds:
        points.add(t)
        k += 1
    return sorted(points)


def legs(rounds: int, schedule: Schedule | None, at: list[int]) -> Iterator[int]:
    """End of every leg: at checks (None: there are none), at evaluation rounds, and after MAX_LEG rounds at most."""
    t, points = 0, iter(at)
    point = next(points)
    while t < rounds:
        while point <= t:
            point = next(points, rounds)
        t = min(schedule.after(t) if schedule else rounds, point, t + MAX_LEG, rounds)
        yield t


class Agent(Protocol):
    """Who acts in a cell, and what it would deploy."""

    def step(self, draws: Draws) -> Acted:
        """Acts for a leg, and learns from it."""
        ...

    @property
    def deployed(self) -> Policy: ...

    @property
    def learned(self) -> Policy:
        """The learner's weights, acting greedily."""
        ...


class Stopwatch:
    """A gate that is timed."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.seconds, self.offers = gate, 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.gate, name)

    def observe(self, rounds: Rounds, deployed: Policy) -> Any:
        start = time.perf_counter()
        try:
            return self.gate.observe(rounds, deployed)
        finally:
            self.seconds += time.perf_counter() - start

    def offer(self, candidate: Policy, at: int) -> Any:
        start = time.perf_counter()
        try:
            return self.gate.offer(candidate, at)
        finally:
            self.seconds += time.perf_counter() - start
            self.offers += 1


class GatedAgent:
    """An explorer over a world: acts from cached probabilities of the policy that acts."""

    def __init__(self, explorer: Explorer, world: SupervisedWorld) -> None:
        self.explorer, self.world = explorer, world
        self._acting: Policy | None = None
        self._table = self._expected = np.empty(0)
        self.rounds_done = 0

    def step(self, draws: Draws) -> Acted:
        from seamark.kernels.linear import act_from_table

        world, out = self.world, acted(draws.rows.size)
        acting = self.explorer.acting
        if acting is not self._acting:
            self._acting = acting
            self._table = acting.probabilities(world.features)
            self._expected = world.expected_reward(self._table[np.arange(world.n_contexts), world.labels])
        act_from_table(self._table, draws.rows, draws.actions, out.actions, out.propensities)
        out.rewards[:] = world.rewards(draws.rows, out.actions, draws.rewards)
        out.expected[:] = self._expected[draws.rows]
        self.explorer.absorb(
            Rounds(
                world.features, draws.rows, out.actions, out.rewards, out.propensities,
                np.full(draws.rows.size, self.explorer.version, dtype=np.int64),
                first=self.explorer.t, recurring=True,
                probabilities=None if acting is self.explorer.deployed else self._table[draws.rows],
            )
        )  # fmt: skip
        return out

    @property
    def deployed(self) -> Policy:
        return self.explorer.deployed

    @property
    def learned(self) -> Policy:
        return greedy(self.explorer.learner.candidate())


class OnlineAgent:
    """A learner whose own policy acts and moves every round."""

    def __init__(self, learner: OnlineLearner, world: SupervisedWorld) -> None:
        self.learner, self.world = learner, world

    def step(self, draws: Draws) -> Acted:
        return self.learner.run(self.world.answers, draws)

    @property
    def deployed(self) -> Policy:
        """What would act in the next round; a learner whose candidate is that very policy has no `acting_policy`."""
        acting: Policy = getattr(self.learner, "acting_policy", self.learner.candidate)()
        return acting

    @property
    def learned(self) -> Policy:
        return greedy(self.learner.candidate())


def greedy(policy: Policy) -> Policy:
    """A linear policy's weights, acting greedily; any other policy as it is."""
    return LinearPolicy(policy.weights, ActingForm.greedy()) if isinstance(policy, LinearPolicy) else policy


@np.errstate(over="ignore", invalid="ignore")  # a learner that diverges is told by `_require_finite`
def run_cell(
    config: CellConfig,
    world: SupervisedWorld,
    baseline: Baseline,
    *,
    progress: Callable[[int], None] = lambda done: None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Runs the cell and returns its result as plain values.

    Raises `FloatingPointError` at the first evaluation that finds the learner diverged.
    """
    from seamark.kernels.linear import act_from_table

    start = time.perf_counter()
    method = METHODS[config.method]
    setting = Setting(config.semantics, config.delta, config.floor)
    schedule = Schedule.parse(config.check)
    seen = projected(config.method, config.options, world)
    learner = method.learner(config.options, seen, as_seen(baseline, world, seen), setting)
    gate: Stopwatch | None = None
    agent: Agent
    if method.gate is not None:
        gate = Stopwatch(method.gate(config.options, seen, setting))
        explorer = Explorer(baseline.policy, learner=learner, gate=cast(Gate, gate), schedule=schedule)
        agent = GatedAgent(explorer, seen)
    else:
        agent = OnlineAgent(cast(OnlineLearner, learner), seen)

    checks = schedule if gate is not None and not isinstance(gate.gate, NeverGate) else None
    contexts, actions, rewards = (stream(config.seed, r) for r in (Stream.CONTEXTS, Stream.ACTIONS, Stream.REWARDS))
    own = normals(config.seed)
    base = baseline.policy.probabilities(world.features)
    base_expected = world.expected_reward(base[np.arange(world.n_contexts), world.labels])
    values = [world.value(baseline.policy)]
    versions: list[Policy] = [baseline.policy]
    curves = _Curves(evaluation_rounds(config.rounds))
    deployments: list[dict[str, Any]] = []
    cumulative = base_cumulative = gain = worst = 0.0
    learning = 0.0
    curves.evaluate(0, agent, seen, 0.0, 0.0, 0.0)
    t = 0
    for end in legs(config.rounds, checks, curves.at):
        if stopped():
            raise Stopped
        n = end - t
        draws = Draws(world.contexts(contexts.random(n)), actions.random(n), rewards.random(n), own)
        checked = gate.seconds if gate else 0.0
        before = time.perf_counter()
        out = agent.step(draws)
        learning += time.perf_counter() - before - ((gate.seconds if gate else 0.0) - checked)
        would = acted(n)
        act_from_table(base, draws.rows, draws.actions, would.actions, would.propensities)
        cumulative += float(out.rewards.sum())
        base_cumulative += float(world.rewards(draws.rows, would.actions, draws.rewards).sum())
        running = gain + np.cumsum(out.expected - base_expected[draws.rows])
        gain, worst = float(running[-1]), min(worst, float(running.min()))
        t = end
        if method.gate is not None:
            for decision in explorer.deployments[len(deployments) :]:
                assert decision.policy is not None
                versions.append(decision.policy)
                values.append(world.value(decision.policy))
                deployments.append(
                    {
                        "at": decision.at, "from": len(values) - 2, "to": len(values) - 1,
                        "verdict": decision.verdict, "evidence": _plain(decision.evidence),
                        "true_value_before": values[-2], "true_value_after": values[-1],
                    }
                )  # fmt: skip
        if t in curves.points:
            _require_finite(agent.learned, gain, t, config)
            curves.evaluate(t, agent, seen, cumulative, base_cumulative, gain)
        progress(t)
    total = time.perf_counter() - start
    checking = gate.seconds if gate else 0.0
    return {
        "schema": SCHEMA, "id": config.id, "task": config.task, "data": config.data, "method": config.method,
        "rewards": config.rewards, "semantics": config.semantics, "baseline": config.baseline, "floor": config.floor,
        "delta": config.delta, "seed": config.seed, "rounds": config.rounds,
        "config": {
            **config.options, "check": config.check, "baseline": {**config.baseline_options, **baseline.config},
            "data_sha256": config.data_sha256, "right": config.right, "wrong": config.wrong,
        },
        "version": __version__,
        **curves.columns(),
        "true_value_baseline": values[0],
        "deployments": deployments,
        "unsafe_deployments": sum(d["true_value_after"] < d["true_value_before"] for d in deployments),
        "worst_shortfall": worst,
        "checks": gate.offers if gate else 0,
        "check_records": _plain(gate.records()) if gate else {},
        "seconds": {
            "total": total, "learning": learning, "checking": checking,
            **({"members": _plain(learner.seconds)} if hasattr(learner, "seconds") else {}),
        },
        "rounds_per_second": config.rounds / max(learning + checking, 1e-9),
        **_learner_notes(learner),
    }  # fmt: skip


def _require_finite(learned: Policy, gain: float, t: int, config: CellConfig) -> None:
    """Refuses to go on with a learner that diverged; `gain` stays NaN once an acting policy's probabilities were."""
    if not (isinstance(learned, LinearPolicy) and not np.isfinite(learned.weights).all()) and math.isfinite(gain):
        return
    remedy = f"; lower --set {config.method}.lr ({config.options['lr']:g} here)" if "lr" in config.options else ""
    raise FloatingPointError(f"weights are not finite after t={t}{remedy}.")


def _learner_notes(learner: Any) -> dict[str, Any]:
    """What a learner kept to tell, such as CLUCB's slack."""
    names = ("n_conservative", "smallest_slack", "is_guaranteed")
    return {name: _plain(getattr(learner, name)) for name in names if hasattr(learner, name)}


class _Curves:
    """What is measured at the evaluation rounds."""

    def __init__(self, at: list[int]) -> None:
        self.at, self.points = at, set(at)
        names = (
            "cumulative_reward", "baseline_cumulative_reward", "expected_gain", "deployed_test_accuracy",
            "deployed_test_value", "learned_test_accuracy", "learned_test_value",
        )  # fmt: skip
        self._columns: dict[str, list[float]] = {name: [] for name in names}
        self._last: tuple[Policy, float] | None = None

    def evaluate(
        self, t: int, agent: Agent, world: SupervisedWorld, cumulative: float, base: float, gain: float
    ) -> None:
        deployed = agent.deployed
        if self._last is None or self._last[0] is not deployed:
            self._last = deployed, world.test_accuracy(deployed)
        right = self._last[1]
        learned = accuracy(agent.learned, world.test_features, world.test_labels)
        row = (
            cumulative, base, gain, right, float(world.expected_reward(right)),
            learned, float(world.expected_reward(learned)),
        )  # fmt: skip
        for column, value in zip(self._columns.values(), row):
            column.append(value)

    def columns(self) -> dict[str, Any]:
        return {"at": self.at, **self._columns}


def _plain(value: Any) -> Any:
    """The value as JSON holds it; NaN and infinities become null."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


__all__ = ["CellConfig", "Stopped", "evaluation_rounds", "run_cell"]
