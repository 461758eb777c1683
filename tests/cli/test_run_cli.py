"""`seamark run` from outside: exit codes, one line for whatever is wrong, and who wins between file and flag."""

from __future__ import annotations

import bz2
import errno
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support import Raising

from seamark.cli import main
from seamark.cli.outputs import require_writable_file
from seamark.cli.run import DEFAULTS, METHODS_HELP, OF_TASK, settle
from seamark.experiments import methods, ranking_methods
from seamark.experiments.run import RunConfig, default_folder
from seamark.experiments.tasks import TASKS

TRAIN = "".join(f"{i % 3} 1:{1 + i % 3} 2:{(i * 7 % 5) / 5} 3:1\n" for i in range(60))
TEST = "0 1:1 3:1\n1 1:2 3:1\n2 1:3 2:0.5 3:1\n"
QUICK = ("--rounds", "120", "--seeds", "1", "--methods", "sea,ips", "--floor", "0.3", "--jobs", "1", "-q")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def seamark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:  # fmt: skip
    """The command line in this process, in a folder of its own: exit code, stdout, stderr."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SEAMARK_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text(TRAIN)
    (tmp_path / "test.txt").write_text(TEST)

    def command(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["seamark", *arguments])
        capsys.readouterr()
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
        return Ended(int(code), *capsys.readouterr())

    return command


def assert_one_line(ended: Ended, *parts: str) -> None:
    assert ended.code == 2, ended
    assert ended.err.startswith("seamark: "), ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert "Traceback" not in ended.err
    for part in parts:
        assert part in ended.err


def test_a_run_ends_with_zero_and_its_files(seamark: Any, tmp_path: Path) -> None:
    """Results, tables on the terminal, and the folder named at the end."""
    ended = seamark("run", "--data", "train.txt:test.txt", *QUICK[:-1], "--out", "out")

    assert ended.code == 0, ended
    assert "sea" in ended.out
    assert "Results: out" in ended.out
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"cells", "summary.json", "tables.md", "report.html"}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert summary["command"].startswith("seamark run --data train.txt:test.txt")
    again = seamark("run", "--data", "train.txt:test.txt", *QUICK, "--out", "out")
    assert again.code == 0
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 2


def test_a_label_that_only_one_side_has_is_fine(seamark: Any, tmp_path: Path) -> None:
    """A class missing in the test file, or only there, is an action all the same."""
    (tmp_path / "few.txt").write_text("0 1:1\n0 1:2\n")
    (tmp_path / "new.txt").write_text("7 1:1\n0 1:2\n")

    for test in ("few.txt", "new.txt"):
        assert seamark("run", "--data", f"train.txt:{test}", *QUICK, "--out", f"out-{test}").code == 0


def test_contexts_that_say_nothing_are_fine(seamark: Any, tmp_path: Path) -> None:
    """Features that are all zero make a bandit without contexts."""
    (tmp_path / "zero.txt").write_text("0 1:0\n1 1:0\n0 1:0\n1 1:0\n")
    ended = seamark("run", "--data", "zero.txt:zero.txt", *QUICK, "--methods", "sea,boltzmann,linucb", "--out", "out")

    assert (ended.code, ended.err) == (0, "")


BAD_FILES = {
    "a NaN": (b"0 1:1\n1 1:nan\n", "line 2"),
    "an infinity": (b"0 1:1\n1 1:inf\n", "line 2"),
    "words": (b"hello world\n", "line 1"),
    "empty": (b"", "train"),
    "blank": (b"\n\n", "train"),
    "binary": (bytes(range(256)), "train"),
    "no label": (b"1:3 2:4\n", "line 1"),
    "one class": (b"1 1:3\n1 1:4\n", "train"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line_and_exit_code_two(name: str, seamark: Any, tmp_path: Path) -> None:
    """It names the file, and the row where there is one."""
    content, part = BAD_FILES[name]
    (tmp_path / "train.txt").write_bytes(content)

    assert_one_line(seamark("run", "--data", "train.txt:test.txt", *QUICK), "train.txt", part)


def test_a_truncated_archive_is_one_line_and_exit_code_two(seamark: Any, tmp_path: Path) -> None:
    """The end of the download is missing."""
    whole = bz2.compress(TRAIN.encode() * 50)
    (tmp_path / "cut.bz2").write_bytes(whole[: len(whole) // 2])

    assert_one_line(seamark("run", "--data", "cut.bz2", *QUICK), "cut.bz2")


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown data": (("--data", "nosuchset"), "nosuchset"),
    "near data": (("--data", "uspss"), "usps"),
    "no file": (("--data", "missing.txt"), "missing.txt"),
    "a folder": (("--data", "."), ""),
    "unknown method": (("--methods", "sea,epsilon-gredy"), "Did you mean epsilon-greedy?"),
    "no methods": (("--methods", ""), "method"),
    "rewards by word": (("--rewards", "lovely"), "must be one of perfect"),
    "rewards out of range": (("--rewards", "1.5:0"), "both probabilities must be in [0, 1]"),
    "floor": (("--floor", "0"), "or --semantics released"),
    "negative floor": (("--floor=-0.1",), "floor: -0.1"),
    "semantics": (("--semantics", "mine"), "must be paper or released"),
    "baseline": (("--baseline", "mine"), "must be boltzmann or epsilon-greedy"),
    "rounds": (("--rounds", "0"), "rounds: 0"),
    "seeds": (("--seeds", "0"), "seeds: 0"),
    "delta": (("--delta", "2"), "delta: 2.0"),
    "jobs": (("--jobs=-1",), "jobs: -1"),
    "check": (("--check", "every:0"), "every:0"),
    "task": (("--task", "chess"), "task: 'chess'"),
    "set without a key": (("--set", "sea"), "must be METHOD.KEY=VALUE"),
    "set unknown method": (("--set", "see.lr=1"), "--set see: not a method"),
    "set unknown key": (("--set", "sea.speed=1"), "--set sea.speed"),
    "set unknown key of another method": (("--set", "bsea.speed=1"), "--set bsea.speed"),
    "set bad value": (("--set", "sea.lr=fast"), "--set sea.lr: 'fast'"),
    "out is a file": (("--out", "train.txt"), "--out train.txt: cannot be written"),
    "out below a file": (("--out", "train.txt/out"), "cannot be written"),
    "no config": (("--config", "missing.toml"), "--config missing.toml"),
    "config is a folder": (("--config", "."), "--config ."),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_one_line_and_exit_code_two(name: str, seamark: Any, tmp_path: Path) -> None:
    """It says what is allowed, and nothing was run."""
    options, part = WRONG[name]

    assert_one_line(seamark("run", "--data", "train.txt:test.txt", *QUICK, *options), part)
    assert not list(tmp_path.rglob("cells/*"))


BAD_CONFIGS = {
    "not toml": "rounds = ",
    "not text": "\udcff",
    "unknown": "round = 10",
    "text for a number": 'rounds = "many"',
    "a fraction of a round": "rounds = 10.5",
    "a number for text": "data = 5",
    "truth for a number": "seeds = true",
    "text for a floor": 'floor = "low"',
    "a folder that is a number": "out = 5",
    "jobs": 'jobs = "two"',
    "set is no table": "set = 3",
    "a method is no table": "[set]\nsea = 5",
    "a list for a number": "delta = [0.1]",
    "list of numbers": "methods = [1, 2]",
    "a table that belongs below set": "[sea]\nlr = 0.5",
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_bad_config_is_one_line_and_exit_code_two(name: str, seamark: Any, tmp_path: Path) -> None:
    """Broken TOML, unknown options and values of the wrong type, with the name of the file."""
    (tmp_path / "bad.toml").write_bytes(BAD_CONFIGS[name].encode("utf-8", "surrogateescape"))

    assert_one_line(seamark("run", "--config", "bad.toml", "--data", "train.txt:test.txt", "-q"), "--config bad.toml")


def test_the_table_of_a_method_at_the_wrong_place_is_told_the_right_one(seamark: Any, tmp_path: Path) -> None:
    """[ips] is what one writes first."""
    (tmp_path / "c.toml").write_text("rounds = 10\n[ips]\nlr = 0.5\n")

    assert_one_line(seamark("run", "--config", "c.toml"), "unknown ips", "a table such as [set.ips].")


def test_help_shows_defaults_methods_and_brackets(seamark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What help says is what a run does. Caught: [...] taken for markup, a method or a default that is not told."""
    monkeypatch.setenv("COLUMNS", "100")
    told = {name: " ".join(seamark(name, "--help").out.replace("│", " ").split()) for name in ("run", "plan")}

    assert "same options and [set.METHOD] tables" in told["run"]
    for value in (v for v in DEFAULTS.values() if v is not None):
        assert f"[default: {value}]" in told["run"]
    assert "mixed in [default: 0.1]" in told["plan"]
    assert "prefers another action [default: a guess]" in told["plan"]

    ours, _, ranking = METHODS_HELP.partition(": ")[2].partition("; ranking: ")
    assert set(ours.split(", ")) == set(methods.METHODS)
    assert set(ranking.split(", ")) == set(ranking_methods.METHODS)
    for name, default in TASKS["classification"].defaults.items():
        assert default is None or OF_TASK[name].startswith(default)
    for name, default in TASKS["ranking"].defaults.items():
        assert OF_TASK[name].endswith(default)
    assert OF_TASK["floor"].startswith(str(RunConfig().floor_used))


