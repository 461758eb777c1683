"""Ranking sets by name and from files: contracts, the cache, and one line for everything that can be wrong."""

from __future__ import annotations

import bz2
import gzip
import itertools
import math
import mmap
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seamark.worlds import letor_text
from seamark.worlds.files import DataError
from seamark.worlds.letor import load
from seamark.worlds.letor_catalogue import RANKING_CATALOGUE
from seamark.worlds.queries import Queries, RankingData, document_hashes, mix64

REAL_DATA = os.environ.get("SEAMARK_DATA")
TRAIN = "2 qid:7 1:0.5 4:2\n0 qid:7 2:-1 # docid = 3\n4 qid:3 1:1 2:1 3:1\n"
TEST = "1 qid:9 6:1\n0 qid:9\n"

needs_data = pytest.mark.skipif(not REAL_DATA, reason="SEAMARK_DATA is not set")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SEAMARK_DATA", raising=False)


def written(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def pair(folder: Path, train: str | bytes = TRAIN, test: str | bytes = TEST) -> str:
    return f"{written(folder / 'train.txt', train)}:{written(folder / 'test.txt', test)}"


def is_mapped(array: np.ndarray) -> bool:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


def assert_contract(data: RankingData) -> None:
    for part in data.parts().values():
        assert part.features.dtype == np.float32
        assert part.features.flags.c_contiguous
        assert part.features.shape == (part.n_documents, data.n_features)
        assert part.offsets.dtype == part.grades.dtype == part.qids.dtype == np.int64
        assert part.doc_hash.dtype == np.uint64
        for array in (part.features, part.offsets, part.grades, part.qids, part.doc_hash):
            assert type(array) is np.ndarray
            assert not array.flags.writeable
        assert np.unique(part.qids).size == len(part)
        for start, stop in zip(part.offsets[:-1], part.offsets[1:]):
            assert np.unique(part.doc_hash[start:stop]).size == stop - start
        assert np.isfinite(part.features).all()


# Files


def test_rows_become_queries(tmp_path: Path) -> None:
    data = load(pair(tmp_path), normalise=False)

    assert_contract(data)
    assert data.n_features == 6
    assert data.max_grade == 4
    np.testing.assert_array_equal(data.train.qids, [7, 3])
    np.testing.assert_array_equal(data.train.offsets, [0, 2, 3])
    np.testing.assert_array_equal(data.train.grades, [2, 0, 4])
    expected = [[0.5, 0, 0, 2, 0, 0], [0, -1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]]
    np.testing.assert_array_equal(data.train.features, np.float32(expected))
    np.testing.assert_array_equal(data.test.features, np.float32([[0, 0, 0, 0, 0, 1], [0] * 6]))
    assert "features as in the files" in data.notes


def test_features_are_scaled_within_each_query_unless_told_otherwise(tmp_path: Path) -> None:
    text = "0 qid:1 1:2 2:5\n1 qid:1 1:4 2:5\n1 qid:1 1:3\n2 qid:2 1:7\n"

    data = load(pair(tmp_path, text, text.replace("qid:", "qid:1")))

    np.testing.assert_array_equal(data.train.features, np.float32([[0, 1], [1, 1], [0.5, 0], [0, 0]]))
    assert "features min-max normalised per query" in data.notes


def test_values_at_the_end_of_the_range_are_scaled_and_refused_raw(tmp_path: Path) -> None:
    """Istella marks missing values with the largest double; the span of a feature must not overflow."""
    text = "0 qid:1 1:-1.79769313486e+308\n1 qid:1 1:1.79769313486e+308\n0 qid:1 1:0\n"
    spec = pair(tmp_path, text, text.replace("qid:1", "qid:2"))

    np.testing.assert_array_equal(load(spec).train.features[:, 0], np.float32([0, 1, 0.5]))
    with pytest.raises(DataError, match=r"train\.txt: line 1: the value of feature 1 is -1\.79769e\+308, too large"):
        load(spec, normalise=False)


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_packed_files_read_like_plain_ones(tmp_path: Path, ending: str, pack) -> None:
    train = written(tmp_path / f"a.txt{ending}", pack(TRAIN.encode()))
    test = written(tmp_path / f"b.txt{ending}", pack(TEST.encode()))

    data = load(f"{train}:{test}", normalise=False)

    np.testing.assert_array_equal(data.train.features[0], np.float32([0.5, 0, 0, 2, 0, 0]))


def test_a_query_of_one_document_or_without_relevant_ones_is_fine(tmp_path: Path) -> None:
    data = load(pair(tmp_path, "0 qid:1 1:1\n0 qid:2 1:1\n0 qid:2 1:2\n", "1 qid:3 1:1\n"))

    assert data.max_grade == 1
    np.testing.assert_array_equal(data.train.lengths, [1, 2])


def test_a_fifth_of_the_queries_is_held_out_by_their_qid_alone(tmp_path: Path) -> None:
    qids = range(1, 201)
    rows = {qid: f"1 qid:{qid} 1:{qid}\n0 qid:{qid} 1:1\n" for qid in qids}
    forth = written(tmp_path / "forth.txt", "".join(rows[qid] for qid in qids))
    back = written(tmp_path / "back.txt", "".join(rows[qid] for qid in reversed(qids)))

    one, other = load(str(forth)), load(str(back))

    assert 20 <= len(one.test) <= 60
    assert len(one.train) + len(one.test) == 200
    assert set(one.test.qids) == set(other.test.qids)
    assert any("held out" in note and f"({len(one.test)} of 200)" in note for note in one.notes)


def test_grades_up_to_two_and_shared_qids_are_declared(tmp_path: Path) -> None:
    text = "2 qid:1 1:1\n1 qid:2 1:1\n"

    data = load(pair(tmp_path, text, text))

    assert data.max_grade == 2
    assert any("0, 2, 4" in note for note in data.notes)
    assert "2 qids are in both train and test" in data.notes


def test_document_hashes_do_not_depend_on_other_queries(tmp_path: Path) -> None:
    alone = document_hashes(np.array([5]), np.array([0, 3]))
    among = document_hashes(np.array([8, 5, 2]), np.array([0, 4, 7, 9]))

    np.testing.assert_array_equal(among[4:7], alone)
    assert np.unique(among).size == 9
    assert mix64(np.array([0], dtype=np.uint64))[0] == 0xE220A8397B1DCDAF  # SplitMix64, seed 0, first output


def test_take_copies_whole_queries(tmp_path: Path) -> None:
    train = load(pair(tmp_path), normalise=False).train

    taken = train.take(np.array([1, 0]))

    np.testing.assert_array_equal(taken.qids, [3, 7])
    np.testing.assert_array_equal(taken.offsets, [0, 1, 3])
    np.testing.assert_array_equal(taken.features, train.features[[2, 0, 1]])
    np.testing.assert_array_equal(taken.doc_hash, train.doc_hash[[2, 0, 1]])
    np.testing.assert_array_equal(train.query_of, [0, 0, 1])


# What is wrong

FAULTS = {
    "2 1:0.5": "qid is missing after the grade",
    "2": "qid is missing after the grade",
    "2 qid:x 1:1": "'qid:x' is not a qid",
    "2 qid:1.5 1:1": "'qid:1.5' is not a qid",
    "2 qid: 1:1": "'qid:' is not a qid",
    "1.5 qid:8 1:1": "grade '1.5' is not a whole number in 0..4",
    "5 qid:8 1:1": "grade '5' is not a whole number in 0..4",
    "-1 qid:8 1:1": "grade '-1' is not a whole number in 0..4",
    "qid:8 1:1": "grade 'qid:8' is not a whole number in 0..4",
    "nan qid:8 1:1": "grade 'nan' is not a whole number",
    "1 qid:8 0:1": "feature index 0 in '0:1'; number the features from 1",
    "1 qid:8 2:1 1:1": "feature index 1 follows 2",
    "1 qid:8 2:1 2:1": "feature index 2 follows 2",
    "1 qid:8 100001:1": "feature index 100001 is too large",
    "1 qid:8 -2:1": "'-2:1' is not a pair",
    "1 qid:8 2": "'2' is not a pair",
    "1 qid:8 2:": "'2:' is not a pair",
    "1 qid:8 2: 3:1": "'2:' is not a pair",
    "1 qid:8 2:nan": "the value in '2:nan' is not finite",
    "1 qid:8 2:-inf": "the value in '2:-inf' is not finite",
    "1 qid:8 2:1e999": "the value in '2:1e999' is not finite",
    "1 qid:8 2:1_0": "the value in '2:1_0' is not a number",
    "1 qid:8 2:0x1": "the value in '2:0x1' is not a number",
    "1 qid:8 2:1.2.3": "the value in '2:1.2.3' is not a number",
    "1 qid:8 2:.": "the value in '2:.' is not a number",
    "1 qid:8 2:\x00": "is not a number",
    "3 qid:7 1:1": "qid 7 again, after other queries",
}


@pytest.mark.parametrize("row", FAULTS)
def test_a_faulty_row_is_named_by_file_and_line(tmp_path: Path, row: str) -> None:
    text = f"# a comment\n\n{TRAIN}{row}\n0 qid:99 1:1\n"

    with pytest.raises(DataError) as caught:
        load(pair(tmp_path, text))

    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'train.txt'}: line 6: ")
    assert FAULTS[row] in message
    assert "\n" not in message


