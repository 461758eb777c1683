"""`seamark safety`: which gates deploy worse policies, with which learners, in which worlds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamark.cli.errors import FAILED, fail
from seamark.cli.outputs import require_writable

if TYPE_CHECKING:
    from seamark.experiments.safety.cell import SafetyCell


def register(app: typer.Typer) -> None:
    app.command("safety")(safety)


def safety(
    context: typer.Context,
    scale: Annotated[str, typer.Option(help="tiny (under a minute), laptop (minutes) or full (hours)")] = "tiny",
    gates: Annotated[str, typer.Option(help="Comma-separated; all: leave out")] = "",
    learners: Annotated[str, typer.Option(help="Comma-separated; all of the scale: leave out")] = "",
    worlds: Annotated[str, typer.Option(help="Comma-separated; all of the scale: leave out")] = "",
    seeds: Annotated[int, typer.Option(help="Seeds per cell; 0: as the scale has it")] = 0,
    first_seed: Annotated[int, typer.Option(help="The first of them")] = 4200,
    delta: Annotated[float, typer.Option(help="Failure probability that gates are given")] = 0.05,
    out: Annotated[
        Path | None, typer.Option(help="Folder for cells, safety.json and safety.md, resumed; or for pair.json")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Runs at a time; 0: one per core")] = 0,
    fixed_pair: Annotated[
        bool,
        typer.Option(
            "--fixed-pair", help="Instead: rounds to deploy a better policy that does not learn; takes --seeds"
        ),
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the JSON list instead of the table")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar")] = False,
) -> None:
    """Does a gate ever deploy a worse policy? Gates x learners x worlds x seeds, judged by exact values.

    Exit code 1 if a gate that promises at most delta (challenger, holdout) had so many runs with a false deployment,
    over all cells, that delta would give as many with probability below 0.001.
    """
    from rich.console import Console

    from seamark.experiments.run import write_json
    from seamark.experiments.safety import plan, summary
    from seamark.experiments.tables import to_markdown, to_rich

    if jobs < 0 or seeds < 0 or first_seed < 0 or not 0 < delta < 1:
        raise ValueError("--jobs, --seeds, --first-seed must not be negative, and --delta between 0 and 1.")
    if fixed_pair:
        _refuse_beside_fixed_pair(context)
        return _fixed_pair(seeds or 20, out, json_)
    cells = plan.plan_cells(
        scale, gates=_names(gates), learners=_names(learners), worlds=_names(worlds), seeds=seeds,
        first_seed=first_seed, delta=delta,
    )  # fmt: skip
    if out is not None:
        require_writable(out)
    rows = summary.summarise(_results(cells, out, jobs, quiet))
    table = summary.safety_benchmark_table(rows)
    if out is not None:
        write_json(out / "safety.json", rows)
        (out / "safety.md").write_text(to_markdown(table) + "\n", "utf-8")
    if json_:
        typer.echo(json.dumps(rows, indent=1))
    else:
        Console(width=None if sys.stdout.isatty() else 130).print(to_rich(table))
    broken = summary.broken_promises(rows, delta)
    if broken:
        said = ", ".join(f"{gate} (p = {p:.1e})" for gate, p in broken.items())
        fail(f"more false deployments than delta = {delta:g} allows: {said}.", FAILED)


def _results(cells: list[SafetyCell], out: Path | None, jobs: int, quiet: bool) -> list[dict[str, Any]]:
    """The results of all cells, with a progress bar; interrupted, it says how far it came and how to go on."""
    from rich.console import Console
    from rich.progress import track

    from seamark.experiments.safety import plan

    results: list[dict[str, Any]] = []
    running = plan.execute(cells, out, jobs=jobs)
    console = Console(stderr=True)
    try:
        for result in track(
            running, f"{len(cells)} runs", total=len(cells), console=console, transient=True, disable=quiet
        ):
            results.append(result)
    except KeyboardInterrupt:
        running.close()
        done = len(results) if out is None else plan.n_done(cells, out)
        how = "nothing is kept without --out." if out is None else f"the same command with --out {out} resumes."
        fail(f"interrupted with {done} of {len(cells)} runs done; {how}", FAILED)
    return results


def _refuse_beside_fixed_pair(context: typer.Context) -> None:
    """Options that the fixed pair has no use for are refused where they were given."""
    for name in ("scale", "gates", "learners", "worlds", "first_seed", "delta", "jobs"):
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option}: --fixed-pair has no such option; leave it out, or --fixed-pair.")


def _fixed_pair(seeds: int, out: Path | None, as_json: bool) -> None:
    from seamark.experiments.run import write_json
    from seamark.experiments.safety.pair import cost_per_slot, pair_medians

    if out is not None:
        require_writable(out)
    rows = pair_medians(seeds=seeds)
    if out is not None:
        write_json(out / "pair.json", rows)
    if as_json:
        return typer.echo(json.dumps(rows, indent=1))
    typer.echo(f"A fixed candidate on digits, better by {rows[0]['gain']:.3f}, epsilon-greedy at 0.1:")
    for row in rows:
        median = "never" if row["median"] is None else f"{row['median']:,.0f}"
        said = f"{row['deployed']} of {row['seeds']} runs, {row['us_per_round']:.2f} us per round"
        typer.echo(f"  {row['gate']:<16} median {median:>8} rounds ({said})")
    typer.echo(f"challenger at work, 4 slots: {cost_per_slot():.2f} us per round and slot")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
