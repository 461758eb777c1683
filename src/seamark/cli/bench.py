"""`seamark bench`: speed, measured beside a yardstick in the same run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from seamark.cli.outputs import require_writable_file

app = typer.Typer(no_args_is_help=True)


@app.command("classification")
def classification(
    data: Annotated[str, typer.Option(help="Comma-separated: usps, news20, rcv1")] = "usps,news20,rcv1",
    methods: Annotated[str | None, typer.Option(help="Comma-separated")] = None,
    repeats: Annotated[int, typer.Option(help="The best of so many")] = 3,
    growth: Annotated[bool, typer.Option(help="Also time against rounds, 1e4 to 1e6")] = False,
    json_: Annotated[Path | None, typer.Option("--json", help="Write the rows to this file")] = None,
) -> None:
    """Rounds per second per method on USPS, news20 and RCV1-shaped data, one thread, after warm-up."""
    from seamark.experiments import bench
    from seamark.experiments.methods import resolve_methods

    names = tuple(resolve_methods(methods)) if methods else bench.METHODS_TIMED
    sets = tuple(s.strip() for s in data.split(","))
    for name in sets:
        if name not in bench.SETS:
            raise ValueError(f"--data {name}: must be among {', '.join(bench.SETS)}.")
    if json_ is not None:
        require_writable_file(json_, "--json")
    report(
        {
            "rates": bench.bench_classification(sets, names, repeats=repeats),
            "peers": bench.bench_vowpal_wabbit(),
            **({"growth": bench.bench_growth()} if growth else {}),
        },
        bench.machine(),
        json_,
    )


@app.command("ranking")
def ranking(
    methods: Annotated[str | None, typer.Option(help="Comma-separated, or all")] = None,
    data: Annotated[str | None, typer.Option(help="As in `seamark run --task ranking`; default: MSLR-shaped")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds per measurement")] = 100_000,
    repeats: Annotated[int, typer.Option(help="The best of so many")] = 3,
    growth: Annotated[bool, typer.Option(help="Also SEA's time against rounds, 1e5 to 1e6, and the line")] = True,
    json_: Annotated[Path | None, typer.Option("--json", help="Write the rows to this file")] = None,
) -> None:
    """Rounds per second per method on lists of 120 documents with 136 features, one thread, after warm-up."""
    from seamark.experiments import ranking_bench
    from seamark.experiments.bench import machine
    from seamark.experiments.ranking_methods import resolve_methods

    names = tuple(resolve_methods(methods or "all"))
    for name, value in (("rounds", rounds), ("repeats", repeats)):
        if value < 1:
            raise ValueError(f"--{name} {value}: must be at least 1.")
    if json_ is not None:
        require_writable_file(json_, "--json")
    where = data or ranking_bench.DATA
    report(
        {
            "rates": ranking_bench.bench_ranking(names, data=where, rounds=rounds, repeats=repeats),
            **({"growth": ranking_bench.bench_ranking_growth(data=where)} if growth else {}),
        },
        machine(),
        json_,
    )


def report(parts: dict[str, Iterable[dict[str, Any]]], machine: dict[str, Any], path: Path | None) -> None:
    """Prints rows as they are measured; writes them as JSON where asked to."""
    typer.echo("  ".join(f"{k} {v}" for k, v in machine.items()))
    kept: dict[str, list[dict[str, Any]]] = {}
    for part, rows in parts.items():
        typer.echo(f"\n{part}: rounds per CPU second of one thread")
        for row in rows:
            kept.setdefault(part, []).append(row)
            head = f"  {row['data']:<14} {row['method']:<34}"
            if "skipped" in row:
                typer.echo(f"{head} - ({row['skipped']})")
            else:
                tail = f"{row['ratio']:10.3f} x" if "ratio" in row else f"{row['seconds']:10.3f} s"
                tail += f"  (bar {row['bar']:.2f})" if "bar" in row else ""
                typer.echo(f"{head} {row['rounds']:>9,} rounds {row['rounds_per_second']:>12,.0f}/s {tail}")
    if path is not None:
        path.write_text(json.dumps({"machine": machine, **kept}, indent=1) + "\n", "utf-8")
