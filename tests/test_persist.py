"""Saved state: an open format, whole or not at all, and back with the same bits."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark import persist
from seamark.persist import load_state, save_state

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
states = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return type(a) is type(b) and a == b


@given(st.dictionaries(st.text().filter(lambda k: not k.startswith("__")), states, max_size=4))
def test_plain_values_come_back_equal(tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]) -> None:
    """Numbers, texts, nesting, infinities and NaN survive."""
    path = tmp_path_factory.mktemp("state") / "s.npz"
    save_state(path, state)

    assert same(load_state(path), state)


def test_arrays_come_back_with_type_and_bits(tmp_path: Path) -> None:
    """Every array keeps dtype, shape and bits; numpy scalars become plain ones; big integers stay exact."""
    arrays = [np.array([1.5, np.nan, -0.0]), np.arange(3, dtype=np.int32), np.zeros((0, 2)), np.array([True])]
    save_state(tmp_path / "s", {"arrays": arrays, "pair": (np.float64(0.1), np.int64(3)), "big": 2**127 + 1})
    back = load_state(tmp_path / "s")

    for one, two in zip(arrays, back["arrays"]):
        assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
    assert back["pair"] == [0.1, 3]
    assert back["big"] == 2**127 + 1


def test_nothing_executable_is_saved(tmp_path: Path) -> None:
    """Objects are refused at saving, not pickled."""
    with pytest.raises(TypeError, match="array of objects"):
        save_state(tmp_path / "s", {"a": np.array([object()])})
    with pytest.raises(TypeError, match="a object cannot be saved in an open format"):
        save_state(tmp_path / "s", {"a": object()})
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole or not at all: the old file is replaced only by a complete new one."""
    path = tmp_path / "s.npz"
    save_state(path, {"n": 1})

    def crash(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(persist.os, "replace", crash)
    with pytest.raises(OSError, match="disk full"):
        save_state(path, {"n": 2})

    assert load_state(path) == {"n": 1}


def test_what_is_not_a_saved_state_is_refused_with_its_path(tmp_path: Path) -> None:
    """Missing, empty, truncated, foreign and newer files: one sentence that names the file."""
    good = tmp_path / "good.npz"
    save_state(good, {"n": 1, "a": np.arange(100)})
    cases = {
        "missing": None,
        "empty": b"",
        "truncated": good.read_bytes()[:200],
        "text": b"hello, this is not an archive",
    }
    for name, content in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}: not a saved Seamark state"):
            load_state(path)
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    with pytest.raises(ValueError, match="not a saved Seamark state"):
        load_state(tmp_path / "other.npz")
    np.save(tmp_path / "array.npy", np.arange(3))
    with pytest.raises(ValueError, match="not a saved Seamark state"):
        load_state(tmp_path / "array.npy")
    with zipfile.ZipFile(tmp_path / "no-numpy.zip", "w") as archive:
        archive.writestr("x.txt", "x")
    with pytest.raises(ValueError, match="not a saved Seamark state"):
        load_state(tmp_path / "no-numpy.zip")


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state of a later version says so."""
    monkeypatch.setattr(persist, "FORMAT", 2)
    save_state(tmp_path / "s", {})
    monkeypatch.undo()

    with pytest.raises(ValueError, match="format 2; this version reads format 1"):
        load_state(tmp_path / "s")
