"""Classification data sets, by name or from svmlight files.

Array contract: features are C-contiguous float64 of shape (rows, features), or CSR with sorted int32 indices,
float64 data and no stored zeros; labels are int64 in 0..n_actions-1. scikit-learn and SciPy are imported
where they are used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seamark.rounds import FloatArray, IntArray
from seamark.worlds.catalogue import CATALOGUE, DataFile, DataSet
from seamark.worlds.files import (
    DataError,
    FileCheck,
    did_you_mean,
    existing,
    file_sha256,
    inner_colons,
    is_path,
    looked_at,
    search_folders,
)
from seamark.worlds.names import refuse_other_task
from seamark.worlds.svmlight import SAMPLING_SEED, Table, csr, read_table

if TYPE_CHECKING:
    import scipy.sparse

__all__ = ["DataError", "FileCheck", "SupervisedData", "check", "file_sha256", "find", "find_set", "load"]

DENSE_ABOVE = 0.3  # share of non-zero features from which a set is stored dense
HELD_OUT_SHARE = 0.2
_LOOKED_AT = 4  # labels shown one by one in a note


@dataclass(frozen=True, eq=False)
class SupervisedData:
    """A classification set, ready to become a bandit: classes are actions."""

    name: str
    train_features: FloatArray | scipy.sparse.csr_matrix
    train_labels: IntArray
    test_features: FloatArray | scipy.sparse.csr_matrix
    test_labels: IntArray
    n_actions: int
    sha256: str  # of the content files' checksums; for `digits` of the arrays
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sides = (
            ("train", self.train_features, self.train_labels),
            ("test", self.test_features, self.test_labels),
        )
        for side, features, labels in sides:
            if features.shape != (labels.size, self.n_features):
                raise ValueError(
                    f"SupervisedData: {side}_features has shape {features.shape}; "
                    f"must be ({labels.size}, {self.n_features})."
                )
            if labels.size and not 0 <= labels.min() <= labels.max() < self.n_actions:
                raise ValueError(f"SupervisedData: {side}_labels must be in 0..{self.n_actions - 1}.")

    @property
    def n_features(self) -> int:
        return int(self.train_features.shape[1])


def load(spec: str, *, where: Path | None = None) -> SupervisedData:
    """The data set called `spec`: a name of the catalogue, or svmlight files as TRAIN or TRAIN:TEST.

    A named set's files are looked for in `where` alone if given, else in the folder SEAMARK_DATA and then in
    the user cache. Labels of train and test are united, sorted, and numbered from 0.
    """
    if spec == "digits":
        return _digits()
    if spec in CATALOGUE:
        return _load_named(CATALOGUE[spec], where)
    train_path, test_path = _split_spec(spec)
    train = read_table(train_path)
    if test_path is not None:
        return _assemble(spec, train, read_table(test_path), train_path)
    train, test = _hold_out(train, train_path)
    note = (
        f"no test file: a fifth of the rows, chosen by a hash of their features, are held out as test "
        f"({test.labels.size} of {train.labels.size + test.labels.size})"
    )
    return _assemble(spec, train, test, train_path, notes=(note,))


def check(name: str, *, where: Path | None = None) -> list[FileCheck]:
    """Every file of a named set with its path and status; empty for a set that ships with scikit-learn."""
    folders = search_folders(where)
    checks = []
    for file in find_set(name).files:
        path = find(file, folders)
        checks.append(FileCheck(file.name, path, file.status(file_sha256(path)) if path else "missing"))
    return checks


# Where files are


def find(file: DataFile, folders: Iterable[Path]) -> Path | None:
    """The first place a file is at: in a folder itself, in its known sub-folder, or one level below."""
    for folder in folders:
        places = [folder, *(folder / sub for sub in file.folders)]
        with contextlib.suppress(OSError):  # a folder that is not there or not ours to list holds nothing
            places += sorted(place for place in folder.iterdir() if os.path.isdir(place))
        for place in places:
            if os.path.isfile(place / file.name):
                return place / file.name
    return None


def find_set(name: str) -> DataSet:
    """The catalogue row called `name`; a DataError that lists the known names if there is none."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    refuse_other_task(name, "classification")
    raise DataError(f"{name!r} is not a known data set; {did_you_mean(name, CATALOGUE)}Known: {', '.join(CATALOGUE)}.")


def _locate(dataset: DataSet, where: Path | None) -> dict[str, Path]:
    folders = search_folders(where)
    found = {file.name: find(file, folders) for file in dataset.files}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        known = "set SEAMARK_DATA to a folder that has them"
        remedy = (
            f"run `seamark data fetch {dataset.name}`, or {known}"
            if dataset.has_address
            else f"the set has no download address: {known}"
        )
        raise DataError(f"{dataset.name}: {', '.join(missing)} not found; looked at {looked_at(folders)}; {remedy}.")
    return {name: path for name, path in found.items() if path is not None}


def _split_spec(spec: str) -> tuple[Path, Path | None]:
    if (found := existing(spec)) is not None:
        return found
    refuse_other_task(spec, "classification")
    if colons := inner_colons(spec):
        parts = (spec[: colons[0]], spec[colons[0] + 1 :])
        missing = ", ".join(part for part in parts if not os.path.exists(part))
        raise DataError(f"{spec}: no such file: {missing}; give svmlight files as TRAIN:TEST.")
    if is_path(spec):
        raise DataError(f"{spec}: no such file; give an svmlight file, plain, .bz2 or .gz.")
    find_set(spec)
    raise AssertionError("load() handles known names first")


