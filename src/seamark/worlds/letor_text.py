"""LETOR / SVMrank text: read into queries block by block, refused with the line that is wrong.

A document per row, `grade qid:1 1:0.5 7:1 # comment`, rows of a query together; plain, .gz or .bz2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seamark.rounds import FloatArray, IntArray
from seamark.worlds.files import DAMAGE, DataError, damaged, index_fault, shown, unpacked, value_fault
from seamark.worlds.queries import MAX_GRADE, FeatureArray, Queries, document_hashes

MAX_FEATURES = 100_000  # rows are dense
_BLOCK = 32 * 2**20  # bytes of text that are parsed at once
_PIECE = 2**20  # bytes that are read at once
_FLOAT32_MAX = float(np.finfo(np.float32).max)


def parse(path: Path, is_normalised: bool) -> Queries:
    """The queries of a file; `is_normalised` scales every feature to [0, 1] within each query."""
    done = _Done(path, is_normalised)
    open_query: _Rows | None = None  # the last query of the block before, which may go on
    n_lines = 0
    for block in _blocks(path):
        rows, n_read = _parse_block(block, path, n_lines)
        n_lines += n_read
        if open_query is not None:
            rows = _joined(open_query, rows)
        if rows.grades.size:
            last = int(_starts(rows)[-1])
            done.add(rows.part(slice(None, last)))
            open_query = rows.part(slice(last, None))
    if open_query is None:
        raise DataError(f"{path}: empty, no rows; expected rows like '2 qid:1 1:0.5 7:1'.")
    done.add(open_query)
    return done.queries()


def _blocks(path: Path) -> Iterator[bytes]:
    """A file's text in blocks of whole lines, unpacked; damage is a DataError."""
    n_lines, pieces, size = 0, [], 0
    try:
        with unpacked(path) as stream:
            while piece := stream.read1(_PIECE):
                n_lines += piece.count(b"\n")
                pieces.append(piece)
                size += len(piece)
                if size >= _BLOCK and (cut := piece.rfind(b"\n") + 1):
                    yield b"".join([*pieces[:-1], piece[:cut]])
                    pieces, size = [piece[cut:]], len(piece) - cut
    except DAMAGE as error:
        raise damaged(path, n_lines + 1, error) from error
    if size:
        yield b"".join(pieces)


# Rows become queries


class _Rows(NamedTuple):
    """Documents as parsed; `lines` are counted from 1."""

    features: FloatArray
    grades: IntArray
    qids: IntArray
    lines: IntArray

    def part(self, rows: slice) -> _Rows:
        return _Rows(self.features[rows], self.grades[rows], self.qids[rows], self.lines[rows])


def _starts(rows: _Rows) -> IntArray:
    """The rows at which a query begins."""
    return np.concatenate([[0], np.flatnonzero(np.diff(rows.qids)) + 1])


def _joined(first: _Rows, second: _Rows) -> _Rows:
    width = max(first.features.shape[1], second.features.shape[1])
    features = [np.pad(rows.features, ((0, 0), (0, width - rows.features.shape[1]))) for rows in (first, second)]
    grades, qids, lines = (np.concatenate(pair) for pair in zip(first[1:], second[1:]))
    return _Rows(np.concatenate(features), grades, qids, lines)


class _Done:
    """Whole queries of the blocks so far; features are kept in their final form."""

    def __init__(self, path: Path, is_normalised: bool) -> None:
        self.path, self.is_normalised = path, is_normalised
        self.features: list[FeatureArray] = []
        self.grades: list[IntArray] = []
        self.lengths: list[IntArray] = []
        self.qids: list[IntArray] = []
        self.first_line: list[IntArray] = []

    def add(self, rows: _Rows) -> None:
        if not rows.grades.size:
            return
        starts = _starts(rows)
        offsets = np.append(starts, rows.grades.size)
        self.features.append(_final(rows, offsets, self.is_normalised, self.path))
        self.grades.append(rows.grades)
        self.lengths.append(np.diff(offsets))
        self.qids.append(rows.qids[starts])
        self.first_line.append(rows.lines[starts])

    def queries(self) -> Queries:
        """All of them; empties the list of features."""
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(self.lengths))]).astype(np.int64)
        qids = np.concatenate(self.qids)
        _refuse_scattered(qids, np.concatenate(self.first_line), self.path)
        width = max(part.shape[1] for part in self.features)
        if width == 0:
            raise DataError(f"{self.path}: no row has a feature; expected rows like '2 qid:1 1:0.5 7:1'.")
        features = np.zeros((int(offsets[-1]), width), dtype=np.float32)
        row = 0
        for k, part in enumerate(self.features):
            features[row : row + part.shape[0], : part.shape[1]] = part
            row += part.shape[0]
            self.features[k] = part[:0]  # gives the memory back
        return Queries(features, offsets, np.concatenate(self.grades), qids, document_hashes(qids, offsets))