def test_the_command_line_wins_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    """Option by option, dashes or underscores; overrides per method and key."""
    config = tmp_path / "c.toml"
    config.write_text(
        'methods = ["sea", "ips"]\nrounds = 50\nseeds = 2\nfirst-seed = 7\nfloor = 0\n'
        "[set.sea]\nlr = 0.5\ntau = 0.1\n[set.ips]\nlr = 0.25\n"
    )
    options, overrides = settle({"rounds": 99, "seeds": None}, config, ["sea.lr=0.75"])

    assert (options["rounds"], options["seeds"], options["first_seed"], options["delta"]) == (99, 2, 7, 0.05)
    assert options["methods"] == ["sea", "ips"]
    assert options["floor"] == 0
    assert overrides == {"sea": {"lr": "0.75", "tau": 0.1}, "ips": {"lr": 0.25}}


def test_a_run_from_a_file_is_the_run_from_flags(seamark: Any, tmp_path: Path) -> None:
    """The same cells, by id."""
    (tmp_path / "c.toml").write_text(
        'data = "train.txt:test.txt"\nmethods = ["sea", "ips"]\nrounds = 120\nseeds = 1\nfloor = 0.3\n'
        "jobs = 1\n[set.sea]\nlr = 0.5\n"
    )
    one = seamark("run", "--config", "c.toml", "--out", "one", "-q")
    two = seamark("run", "--data", "train.txt:test.txt", *QUICK, "--set", "sea.lr=0.5", "--out", "two")
    cells = [{p.name for p in (tmp_path / out / "cells").iterdir()} for out in ("one", "two")]

    assert (one.code, two.code) == (0, 0), (one, two)
    assert cells[0] == cells[1]
    assert len(cells[0]) == 2


