"""Which tables and figures there are, at which scales they are made, and which runs they take."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seamark.experiments import methods as action_methods
from seamark.experiments import ranking_methods
from seamark.experiments.methods import Options
from seamark.experiments.paper.published import PAPER_SETS, noises
from seamark.worlds import datasets, letor
from seamark.worlds.catalogue import CATALOGUE
from seamark.worlds.letor_catalogue import RANKING_CATALOGUE

FIRST_SEED = 4200
SEMANTICS = ("released", "paper")
SUBSTITUTES = {"classification": ("reuters-r52",), "ranking": ("mq2007", "mq2008", "mslr-sample")}
METHODS = {  # of the paper's tables, then ours
    "classification": ("linucb", "thompson", "epsilon-greedy", "boltzmann", "ips", "bsea", "sea", "seamark"),
    "ranking": ("ranksvm-online", "dbgd", "ips", "bsea", "sea", "pdgd", "bubblerank", "seamark"),
}
PUBLISHED_METHODS = {
    "classification": METHODS["classification"][:-1],
    "ranking": METHODS["ranking"][:5],
}
SHARED = {
    "classification": (),  # the baseline differs
    "ranking": ("ranksvm-online", "dbgd", "ips", "pdgd", "bubblerank", "seamark", "seamark-swaps"),
}
"""Methods whose numbers are the same under both semantics: they run once, under `released`."""


@dataclass(frozen=True)
class Target:
    """One table or figure of the paper."""

    name: str
    title: str
    task: str | None = None  # None: needs no runs
    is_figure: bool = False


TARGETS = {
    t.name: t
    for t in (
        Target("datasets", "Data sets"),
        Target("click-noise", "Click noise"),
        Target("relevance", "Distribution of relevance grades"),
        Target("classification-online", "Held-out accuracy while training: classification", "classification", True),
        Target("ranking-online", "Held-out nDCG@10 while training: ranking", "ranking", True),
        Target("classification-cumulative", "Cumulative reward relative to the baseline", "classification"),
        Target("ranking-cumulative", "Cumulative nDCG@10 relative to the baseline", "ranking"),
        Target("classification-final", "Held-out accuracy of what was learned", "classification"),
        Target("ranking-final", "Held-out nDCG@10 of what was learned", "ranking"),
    )
}


CLUCB_FEATURES = 256
"""Features that CLUCB's contexts are hashed to where the set has more: it takes a matrix per round."""


@dataclass(frozen=True)
class RunSpec:
    """One run: what `seamark run` would be asked to do in the folder of this name."""

    task: str
    data: str
    noise: str
    semantics: str
    methods: tuple[str, ...]
    rounds: int
    seeds: int
    first_seed: int = FIRST_SEED
    overrides: dict[str, Options] = field(default_factory=dict)
    shared: tuple[str, ...] = ()  # methods whose cells are those of `lender`
    is_extra: bool = False
    """Longer than the main run of its folder: only in the columns that the main run does not reach."""

    @property
    def lender(self) -> RunSpec | None:
        """The run that the cells of the shared methods belong to; None where no method is shared."""
        return replace(self, semantics="released", methods=self.shared, shared=()) if self.shared else None

    @property
    def folder(self) -> str:
        """Name of the run's folder.

        >>> RunSpec("classification", "usps", "near-random", "released", ("sea",), 10, 1).folder
        'usps-near-random-released'
        """
        return "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", part) for part in (self.data, self.noise, self.semantics))

    def settings(self) -> dict[str, Any]:
        """The arguments of a RunConfig."""
        noise = {"clicks": self.noise} if self.task == "ranking" else {"rewards": self.noise}
        return {
            "task": self.task, "data": self.data, "methods": ",".join(self.methods), **noise,
            "semantics": self.semantics, "rounds": self.rounds, "seeds": self.seeds,
            "first_seed": self.first_seed, "overrides": self.overrides,
        }  # fmt: skip

    def command(self) -> str:
        """The `seamark run` command of this run, apart from jobs and verbosity."""
        noise = "--clicks" if self.task == "ranking" else "--rewards"
        task = "--task ranking " if self.task == "ranking" else ""
        sets = "".join(f" --set {m}.{k}={v}" for m, keys in self.overrides.items() for k, v in keys.items())
        seed = f" --first-seed {self.first_seed}" if self.first_seed != FIRST_SEED else ""
        return (
            f"seamark run {task}--data {self.data} {noise} {self.noise} --semantics {self.semantics} --methods "
            f"{','.join(self.methods)} --rounds {self.rounds} --seeds {self.seeds}{seed}{sets} --out {self.folder}"
        )


_LAST_COLUMN = RunSpec(
    "ranking", "mq2007", "perfect", "released", ("ranksvm-online", "ips", "bsea", "sea", "seamark"), 10**7, 3,
    is_extra=True,
)  # fmt: skip
"""The one run of the length of the ranking table's last column: 15 seeds of every set would take weeks."""


@dataclass(frozen=True)
class Scale:
    """How long and how often."""

    name: str
    rounds: dict[str, int]  # by task
    seeds: dict[str, int]  # by task
    data: dict[str, tuple[str, ...]]
    longest_clucb: int  # rounds; 0: not run
    extra: tuple[RunSpec, ...] = ()  # longer runs beside the main ones, of sets that are asked for


