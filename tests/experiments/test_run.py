"""A run: resuming, failing, skipping, side by side, and what it leaves behind."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamark.experiments import methods, run
from seamark.experiments.cell import CellConfig
from seamark.experiments.run import Outcome, Plan, RunConfig, Watcher, execute, plan, read_cell, write_outputs
from seamark.worlds.supervised import SupervisedWorld
from support import Raising, csr, small_world

TIMES = ("seconds", "rounds_per_second")


def planned(world: SupervisedWorld | None = None, **options: Any) -> Plan:
    defaults: dict[str, Any] = {"methods": "sea,bsea,boltzmann", "rounds": 300, "seeds": 2, "floor": 0.3}
    return plan(RunConfig(**{**defaults, **options}), world or small_world())


def numbers(outcome: Outcome) -> list[dict[str, Any]]:
    return [{k: v for k, v in cell.items() if k not in TIMES} for cell in outcome.cells]


def files(out: Path) -> set[str]:
    return {p.name for p in (out / "cells").iterdir()}


class Diary(Watcher):
    """Writes down what happens; interrupts the run where it is told to."""

    def __init__(self, interrupt_at: tuple[str, int] | None = None) -> None:
        self.events: list[tuple[str, str]] = []
        self.interrupt_at = interrupt_at

    def note(self, what: str, cell: CellConfig) -> None:
        self.events.append((what, cell.id))
        if self.interrupt_at == (what, self.count(what)):
            raise KeyboardInterrupt

    def count(self, what: str) -> int:
        return sum(event == what for event, _ in self.events)

    def started(self, cell: CellConfig) -> None:
        self.note("started", cell)

    def finished(self, cell: CellConfig, result: dict[str, Any], reused: bool) -> None:
        self.note("reused" if reused else "finished", cell)

    def failed(self, cell: CellConfig, error: str) -> None:
        self.note("failed", cell)


def test_a_plan_has_one_cell_per_method_and_seed() -> None:
    """Methods x seeds from the first seed on, every id its own; the order is that of the methods asked for."""
    cells = planned(methods="bsea,sea", seeds=3, first_seed=10).cells

    assert [(c.method, c.seed) for c in cells] == [(m, s) for m in ("bsea", "sea") for s in (10, 11, 12)]
    assert len({c.id for c in cells}) == 6


@pytest.mark.parametrize("where", [("finished", 2), ("started", 3)])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_resumed_run_equals_an_uninterrupted_one(where: tuple[str, int], jobs: int, tmp_path: Path) -> None:
    """Interrupted between or inside cells, then run again: the same numbers, and finished cells are not run twice."""
    whole = execute(planned(), tmp_path / "whole", jobs=1)
    broken = execute(planned(), tmp_path / "parts", jobs=jobs, watcher=Diary(where))
    kept = files(tmp_path / "parts") if (tmp_path / "parts" / "cells").exists() else set()
    diary = Diary()
    resumed = execute(planned(), tmp_path / "parts", jobs=jobs, watcher=diary)

    assert broken.interrupted
    assert jobs == 2 or len(broken.cells) < 6  # beside an interrupted cell, others may all come to their end
    assert not resumed.interrupted
    assert numbers(resumed) == numbers(whole)
    assert diary.count("reused") == len(kept)
    assert diary.count("finished") == 6 - len(kept)
    assert all(name.endswith(".json") for name in kept)


def test_an_interruption_inside_a_cell_leaves_nothing_of_it(tmp_path: Path) -> None:
    """A cell is written whole or not at all; no partial file is left behind."""

    class Impatient(Watcher):
        def progress(self, cell: CellConfig, done: int) -> None:
            if cell.method == "bsea" and done >= 50:
                raise KeyboardInterrupt

    outcome = execute(planned(), tmp_path, jobs=1, watcher=Impatient())

    assert outcome.interrupted
    assert "bsea" not in {c["method"] for c in outcome.cells}
    assert files(tmp_path) == {f"{c['id']}.json" for c in outcome.cells}


def test_one_job_or_two_give_the_same_numbers(tmp_path: Path) -> None:
    """Cells share nothing that they change."""
    one = execute(planned(methods="all", rounds=150), tmp_path / "one", jobs=1)
    two = execute(planned(methods="all", rounds=150), tmp_path / "two", jobs=2)

    assert len(one.cells) == 2 * len(methods.METHODS)
    assert numbers(one) == numbers(two)


def test_a_failing_cell_is_recorded_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is kept in one line, nothing is written for the cell, and running again tries it again."""

    broken = Raising.factory(ZeroDivisionError("no\nluck"))
    monkeypatch.setitem(methods.METHODS, "bsea", replace(methods.METHODS["bsea"], learner=broken))
    diary = Diary()
    outcome = execute(planned(), tmp_path, jobs=2, watcher=diary)

    assert [c["method"] for c in outcome.cells] == ["sea", "sea", "boltzmann", "boltzmann"]
    assert sorted((f["method"], f["seed"], f["error"]) for f in outcome.failed) == [
        ("bsea", 4200, "ZeroDivisionError: no luck"),
        ("bsea", 4201, "ZeroDivisionError: no luck"),
    ]
    assert diary.count("failed") == 2
    assert len(files(tmp_path)) == 4
    summary, _ = write_outputs(outcome, tmp_path, command="seamark run", config={"data": "small"})
    assert len(summary["failed"]) == 2
    assert "no luck" in (tmp_path / "report.html").read_text("utf-8")

    monkeypatch.undo()
    again = execute(planned(), tmp_path, jobs=2)
    assert (len(again.cells), again.failed) == (6, [])


