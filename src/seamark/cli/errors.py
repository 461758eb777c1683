"""Exit codes and one-line errors."""

from __future__ import annotations

import errno
import math
import sys
from typing import Any, NoReturn

import typer

DONE, FAILED, BAD_INPUT, HOLD, BLOCKED = range(5)
INTERRUPTED = 130  # as a shell has it: 128 + SIGINT

_OF_PATHS = (
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENAMETOOLONG,
    errno.ELOOP, errno.EROFS, errno.EINVAL,
)  # fmt: skip


def count(text: str) -> int:
    """A whole number as people write it.

    >>> count("100000") == count("1e5") == count("100_000")
    True
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer():
        raise typer.BadParameter(f"{text!r} is not a whole number, such as 100000 or 1e5.")
    return int(number)


def fail(message: str, code: int = FAILED) -> NoReturn:
    """One line on stderr, then the exit code."""
    sys.stderr.write("seamark: " + " ".join(message.split()) + "\n")
    sys.exit(code)


UsageError: Any = typer.BadParameter.__base__
"""Of click, which typer carries along under a name of its own."""


def code_of(error: Exception) -> int:
    """Bad input, unless the system failed: no space left, a broken pipe, a lost connection."""
    if not isinstance(error, OSError):
        return BAD_INPUT
    if isinstance(error, (ConnectionError, TimeoutError)):
        return FAILED
    # without a number it is what a reader says of a file, such as a damaged archive
    return BAD_INPUT if error.errno is None or error.errno in _OF_PATHS else FAILED
