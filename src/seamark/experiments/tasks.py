"""What differs between the tasks of a run: options, worlds, methods, cells. Everything else of a run is shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from seamark.experiments import methods, ranking_methods
from seamark.experiments.cell import CellConfig, run_cell
from seamark.experiments.ranking_cell import RankingCellConfig, run_ranking_cell
from seamark.worlds import datasets, letor
from seamark.worlds.clicks import find_model
from seamark.worlds.ranking import RankingBaseline, RankingWorld
from seamark.worlds.supervised import Baseline, SupervisedWorld, reward_noise, train_baseline

if TYPE_CHECKING:
    from seamark.experiments.run import RunConfig

BASELINES = ("boltzmann", "epsilon-greedy")
Skipped = dict[str, str]


class AnyCell(Protocol):
    """What a run needs to know of a cell."""

    @property
    def id(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def rounds(self) -> int: ...


class Task(Protocol):
    """`W`orld, `B`aseline and cells belong together; a run only passes them on."""

    defaults: ClassVar[dict[str, Any]]
    """Options of this task alone, with what they are where nobody says otherwise."""

    def check(self, config: RunConfig) -> list[str]:
        """Refuses what is impossible, before anything is loaded; returns the names of the task's methods."""
        ...

    def world(self, config: RunConfig) -> Any: ...

    def cells(self, config: RunConfig, world: Any) -> tuple[list[Any], list[Skipped]]:
        """The cells, and the methods that cannot run in this world."""
        ...

    def baseline(self, cell: Any, world: Any) -> Any:
        """The baseline of the cell's seed, which all its methods share."""
        ...

    def run(
        self, cell: Any, world: Any, baseline: Any, progress: Callable[[int], None], stopped: Callable[[], bool]
    ) -> dict[str, Any]: ...


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name}: {value!r}; must be {' or '.join(known)}.")


class Classification:
    defaults: ClassVar[dict[str, Any]] = {
        "data": "digits", "methods": "seamark,sea,bsea,ips,epsilon-greedy,linucb", "rewards": "perfect",
        "baseline": "boltzmann", "floor": None,
    }  # fmt: skip

    def check(self, config: RunConfig) -> list[str]:
        one_of("baseline", config.baseline, BASELINES)
        if not 0 <= config.floor_used <= 1:
            raise ValueError(f"floor: {config.floor}; must be in [0, 1].")
        reward_noise(config.rewards)
        names = methods.resolve_methods(config.methods)
        if config.semantics == "paper" and config.floor_used == 0 and "sea" in names:
            raise ValueError(
                "floor: 0 leaves no lowest propensity, so the paper's bound does not exist; use a floor such as 0.05, "
                "or --semantics released, or leave sea out."
            )
        return list(methods.METHODS)

    def world(self, config: RunConfig) -> SupervisedWorld:
        return SupervisedWorld.of(datasets.load(config.data), config.rewards)

    def cells(self, config: RunConfig, world: SupervisedWorld) -> tuple[list[CellConfig], list[Skipped]]:
        base = methods.baseline_options(world.name, config.baseline, world.n_contexts, world.n_actions)
        names = methods.resolve_methods(config.methods)
        cells: list[CellConfig] = []
        skipped: list[Skipped] = []
        for name in dict.fromkeys([*names, *config.overrides]):
            options = methods.method_options(
                name, data=world.name, rewards=config.rewards, baseline=config.baseline, tau=base["tau"],
                norm=world.norm, overrides=config.overrides.get(name),
            )  # fmt: skip
            if name not in names:  # its overrides were looked at, so that a misspelt one never passes in silence
                continue
            if (reason := methods.too_large(name, options, world)) is not None:
                skipped.append({"method": name, "reason": reason})
                continue
            acts = methods.acting_form(config.baseline, base["tau"], config.floor_used)
            setting = methods.Setting(config.semantics, config.delta, config.floor_used)
            methods.try_out(name, options, world, acts, setting)
            for seed in config.seeds_used:
                cells.append(
                    CellConfig(
                        config.task, world.name, world.sha256, name, config.rewards, world.right, world.wrong,
                        config.semantics, config.baseline, base, config.floor_used, config.delta, seed, config.rounds,
                        config.check, options,
                    )
                )  # fmt: skip
        return cells, skipped

    def baseline(self, cell: CellConfig, world: SupervisedWorld) -> Baseline:
        b = cell.baseline_options
        return train_baseline(
            world, seed=cell.seed, fraction=b["fraction"], lr=b["lr"], l2=b["l2"], epochs=b["epochs"], acts=cell.acts()
        )

    def run(
        self, cell: CellConfig, world: SupervisedWorld, baseline: Baseline, progress: Any, stopped: Any
    ) -> dict[str, Any]:
        return run_cell(cell, world, baseline, progress=progress, stopped=stopped)


class Ranking:
    defaults: ClassVar[dict[str, Any]] = {
        "data": letor.SYNTHETIC,
        "methods": ranking_methods.DEFAULT_METHODS,
        "clicks": "perfect",
    }

    def check(self, config: RunConfig) -> list[str]:
        find_model(config.clicks)
        ranking_methods.resolve_methods(config.methods)
        return list(ranking_methods.METHODS)

    def world(self, config: RunConfig) -> RankingWorld:
        return RankingWorld.of(letor.load(config.data), config.clicks)

    def cells(self, config: RunConfig, world: RankingWorld) -> tuple[list[RankingCellConfig], list[Skipped]]:
        base = ranking_methods.baseline_options(world)
        names = ranking_methods.resolve_methods(config.methods)
        cells: list[RankingCellConfig] = []
        for name in dict.fromkeys([*names, *config.overrides]):
            options = ranking_methods.method_options(
                name, data=world.name, clicks=config.clicks, norm=world.norm, overrides=config.overrides.get(name)
            )
            if name in names:
                setting = ranking_methods.RankingSetting(config.semantics, config.delta, config.rounds)
                ranking_methods.try_out(name, options, world, setting)
                cells += [
                    RankingCellConfig(
                        config.task, world.name, world.sha256, name, config.clicks, config.semantics, base,
                        config.delta, seed, config.rounds, config.check, options,
                    )
                    for seed in config.seeds_used
                ]  # fmt: skip
        return cells, []

    def baseline(self, cell: RankingCellConfig, world: RankingWorld) -> RankingBaseline:
        return cell.baseline(world)

    def run(
        self, cell: RankingCellConfig, world: RankingWorld, baseline: RankingBaseline, progress: Any, stopped: Any
    ) -> dict[str, Any]:
        return run_ranking_cell(cell, world, baseline, progress=progress, stopped=stopped)


TASKS: dict[str, Task] = {"classification": Classification(), "ranking": Ranking()}
OWN_OPTIONS = ("data", "methods", "rewards", "clicks", "baseline", "floor")
"""Options whose default, or whose sense, is a task's own."""