def test_a_result_that_cannot_be_written_fails_its_own_cell_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN is no JSON: recorded like any other failure. Caught: keep() outside the try."""
    task = run.TASKS["classification"]
    whole = task.run

    def spoilt(cell: CellConfig, *rest: Any) -> dict[str, Any]:
        return whole(cell, *rest) | ({"worst_shortfall": float("nan")} if cell.method == "sea" else {})

    monkeypatch.setattr(task, "run", spoilt)

    outcome = execute(planned(), tmp_path, jobs=1)

    assert {c["method"] for c in outcome.cells} == {"bsea", "boltzmann"}
    assert {f["method"] for f in outcome.failed} == {"sea"}
    assert "JSON" in outcome.failed[0]["error"]


def test_a_run_where_every_cell_fails_still_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs are written without any cell."""

    broken = Raising.factory(ValueError("nothing works"))
    monkeypatch.setitem(methods.METHODS, "sea", replace(methods.METHODS["sea"], learner=broken))
    outcome = execute(planned(methods="sea", seeds=1), tmp_path, jobs=1)
    write_outputs(outcome, tmp_path, command="seamark run", config={"data": "small"})

    assert outcome.cells == []
    assert "nothing works" in (tmp_path / "summary.json").read_text("utf-8")


def test_a_run_leaves_summary_tables_figures_and_a_report(tmp_path: Path) -> None:
    """Every file that is announced exists and is what its name says."""
    outcome = execute(planned(), tmp_path, jobs=1)
    write_outputs(outcome, tmp_path, command="seamark run --seeds 2", config={"data": "small"})

    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert summary["command"] == "seamark run --seeds 2"
    assert "sea" in (tmp_path / "tables.md").read_text("utf-8")
    for name in ("learning-curve", "cumulative-reward", "bounds"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text("utf-8")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "seamark run --seeds 2" in page
    for cell in outcome.cells:
        assert json.loads((tmp_path / "cells" / f"{cell['id']}.json").read_text("utf-8")) == cell


def test_overwriting_runs_every_cell_again(tmp_path: Path) -> None:
    """Without it finished cells are reused, with it none is."""
    execute(planned(seeds=1), tmp_path, jobs=1)
    reusing, overwriting = Diary(), Diary()
    execute(planned(seeds=1), tmp_path, jobs=1, watcher=reusing)
    execute(planned(seeds=1), tmp_path, jobs=1, watcher=overwriting, overwrite=True)

    assert (reusing.count("reused"), reusing.count("finished")) == (3, 0)
    assert (overwriting.count("reused"), overwriting.count("finished")) == (0, 3)


def test_more_seeds_and_methods_reuse_what_is_there(tmp_path: Path) -> None:
    """A folder grows: only cells that are new are run; other options make other cells."""
    execute(planned(seeds=1), tmp_path, jobs=1)
    more, other = Diary(), Diary()
    execute(planned(methods="sea,bsea,boltzmann,ips", seeds=2), tmp_path, jobs=1, watcher=more)
    execute(planned(seeds=1, delta=0.1), tmp_path, jobs=1, watcher=other)

    assert (more.count("reused"), more.count("finished")) == (3, 5)
    assert other.count("reused") == 0


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"3", b'{"schema": 0}', b"\xff\xfe", b"{}", b'{"schema": 1}']
)
def test_a_damaged_cell_is_run_again(content: bytes, tmp_path: Path) -> None:
    """Whatever lies in its place: it is not used, and it is replaced."""
    the_plan = planned(methods="sea", seeds=1)
    path = tmp_path / "cells" / f"{the_plan.cells[0].id}.json"
    path.parent.mkdir()
    path.write_bytes(content)

    assert read_cell(path) is None
    outcome = execute(the_plan, tmp_path, jobs=1)
    assert read_cell(path) == outcome.cells[0]


