"""`seamark tune`: a grid search on a validation part, and a TOML file that `seamark run --config` takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from seamark.cli.errors import BAD_INPUT, FAILED, fail
from seamark.cli.outputs import require_writable


def register(app: typer.Typer) -> None:
    app.command("tune")(tune)


def tune(
    data: Annotated[str, typer.Option(help="NAME (see `seamark data list`), or files as in `seamark run`")],
    methods: Annotated[str, typer.Option(help="Comma-separated")] = "ips,sea",
    task: Annotated[str, typer.Option(help="classification or ranking")] = "classification",
    rewards: Annotated[str | None, typer.Option(help="perfect, near-random (0.6/0.4), noisy (0.9/0.1), or P:Q")] = None,
    clicks: Annotated[str | None, typer.Option(help="Ranking: perfect, position-biased, near-random")] = None,
    semantics: Annotated[str, typer.Option(help="paper or released")] = "released",
    baseline: Annotated[str | None, typer.Option(help="How the baseline acts: boltzmann or epsilon-greedy")] = None,
    grid_lr: Annotated[str | None, typer.Option(help="0.01,0.1 or LOW:HIGH (bases 1 and 3); default 1e-4:1")] = None,
    grid_l2: Annotated[str | None, typer.Option(help="The same for L2; default 0")] = None,
    grid_alpha: Annotated[str | None, typer.Option(help="The same for ridge methods; default 0.01:10")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds per cell")] = 100_000,
    seeds: Annotated[int, typer.Option(help="Seeds per point")] = 3,
    first_seed: Annotated[int, typer.Option(help="The first of them")] = 4200,
    metric: Annotated[
        str,
        typer.Option(
            help="learned, deployed (on the validation part), cumulative; auto: learned for ips, else cumulative"
        ),
    ] = "auto",
    jobs: Annotated[int, typer.Option(help="Cells at a time; 0: one per core")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder, resumed; default: seamark-out/tune-DATA-NOISE")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars, no table")] = False,
) -> None:
    """Search hyper-parameters on training rows that neither contexts nor baseline see; the test rows stay unused."""
    from rich.console import Console

    from seamark.cli.paper import told_command
    from seamark.cli.run import progress_bars
    from seamark.experiments import tune as tuning
    from seamark.experiments.tables import to_rich

    if task not in ("classification", "ranking"):
        fail(f"task: {task!r}; must be classification or ranking.", BAD_INPUT)
    if task == "ranking" and rewards is not None:
        fail(f"rewards: {rewards!r}; ranking has no such option, give --clicks.", BAD_INPUT)
    if task == "classification" and clicks is not None:
        fail(f"clicks: {clicks!r}; classification has no such option, give --rewards.", BAD_INPUT)
    noise = rewards or clicks or "perfect"
    config = tuning.TuneConfig(
        data=data, methods=methods, noise=noise, task=task, semantics=semantics, baseline=baseline, lr=grid_lr,
        l2=grid_l2, alpha=grid_alpha, rounds=rounds, seeds=seeds, first_seed=first_seed, metric=metric,
    )  # fmt: skip
    folder = out or Path("seamark-out") / "-".join(["tune", *(part.replace("/", "-") for part in (data, noise))])
    require_writable(folder)
    command = told_command(sys.argv[1:])
    try:
        with progress_bars(quiet) as watcher:
            tuned = tuning.tune(config, folder, jobs=jobs, watcher=watcher)
    except tuning.Interrupted as error:
        fail(f"interrupted with {error}; the same command resumes.", FAILED)
    tuning.write(tuned, folder, command)
    for one in tuned.skipped:
        sys.stderr.write(f"skipped: {one['reason']}\n")
    for failure in tuned.failed:
        sys.stderr.write(f"seamark: {failure['method']}, seed {failure['seed']} failed: {failure['error']}\n")
    console = Console(width=None if sys.stdout.isatty() else 110)
    if not quiet:
        console.print(to_rich(tuning.table(tuned)))
        console.print()
    console.print(
        f"seamark run --config {folder / 'tuned.toml'} (all points: {folder / 'grid.md'})",
        highlight=False, soft_wrap=True, markup=False,
    )  # fmt: skip
    if tuned.failed:
        raise typer.Exit(FAILED)
