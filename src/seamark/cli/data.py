"""`seamark data`: which data sets there are, where they are, whether they are sound, and how to get them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress, TaskID
    from rich.table import Table

    from seamark.worlds.fetch import Fetched
    from seamark.worlds.files import FileCheck

FAILURE, BAD_INPUT = 1, 2

app = typer.Typer(help="List, check and download data sets.", no_args_is_help=True)


def _stop(message: object, code: int) -> NoReturn:
    typer.echo(f"seamark data: {message}", err=True)
    raise typer.Exit(code)


def _require_known(names: list[str]) -> None:
    from seamark.worlds import letor, synthetic
    from seamark.worlds import names as known
    from seamark.worlds.files import DataError

    for name in names:
        try:
            if known.task_of(name) == "ranking":
                is_generated = name.partition(":")[0] == letor.SYNTHETIC
                synthetic.parse_spec(name) if is_generated else letor.find_set(name)
        except DataError as error:
            _stop(error, BAD_INPUT)


def _checked(name: str) -> list[FileCheck]:
    from seamark.worlds import datasets, letor_check
    from seamark.worlds.files import DataError
    from seamark.worlds.names import task_of

    try:
        return letor_check.check(name) if task_of(name) == "ranking" else datasets.check(name)
    except DataError as error:
        _stop(error, FAILURE)


def _without_files(name: str) -> tuple[str, str]:
    """Where a set without files is from, and its status."""
    from seamark.worlds.names import task_of

    return ("generated", "synthetic") if task_of(name) == "ranking" else ("ships with scikit-learn", "official")


def _warn_of_folder() -> None:
    named = os.environ.get("SEAMARK_DATA")
    if named and not Path(named).is_dir():
        typer.echo(f"seamark data: SEAMARK_DATA: {named}: no such folder; nothing is found there.", err=True)


@app.command("list")
def list_sets() -> None:
    """Show the known data sets of both tasks: published shape, where they are found, what their checksums say."""
    from rich.console import Console

    _warn_of_folder()
    console = Console()
    if not console.is_terminal:
        console.width = 240  # a pipe gets whole paths
    console.print("Classification: rows (--task classification, the default)", style="bold")
    console.print(_classification_sets())
    console.print("\nRanking: queries and documents, of fold 1 where there are folds (--task ranking)", style="bold")
    console.print(_ranking_sets())


def _classification_sets() -> Table:
    from seamark.worlds.catalogue import CATALOGUE

    table = _table("train", "test", "features", "classes")
    for row in CATALOGUE.values():
        counts = (row.n_train, row.n_test, row.n_features, row.n_classes)
        _add(table, row.name, [f"{count:,}" for count in counts])
    return table


def _ranking_sets() -> Table:
    from seamark.worlds import letor
    from seamark.worlds.letor_catalogue import RANKING_CATALOGUE
    from seamark.worlds.synthetic import Synthetic

    table = _table("train queries", "documents", "test queries", "documents", "features", "grades")
    for row in RANKING_CATALOGUE.values():
        sizes = letor.nearest(row.name)[0].sizes
        counts = (*sizes["train"], *sizes["test"], row.n_features)
        _add(table, row.name, [*(f"{count:,}" for count in counts), f"0..{row.max_grade}"])
    default = Synthetic()
    train, test = default.queries - default.n_test, default.n_test
    documents = [f"~{n * default.documents:,}" for n in (train, test)]
    _add(table, letor.SYNTHETIC, [str(train), documents[0], str(test), documents[1], str(default.features), "0..4"])
    return table


def _table(*headings: str) -> Table:
    from rich.table import Table

    table = Table("name", box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("found in", overflow="fold")
    table.add_column("status")
    return table


def _add(table: Table, name: str, shape: list[str]) -> None:
    """A row: the set's shape, the folders in which its files are, and what their checksums say."""
    from rich.text import Text

    checks = _checked(name)
    folders = dict.fromkeys(str(c.path.parent) for c in checks if c.path is not None)
    statuses = dict.fromkeys(c.status for c in checks)
    place, status = ("-", "") if checks else _without_files(name)
    table.add_row(name, *shape, Text("\n".join(folders) or place), Text(", ".join(statuses) or status))


@app.command()
def path(name: Annotated[str, typer.Argument(help="A data set of `seamark data list`, or NAME:fold2.")]) -> None:
    """Print where the files of a data set are, one per line."""
    _require_known([name])
    checks = _checked(name)
    if not checks:
        _stop(f"{name}: {_without_files(name)[0]}; it has no files of its own.", FAILURE)
    missing = [c.file for c in checks if c.path is None and not c.is_optional]
    if missing:
        _stop(f"{name}: {', '.join(missing)} not found; {_remedy(name)}.", FAILURE)
    for c in checks:
        if c.path is not None:
            typer.echo(str(c.path))


