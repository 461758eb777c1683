"""The paper's numbers as data, the comparison with ours, and `seamark paper` from end to end at a tiny scale."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_cells import fake_cell

from seamark.cli import main
from seamark.cli.paper import told_command
from seamark.experiments.paper import grids, safety, sections, targets
from seamark.experiments.paper import published as paper
from seamark.experiments.paper.compare import Obtained, agreements, compare
from seamark.experiments.paper.export import _summaries
from seamark.experiments.paper.outputs import provenance
from seamark.experiments.paper.results import Gathered, gather
from seamark.experiments.paper.targets import RunSpec, Wanted, wanted
from seamark.experiments.ranking_cell import run_ranking_cell
from seamark.experiments.run import RunConfig, plan, read_cell
from seamark.worlds.clicks import CLICK_MODELS

# Published numbers


@pytest.mark.parametrize(
    ("table", "count", "gains", "losses"),
    [
        ("classification-cumulative", 28 * 5, 28, 12),
        ("ranking-cumulative", 36 * 6, 69, 3),
        ("classification-final", 17 * 2, 2, 9),
        ("ranking-final", 15 * 3, 3, 11),
    ],
)
def test_every_number_of_the_tables_is_there(table: str, count: int, gains: int, losses: int) -> None:
    """Counts of numbers and marks as counted in the paper's text itself."""
    found = list(paper.numbers(table))
    marks = Counter(one.mark for one in found)

    assert len(found) == count == len(paper.table(table))
    assert (marks["▲"], marks["▼"]) == (gains, losses)


@pytest.mark.parametrize(
    ("table", "where", "value", "mark"),
    [
        ("classification-cumulative", ("usps", "perfect", "sea", 10**5), 29286.93, ""),
        ("classification-cumulative", ("usps", "perfect", "linucb", 10**3), 105.53, "▲"),
        ("classification-cumulative", ("usps", "near-random", "epsilon-greedy", 10**5), -534.00, "▼"),
        ("classification-cumulative", ("news20", "perfect", "epsilon-greedy", 10**6), 499605.53, "▼"),
        ("classification-cumulative", ("rcv1", "near-random", "sea", 10**6), 21776.53, ""),
        ("ranking-cumulative", ("mslr10k", "perfect", "ranksvm-online", 10**7), 1180033.12, "▲"),
        ("ranking-cumulative", ("istella-s", "near-random", "ranksvm-online", 10**5), -3210.06, "▼"),
        ("ranking-cumulative", ("yahoo", "position-biased", "sea", 10**4), 144.06, ""),
        ("classification-final", ("news20", "perfect", "boltzmann", 10**6), 0.88, "▲"),
        ("classification-final", ("usps", "near-random", "sea", 10**6), 0.90, ""),
        ("ranking-final", ("mslr10k", "near-random", "ranksvm-online", 10**7), 0.40, "▲"),
        ("ranking-final", ("istella-s", "position-biased", "dbgd", 10**7), 0.65, "▼"),
    ],
)
def test_a_number_is_as_printed(table: str, where: tuple[str, str, str, int], value: float, mark: str) -> None:
    """Spot values, read off the paper by eye."""
    found = paper.table(table)[where]

    assert (found.value, found.mark) == (value, mark)


def test_small_tables_are_as_printed() -> None:
    """Data sets, click noise and grades; the click models that run are the published ones."""
    document = paper.document()

    assert document["datasets"]["classification"]["rcv1"]["test"] == 518571
    assert document["datasets"]["ranking"]["mslr10k"] == {
        "queries": 10000, "features": 136, "documents_per_query": 124,
    }  # fmt: skip
    assert document["relevance"]["istella-s"] == [0.89, 0.02, 0.04, 0.03, 0.02]
    assert all(list(CLICK_MODELS[name].p_click) == row for name, row in document["click-noise"].items())


def test_every_reason_applies_to_a_published_number() -> None:
    """A reason that no number can have is a misspelt one."""
    held = {
        key
        for table in ("classification-cumulative", "ranking-cumulative", "classification-final", "ranking-final")
        for one in paper.numbers(table)
        for semantics in targets.SEMANTICS
        for key in paper.reasons_for(
            table=table, task=table.partition("-")[0], data=one.data, noise=one.noise, method=one.method,
            semantics=semantics,
        )
    }  # fmt: skip

    assert held == {reason.key for reason in paper.reasons()}


