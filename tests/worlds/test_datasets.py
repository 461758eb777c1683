"""Data sets by name and from files: contracts, and one line for everything that can be wrong."""

from __future__ import annotations

import bz2
import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

from seamark.cli.data import app
from seamark.worlds import files, svmlight
from seamark.worlds.catalogue import CATALOGUE, DataFile, DataSet
from seamark.worlds.datasets import DataError, SupervisedData, check, load

REAL_DATA = os.environ.get("SEAMARK_DATA")
TRAIN = "3 1:0.5 4:2\n7 2:-1\n3 1:1 2:1 3:1\n"
TEST = "5 6:1\n7 1:0.25\n"

needs_data = pytest.mark.skipif(not REAL_DATA, reason="SEAMARK_DATA is not set")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SEAMARK_DATA", raising=False)


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def dense(features: object) -> np.ndarray:
    return features.toarray() if scipy.sparse.issparse(features) else np.asarray(features)


def assert_contract(data: SupervisedData) -> None:
    for features, labels in (
        (data.train_features, data.train_labels),
        (data.test_features, data.test_labels),
    ):
        if isinstance(features, np.ndarray):
            assert features.flags["C_CONTIGUOUS"]
            assert features.dtype == np.float64
        else:
            assert isinstance(features, scipy.sparse.csr_matrix)
            assert features.data.dtype == np.float64
            assert features.indices.dtype == np.int32
            assert features.indptr.dtype == np.int32
            assert features.has_sorted_indices
            assert np.all(features.data != 0)
        assert features.shape == (labels.size, data.n_features)
        assert labels.dtype == np.int64
        assert 0 <= labels.min() <= labels.max() < data.n_actions


def assert_same(one: SupervisedData, other: SupervisedData) -> None:
    for features, others in (
        (one.train_features, other.train_features),
        (one.test_features, other.test_features),
    ):
        assert type(features) is type(others)
        if isinstance(features, np.ndarray):
            assert np.array_equal(features, others)
        else:
            assert features.shape == others.shape
            assert (features != others).nnz == 0
    assert np.array_equal(one.train_labels, other.train_labels)
    assert np.array_equal(one.test_labels, other.test_labels)
    assert (one.n_actions, one.sha256, one.notes) == (other.n_actions, other.sha256, other.notes)


def refusal(spec: object) -> str:
    """The message of a refusal, checked to be one line."""
    with pytest.raises(DataError) as refused:
        load(str(spec))
    message = str(refused.value)
    assert "\n" not in message
    return message


# Contents