def _final(rows: _Rows, offsets: IntArray, is_normalised: bool, path: Path) -> FeatureArray:
    from seamark.kernels import letor as kernels

    out = np.empty(rows.features.shape, dtype=np.float32)
    if is_normalised:
        kernels.normalise(rows.features, offsets, out)
        return out
    too_large = np.argwhere(np.abs(rows.features) > _FLOAT32_MAX)
    if too_large.size:
        row, column = too_large[0]
        raise DataError(
            f"{path}: line {rows.lines[row]}: the value of feature {column + 1} is {rows.features[row, column]:g}, too "
            "large for 32 bits; load the set with normalise=True."
        )
    out[:] = rows.features
    return out


def _refuse_scattered(qids: IntArray, first_line: IntArray, path: Path) -> None:
    _, first, counts = np.unique(qids, return_index=True, return_counts=True)
    if (counts == 1).all():
        return
    is_first = np.zeros(qids.size, dtype=bool)
    is_first[first] = True
    again = int(np.flatnonzero(~is_first)[0])
    raise DataError(
        f"{path}: line {first_line[again]}: qid {qids[again]} again, after other queries; put the rows of a query "
        "together."
    )


# Text becomes rows


def _parse_block(block: bytes, path: Path, n_lines_before: int) -> tuple[_Rows, int]:
    """The rows of whole lines, and how many lines there are."""
    from seamark.kernels import letor as kernels

    status, rows, slow, state = _scan(block)
    for row, column, start, end in slow[: state[kernels.N_SLOW]]:
        value = _number(block[start:end])
        if not math.isfinite(value):
            raise _complaint(path, block, int(start), n_lines_before)
        rows.features[row, column] = value
    if status == kernels.FAULT:
        raise _complaint(path, block, int(state[kernels.FAULT_AT]), n_lines_before)
    found = rows.part(slice(None, int(state[kernels.N_ROWS])))
    used = np.ascontiguousarray(found.features[:, : int(state[kernels.N_FEATURES])])
    return found._replace(features=used, lines=found.lines + n_lines_before + 1), int(state[kernels.N_LINES])


def _scan(block: bytes) -> tuple[int, _Rows, IntArray, IntArray]:
    """What the kernel says: its status, rows with room behind them, numbers it left to others, its counts."""
    from seamark.kernels import letor as kernels

    text = np.frombuffer(block, dtype=np.uint8)
    most = block.count(b"\n") + 1
    width = _feature_guess(block)
    slow = np.empty((1_000, 4), dtype=np.int64)
    grades, qids, lines = (np.empty(most, dtype=np.int64) for _ in range(3))
    state = np.zeros(5, dtype=np.int64)
    features = np.empty((most, width))
    while True:
        status = kernels.read_lines(text, features, grades, qids, lines, slow, MAX_GRADE, MAX_FEATURES, state)
        if status == kernels.TOO_NARROW:
            width = min(max(2 * width, int(state[kernels.N_FEATURES])), MAX_FEATURES)
            features = np.empty((most, width))
        elif status == kernels.TOO_MANY_SLOW:
            slow = np.empty((10 * slow.shape[0], 4), dtype=np.int64)
        else:
            return int(status), _Rows(features, grades, qids, lines), slow, state


def _feature_guess(block: bytes) -> int:
    """The last feature of the first rows, so that most files need one pass."""
    found = re.findall(rb"(\d{1,6}):", b" ".join(line.split(b"#")[0] for line in block[: 2**16].splitlines()[:20]))
    return min(max([8, *map(int, found)]), 5_000)


# Saying what is wrong

_DECIMAL = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _number(token: bytes) -> float:
    return float(token) if _DECIMAL.fullmatch(token) else math.nan


def _complaint(path: Path, block: bytes, at: int, n_lines_before: int) -> DataError:
    start = block.rfind(b"\n", 0, at) + 1
    line = block[start:].split(b"\n", 1)[0]
    number = n_lines_before + block.count(b"\n", 0, start) + 1
    fault = _fault(line) or "not LETOR text; expected rows like '2 qid:1 1:0.5 7:1'"
    return DataError(f"{path}: line {number}: {fault}.")


def _fault(line: bytes) -> str | None:
    """What is wrong with one row, and what is expected; None if it is sound."""
    grade, *others = line.split(b"#", 1)[0].split()
    if not grade.isdigit() or not 0 <= int(grade[:19]) <= MAX_GRADE:
        return f"grade {shown(grade)} is not a whole number in 0..{MAX_GRADE}"
    if not others or not others[0].startswith(b"qid:"):
        return f"qid is missing after the grade; begin the row as in '{grade.decode()} qid:1 1:0.5'"
    qid = others[0][4:]
    if not qid.isdigit() or len(qid) > 18:
        return f"{shown(others[0])} is not a qid; it must be a whole number of at most 18 digits"
    previous = 0
    for pair in others[1:]:
        index_text, _, value_text = pair.partition(b":")
        if not index_text.isdigit() or not value_text:
            return f"{shown(pair)} is not a pair index:value"
        index = int(index_text[:19])
        fault = index_fault(pair, index, previous, MAX_FEATURES, ", as rows are dense")
        fault = fault or value_fault(pair, _number(value_text))
        if fault:
            return fault
        previous = index
    return None
