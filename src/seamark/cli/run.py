"""`seamark run`: methods x seeds on one world, with tables, figures and a report."""

from __future__ import annotations

import shlex
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamark.cli.errors import BAD_INPUT, FAILED, count, fail
from seamark.cli.outputs import require_writable

if TYPE_CHECKING:
    from seamark.experiments.run import Watcher
    from seamark.experiments.tasks import AnyCell

DEFAULTS: dict[str, Any] = {
    "task": "classification", "data": None, "methods": None, "rewards": None, "clicks": None,
    "semantics": "paper", "baseline": None, "floor": None, "rounds": 100_000, "seeds": 3,
    "first_seed": 4200, "delta": 0.05, "check": "published", "jobs": 0, "out": None,
}  # fmt: skip


METHODS_HELP = (
    "Comma-separated, or all: seamark, sea, bsea, ips, epsilon-greedy, boltzmann, linucb, thompson, clucb; ranking: "
    "seamark, seamark-swaps, sea, bsea, ips, ranksvm-online, pdgd, dbgd, bubblerank"
)
OF_TASK = {
    "data": "digits; ranking: letor-synthetic", "methods": "seamark,sea,bsea,ips,epsilon-greedy,linucb; ranking: "
    "ips,sea,bsea,seamark,seamark-swaps,ranksvm-online,pdgd", "rewards": "perfect", "clicks": "perfect",
    "baseline": "boltzmann", "floor": "0.05; 0 with --semantics released and a boltzmann baseline",
    "out": "seamark-out/DATE-TIME",
}  # fmt: skip
"""What options are where nobody says so and the task decides, for the help; loading the tasks would take too long."""


def _help(text: str, option: str, **more: Any) -> Any:
    """An option whose help ends with its default; brackets are escaped, since help texts are markup."""
    shown = OF_TASK.get(option, DEFAULTS[option])
    return typer.Option(help=f"{text} \\[default: {shown}]", **more)


def register(app: typer.Typer) -> None:
    app.command("run")(run)


