"""Which cells a scale has, and running them: in parallel, resumable."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamark.experiments.run import read_cell, write_json
from seamark.experiments.safety.cell import RESULT, SafetyCell, run_cell
from seamark.experiments.safety.gates import GATES
from seamark.experiments.safety.learners import FIXED, LEARNERS
from seamark.experiments.safety.worlds import FIXED_WORLDS, WORLDS


@dataclass(frozen=True)
class Scale:
    """Seeds, rounds by learner, and the (learner, world) pairs that are run; fixed candidates are learner `fixed`."""

    seeds: int
    rounds: dict[str, int]
    pairs: tuple[tuple[str, str], ...]
    gates: tuple[str, ...] = tuple(GATES)
    check: int = 500
    about: str = ""


_LEARNED_WORLDS = tuple(w for w in WORLDS if w not in FIXED_WORLDS and w != "drift")
_FIXED_PAIRS = ((FIXED, "null"), (FIXED, "worse"))
SCALES: dict[str, Scale] = {
    "tiny": Scale(
        2,
        {"tree": 5_000, "logistic": 4_000, "ridge": 6_000, FIXED: 6_000, "drift": 12_000},
        (
            ("tree", "digits-near-random-strong"),
            ("logistic", "digits-near-random-strong"),
            ("ridge", "digits-perfect-weak"),
            (FIXED, "null"),
            ("ridge", "drift"),
        ),
        about="tree and logistic regression where the paper's gate fails, ridge where all is well, null, drift",
    ),
    "laptop": Scale(
        6,
        {
            "tree": 10_000, "logistic": 8_000, "forest": 6_000, "ridge": 40_000, "sgd": 40_000, FIXED: 20_000,
            "drift": 30_000,
        },
        (
            ("tree", "digits-near-random-strong"), ("tree", "digits-near-random-weak"), ("tree", "digits-perfect-weak"),
            ("forest", "digits-near-random-strong"), ("logistic", "digits-near-random-strong"),
            ("ridge", "digits-perfect-weak"), ("ridge", "digits-near-random-strong"), ("sgd", "digits-perfect-weak"),
            ("sgd", "digits-near-random-weak"), ("sgd", "text-near-random-strong"), ("sgd", "text-perfect-weak"),
            ("logistic", "text-near-random-strong"), *_FIXED_PAIRS, ("ridge", "drift"),
        ),
        about="every learner, every kind of world",
    ),
    "full": Scale(
        20,
        {
            "tree": 10_000, "logistic": 8_000, "forest": 6_000, "ridge": 40_000, "sgd": 40_000, FIXED: 20_000,
            "drift": 40_000,
        },
        (*((le, w) for le in LEARNERS for w in _LEARNED_WORLDS), *_FIXED_PAIRS, ("ridge", "drift")),
        about="everything",
    ),
}  # fmt: skip


def plan_cells(
    scale: str = "laptop",
    *,
    gates: Iterable[str] = (),
    learners: Iterable[str] = (),
    worlds: Iterable[str] = (),
    seeds: int = 0,
    first_seed: int = 4200,
    delta: float = 0.05,
) -> list[SafetyCell]:
    """The cells of a scale. Named learners and worlds are all combined, whether or not the scale pairs them."""
    chosen = SCALES[_known("scale", scale, SCALES)]
    gates, learners, worlds = tuple(gates) or chosen.gates, tuple(learners), tuple(worlds)
    for kind, names, known in (("gates", gates, GATES), ("worlds", worlds, WORLDS)):
        for name in names:
            _known(kind, name, known)
    for name in learners:
        _known("learners", name, {**LEARNERS, FIXED: None})
    pairs: list[tuple[str, str]] = [
        p for p in chosen.pairs if (not learners or p[0] in learners) and (not worlds or p[1] in worlds)
    ]
    if learners and worlds:
        pairs = [(le, w) for le in learners for w in worlds if (le == FIXED) == (w in FIXED_WORLDS)]
    elif worlds:
        pairs += [(FIXED, w) for w in worlds if w in FIXED_WORLDS and (FIXED, w) not in pairs]
        pairs += [(le, w) for w in worlds if not any(q[1] == w for q in pairs) for le in LEARNERS]
    elif learners:
        pairs += [(le, "digits-near-random-strong") for le in learners if not any(q[0] == le for q in pairs)]
    if not pairs:
        raise ValueError("learners, worlds: nothing is left to run; worlds null and worse go with the learner 'fixed'.")
    default = max(chosen.rounds.values())
    seeds = seeds or chosen.seeds
    return [
        SafetyCell(
            gate, learner, world, seed,
            chosen.rounds.get("drift" if world == "drift" else learner, default), chosen.check, delta,
        )
        for learner, world in pairs for gate in gates for seed in range(first_seed, first_seed + seeds)
    ]  # fmt: skip


def _known(kind: str, name: str, known: dict[str, Any]) -> str:
    if name not in known:
        raise ValueError(f"{kind}: {name!r} is not known; choose from {', '.join(known)}.")
    return name


def execute(
    cells: list[SafetyCell], out: Path | None = None, *, jobs: int = 1
) -> Generator[dict[str, Any], None, None]:
    """Results as they come; those that are in `out` are not run again. The first runs alone: it compiles for all.

    An interruption stops the runs that are under way; those that have ended are in `out`.
    """
    folder = None if out is None else out / "cells"
    todo = []
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        kept = _kept(cell, folder)
        if kept is None:
            todo.append(cell)
        else:
            yield kept

    def keep(result: dict[str, Any]) -> dict[str, Any]:
        if folder is not None:
            write_json(folder / f"{result['id']}.json", result)
        return result

    yield from _run(todo, jobs or os.cpu_count() or 1, keep)


def n_done(cells: list[SafetyCell], out: Path) -> int:
    """How many of the cells have ended and are in `out`."""
    return sum(_kept(cell, out / "cells") is not None for cell in cells)


def _kept(cell: SafetyCell, folder: Path | None) -> dict[str, Any] | None:
    return None if folder is None else read_cell(folder / f"{cell.id}.json", needs=RESULT)


Keep = Callable[[dict[str, Any]], dict[str, Any]]


def _run(cells: list[SafetyCell], jobs: int, keep: Keep) -> Iterator[dict[str, Any]]:
    alone = cells if jobs == 1 else cells[:1]
    for cell in alone:
        yield keep(_run_quietly(cell))
    if len(alone) < len(cells):
        yield from _run_beside(cells[len(alone) :], jobs, keep)


def _run_beside(cells: list[SafetyCell], jobs: int, keep: Keep) -> Iterator[dict[str, Any]]:
    """Results of the cells in processes of their own; leaving early ends the processes and keeps what they returned."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    waiting: set[Future[dict[str, Any]]] = set()
    try:
        with _deaf():
            waiting |= {pool.submit(_run_quietly, cell) for cell in cells}
        for future in as_completed(set(waiting)):
            result = keep(future.result())
            waiting.remove(future)
            yield result
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        for future in waiting:
            if future.done() and not future.cancelled() and future.exception() is None:
                keep(future.result())
        raise


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that start inside do not hear Ctrl-C, which reaches all of a terminal; who started them ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run_quietly(cell: SafetyCell) -> dict[str, Any]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return run_cell(cell)
