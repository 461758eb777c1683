"""One cell of the ranking task: one method, one set of users, one seed, from the first round to a written result.

Three sums are kept of what users were shown. `expected_gain` (exact expected click-DCG@10 over the baseline's) is the
metric that gates certify, and unsafe deployments and the worst shortfall count by it. Clicks (`cumulative_reward`) and
nDCG@10 are reported beside it, without a promise.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol, cast

import numpy as np

from seamark import __version__
from seamark.experiments.cell import SCHEMA, Stopped, Stopwatch, _plain, evaluation_rounds, legs
from seamark.experiments.methods import Options
from seamark.experiments.ranking_methods import METHODS, RankingMethod, RankingSetting
from seamark.explorer import Explorer
from seamark.gates import Gate, NeverGate, Schedule
from seamark.policies.displays import serve
from seamark.policies.rankers import ListCache, Ranker, TableRanker, UnsoundRanker
from seamark.randomness import Stream, stream
from seamark.rankings import RankingDraws, RankingRounds
from seamark.worlds.ranking import RankingBaseline, RankingWorld, train_production

CHECK_TAIL = 10_000
"""Rounds between the later checks of the published schedule."""


@dataclass(frozen=True)
class RankingCellConfig:
    """Everything that determines the numbers of a cell."""

    task: str
    data: str
    data_sha256: str
    method: str
    clicks: str
    semantics: str
    baseline_options: Options
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

    def baseline(self, world: RankingWorld) -> RankingBaseline:
        return train_production(world, seed=self.seed, **self.baseline_options)


class RankingAgent(Protocol):
    """Who displays in a cell, and what it would deploy."""

    def step(self, draws: RankingDraws) -> RankingRounds:
        """Displays for a leg, and learns from it."""
        ...

    @property
    def deployed(self) -> Ranker: ...

    @property
    def learned(self) -> Ranker: ...


class GatedRanking:
    """An explorer over a world: shows the cached lists of the deployed ranker."""

    def __init__(self, explorer: Explorer, world: RankingWorld, method: RankingMethod, options: Options) -> None:
        self.explorer, self.world = explorer, world
        self.display = method.display(options, world)
        self.lists = ListCache(self.display.depth, capacity=4)

    def step(self, draws: RankingDraws) -> RankingRounds:
        e = self.explorer
        rounds = serve(
            self.deployed, self.display, self.world.train.users, draws, self.lists, first=e.t, version=e.version
        )
        e.absorb(cast(Any, rounds))
        return rounds

    @property
    def deployed(self) -> Ranker:
        return cast(Ranker, self.explorer.deployed)

    @property
    def learned(self) -> Ranker:
        return cast(Ranker, self.explorer.learner.candidate())


class OnlineRanking:
    """A learner whose own displays move every round. What it deploys is its ranker, without its exploration."""

    def __init__(self, learner: Any, world: RankingWorld, baseline: RankingBaseline) -> None:
        self.learner, self.world, self.baseline = learner, world, baseline
        self._done = 0

    def step(self, draws: RankingDraws) -> RankingRounds:
        rounds: RankingRounds = self.learner.run(self.world.train.users, draws, self._done)
        self._done += draws.queries.size
        return rounds

    @property
    def deployed(self) -> Ranker:
        return self.learned

    @property
    def learned(self) -> Ranker:
        """Lists without features say nothing of queries that are held out: there the production ranker stands."""
        candidate: Ranker = self.learner.candidate()
        return self.baseline.ranker if isinstance(candidate, TableRanker) else candidate


def agent_of(
    config: RankingCellConfig, world: RankingWorld, baseline: RankingBaseline, schedule: Schedule
) -> tuple[RankingAgent, Stopwatch | None]:
    """The method of a cell, ready to start, and its gate."""
    method = METHODS[config.method]
    setting = RankingSetting(config.semantics, config.delta, config.rounds)
    learner = method.learner(config.options, world, baseline, setting)
    if method.gate is None:
        return OnlineRanking(learner, world, baseline), None
    gate = Stopwatch(method.gate(config.options, world, setting))
    explorer = Explorer(cast(Any, baseline.ranker), learner=learner, gate=cast(Gate, gate), schedule=schedule)
    return GatedRanking(explorer, world, method, config.options), gate


class RankingStreams:
    """The queries and uniforms of a seed, leg by leg; how they are cut into legs changes nothing."""

    def __init__(self, world: RankingWorld, seed: int, *, draws: bool) -> None:
        roles = (Stream.CONTEXTS, Stream.ACTIONS, Stream.REWARDS, Stream.LEARNER)
        self._queries, self._actions, self._clicks, self._learner = (stream(seed, role) for role in roles)
        self._world, self._draws = world, draws

    def leg(self, n: int) -> RankingDraws:
        """`draws`: whether displays are random; others take no uniforms."""
        shape = (n, self._world.kappa)
        return RankingDraws(
            self._world.queries(self._queries.random(n)),
            self._actions.random(shape) if self._draws else np.empty((n, 0)),
            self._clicks.random(shape),
            self._learner,
        )


def checks_of(gate: Stopwatch | None, schedule: Schedule) -> Schedule | None:
    """The checks that end legs: none where nothing is checked."""
    return schedule if gate is not None and not isinstance(gate.gate, NeverGate) else None


def run_ranking_cell(
    config: RankingCellConfig,
    world: RankingWorld,
    baseline: RankingBaseline,
    *,
    progress: Callable[[int], None] = lambda done: None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Runs the cell and returns its result as plain values."""
    start = time.perf_counter()
    method = METHODS[config.method]
    schedule = Schedule.parse(config.check, tail=CHECK_TAIL)
    agent, gate = agent_of(config, world, baseline, schedule)
    streams = RankingStreams(world, config.seed, draws=method.draws)
    train = world.train
    at = evaluation_rounds(config.rounds)
    points, curves = set(at), _Curves(world)
    sums = Sums()
    display = method.display(config.options, world) if method.draws and gate is not None else None
    values = [world.value(baseline.ranker, display)]
    deployments: list[dict[str, Any]] = []
    learning = 0.0
    curves.evaluate(agent, sums)
    t = 0
    for end in legs(config.rounds, checks_of(gate, schedule), at):
        if stopped():
            raise Stopped
        n, t = end - t, end
        draws = streams.leg(n)
        checked = gate.seconds if gate else 0.0
        before = time.perf_counter()
        rounds = agent.step(draws)
        learning += time.perf_counter() - before - ((gate.seconds if gate else 0.0) - checked)
        would = baseline.lists[draws.queries]
        sums.clicks += rounds.n_clicks
        sums.baseline_clicks += int(np.count_nonzero(train.clicks(would, draws.clicks)))
        sums.ndcg += float(train.ndcg(rounds.displayed, draws.queries).sum())
        sums.baseline_ndcg += float(baseline.ndcg[draws.queries].sum())
        running = sums.gain + np.cumsum(train.gain(rounds.displayed) - baseline.gain[draws.queries])
        sums.gain, sums.worst = float(running[-1]), min(sums.worst, float(running.min()))
        if isinstance(agent, GatedRanking):
            for decision in agent.explorer.deployments[len(deployments) :]:
                values.append(world.value(cast(Ranker, decision.policy), display))
                deployments.append(
                    {
                        "at": decision.at, "from": len(values) - 2, "to": len(values) - 1,
                        "verdict": decision.verdict, "evidence": _plain(decision.evidence),
                        "true_value_before": values[-2], "true_value_after": values[-1],
                    }
                )  # fmt: skip
        if t in points:
            curves.evaluate(agent, sums)
        progress(t)
    checking = gate.seconds if gate else 0.0
    return {
        "schema": SCHEMA, "id": config.id, "task": config.task, "data": config.data, "method": config.method,
        "clicks": config.clicks, "semantics": config.semantics, "baseline": "pairwise-hinge", "floor": 0.0,
        "delta": config.delta, "seed": config.seed, "rounds": config.rounds,
        "config": {
            **config.options, "check": config.check, "baseline": {**config.baseline_options, **baseline.config},
            "data_sha256": config.data_sha256, "examination": world.examination.tolist(),
        },
        "version": __version__,
        "at": at,
        **_plain(curves.columns),
        "true_value_baseline": values[0],
        "deployments": deployments,
        "unsafe_deployments": sum(d["true_value_after"] < d["true_value_before"] for d in deployments),
        "worst_shortfall": sums.worst,
        "checks": gate.offers if gate else 0,
        "check_records": _plain(gate.records()) if gate else {},
        "seconds": {"total": time.perf_counter() - start, "learning": learning, "checking": checking},
        "rounds_per_second": config.rounds / max(learning + checking, 1e-9),
    }  # fmt: skip


