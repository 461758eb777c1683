"""What the loaders of both tasks share: where files are looked for, how they are opened, what is wrong with them."""

from __future__ import annotations

import bz2
import difflib
import gzip
import hashlib
import math
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

DAMAGE = (EOFError, OSError, zlib.error)
"""What reading a file that is cut off or not what its name says raises."""


class DataError(ValueError):
    """A data set is missing, damaged or not what it should be; one line, which says what to do."""


class FileCheck(NamedTuple):
    """One file of a set: its name, where it was found, and what its checksum says of it."""

    file: str
    path: Path | None
    status: str
    is_optional: bool = False  # a set is complete without it


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


def looked_at(folders: Iterable[Path]) -> str:
    """Folders as a message names them."""
    return ", ".join(str(f) if f.is_dir() else f"{f} (no such folder)" for f in folders) or "no folder"


def existing(spec: str) -> tuple[Path, Path | None] | None:
    """The files that TRAIN or TRAIN:TEST names; None if they are not there."""
    if os.path.exists(spec):
        return Path(spec), None
    for i in inner_colons(spec):  # a path may hold a colon itself
        if os.path.exists(spec[:i]) and os.path.exists(spec[i + 1 :]):
            return Path(spec[:i]), Path(spec[i + 1 :])
    return None


def inner_colons(spec: str) -> list[int]:
    """Where TRAIN may end and TEST begin."""
    return [i for i, letter in enumerate(spec) if letter == ":" and 0 < i < len(spec) - 1]


def is_path(spec: str) -> bool:
    """Whether this cannot be a name."""
    return "/" in spec or os.sep in spec or "." in spec


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is close, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}? " if close else ""


# Reading


def require_file(path: Path, give: str) -> None:
    """Refuses what is no file; `give` says what to give."""
    if os.path.isdir(path):
        raise DataError(f"{path}: is a folder; give {give}.")
    if not os.path.isfile(path):
        raise DataError(f"{path}: no such file; give {give}.")


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the file's permissions.") from error


def unpacked(path: Path) -> Any:  # Any: overloads of open
    """The bytes of a file, plain or compressed, as a stream."""
    openers: dict[str, Any] = {".bz2": bz2.open, ".gz": gzip.open}
    return openers.get(path.suffix, open)(path, "rb")


def damaged(path: Path, line: int, error: BaseException) -> DataError:
    """What to raise when reading fails with one of `DAMAGE`."""
    detail = getattr(error, "strerror", None) or str(error)
    return DataError(f"{path}: line {line}: cut off or damaged ({detail}); get the file again.")


# Saying what is wrong with a row


def shown(token: bytes) -> str:
    """A token as a message quotes it."""
    text = token.decode("utf-8", "replace")
    return repr(text if len(text) <= 30 else text[:30] + "...")


def index_fault(pair: bytes, index: int, previous: int, most: int, why: str = "") -> str | None:
    """What is wrong with the index of a feature; None if it is sound."""
    if index < 1:
        return f"feature index {index} in {shown(pair)}; number the features from 1"
    if index > most:
        return f"feature index {index} is too large; at most {most} is allowed{why}"
    if index <= previous:
        return f"feature index {index} follows {previous}; sort the indices of a row, each once"
    return None


def value_fault(pair: bytes, value: float) -> str | None:
    """What is wrong with the value of a feature, NaN for what is no number; None if it is sound."""
    if math.isfinite(value):
        return None
    is_number = pair.partition(b":")[2].lstrip(b"+-").lower() in (b"nan", b"inf", b"infinity")
    verb = "is not finite" if is_number or math.isinf(value) else "is not a number"
    return f"the value in {shown(pair)} {verb}; replace it or leave the feature out"
