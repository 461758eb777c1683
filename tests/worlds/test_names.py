"""A set that is given to the other task is refused with the task that it is for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seamark.cli import main
from seamark.worlds import datasets
from seamark.worlds.files import DataError
from seamark.worlds.letor_catalogue import SYNTHETIC


@pytest.mark.parametrize("spec", ["mq2007", "mq2007:fold2", f"{SYNTHETIC}:queries=50"])
def test_a_ranking_set_given_to_classification_is_told_the_task(
    spec: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["seamark", "run", "--data", spec])

    with pytest.raises(SystemExit) as stopped:
        main()

    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        f"seamark: {spec!r} is a ranking set: use --task ranking (in Python, seamark.worlds.letor.load).\n"
    )


def test_a_classification_set_given_to_ranking_is_told_the_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["seamark", "run", "--task", "ranking", "--data", "usps"])

    with pytest.raises(SystemExit) as stopped:
        main()

    assert stopped.value.code == 2
    assert "'usps' is a classification set: use --task classification" in capsys.readouterr().err


def test_a_file_goes_before_the_hint_at_the_other_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may have the name of a set of the other task; a path never is a name."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        datasets.load("mq2007:./test.svm")
    Path("mq2007").write_text("".join(f"{i % 2} 1:{i}\n" for i in range(40)), "utf-8")

    assert datasets.load("mq2007").n_actions == 2
