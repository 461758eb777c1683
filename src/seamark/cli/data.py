"""`seamark data`: which data sets there are, where they are, whether they are sound, and how to get them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress, TaskID

    from seamark.worlds.datasets import FileCheck

FAILURE, BAD_INPUT = 1, 2

app = typer.Typer(help="List, check and download data sets.", no_args_is_help=True)


def _stop(message: object, code: int) -> NoReturn:
    typer.echo(f"seamark data: {message}", err=True)
    raise typer.Exit(code)


def _require_known(names: list[str]) -> None:
    from seamark.worlds.datasets import DataError, find_set

    for name in names:
        try:
            find_set(name)
        except DataError as error:
            _stop(error, BAD_INPUT)


def _checked(name: str) -> list[FileCheck]:
    from seamark.worlds.datasets import DataError, check

    try:
        return check(name)
    except DataError as error:
        _stop(error, FAILURE)


@app.command("list")
def list_sets() -> None:
    """Show the known data sets: published shape, where they are found, and what their checksums say."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from seamark.worlds.catalogue import CATALOGUE

    table = Table("name", box=None, pad_edge=False)
    for heading in ("train", "test", "features", "classes"):
        table.add_column(heading, justify="right")
    table.add_column("found in", overflow="fold")
    table.add_column("status")
    for row in CATALOGUE.values():
        checks = _checked(row.name)
        folders = dict.fromkeys(str(c.path.parent) for c in checks if c.path is not None)
        statuses = dict.fromkeys(c.status for c in checks)
        counts = (row.n_train, row.n_test, row.n_features, row.n_classes)
        table.add_row(
            row.name,
            *(f"{count:,}" for count in counts),
            Text("\n".join(folders) or ("-" if checks else "scikit-learn")),
            Text(", ".join(statuses) or "official"),
        )
    console = Console()
    if not console.is_terminal:
        console.width = 240  # a pipe gets whole paths
    console.print(table)


@app.command()
def path(name: Annotated[str, typer.Argument(help="A data set of `seamark data list`.")]) -> None:
    """Print where the files of a data set are, one per line."""
    _require_known([name])
    checks = _checked(name)
    if not checks:
        _stop(f"{name} ships with scikit-learn and has no files of its own.", FAILURE)
    missing = [c.file for c in checks if c.path is None]
    if missing:
        _stop(f"{name}: {', '.join(missing)} not found; {_remedy(name)}.", FAILURE)
    for c in checks:
        typer.echo(str(c.path))


def _remedy(name: str) -> str:
    from seamark.worlds.datasets import find_set

    by_hand = "set SEAMARK_DATA to a folder that has them"
    return f"run `seamark data fetch {name}`, or {by_hand}" if find_set(name).has_address else by_hand


@app.command()
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; all when none is named.")] = None,
) -> None:
    """Compare every file with its known checksum; fails when a named set has a missing or altered file.

    Without names, sets that are not there are no failure.
    """
    from seamark.worlds.catalogue import CATALOGUE

    _require_known(names or [])
    is_sound = True
    for name in names or CATALOGUE:
        row = CATALOGUE[name]
        if not row.files:
            typer.echo(f"{name}: ships with scikit-learn")
        for file, found in zip(row.files, _checked(name)):
            detail = found.status
            if found.status == "unknown checksum":
                is_altered = file.official_sha256 is not None or file.address is None
                is_sound = is_sound and not is_altered
                expected = "not a file that Seamark knows" if is_altered else "none published"
                typer.echo(f"{name}: {file.name}: {detail} ({expected})  {found.path}")
            else:
                is_sound = is_sound and not (names and found.path is None)
                typer.echo(f"{name}: {file.name}: {detail}" + (f"  {found.path}" if found.path else ""))
    if not is_sound:
        raise typer.Exit(FAILURE)


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
        if not files:
            typer.echo(f"{name}: ships with scikit-learn, nothing to fetch")
        for file in files:
            origin = "downloaded" if file.is_new else "already there"
            typer.echo(f"{name}: {file.name}: {origin}, {file.status}, sha256 {file.sha256}")
            typer.echo(f"  {file.path}")
    if folder is not None:
        typer.echo(f"To load them from there: export SEAMARK_DATA={folder.absolute()}")
