"""A run of the ranking task: plans, options, resuming, jobs, outputs, the command line, and bad files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import Raising
from typer.testing import CliRunner

from seamark.cli import app, main
from seamark.experiments.ranking_bench import bench_ranking, bench_ranking_growth
from seamark.experiments.ranking_cell import RankingCellConfig
from seamark.experiments.ranking_methods import METHODS, baseline_options, method_options
from seamark.experiments.run import Outcome, Plan, RunConfig, Watcher, execute, plan, write_outputs
from seamark.worlds.letor import load
from seamark.worlds.ranking import RankingWorld

SMALL = "letor-synthetic:queries=40:documents=12:features=8"
DEFAULTS: dict[str, Any] = {"task": "ranking", "data": SMALL, "methods": "sea,bsea,pdgd", "rounds": 300, "seeds": 2}


def planned(**options: Any) -> Plan:
    return plan(RunConfig(**{**DEFAULTS, **options}))


def numbers(outcome: Outcome) -> list[dict[str, Any]]:
    return [{k: v for k, v in c.items() if k not in ("seconds", "rounds_per_second")} for c in outcome.cells]


def settled(method: str, data: str = "somewhere", clicks: str = "perfect", **overrides: Any) -> dict[str, Any]:
    return method_options(method, data=data, clicks=clicks, norm=2.0, overrides=overrides)


def test_options_left_out_are_those_of_the_task() -> None:
    """A ranking run has clicks and no rewards; a classification run the other way round."""
    ranking, classification = RunConfig(task="ranking"), RunConfig()

    assert (ranking.data, ranking.clicks, ranking.rewards) == ("letor-synthetic", "perfect", None)
    assert ranking.methods == "ips,sea,bsea,seamark,seamark-swaps,ranksvm-online,pdgd"
    assert (classification.data, classification.clicks, classification.rewards) == ("digits", None, "perfect")
    assert ranking.floor_used == 0.0
    assert set(RunConfig(task="ranking").settled()) == {
        "task", "data", "methods", "clicks", "semantics", "rounds", "seeds", "first_seed", "delta", "check",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rewards": "perfect"}, "rewards: 'perfect'; ranking has no such option, it has data, methods, clicks"),
        ({"floor": 0.1}, "floor: 0.1; ranking has no such option"),
        ({"baseline": "boltzmann"}, "baseline: 'boltzmann'; ranking has no such option"),
        ({"task": "classification", "clicks": "perfect", "data": "digits"}, "clicks: 'perfect'; classification has no"),
        ({"task": "regression"}, "task: 'regression'; must be classification or ranking"),
        ({"clicks": "random"}, "'random' is not a click model; give perfect, position-biased"),
        ({"methods": "linucb"}, "method: 'linucb' does not rank; choose from ips, sea"),
        ({"methods": "seamark-swap"}, r"Did you mean seamark-swaps\?"),
        ({"semantics": "text"}, "semantics: 'text'"),
        ({"check": "often"}, "check schedule: 'often'"),
        ({"overrides": {"linucb": {"lr": 1}}}, "--set linucb: not a method; choose from ips"),
    ],
)
def test_impossible_runs_are_refused_before_anything_is_loaded(options: dict[str, Any], message: str) -> None:
    """Every option says what is allowed; what a task does not have is not ignored in silence."""
    with pytest.raises(ValueError, match=message):
        RunConfig(**{"task": "ranking", "data": "/nowhere", "methods": "sea",
                     **options})  # fmt: skip


def test_all_methods_are_the_rows_of_the_table() -> None:
    """One cell per method and seed, every id its own."""
    cells = planned(methods="all").cells

    assert [c.method for c in cells] == [m for m in METHODS for _ in range(2)]
    assert len({c.id for c in cells}) == 2 * len(METHODS)
    assert {"seamark", "seamark-swaps", "dbgd", "bubblerank"} <= set(METHODS)


def test_published_hyper_parameters_go_by_the_name_of_the_set() -> None:
    """The sets of the paper, any fold; ours elsewhere, relative to the features; overrides above both."""
    assert settled("ips", "mslr10k:fold3", "near-random")["lr"] == 0.001
    assert settled("seamark", "istella-s", "position-biased")["lr"] == 0.01
    assert settled("dbgd", "yahoo", "near-random") == {"lr": 0.001, "reach": 1.0, "warm": True}
    assert settled("ips")["lr"] == 2 * settled("ips", clicks="perfect", lr=0.5)["lr"] * 0.05
    assert settled("sea", lr="0.25")["lr"] == 0.25
    with pytest.raises(ValueError, match=r"--set sea.speed: sea has cap, gate_cap"):
        settled("sea", speed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"forms": "half"}, "forms: .* must be 'full', 'reranked' or both"), ({"slots": 1}, "slots: 1; must be at least")],
)
def test_a_gate_refuses_before_anything_runs(options: dict[str, Any], message: str) -> None:
    """What it cannot do is bad input, not a failed cell."""
    with pytest.raises(ValueError, match=message):
        planned(methods="seamark", overrides={"seamark": options})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("clicks", ["perfect", "near-random", "navigational"])
def test_every_method_has_defaults_of_its_own_kind(method: str, clicks: str) -> None:
    """A learning rate where something is learned by steps; nothing that is a recipe and no option."""
    options = settled(method, clicks=clicks)

    assert "step" not in options
    assert set(options) == set(METHODS[method].defaults)


def test_the_baseline_of_a_published_set_is_trained_as_published() -> None:
    """0.1 % of the queries, 10 epochs, the published step; elsewhere two queries at least."""
    world = RankingWorld.of(load(SMALL))
    own = baseline_options(world)
    published = baseline_options(RankingWorld("mslr10k:fold2", *_fields(world)))

    assert own["least"] == 2
    assert own["lr"] == pytest.approx(0.1 / (world.norm * world.pool.n_docs / world.n_queries), rel=0.01)
    assert published == {"fraction": 0.001, "least": 1, "epochs": 10, "lr": 1e-05}


def _fields(world: RankingWorld) -> tuple[Any, ...]:
    return (world.train, world.test, world.model, world.max_grade)


def test_one_job_or_two_give_the_same_numbers(tmp_path: Path) -> None:
    """Cells share nothing that they change."""
    one = execute(planned(methods="all"), tmp_path / "one", jobs=1)
    two = execute(planned(methods="all"), tmp_path / "two", jobs=2)

    assert one.failed == two.failed == []
    assert len(one.cells) == 2 * len(METHODS)
    assert numbers(one) == numbers(two)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """Interrupted after two cells, then run again: the same numbers, and no cell is run twice."""

    class Impatient(Watcher):
        done = 0

        def finished(self, cell: Any, result: dict[str, Any], reused: bool) -> None:
            self.done += 1
            if self.done == 2:
                raise KeyboardInterrupt

    class Counting(Watcher):
        reused = 0

        def finished(self, cell: Any, result: dict[str, Any], reused: bool) -> None:
            self.reused += reused

    whole = execute(planned(), tmp_path / "whole", jobs=1)
    broken = execute(planned(), tmp_path / "parts", jobs=1, watcher=Impatient())
    kept = len(list((tmp_path / "parts" / "cells").iterdir()))
    counting = Counting()
    resumed = execute(planned(), tmp_path / "parts", jobs=1, watcher=counting)

    assert broken.interrupted
    assert 2 <= kept < 6
    assert counting.reused == kept
    assert numbers(resumed) == numbers(whole)


def test_a_failing_cell_is_recorded_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is kept in one line."""
    from dataclasses import replace

    broken = Raising.factory(ZeroDivisionError("no\nluck"))
    monkeypatch.setitem(METHODS, "bsea", replace(METHODS["bsea"], learner=broken))
    outcome = execute(planned(seeds=1), tmp_path, jobs=1)

    assert [c["method"] for c in outcome.cells] == ["sea", "pdgd"]
    assert [f["error"] for f in outcome.failed] == ["ZeroDivisionError: no luck"]


