"""The grid search: its axes, its validation part, and a TOML that `seamark run` takes."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from seamark.cli import main
from seamark.experiments import tune as tuning
from seamark.experiments.run import RunConfig, plan
from seamark.experiments.tune import Point, TuneConfig, grid, points
from seamark.experiments.tune_split import split_queries, split_rows
from seamark.worlds import datasets, letor

TINY = TuneConfig("digits", "ips,linucb", lr="0.01,0.1", alpha="0.3", rounds=120, seeds=2)


def test_a_range_has_the_bases_one_and_three() -> None:
    """As the authors' grids: 1 and 3 times powers of ten, both ends included."""
    assert grid("1e-4:0.01") == [0.0001, 0.0003, 0.001, 0.003, 0.01]
    assert grid("0.002:0.02, 0") == [0.0, 0.003, 0.01]


@pytest.mark.parametrize("text", ["", "a", "1:0.1", "-1", "0:1", "inf", "nan"])
def test_a_grid_that_makes_no_sense_is_refused(text: str) -> None:
    """With the text that was given."""
    with pytest.raises(ValueError, match="grid"):
        grid(text)


def test_ridge_methods_search_alpha_and_others_step_and_penalty() -> None:
    """The axes by method; a ridge penalty of zero is left out, since it leaves nothing to invert."""
    config = TuneConfig("digits", "ips,linucb", lr="0.1", l2="0,1", alpha="0.1,1")

    assert list(points(config, "ips")) == [{"lr": 0.1, "l2": 0.0}, {"lr": 0.1, "l2": 1.0}]
    assert list(points(config, "linucb")) == [{"alpha": 0.1, "l2": 1.0}, {"alpha": 1.0, "l2": 1.0}]


def test_validation_rows_are_training_rows_that_nothing_else_sees() -> None:
    """Four fifths to learn from, one fifth to validate on, no test row anywhere, and another hash."""
    whole = datasets.load("digits")
    split = split_rows(whole)
    rows = np.vstack([split.train_features, split.test_features])
    order, sorted_whole = np.lexsort(rows.T), np.lexsort(np.asarray(whole.train_features).T)

    assert split.test_labels.size == round(0.2 * whole.train_labels.size)
    assert np.array_equal(rows[order], np.asarray(whole.train_features)[sorted_whole])
    assert split.sha256 != whole.sha256
    assert split.sha256 == split_rows(whole).sha256


def test_validation_queries_are_training_queries() -> None:
    """The same for rankings: whole queries."""
    whole = letor.load("letor-synthetic:queries=50:documents=5:features=4")
    split = split_queries(whole)

    assert sorted([*split.train.qids, *split.test.qids]) == sorted(whole.train.qids)
    assert len(split.test) == round(0.2 * len(whole.train))
    assert split.vali is None


def test_cells_of_a_search_are_not_those_of_a_run() -> None:
    """The split is part of the hash, so one folder may hold both."""
    world = tuning.validation_world(TINY)
    config = TINY.run_config("ips", {"lr": 0.1})

    assert {c.id for c in plan(config, world).cells}.isdisjoint({c.id for c in plan(config).cells})


def test_the_best_is_sound_and_says_whether_it_lies_on_the_edge() -> None:
    """By hand: NaN loses, of two equals the smaller wins, an end of an axis with several values is an edge."""
    found = [
        Point("ips", {"lr": 0.1, "l2": 0.0}, "learned", (0.5, 0.7)),
        Point("ips", {"lr": 0.3, "l2": 0.0}, "learned", (0.6, 0.6)),
        Point("ips", {"lr": 1.0, "l2": 0.0}, "learned", (0.9, float("nan"))),
        Point("ips", {"lr": 3.0, "l2": 0.0}, "learned", (0.9, 0.9), trouble="failed"),
    ]
    best = tuning._best(TINY, found)

    assert best is not None
    assert best.point.options["lr"] == 0.1
    assert best.edges == ("lr at its lowest",)
    assert best.point.score == pytest.approx(0.6)
    assert best.n_points == 4
    assert tuning._best(TINY, found[2:]) is None


def test_an_offline_learner_is_judged_by_what_it_learned_and_others_by_what_they_earned() -> None:
    """Unless told otherwise."""
    assert [tuning.metric_of(TINY, m) for m in ("ips", "sea", "linucb")] == ["learned", "cumulative", "cumulative"]
    assert tuning.metric_of(TuneConfig("digits", "sea", metric="deployed"), "sea") == "deployed"


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["seamark", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)


def test_a_search_resumes_and_its_file_is_taken_by_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From end to end: cells once, a table, a TOML, and a run with exactly its options."""
    monkeypatch.chdir(tmp_path)
    search = (
        "tune", "--data", "digits", "--methods", "ips,linucb", "--grid-lr", "0.01,0.1", "--grid-alpha", "0.3",
        "--rounds", "120", "--seeds", "2", "--out", "t", "--jobs", "2",
    )  # fmt: skip
    call(monkeypatch, *search)
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "t" / "cells").glob("*.json")}
    shown = capsys.readouterr().out
    call(monkeypatch, *search, "-q")
    parsed = tomllib.loads((tmp_path / "t" / "tuned.toml").read_text("utf-8"))

    assert len(cells) == (2 + 1) * 2
    assert {p: p.stat().st_mtime_ns for p in cells} == cells
    assert "Best of the grid" in shown
    assert parsed["set"]["linucb"] == {"alpha": 0.3}
    assert parsed["set"]["ips"]["lr"] in (0.01, 0.1)
    assert parsed["methods"] == "ips,linucb"

    call(monkeypatch, "run", "--config", "t/tuned.toml", "--rounds", "60", "--seeds", "1", "--out", "r", "-q")
    config = RunConfig(
        data="digits", methods="ips,linucb", semantics="released", rounds=60, seeds=1, overrides=parsed["set"]
    )
    assert {p.stem for p in (tmp_path / "r" / "cells").glob("*.json")} == {c.id for c in plan(config).cells}
    capsys.readouterr()


def test_rankers_are_tuned_alike(tmp_path: Path) -> None:
    """The same search on queries."""
    config = TuneConfig(
        "letor-synthetic:queries=60:documents=6:features=5", "ips", task="ranking", lr="0.01,0.1", rounds=60, seeds=1
    )
    tuned = tuning.tune(config, tmp_path, jobs=1)

    assert [p.options for p in tuned.points] == [{"lr": 0.01}, {"lr": 0.1}]
    assert tuned.best[0].point.metric == "learned"
    assert 0 < tuned.best[0].point.score <= 1
    assert 'task = "ranking"' in tuning.to_toml(tuned, "x")
    assert "[set.ips]" in tuning.to_toml(tuned, "x")
