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
        with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as archive:
            arrays = {
                name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
            }
        document = json.loads(arrays.pop("json").tobytes().decode())
        number = document["format"]
        state: dict[str, Any] = _unpack(document["state"], arrays) if number == FORMAT else {}
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: not a saved Seamark state ({error}).") from None
    if number != FORMAT:
        raise ValueError(f"{path}: format {number}; this version reads format {FORMAT}.")
    return state


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
