"""`seamark data` on ranking sets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamark.cli.data import app
from seamark.worlds import datasets, letor, letor_check
from seamark.worlds.catalogue import CATALOGUE
from seamark.worlds.fetch import fetch
from seamark.worlds.files import DataError
from seamark.worlds.letor_catalogue import RANKING_CATALOGUE, SYNTHETIC, Size

REAL_DATA = os.environ.get("SEAMARK_DATA")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that SEAMARK_DATA names; the user cache is empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SEAMARK_DATA", str(folder))
    return folder


def put(folder: Path, *files: str) -> list[Path]:
    """Files of one query with two documents each."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / file for file in files]
    for i, path in enumerate(paths):
        path.write_text(f"2 qid:{i} 1:1\n0 qid:{i} 1:2\n", "utf-8")
    return paths


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def line_of(text: str, start: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith(start))
    return line


# list


def test_the_list_shows_the_sets_of_both_tasks(data: Path) -> None:
    put(data / "MQ2008/Fold1", "train.txt", "test.txt")
    put(data / "mq2007_85pct", "train.txt", "vali.txt", "test.txt")

    code, out, err = run("list")

    assert (code, err) == (0, "")
    assert all(line_of(out, f"{name} ") for name in (*CATALOGUE, *RANKING_CATALOGUE, SYNTHETIC))
    found = line_of(out, "mq2008 ")
    assert str(data / "MQ2008/Fold1") in found
    assert found.rstrip().endswith("no published checksum, missing")  # the validation part
    altered = line_of(out, "mq2007 ")
    assert "35,529" in altered  # of the rebuilt files, not of the official folds
    assert altered.rstrip().endswith("unknown checksum")
    assert line_of(out, "mslr10k ").split()[1:5] == ["6,000", "723,412", "2,000", "241,521"]
    assert line_of(out, "mslr10k ").split()[5:] == ["136", "0..4", "-", "missing"]
    assert line_of(out, SYNTHETIC).split()[-2:] == ["generated", "synthetic"]


def test_the_list_counts_the_generated_set_as_it_is_generated() -> None:
    generated = letor.load(SYNTHETIC)

    shape = line_of(run("list")[1], SYNTHETIC).split()

    assert (int(shape[1]), int(shape[3])) == (len(generated.train), len(generated.test))
    assert int(shape[2].strip("~").replace(",", "")) == pytest.approx(generated.train.n_documents, rel=0.1)


