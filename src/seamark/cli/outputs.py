"""Where results go: refused before anything runs if nothing can be written there."""

from __future__ import annotations

import os
from pathlib import Path


def require_writable(folder: Path, option: str = "--out") -> None:
    """Makes the folder; raises ValueError, with the option named, where no file can be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}.part"
        probe.touch()
        probe.unlink()
    except OSError as error:
        why = error.strerror or error
        raise ValueError(f"{option} {folder}: cannot be written ({why}); choose another folder.") from None


def require_writable_file(path: Path, option: str) -> None:
    """Makes the folder that the file goes to; raises ValueError, with the option named, where it cannot be written."""
    is_new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
        if is_new:
            path.unlink()
    except OSError as error:
        why = error.strerror or error
        raise ValueError(f"{option} {path}: cannot be written ({why}); choose another file.") from None