def _remedy(name: str) -> str:
    from seamark.worlds.datasets import find_set
    from seamark.worlds.fetch import withheld

    if (reason := withheld(name)) is not None:
        return reason
    by_hand = "set SEAMARK_DATA to a folder that has them"
    return f"run `seamark data fetch {name}`, or {by_hand}" if find_set(name).has_address else by_hand


@app.command()
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; all when none is named.")] = None,
) -> None:
    """Compare every file with its known checksum; fails when a named set has a missing or altered file.

    Files of ranking sets without a known checksum are read, and their queries and documents counted. Without names,
    sets that are not there are no failure.
    """
    from seamark.worlds.catalogue import CATALOGUE
    from seamark.worlds.letor_catalogue import RANKING_CATALOGUE, SYNTHETIC
    from seamark.worlds.names import task_of

    _require_known(names or [])
    _warn_of_folder()
    is_sound = True
    for name in names or (*CATALOGUE, *RANKING_CATALOGUE, SYNTHETIC):
        checked = _check_ranking if task_of(name) == "ranking" else _check_classification
        is_sound = checked(name, is_named=bool(names)) and is_sound
    if not is_sound:
        raise typer.Exit(FAILURE)


def _check_classification(name: str, *, is_named: bool) -> bool:
    """Whether the files are sound; prints a line for each."""
    from seamark.worlds.datasets import find_set

    row, is_sound = find_set(name), True
    if not row.files:
        typer.echo(f"{name}: {_without_files(name)[0]}")
    for file, found in zip(row.files, _checked(name)):
        detail = ""
        if found.status == "unknown checksum":
            is_altered = file.official_sha256 is not None or file.address is None
            is_sound = is_sound and not is_altered
            detail = f" ({'not a file that Seamark knows' if is_altered else 'none published'})"
        else:
            is_sound = is_sound and not (is_named and found.path is None)
        _say_found(name, found, detail)
    return is_sound


def _check_ranking(name: str, *, is_named: bool) -> bool:
    """Whether the files are sound; prints a line for each, and what the set is if it is not the published one."""
    from seamark.worlds import letor, letor_check

    findings = letor_check.inspect(name)
    if not findings:
        typer.echo(f"{name}: {_without_files(name)[0]}")
        return True
    for finding in findings:
        _say_found(name, finding.check, f", {finding.detail}" if finding.detail else "")
    if all(finding.check.path is None for finding in findings):
        if is_named:
            typer.echo(f"{name}: {_remedy(name)}")
        return not is_named
    for note in letor.nearest(name)[0].notes:
        typer.echo(f"{name}: {note}")
    return all(finding.is_sound or (finding.check.path is None and not is_named) for finding in findings)


def _say_found(name: str, found: FileCheck, detail: str) -> None:
    typer.echo(f"{name}: {found.file}: {found.status}{detail}" + (f"  {found.path}" if found.path else ""))


def _shown_by(bars: Progress) -> Callable[[str, int, int | None], None]:
    """What `fetch` reports, as one bar for each file."""
    tasks: dict[str, TaskID] = {}

    def show(file: str, done: int, total: int | None) -> None:
        if file not in tasks:
            tasks[file] = bars.add_task(file, total=total)
        bars.update(tasks[file], completed=done, total=total)

    return show


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Data sets to download.")],
    base_url: Annotated[str | None, typer.Option(help="A mirror: the address of a folder that has the files.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to put them. Default: the user cache, where they are found.")
    ] = None,
) -> None:
    """Download data sets from where they are published; an interrupted download goes on where it stopped."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from seamark.worlds import fetch as fetching
    from seamark.worlds.files import DataError, user_cache

    _require_known(names)
    for name in names:
        if (reason := fetching.withheld(name)) is not None:
            _stop(f"{name}: {reason}.", BAD_INPUT)
    cache = user_cache()
    if folder is None and cache is None:
        _stop("no home folder to download to; name one with --folder.", BAD_INPUT)
    target = folder if folder is not None else cache / "data" if cache is not None else Path()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    for name in names:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
            try:
                files = fetching.fetch(name, target, base_url=base_url, progress=_shown_by(bars))
            except DataError as error:
                bars.stop()
                _stop(error, FAILURE)
        _say_fetched(name, files)
    if folder is not None:
        typer.echo(f"To load them from there: export SEAMARK_DATA={folder.absolute()}")


def _say_fetched(name: str, files: tuple[Fetched, ...]) -> None:
    if not files:
        typer.echo(f"{name}: {_without_files(name)[0]}, nothing to fetch")
    for file in files:
        origin = "downloaded" if file.is_new else "already there"
        typer.echo(f"{name}: {file.name}: {origin}, {file.status}, sha256 {file.sha256}")
        typer.echo(f"  {file.path}")