def test_a_method_too_large_for_the_data_is_skipped_with_the_memory_it_needs() -> None:
    """Ridge on 100,000 sparse features: 3 matrices of 80 GB; the others run, and the message says what to do."""
    small = small_world()
    wide = np.zeros((60, 100_000))
    wide[:, :6] = np.asarray(small.features)
    world = replace(small, features=csr(wide), test_features=csr(wide[:30]))
    the_plan = planned(world, methods="sea,linucb,thompson")
    hashed = planned(world, methods="linucb", overrides={"linucb": {"hash": "64"}})

    assert {c.method for c in the_plan.cells} == {"sea"}
    assert [s["method"] for s in the_plan.skipped] == ["linucb", "thompson"]
    assert "100,000 x 100,000 matrix for each of 3 actions" in the_plan.skipped[0]["reason"]
    assert " GB" in the_plan.skipped[0]["reason"]
    assert "--set linucb.hash=1024" in the_plan.skipped[0]["reason"]
    assert hashed.skipped == ()
    assert hashed.cells[0].options["hash"] == 64


def test_overrides_reach_the_method_in_the_type_of_the_default() -> None:
    """Text from the command line becomes number or truth value; a wrong key or value is refused with the known keys."""
    overrides = {"sea": {"lr": "0.5", "warm": "false"}, "bsea": {"lr": 2}}
    cells = {c.method: c.options for c in planned(overrides=overrides).cells}

    assert (cells["sea"]["lr"], cells["sea"]["warm"], cells["bsea"]["lr"]) == (0.5, False, 2.0)
    for bad, message in (
        ({"sea": {"speed": 1}}, r"--set sea.speed: sea has cap, decay"),
        ({"sea": {"lr": "fast"}}, r"--set sea.lr: 'fast'; must be like"),
        ({"sea": {"lr": [1]}}, r"--set sea.lr: \[1\]; must be like"),
        ({"ips": {"speed": 1}}, r"--set ips.speed"),
        ({"sea": {"warm": "perhaps"}}, r"--set sea.warm: 'perhaps'; must be like"),
        ({"see": {"lr": 1}}, r"--set see: not a method"),
    ):
        with pytest.raises(ValueError, match=message):
            planned(overrides=bad)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": "sea,linucbb"}, r"method: 'linucbb' is not known; choose from .* Did you mean linucb\?"),
        ({"semantics": "text"}, "semantics: 'text'; must be paper or released"),
        ({"baseline": "greedy"}, "baseline: 'greedy'; must be boltzmann or epsilon-greedy"),
        ({"rounds": 0}, "rounds: 0; must be at least 1"),
        ({"seeds": 0}, "seeds: 0"),
        ({"first_seed": -1}, "first_seed: -1"),
        ({"delta": 0.0}, "delta: 0.0"),
        ({"delta": float("nan")}, "delta: nan"),
        ({"floor": 1.5}, "floor: 1.5"),
        ({"floor": float("nan")}, "floor: nan"),
        ({"floor": 0.0}, "floor: 0 leaves no lowest propensity"),
        ({"check": "often"}, "check schedule: 'often'"),
        ({"rewards": "good"}, "rewards: 'good'"),
    ],
)
def test_impossible_runs_are_refused_before_anything_is_loaded(options: dict[str, Any], message: str) -> None:
    """Every option says what is allowed."""
    with pytest.raises(ValueError, match=message):
        RunConfig(**{"methods": "sea", **options})


