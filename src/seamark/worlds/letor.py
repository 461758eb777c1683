"""Ranking data sets, by name or from LETOR / SVMrank files.

Array contract: documents of one query are contiguous rows; `offsets[q]:offsets[q + 1]` are those of query q.
Features are C-ordered float32, all arrays are read-only (files come as memory maps from the user cache).

A file is text with a document per row, `grade qid:1 1:0.5 7:1 # comment`, rows of a query together; plain, .gz or
.bz2. It is parsed once: the cache keeps the arrays under the sha256 of the file.
"""

from __future__ import annotations

import bz2
import difflib
import gzip
import hashlib
import math
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seamark.rounds import FloatArray, IntArray
from seamark.worlds.datasets import DataError, file_sha256, search_folders, user_cache
from seamark.worlds.letor_catalogue import RANKING_CATALOGUE, Layout, RankingSet

FeatureArray: TypeAlias = NDArray[np.float32]
HashArray: TypeAlias = NDArray[np.uint64]

MAX_GRADE = 4
MAX_FEATURES = 100_000  # rows are dense
HELD_OUT_SHARE = 0.2
PARSED_FORMAT = 1  # raise when the arrays kept in the user cache change
SYNTHETIC = "letor-synthetic"
_ENDINGS = ("", ".gz", ".bz2")
_BLOCK = 32 * 2**20  # bytes of text that are parsed at once
_PIECE = 2**20  # bytes that are read at once
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries, their documents and the judges' grades: one part (train, vali, test) of a ranking set."""

    features: FeatureArray  # (n_documents, n_features)
    offsets: IntArray  # (n_queries + 1,)
    grades: IntArray  # (n_documents,)
    qids: IntArray  # (n_queries,)
    doc_hash: HashArray  # (n_documents,), different for the documents of one query

    def __post_init__(self) -> None:
        for name in ("features", "offsets", "grades", "qids", "doc_hash"):
            view = np.asarray(getattr(self, name)).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        n = self.grades.size
        if self.features.shape[:1] != (n,) or self.features.ndim != 2 or self.doc_hash.shape != (n,):
            raise ValueError(
                f"Queries: features {self.features.shape} and doc_hash {self.doc_hash.shape} must have one row for "
                f"each of the {n} grades."
            )
        if self.features.dtype != np.float32 or not self.features.flags.c_contiguous:
            raise ValueError(f"Queries: features must be C-ordered float32, not {self.features.dtype}.")
        if self.offsets.shape != (self.qids.size + 1,) or self.offsets[0] != 0 or self.offsets[-1] != n:
            raise ValueError(f"Queries: offsets must run from 0 to {n} with one entry more than qids.")
        if (np.diff(self.offsets) < 1).any():
            raise ValueError("Queries: offsets must increase; every query has at least one document.")
        if n and not 0 <= self.grades.min() <= self.grades.max() <= MAX_GRADE:
            raise ValueError(f"Queries: grades must be in 0..{MAX_GRADE}.")

    def __len__(self) -> int:
        return int(self.qids.size)

    @property
    def n_documents(self) -> int:
        return int(self.grades.size)

    @property
    def n_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def lengths(self) -> IntArray:
        """Documents of each query."""
        return np.diff(self.offsets)

    @property
    def query_of(self) -> IntArray:
        """The query (its index, not its qid) of each document."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, queries: IntArray) -> Queries:
        """The chosen queries with all their documents, copied."""
        starts, lengths = self.offsets[:-1][queries], self.lengths[queries]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Queries(
            self.features[rows], offsets, self.grades[rows], np.asarray(self.qids[queries]), self.doc_hash[rows]
        )


@dataclass(frozen=True, eq=False)
class RankingData:
    """A ranking set, ready to be searched by simulated users."""

    name: str
    train: Queries
    test: Queries
    n_features: int
    max_grade: int  # 2 for sets judged 0..2; of the set, not of one part
    sha256: str  # of the content files' checksums; for generated sets of the arrays
    vali: Queries | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for side, part in self.parts().items():
            if part.n_features != self.n_features:
                raise ValueError(f"RankingData: {side} has {part.n_features} features; must have {self.n_features}.")
            if part.n_documents and part.grades.max() > self.max_grade:
                raise ValueError(f"RankingData: {side} has grades above {self.max_grade}.")

    def parts(self) -> dict[str, Queries]:
        """The parts that there are, by name."""
        parts = {"train": self.train, "vali": self.vali, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}


def document_hashes(qids: IntArray, offsets: IntArray) -> HashArray:
    """A fixed number per document that orders documents of equal score.

    Made of the qid and the place within the query alone: other queries do not matter, and as the last mixing
    step is a bijection no two documents of a query have the same one.
    """
    lengths = np.diff(offsets)
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return mix64(np.repeat(mix64(qids.astype(np.uint64)), lengths) + place.astype(np.uint64))


def mix64(values: HashArray) -> HashArray:
    """The finaliser of SplitMix64 [Steele, Lea, Flood 2014]: a bijection of 64-bit numbers that looks random."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: HashArray = z ^ (z >> np.uint64(31))
    return mixed


