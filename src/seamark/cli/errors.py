"""Exit codes and one-line errors."""

from __future__ import annotations

import sys
from typing import NoReturn

DONE, FAILED, BAD_INPUT, HOLD, BLOCKED = range(5)


def fail(message: str, code: int = FAILED) -> NoReturn:
    """One line on stderr, then the exit code."""
    sys.stderr.write("seamark: " + " ".join(message.split()) + "\n")
    sys.exit(code)
