"""`seamark paper`: the paper's tables and figures, published beside obtained."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from seamark.cli.errors import FAILED, fail
from seamark.cli.outputs import require_writable


def register(app: typer.Typer) -> None:
    app.command("paper")(paper)


def paper(
    target: Annotated[
        str,
        typer.Argument(
            help="datasets, click-noise, relevance, classification-online, ranking-online, classification-cumulative, "
            "ranking-cumulative, classification-final, ranking-final, or all"
        ),
    ] = "all",
    scale: Annotated[
        str,
        typer.Option(
            help="tiny (2,000 rounds, generated data), laptop (100,000, 5 seeds), full (1,000,000, 15; ranking 5)"
        ),
    ] = "laptop",
    data: Annotated[
        str | None,
        typer.Option(help="Comma-separated sets; paper: those of the paper; substitutes: those that stand near them"),
    ] = None,
    semantics: Annotated[str, typer.Option(help="paper, released (as the published tables were made), or both")] = (
        "both"
    ),
    methods: Annotated[str | None, typer.Option(help="Comma-separated; default: the paper's, and ours beside")] = None,
    rounds: Annotated[int | None, typer.Option(help="Instead of the scale's")] = None,
    seeds: Annotated[int | None, typer.Option(help="Instead of the scale's")] = None,
    first_seed: Annotated[int, typer.Option(help="The first of them")] = 4200,
    jobs: Annotated[int, typer.Option(help="Cells at a time; 0: one per core")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of run folders, resumed; default: seamark-out/SCALE")] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Use the cells that are there; list those that are not")] = (
        False
    ),
    export: Annotated[
        Path | None, typer.Option(help="Also write the small files that are worth committing into this folder")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no tables")] = False,
) -> None:
    """How far do the published results hold? One command per table and figure, number beside number."""
    from seamark.cli.run import progress_bars
    from seamark.experiments.paper import outputs, targets
    from seamark.experiments.paper.export import check
    from seamark.experiments.paper.export import export as write_export
    from seamark.experiments.paper.results import Interrupted, gather

    wanted = targets.wanted(
        target, scale=scale, data=data, semantics=semantics, methods=methods, rounds=rounds, seeds=seeds,
        first_seed=first_seed,
    )  # fmt: skip
    folder = out or Path("seamark-out") / scale
    if export is not None:
        check(wanted, export)
        require_writable(export, "--export")
    require_writable(folder)
    for one in wanted.missing:
        _say(f"missing: {one}")
    try:
        with progress_bars(quiet) as watcher:
            runs = gather(
                wanted.runs, folder, jobs=jobs, is_run=not no_run, watcher=watcher,
                say=lambda text: None if quiet or no_run else _say(f"run: {text}"),
            )  # fmt: skip
    except Interrupted as error:
        fail(f"interrupted: {error}; the same command resumes.", FAILED)
    made = outputs.make(wanted, runs, told_command(sys.argv[1:]))
    outputs.write(made, folder / "paper")
    _show(made, folder / "paper", quiet)
    if export is not None:
        files = write_export(made, export)
        typer.echo(f"Exported: {export} ({len(files)} files)")
    failed = [(run.spec.folder, one) for run in runs for one in run.failed]
    for where, cell in failed:
        _say(f"seamark: {where}: {cell['method']}, seed {cell['seed']} failed: {cell['error']}")
    if failed:
        raise typer.Exit(FAILED)


def told_command(arguments: Sequence[str]) -> str:
    """The command as others can repeat it: absolute paths are shortened to what they are from here, or to their name.

    >>> told_command(["paper", "all", "--out", "/some/where/out"])
    'seamark paper all --out out'
    """
    here = Path.cwd()

    def short(word: str) -> str:
        option, equals, value = word.partition("=")
        if option.startswith("--") and equals:
            return f"{option}={short(value)}"
        path = Path(word)
        if not path.is_absolute():
            return word
        return str(path.relative_to(here)) if path.is_relative_to(here) else path.name

    return shlex.join(["seamark", *map(short, arguments)])


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _show(made: object, folder: Path, quiet: bool) -> None:
    """The tables on the terminal, what is missing, and where everything else is."""
    from rich.console import Console

    from seamark.experiments.paper.outputs import Made
    from seamark.experiments.tables import to_rich

    assert isinstance(made, Made)
    console = Console(width=None if sys.stdout.isatty() else 130)
    if not quiet:
        shown = [t for section in made.sections for t in section.tables]
        for table in (*shown, *made.overview.tables, *made.safety.tables):
            console.print(to_rich(table))
            console.print()
        for one in made.missing:
            console.print(f"missing: {one}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"Results: {folder} ({made.page}; .md and .json per target)", highlight=False, soft_wrap=True)
