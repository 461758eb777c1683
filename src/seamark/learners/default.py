"""The default learner, which nobody has to tune: a portfolio whose step sizes follow from the contexts' length."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from seamark.learners.averaged import Averaged
from seamark.learners.base import Learner
from seamark.learners.direct import WIDEST_GRAM, DirectRidge
from seamark.learners.gradient import IPSGradient, SquaredLoss
from seamark.learners.portfolio import Member, Portfolio
from seamark.policies import ActingForm, LinearPolicy, Policy
from seamark.rounds import Csr, Features, Rounds, n_contexts, n_features

STEPS = (0.6, 2.0, 6.0, 20.0, 60.0)
"""Of the gradient learners: lr |x|^2 / tau^2, that is how far one round moves a score, in temperatures."""

LARGEST_FLOOR = 0.1
"""Exploration of candidates where the baseline is not linear, so that a uniform one is not copied."""

FIRST_ROUNDS = 50
"""Contexts that are measured before `DefaultLearner` begins."""


class Direct(NamedTuple):
    """Settings of the direct method."""

    ridges: tuple[float, ...]
    """Regularisations, in |x|^2: after so many rounds with an action half its prior is gone."""
    temperatures: tuple[float, ...]
    """For predicted rewards."""
    solve_growth: float
    iterations: int


NARROW = Direct(ridges=(0.5, 5.0, 30.0), temperatures=(0.05, 0.1), solve_growth=1.2, iterations=0)
WIDE = Direct(ridges=(0.02, 0.1), temperatures=(0.01, 0.02), solve_growth=1.5, iterations=8)
"""Where every context has features of its own, predictions spread less; and solving costs more."""


class Shape(NamedTuple):
    """What the settings depend on."""

    square: float
    """Mean of |x|^2 over the contexts."""
    n_features: int
    is_sparse: bool
    recurring: bool
    """Whether rounds name contexts of one pool."""

    @classmethod
    def of(cls, features: Features, *, recurring: bool = True) -> Shape:
        return cls(mean_square(features), n_features(features), isinstance(features, Csr), recurring)


def mean_square(features: Features) -> float:
    """Mean of |x|^2 over the contexts; 1 where there is nothing to measure."""
    data = features.data if isinstance(features, Csr) else features
    return float((data**2).sum()) / max(1, n_contexts(features)) or 1.0


def default_portfolio(baseline: Policy, shape: Shape, *, gradients: bool = True) -> Portfolio:
    """The direct method and, where the baseline is linear, translated-IPS gradient learners that start at it.

    All sources have the baseline's floor. Greedy ones are among them only where the baseline is greedy: softmax ones
    explore where they are in doubt, so that their successors can be shown to be better. `gradients=False` leaves the
    direct method alone. Wide contexts that do not recur are regressed by gradient steps.
    """
    linear = baseline if isinstance(baseline, LinearPolicy) else None
    floor = linear.acts.floor if linear else min(LARGEST_FLOOR, baseline.n_actions * baseline.min_probability)
    greedy = (ActingForm.epsilon_greedy(floor),) if linear and linear.acts.tau == 0 and floor > 0 else ()
    members = _gradients(linear, shape, greedy) if linear and gradients else []
    settings = WIDE if (wide := shape.n_features > WIDEST_GRAM) else NARROW
    direct: Learner
    if wide and not (shape.recurring and shape.is_sparse):
        start = np.zeros((baseline.n_actions, shape.n_features))
        direct = SquaredLoss(start, epsilon=floor, lr=0.1 / shape.square)
    else:
        direct = DirectRidge(
            baseline.n_actions, shape.n_features, l2s=[l2 * shape.square for l2 in settings.ridges],
            warm=linear.weights if linear else None, solve_growth=settings.solve_growth,
            iterations=settings.iterations,
        )  # fmt: skip
    predicted = tuple(ActingForm.softmax(t, floor=floor) for t in settings.temperatures)
    return Portfolio([*members, Member("direct", direct, (*predicted, *greedy))])


def _gradients(baseline: LinearPolicy, shape: Shape, greedy: tuple[ActingForm, ...]) -> list[Member]:
    tau = baseline.acts.tau or 1.0
    forms = tuple(dict.fromkeys([baseline.acts, ActingForm.softmax(tau / 2, floor=baseline.acts.floor), *greedy]))
    members = []
    for step in STEPS:
        gradient = IPSGradient(baseline.weights, baseline.acts, tau=tau, lr=step * tau**2 / shape.square)
        # where few contexts share a feature, an average is mostly old: it lags, and costs a pass over all weights
        learner = gradient if shape.n_features > WIDEST_GRAM else Averaged(gradient)
        members.append(Member(f"ips step {step:g}", learner, forms))
    return members


class DefaultLearner:
    """The default portfolio, made when the first contexts have shown their shape; until then the baseline stands."""

    def __init__(self, baseline: Policy) -> None:
        self.baseline = baseline.frozen()
        self.portfolio: Portfolio | None = None
        self._shape: Shape | None = None
        self._measured = 0

    def update(self, rounds: Rounds) -> None:
        if not len(rounds):
            return
        if self.portfolio is None:
            self._measure(rounds)
        if self.portfolio is not None:
            self.portfolio.update(rounds)

    def _measure(self, rounds: Rounds) -> None:
        new = Shape.of(rounds.contexts(), recurring=rounds.recurring)
        before = self._measured
        self._measured += len(rounds)
        old = new.square if self._shape is None else self._shape.square
        self._shape = new._replace(square=(before * old + len(rounds) * new.square) / self._measured)
        if self._measured >= FIRST_ROUNDS:
            self.portfolio = default_portfolio(self.baseline, self._shape)

    def candidate(self) -> Policy:
        return self.baseline if self.portfolio is None else self.portfolio.candidate()

    def state(self) -> dict[str, Any]:
        return {
            "shape": None if self._shape is None else self._shape._asdict(), "measured": self._measured,
            "portfolio": None if self.portfolio is None else self.portfolio.state(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self._shape = None if state["shape"] is None else Shape(**state["shape"])
        self._measured, self.portfolio = int(state["measured"]), None
        if state["portfolio"] is not None and self._shape is not None:
            self.portfolio = default_portfolio(self.baseline, self._shape)
            self.portfolio.restore(state["portfolio"])


def default_learner(name: str, baseline: Policy) -> Learner:
    """The learner of that name with its defaults: "portfolio", or "ips", warm-started from a linear baseline."""
    if name == "portfolio":
        return DefaultLearner(baseline)
    if name != "ips":
        raise ValueError(f"learner: {name!r}; must be 'portfolio', 'ips' or a learner object.")
    if not isinstance(baseline, LinearPolicy):
        raise ValueError("learner: 'ips' starts from a linear baseline's weights; pass a learner object instead.")
    return IPSGradient(baseline.weights, baseline.acts, tau=baseline.acts.tau or 1.0, lr=0.01)
