"""Saving state in an open format: one .npz of plain arrays and JSON, never pickle."""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1


def save_state(path: str | Path, state: dict[str, Any]) -> None:
    """Writes nested dicts and lists of arrays and plain values, whole or not at all."""
    path = Path(path)
    arrays: dict[str, Any] = {}
    text = json.dumps({"format": FORMAT, "state": _pack(state, arrays)})
    buffer = io.BytesIO()
    np.savez(buffer, **arrays, json=np.frombuffer(text.encode(), dtype=np.uint8))
    part = path.with_name(path.name + f".{os.getpid()}.part")
    part.write_bytes(buffer.getvalue())
    os.replace(part, path)


def load_state(path: str | Path) -> dict[str, Any]:
    """What `save_state` wrote."""
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as data:
            document = json.loads(bytes(data["json"]).decode())
            if document.get("format") != FORMAT:
                raise ValueError(f"{path}: format {document.get('format')}; this version reads format {FORMAT}.")
            state: dict[str, Any] = _unpack(document["state"], data)
            return state
    except (zipfile.BadZipFile, KeyError, OSError, EOFError) as error:
        raise ValueError(f"{path}: not a saved Seamark state ({error}).") from None


def _pack(value: Any, arrays: dict[str, Any]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            raise TypeError("state: an array of objects cannot be saved.")
        arrays[key := f"a{len(arrays)}"] = value
        return {"__array__": key}
    if isinstance(value, dict):
        return {str(k): _pack(v, arrays) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_pack(v, arrays) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"__float__": repr(value)}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"state: a {type(value).__name__} cannot be saved in an open format.")


def _unpack(value: Any, data: Any) -> Any:
    if isinstance(value, dict):
        if "__array__" in value:
            return data[value["__array__"]]
        if "__float__" in value:
            return float(value["__float__"])
        return {k: _unpack(v, data) for k, v in value.items()}
    if isinstance(value, list):
        return [_unpack(v, data) for v in value]
    return value
