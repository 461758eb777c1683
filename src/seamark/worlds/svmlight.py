"""svmlight text: read into a sparse table, kept in the user cache, refused with the line that is wrong."""

from __future__ import annotations

import contextlib
import io
import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seamark.rounds import FloatArray, IntArray
from seamark.worlds.files import (
    DAMAGE,
    DataError,
    damaged,
    file_sha256,
    index_fault,
    require_file,
    shown,
    unpacked,
    user_cache,
    value_fault,
)

if TYPE_CHECKING:
    import scipy.sparse

SAMPLING_SEED = 0
PARSED_FORMAT = 1  # raise when the arrays kept in the user cache change
MAX_INDEX = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Table:
    """What one svmlight file holds; `label_values` are those of the whole file, sampled or not."""

    features: scipy.sparse.csr_matrix
    labels: IntArray
    label_values: IntArray
    sha256: str


# Any: a csr_matrix, for which SciPy has no types
def csr(data: Any, indices: Any, indptr: Any, n_features: int) -> Any:
    """The parts of a sparse matrix put together, with int32 indices."""
    from scipy.sparse import csr_matrix

    indices, indptr = indices.astype(np.int32, copy=False), indptr.astype(np.int32, copy=False)
    return csr_matrix((data, indices, indptr), shape=(indptr.size - 1, n_features))


def read_table(path: Path, *, share: float = 1.0) -> Table:
    """One svmlight file; its arrays are kept in the user cache when that can be written."""
    require_file(path, "an svmlight file, plain, .bz2 or .gz")
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


def _read_kept(kept: Path, sha256: str) -> Table | None:
    try:
        with kept.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            features = csr(arrays["data"], arrays["indices"], arrays["indptr"], int(arrays["n_features"]))
            features.check_format(full_check=True)
            return Table(features, arrays["labels"], arrays["label_values"], sha256)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None  # not there or damaged: parse again


def _keep(table: Table, kept: Path) -> None:
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
    number = 0
    try:
        with unpacked(path) as stream:
            for line in stream:
                number += 1
                yield line
    except DAMAGE as error:
        raise damaged(path, number + 1, error) from error


def _parse(path: Path, share: float, sha256: str) -> Table:
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
    features = csr(features.data, features.indices, features.indptr, features.shape[1])
    features.eliminate_zeros()
    labels = raw.astype(np.int64)
    return Table(features, labels, np.unique(labels) if label_values is None else label_values, sha256)


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


def _fault(line: bytes) -> str | None:
    """What is wrong with one row, and what is expected; None if it is sound."""
    label, *pairs = line.split(b"#", 1)[0].split()
    if b":" in label:
        return f"the label is missing before {shown(label)}; begin the row with its class, a whole number"
    value = _number(label)
    if not math.isfinite(value) or value != math.trunc(value) or abs(value) >= 2**53:
        return f"label {shown(label)} is not a class; labels must be whole numbers"
    if pairs and pairs[0].startswith(b"qid:"):
        pairs = pairs[1:]  # of ranking files; the parser ignores it as well
    previous = 0
    for pair in pairs:
        index_text, _, value_text = pair.partition(b":")
        if not index_text.removeprefix(b"-").isdigit() or not value_text:
            return f"{shown(pair)} is not a pair index:value"
        if len(index_text) > len(str(MAX_INDEX)):
            return f"feature index {shown(index_text)} is too large; at most {MAX_INDEX} is allowed"
        index = int(index_text)
        fault = index_fault(pair, index, previous, MAX_INDEX) or value_fault(pair, _number(value_text))
        if fault:
            return fault
        previous = index
    return None