def test_the_first_fault_is_named_and_lines_are_counted_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letor_text, "_BLOCK", 64)
    monkeypatch.setattr(letor_text, "_PIECE", 16)
    sound = "".join(f"0 qid:{i} 1:{i}\n" for i in range(1000))

    with pytest.raises(DataError, match=r": line 1001: the value in '1:bad' is not a number"):
        load(pair(tmp_path, sound + "1 qid:5000 1:bad\n9 qid:5001 1:1\n"))
    with pytest.raises(DataError, match=r": line 1002: qid 17 again"):
        load(pair(tmp_path, sound + "1 qid:5000 1:1\n1 qid:17 1:1\n"))


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_a_file_without_rows_is_empty(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"train\.txt: empty, no rows; expected rows like"):
        load(pair(tmp_path, text))


def test_a_file_without_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row has a feature"):
        load(pair(tmp_path, "1 qid:1\n"))


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_cut_off_file_is_refused(tmp_path: Path, ending: str, pack) -> None:
    rng = np.random.default_rng(1)
    text = "".join(f"1 qid:{i} 1:{x}\n" for i, x in enumerate(rng.random(20_000)))
    path = written(tmp_path / f"a.txt{ending}", pack(text.encode())[:-1000])

    with pytest.raises(DataError, match=rf"a\.txt\{ending}: line \d+: cut off or damaged"):
        load(str(path))