def test_a_run_leaves_tables_that_say_what_is_certified(tmp_path: Path) -> None:
    """nDCG@10 as in the paper, then what users got in three measures; safety counts by click-DCG@10."""
    outcome = execute(planned(methods="all", seeds=3), tmp_path, jobs=1)
    summary, made = write_outputs(outcome, tmp_path, command="seamark run", config={"data": "small", "clicks": "x"})
    text = (tmp_path / "tables.md").read_text("utf-8")
    page = (tmp_path / "report.html").read_text("utf-8")

    assert [t.name for t in made] == ["cumulative_reward", "users", "held_out", "safety"]
    assert "Click-DCG@10, expected" in text
    assert "the largest fall of cumulative expected click-DCG@10" in text
    assert "Deployed: nDCG@10" in text
    assert list(summary["methods"])[-2:] == ["seamark", "seamark-swaps"]
    assert "click-DCG@10" in page
    assert summary["setting"]["clicks"] == "perfect"


# -- the command line -----------------------------------------------------------------------------------------------


def command(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def test_the_command_runs_and_writes_cells(tmp_path: Path) -> None:
    """seamark run --task ranking, with an override that the cell records."""
    done = command(
        "run", "--task", "ranking", "--data", SMALL, "--clicks", "near-random", "--methods", "ips,seamark", "--rounds",
        "100", "--seeds", "1", "--set", "ips.lr=0.5", "--check", "every:50", "--quiet", "--out", str(tmp_path),
    )  # fmt: skip
    cells = [json.loads(p.read_text("utf-8")) for p in (tmp_path / "cells").iterdir()]

    assert done.exit_code == 0, done.output
    assert {c["method"] for c in cells} == {"ips", "seamark"}
    assert {c["clicks"] for c in cells} == {"near-random"}
    assert [c["config"]["lr"] for c in cells if c["method"] == "ips"] == [0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 qid:2 1:0.5\n1 qid:1 1:0.1\n0 qid:2 1:0.2\n", "qid"),
        ("7 qid:1 1:0.5\n", "grade '7' is not a whole number in 0..4"),
        ("1 qid:1 0:0.5\n", "feature index 0"),
        ("1 qid:1 1:nan\n", "not finite"),
        ("hello\n", "line 1"),
        ("", "no"),
    ],
    ids=["qid out of order", "grade 7", "feature 0", "nan", "no LETOR", "empty"],
)
def test_a_bad_file_is_one_line_and_exit_code_2(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is named, and where it can be, the line; no traceback."""
    path = tmp_path / "train.txt"
    path.write_text(text)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["seamark", "run", "--task", "ranking", "--data", f"{path}:{path}", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr().err

    assert end.value.code == 2
    assert said.count("\n") == 1
    assert "train.txt" in said
    assert message in said


def test_a_poor_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query with one document and one whose grades are all 0: every method finishes."""
    path = tmp_path / "train.txt"
    path.write_text("1 qid:1 1:0.5\n0 qid:2 1:0.1\n0 qid:2 1:0.3 2:1\n2 qid:3 1:1\n0 qid:3 2:1\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = command(
        "run", "--task", "ranking", "--data", f"{path}:{path}", "--methods", "all", "--rounds", "100", "--seeds", "1",
        "--quiet", "--out", str(tmp_path / "out"),
    )  # fmt: skip

    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "out" / "cells").iterdir())) == len(METHODS)


def test_the_benchmark_times_every_method_beside_the_yardstick() -> None:
    """Rows with rates and ratios, bars where there are any, and a line through SEA's times."""
    rows = list(bench_ranking(("ranksvm-online", "sea"), data=SMALL, rounds=500, repeats=1))
    line = list(bench_ranking_growth((200, 400, 800), data=SMALL))

    assert [r["method"] for r in rows] == ["yardstick (NumPy epsilon-greedy)", "ranksvm-online", "sea"]
    assert [r.get("bar") for r in rows] == [None, 0.45, 0.30]
    assert all(r["ratio"] > 0 and np.isfinite(r["ratio"]) for r in rows)
    assert [r["rounds"] for r in line] == [200, 400, 800, 10_000_000]


def test_ids_of_cells_are_stable() -> None:
    """Runs are resumed by id: this one changes only with a reason, and then the results change too."""
    config = RankingCellConfig(
        "ranking", "d", "s", "sea", "perfect", "paper", {"fraction": 0.001}, 0.05, 1, 10, "log", {}
    )

    assert config.id == "4dea23e124f72012"