@pytest.mark.parametrize("command", ["list", "check"])
def test_a_data_folder_that_does_not_exist_is_said_in_one_line(
    command: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMARK_DATA", str(data / "nowhere"))

    code, _, err = run(command)

    assert code == 0
    assert err == f"seamark data: SEAMARK_DATA: {data}/nowhere: no such folder; nothing is found there.\n"


# path


def test_path_prints_the_files_of_a_ranking_set_and_of_its_folds(data: Path) -> None:
    first = put(data / "MQ2007/Fold1", "train.txt", "vali.txt", "test.txt")
    second = put(data / "MQ2007/Fold2", "train.txt", "test.txt")

    assert run("path", "mq2007")[:2] == (0, "".join(f"{file}\n" for file in first))
    assert run("path", "mq2007:fold2")[:2] == (0, "".join(f"{file}\n" for file in second))


def test_path_of_a_missing_ranking_set_says_whom_to_ask(data: Path) -> None:
    put(data / "MQ2007/Fold3", "train.txt")

    code, out, err = run("path", "mq2007:fold3")

    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("seamark data: mq2007:fold3: test.txt not found; its licence forbids passing it on")
    assert "ask Microsoft Research" in err
    assert run("path", SYNTHETIC)[0] == 1


@pytest.mark.parametrize("command", ["path", "check", "fetch"])
def test_unknown_names_and_folds_are_bad_input(command: str) -> None:
    for name, said in {
        "mq207": "did you mean mq2007?",
        "mq2007:fold6": "has folds 1..5",
        "mq2007:test": "has folds 1..5",
        "yahoo:fold1": "has no folds",
        f"{SYNTHETIC}:spam": "'spam' are not known",
    }.items():
        code, _, err = run(command, name)

        assert (code, err.count("\n")) == (2, 1)
        assert said in err


# check


def test_check_reads_files_without_a_known_checksum_and_counts(data: Path) -> None:
    files = put(data / "MQ2007/Fold2", "train.txt", "test.txt")

    code, out, _ = run("check", "mq2007:fold2")

    assert code == 0
    assert out.splitlines() == [
        f"mq2007:fold2: train.txt: no published checksum, 1 queries, 2 documents read  {files[0]}",
        "mq2007:fold2: vali.txt: missing",
        f"mq2007:fold2: test.txt: no published checksum, 1 queries, 2 documents read  {files[1]}",
    ]


def test_check_fails_when_there_is_less_than_published(data: Path) -> None:
    put(data / "MQ2008/Fold1", "train.txt", "test.txt")

    code, out, _ = run("check", "mq2008")

    assert code == 1
    assert "1 queries, 2 documents read, where 471 queries, 9,630 documents are published" in out


def test_check_fails_for_a_file_that_cannot_be_read(data: Path) -> None:
    put(data / "MQ2008/Fold2", "train.txt")
    (data / "MQ2008/Fold2/test.txt").write_text("spam\n", "utf-8")

    code, out, _ = run("check", "mq2008:fold2")

    assert code == 1
    assert "test.txt: line 1: grade 'spam' is not a whole number" in out


def test_check_says_what_stands_in_for_a_set_and_that_it_is_altered(data: Path) -> None:
    put(data / "mq2007_85pct", "train.txt", "vali.txt", "test.txt")

    code, out, _ = run("check")

    assert code == 1
    assert "mq2007: train.txt: unknown checksum, 1 queries, 2 documents read, where 1,016 queries" in out
    assert "mq2007: rebuilt, 85 % of the documents" in out


def test_check_knows_rebuilt_files_by_their_checksum(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = put(data / "mq2007_85pct", "train.txt", "vali.txt", "test.txt")
    (_, rebuilt) = RANKING_CATALOGUE["mq2007"].layouts
    for side, file in zip(rebuilt.files, files):
        monkeypatch.setitem(rebuilt.checksums, side, datasets.file_sha256(file))
    monkeypatch.setattr(letor_check, "read", None)  # nothing has to be read

    code, out, _ = run("check", "mq2007")

    assert code == 0
    assert f"mq2007: vali.txt: rebuilt, 338 queries, 11,739 documents  {files[1]}\n" in out


def test_check_fails_for_an_unknown_checksum_even_if_the_counts_are_right(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(data / "mq2007_85pct", "train.txt", "vali.txt", "test.txt")
    (_, rebuilt) = RANKING_CATALOGUE["mq2007"].layouts
    for side in rebuilt.files:
        monkeypatch.setitem(rebuilt.sizes, side, Size(1, 2))

    code, out, _ = run("check", "mq2007")

    assert code == 1
    assert "mq2007: test.txt: unknown checksum, 1 queries, 2 documents read  " in out


def test_check_of_a_missing_set_fails_only_when_it_is_named(data: Path) -> None:
    code, out, _ = run("check", "istella-s")

    assert code == 1
    assert "istella-s: train.txt: missing, 19,245 queries, 2,043,304 documents expected\n" in out
    assert "ask Istella" in out
    assert run("check")[0] == 0
    assert run("check", SYNTHETIC)[:2] == (0, f"{SYNTHETIC}: generated\n")
    put(data / "sample", "train.txt")
    assert run("check", "istella-s")[0] == 1


# fetch


@pytest.mark.parametrize("name", [*RANKING_CATALOGUE, "mslr10k:fold2"])
def test_what_may_not_be_passed_on_is_not_fetched(name: str, tmp_path: Path) -> None:
    """Not from a mirror either, and nothing else of the same command is begun."""
    code, out, err = run("fetch", "usps", name, "--base-url", "http://a.invalid", "--folder", str(tmp_path / "new"))

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "its licence forbids passing it on" in err
    assert RANKING_CATALOGUE[name.partition(":")[0]].ask in err
    assert "SEAMARK_DATA" in err
    assert not (tmp_path / "new").exists()
    with pytest.raises(DataError, match="its licence forbids passing it on"):
        fetch(name, tmp_path / "new", base_url="http://a.invalid")


def test_fetch_says_where_to_put_what_it_cannot_fetch() -> None:
    assert "train.txt, vali.txt, test.txt (or .gz, .bz2) into MSLR-WEB10K/Fold1..5/" in run("fetch", "mslr10k")[2]
    assert "into yahoo/" in run("fetch", "yahoo")[2]


def test_what_is_generated_needs_no_fetch() -> None:
    assert run("fetch", SYNTHETIC)[:2] == (0, f"{SYNTHETIC}: generated, nothing to fetch\n")


# The real files


@pytest.mark.skipif(not REAL_DATA, reason="SEAMARK_DATA is not set")
@pytest.mark.data
@pytest.mark.parametrize("name", ["mq2007", "mslr-sample"])
def test_the_sizes_of_real_parts_are_those_of_the_catalogue(name: str) -> None:
    where = Path(str(REAL_DATA))
    layout, _ = letor.nearest(name, where=where)

    parts = letor.load(name, where=where).parts()

    assert {side: (len(part), part.n_documents) for side, part in parts.items()} == layout.sizes
    assert {found.status for found in letor_check.check(name, where=where)} == {layout.known_as}