def test_a_file_that_is_not_packed_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.txt\.gz: line 1: cut off or damaged"):
        load(str(written(tmp_path / "a.txt.gz", TRAIN)))


def test_missing_files_and_unknown_names_are_said_in_one_line(tmp_path: Path) -> None:
    train = written(tmp_path / "train.txt", TRAIN)

    for spec, message in {
        str(tmp_path / "no.txt"): "no such file",
        f"{train}:{tmp_path / 'no.txt'}": r"no such file: .*no\.txt; give LETOR files as TRAIN or TRAIN:TEST",
        str(tmp_path): "is a folder",
        "mslr10": "not a known ranking set; did you mean mslr10k",
        "mslr10k:fold6": "mslr10k has folds 1..5",
        "yahoo:fold1": "yahoo has no folds",
        "letor-synthetic:huge": "grade shares 'huge' are not known",
    }.items():
        with pytest.raises(DataError, match=message) as caught:
            load(spec)
        assert "\n" not in str(caught.value)


def test_two_queries_that_fall_on_one_side_cannot_be_held_out(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"too few queries \(1\) to hold a fifth out"):
        load(str(written(tmp_path / "a.txt", "1 qid:1 1:1\n")))


def test_queries_and_sets_check_their_shapes() -> None:
    def queries(**changes: object) -> Queries:
        offsets = np.array([0, 1, 3])
        arrays = {
            "features": np.zeros((3, 2), np.float32),
            "offsets": offsets,
            "grades": np.array([0, 1, 4]),
            "qids": np.array([1, 2]),
            "doc_hash": document_hashes(np.array([1, 2]), offsets),
        }
        return Queries(**{**arrays, **changes})  # type: ignore[arg-type]

    for changes, message in [
        ({"features": np.zeros((2, 2), np.float32)}, "must have one row for each of the 3 grades"),
        ({"features": np.zeros((3, 2))}, "must be C-ordered float32"),
        ({"features": np.zeros((2, 3), np.float32).T}, "must be C-ordered float32"),
        ({"offsets": np.array([0, 1, 2])}, "offsets must run from 0 to 3"),
        ({"offsets": np.array([0, 3])}, "one entry more than qids"),
        ({"offsets": np.array([0, 3, 3])}, "at least one document"),
        ({"grades": np.array([0, 1, 5])}, r"grades must be in 0\.\.4"),
    ]:
        with pytest.raises(ValueError, match=message):
            queries(**changes)
    part = queries()
    with pytest.raises(ValueError, match="must have 3"):
        RankingData("x", part, part, 3, 4, "")
    with pytest.raises(ValueError, match="grades above 2"):
        RankingData("x", part, part, 2, 2, "")


