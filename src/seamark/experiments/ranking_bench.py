"""Speed of the ranking task: rounds per CPU second of every method, beside the yardstick of `bench classification`.

What is timed is the loop that a run performs (queries, displays, clicks, learning, checks), not its evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from seamark.experiments.bench import _row, best_rate, world_for, yardstick
from seamark.experiments.cell import evaluation_rounds, legs
from seamark.experiments.ranking_cell import (
    CHECK_TAIL,
    RankingCellConfig,
    RankingStreams,
    agent_of,
    checks_of,
)
from seamark.experiments.ranking_methods import METHODS, baseline_options, method_options
from seamark.gates import Schedule
from seamark.worlds.letor import load
from seamark.worlds.ranking import RankingBaseline, RankingWorld, train_production

DATA = "letor-synthetic:mslr10k:queries=2000:documents=120:features=136"
"""Lists and features as in MSLR-WEB10K, where the published code was timed."""

CLICKS = "position-biased"
ROUNDS = 100_000
BARS = {"ranksvm-online": 0.45, "sea": 0.30}
"""Ratios to the yardstick that we hold ourselves to; the published code reaches 0.112 and 0.045 on such data."""


def runner(
    name: str, world: RankingWorld, baseline: RankingBaseline, options: dict[str, Any], rounds: int
) -> Callable[[], None]:
    """One run of a method under the released semantics, without evaluation."""
    own = method_options(name, data=world.name, clicks=CLICKS, norm=world.norm)
    config = RankingCellConfig(
        "ranking", world.name, world.sha256, name, CLICKS, "released", options, 0.05, 4200, rounds, "published", own
    )

    def run() -> None:
        schedule = Schedule.parse(config.check, tail=CHECK_TAIL)
        agent, gate = agent_of(config, world, baseline, schedule)
        streams = RankingStreams(world, config.seed, draws=METHODS[name].draws)
        t = 0
        for end in legs(rounds, checks_of(gate, schedule), evaluation_rounds(rounds)):
            agent.step(streams.leg(end - t))
            t = end

    return run


def bench_ranking(
    methods: tuple[str, ...] = tuple(METHODS), *, data: str = DATA, rounds: int = ROUNDS, repeats: int = 3
) -> Iterator[dict[str, Any]]:
    """Rows {data, method, rounds, rounds_per_second, ratio} and `bar` where there is one; the yardstick is row one."""
    usps = world_for("usps")
    best_rate(lambda: yardstick(usps, 2_000), 2_000, 1)

    def standard() -> float:
        return best_rate(lambda: yardstick(usps, 50_000), 50_000, repeats)

    unit = standard()
    yield _row(usps.name, "yardstick (NumPy epsilon-greedy)", 50_000, unit, unit)
    world, baseline, options = prepared(data)
    for name in methods:
        runner(name, world, baseline, options, 2_000)()  # compiles
        unit = max(unit, standard())  # the fastest that the yardstick was ever seen
        rate = best_rate(runner(name, world, baseline, options, rounds), rounds, repeats)
        bar = {"bar": BARS[name]} if name in BARS else {}
        yield _row("mslr-shaped" if data == DATA else world.name, name, rounds, rate, unit) | bar


def bench_ranking_growth(
    rounds: tuple[int, ...] = (100_000, 300_000, 1_000_000), *, data: str = DATA
) -> Iterator[dict[str, Any]]:
    """Seconds against rounds of SEA, checks included, which must be a line: the last row is the line at ten million."""
    world, baseline, options = prepared(data)
    runner("sea", world, baseline, options, 2_000)()
    name = "mslr-shaped" if data == DATA else world.name
    seconds: list[float] = []
    for n in rounds:
        rate = best_rate(runner("sea", world, baseline, options, n), n, 1)
        seconds.append(n / rate)
        yield {"data": name, "method": "sea", "rounds": n, "seconds": seconds[-1], "rounds_per_second": rate}
    far = 10_000_000
    slope = (seconds[-1] - seconds[0]) / (rounds[-1] - rounds[0])
    then = seconds[-1] + slope * (far - rounds[-1])
    yield {
        "data": name, "method": "sea, by the line", "rounds": far, "seconds": then, "rounds_per_second": far / then,
    }  # fmt: skip


def prepared(data: str) -> tuple[RankingWorld, RankingBaseline, dict[str, Any]]:
    """The world, a baseline for it, and how it was trained."""
    world = RankingWorld.of(load(data), CLICKS)
    options = baseline_options(world)
    return world, train_production(world, seed=4200, **options), options


__all__ = ["bench_ranking", "bench_ranking_growth"]