@dataclass
class Sums:
    """What users were shown and did so far; `gain` and `worst` relative to the baseline, in click-DCG@10."""

    clicks: int = 0
    baseline_clicks: int = 0
    ndcg: float = 0.0
    baseline_ndcg: float = 0.0
    gain: float = 0.0
    worst: float = 0.0


class _Curves:
    """What is measured at the evaluation rounds."""

    def __init__(self, world: RankingWorld) -> None:
        self._world = world
        names = (
            "cumulative_reward", "baseline_cumulative_reward", "cumulative_ndcg10", "baseline_cumulative_ndcg10",
            "expected_gain", "deployed_test_ndcg10", "deployed_test_value", "learned_test_ndcg10",
            "learned_test_value",
        )  # fmt: skip
        self.columns: dict[str, list[float]] = {name: [] for name in names}
        self._known: dict[str, tuple[float, float]] = {}

    def evaluate(self, agent: RankingAgent, sums: Sums) -> None:
        row = (
            float(sums.clicks), float(sums.baseline_clicks), sums.ndcg, sums.baseline_ndcg, sums.gain,
            *self._score(agent.deployed), *self._score(agent.learned),
        )  # fmt: skip
        for column, value in zip(self.columns.values(), row):
            column.append(value)

    def _score(self, ranker: Ranker) -> tuple[float, float]:
        """nDCG@10 and click-DCG@10 on the held-out queries, exact."""
        key = ranker.id
        if key not in self._known:
            try:
                self._known[key] = self._world.test.score(ranker)
            except UnsoundRanker:  # a learner has diverged: there is no value, and it is shown as missing
                self._known[key] = (math.nan, math.nan)
        return self._known[key]


__all__ = ["RankingCellConfig", "run_ranking_cell"]