# The cache


def test_the_second_load_maps_the_kept_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = pair(tmp_path)
    first = load(spec)
    monkeypatch.setattr(letor_text, "parse", None)  # would fail

    second = load(spec)

    assert is_mapped(first.test.features)
    assert is_mapped(second.test.features)
    assert second.sha256 == first.sha256
    assert second.notes == first.notes
    for one, other in zip(first.parts().values(), second.parts().values()):
        for name in ("features", "offsets", "grades", "qids", "doc_hash"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_the_cache_is_keyed_by_content_and_form(tmp_path: Path) -> None:
    spec = pair(tmp_path)
    raw = load(spec, normalise=False)

    scaled = load(spec)
    changed = load(pair(tmp_path, TRAIN.replace("4:2", "4:3")), normalise=False)

    assert raw.train.features[0, 3] == 2
    assert scaled.train.features[0, 3] == 1
    assert changed.train.features[0, 3] == 3
    assert changed.sha256 != raw.sha256 == scaled.sha256
    kept = sorted(path.name for path in (tmp_path / "cache" / "seamark" / "letor").iterdir())
    assert len(kept) == 5
    assert all(re.fullmatch(r"[0-9a-f]{64}-(raw|normalised)-v\d+", name) for name in kept)


@pytest.mark.parametrize("damage", ["cut", "garbage", "gone", "grades"])
def test_a_damaged_cache_is_parsed_again_and_replaced(tmp_path: Path, damage: str) -> None:
    spec = pair(tmp_path)
    features = np.array(load(spec).train.features)
    for folder in (tmp_path / "cache" / "seamark" / "letor").iterdir():
        kept = folder / "features.npy"
        if damage == "cut":
            kept.write_bytes(kept.read_bytes()[:-3])
        elif damage == "garbage":
            kept.write_bytes(b"not an array")
        elif damage == "gone":
            kept.unlink()
        else:
            np.save(folder / "grades.npy", np.load(folder / "grades.npy") + 9)

    again = load(spec)

    np.testing.assert_array_equal(again.train.features, features)
    assert is_mapped(load(spec).test.features)
    assert load(spec).max_grade == 4


def test_without_a_cache_the_file_is_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = pair(tmp_path)
    kept = load(spec)
    monkeypatch.setenv("XDG_CACHE_HOME", str(written(tmp_path / "a-file", "")))

    parsed = load(spec)

    np.testing.assert_array_equal(parsed.train.features, kept.train.features)
    assert not is_mapped(parsed.test.features)
    assert_contract(parsed)


# Sets by name

LAYOUTS = {
    "mslr10k": ("MSLR-WEB10K/Fold1", ("train.txt", "vali.txt", "test.txt")),
    "mslr10k:fold2": ("MSLR-WEB10K/Fold2", ("train.txt", "vali.txt", "test.txt")),
    "yahoo": ("", ("set1.train.txt", "set1.valid.txt", "set1.test.txt")),
    "istella-s": ("sample", ("train.txt", "vali.txt", "test.txt")),
    "mq2007": ("MQ2007/Fold1", ("train.txt", "vali.txt", "test.txt")),
    "mq2008:fold5": ("MQ2008/Fold5", ("train.txt", "vali.txt", "test.txt")),
}


@pytest.mark.parametrize("spec", LAYOUTS)
@pytest.mark.parametrize("ending", ["", ".gz", ".bz2"])
def test_named_sets_are_found_in_their_official_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, ending: str
) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}[ending]
    folder, names = LAYOUTS[spec]
    for i, name in enumerate(names):
        written(tmp_path / "data" / folder / f"{name}{ending}", pack(f"2 qid:{i} 1:{i}\n".encode()))
    monkeypatch.setenv("SEAMARK_DATA", str(tmp_path / "data"))

    data = load(spec)

    what = RANKING_CATALOGUE[spec.partition(":")[0]]
    assert_contract(data)
    assert data.name == spec
    assert data.n_features == what.n_features
    assert data.max_grade == what.max_grade
    assert [int(part.qids[0]) for part in (data.train, data.vali, data.test) if part] == [0, 1, 2]
    assert ("features min-max normalised per query" in data.notes) == what.normalise


def test_a_set_is_found_without_its_validation_part(tmp_path: Path) -> None:
    for i, side in enumerate(("train", "test")):
        written(tmp_path / "sample" / f"{side}.txt", f"2 qid:{i} 1:1\n")

    assert load("istella-s", where=tmp_path).vali is None