def test_train_and_test_share_features_and_the_sorted_label_map(tmp_path: Path) -> None:
    """Labels {3, 7} of train and {5, 7} of test become 3 -> 0, 5 -> 1, 7 -> 2; six features in both."""
    train, test = written(tmp_path / "a", TRAIN), written(tmp_path / "b", TEST)

    data = load(f"{train}:{test}")

    assert data.train_labels.tolist() == [0, 2, 0]
    assert data.test_labels.tolist() == [1, 2]
    assert data.n_actions == 3
    assert dense(data.train_features).tolist() == [
        [0.5, 0, 0, 2, 0, 0],
        [0, -1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
    ]
    assert dense(data.test_features).tolist() == [[0, 0, 0, 0, 0, 1], [0.25, 0, 0, 0, 0, 0]]
    assert "labels 3, 5, 7 are actions 0..2" in data.notes
    assert "test labels never seen in train: 5 (1 rows)" in data.notes
    assert_contract(data)


@pytest.mark.parametrize("suffix", ["", ".bz2", ".gz"])
def test_every_compression_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    pack = {"": bytes, ".bz2": bz2.compress, ".gz": gzip.compress}[suffix]
    train = written(tmp_path / f"a{suffix}", pack(TRAIN.encode()))
    test = written(tmp_path / f"b{suffix}", pack(TEST.encode()))

    data = load(f"{train}:{test}")

    assert data.train_features.sum() == 0.5 + 2 - 1 + 3
    assert_contract(data)


@pytest.mark.parametrize(("n_filled", "is_dense"), [(3, False), (4, True)])
def test_features_are_dense_above_a_density_of_three_tenths(tmp_path: Path, n_filled: int, is_dense: bool) -> None:
    """Ten features, of which 3 (not more than 0.3) or 4 are filled; stored zeros do not count."""
    filled = " ".join(f"{i}:1" for i in range(1, n_filled + 1))
    rows = f"1 {filled} 10:0\n2 {filled} 10:0\n"
    path = written(tmp_path / "a", rows)

    data = load(f"{path}:{path}")

    assert isinstance(data.train_features, np.ndarray) == is_dense
    assert data.n_features == 10
    assert_contract(data)


def test_comments_blank_lines_query_ids_and_a_missing_last_newline_are_read_over(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "# a comment\n\n1 qid:4 2:0.5 # tail\n2 1:1")

    data = load(f"{path}:{path}")

    assert dense(data.train_features).tolist() == [[0, 0.5], [1, 0]]


def test_a_path_may_hold_a_colon(tmp_path: Path) -> None:
    train, test = written(tmp_path / "x:y" / "a", TRAIN), written(tmp_path / "b", TEST)

    assert load(f"{train}:{test}").train_labels.size == 3


def test_content_hash_tells_train_from_test(tmp_path: Path) -> None:
    one, other = written(tmp_path / "a", TRAIN), written(tmp_path / "b", "3 1:1\n7 1:2\n")

    assert load(f"{one}:{other}").sha256 == load(f"{one}:{other}").sha256
    assert load(f"{one}:{other}").sha256 != load(f"{other}:{one}").sha256


def random_rows(n_rows: int) -> list[str]:
    rng = np.random.default_rng(7)
    return [f"{rng.integers(3)} 1:{rng.normal():.6f} 2:{rng.normal():.6f}" for _ in range(n_rows)]


def test_hold_out_is_a_fifth_and_does_not_depend_on_row_order(tmp_path: Path) -> None:
    """Shuffled rows give the same two sets of rows; a share of 0.2 of 1,000 stays within six deviations."""
    rows = random_rows(1000)
    shuffled = [rows[i] for i in np.random.default_rng(8).permutation(len(rows))]
    in_order = load(str(written(tmp_path / "a", "\n".join(rows))))
    in_disorder = load(str(written(tmp_path / "b", "\n".join(shuffled))))

    def held_out(data: SupervisedData) -> set[tuple[float, ...]]:
        return set(map(tuple, dense(data.test_features).tolist()))

    assert held_out(in_order) == held_out(in_disorder)
    assert in_order.train_labels.size + in_order.test_labels.size == 1000
    assert abs(in_order.test_labels.size - 200) < 6 * np.sqrt(1000 * 0.2 * 0.8)
    assert any("a fifth of the rows" in note for note in in_order.notes)


def test_equal_rows_are_never_on_both_sides_of_the_hold_out(tmp_path: Path) -> None:
    data = load(str(written(tmp_path / "a", "\n".join(random_rows(60) * 3))))

    train = set(map(tuple, dense(data.train_features).tolist()))
    test = set(map(tuple, dense(data.test_features).tolist()))
    assert not train & test
    assert len(train) + len(test) == 60


def test_sampled_file_keeps_the_labels_of_rows_left_out(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "\n".join(f"{i} 1:{i}" for i in range(1, 401)))

    table = svmlight.read_table(path, share=0.05)

    assert 5 <= table.labels.size <= 45
    assert table.label_values.tolist() == list(range(1, 401))
    expected = np.flatnonzero(np.random.default_rng(0).random(400) < 0.05) + 1
    assert table.labels.tolist() == expected.tolist()


def test_digits_ship_with_scikit_learn_and_are_declared() -> None:
    data = load("digits")

    assert data.train_features.shape == (1437, 64)
    assert data.test_features.shape == (360, 64)
    assert data.n_actions == 10
    assert data.train_features.min() == -1
    assert data.train_features.max() == 1
    assert any("x / 8 - 1" in note for note in data.notes)
    assert any("default_rng(0)" in note for note in data.notes)
    assert check("digits") == []
    assert_same(data, load("digits"))
    assert_contract(data)


# What can be wrong


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "empty, no rows"),
        ("# only a comment\n\n", "empty, no rows"),
        ("1 1:1\n2 1:nan\n", "line 2: the value in '1:nan' is not finite"),
        ("1 1:1\n\n2 2:-inf\n", "line 3: the value in '2:-inf' is not finite"),
        ("1 1:1e999\n2 1:1\n", "line 1: the value in '1:1e999' is not finite"),
        ("1 1:1\n2 1:abc\n", "line 2: the value in '1:abc' is not a number"),
        ("1 1:1\n2 hello\n", "line 2: 'hello' is not a pair index:value"),
        ("1 1:1\n2 3:\n", "line 2: '3:' is not a pair index:value"),
        ("1 1:1\n2 1.5:3\n", "line 2: '1.5:3' is not a pair index:value"),
        ("1 1:1\n1:1 2:1\n", "line 2: the label is missing before '1:1'"),
        ("1 1:1\nspam 2:1\n", "line 2: label 'spam' is not a class"),
        ("1 1:1\n1.5 2:1\n", "line 2: label '1.5' is not a class"),
        ("1 1:1\nnan 2:1\n", "line 2: label 'nan' is not a class"),
        ("1 1:1\n1,2 2:1\n", "line 2: label '1,2' is not a class"),
        ("1 1:1\n2 0:1\n", "line 2: feature index 0 in '0:1'; number the features from 1"),
        ("1 1:1\n2 -3:1\n", "line 2: feature index -3 in '-3:1'"),
        ("1 1:1\n2 --3:1\n", "line 2: '--3:1' is not a pair index:value"),
        ("1 1:1\n2 5:1 3:1\n", "line 2: feature index 3 follows 5; sort the indices"),
        ("1 1:1\n2 5:1 5:1\n", "line 2: feature index 5 follows 5"),
        ("1 1:1\n2 2147483648:1\n", "line 2: feature index 2147483648 is too large"),
        ("1 1:1\n2 99999999999999999999:1\n", "is too large; at most 2147483647"),
        ("1\n2\n", "no row has a feature that is not 0"),
        ("4 1:1\n4 1:2\n", "every row has the label 4; at least two classes are needed"),
        ("<html>not found</html>\n", "line 1: label '<html>not' is not a class"),
        (b"\x00\xff\x00\n", "line 1: label"),
    ],
)
def test_a_faulty_file_is_named_with_its_line_and_remedy(tmp_path: Path, content: str | bytes, expected: str) -> None:
    path = written(tmp_path / "faulty.svm", content)

    message = refusal(f"{path}:{path}")

    assert message.startswith(f"{path}: ")
    assert expected in message


