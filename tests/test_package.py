"""The package: what it exports, and what importing it does not bring in."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

import seamark

HEAVY = ("numba", "scipy", "sklearn", "matplotlib", "typer", "rich", "pandas", "duckdb", "pyarrow", "starlette")


@pytest.mark.parametrize("module", ["seamark", "seamark.estimation", "seamark.gates", "seamark.policies"])
def test_every_exported_name_exists(module: str) -> None:
    """`__all__` is sorted, without repetition, and true."""
    package = importlib.import_module(module)

    assert sorted(set(package.__all__)) == sorted(package.__all__)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_importing_the_package_brings_in_numpy_only() -> None:
    """A process that only wants to score a log does not wait for compilers, plotting or the web."""
    code = "import json, sys, seamark; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))

    assert "numpy" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_the_version_is_a_version() -> None:
    """Three numbers."""
    assert all(part.isdigit() for part in seamark.__version__.split("."))
    assert seamark.__version__.count(".") == 2