def test_a_reason_is_given_only_where_it_holds() -> None:
    """BSEA's delta of 1 belongs to the released semantics, the scale of the features to 20 Newsgroups."""
    where = {"table": "classification-cumulative", "task": "classification", "noise": "perfect"}
    released = paper.reasons_for(**where, data="usps", method="bsea", semantics="released")
    text = paper.reasons_for(**where, data="news20", method="sea", semantics="paper")

    assert "bsea-delta" in released
    assert "bsea-means" not in released
    assert "news20-scale" not in released
    assert "news20-scale" in text
    assert "floor" in text
    assert "bsea-delta" not in text


# Comparisons


def sea_at_1e5(mean: float, sd: float | None, n: int = 16, **more: Any) -> Any:
    where = ("classification-cumulative", "classification", "usps", "perfect", "released", "sea", 10**5)
    return compare(*where, Obtained(mean, sd, n), **more)


def test_a_number_within_two_standard_errors_agrees() -> None:
    """By hand: published 29286.93; se = 40 / sqrt(16) = 10, so up to 20 away, half a cent granted."""
    near, far = sea_at_1e5(29286.93 + 20, 40.0), sea_at_1e5(29286.93 - 20.1, 40.0)

    assert near.verdict == "agrees"
    assert near.reasons == ()
    assert near.difference == pytest.approx(20)
    assert near.in_se == pytest.approx(20 / (40 / math.sqrt(16)))
    assert far.verdict == "differs"
    assert "draws" in far.reasons
    assert far.in_se == pytest.approx(-2.01)


def test_what_cannot_be_judged_is_not() -> None:
    """One seed, other rounds, nothing obtained, nothing published: four different verdicts."""
    where = ("classification-cumulative", "classification", "usps", "perfect", "released")

    assert sea_at_1e5(0.0, None, 1).verdict == "not judged"
    assert sea_at_1e5(0.0, 1.0, is_comparable=False).verdict == "not judged"
    assert compare(*where, "sea", 10**5, None).verdict == "not run"
    assert compare(*where, "seamark", 10**5, Obtained(1.0, 1.0, 5)).verdict == "not published"


def test_two_exact_zeros_agree() -> None:
    """SEA before its first deployment: 0.00 printed, 0 obtained in every seed, no standard error to divide by."""
    where = ("classification-cumulative", "classification", "usps", "perfect", "released", "sea", 100)
    same = compare(*where, Obtained(0.0, 0.0, 15))

    assert same.verdict == "agrees"
    assert same.in_se is None
    assert compare(*where, Obtained(0.1, 0.0, 15)).verdict == "differs"


def test_the_rounding_of_the_table_is_granted() -> None:
    """0.92 printed may be 0.9249; it is not 0.926."""
    where = ("classification-final", "classification", "usps", "perfect", "released", "sea", 10**6)

    assert compare(*where, Obtained(0.9249, 0.0, 15)).verdict == "agrees"
    assert compare(*where, Obtained(0.926, 0.0, 15)).verdict == "differs"


def test_agreement_counts_what_was_judged() -> None:
    """By hand: of SEA, BSEA and Boltzmann at the last round two agree, and Boltzmann is on the wrong side of SEA."""
    where = ("classification-cumulative", "classification", "usps", "perfect", "released")
    sea = compare(*where, "sea", 10**6, Obtained(337577.53, 3.0, 9))
    bsea = compare(*where, "bsea", 10**6, Obtained(341919.60, 3.0, 9, "▲"), paired=Obtained(4342.07, 3.0, 9))
    boltzmann = compare(*where, "boltzmann", 10**6, Obtained(344000.0, 3.0, 9, "▲"), paired=Obtained(7000.0, 3.0, 9))
    [found] = agreements([sea, bsea, boltzmann, compare(*where, "linucb", 10**6, None)])

    assert (found.n_judged, found.n_agree, found.n_sides, found.n_same_side) == (3, 2, 2, 1)
    assert (found.n_paired, found.n_paired_agree) == (2, 1)
    assert found.n_same_mark == 2  # Boltzmann has none in the paper
    assert found.median_relative == pytest.approx(0.0)


