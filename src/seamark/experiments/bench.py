"""Speed: rounds per second of every method, beside a hand-written NumPy loop measured in the same run.

Rates are per second of CPU of the one thread that works, after warm-up: on a shared machine wall time measures the
neighbours. What is timed is the loop that a run performs (draws, acting, learning, checks), not its evaluation.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from seamark import __version__
from seamark.experiments.cell import GatedAgent, OnlineAgent, evaluation_rounds, legs
from seamark.experiments.methods import METHODS, Setting, acting_form, baseline_options, method_options, normals
from seamark.experiments.methods import too_large as is_too_large
from seamark.explorer import Explorer
from seamark.gates import Schedule
from seamark.randomness import Stream, stream
from seamark.rounds import Csr
from seamark.worlds.datasets import DataError, load
from seamark.worlds.supervised import Baseline, SupervisedWorld, train_baseline

ROUNDS = {"linucb": 10_000, "thompson": 10_000, "clucb": 10_000, "sea": 100_000, "bsea": 100_000}
"""Rounds per measurement; 100,000 for gated methods, so that their checks are those of a run; 500,000 for others."""

METHODS_TIMED = ("epsilon-greedy", "boltzmann", "ips", "sea", "bsea", "linucb", "thompson", "clucb")
SETS = ("usps", "news20", "rcv1")
SHAPES = {"usps": (7291, 256, 0, 10), "news20": (15_935, 62_061, 80, 20), "rcv1": (15_564, 47_236, 70, 53)}
"""Contexts, features, non-zeros per context (0: dense) and actions, for sets that are generated when absent."""


def world_for(name: str) -> SupervisedWorld:
    """The real set where it is present, else one of its shape, named so."""
    try:
        return SupervisedWorld.of(load(name))
    except DataError:
        return shaped(name)


def shaped(name: str) -> SupervisedWorld:
    """A generated set with the shape of a real one: Zipf features, labels linear in them."""
    n, d, nnz, k = SHAPES[name]
    rng = np.random.default_rng(20200406)
    features: Any
    if nnz:
        indices = np.sort(np.minimum((d ** rng.random((n, nnz))).astype(np.int32), d - 1), axis=1)
        data = rng.random((n, nnz)) / np.sqrt(nnz)
        features = Csr(np.arange(0, n * nnz + 1, nnz, dtype=np.int64), indices.ravel(), data.ravel(), d)
        codes = rng.normal(size=(d, 4))
        projected = (data[:, :, None] * codes[indices]).sum(axis=1) @ rng.normal(size=(4, k))
    else:
        features = rng.normal(size=(n, d)) / 4
        projected = features @ rng.normal(size=(d, k))
    labels = projected.argmax(axis=1).astype(np.int64)
    return SupervisedWorld(f"{name}-shaped", features, labels, features, labels, k, 1.0, 0.0)


def yardstick(world: SupervisedWorld, rounds: int) -> None:
    """The yardstick = 1.0: epsilon-greedy as one would write it in NumPy, on dense contexts."""
    rng = np.random.default_rng(0)
    features, labels = world.features, world.labels
    assert isinstance(features, np.ndarray)
    weights = np.zeros((world.n_actions, features.shape[1]))
    n, k = features.shape[0], world.n_actions
    for _ in range(rounds):
        i = int(rng.random() * n)
        x = features[i]
        scores = weights @ x
        action = int(rng.random() * k) if rng.random() < 0.05 else int(scores.argmax())
        reward = 1.0 if action == labels[i] else 0.0
        weights[action] -= 0.001 * (scores[action] - reward) * x


def runner(name: str, world: SupervisedWorld, rounds: int, *, check: str = "published") -> Callable[[], None]:
    """One run of a method under the released semantics, without evaluation."""
    data = world.name.removesuffix("-shaped")
    base = baseline_options(data, "boltzmann", world.n_contexts, world.n_actions)
    baseline = _baseline(world, base)
    options = method_options(name, data=data, rewards="perfect", baseline="boltzmann", tau=base["tau"], norm=world.norm)
    schedule = Schedule.parse(check)

    def run() -> None:
        method, setting = METHODS[name], Setting("released", 0.05, 0.0)
        learner: Any = method.learner(options, world, baseline, setting)
        agent: GatedAgent | OnlineAgent
        if method.gate is not None:
            gate = method.gate(options, world, setting)
            agent = GatedAgent(Explorer(baseline.policy, learner=learner, gate=gate, schedule=schedule), world)
        else:
            agent = OnlineAgent(learner, world)
        from seamark.learners.base import Draws

        contexts, actions, rewards = (stream(0, r) for r in (Stream.CONTEXTS, Stream.ACTIONS, Stream.REWARDS))
        t = 0
        checks = schedule if name in ("sea", "bsea", "seamark") else None
        for end in legs(rounds, checks, evaluation_rounds(rounds)):
            n, t = end - t, end
            agent.step(Draws(world.contexts(contexts.random(n)), actions.random(n), rewards.random(n), normals(0)))

    return run


def _baseline(world: SupervisedWorld, base: dict[str, Any]) -> Baseline:
    return train_baseline(
        world, seed=4200, fraction=base["fraction"], lr=base["lr"], epochs=base["epochs"],
        acts=acting_form("boltzmann", base["tau"], 0.0),
    )  # fmt: skip


def best_rate(run: Callable[[], None], rounds: int, repeats: int) -> float:
    """Rounds per CPU second of this thread, the best of several."""
    if repeats < 1:
        raise ValueError(f"--repeats {repeats}: must be at least 1.")
    best = 0.0
    for _ in range(repeats):
        start = time.thread_time()
        run()
        best = max(best, rounds / (time.thread_time() - start))
    return best


def bench_classification(
    sets: tuple[str, ...] = SETS, methods: tuple[str, ...] = METHODS_TIMED, *, repeats: int = 3
) -> Iterator[dict[str, Any]]:
    """Rows {data, method, rounds, rounds_per_second, ratio}, or with `skipped`; the yardstick is row one."""
    usps = world_for("usps")
    best_rate(lambda: yardstick(usps, 2_000), 2_000, 1)

    def standard() -> float:
        return best_rate(lambda: yardstick(usps, 50_000), 50_000, repeats)

    unit = standard()
    yield _row(usps.name, "yardstick (NumPy epsilon-greedy)", 50_000, unit, unit)
    for data in sets:
        world = usps if data == "usps" else world_for(data)
        for name in methods:
            rounds = ROUNDS.get(name, 500_000)
            options = method_options(name, data=data, rewards="perfect", baseline="boltzmann", tau=0.5)
            if (reason := is_too_large(name, options, world)) is not None:
                yield {"data": world.name, "method": name, "skipped": reason}
                continue
            if METHODS[name].is_ridge and not isinstance(world.features, np.ndarray):
                yield {"data": world.name, "method": name, "skipped": "needs dense contexts"}
                continue
            runner(name, world, 2_000)()  # compiles, fills caches
            unit = max(unit, standard())  # the fastest that the yardstick was ever seen
            yield _row(world.name, name, rounds, best_rate(runner(name, world, rounds), rounds, repeats), unit)


def bench_growth(rounds: tuple[int, ...] = (10_000, 100_000, 1_000_000)) -> Iterator[dict[str, Any]]:
    """Time against rounds, which must be a line: SEA with a check every 1,000 rounds, and epsilon-greedy."""
    usps = world_for("usps")
    for name in ("sea", "epsilon-greedy"):
        runner(name, usps, 2_000)()
        for n in rounds:
            rate = best_rate(runner(name, usps, n), n, 1)
            yield {"data": usps.name, "method": name, "rounds": n, "seconds": n / rate, "rounds_per_second": rate}


def _row(data: str, method: str, rounds: int, rate: float, unit: float) -> dict[str, Any]:
    return {"data": data, "method": method, "rounds": rounds, "rounds_per_second": rate, "ratio": rate / unit}


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import numba
    import scipy

    return {
        "machine": platform.machine(), "python": platform.python_version(), "numpy": np.__version__,
        "scipy": scipy.__version__, "numba": numba.__version__, "seamark": __version__,
    }  # fmt: skip


# -- peers ---------------------------------------------------------------------------------------------------------


def bench_vowpal_wabbit(rounds: int = 50_000) -> Iterator[dict[str, Any]]:
    """Vowpal Wabbit on the same set, from Python and from a file, where it is installed."""
    try:
        import vowpalwabbit
    except ImportError:
        yield {"data": "usps", "method": "Vowpal Wabbit", "skipped": "vowpalwabbit is not installed"}
        return
    import tempfile
    from pathlib import Path

    world = world_for("usps")
    features = world.features
    assert isinstance(features, np.ndarray)
    rng = np.random.default_rng(0)
    rows = world.contexts(rng.random(rounds))
    texts = ["| " + " ".join(f"{j}:{v:.4g}" for j, v in enumerate(x) if v) for x in features]
    k = world.n_actions

    def from_python() -> None:
        vw = vowpalwabbit.Workspace(f"--cb_explore {k} --epsilon 0.05 --quiet")
        uniforms = rng.random(rounds)
        for i, u in zip(rows.tolist(), uniforms.tolist()):
            p = vw.predict(texts[i])
            a = min(int(np.searchsorted(np.cumsum(p), u)), k - 1)
            vw.learn(f"{a + 1}:{0.0 if a == world.labels[i] else 1.0}:{p[a]} {texts[i]}")
        vw.finish()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "usps.vw"
        path.write_text("".join(f"{world.labels[i] + 1} {texts[i]}\n" for i in rows))

        def from_file() -> None:
            vowpalwabbit.Workspace(f"--cbify {k} --epsilon 0.05 --quiet --no_stdin -d {path}").finish()

        unit = best_rate(lambda: yardstick(world, 50_000), 50_000, 2)
        for name, run in (("Vowpal Wabbit, from Python", from_python), ("Vowpal Wabbit, from a file", from_file)):
            start = time.process_time()  # its parser is a second thread
            run()
            yield _row(world.name, name, rounds, rounds / (time.process_time() - start), unit)


__all__ = ["bench_classification", "bench_growth", "bench_vowpal_wabbit", "machine"]