def load(spec: str, *, where: Path | None = None, normalise: bool | None = None) -> RankingData:
    """The ranking set called `spec`.

    A name of the catalogue, with `:fold2` for sets with folds (default: fold 1); LETOR files as TRAIN or TRAIN:TEST;
    or `letor-synthetic[:...]`, see `synthetic`. A named set's files are looked for in `where` alone if given, else in
    the folder SEAMARK_DATA and then in the user cache. `normalise` scales every feature to [0, 1] within each query;
    by default done where features are published raw, and for files.
    """
    name, _, fold = spec.partition(":")
    if name == SYNTHETIC:
        from seamark.worlds.synthetic import generate, parse_spec

        return generate(parse_spec(spec))
    if name in RANKING_CATALOGUE and (not fold or re.fullmatch(r"fold\d+", fold)):
        return _load_named(RANKING_CATALOGUE[name], fold, where, normalise)
    train_path, test_path = _split_spec(spec)
    is_normalised = True if normalise is None else normalise
    train = _read(train_path, is_normalised)
    if test_path is not None:
        return _assemble(spec, {"train": train, "test": _read(test_path, is_normalised)}, is_normalised)
    parts = _hold_out(train, train_path)
    note = (
        f"no test file: a fifth of the queries, chosen by a hash of their qid, are held out as test "
        f"({len(parts['test'].queries)} of {len(train.queries)})"
    )
    return _assemble(spec, parts, is_normalised, notes=(note,))


# Sets by name


class _Part(NamedTuple):
    queries: Queries
    sha256: str  # of the file


def files(spec: str, *, where: Path | None = None) -> dict[str, Path]:
    """The files of a named set by part, unread; none where train or test is not found."""
    name, _, fold = spec.partition(":")
    what = RANKING_CATALOGUE[name]
    number = _fold_number(what, fold)
    try:
        return _locate(what, number, bool(fold), search_folders(where))[1]
    except DataError:  # all that is raised there: not found
        return {}


def _fold_number(what: RankingSet, fold: str) -> int:
    number = int(fold.removeprefix("fold")) if fold else 1
    if fold and not 1 <= number <= what.n_folds:
        have = f"has folds 1..{what.n_folds}" if what.n_folds else "has no folds"
        raise DataError(f"{what.name}:{fold}: {what.name} {have}.")
    return number


def _load_named(what: RankingSet, fold: str, where: Path | None, normalise: bool | None) -> RankingData:
    number = _fold_number(what, fold)
    layout, paths = _locate(what, number, bool(fold), search_folders(where))
    is_normalised = what.normalise if normalise is None else normalise
    parts = {side: _read(path, is_normalised) for side, path in paths.items()}
    notes = list(layout.notes)
    for side, part in parts.items():
        if layout.checksums and layout.checksums.get(side) != part.sha256:
            notes.append(f"{paths[side].name}: unknown checksum; not the file that is known under this name")
    data = _assemble(
        f"{what.name}:{fold}" if fold else what.name,
        parts,
        is_normalised,
        n_features=what.n_features,
        max_grade=what.max_grade,
        notes=tuple(notes),
    )
    if data.n_features > what.n_features:
        extra = f"{data.n_features} features where {what.n_features} are published"
        return replace(data, notes=(*data.notes, extra))
    return data