_TASKS = ("classification", "ranking")
SCALES = {
    s.name: s
    for s in (
        Scale(
            "tiny", dict.fromkeys(_TASKS, 2_000), dict.fromkeys(_TASKS, 2),
            {"classification": ("digits",), "ranking": ("letor-synthetic",)}, 0,
        ),
        Scale("laptop", dict.fromkeys(_TASKS, 10**5), dict.fromkeys(_TASKS, 5), PAPER_SETS, 10**4),
        Scale(
            "full", dict.fromkeys(_TASKS, 10**6), {"classification": 15, "ranking": 5}, PAPER_SETS, 10**5,
            (_LAST_COLUMN,),
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Missing:
    """A set, or a part of a run, that is not in the results, and what to do about it."""

    what: str
    why: str
    remedy: str = ""
    task: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" + (f" {self.remedy}" if self.remedy else "")


def brief(missing: Iterable[Missing]) -> list[Missing]:
    """The same with one line for all that lack the same thing for the same reason.

    >>> [str(one) for one in brief([Missing("a", "not there;"), Missing("b", "new."), Missing("c", "not there;")])]
    ['a; c: not there;', 'b: new.']
    """
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in missing:
        groups.setdefault((one.why, one.remedy, one.task), []).append(one.what)
    return [Missing("; ".join(dict.fromkeys(names)), *reason) for reason, names in groups.items()]


@dataclass(frozen=True)
class Wanted:
    """What a command asks for, settled."""

    targets: tuple[Target, ...]
    scale: Scale
    data: dict[str, tuple[str, ...]]  # by task; all of it is there
    missing: tuple[Missing, ...]
    runs: tuple[RunSpec, ...]

    @property
    def tasks(self) -> list[str]:
        return [t for t in ("classification", "ranking") if any(target.task == t for target in self.targets)]


def wanted(
    target: str = "all",
    *,
    scale: str = "laptop",
    data: str | None = None,
    semantics: str = "both",
    methods: str | None = None,
    rounds: int | None = None,
    seeds: int | None = None,
    first_seed: int = FIRST_SEED,
) -> Wanted:
    """Settles a command: which outputs, which sets are there, which are missing, which runs it takes."""
    if target not in (*TARGETS, "all"):
        raise ValueError(f"target: {target!r}; must be {', '.join(TARGETS)} or all.{_hint(target, TARGETS)}")
    if scale not in SCALES:
        raise ValueError(f"scale: {scale!r}; must be {', '.join(SCALES)}.")
    if semantics not in (*SEMANTICS, "both"):
        raise ValueError(f"semantics: {semantics!r}; must be {', '.join(SEMANTICS)} or both.")
    for name, count in (("rounds", rounds), ("seeds", seeds)):
        if count is not None and count < 1:
            raise ValueError(f"{name}: {count}; must be at least 1.")
    targets = tuple(TARGETS.values()) if target == "all" else (TARGETS[target],)
    size = SCALES[scale]
    tasks = _tasks(targets)
    asked = _names(data, size, target, tasks)
    chosen = _chosen(methods, target)
    if not any(t.task for t in targets):
        for option, value in (("methods", methods), ("rounds", rounds), ("seeds", seeds)):
            if value is not None:
                raise ValueError(f"{option}: {value}; {target} takes no runs. Leave --{option} out.")
    present: dict[str, tuple[str, ...]] = {}
    missing: list[Missing] = []
    for task in tasks:
        lacks = {name: absent(task, name) for name in asked[task]}
        present[task] = tuple(name for name, lack in lacks.items() if lack is None)
        missing += [lack for lack in lacks.values() if lack is not None]
    runs = []
    for task in ("classification", "ranking"):
        if any(t.task == task for t in targets):
            for name in present[task]:
                for sem in SEMANTICS if semantics == "both" else (semantics,):
                    for noise in noises(task):
                        runs += _runs(task, name, noise, sem, size, chosen[task], rounds, seeds, first_seed)
    if rounds is None:  # no length of the user's own
        runs += _extras(size, [t.task for t in targets], present, semantics, chosen, seeds, first_seed)
    return Wanted(targets, size, present, tuple(missing), tuple(runs))


def _tasks(targets: Sequence[Target]) -> list[str]:
    """The tasks whose sets the targets need."""
    needed = {t.task for t in targets}
    for target in targets:
        needed |= {"datasets": {"classification", "ranking"}, "relevance": {"ranking"}}.get(target.name, set())
    return [task for task in ("classification", "ranking") if task in needed]


def _chosen(methods: str | None, target: str) -> dict[str, tuple[str, ...] | None]:
    """The methods asked for, by task; None for all of the tables. A name that fits no table is refused."""
    if methods is None:
        return {"classification": None, "ranking": None}
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise ValueError(f"methods: {methods!r} names none; leave --methods out for all of the tables.")
    have = {task: methods_of(task) for task in ("classification", "ranking")}
    task = TARGETS[target].task if target in TARGETS else None
    known = have[task] if task else list(dict.fromkeys([*have["classification"], *have["ranking"]]))
    for name in names:
        if name not in known:
            what = f"{task} has" if task else "there are"
            raise ValueError(f"methods: {name!r} is not one of them; {what} {', '.join(known)}.{_hint(name, known)}")
    return {task: tuple(dict.fromkeys(name for name in names if name in mine)) for task, mine in have.items()}


def _runs(
    task: str,
    data: str,
    noise: str,
    semantics: str,
    scale: Scale,
    chosen: tuple[str, ...] | None,
    rounds: int | None,
    seeds: int | None,
    first_seed: int,
) -> list[RunSpec]:
    n_rounds, n_seeds = rounds or scale.rounds[task], seeds or scale.seeds[task]
    names = METHODS[task] if chosen is None else tuple(m for m in chosen if m != "clucb")
    shared = tuple(m for m in names if m in SHARED[task]) if semantics != "released" else ()
    own = tuple(m for m in names if m not in shared)
    made = [RunSpec(task, data, noise, semantics, own, n_rounds, n_seeds, first_seed, shared=shared)] if names else []
    longest = scale.longest_clucb if chosen is None else n_rounds
    if task == "classification" and longest and (chosen is None or "clucb" in chosen):
        is_wide = data in CATALOGUE and CATALOGUE[data].n_features > 4 * CLUCB_FEATURES
        overrides: dict[str, Options] = {"clucb": {"hash": CLUCB_FEATURES}} if is_wide else {}
        made.append(
            RunSpec(
                task, data, noise, semantics, ("clucb",), min(n_rounds, longest), n_seeds, first_seed, overrides
            )
        )  # fmt: skip
    return made


def _extras(
    scale: Scale,
    tasks: Sequence[str | None],
    present: dict[str, tuple[str, ...]],
    semantics: str,
    chosen: dict[str, tuple[str, ...] | None],
    seeds: int | None,
    first_seed: int,
) -> list[RunSpec]:
    """The scale's extra runs, as far as their task, set, semantics and methods are asked for."""
    made = []
    for one in scale.extra:
        mine = chosen[one.task]
        names = one.methods if mine is None else tuple(m for m in one.methods if m in mine)
        is_asked = one.task in tasks and one.data in present.get(one.task, ()) and semantics in (one.semantics, "both")
        if names and is_asked:
            made.append(replace(one, methods=names, seeds=min(one.seeds, seeds or one.seeds), first_seed=first_seed))
    return made


def _names(data: str | None, scale: Scale, target: str, tasks: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The sets asked for, by task; `paper` and `substitutes` stand for several. A set that nothing uses is refused."""
    if data is None:
        return scale.data
    names = [name.strip() for name in data.split(",") if name.strip()]
    if not names:
        raise ValueError(f"data: {data!r} names no set; leave --data out for those of the scale.")
    found: dict[str, list[str]] = {"classification": [], "ranking": []}
    for name in names:
        if name in ("paper", "substitutes"):
            for task, sets in (PAPER_SETS if name == "paper" else SUBSTITUTES).items():
                found[task] += sets
            continue
        if (task := task_of(name)) not in tasks:
            uses = f"uses {tasks[0]} sets only" if tasks else "takes no data"
            raise ValueError(f"data: {name} is a {task} set, and {target} {uses}. Leave it out.")
        found[task].append(name)
    return {task: tuple(dict.fromkeys(sets)) for task, sets in found.items()}


def task_of(data: str) -> str:
    """The task that a set is for."""
    if data in CATALOGUE:
        return "classification"
    if data.partition(":")[0] in (*RANKING_CATALOGUE, letor.SYNTHETIC):
        return "ranking"
    known = [*CATALOGUE, *RANKING_CATALOGUE, letor.SYNTHETIC, "paper", "substitutes"]
    raise ValueError(f"data: {data!r} is not a known set; give {', '.join(known)}.{_hint(data, known)}")


def methods_of(task: str) -> list[str]:
    """All methods that a task has."""
    return list(action_methods.METHODS if task == "classification" else ranking_methods.METHODS)


def absent(task: str, data: str) -> Missing | None:
    """What is missing of a set and what to do, naming no folder of this machine; None where it is there."""
    if task == "classification":
        lost = [check.file for check in datasets.check(data) if check.path is None]
        if not lost:
            return None
        fetch = f"run `seamark data fetch {data}`, or " if CATALOGUE[data].has_address else ""
        return Missing(
            data, f"{', '.join(lost)} not found;", f"{fetch}set SEAMARK_DATA to a folder that has the files.", task
        )
    name = data.partition(":")[0]
    if name == letor.SYNTHETIC or letor.files(data):
        return None
    return Missing(
        data, "not found, and its licence forbids passing it on;",
        f"ask {RANKING_CATALOGUE[name].ask}, unpack it, and set SEAMARK_DATA to the folder.", task,
    )  # fmt: skip


def is_substitute(task: str, data: str) -> bool:
    """Whether a set stands in none of the paper's tables."""
    return data not in PAPER_SETS[task]


def _hint(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]}?" if close else ""
