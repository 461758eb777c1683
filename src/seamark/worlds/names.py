"""Which task a known name belongs to, and what to say where it is given to the other one."""

from __future__ import annotations

from typing import Literal, TypeAlias

from seamark.worlds.catalogue import CATALOGUE
from seamark.worlds.files import DataError, did_you_mean, is_path
from seamark.worlds.letor_catalogue import RANKING_CATALOGUE, SYNTHETIC

Task: TypeAlias = Literal["classification", "ranking"]


def known_task(spec: str) -> Task | None:
    """The task of a known name, of `mq2007:fold2`, or of `letor-synthetic:...`; None if the name is not known."""
    if spec in CATALOGUE:
        return "classification"
    is_ranking = spec.partition(":")[0] in (*RANKING_CATALOGUE, SYNTHETIC)
    return "ranking" if is_ranking and not is_path(spec) else None


def task_of(spec: str) -> Task:
    """The task of a known name; a DataError that lists the names of both tasks if it is not known."""
    task = known_task(spec)
    if task is None:
        known = [*CATALOGUE, *RANKING_CATALOGUE, SYNTHETIC]
        hint = did_you_mean(spec.partition(":")[0], known)
        raise DataError(f"{spec!r} is not a known data set; {hint}Known: {', '.join(known)}.")
    return task


def refuse_other_task(spec: str, wanted: Task) -> None:
    """A DataError if `spec` is known, but as a set of the task that is not `wanted`."""
    task = known_task(spec)
    if task not in (None, wanted):
        loader = {"classification": "datasets", "ranking": "letor"}[str(task)]
        raise DataError(f"{spec!r} is a {task} set: use --task {task} (in Python, seamark.worlds.{loader}.load).")
