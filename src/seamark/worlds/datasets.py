"""Classification data sets, by name or from svmlight files.

Array contract: features are C-contiguous float64 of shape (rows, features), or CSR with sorted int32 indices,
float64 data and no stored zeros; labels are int64 in 0..n_actions-1. scikit-learn and SciPy are imported
where they are used.
"""

from __future__ import annotations

import bz2
import contextlib
import difflib
import gzip
import hashlib
import io
import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seamark.worlds.catalogue import CATALOGUE, DataFile, DataSet, FileStatus

if TYPE_CHECKING:
    import scipy.sparse

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

DENSE_ABOVE = 0.3  # share of non-zero features from which a set is stored dense
HELD_OUT_SHARE = 0.2
SAMPLING_SEED = 0
PARSED_FORMAT = 1  # raise when the arrays kept in the user cache change
MAX_INDEX = 2**31 - 1
_LOOKED_AT = 4  # labels shown one by one in a note


class DataError(ValueError):
    """A data set is missing, damaged or not what it should be; one line, which says what to do."""


class FileCheck(NamedTuple):
    """One file of a set: its name, where it was found, and what its checksum says of it."""

    file: str
    path: Path | None
    status: FileStatus


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


@dataclass(frozen=True, eq=False)
class _Table:
    """What one svmlight file holds; `label_values` are those of the whole file, sampled or not."""

    features: scipy.sparse.csr_matrix
    labels: IntArray
    label_values: IntArray
    sha256: str


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
    train = _read_table(train_path)
    if test_path is not None:
        return _assemble(spec, train, _read_table(test_path), train_path)
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


def user_cache() -> Path | None:
    """The folder seamark/ of the user cache (XDG_CACHE_HOME or ~/.cache), or None where there is no home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # unset, empty or relative: not valid by the XDG specification
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "seamark"


def search_folders(where: Path | None = None) -> tuple[Path, ...]:
    """The folders in which named sets are looked for, in order."""
    if where is not None:
        return (Path(where),)
    named = os.environ.get("SEAMARK_DATA")
    cache = user_cache()
    return (*((Path(named),) if named else ()), *((cache / "data",) if cache else ()))


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


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file's permissions.") from error


def find_set(name: str) -> DataSet:
    """The catalogue row called `name`; a DataError that lists the known names if there is none."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    close = difflib.get_close_matches(name, CATALOGUE, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise DataError(f"{name!r} is not a known data set; {hint}Known: {', '.join(CATALOGUE)}.")


def _locate(dataset: DataSet, where: Path | None) -> dict[str, Path]:
    folders = search_folders(where)
    found = {file.name: find(file, folders) for file in dataset.files}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        looked = ", ".join(str(f) if f.is_dir() else f"{f} (no such folder)" for f in folders) or "no folder"
        known = "set SEAMARK_DATA to a folder that has them"
        remedy = (
            f"run `seamark data fetch {dataset.name}`, or {known}"
            if dataset.has_address
            else f"the set has no download address: {known}"
        )
        raise DataError(f"{dataset.name}: {', '.join(missing)} not found; looked at {looked}; {remedy}.")
    return {name: path for name, path in found.items() if path is not None}


def _split_spec(spec: str) -> tuple[Path, Path | None]:
    if os.path.exists(spec):
        return Path(spec), None
    colons = [i for i, letter in enumerate(spec) if letter == ":" and 0 < i < len(spec) - 1]
    for i in colons:  # a path may hold a colon itself
        if os.path.exists(spec[:i]) and os.path.exists(spec[i + 1 :]):
            return Path(spec[:i]), Path(spec[i + 1 :])
    if colons:
        parts = (spec[: colons[0]], spec[colons[0] + 1 :])
        missing = ", ".join(part for part in parts if not os.path.exists(part))
        raise DataError(f"{spec}: no such file: {missing}; give svmlight files as TRAIN:TEST.")
    if "/" in spec or os.sep in spec or "." in spec:
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
    train = _read_table(paths[dataset.train.name])
    test = _read_table(paths[dataset.test.name], share=dataset.test_share)
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