# Safety


def cell(method: str, seed: int, *values: float) -> dict[str, Any]:
    """A cell whose policies had these true values, one after the other."""
    made = [
        {"at": 10 * (i + 1), "true_value_before": a, "true_value_after": b}
        for i, (a, b) in enumerate(itertools.pairwise(values))
    ]
    return {
        "id": f"{method}-{seed}", "task": "classification", "data": "usps", "rewards": "perfect", "rounds": 100,
        "method": method, "seed": seed, "at": [0, 100], "deployments": made,
        "unsafe_deployments": sum(d["true_value_after"] < d["true_value_before"] for d in made),
        "worst_shortfall": -1.5 * seed, "checks": 5, "true_value_baseline": values[0], "rounds_per_second": 1.0,
        "seconds": {"total": 1.0, "learning": 0.5, "checking": 0.5}, "expected_gain": [0.0, 0.0],
        "cumulative_reward": [0.0, 10.0 * seed], "baseline_cumulative_reward": [0.0, 1.0],
    }  # fmt: skip


def gathered(*cells: dict[str, Any]) -> Gathered:
    spec = RunSpec("classification", "usps", "perfect", "released", ("sea", "bsea"), 100, 2)
    return Gathered(spec, list(cells))


def test_safety_counts_runs_with_a_worse_deployment() -> None:
    """By hand: seed 1 goes .5 .6 .55 (worse, still above the baseline), seed 2 .5 .4 (worse and below it)."""
    run = gathered(cell("sea", 1, 0.5, 0.6, 0.55), cell("sea", 2, 0.5, 0.4), cell("sea", 3, 0.5, 0.7))
    [row] = safety.of_run(run)

    assert (row.runs, row.deployments, row.worse, row.below_baseline, row.runs_with_worse) == (3, 4, 2, 1, 2)
    assert row.worst_shortfall == -4.5
    assert [one["at"] for one in safety.worse_deployments([run])] == [20, 10]


def test_the_interval_is_that_of_clopper_and_pearson() -> None:
    """At its ends the binomial tails are a fortieth each."""
    from scipy.stats import binom

    low, high = safety.binomial_interval(3, 15)

    assert binom.sf(2, 15, low) == pytest.approx(0.025)
    assert binom.cdf(3, 15, high) == pytest.approx(0.025)
    assert safety.binomial_interval(15, 15)[1] == 1.0


def test_a_method_less_sea_is_paired_by_seed() -> None:
    """By hand: rewards 10 s for both, so every difference is zero although the means have a spread."""
    run = gathered(*(cell(m, s, 0.5, 0.6) for m in ("sea", "bsea") for s in (1, 2)), cell("bsea", 3, 0.5, 0.6))
    gap = run.less_sea("bsea", "relative_reward", 100)

    assert gap == Obtained(0.0, 0.0, 2)
    assert run.less_sea("linucb", "relative_reward", 100) is None


# Which runs, which data


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no data set but those that come with the packages."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SEAMARK_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_missing_sets_are_listed_with_what_to_do(no_data: Path) -> None:
    """Nothing is run in their place, and no folder of this machine is named."""
    asked = wanted("all", scale="laptop")
    told = {one.what: str(one) for one in asked.missing}

    assert set(told) == {"usps", "news20", "rcv1", "mslr10k", "yahoo", "istella-s"}
    assert asked.runs == ()
    assert "seamark data fetch usps" in told["usps"]
    assert "ask Microsoft Research" in told["mslr10k"]
    assert "SEAMARK_DATA" in told["mslr10k"]
    assert str(no_data) not in " ".join(told.values())


