"""The command line: parse, call one function, render."""

from __future__ import annotations

import sys

from seamark.cli.errors import BAD_INPUT, INTERRUPTED, UsageError, code_of, fail

try:
    import typer

    from seamark.cli import bench, data, paper, plan, run, safety, tune
except KeyboardInterrupt:
    fail("interrupted.", INTERRUPTED)

app = typer.Typer(
    name="seamark",
    help="Safe exploration for contextual bandits: a better policy goes live only when the evidence says so.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data", help="Data sets: where they are, whether they are sound, how to get them.")
app.add_typer(bench.app, name="bench", help="Speed, beside a yardstick measured in the same run.")
run.register(app)
safety.register(app)
plan.register(app)
paper.register(app)
tune.register(app)


def _version(show: bool) -> None:
    if show:
        from seamark import __version__

        typer.echo(f"seamark {__version__}")
        raise typer.Exit


@app.callback()
def _options(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True)) -> None:
    """Exit codes: 0 done or promote, 1 failure, 2 usage or bad input, 3 hold or inconclusive, 4 blocked, 130 Ctrl-C."""


def main() -> None:
    """Entry point: bad input is one line on stderr and exit code 2, never a traceback; an interruption is 130."""
    try:
        sys.exit(app(standalone_mode=False))
    except UsageError as error:
        fail(
            f"{error.format_message().rstrip('.')}. See {error.ctx.command_path if error.ctx else 'seamark'} --help.",
            BAD_INPUT,
        )
    except (ValueError, OSError) as error:
        fail(str(error), code_of(error))
    except KeyboardInterrupt:
        fail("interrupted.", INTERRUPTED)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer says nothing
            fail("interrupted.", INTERRUPTED)
        raise


if __name__ == "__main__":
    main()