def test_a_failed_cell_ends_with_one(seamark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are done, outputs are written, and stderr has one line per failure."""

    broken = Raising.factory(RuntimeError("singular"))
    monkeypatch.setitem(methods.METHODS, "ips", replace(methods.METHODS["ips"], learner=broken))
    ended = seamark("run", "--data", "train.txt:test.txt", *QUICK, "--out", "out")

    assert ended.code == 1
    assert ended.err == "seamark: ips, seed 4200 failed: RuntimeError: singular\n"
    assert (tmp_path / "out" / "report.html").exists()
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 1


def test_a_diverged_learner_fails_its_own_cell_only(seamark: Any, tmp_path: Path) -> None:
    """Exit code 1 and one line that names the option; the other methods are written. Caught: keep() outside the try."""
    ended = seamark(
        "run", "--data", "train.txt:test.txt", *QUICK[:4], "--floor", "0.3", "--jobs", "1", "-q", "--out", "out",
        "--methods", "epsilon-greedy,ips,sea", "--set", "epsilon-greedy.lr=1e200", "--set", "sea.lr=1e308",
    )  # fmt: skip

    assert ended.code == 1
    lines = ended.err.splitlines()
    assert len(lines) == 2
    for line, method, lr in zip(lines, ("epsilon-greedy", "sea"), ("1e+200", "1e+308")):
        assert line.startswith(
            f"seamark: {method}, seed 4200 failed: FloatingPointError: weights are not finite after t="
        )
        assert line.endswith(f"; lower --set {method}.lr ({lr} here).")
    assert len(list((tmp_path / "out" / "cells").iterdir())) == 1


def test_an_interruption_ends_with_one_and_says_how_to_go_on(
    seamark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with what is done and what resumes."""

    interrupted = Raising.factory(KeyboardInterrupt())
    monkeypatch.setitem(methods.METHODS, "ips", replace(methods.METHODS["ips"], learner=interrupted))
    ended = seamark("run", "--data", "train.txt:test.txt", *QUICK, "--out", "out")

    assert ended.code == 1
    assert ended.err == "seamark: interrupted with 1 of 2 cells done; the same command with --out out resumes.\n"


@pytest.mark.parametrize("command", [("run",), ("bench", "classification")])
def test_an_interruption_while_loading_is_one_line_and_exit_code_130(
    command: tuple[str, ...], seamark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is there to resume."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("seamark.experiments.run.plan", interrupted)
    monkeypatch.setattr("seamark.experiments.bench.machine", interrupted)

    assert seamark(*command) == (130, "", "seamark: interrupted.\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), 2),
        (PermissionError(errno.EACCES, "Permission denied"), 2),
        (OSError("Invalid data stream"), 2),
        (ValueError("data: wrong"), 2),
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (OSError(errno.EIO, "Input/output error"), 1),
        (ConnectionResetError("reset by peer"), 1),
    ],
)
def test_what_the_system_fails_at_is_no_bad_input(
    error: Exception, code: int, seamark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line all the same."""

    def failing(*_: Any) -> Any:
        raise error

    monkeypatch.setattr("seamark.experiments.run.plan", failing)
    ended = seamark("run")

    assert (ended.code, ended.err) == (code, f"seamark: {error}\n")


def test_a_full_disk_behind_stdout_is_one_line_and_exit_code_one(tmp_path: Path) -> None:
    """What is printed is lost, and that is told once."""
    command = [sys.executable, "-c", "from seamark.cli import main; main()", "--version"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)

    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in ended.stderr


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("tune", "--data", "train.txt:test.txt"), "--out"),
        (("safety", "--worlds", "null"), "--out"),
        (("safety", "--fixed-pair"), "--out"),
        (("paper", "datasets", "--scale", "tiny"), "--out"),
        (("paper", "datasets", "--scale", "tiny"), "--export"),
        (("bench", "classification"), "--json"),
        (("bench", "ranking"), "--json"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_run(command: tuple[str, ...], option: str, seamark: Any) -> None:
    """Told before the work, with the option. Caught: hours of work, then an error."""
    for place in ("train.txt", "train.txt/below") if option != "--json" else (".", "train.txt/below"):
        assert_one_line(seamark(*command, option, place), f"{option} {place}: cannot be written")


def test_asking_whether_a_file_can_be_written_leaves_it_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("[]")
    for name in ("old.json", "below/new.json"):
        require_writable_file(tmp_path / name, "--json")

    assert (tmp_path / "old.json").read_text() == "[]"
    assert list((tmp_path / "below").iterdir()) == []


def test_a_skip_for_size_is_listed_and_ends_with_zero(seamark: Any, tmp_path: Path) -> None:
    """On stderr and in the summary; nothing but skips is bad input."""
    (tmp_path / "wide.txt").write_text(TRAIN.replace(" 3:1", " 3:1 90000:1"))
    options = ("--rounds", "20", "--seeds", "1", "--floor", "0.3", "--jobs", "1", "-q", "--out", "out")
    ended = seamark("run", "--data", "wide.txt:test.txt", *options, "--methods", "sea,linucb")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))

    assert ended.code == 0, ended
    assert "skipped: linucb keeps a 90,000 x 90,000 matrix" in ended.err
    assert [s["method"] for s in summary["skipped"]] == ["linucb"]
    alone = seamark("run", "--data", "wide.txt:test.txt", *options, "--methods", "linucb")
    assert alone.code == 2
    assert alone.err.endswith("seamark: nothing left to run.\n")


def test_the_installed_command_keeps_its_exit_codes(tmp_path: Path) -> None:
    """In a process of its own: 2 and one line for bad input, 0 and the version."""
    command = [sys.executable, "-c", "from seamark.cli import main; main()"]
    bad = subprocess.run(
        [*command, "run", "--methods", "seaa"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert_one_line(Ended(bad.returncode, bad.stdout, bad.stderr), "Did you mean sea?")
    assert version.returncode == 0
    assert version.stdout.startswith("seamark ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--rounds", "1e5x"), "'1e5x' is not a whole number, such as 100000 or 1e5"),
        (("run", "--bogus"), "No such option: --bogus"), (("runn",), "Did you mean 'run'?"),
        (("run", "--rounds"), "requires an argument"), (("plan",), "Missing option '--lift'"),
    ],
)  # fmt: skip
def test_what_cannot_be_parsed_is_one_line_too(seamark: Any, arguments: tuple[str, ...], said: str) -> None:
    """With the command whose help says more; no box, no usage text."""
    assert_one_line(seamark(*arguments), said, "--help.")


def test_counts_are_read_as_people_write_them(seamark: Any, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("rounds = 1.2e2\n")
    ended = seamark("run", "--data", "train.txt:test.txt", *QUICK, "--rounds", "1.2e2", "--out", "flag")
    cells = [json.loads(p.read_text())["rounds"] for p in (tmp_path / "flag" / "cells").iterdir()]

    assert ended.code == 0, ended
    assert cells == [120, 120]
    assert settle({}, tmp_path / "run.toml", [])[0]["rounds"] == 120


def test_learner_is_short_for_an_option_of_seamark(seamark: Any, tmp_path: Path) -> None:
    options = ("--data", "train.txt:test.txt", "--rounds", "120", "--seeds", "1", "--methods", "seamark", "--jobs", "1")
    ended = seamark("run", *options, "--learner", "direct", "--out", "out", "-q")
    (cell,) = ((json.loads(p.read_text())) for p in (tmp_path / "out" / "cells").iterdir())

    assert ended.code == 0, ended
    assert cell["config"]["learner"] == "direct"
    assert_one_line(seamark("run", *options, "--learner", "foo"), "must be portfolio, direct or ips")


def test_options_of_a_method_that_does_not_run_are_noted(seamark: Any) -> None:
    ended = seamark("run", "--data", "train.txt:test.txt", *QUICK[:-1], "--set", "linucb.alpha=2", "--out", "out")

    assert ended.code == 0, ended
    assert "note: --set linucb.alpha=2 changes nothing: the method is not run" in ended.err


def test_folders_of_their_own_for_runs_that_start_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two in one second shared a folder, and one report took the other's place. Nothing is made for bad input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "20200101-000000")
    folders = [default_folder().name for _ in range(3)]

    assert folders == ["20200101-000000", "20200101-000000-2", "20200101-000000-3"]