def test_whether_a_ranking_set_is_there_is_seen_without_reading_it(
    no_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a name and place that fit are enough; what is in them is found out when they are used."""
    fold = no_data / "MQ2007" / "Fold1"
    fold.mkdir(parents=True)
    for name in ("train.txt", "test.txt"):
        (fold / name).write_text("not LETOR\n", "utf-8")
    monkeypatch.setenv("SEAMARK_DATA", str(no_data))

    assert targets.absent("ranking", "mq2007") is None
    assert targets.absent("ranking", "mq2007:fold2") is not None


def test_substitutes_run_only_when_asked_for_and_under_their_own_names(no_data: Path) -> None:
    """Asking for the paper's sets never brings another one in."""
    assert {one.what for one in wanted("all", data="paper").missing}.isdisjoint({"reuters-r52", "mq2007"})
    asked = {one.what for one in wanted("all", data="substitutes").missing}

    assert asked == {"reuters-r52", "mq2007", "mq2008", "mslr-sample"}


def test_a_run_folder_is_that_of_seamark_run() -> None:
    """The same configuration gives the same cells, so what `seamark run` made is found."""
    [first, *_] = wanted("classification-cumulative", scale="tiny", semantics="released").runs
    mine = plan(RunConfig(**{**first.settings(), "methods": "sea,ips"}))
    theirs = plan(
        RunConfig(data="digits", methods="ips,sea", rewards="perfect", semantics="released", rounds=2000, seeds=2)
    )

    assert first.folder == "digits-perfect-released"
    assert {one.id for one in mine.cells} == {one.id for one in theirs.cells}


def test_clucb_runs_apart_shorter_and_hashed_on_text() -> None:
    """It is no method of the paper's tables, and its cost grows with the square of the features."""
    long = targets._runs("classification", "news20", "perfect", "paper", targets.SCALES["full"], None, None, None, 4200)

    assert [(r.methods[-1], r.rounds) for r in long] == [("seamark", 10**6), ("clucb", 10**5)]
    assert long[1].overrides == {"clucb": {"hash": 256}}
    assert "--set clucb.hash=256" in long[1].command()


def test_rankers_that_ask_no_gate_of_the_paper_run_once_for_both_semantics(tmp_path: Path) -> None:
    """Their cells are those of the released run, whichever semantics is asked for; only sea and bsea run twice."""
    [*specs] = [r for r in wanted("ranking-final", scale="tiny").runs if r.noise == "perfect"]
    released, text = specs

    assert text.methods == ("bsea", "sea")
    assert set(text.shared) == set(targets.METHODS["ranking"]) - {"sea", "bsea"}
    assert released.shared == ()
    small = ("dbgd", "sea")
    both = [replace(released, methods=small, rounds=60), replace(text, methods=("sea",), shared=("dbgd",), rounds=60)]
    one, other = gather(both, tmp_path, jobs=1)
    cells = sorted(path.parent.parent.name for path in tmp_path.glob("*/cells/*.json"))
    alone, *rest = gather(both[1:], tmp_path, is_run=False)

    assert cells == ["letor-synthetic-perfect-paper"] * 2 + ["letor-synthetic-perfect-released"] * 4
    assert [c["id"] for c in one.cells if c["method"] == "dbgd"] == [
        c["id"] for c in other.cells if c["method"] == "dbgd"
    ]  # fmt: skip
    assert (len(alone.cells), rest) == (4, [])
    assert [made["cells"] for made in provenance([one, other])] == [4, 2]
    assert [row.semantics for row in safety.of_runs([one, other])] == ["released", "paper"]


def long_and_main(tmp_path: Path) -> tuple[Any, list[Gathered]]:
    """A main run of 100 rounds and two seeds, an extra one of 200 rounds and one seed, in one folder."""
    asked = wanted("all", scale="tiny", semantics="released", methods="sea,ips", rounds=100)
    [main] = [r for r in asked.runs if r.task == "ranking" and r.noise == "perfect"]
    longer = replace(main, rounds=200, seeds=1, is_extra=True)
    return asked, gather([main, longer], tmp_path, jobs=1)


def test_an_extra_run_fills_only_the_columns_beyond_the_main_one(tmp_path: Path) -> None:
    """The final table, the figure and the summary of the method stay with the main run; safety is not added twice."""
    asked, runs = long_and_main(tmp_path)
    cumulative = sections.make(targets.TARGETS["ranking-cumulative"], asked, runs)
    final = sections.make(targets.TARGETS["ranking-final"], asked, runs)
    n_seeds = {(c.method, c.round): c.obtained.n_seeds for c in cumulative.comparisons if c.obtained}
    found = _summaries(runs)["letor-synthetic-perfect-released"]["methods"]
    rows = safety.of_runs(runs)

    assert n_seeds["sea", 100] == 2
    assert n_seeds["sea", 200] == 1
    assert cumulative.tables[0].headers[-2:] == ("t = 100", "t = 200, 1 seed")
    assert {c.obtained.n_seeds for c in final.comparisons if c.obtained} == {2}
    assert "ours after 100 rounds" in final.notes[0]
    assert grids.drawn(runs) == runs[:1]
    assert grids.not_drawn(runs) == []
    assert {key: one["rounds"] for key, one in found.items()} == {
        "sea": 100, "ips": 100, "sea, 200 rounds": 200, "ips, 200 rounds": 200,
    }  # fmt: skip
    assert [(row.rounds, row.runs) for row in rows if row.method == "sea"] == [(100, 2), (200, 1)]
    assert [row.runs for row in safety.totals(rows)] == [2]


def test_the_extra_run_of_the_full_scale_belongs_to_its_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the set is there and asked for, with no length of the user's own."""
    monkeypatch.setattr(targets, "absent", lambda task, name: None)

    def extras(*arguments: str, **more: Any) -> list[tuple[Any, ...]]:
        runs = wanted(*arguments, scale="full", **more).runs
        return [(r.folder, r.methods, r.rounds, r.seeds) for r in runs if r.is_extra]

    five = ("ranksvm-online", "ips", "bsea", "sea", "seamark")
    assert extras("all", data="paper,substitutes") == [("mq2007-perfect-released", five, 10**7, 3)]
    assert extras("ranking-cumulative", data="mq2007", methods="sea,dbgd") == [
        ("mq2007-perfect-released", ("sea",), 10**7, 3)
    ]  # fmt: skip
    assert extras("all", data="paper") == []
    assert extras("all", data="mq2007", rounds=10**6) == []
    assert extras("all", data="mq2007", semantics="paper") == []
    assert extras("classification-final", data="substitutes") == []


def test_a_method_whose_runs_are_shorter_is_named_beneath_the_figure() -> None:
    """CLUCB is in no picture of the longer runs, and the caption says so."""
    spec = RunSpec("classification", "usps", "perfect", "released", ("sea",), 1000, 1)
    long = Gathered(spec, [fake_cell("sea", 1, rounds=1000, data="usps", true_value_baseline=0.5)])
    short = Gathered(
        replace(spec, methods=("clucb",), rounds=100),
        [fake_cell("clucb", 1, rounds=100, data="usps", true_value_baseline=0.5)],
    )
    asked = Wanted((), targets.SCALES["full"], {"classification": ("usps",)}, (), ())
    drawn = sections.make(targets.TARGETS["classification-online"], asked, [long, short])

    assert drawn.captions["classification-online-released"].endswith("since their runs are shorter: clucb.")


@pytest.mark.parametrize(("seeds", "told"), [((1, 1), "1 seed"), ((2, 2), "2 seeds"), ((1, 3), "1 to 3 seeds")])
def test_the_picture_itself_says_semantics_and_seeds(seeds: tuple[int, int], told: str) -> None:
    """It is passed on without its caption; and the tables of the two tasks have different titles."""
    spec = RunSpec("classification", "usps", "perfect", "released", ("sea", "bsea"), 100, max(seeds))
    cells = [
        fake_cell(method, seed, rounds=100, data="usps", true_value_baseline=0.5)
        for method, n in zip(("sea", "bsea"), seeds)
        for seed in range(n)
    ]
    asked = Wanted((), targets.SCALES["full"], {"classification": ("usps",)}, (), ())
    drawn = sections.make(targets.TARGETS["classification-online"], asked, [Gathered(spec, cells)])
    figure = drawn.figures["classification-online-released"]

    assert figure.get_suptitle().endswith(f"classification, semantics 'released', {told}")
    assert drawn.tables[0].title == "The curves in numbers: classification"


@pytest.mark.parametrize("method", targets.SHARED["ranking"])
def test_a_shared_ranking_method_has_the_same_numbers_under_both_semantics(method: str) -> None:
    """Everything that a cell measures, apart from seconds."""
    config = RunConfig(
        task="ranking", data="letor-synthetic:queries=40:documents=12:features=5", methods=method, rounds=800, seeds=1
    )
    made = []
    for semantics in targets.SEMANTICS:
        [one] = plan(replace(config, semantics=semantics)).cells
        world = plan(config).world
        made.append(run_ranking_cell(one, world, one.baseline(world)))
    first, second = ({k: v for k, v in one.items() if k not in {"id", "semantics", "seconds"}} for one in made)
    first.pop("rounds_per_second"), second.pop("rounds_per_second")

    assert first == second


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"target": "classification-cumulativ"}, "Did you mean classification-cumulative"),
        ({"scale": "huge"}, "tiny, laptop, full"),
        ({"data": "usp"}, "Did you mean usps"),
        ({"semantics": "none"}, "released, paper or both"),
        ({"seeds": 0}, "at least 1"),
        ({"data": ""}, "data: '' names no set"),
        ({"methods": " ,"}, "names none"),
        ({"methods": "sea,bsae"}, "Did you mean bsea"),
        ({"target": "ranking-final", "methods": "linucb"}, "ranking has .*ranksvm-online"),
        ({"target": "ranking-final", "data": "usps"}, "usps is a classification set, and ranking-final uses ranking"),
        ({"target": "click-noise", "data": "usps"}, "takes no data"),
        ({"target": "click-noise", "methods": "zzz"}, "not one of them"),
        ({"target": "relevance", "methods": "sea"}, "takes no runs"),
        ({"target": "datasets", "rounds": 10}, "takes no runs"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_allowed(arguments: dict[str, Any], says: str) -> None:
    """One sentence each."""
    with pytest.raises(ValueError, match=says):
        wanted(**arguments)


# The command


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["seamark", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["seamark", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_the_whole_paper_at_a_tiny_scale(
    no_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every table and figure from the two sets that are always there; running again reads the same cells."""
    tiny = ("paper", "all", "--scale", "tiny", "--rounds", "300", "--methods", "sea,ips,ranksvm-online,epsilon-greedy")
    call(monkeypatch, *tiny, "--semantics", "released", "--out", "res", "--jobs", "2", "-q", "--export", "docs")
    folder = no_data / "res" / "paper"
    page = (folder / "report.html").read_text("utf-8")
    made = json.loads((folder / "classification-cumulative.json").read_text("utf-8"))
    cells = sorted((no_data / "res").glob("*/cells/*.json"))
    before = [path.stat().st_mtime_ns for path in cells]

    assert {path.stem for path in folder.glob("*.json")} == set(targets.TARGETS) == {
        path.stem for path in folder.glob("*.md")
    }  # fmt: skip
    assert {one["method"] for one in made["comparisons"] if one["obtained"] is not None} == {
        "sea", "ips", "epsilon-greedy",
    }  # fmt: skip
    assert {one["verdict"] for one in made["comparisons"]} == {"not published"}
    assert made["agreement"] == []
    assert made["substitutes"] == ["digits", "letor-synthetic"]
    assert made["runs"][0]["cells"] == 6
    assert made["missing"] == []  # ranksvm-online is for rankings
    assert "Of the sets asked for, none is missing" in (folder / "datasets.md").read_text("utf-8")
    assert "USPS: not found" in (folder / "datasets.md").read_text("utf-8")
    assert len(made["runs"][0]["data_sha256"]) == 64
    assert all(title in page for title in ("Data sets", "Click noise", "Safety", "under their own names"))
    assert page.count("<svg") == 2
    for name in ("classification-online-released.png", "ranking-online-released.svg"):
        assert (folder / name).stat().st_size > 5_000
    exported = {str(path.relative_to(no_data / "docs")) for path in (no_data / "docs").rglob("*.*")}
    assert {"provenance.json", "summaries/digits-perfect-released.json", "tables/datasets.md"} <= exported
    assert not any(str(no_data) in path.read_text("utf-8") for path in (no_data / "docs").rglob("*.json"))

    part = ("paper", "classification-final", "--scale", "tiny", "--rounds", "300", "--methods", "sea")
    told = refused(monkeypatch, capsys, *part, "--out", "res", "--no-run", "-q", "--export", "docs")
    assert "export: docs holds more than this command has: classification-cumulative" in told
    assert "6 cells of digits-perfect-released at 300 rounds (2 now)" in told

    call(monkeypatch, *tiny, "--semantics", "released", "--out", "res", "-q", "--no-run", "--export", "docs")
    assert [path.stat().st_mtime_ns for path in cells] == before
    assert read_cell(cells[0]) is not None
    capsys.readouterr()


def test_each_target_made_alone_has_a_page_of_its_own(
    no_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other into one folder: no page takes the place of another, nor of that of `all`."""
    for target in ("datasets", "click-noise"):
        call(monkeypatch, "paper", target, "--scale", "tiny", "--out", "x", "-q")
        assert capsys.readouterr().out == f"Results: x/paper ({target}.html; .md and .json per target)\n"

    pages = {path.name: path.read_text("utf-8") for path in (no_data / "x" / "paper").glob("*.html")}
    assert pages.keys() == {"datasets.html", "click-noise.html"}
    assert "<h2>Data sets</h2>" in pages["datasets.html"]
    assert "<h2>Click noise</h2>" in pages["click-noise.html"]


def test_no_run_reads_what_is_there_and_lists_what_is_not(
    no_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing runs; every cell that is not there is counted."""
    call(
        monkeypatch, "paper", "classification-final", "--scale", "tiny", "--methods", "sea", "--no-run", "--out", "x"
    )  # fmt: skip
    told = capsys.readouterr().out

    assert "digits-perfect-released, sea; digits-near-random-released, sea; digits-perfect-paper, sea; " in told
    assert "digits-near-random-paper, sea: cells not there; run without --no-run." in told
    assert not list((no_data / "x").glob("*/cells/*"))


def test_a_published_set_is_compared_number_by_number(
    no_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stand-in under the name of a published set, put there on purpose: the table has both sides and a verdict."""
    rows = "".join(f"{1 + i % 10} 1:{i % 10} 2:{(i * 7 % 11) / 11} 256:1\n" for i in range(400))
    import bz2

    for name in ("usps.bz2", "usps.t.bz2"):
        (no_data / "here").mkdir(exist_ok=True)
        (no_data / "here" / name).write_bytes(bz2.compress(rows.encode()))
    monkeypatch.setenv("SEAMARK_DATA", str(no_data / "here"))
    call(
        monkeypatch, "paper", "classification-cumulative", "--scale", "tiny", "--data", "usps,rcv1", "--methods",
        "sea,epsilon-greedy", "--rounds", "200", "--seeds", "2", "--semantics", "released", "--out", "x", "-q",
    )  # fmt: skip
    made = json.loads((no_data / "x" / "paper" / "classification-cumulative.json").read_text("utf-8"))
    text = (no_data / "x" / "paper" / "classification-cumulative.md").read_text("utf-8")
    found = {(c["noise"], c["method"], c["round"]): c for c in made["comparisons"]}
    one = found["perfect", "epsilon-greedy", 100]

    assert one["published"] == 0.80
    assert one["verdict"] in ("agrees", "differs")
    assert one["n_seeds"] == 2
    assert one["difference"] == pytest.approx(one["obtained"] - 0.80)
    assert one["less_sea"]["published"] == pytest.approx(0.80)
    assert found["perfect", "sea", 10**6]["verdict"] == "not run"
    assert found["perfect", "sea", 200]["published"] is None
    assert "epsilon-greedy: published" in text
    assert "rcv1: rcv1_train.multiclass.bz2" in text
    capsys.readouterr()


def test_committed_commands_name_no_folder_of_this_machine(no_data: Path) -> None:
    """Paths below the current folder become relative, others shrink to their names, in either form of an option."""
    command = told_command(["paper", "all", "--out", f"{no_data}/res/full", "--export=/elsewhere/docs", "-q"])

    assert command == "seamark paper all --out res/full --export=docs -q"


@pytest.mark.slow
def test_the_tiny_scale_as_it_is(tmp_path: Path) -> None:
    """The command of the manual, untouched, in under two minutes with a warm cache."""
    done = subprocess.run(
        [sys.executable, "-c", "from seamark.cli import main; main()", "paper", "all", "--scale", "tiny",
         "--out", str(tmp_path), "-q"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "paper" / "report.html").stat().st_size > 100_000
