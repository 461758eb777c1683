"""Many learners side by side: a progressive score decides whose snapshot becomes a candidate, and how it acts.

Before a leg is learned from, every source (a learner's weights in an acting form) is scored with it: the gain over
the policy that acted, by importance weights that are cut from above. So a score never knows what it is scored on. The
choice is made before the rounds that a gate judges it by, hence it costs no evidence.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from seamark.learners.base import Learner
from seamark.policies import ActingForm, LinearPolicy, Policy
from seamark.policies.linear import linear_scores
from seamark.rounds import FloatArray, Rounds

SCORE_CELLS = 4_000_000
"""Largest rounds x sources x actions that are scored in one batch."""


@runtime_checkable
class ManyHeaded(Protocol):
    """A learner that keeps several sets of weights on the same sums."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def heads(self) -> dict[str, FloatArray]:
        """The sets that can be scored now."""
        ...

    def solved(self, name: str) -> FloatArray:
        """One set, as of now."""
        ...


@dataclass(frozen=True, eq=False)
class Member:
    """A learner with the forms that its weights may act in; without forms its candidate acts as it is."""

    name: str
    learner: Learner
    forms: tuple[ActingForm, ...] = ()


class Source(NamedTuple):
    """Where a candidate may come from: a member, one of its heads ("" for its candidate), and an acting form."""

    member: str
    head: str
    form: ActingForm | None

    def __str__(self) -> str:
        return " ".join(str(part) for part in self if part)