def test_the_floor_follows_the_semantics() -> None:
    """0.05 under the paper's, none in the released ones, epsilon of an epsilon-greedy baseline in both."""
    assert RunConfig().floor_used == 0.05
    assert RunConfig(semantics="released").floor_used == 0.0
    assert RunConfig(semantics="released", baseline="epsilon-greedy").floor_used == 0.05
    assert RunConfig(semantics="released", floor=0.2).floor_used == 0.2
    assert RunConfig(methods="bsea", floor=0.0).floor_used == 0.0


def test_a_whole_number_is_the_same_floor() -> None:
    """floor = 0 in a file and --floor 0.0 are one cell."""
    one, two = (planned(methods="bsea", seeds=1, floor=f).cells[0].id for f in (0, 0.0))

    assert one == two


def test_what_finished_before_an_interruption_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that ended beside the interrupted one is written, though nobody had looked at it yet."""
    waited = run.wait

    def all_of(futures: Any, **_: Any) -> Any:
        done = waited(futures).done
        return sorted(done, key=lambda f: f.exception() is None), set()  # the interruption is seen first

    interrupted = Raising.factory(KeyboardInterrupt())
    monkeypatch.setattr(run, "wait", all_of)
    monkeypatch.setitem(methods.METHODS, "bsea", replace(methods.METHODS["bsea"], learner=interrupted))
    outcome = execute(planned(seeds=1), tmp_path, jobs=1)

    assert outcome.interrupted
    assert [c["method"] for c in outcome.cells] == ["sea", "boltzmann"]
    assert len(files(tmp_path)) == 2


def test_writing_is_whole_or_not_at_all(tmp_path: Path) -> None:
    """A value that is no JSON leaves the old file; NaN is no JSON."""
    run.write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        run.write_json(tmp_path / "x.json", {"a": float("nan")})

    assert json.loads((tmp_path / "x.json").read_text("utf-8")) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("method", "key", "value", "said"),
    [
        ("sea", "lr", -1, "lr: -1.0"), ("sea", "cap", 2, "cap: 2.0"), ("sea", "decay", "5", "decay: '5'"),
        ("linucb", "alpha", -1, "alpha: -1.0"), ("linucb", "hash", 1.5, "hash: 1.5"),
        ("linucb", "hash", -4, "hash: -4"),
        ("clucb", "alpha", 3, "alpha: 3.0"), ("boltzmann", "tau", 0, "tau: 0.0"), ("sea", "lr", True, "lr: True"),
        ("seamark", "slots", 0, "slots: 0"), ("seamark", "learner", "xx", "learner: 'xx'"),
        ("seamark", "guarantee", "foo", "guarantee: 'foo'"),
    ],
)  # fmt: skip
def test_options_that_no_learner_or_gate_takes_are_refused_before_anything_runs(
    method: str, key: str, value: Any, said: str
) -> None:
    """Caught: a cell that fails after the others ran, or a value that is rounded to something else in silence."""
    with pytest.raises(ValueError, match=rf"--set {method}.*{re.escape(said)}"):
        planned(methods=method, overrides={method: {key: value}})