def test_a_missing_set_says_what_and_where_and_whom_to_ask(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load("mslr10k", where=tmp_path)

    message = str(caught.value)
    assert "train.txt, test.txt (or .gz, .bz2) not found in MSLR-WEB10K/Fold1" in message
    assert str(tmp_path) in message
    assert "ask Microsoft Research" in message
    assert "SEAMARK_DATA" in message
    assert "\n" not in message

    written(tmp_path / "MSLR-WEB10K" / "Fold1" / "train.txt", TRAIN)
    with pytest.raises(DataError, match=r"^mslr10k: test\.txt \(or"):
        load("mslr10k", where=tmp_path)


def test_the_rebuilt_mq2007_stands_in_only_where_it_is_announced(tmp_path: Path) -> None:
    for i, side in enumerate(("train", "vali", "test")):
        written(tmp_path / "mq2007_85pct" / f"{side}.txt", f"2 qid:{i} 1:1\n")

    data = load("mq2007", where=tmp_path)

    assert any(note.startswith("rebuilt, 85 % of the documents") for note in data.notes)
    assert any("train.txt: unknown checksum" in note for note in data.notes)
    with pytest.raises(DataError, match=r"not found in MQ2007/Fold1;"):
        load("mq2007:fold1", where=tmp_path)


# Real files


@needs_data
@pytest.mark.data
def test_mq2007_has_the_measured_shapes_and_grade_shares() -> None:
    data = load("mq2007", where=Path(REAL_DATA or ""))

    assert_contract(data)
    if not any("rebuilt" in note for note in data.notes):
        pytest.skip("the official folds are here; the shares below are those of the rebuilt split")
    assert not any("checksum" in note for note in data.notes)
    assert (data.n_features, data.max_grade) == (46, 2)
    expected = {
        "train": (1_016, 35_529, (0.743, 0.202, 0.055)),
        "vali": (338, 11_739, (0.750, 0.200, 0.049)),
        "test": (338, 11_867, (0.729, 0.209, 0.062)),
    }
    for side, (n_queries, n_documents, shares) in expected.items():
        part = data.parts()[side]
        assert (len(part), part.n_documents) == (n_queries, n_documents)
        np.testing.assert_allclose(np.bincount(part.grades) / n_documents, shares, atol=6e-4)
        assert part.features.min() >= 0
        assert part.features.max() <= 1


@needs_data
@pytest.mark.data
def test_the_mslr_sample_equals_what_scikit_learn_reads() -> None:
    from sklearn.datasets import load_svmlight_file

    data = load("mslr-sample", where=Path(REAL_DATA or ""), normalise=False)

    assert_contract(data)
    assert not any("checksum" in note for note in data.notes)
    assert (data.n_features, data.max_grade) == (136, 4)
    shares = {"train": (0.558, 0.292, 0.133, 0.011, 0.006), "test": (0.569, 0.288, 0.116, 0.020, 0.007)}
    for side, part in data.parts().items():
        assert (len(part), part.n_documents) == (43, 5_000)
        np.testing.assert_allclose(np.bincount(part.grades) / 5_000, shares[side], atol=6e-4)
        name = f"msn1.fold1.{side}.5k.txt.gz"
        features, grades, qids = load_svmlight_file(
            str(Path(REAL_DATA or "") / "mslr_web10k_fold1_5k" / name), query_id=True
        )
        np.testing.assert_array_equal(part.features, features.toarray().astype(np.float32))
        np.testing.assert_array_equal(part.grades, grades)
        np.testing.assert_array_equal(part.qids[part.query_of], qids)


# The parser against a slow one

DECIMAL = rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
ROW = re.compile(rb"\s*([0-9]{1,18})\s+qid:([0-9]{1,18})((?:\s+[0-9]{1,18}:" + DECIMAL + rb")*)\s*")


def slowly(text: bytes) -> tuple[list[int], list[int], list[dict[int, float]]] | None:
    """Grades, qids and features of the rows; None if anything is wrong."""
    grades, qids, features = [], [], []
    for line in text.split(b"\n"):
        content = line.split(b"#", 1)[0]
        if not content.strip():
            continue
        match = ROW.fullmatch(content)
        if not match:
            return None
        pairs = [pair.split(b":") for pair in match[3].split()]
        indices = [int(index) for index, _ in pairs]
        values = [float(value) for _, value in pairs]
        sorted_once = indices == sorted(set(indices)) and all(1 <= i <= letor_text.MAX_FEATURES for i in indices)
        if not sorted_once or int(match[1]) > 4 or not all(map(math.isfinite, values)):
            return None
        grades.append(int(match[1]))
        qids.append(int(match[2]))
        features.append(dict(zip(indices, values)))
    runs = [qid for i, qid in enumerate(qids) if i == 0 or qid != qids[i - 1]]
    if not grades or len(set(runs)) != len(runs) or not any(features):
        return None
    return grades, qids, features


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.floats(-1e30, 1e30).map(lambda x: f"{x:.6f}"),
    st.integers(-(10**20), 10**20).map(str),
    st.from_regex(r"[+-]?[0-9]{1,20}\.?[0-9]{0,25}([eE][+-]?[0-9]{1,2})?", fullmatch=True).filter(
        lambda text: abs(float(text)) < 1e38
    ),
)
spaces = st.sampled_from([" ", "  ", "\t", " \t "])
endings = st.sampled_from(["", " ", "\r", " # docid = 1 2:x", "#c"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    lines = []
    for qid in draw(st.lists(st.integers(0, 10**17), min_size=1, max_size=5, unique=True)):
        for _ in range(draw(st.integers(1, 4))):
            indices = sorted(draw(st.sets(st.integers(1, 12), max_size=5)))
            tokens = [str(draw(st.integers(0, 4))), f"qid:{qid}", *(f"{i}:{draw(numbers)}" for i in indices)]
            lines.append(draw(st.sampled_from(["", " "])) + draw(spaces).join(tokens) + draw(endings))
            lines += draw(st.sampled_from([[], [], [], [""], ["# comment"], ["  "]]))
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n"]))


def assert_same_as_slow(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    expected = slowly(text)
    if expected is None or any(abs(v) > letor_text._FLOAT32_MAX for row in expected[2] for v in row.values()):
        with pytest.raises(DataError, match=r"^[^\n]*$"):
            letor_text.parse(path, False)
        return
    grades, qids, rows = expected
    queries = letor_text.parse(path, False)
    features = np.zeros((len(grades), max(max(row, default=0) for row in rows)), np.float32)
    for i, row in enumerate(rows):
        for index, value in row.items():
            features[i, index - 1] = value
    np.testing.assert_array_equal(queries.grades, grades)
    np.testing.assert_array_equal(queries.qids[queries.query_of], qids)
    np.testing.assert_array_equal(queries.features, features)


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(text=texts(), block=st.sampled_from([2**20, 1, 40]))
def test_sound_text_is_read_as_a_slow_parser_reads_it(tmp_path: Path, text: str, block: int) -> None:
    """Every value is the nearest 32-bit number to the nearest double, wherever the blocks are cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor_text, "_BLOCK", block)
        patch.setattr(letor_text, "_PIECE", 16)
        assert slowly(text.encode()) is not None or not re.search(r"[0-9]:[-+0-9.]", text.split("#")[0])
        assert_same_as_slow(tmp_path / "fuzz.txt", text.encode())


@FUZZ
@given(text=texts(), at=st.integers(0, 10_000), by=st.binary(max_size=3), cut=st.integers(0, 3))
def test_damaged_text_is_refused_exactly_where_a_slow_parser_refuses(
    tmp_path: Path, text: str, at: int, by: bytes, cut: int
) -> None:
    raw = text.encode()
    at %= len(raw) + 1

    assert_same_as_slow(tmp_path / "fuzz.txt", raw[:at] + by + raw[at + cut :])


def test_every_value_is_the_nearest_double() -> None:
    """Caught: powers of ten and mantissas beyond those that one exact operation can handle."""
    rng = np.random.default_rng(6)
    texts = ["0.000000000000000000000001", "0.00000000000000000000001234", "9007199254740993", "900719925474099.3"]
    texts += ["123456789012345678", "1234567890.12345678", "-.5", "+5.", "-0", "1e-300", "5e-324", "1e22", "1e23"]
    for digits, places in itertools.product(range(1, 25), range(0, 31, 3)):
        whole = "".join(rng.choice(list("0123456789"), digits))
        texts.append(f"{whole}.{'0' * places}{rng.integers(10**9)}")
        texts.append(f"0.{'0' * places}{whole}")
    pairs = " ".join(f"{i}:{text}" for i, text in enumerate(texts, 1))

    rows, n_lines = letor_text._parse_block(f"1 qid:1 {pairs}\n".encode(), Path("x"), 0)

    assert n_lines == 1
    np.testing.assert_array_equal(rows.features[0], [float(text) for text in texts])
