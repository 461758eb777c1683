"""LETOR files as arrays: parsed once, then mapped from the user cache.

The cache keeps a folder of arrays under the sha256 of the file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seamark.worlds import letor_text
from seamark.worlds.files import file_sha256, require_file, user_cache
from seamark.worlds.queries import Queries, document_hashes

PARSED_FORMAT = 1  # raise when the arrays kept in the user cache change
_ARRAYS = ("features", "offsets", "grades", "qids")


class Part(NamedTuple):
    """What one file holds: train, vali or test."""

    queries: Queries
    sha256: str  # of the file


def read(path: Path, is_normalised: bool) -> Part:
    """One file; its arrays are kept in the user cache, and mapped from there, when that can be written."""
    require_file(path, "a LETOR file, plain, .gz or .bz2")
    sha256 = file_sha256(path)
    cache = user_cache()
    form = "normalised" if is_normalised else "raw"
    kept = cache / "letor" / f"{sha256}-{form}-v{PARSED_FORMAT}" if cache else None
    queries = _read_kept(kept) if kept else None
    if queries is None:
        queries = letor_text.parse(path, is_normalised)
        if kept and _keep(queries, kept):
            queries = _read_kept(kept) or queries  # gives the memory back
    return Part(queries, sha256)


def _read_kept(kept: Path) -> Queries | None:
    try:
        features, offsets, grades, qids = (
            np.load(kept / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in _ARRAYS
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
        for name in _ARRAYS:
            np.save(Path(temporary) / f"{name}.npy", getattr(queries, name), allow_pickle=False)
        if kept.exists():  # a damaged one, or another process was faster
            shutil.rmtree(kept, ignore_errors=True)
        os.replace(temporary, kept)
    except OSError:  # the cache saves time, nothing else: without it the file is parsed again
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        return False
    return True
