"""Exit codes and one-line errors."""

from __future__ import annotations

import errno
import sys
from typing import NoReturn

DONE, FAILED, BAD_INPUT, HOLD, BLOCKED = range(5)
INTERRUPTED = 130  # as a shell has it: 128 + SIGINT

_OF_PATHS = (
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENAMETOOLONG,
    errno.ELOOP, errno.EROFS, errno.EINVAL,
)  # fmt: skip


def fail(message: str, code: int = FAILED) -> NoReturn:
    """One line on stderr, then the exit code."""
    sys.stderr.write("seamark: " + " ".join(message.split()) + "\n")
    sys.exit(code)


def code_of(error: Exception) -> int:
    """Bad input, unless the system failed: no space left, a broken pipe, a lost connection."""
    if not isinstance(error, OSError):
        return BAD_INPUT
    if isinstance(error, (ConnectionError, TimeoutError)):
        return FAILED
    # without a number it is what a reader says of a file, such as a damaged archive
    return BAD_INPUT if error.errno is None or error.errno in _OF_PATHS else FAILED