def test_a_file_cut_off_is_named_with_its_line(tmp_path: Path) -> None:
    rows = "\n".join(random_rows(50)).encode()
    for name, packed in (("a.bz2", bz2.compress(rows)), ("a.gz", gzip.compress(rows))):
        path = written(tmp_path / name, packed[: len(packed) // 2])

        message = refusal(path)

        assert message.startswith(f"{path}: line ")
        assert "cut off or damaged" in message
        assert "get the file again" in message


@pytest.mark.parametrize("name", ["page.bz2", "page.gz"])
def test_a_file_that_is_not_compressed_as_it_says_is_refused(tmp_path: Path, name: str) -> None:
    assert "cut off or damaged" in refusal(written(tmp_path / name, "<html></html>"))


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    train = written(tmp_path / "a", TRAIN)

    assert "no such file" in refusal(tmp_path / "none.svm")
    assert refusal(f"{train}:{tmp_path}/none.t").endswith(
        f"no such file: {tmp_path}/none.t; give svmlight files as TRAIN:TEST."
    )
    assert "is a folder" in refusal(tmp_path)
    assert "is a folder" in refusal(f"{train}:{tmp_path}")


def test_too_few_rows_to_hold_out_ask_for_a_test_file(tmp_path: Path) -> None:
    assert "give a test file, TRAIN:TEST" in refusal(written(tmp_path / "a", "1 1:1\n2 1:1\n"))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    message = refusal("usp")

    assert "did you mean usps?" in message
    assert all(name in message for name in CATALOGUE)


def test_a_missing_set_names_files_folders_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMARK_DATA", str(tmp_path / "nowhere"))
    (tmp_path / "cache/seamark/data").mkdir(parents=True)

    message = refusal("usps")

    assert "usps.bz2, usps.t.bz2 not found" in message
    assert f"looked at {tmp_path}/nowhere (no such folder), {tmp_path}/cache/seamark/data;" in message
    assert "`seamark data fetch usps`" in message


def test_a_missing_set_without_address_points_to_the_variable_only() -> None:
    message = refusal("reuters-r52")

    assert "fetch" not in message
    assert "no download address: set SEAMARK_DATA" in message


# Where files are looked for


@pytest.mark.parametrize("place", ["", "usps", "anything"])
def test_a_named_set_is_found_directly_in_its_folder_or_one_level_below(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMARK_DATA", str(tmp_path))
    written(tmp_path / place / "usps.bz2", bz2.compress(TRAIN.encode()))
    written(tmp_path / place / "usps.t.bz2", bz2.compress(TEST.encode()))

    data = load("usps")

    assert data.name == "usps"
    assert "usps.bz2: unknown checksum; neither the official nor a known rebuilt file" in data.notes
    assert "usps.bz2: 3 rows where 7291 are published" in data.notes
    assert [c.status for c in check("usps")] == ["unknown checksum", "unknown checksum"]


def test_the_variable_goes_before_the_user_cache_and_where_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMARK_DATA", str(tmp_path / "named"))
    in_cache = written(tmp_path / "cache/seamark/data/usps/usps.bz2", TRAIN)

    assert [c.path for c in check("usps")] == [in_cache, None]
    in_named = written(tmp_path / "named/usps.bz2", TRAIN)
    assert [c.path for c in check("usps")] == [in_named, None]
    assert [c.path for c in check("usps", where=tmp_path / "other")] == [None, None]


def test_check_tells_official_rebuilt_unknown_and_missing_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    official, rebuilt = written(tmp_path / "a", "1"), written(tmp_path / "b", "2")
    known = {
        files.file_sha256(official): "official",
        files.file_sha256(rebuilt): "rebuilt",
    }
    row = DataSet("tiny", 1, 1, 1, 2, DataFile("a", ("tiny",), known), DataFile("b", ("tiny",), known))
    monkeypatch.setitem(CATALOGUE, "tiny", row)

    assert [c.status for c in check("tiny", where=tmp_path)] == ["official", "rebuilt"]
    official.write_text("3")
    rebuilt.unlink()
    assert [c.status for c in check("tiny", where=tmp_path)] == ["unknown checksum", "missing"]


# The cache of parsed arrays


def test_the_second_load_uses_the_cache_and_gives_identical_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a", "\n".join(random_rows(50)))
    first = load(str(path))

    monkeypatch.setattr(svmlight, "_parse", None)  # parsing again would fail
    second = load(str(path))

    assert_same(first, second)
    assert_contract(second)
    kept = list((tmp_path / "cache/seamark/parsed").iterdir())
    assert [file.suffix for file in kept] == [".npz"]


def test_a_changed_file_is_parsed_anew(tmp_path: Path) -> None:
    path = written(tmp_path / "a", TRAIN)
    before = load(f"{path}:{path}")
    written(path, TRAIN + "9 1:1\n")

    after = load(f"{path}:{path}")

    assert (before.n_actions, after.n_actions) == (2, 3)
    assert before.sha256 != after.sha256


@pytest.mark.parametrize("damage", [b"", b"no archive", None])
def test_a_damaged_cache_is_only_parsed_again(tmp_path: Path, damage: bytes | None) -> None:
    path = written(tmp_path / "a", TRAIN)
    first = load(f"{path}:{path}")
    (kept,) = (tmp_path / "cache/seamark/parsed").iterdir()
    kept.write_bytes(kept.read_bytes()[:-200] if damage is None else damage)

    assert_same(first, load(f"{path}:{path}"))


def test_an_unwritable_cache_only_means_parsing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the cache folder should be: no user, not even root, can write below it."""
    path = written(tmp_path / "a", TRAIN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(written(tmp_path / "file", "")))

    assert_same(load(f"{path}:{path}"), load(f"{path}:{path}"))


def test_a_cache_that_fails_while_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    path = written(tmp_path / "a", TRAIN)
    monkeypatch.setattr(np, "savez", full_disk)

    assert load(f"{path}:{path}").n_actions == 2
    assert list((tmp_path / "cache/seamark/parsed").iterdir()) == []


def test_without_a_home_folder_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "relative/path")
    monkeypatch.setattr(Path, "home", homeless)

    assert files.user_cache() is None
    assert "looked at no folder" in refusal("usps")


def test_importing_the_loader_imports_neither_scipy_nor_scikit_learn() -> None:
    code = (
        "import sys, seamark.worlds.datasets, seamark.worlds.fetch, seamark.cli.data;"
        "print([m for m in ('scipy', 'sklearn') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_shapes_that_do_not_fit_are_refused() -> None:
    features, labels = np.zeros((2, 3)), np.array([0, 1])
    with pytest.raises(ValueError, match="test_features has shape"):
        SupervisedData("x", features, labels, np.zeros((2, 4)), labels, 2, "")
    with pytest.raises(ValueError, match=r"train_labels must be in 0\.\.0"):
        SupervisedData("x", features, labels, features, labels, 1, "")


# The command line


def test_the_list_shows_every_set_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMARK_DATA", str(tmp_path))
    written(tmp_path / "usps/usps.bz2", TRAIN)

    result = CliRunner().invoke(app, ["list"])

    assert result.exit_code == 0
    assert all(name in result.stdout for name in CATALOGUE)
    assert "518,571" in result.stdout
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("usps"))
    assert str(tmp_path / "usps") in line
    assert line.rstrip().endswith("unknown checksum, missing")


def test_path_prints_files_or_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMARK_DATA", str(tmp_path))
    missing = CliRunner().invoke(app, ["path", "usps"])
    files = [written(tmp_path / "usps.bz2", TRAIN), written(tmp_path / "usps.t.bz2", TEST)]

    found = CliRunner().invoke(app, ["path", "usps"])

    assert missing.exit_code == 1
    assert "seamark data fetch usps" in missing.stderr
    assert (found.exit_code, found.stdout.split()) == (0, [str(file) for file in files])
    assert CliRunner().invoke(app, ["path", "digits"]).exit_code == 1


def test_check_fails_for_altered_and_for_named_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMARK_DATA", str(tmp_path))
    assert CliRunner().invoke(app, ["check"]).exit_code == 0
    assert CliRunner().invoke(app, ["check", "digits"]).exit_code == 0
    assert CliRunner().invoke(app, ["check", "usps"]).exit_code == 1
    written(tmp_path / "usps.bz2", TRAIN)

    altered = CliRunner().invoke(app, ["check"])

    assert altered.exit_code == 1
    assert "not a file that Seamark knows" in altered.stdout


@pytest.mark.parametrize("command", ["path", "check", "fetch"])
def test_an_unknown_name_is_bad_input(command: str) -> None:
    result = CliRunner().invoke(app, [command, "usp"])

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "did you mean usps?" in result.stderr


# The real files


@needs_data
@pytest.mark.data
@pytest.mark.parametrize("name", ["usps", "news20", "news20-counts", "reuters-r52", "rcv1-dev", "rcv1-binary"])
def test_real_sets_have_their_published_shape(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMARK_DATA", str(REAL_DATA))
    row = CATALOGUE[name]

    data = load(name)

    assert (data.train_labels.size, data.test_labels.size) == (row.n_train, row.n_test)
    assert (data.n_features, data.n_actions) == (row.n_features, row.n_classes)
    assert isinstance(data.train_features, np.ndarray) == (name == "usps")
    assert {c.status for c in check(name)} <= {"official", "rebuilt"}
    assert any("rebuilt" in note for note in data.notes)
    assert_contract(data)
    assert_same(data, load(name))


@needs_data
@pytest.mark.data
def test_real_usps_is_in_range_and_declares_its_train_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMARK_DATA", str(REAL_DATA))

    data = load("usps")

    assert np.abs(dense(data.train_features)).max() <= 1
    assert "labels 1..10 are actions 0..9" in data.notes
    assert [c.status for c in check("usps")] == ["rebuilt", "official"]