def _locate(
    what: RankingSet, fold: int, is_fold_named: bool, folders: tuple[Path, ...]
) -> tuple[Layout, dict[str, Path]]:
    """The layout of which train and test are there, with the path of every part found."""
    nearest: dict[str, Path] = {}
    layouts = [layout for layout in what.layouts if not is_fold_named or any("{fold}" in f for f in layout.folders)]
    for layout in layouts:
        for folder in folders:
            for below in layout.folders:
                place = folder / below.format(fold=fold)
                found = {side: _file_at(place / name) for side, name in layout.files.items()}
                paths = {side: path for side, path in found.items() if path is not None}
                if "train" in paths and "test" in paths:
                    return layout, paths
                nearest = nearest or paths
    names = layouts[0].files
    missing = ", ".join(names[side] for side in ("train", "test") if side not in nearest)
    places = " or ".join(sub.format(fold=fold) or "the folder itself" for layout in layouts for sub in layout.folders)
    looked = ", ".join(str(f) if f.is_dir() else f"{f} (no such folder)" for f in folders) or "no folder"
    raise DataError(
        f"{what.name}: {missing} (or .gz, .bz2) not found in {places}; looked at {looked}; its licence forbids passing "
        f"it on: ask {what.ask}, unpack it, and set SEAMARK_DATA to the folder."
    )


def _file_at(path: Path) -> Path | None:
    return next((file for end in _ENDINGS if os.path.isfile(file := path.with_name(path.name + end))), None)


