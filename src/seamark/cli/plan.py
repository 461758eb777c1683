"""`seamark plan`: rounds to promotion, before going live."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from seamark.cli.errors import BAD_INPUT, HOLD, fail


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    lift: Annotated[float, typer.Option(help="Gain in expected reward that the candidate is hoped to have")],
    reward_rate: Annotated[float, typer.Option(help="Expected reward of the policy that serves")],
    actions: Annotated[int, typer.Option(help="Number of actions")],
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", "--floor", help="Share of uniform exploration mixed in \\[default: 0.1]"),
    ] = None,
    delta: Annotated[float, typer.Option(help="Failure probability")] = 0.05,
    guarantee: Annotated[str, typer.Option(help="What delta is for: run, deployment or fdr")] = "run",
    logging: Annotated[str, typer.Option(help="How the policy acts: epsilon-greedy or boltzmann")] = "epsilon-greedy",
    top: Annotated[
        float | None, typer.Option(help="Boltzmann: probability of the preferred action \\[default: 0.7]")
    ] = None,
    share_changed: Annotated[
        float | None,
        typer.Option(help="Share of contexts where the candidate prefers another action \\[default: a guess]"),
    ] = None,
    explore_share: Annotated[float, typer.Option(help="Share of exploration spent on the candidate's actions")] = 0.0,
    rounds: Annotated[int, typer.Option(help="How many rounds there will be")] = 1_000_000,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
) -> None:
    """How many rounds until a better policy is promoted? Exit code 3 if not within --rounds by the challenger gate."""
    from seamark.experiments.power import Plan, power

    if rounds < 1:
        fail(f"--rounds {rounds}: must be at least 1.", BAD_INPUT)
    if logging not in ("epsilon-greedy", "boltzmann"):
        fail(f"--logging {logging}: must be epsilon-greedy or boltzmann.", BAD_INPUT)
    if guarantee not in ("run", "deployment", "fdr"):
        fail(f"--guarantee {guarantee}: must be run, deployment or fdr.", BAD_INPUT)
    if top is not None and logging != "boltzmann":
        fail(f"--top {top:g}: is for --logging boltzmann; {logging} has --epsilon.", BAD_INPUT)
    chosen = Plan(
        lift, reward_rate, actions, epsilon=0.1 if epsilon is None else epsilon, delta=delta,
        guarantee=guarantee, logging=logging, share_changed=share_changed,  # type: ignore[arg-type]  # checked above
        explore_share=explore_share, top=0.7 if top is None else top,
    )  # fmt: skip
    found = power(chosen, horizon=max(rounds, 10_000_000))
    median = found["gates"][-1]["median"]
    promotes = median is not None and median <= rounds
    if json_:
        typer.echo(json.dumps({**found, "rounds": rounds, "promotes": promotes}, indent=1))
    else:
        _show(found, rounds)
    if not promotes:
        raise typer.Exit(HOLD)


def _show(found: dict[str, object], rounds: int) -> None:
    from rich.console import Console

    from seamark.experiments.tables import Table, to_rich

    assumed: dict[str, float] = found["assumed"]  # type: ignore[assignment]  # plain values
    is_given = found["plan"]["share_changed"] is not None  # type: ignore[index]  # plain values
    guessed = "" if is_given else " (a guess: --share-changed)"
    gates: list[dict[str, object]] = found["gates"]  # type: ignore[assignment]

    def number(value: object) -> str:
        return f"{value:,}" if isinstance(value, int) else "-"

    def verdict(gate: dict[str, object]) -> str:
        median = gate["median"]
        return "yes" if isinstance(median, int) and median <= rounds else "no"

    table = Table(
        name="plan",
        title="Rounds to promotion",
        note="",
        headers=("Gate", "Median", "80 % of runs", f"Within {rounds:,}?"),
        rows=tuple((str(g["gate"]), number(g["median"]), number(g["most"]), verdict(g)) for g in gates),
    )
    console = Console(width=100, highlight=False)
    console.print(to_rich(table))
    console.print(
        f"Assumed: the two prefer different actions in {assumed['share_changed']:.1%} of contexts{guessed}, where "
        f"the deployed action earns {assumed['reward_of_deployed_action']:.3g} and the candidate's "
        f"{assumed['reward_of_candidate_action']:.3g}; a preferred action has probability "
        f"{assumed['preferred_probability']:.3g}, any other {assumed['other_probability']:.3g}."
    )
    for gate in gates:
        console.print(f"{gate['gate']}: {gate['note']}.")
