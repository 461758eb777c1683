"""Whether the files of a ranking set are what they should be: by checksum where one is known, else by reading them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from seamark.worlds import letor
from seamark.worlds.files import DataError, FileCheck, file_sha256
from seamark.worlds.letor_cache import read
from seamark.worlds.letor_catalogue import SYNTHETIC, Layout, Size


class Finding(NamedTuple):
    """One file of a set, and what is to be said of it."""

    check: FileCheck
    is_sound: bool
    detail: str


def check(spec: str, *, where: Path | None = None) -> list[FileCheck]:
    """Every file of a named set with its path and status, unread unless its checksum is known; none if generated."""
    if spec.partition(":")[0] == SYNTHETIC:
        return []
    layout, paths = letor.nearest(spec, where=where)
    return [
        FileCheck(paths[side].name, paths[side], _status(layout, side, paths[side]))
        if side in paths
        else FileCheck(file, None, "missing", is_optional=side == "vali")
        for side, file in layout.files.items()
    ]


def _status(layout: Layout, side: str, path: Path) -> str:
    if not layout.checksums:
        return "no published checksum"
    return layout.known_as if layout.checksums.get(side) == file_sha256(path) else "unknown checksum"


def inspect(spec: str, *, where: Path | None = None) -> list[Finding]:
    """What `check` gives, with queries and documents: expected for a known checksum, else counted by reading."""
    if spec.partition(":")[0] == SYNTHETIC:
        return []
    what, fold = letor.find_set(spec)
    layout, _ = letor.nearest(spec, where=where)
    sizes = layout.sizes if fold in ("", "fold1") else {}
    checks = zip(layout.files, check(spec, where=where))
    return [_inspected(found, sizes.get(side), what.normalise) for side, found in checks]


def _inspected(found: FileCheck, expected: Size | None, is_normalised: bool) -> Finding:
    if found.path is None:
        return Finding(found, found.is_optional, _shown(expected, "expected"))
    if found.status not in ("no published checksum", "unknown checksum"):
        return Finding(found, True, _shown(expected))
    try:
        queries = read(found.path, is_normalised).queries
    except DataError as error:
        return Finding(found, False, f"cannot be used: {error}")
    size = Size(len(queries), queries.n_documents)
    if expected is not None and size != expected:
        return Finding(found, False, f"{_shown(size, 'read')}, where {_shown(expected, 'are published')}")
    return Finding(found, found.status != "unknown checksum", _shown(size, "read"))


def _shown(size: Size | None, verb: str = "") -> str:
    return f"{size.queries:,} queries, {size.documents:,} documents {verb}".rstrip() if size else ""