def _assemble(
    name: str, train: _Table, test: _Table, train_path: Path, *, notes: tuple[str, ...] = ()
) -> SupervisedData:
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
def _csr(data: Any, indices: Any, indptr: Any, n_features: int) -> Any:
    from scipy.sparse import csr_matrix

    indices, indptr = indices.astype(np.int32, copy=False), indptr.astype(np.int32, copy=False)
    return csr_matrix((data, indices, indptr), shape=(indptr.size - 1, n_features))


def _shaped(features: Any, n_features: int, is_dense: bool) -> Any:
    wide = _csr(features.data, features.indices, features.indptr, n_features)
    return np.ascontiguousarray(wide.toarray()) if is_dense else wide


def _hold_out(table: _Table, path: Path) -> tuple[_Table, _Table]:
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

    def part(rows: NDArray[np.bool_]) -> _Table:
        return _Table(table.features[rows], table.labels[rows], table.label_values, table.sha256)

    return part(~is_held_out), part(is_held_out)


# Reading


def _read_table(path: Path, *, share: float = 1.0) -> _Table:
    """One svmlight file; its arrays are kept in the user cache when that can be written."""
    if os.path.isdir(path):
        raise DataError(f"{path}: is a folder; give an svmlight file, plain, .bz2 or .gz.")
    if not os.path.isfile(path):
        raise DataError(f"{path}: no such file; give an svmlight file, plain, .bz2 or .gz.")
    sha256 = file_sha256(path)
    cache = user_cache()
    sampled = "" if share == 1 else f"-{share:g}-{SAMPLING_SEED}"
    kept = cache / "parsed" / f"{sha256}{sampled}-v{PARSED_FORMAT}.npz" if cache else None
    table = _read_kept(kept, sha256) if kept else None
    if table is None:
        table = _parse(path, share, sha256)
        if kept:
            _keep(table, kept)
    return table


def _read_kept(kept: Path, sha256: str) -> _Table | None:
    try:
        with kept.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            features = _csr(arrays["data"], arrays["indices"], arrays["indptr"], int(arrays["n_features"]))
            features.check_format(full_check=True)
            return _Table(features, arrays["labels"], arrays["label_values"], sha256)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None  # not there or damaged: parse again


