"""Downloading published data sets: resumed where it stopped, verified where a checksum is known."""

from __future__ import annotations

import bz2
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from seamark import __version__
from seamark.worlds.catalogue import DataFile, FileStatus
from seamark.worlds.datasets import find_set
from seamark.worlds.files import DataError, file_sha256
from seamark.worlds.letor_catalogue import RANKING_CATALOGUE, SYNTHETIC

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes at hand, and the bytes in all where the server tells."""

TIMEOUT_SECONDS = 60.0
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Fetched:
    """One file after `fetch`; `is_new` is False when it was there already."""

    name: str
    path: Path
    sha256: str
    status: Literal["official", "rebuilt", "no published checksum"]
    is_new: bool


def fetch(
    name: str,
    folder: Path,
    *,
    base_url: str | None = None,
    progress: Progress | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> tuple[Fetched, ...]:
    """The files of a named set, downloaded into its sub-folder of `folder`; none if it has no files.

    `base_url` names a mirror: the address of a folder that has the files under their own names. A file
    appears under its name only when it is whole and, where a checksum is known, verified.
    """
    if (reason := withheld(name)) is not None:
        raise DataError(f"{name}: {reason}.")
    files = () if name == SYNTHETIC else find_set(name).files
    if base_url is None:
        _require_addresses(name, files)
    return tuple(
        _fetch_file(
            file,
            Path(folder) / file.folders[0] / file.name,
            f"{base_url.rstrip('/')}/{file.name}" if base_url is not None else str(file.address),
            progress or (lambda _name, _done, _total: None),
            timeout,
        )
        for file in files
    )


def _require_addresses(name: str, files: tuple[DataFile, ...]) -> None:
    for file in files:
        if file.address is None:
            raise DataError(
                f"{name}: {file.name} has no official address; "
                "set SEAMARK_DATA to a folder that has it, or name a mirror (--base-url)."
            )


def withheld(name: str) -> str | None:
    """Why a set cannot be downloaded from anywhere, whom to ask and where to put it; None if that is not so."""
    row = RANKING_CATALOGUE.get(name.partition(":")[0])
    return row.remedy if row is not None else None


def _fetch_file(file: DataFile, target: Path, url: str, progress: Progress, timeout: float) -> Fetched:
    if os.path.isfile(target):
        sha256 = file_sha256(target)
        status = file.status(sha256)
        is_wanted = status == "official" or file.address is None
        if is_wanted or (status != "rebuilt" and file.official_sha256 is None):
            return Fetched(file.name, target, sha256, _named_status(status), is_new=False)
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _download(file.name, url, part, progress, timeout)
        sha256 = _verify(file, url, part)
        os.replace(part, target)
    except OSError as error:
        raise DataError(
            f"{file.name}: cannot write {error.filename or part} ({error.strerror or error}); "
            "name another folder (--folder)."
        ) from error
    return Fetched(file.name, target, sha256, _named_status(file.status(sha256)), is_new=True)


def _named_status(status: FileStatus) -> Literal["official", "rebuilt", "no published checksum"]:
    return status if status in ("official", "rebuilt") else "no published checksum"


def _verify(file: DataFile, url: str, part: Path) -> str:
    """The sha256 of a complete download; what is not the file that was asked for is removed."""
    sha256 = file_sha256(part)
    if file.official_sha256 is not None:
        expected = [file.official_sha256]
    else:  # files without an address are known by their rebuilt checksum, all others by none
        expected = list(file.checksums) if file.address is None else []
    if expected and sha256 not in expected:
        part.unlink()
        raise DataError(
            f"{file.name}: {url} has sha256 {sha256}, not {expected[0]}; removed. Try again or use another mirror."
        )
    if not expected and not _is_whole_bz2(part):
        part.unlink()
        raise DataError(f"{file.name}: {url} is no whole bz2 file; removed. Try again or use another mirror.")
    return sha256


def _is_whole_bz2(path: Path) -> bool:
    """Whether a file decompresses to its end: for some files bz2's own check sums are the only ones."""
    try:
        with bz2.open(path, "rb") as stream:
            n_bytes = sum(map(len, iter(lambda: stream.read(1 << 20), b"")))
    except (OSError, EOFError):
        return False
    return n_bytes > 0


def _download(name: str, url: str, part: Path, progress: Progress, timeout: float) -> None:
    """Bring `part` to its full length, from where it ends if the server can do that."""
    offset = part.stat().st_size if part.exists() else 0
    response = _open(name, url, offset, timeout)
    if response is None:  # the server cannot go on from here
        offset = 0
        response = _open(name, url, offset, timeout)
        if response is None:
            raise DataError(f"{name}: {url} answers a plain request with a part; use another mirror.")
    with response:
        if response.status != http.client.PARTIAL_CONTENT:
            offset = 0
        length = response.headers.get("Content-Length", "")
        total = offset + int(length) if length.isdigit() else None
        done = offset
        progress(name, done, total)
        with part.open("ab" if offset else "wb") as stream:
            while block := _read(name, url, response, done):
                stream.write(block)
                done += len(block)
                progress(name, done, total)
    if total is not None and done < total:
        raise DataError(f"{name}: {url} ended after {done} of {total} bytes; run again to resume.")


def _open(name: str, url: str, offset: int, timeout: float) -> Any:  # Any: urlopen's own return type
    """The answer to a request from byte `offset` on; None if the server sends another part than asked for."""
    if not re.match(r"https?://", url):
        raise DataError(f"{name}: {url} is not an http or https address.")
    headers = {"User-Agent": f"seamark/{__version__}", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if offset and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return None
        raise DataError(
            f"{name}: {url} answered {error.code} {error.reason}; try later or name a mirror (--base-url)."
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise DataError(
            f"{name}: cannot reach {url} ({reason}); check the network or name a mirror (--base-url)."
        ) from error
    if response.status == http.client.PARTIAL_CONTENT:
        sent = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if not offset or sent is None or int(sent[1]) != offset:
            response.close()
            return None
    return response


def _read(name: str, url: str, response: Any, done: int) -> bytes:
    try:
        return bytes(response.read(_BLOCK))
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"{name}: {url} broke off after {done} bytes ({reason}); run again to resume.") from error