def run(
    task: Annotated[str | None, _help("classification, or ranking", "task")] = None,
    data: Annotated[str | None, _help("NAME (see `seamark data list`) or TRAIN[:TEST]", "data")] = None,
    methods: Annotated[str | None, _help(METHODS_HELP, "methods")] = None,
    rewards: Annotated[str | None, _help("perfect, near-random (0.6/0.4), noisy (0.9/0.1), or P:Q", "rewards")] = None,
    clicks: Annotated[
        str | None, _help("Ranking: perfect, position-biased, near-random, informational, navigational", "clicks")
    ] = None,
    semantics: Annotated[
        str | None, _help("paper, or released (as the published tables were made)", "semantics")
    ] = None,
    baseline: Annotated[str | None, _help("How the baseline acts: boltzmann or epsilon-greedy", "baseline")] = None,
    floor: Annotated[float | None, _help("Share of uniform exploration in the baseline", "floor")] = None,
    rounds: Annotated[int | None, _help("Rounds per cell, such as 100000 or 1e5", "rounds", parser=count)] = None,
    seeds: Annotated[int | None, _help("Seeds per method", "seeds", parser=count)] = None,
    first_seed: Annotated[int | None, _help("The first of them", "first_seed")] = None,
    delta: Annotated[float | None, _help("Failure probability of a gate", "delta")] = None,
    check: Annotated[str | None, _help("When gates look: published, log, or every:N", "check")] = None,
    learner: Annotated[
        str | None, typer.Option(help="Of seamark: portfolio, direct or ips; as --set seamark.learner=")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="METHOD.KEY=VALUE, repeatable")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML with the same options and \\[set.METHOD] tables")] = None,
    jobs: Annotated[int | None, _help("Cells at a time; 0: one per core", "jobs")] = None,
    out: Annotated[Path | None, _help("Folder for results; an existing one is resumed", "out")] = None,
    overwrite: Annotated[bool, typer.Option(help="Run cells again that are already in the folder")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no tables")] = False,
) -> None:
    """Compare methods: who earns what, who deploys what, and was it worse?"""
    given = {
        "task": task, "data": data, "methods": methods, "rewards": rewards, "clicks": clicks, "semantics": semantics,
        "baseline": baseline, "floor": floor, "rounds": rounds, "seeds": seeds, "first_seed": first_seed,
        "delta": delta, "check": check, "jobs": jobs, "out": out,
    }  # fmt: skip
    sets = [*(set_ or []), *([f"seamark.learner={learner}"] if learner else [])]
    options, overrides = settle(given, config, sets)
    from seamark.experiments import run as runs

    chosen = {k: v for k, v in options.items() if v is not None and k not in ("jobs", "out")}
    plan = runs.plan(runs.RunConfig(**chosen, overrides=overrides))
    folder = Path(options["out"]) if options["out"] else runs.default_folder()
    require_writable(folder)
    for note in (*plan.world.notes, *_unused(sets, plan)):
        _say(f"note: {note}", quiet)
    for skip in plan.skipped:
        _say(f"skipped: {skip['reason']}", quiet=False)
    if not plan.cells:
        fail("nothing left to run.", BAD_INPUT)
    with progress_bars(quiet) as watcher:
        outcome = runs.execute(plan, folder, jobs=options["jobs"], overwrite=overwrite, watcher=watcher)
    if outcome.interrupted:
        done, total = len(outcome.cells), len(plan.cells)
        fail(f"interrupted with {done} of {total} cells done; the same command with --out {folder} resumes.", FAILED)
    command = shlex.join(["seamark", *sys.argv[1:]])
    settled = {**plan.config.settled(), "set": overrides, "data": plan.world.name}
    if "floor" in settled:
        settled["floor"] = plan.config.floor_used
    _, tables = runs.write_outputs(outcome, folder, command=command, config=settled, notes=plan.world.notes)
    show(tables, folder, quiet)
    for failure in outcome.failed:
        sys.stderr.write(f"seamark: {failure['method']}, seed {failure['seed']} failed: {failure['error']}\n")
    if outcome.failed:
        raise typer.Exit(FAILED)


def _unused(sets: list[str], plan: Any) -> list[str]:
    """What --set says of methods that do not run."""
    running = {cell.method for cell in plan.cells}
    return [
        f"--set {item} changes nothing: the method is not run" for item in sets if item.split(".")[0] not in running
    ]


def settle(given: dict[str, Any], config: Path | None, sets: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options by precedence (command line, file, default) and overrides per method."""
    overrides: dict[str, dict[str, Any]] = {}
    from_file: dict[str, Any] = {}
    if config is not None:
        try:
            from_file = tomllib.loads(config.read_text("utf-8"))
        except OSError as error:
            raise ValueError(f"--config {config}: {error.strerror or error}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"--config {config}: not TOML: {error}.") from None
        from_file = {k.replace("-", "_"): v for k, v in from_file.items()}
        tables = from_file.pop("set", {})
        if not isinstance(tables, dict) or not all(isinstance(v, dict) for v in tables.values()):
            raise ValueError(f"--config {config}: set must hold one table per method, such as [set.sea].")
        overrides = {m: dict(v) for m, v in tables.items()}
        unknown = sorted(set(from_file) - set(DEFAULTS))
        if unknown:
            tables = [key for key in unknown if isinstance(from_file[key], dict)]
            hint = f" Options of a method go into a table such as [set.{tables[0]}]." if tables else ""
            raise ValueError(
                f"--config {config}: unknown {', '.join(unknown)}; options are {', '.join(DEFAULTS)}.{hint}"
            )
        for key, value in from_file.items():
            if (kind := _kind_missed(key, value)) is not None:
                raise ValueError(f"--config {config}: {key} is {value!r}; must be {kind}.")
    for item in sets:
        name, dot, rest = item.partition(".")
        key, equals, value = rest.partition("=")
        if not (dot and equals and name and key):
            raise ValueError(f"--set {item}: must be METHOD.KEY=VALUE, such as sea.lr=0.01.")
        overrides.setdefault(name, {})[key] = value
    whole = {k: int(v) for k, v in from_file.items() if isinstance(v, float) and k not in ("floor", "delta")}
    from_file |= whole  # 1e5 is a count, too
    options = {
        k: next((v for v in (given.get(k), from_file.get(k), d) if v is not None), None) for k, d in DEFAULTS.items()
    }
    return options, overrides


def _kind_missed(key: str, value: Any) -> str | None:
    """What an option of a file must be, where the value is not."""
    if key in ("rounds", "seeds", "first_seed", "jobs"):
        return None if type(value) is int or (type(value) is float and value.is_integer()) else "a whole number"
    if key in ("floor", "delta"):
        return None if type(value) in (int, float) else "a number"
    if key == "methods" and isinstance(value, list) and all(isinstance(name, str) for name in value):
        return None
    return None if isinstance(value, str) else "text"


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        sys.stderr.write(text + "\n")


def show(tables: list[Any], folder: Path, quiet: bool) -> None:
    """The tables on the terminal, and where everything else is."""
    from rich.console import Console

    from seamark.experiments.tables import to_rich

    console = Console(width=None if sys.stdout.isatty() else 110)
    if not quiet:
        for table in tables:
            console.print(to_rich(table))
            console.print()
    console.print(f"Results: {folder} (report.html, tables.md, summary.json, cells/)", highlight=False, soft_wrap=True)


class progress_bars:
    """A rich bar per running cell and one for all."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    def __enter__(self) -> Watcher:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from seamark.experiments.run import Watcher

        self.bars = bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            console=Console(stderr=True), transient=True, disable=self.quiet,
        )  # fmt: skip
        bars.start()
        tasks: dict[str, Any] = {}

        class Bars(Watcher):
            def started(self, cell: AnyCell) -> None:
                tasks[cell.id] = bars.add_task(f"{cell.method}, seed {cell.seed}", total=cell.rounds)

            def progress(self, cell: AnyCell, done: int) -> None:
                bars.update(tasks[cell.id], completed=done)

            def finished(self, cell: AnyCell, result: dict[str, Any], reused: bool) -> None:
                with suppress(KeyError):
                    bars.remove_task(tasks[cell.id])

            def failed(self, cell: AnyCell, error: str) -> None:
                with suppress(KeyError):
                    bars.remove_task(tasks[cell.id])

        return Bars()

    def __exit__(self, *_: object) -> None:
        self.bars.stop()