class Portfolio:
    """A learner made of learners, all trained on the same rounds; its candidate is the best source's.

    A source's score is its mean gain minus `caution` standard errors, over rounds that are forgotten as they grow
    old: after t rounds, round s counts (s / t)^forgetting. Importance weights above `cap` count as `cap`, so an action
    that was hardly ever tried earns nothing: what wins is better, and can be shown to be. `seconds`: spent per member.
    """

    def __init__(
        self, members: Sequence[Member], *, cap: float = 32.0, forgetting: float = 2.0, caution: float = 1.0
    ) -> None:
        names = [member.name for member in members]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"members: {names}; at least one, each with a name of its own.")
        for name, value, low in (("cap", cap, 1), ("forgetting", forgetting, 0), ("caution", caution, 0)):
            if not value >= low:
                raise ValueError(f"{name}: {value}; must be at least {low}.")
        self.members = {member.name: member for member in members}
        self.cap, self.forgetting, self.caution = float(cap), float(forgetting), float(caution)
        self.seconds = dict.fromkeys([*names, "scoring"], 0.0)
        self.sources = tuple(
            Source(member.name, head, form)
            for member in members
            for head in (member.learner.names if isinstance(member.learner, ManyHeaded) else ("",))
            for form in (member.forms or (None,))
        )
        self._t = 0
        self._weight = 0.0  # of all rounds, faded
        self._sums = np.zeros((3, len(self.sources)))  # per source: weight of its rounds, sum of gains, of squares

    # -- learning ------------------------------------------------------------------------------------------------

    def update(self, rounds: Rounds) -> None:
        """Scores every source with the rounds, then lets every member learn from them: never the other way round."""
        if not len(rounds):
            return
        now = time.perf_counter()
        self._score(rounds)
        for name, learner in (("scoring", None), *((m.name, m.learner) for m in self.members.values())):
            if learner is not None:
                learner.update(rounds)
            before, now = now, time.perf_counter()
            self.seconds[name] += now - before

    def _score(self, rounds: Rounds) -> None:
        policies = [self._as_it_stands(source) for source in self.sources]
        live = [i for i, policy in enumerate(policies) if policy is not None]
        n_actions = max((p.n_actions for p in policies if p is not None), default=1)
        batch = max(1, SCORE_CELLS // (n_actions * max(1, len(live))))
        for first in range(0, len(rounds), batch):
            part = rounds[first : first + batch]
            gains = self._gains([p for p in policies if p is not None], part)
            fade = (self._t / (self._t + len(part))) ** self.forgetting
            self._t += len(part)
            self._weight = fade * self._weight + len(part)
            self._sums *= fade
            self._sums[0, live] += len(part)
            self._sums[1, live] += gains.sum(axis=0)
            self._sums[2, live] += (gains * gains).sum(axis=0)

    def _as_it_stands(self, source: Source) -> Policy | None:
        """The source's policy without new work; None where there is none yet."""
        learner = self.members[source.member].learner
        if isinstance(learner, ManyHeaded):
            weights = learner.heads().get(source.head)
            return None if weights is None else LinearPolicy(weights, source.form or ActingForm.greedy())
        return _in_form(learner.candidate(), source)

    def _gains(self, policies: Sequence[Policy], rounds: Rounds) -> FloatArray:
        """Per round and policy: (min(h(a|x) / p, cap) - 1) r."""
        from seamark.kernels.direct import gain_scores

        out = np.empty((len(rounds), len(policies)))
        contexts = rounds.contexts()
        linear = [i for i, policy in enumerate(policies) if isinstance(policy, LinearPolicy)]
        groups: dict[int, list[int]] = {}  # sources that share weights are scored once
        for i in linear:
            groups.setdefault(_address(policies[i]), []).append(i)
        if linear:
            heads = [policies[group[0]] for group in groups.values()]
            scores = np.stack(
                [linear_scores(h.weights, contexts) for h in heads if isinstance(h, LinearPolicy)], axis=1
            )
            order = [i for group in groups.values() for i in group]
            forms = [p.acts for p in (policies[i] for i in order) if isinstance(p, LinearPolicy)]
            gains = np.empty((len(rounds), len(order)))
            gain_scores(
                scores, np.repeat(np.arange(len(groups)), [len(group) for group in groups.values()]),
                np.array([form.tau for form in forms]), np.array([form.floor for form in forms]),
                rounds.actions, rounds.rewards, rounds.propensities, self.cap, gains,
            )  # fmt: skip
            out[:, order] = gains
        for i in set(range(len(policies))) - set(linear):
            chosen = policies[i].probabilities(contexts)[np.arange(len(rounds)), rounds.actions]
            out[:, i] = (np.minimum(chosen / rounds.propensities, self.cap) - 1) * rounds.rewards
        return out

    # -- choosing ------------------------------------------------------------------------------------------------

    def scores(self) -> FloatArray:
        """Per source: mean gain minus `caution` standard errors; -inf for what is new or not a number."""
        weight, s1, s2 = self._sums
        known = weight > 0.3 * self._weight
        mean = np.divide(s1, weight, out=np.zeros_like(s1), where=known)
        square = np.divide(s2, weight, out=np.zeros_like(s2), where=known)
        error = np.sqrt(np.maximum(square - mean**2, 0) / np.maximum(weight, 1))
        score = mean - self.caution * error
        return np.where(known & np.isfinite(score), score, -np.inf)

    def ranking(self) -> list[Source]:
        """Sources that have a score, best first."""
        score = self.scores()
        return [self.sources[i] for i in np.argsort(-score, kind="stable") if score[i] > -np.inf]

    def candidate(self) -> Policy:
        """The best source, as of now; the first one before there are scores."""
        return self.candidates(1)[0]

    def candidates(self, k: int) -> list[Policy]:
        """Up to k best sources as of now, no two alike."""
        chosen: dict[str, Policy] = {}
        for source in self.ranking() or [self.sources[0]]:
            if len(chosen) == k:
                break
            policy = self._policy(source)
            chosen.setdefault(policy.id, policy)
        return list(chosen.values())

    def _policy(self, source: Source) -> Policy:
        learner = self.members[source.member].learner
        if isinstance(learner, ManyHeaded):
            return LinearPolicy(learner.solved(source.head), source.form or ActingForm.greedy())
        return _in_form(learner.candidate(), source)

    def report(self) -> list[dict[str, Any]]:
        """Per source, best first: its score, and the seconds that its member has taken so far."""
        score = self.scores()
        return [
            {"source": str(self.sources[i]), "score": float(score[i]), "seconds": self.seconds[self.sources[i].member]}
            for i in np.argsort(-score, kind="stable")
        ]

    # -- keeping -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "sources": [str(source) for source in self.sources], "t": self._t, "weight": self._weight,
            "sums": self._sums.copy(), "members": {m.name: m.learner.state() for m in self.members.values()},
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        mine = [str(source) for source in self.sources]
        if list(state["sources"]) != mine:
            raise ValueError(f"state: saved with sources {list(state['sources'])}; this portfolio has {mine}.")
        for member in self.members.values():
            member.learner.restore(state["members"][member.name])
        self._t, self._weight, self._sums = int(state["t"]), float(state["weight"]), np.array(state["sums"])


def _address(policy: Policy) -> int:
    assert isinstance(policy, LinearPolicy)  # callers have looked
    return int(policy.weights.ctypes.data)


def _in_form(policy: Policy, source: Source) -> Policy:
    if source.form is None:
        return policy
    if not isinstance(policy, LinearPolicy):
        raise TypeError(f"{source.member}: forms are for linear policies, this one is a {type(policy).__name__}.")
    return LinearPolicy(policy.weights, source.form)