def _split_spec(spec: str) -> tuple[Path, Path | None]:
    if os.path.exists(spec):
        return Path(spec), None
    colons = [i for i, letter in enumerate(spec) if letter == ":" and 0 < i < len(spec) - 1]
    for i in colons:  # a path may hold a colon itself
        if os.path.exists(spec[:i]) and os.path.exists(spec[i + 1 :]):
            return Path(spec[:i]), Path(spec[i + 1 :])
    if "/" in spec or os.sep in spec or "." in spec:
        missing = [part for part in spec.split(":", 1) if not os.path.exists(part)] if colons else [spec]
        raise DataError(f"{spec}: no such file: {', '.join(missing)}; give LETOR files as TRAIN or TRAIN:TEST.")
    known = [*RANKING_CATALOGUE, SYNTHETIC]
    close = difflib.get_close_matches(spec.partition(":")[0], known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise DataError(f"{spec!r} is not a known ranking set; {hint}Known: {', '.join(known)}, or TRAIN:TEST files.")


def _hold_out(whole: _Part, path: Path) -> dict[str, _Part]:
    """Train and test queries; which is which depends on a query's qid only."""
    is_test = mix64(whole.queries.qids.astype(np.uint64)) < np.uint64(HELD_OUT_SHARE * 2**64)
    if is_test.all() or not is_test.any():
        raise DataError(f"{path}: too few queries ({is_test.size}) to hold a fifth out; give a test file, TRAIN:TEST.")
    sides = {"train": np.flatnonzero(~is_test), "test": np.flatnonzero(is_test)}
    return {side: _Part(whole.queries.take(chosen), whole.sha256) for side, chosen in sides.items()}


def _assemble(
    name: str,
    parts: dict[str, _Part],
    is_normalised: bool,
    *,
    n_features: int = 0,
    max_grade: int = 0,
    notes: tuple[str, ...] = (),
) -> RankingData:
    """The parts with one number of features, and what is to be said of them."""
    width = max(n_features, *(part.queries.n_features for part in parts.values()))
    highest = max(max_grade, 1, *(int(part.queries.grades.max()) for part in parts.values()))
    sides = {side: _widened(part.queries, width) for side, part in parts.items()}
    told = [*notes]
    told.append("features min-max normalised per query" if is_normalised else "features as in the files")
    if highest <= 2:
        columns = "0, 2, 4" if highest == 2 else "0, 4"
        told.append(f"grades 0..{highest}: clicks use the columns {columns} of the click tables, which have five")
    shared = np.intersect1d(sides["train"].qids, sides["test"].qids).size
    if shared:
        told.append(f"{shared} qids are in both train and test")
    checksums = sorted((side, part.sha256) for side, part in parts.items())
    return RankingData(
        name=name,
        train=sides["train"],
        test=sides["test"],
        vali=sides.get("vali"),
        n_features=width,
        max_grade=highest,
        sha256=hashlib.sha256("".join(f"{side} {sha}\n" for side, sha in checksums).encode()).hexdigest(),
        notes=tuple(told),
    )


def _widened(queries: Queries, n_features: int) -> Queries:
    missing = n_features - queries.n_features
    return replace(queries, features=np.pad(queries.features, ((0, 0), (0, missing)))) if missing else queries


# Reading


def _read(path: Path, is_normalised: bool) -> _Part:
    """One file; its arrays are kept in the user cache, and mapped from there, when that can be written."""
    if os.path.isdir(path):
        raise DataError(f"{path}: is a folder; give a LETOR file, plain, .gz or .bz2.")
    if not os.path.isfile(path):
        raise DataError(f"{path}: no such file; give a LETOR file, plain, .gz or .bz2.")
    sha256 = file_sha256(path)
    cache = user_cache()
    form = "normalised" if is_normalised else "raw"
    kept = cache / "letor" / f"{sha256}-{form}-v{PARSED_FORMAT}" if cache else None
    queries = _read_kept(kept) if kept else None
    if queries is None:
        queries = _parse(path, is_normalised)
        if kept and _keep(queries, kept):
            queries = _read_kept(kept) or queries  # gives the memory back
    return _Part(queries, sha256)


def _read_kept(kept: Path) -> Queries | None:
    try:
        features, offsets, grades, qids = (
            np.load(kept / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("features", "offsets", "grades", "qids")
        )
        return Queries(features, offsets, grades, qids, document_hashes(qids, offsets))
    except (OSError, ValueError, EOFError, IndexError):
        return None  # not there or damaged: parse again


def _keep(queries: Queries, kept: Path) -> bool:
    """Writes a folder of arrays, whole or not at all; whether it did."""
    temporary = None
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(dir=kept.parent, suffix=".tmp")
        for name in ("features", "offsets", "grades", "qids"):
            np.save(Path(temporary) / f"{name}.npy", getattr(queries, name), allow_pickle=False)
        if kept.exists():  # a damaged one, or another process was faster
            shutil.rmtree(kept, ignore_errors=True)
        os.replace(temporary, kept)
    except OSError:  # the cache saves time, nothing else: without it the file is parsed again
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        return False
    return True


def _blocks(path: Path) -> Iterator[bytes]:
    """A file's text in blocks of whole lines, unpacked; damage is a DataError."""
    openers: dict[str, Any] = {".bz2": bz2.open, ".gz": gzip.open}  # Any: overloads of open
    n_lines, pieces, size = 0, [], 0
    try:
        with openers.get(path.suffix, open)(path, "rb") as stream:
            while piece := stream.read1(_PIECE):
                n_lines += piece.count(b"\n")
                pieces.append(piece)
                size += len(piece)
                if size >= _BLOCK and (cut := piece.rfind(b"\n") + 1):
                    yield b"".join([*pieces[:-1], piece[:cut]])
                    pieces, size = [piece[cut:]], len(piece) - cut
    except (EOFError, OSError, zlib.error) as error:
        detail = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path}: line {n_lines + 1}: cut off or damaged ({detail}); get the file again.") from error
    if size:
        yield b"".join(pieces)


class _Rows(NamedTuple):
    """Documents as parsed; `lines` are counted from 1."""

    features: FloatArray
    grades: IntArray
    qids: IntArray
    lines: IntArray

    def part(self, rows: slice) -> _Rows:
        return _Rows(self.features[rows], self.grades[rows], self.qids[rows], self.lines[rows])


def _parse(path: Path, is_normalised: bool) -> Queries:
    """Block by block; what is kept of a block are its whole queries, in their final form."""
    done: list[FeatureArray] = []
    grades: list[IntArray] = []
    starts_of: list[IntArray] = []
    qids: list[IntArray] = []
    first_line: list[IntArray] = []
    open_query: _Rows | None = None  # the last query of the block before, which may go on
    n_lines = n_rows = 0
    for block in _blocks(path):
        rows, n_read = _parse_block(block, path, n_lines)
        n_lines += n_read
        if open_query is not None:
            rows = _joined(open_query, rows)
        if not rows.grades.size:
            continue
        starts = np.concatenate([[0], np.flatnonzero(np.diff(rows.qids)) + 1])
        qids.append(rows.qids[starts[:-1]])
        first_line.append(rows.lines[starts[:-1]])
        starts_of.append(n_rows + starts[:-1])
        whole, open_query = rows.part(slice(None, starts[-1])), rows.part(slice(starts[-1], None))
        done.append(_final(whole, starts, is_normalised, path))
        grades.append(whole.grades)
        n_rows += int(starts[-1])
    if open_query is None:
        raise DataError(f"{path}: empty, no rows; expected rows like '2 qid:1 1:0.5 7:1'.")
    ends = np.array([0, open_query.grades.size])
    done.append(_final(open_query, ends, is_normalised, path))
    grades.append(open_query.grades)
    qids.append(open_query.qids[:1])
    first_line.append(open_query.lines[:1])
    offsets = np.concatenate([*starts_of, [n_rows, n_rows + open_query.grades.size]]).astype(np.int64)
    all_qids = np.concatenate(qids)
    _refuse_scattered(all_qids, np.concatenate(first_line), path)
    width = max(part.shape[1] for part in done)
    if width == 0:
        raise DataError(f"{path}: no row has a feature; expected rows like '2 qid:1 1:0.5 7:1'.")
    features = np.zeros((int(offsets[-1]), width), dtype=np.float32)
    row = 0
    for k, part in enumerate(done):
        features[row : row + part.shape[0], : part.shape[1]] = part
        row += part.shape[0]
        done[k] = part[:0]  # gives the memory back
    return Queries(features, offsets, np.concatenate(grades), all_qids, document_hashes(all_qids, offsets))


def _joined(first: _Rows, second: _Rows) -> _Rows:
    width = max(first.features.shape[1], second.features.shape[1])
    features = [np.pad(rows.features, ((0, 0), (0, width - rows.features.shape[1]))) for rows in (first, second)]
    grades, qids, lines = (np.concatenate(pair) for pair in zip(first[1:], second[1:]))
    return _Rows(np.concatenate(features), grades, qids, lines)


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


def _parse_block(block: bytes, path: Path, n_lines_before: int) -> tuple[_Rows, int]:
    """The rows of whole lines, and how many lines there are."""
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
            break
    for row, column, start, end in slow[: state[kernels.N_SLOW]]:
        value = _number(block[start:end])
        if not math.isfinite(value):
            raise _complaint(path, block, int(start), n_lines_before)
        features[row, column] = value
    if status == kernels.FAULT:
        raise _complaint(path, block, int(state[kernels.FAULT_AT]), n_lines_before)
    n_rows, widest = int(state[kernels.N_ROWS]), int(state[kernels.N_FEATURES])
    used = np.ascontiguousarray(features[:n_rows, :widest])
    rows = _Rows(used, grades[:n_rows], qids[:n_rows], lines[:n_rows] + n_lines_before + 1)
    return rows, int(state[kernels.N_LINES])


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


def _shown(token: bytes) -> str:
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= 30 else text[:30] + "...")


