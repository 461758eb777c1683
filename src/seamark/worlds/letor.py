"""Ranking data sets, by name or from LETOR / SVMrank files.

What comes back is made of `queries.Queries`; files come as memory maps from the user cache (`letor_cache`), where they
are kept once they were parsed (`letor_text`).
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from seamark.worlds.files import DataError, did_you_mean, existing, inner_colons, is_path, looked_at, search_folders
from seamark.worlds.letor_cache import Part, read
from seamark.worlds.letor_catalogue import RANKING_CATALOGUE, SYNTHETIC, Layout, RankingSet
from seamark.worlds.names import refuse_other_task
from seamark.worlds.queries import Queries, RankingData, document_hashes, mix64

__all__ = ["SYNTHETIC", "Queries", "RankingData", "document_hashes", "files", "find_set", "load", "nearest"]

HELD_OUT_SHARE = 0.2
_ENDINGS = ("", ".gz", ".bz2")


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
        return _load_named(spec, where, normalise)
    train_path, test_path = _split_spec(spec)
    is_normalised = True if normalise is None else normalise
    train = read(train_path, is_normalised)
    if test_path is not None:
        return _assemble(spec, {"train": train, "test": read(test_path, is_normalised)}, is_normalised)
    parts = _hold_out(train, train_path)
    note = (
        f"no test file: a fifth of the queries, chosen by a hash of their qid, are held out as test "
        f"({len(parts['test'].queries)} of {len(train.queries)})"
    )
    return _assemble(spec, parts, is_normalised, notes=(note,))


# Sets by name


def files(spec: str, *, where: Path | None = None) -> dict[str, Path]:
    """The files of a named set by part, unread; none where train or test is not found."""
    paths = nearest(spec, where=where)[1]
    return paths if _is_whole(paths) else {}


def find_set(spec: str) -> tuple[RankingSet, str]:
    """The catalogue row of NAME or NAME:fold2, and the fold; a DataError if there is no such name or fold."""
    name, _, fold = spec.partition(":")
    if name not in RANKING_CATALOGUE:
        raise _unknown(spec)
    what = RANKING_CATALOGUE[name]
    is_number = re.fullmatch(r"fold\d+", fold) is not None
    if fold and not (is_number and 1 <= _number(fold) <= what.n_folds):
        have = f"has folds 1..{what.n_folds}" if what.n_folds else "has no folds"
        raise DataError(f"{what.name}:{fold}: {what.name} {have}.")
    return what, fold


def _number(fold: str) -> int:
    return int(fold.removeprefix("fold") or 1)


def nearest(spec: str, *, where: Path | None = None) -> tuple[Layout, dict[str, Path]]:
    """The layout of which train and test are there, with the path of every part found.

    If no layout has both, the first of which anything is there, or else the first.
    """
    what, fold = find_set(spec)
    best: tuple[Layout, dict[str, Path]] | None = None
    for layout in _layouts(what, fold):
        for folder in search_folders(where):
            for below in layout.folders:
                place = folder / below.format(fold=_number(fold))
                found = {side: _file_at(place / name) for side, name in layout.files.items()}
                paths = {side: path for side, path in found.items() if path is not None}
                if _is_whole(paths):
                    return layout, paths
                if paths and best is None:
                    best = layout, paths
    return best or (_layouts(what, fold)[0], {})


def _layouts(what: RankingSet, fold: str) -> list[Layout]:
    return [layout for layout in what.layouts if not fold or any("{fold}" in f for f in layout.folders)]


def _is_whole(paths: dict[str, Path]) -> bool:
    return "train" in paths and "test" in paths


def _load_named(spec: str, where: Path | None, normalise: bool | None) -> RankingData:
    what, fold = find_set(spec)
    layout, paths = nearest(spec, where=where)
    if not _is_whole(paths):
        raise _missing(what, fold, paths, where)
    is_normalised = what.normalise if normalise is None else normalise
    parts = {side: read(path, is_normalised) for side, path in paths.items()}
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


def _missing(what: RankingSet, fold: str, paths: dict[str, Path], where: Path | None) -> DataError:
    layouts = _layouts(what, fold)
    names = layouts[0].files
    missing = ", ".join(names[side] for side in ("train", "test") if side not in paths)
    subs = (sub for layout in layouts for sub in layout.folders)
    places = " or ".join(sub.format(fold=_number(fold)) or "the folder itself" for sub in subs)
    return DataError(
        f"{what.name}: {missing} (or .gz, .bz2) not found in {places}; looked at {looked_at(search_folders(where))}; "
        f"its licence forbids passing it on: ask {what.ask}, unpack it, and set SEAMARK_DATA to the folder."
    )


def _file_at(path: Path) -> Path | None:
    return next((file for end in _ENDINGS if os.path.isfile(file := path.with_name(path.name + end))), None)


def _split_spec(spec: str) -> tuple[Path, Path | None]:
    if (found := existing(spec)) is not None:
        return found
    refuse_other_task(spec, "ranking")
    if is_path(spec):
        parts = spec.split(":", 1) if inner_colons(spec) else [spec]
        missing = [part for part in parts if not os.path.exists(part)]
        raise DataError(f"{spec}: no such file: {', '.join(missing)}; give LETOR files as TRAIN or TRAIN:TEST.")
    raise _unknown(spec)


def _unknown(spec: str) -> DataError:
    known = [*RANKING_CATALOGUE, SYNTHETIC]
    hint = did_you_mean(spec.partition(":")[0], known)
    return DataError(f"{spec!r} is not a known ranking set; {hint}Known: {', '.join(known)}, or TRAIN:TEST files.")


def _hold_out(whole: Part, path: Path) -> dict[str, Part]:
    """Train and test queries; which is which depends on a query's qid only."""
    is_test = mix64(whole.queries.qids.astype(np.uint64)) < np.uint64(HELD_OUT_SHARE * 2**64)
    if is_test.all() or not is_test.any():
        raise DataError(f"{path}: too few queries ({is_test.size}) to hold a fifth out; give a test file, TRAIN:TEST.")
    sides = {"train": np.flatnonzero(~is_test), "test": np.flatnonzero(is_test)}
    return {side: Part(whole.queries.take(chosen), whole.sha256) for side, chosen in sides.items()}


def _assemble(
    name: str,
    parts: dict[str, Part],
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
    told = _told(is_normalised, highest, np.intersect1d(sides["train"].qids, sides["test"].qids).size)
    checksums = sorted((side, part.sha256) for side, part in parts.items())
    return RankingData(
        name=name,
        train=sides["train"],
        test=sides["test"],
        vali=sides.get("vali"),
        n_features=width,
        max_grade=highest,
        sha256=hashlib.sha256("".join(f"{side} {sha}\n" for side, sha in checksums).encode()).hexdigest(),
        notes=(*notes, *told),
    )


def _told(is_normalised: bool, max_grade: int, n_shared: int) -> list[str]:
    """What is to be said of every set."""
    told = ["features min-max normalised per query" if is_normalised else "features as in the files"]
    if max_grade <= 2:
        columns = "0, 2, 4" if max_grade == 2 else "0, 4"
        told.append(f"grades 0..{max_grade}: clicks use the columns {columns} of the click tables, which have five")
    if n_shared:
        told.append(f"{n_shared} qids are in both train and test")
    return told


def _widened(queries: Queries, n_features: int) -> Queries:
    missing = n_features - queries.n_features
    return replace(queries, features=np.pad(queries.features, ((0, 0), (0, missing)))) if missing else queries