# Sets by name


def _digits() -> SupervisedData:
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    features = np.ascontiguousarray(pixels / 8 - 1, dtype=np.float64)
    labels = digits.astype(np.int64)
    order = np.random.default_rng(0).permutation(labels.size)
    n_train = labels.size * 4 // 5
    train, test = order[:n_train], order[n_train:]
    sha256 = hashlib.sha256(features.astype("<f8").tobytes() + labels.astype("<i8").tobytes()).hexdigest()
    return SupervisedData(
        name="digits",
        train_features=features[train],
        train_labels=labels[train],
        test_features=features[test],
        test_labels=labels[test],
        n_actions=10,
        sha256=sha256,
        notes=CATALOGUE["digits"].notes,
    )


def _load_named(dataset: DataSet, where: Path | None) -> SupervisedData:
    paths = _locate(dataset, where)
    assert dataset.train is not None
    assert dataset.test is not None  # every set with files has both
    train = read_table(paths[dataset.train.name])
    test = read_table(paths[dataset.test.name], share=dataset.test_share)
    notes = list(dataset.notes)
    notes += _provenance(dataset.train, train.sha256) + _provenance(dataset.test, test.sha256)
    if dataset.test_share < 1:
        notes.append(f"{dataset.test.name}: sampled at {dataset.test_share:.0%}, row by row, with seed {SAMPLING_SEED}")
    if train.labels.size != dataset.n_train:
        notes.append(f"{dataset.train.name}: {train.labels.size} rows where {dataset.n_train} are published")
    if dataset.test_share == 1 and test.labels.size != dataset.n_test:
        notes.append(f"{dataset.test.name}: {test.labels.size} rows where {dataset.n_test} are published")
    return _assemble(dataset.name, train, test, paths[dataset.train.name], notes=tuple(notes))


def _provenance(file: DataFile, sha256: str) -> list[str]:
    status = file.status(sha256)
    if status == "rebuilt":
        return [f"{file.name}: rebuilt, not an official file ({file.rebuilt_note})"]
    if status == "official":
        return []
    if file.official_sha256 is None:
        return [f"{file.name}: no published checksum to compare with"]
    return [f"{file.name}: unknown checksum; neither the official nor a known rebuilt file"]


def _assemble(name: str, train: Table, test: Table, train_path: Path, *, notes: tuple[str, ...] = ()) -> SupervisedData:
    """Train and test with one feature count and one label map."""
    present = np.unique(train.labels)
    if present.size < 2:
        raise DataError(f"{train_path}: every row has the label {present[0]}; at least two classes are needed.")
    n_features = max(train.features.shape[1], test.features.shape[1])
    values = np.union1d(train.label_values, test.label_values)
    is_dense = train.features.nnz > DENSE_ABOVE * train.labels.size * n_features
    unseen = ~np.isin(test.labels, present)
    if unseen.any():
        never = ", ".join(map(str, np.unique(test.labels[unseen])))
        notes += (f"test labels never seen in train: {never} ({np.count_nonzero(unseen)} rows)",)
    return SupervisedData(
        name=name,
        train_features=_shaped(train.features, n_features, is_dense),
        train_labels=np.searchsorted(values, train.labels).astype(np.int64),
        test_features=_shaped(test.features, n_features, is_dense),
        test_labels=np.searchsorted(values, test.labels).astype(np.int64),
        n_actions=int(values.size),
        sha256=hashlib.sha256(f"test {test.sha256}\ntrain {train.sha256}\n".encode()).hexdigest(),
        notes=(*notes, _label_note(values)),
    )


def _label_note(values: IntArray) -> str:
    first, last = int(values[0]), int(values[-1])
    if last - first == values.size - 1:
        shown = f"{first}..{last}"
    elif values.size <= _LOOKED_AT:
        shown = ", ".join(map(str, values))
    else:
        shown = f"{first}, {values[1]}, ..., {last} in increasing order"
    return f"labels {shown} are actions 0..{values.size - 1}"


# Any: a csr_matrix, for which SciPy has no types
def _shaped(features: Any, n_features: int, is_dense: bool) -> Any:
    wide = csr(features.data, features.indices, features.indptr, n_features)
    return np.ascontiguousarray(wide.toarray()) if is_dense else wide


def _hold_out(table: Table, path: Path) -> tuple[Table, Table]:
    """Train and test rows; which is which depends on a row's features only, never on its position."""
    data = table.features.data.astype("<f8", copy=False)
    indices = table.features.indices.astype("<i4", copy=False)
    indptr = table.features.indptr
    is_held_out = np.empty(table.labels.size, dtype=bool)
    for row in range(table.labels.size):
        start, stop = indptr[row], indptr[row + 1]
        digest = hashlib.blake2b(indices[start:stop].tobytes(), digest_size=8)
        digest.update(data[start:stop].tobytes())
        is_held_out[row] = int.from_bytes(digest.digest(), "little") < HELD_OUT_SHARE * 2**64
    if is_held_out.all() or not is_held_out.any():
        raise DataError(f"{path}: too few different rows to hold a fifth out; give a test file, TRAIN:TEST.")

    def part(rows: NDArray[np.bool_]) -> Table:
        return Table(table.features[rows], table.labels[rows], table.label_values, table.sha256)

    return part(~is_held_out), part(is_held_out)