def _fault(line: bytes) -> str | None:
    """What is wrong with one row, and what is expected; None if it is sound."""
    grade, *others = line.split(b"#", 1)[0].split()
    if not grade.isdigit() or not 0 <= int(grade[:19]) <= MAX_GRADE:
        return f"grade {_shown(grade)} is not a whole number in 0..{MAX_GRADE}"
    if not others or not others[0].startswith(b"qid:"):
        return f"qid is missing after the grade; begin the row as in '{grade.decode()} qid:1 1:0.5'"
    qid = others[0][4:]
    if not qid.isdigit() or len(qid) > 18:
        return f"{_shown(others[0])} is not a qid; it must be a whole number of at most 18 digits"
    previous = 0
    for pair in others[1:]:
        index_text, colon, value_text = pair.partition(b":")
        if not index_text.isdigit() or not colon or not value_text:
            return f"{_shown(pair)} is not a pair index:value"
        index = int(index_text[:19])
        if index < 1:
            return f"feature index {index} in {_shown(pair)}; number the features from 1"
        if index > MAX_FEATURES:
            return f"feature index {index} is too large; at most {MAX_FEATURES} is allowed, as rows are dense"
        if index <= previous:
            return f"feature index {index} follows {previous}; sort the indices of a row, each once"
        previous = index
        value = _number(value_text)
        if not math.isfinite(value):
            is_number = value_text.lstrip(b"+-").lower() in (b"nan", b"inf", b"infinity")
            verb = "is not finite" if is_number or math.isinf(value) else "is not a number"
            return f"the value in {_shown(pair)} {verb}; replace it or leave the feature out"
    return None