def _keep(table: _Table, kept: Path) -> None:
    temporary = None
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, suffix=".tmp", delete=False) as stream:
            temporary = stream.name
            np.savez(
                stream,
                data=table.features.data,
                indices=table.features.indices,
                indptr=table.features.indptr,
                n_features=np.int64(table.features.shape[1]),
                labels=table.labels,
                label_values=table.label_values,
            )
        os.replace(temporary, kept)
    except OSError:  # the cache saves time, nothing else: without it the file is parsed again
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, plain or compressed; damage is a DataError."""
    openers: dict[str, Any] = {".bz2": bz2.open, ".gz": gzip.open}  # Any: overloads of open
    number = 0
    try:
        with openers.get(path.suffix, open)(path, "rb") as stream:
            for line in stream:
                number += 1
                yield line
    except (EOFError, OSError, zlib.error) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path}: line {number + 1}: cut off or damaged ({detail}); get the file again.") from error


def _parse(path: Path, share: float, sha256: str) -> _Table:
    from sklearn.datasets import load_svmlight_file

    numbered, label_values = _rows(path, share)
    text = io.BytesIO(b"".join(line if line.endswith(b"\n") else line + b"\n" for _, line in numbered))
    try:
        features, raw = load_svmlight_file(text, dtype=np.float64, zero_based=False)
    except (ValueError, OverflowError, IndexError, TypeError) as error:
        raise _complaint(path, numbered, str(error)) from error
    is_sound = features.shape[1] <= MAX_INDEX and features.nnz <= MAX_INDEX
    if not (is_sound and np.isfinite(features.data).all() and _are_classes(raw)):
        raise _complaint(path, numbered, "not classification data")
    if features.nnz == 0:
        raise DataError(f"{path}: no row has a feature that is not 0; expected rows like '3 1:0.5 7:1'.")
    features = _csr(features.data, features.indices, features.indptr, features.shape[1])
    features.eliminate_zeros()
    labels = raw.astype(np.int64)
    return _Table(features, labels, np.unique(labels) if label_values is None else label_values, sha256)


def _rows(path: Path, share: float) -> tuple[list[tuple[int, bytes]], IntArray | None]:
    """Numbered lines that hold a row, or a sample of them; if sampled, also the labels of all rows.

    Read as a stream: the largest known test file has more than a gigabyte of text.
    """
    rng = np.random.default_rng(SAMPLING_SEED)
    kept: list[tuple[int, bytes]] = []
    first_with: dict[bytes, tuple[int, bytes]] = {}
    for number, line in enumerate(_lines(path), 1):
        if line.lstrip()[:1] in (b"", b"#"):
            continue
        if share < 1:
            first_with.setdefault(line.split(None, 1)[0], (number, line))
            if rng.random() >= share:
                continue
        kept.append((number, line))
    if not kept and not first_with:
        raise DataError(f"{path}: empty, no rows; expected rows like '3 1:0.5 7:1'.")
    if not kept:
        raise DataError(f"{path}: too few rows to sample at {share:.0%}; get the whole file.")
    if share == 1:
        return kept, None
    labels = np.array([_number(label) for label in first_with])
    if not _are_classes(labels):
        raise _complaint(path, list(first_with.values()), "not classification data")
    return kept, np.unique(labels.astype(np.int64))


def _are_classes(labels: FloatArray) -> bool:
    return bool((np.isfinite(labels) & (np.abs(labels) < 2**53) & (labels == np.trunc(labels))).all())


# Saying what is wrong


def _complaint(path: Path, numbered: list[tuple[int, bytes]], otherwise: str) -> DataError:
    """The first faulty line, found by a slow second look; the parser itself names none."""
    for number, line in numbered:
        fault = _fault(line)
        if fault:
            return DataError(f"{path}: line {number}: {fault}.")
    first_line = otherwise.strip().splitlines()[0]
    return DataError(f"{path}: not svmlight text ({first_line}); expected rows like '3 1:0.5 7:1'.")


def _number(token: bytes) -> float:
    try:
        return float(token)
    except ValueError:
        return math.nan


def _shown(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= 30 else text[:30] + "...")


def _fault(line: bytes) -> str | None:
    """What is wrong with one row, and what is expected; None if it is sound."""
    label, *pairs = line.split(b"#", 1)[0].split()
    if b":" in label:
        return f"the label is missing before {_shown(label)}; begin the row with its class, a whole number"
    value = _number(label)
    if not math.isfinite(value) or value != math.trunc(value) or abs(value) >= 2**53:
        return f"label {_shown(label)} is not a class; labels must be whole numbers"
    if pairs and pairs[0].startswith(b"qid:"):
        pairs = pairs[1:]  # of ranking files; the parser ignores it as well
    previous = 0
    for pair in pairs:
        index_text, _, value_text = pair.partition(b":")
        if not index_text.lstrip(b"-").isdigit() or not value_text:
            return f"{_shown(pair)} is not a pair index:value"
        if len(index_text) > len(str(MAX_INDEX)):
            return f"feature index {_shown(index_text)} is too large; at most {MAX_INDEX} is allowed"
        index = int(index_text)
        if index < 1:
            return f"feature index {index} in {_shown(pair)}; number the features from 1"
        if index > MAX_INDEX:
            return f"feature index {index} is too large; at most {MAX_INDEX} is allowed"
        if index <= previous:
            return f"feature index {index} follows {previous}; sort the indices of a row, each once"
        previous = index
        value = _number(value_text)
        if not math.isfinite(value):
            is_number = value_text.lstrip(b"+-").lower() in (b"nan", b"inf", b"infinity")
            verb = "is not finite" if is_number or math.isinf(value) else "is not a number"
            return f"the value in {_shown(pair)} {verb}; replace it or leave the feature out"
    return None
