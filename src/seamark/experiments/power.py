"""How many rounds until a better policy is promoted? Reckoned before going live.

The picture: in a share of the contexts (`share_changed`) the candidate prefers another action than the deployed policy
does; both act in one form, taking their action with probability `preferred` and every other with `other`. Rewards are
0 or 1, and the gain is all from the preferred actions. In the other contexts the two act alike. Then a round's score
has six values, and evidence is a multinomial walk: the challenger's rounds are simulated, the paper's follow from
moments.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from seamark.estimation import Moments, maurer_pontil_radius
from seamark.estimation.eprocess import bet_grid, log_mean_exp, score_bounds, truncations
from seamark.gates.base import require
from seamark.gates.spending import Guarantee, Spending
from seamark.rounds import FloatArray

Logging = Literal["epsilon-greedy", "boltzmann"]
ESTIMATORS = (0.0, 8.0, 32.0, math.inf)
_STEP = 1.03  # growth of the looks: three per cent late at most
_FIRST_LOOK = 25


@dataclass(frozen=True)
class Plan:
    """What is known or guessed before going live."""

    lift: float
    """Gain in expected reward of the candidate, as it would act."""
    reward_rate: float
    """Expected reward of the deployed policy."""
    n_actions: int
    epsilon: float = 0.1
    """Share of uniform exploration: all there is under epsilon-greedy, the floor under boltzmann (may be 0)."""
    delta: float = 0.05
    guarantee: Guarantee = "run"
    logging: Logging = "epsilon-greedy"
    top: float = 0.7
    """Boltzmann: probability of the preferred action."""
    share_changed: float | None = None
    """Share of contexts in which the two prefer different actions; None: a guess from the lift."""
    explore_share: float = 0.0
    """Share of the exploration spent on the candidate's actions."""

    def __post_init__(self) -> None:
        require("n_actions", self.n_actions, self.n_actions >= 2, "must be at least 2")
        require("lift", self.lift, 0 < self.lift < 1, "must be between 0 and 1: a gain in reward per round")
        require("reward_rate", self.reward_rate, 0 < self.reward_rate < 1, "must be between 0 and 1")
        require(
            "lift",
            self.lift,
            self.reward_rate + self.lift <= 1,
            f"must leave reward_rate + lift <= 1, {self.reward_rate}",
        )
        require("delta", self.delta, 0 < self.delta < 1, "must be between 0 and 1")
        require("explore_share", self.explore_share, 0 <= self.explore_share < 1, "must be in [0, 1)")
        if self.logging == "epsilon-greedy":
            require(
                "epsilon", self.epsilon, 0 < self.epsilon < 1, "must be between 0 and 1; without it, nothing is learned"
            )
        else:
            require("logging", self.logging, self.logging == "boltzmann", "must be epsilon-greedy or boltzmann")
            require("epsilon", self.epsilon, 0 <= self.epsilon < 1, "must be in [0, 1)")
            require("explore_share", self.explore_share, self.explore_share == 0, "is for epsilon-greedy logging")
            low = 1 / self.n_actions
            require("top", self.top, low < self.top < 1, f"must be between 1 / n_actions = {low:.3g} and 1")
        if self.share_changed is not None:
            least = self.lift / self.contrast
            require(
                "share_changed", self.share_changed, least <= self.share_changed <= 1,
                f"must be in [{least:.3g}, 1]: the lift is at most (how often the two differ) x {self.contrast:.3g}",
            )  # fmt: skip

    @property
    def preferred(self) -> float:
        """The probability of the action that a policy prefers."""
        if self.logging == "boltzmann":
            return (1 - self.epsilon) * self.top + self.epsilon / self.n_actions
        return 1 - self.epsilon + self.epsilon / self.n_actions

    @property
    def other(self) -> float:
        return (1 - self.preferred) / (self.n_actions - 1)

    @property
    def contrast(self) -> float:
        """How much more often a policy takes the action that it prefers than another policy does."""
        return self.preferred - self.other

    @property
    def floor(self) -> float:
        """Known lower bound of every probability."""
        return self.epsilon / self.n_actions

    @property
    def changed(self) -> float:
        """Share of contexts that change: given, or twice what the lift needs at least."""
        if self.share_changed is not None:
            return self.share_changed
        return min(1.0, max(2 * self.lift / self.contrast, self.lift / self.contrast))

    @property
    def means(self) -> tuple[float, float]:
        """Mean reward of the deployed policy's and of the candidate's action where they differ, around the rate."""
        gap = self.lift / (self.contrast * self.changed)
        low = min(max(self.reward_rate - gap / 2, 0.0), 1.0 - gap)
        return low, low + gap


@dataclass(frozen=True)
class Power:
    """Rounds to promotion of one gate: median, and 80 % of runs (None: not within the horizon, or never)."""

    gate: str
    median: int | None
    most: int | None
    note: str = ""


def _scores(plan: Plan) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The values that a round's scores take, (outcomes, estimators); their probabilities; the bounds B."""
    s, d, h = plan.changed, plan.preferred, plan.other
    gap = plan.contrast
    p_d, p_h = d, h
    if plan.explore_share > 0:  # exploration moves from the uniform law to the candidate's action
        moved = plan.epsilon * plan.explore_share
        p_d, p_h = d - moved / plan.n_actions, h + moved * (1 - 1 / plan.n_actions)
    low, high = plan.means
    largest = gap / p_h if plan.floor == 0 else max(1 / plan.floor - 1, gap / p_h)
    if plan.explore_share > 0:
        largest = (1 / plan.floor - 1) / (1 - plan.explore_share)
    k = truncations(ESTIMATORS, largest if plan.floor > 0 else 128.0)
    u_h, u_d, q = gap / p_h, -gap / p_d, plan.reward_rate
    q_h = np.where(k > 0, np.minimum(q, k / u_h), 0.0)
    q_d = np.where(k > 0, q, 0.0)
    constant = gap * (q_h - q_d)
    outcomes = [
        (1 - s, np.zeros(k.size)),
        (s * p_d * low, constant + u_d * (1 - q_d)),
        (s * p_d * (1 - low), constant - u_d * q_d),
        (s * p_h * high, constant + u_h * (1 - q_h)),
        (s * p_h * (1 - high), constant - u_h * q_h),
        (max(0.0, s * (1 - p_d - p_h)), constant),
    ]
    probabilities = np.array([p for p, _ in outcomes])
    return np.array([z for _, z in outcomes]), probabilities / probabilities.sum(), score_bounds(k)


def looks(horizon: int) -> list[int]:
    """When simulated evidence is looked at: every three per cent."""
    out, t = [], float(_FIRST_LOOK)
    while t < horizon:
        out.append(round(t))
        t = max(t * _STEP, t + 1)
    return [*out, horizon]


def challenger_power(plan: Plan, *, horizon: int = 10_000_000, runs: int = 200, seed: int = 0) -> Power:
    """Rounds from the freeze of the candidate, the first of its reign, to its promotion; by simulation."""
    z, probabilities, bounds = _scores(plan)
    gains = np.log1p(bet_grid(bounds) * z[:, :, None])  # (outcomes, estimators, bets)
    alpha = Spending(plan.delta, plan.guarantee).level(1, 1, frozen=1)
    threshold = -math.log(alpha)
    rng = np.random.default_rng(seed)
    capital = np.zeros((runs, *gains.shape[1:]))
    fired = np.full(runs, np.inf)
    before = 0
    for t in looks(horizon):
        counts = rng.multinomial(t - before, probabilities, size=runs)
        capital += np.tensordot(counts, gains, axes=1)
        before = t
        for run in np.flatnonzero(np.isinf(fired)):
            if log_mean_exp(capital[run]) >= threshold:
                fired[run] = t
        if np.isfinite(fired).mean() >= 0.8:
            break
    quantiles = np.sort(fired)[[(runs - 1) // 2, math.ceil(0.8 * runs) - 1]]
    median, most = (int(q) if math.isfinite(q) else None for q in quantiles)
    return Power("challenger", median, most, f"threshold ln(1/alpha) = {threshold:.2f}; first candidate of the reign")


def paper_power(plan: Plan, *, horizon: int = 10_000_000) -> Power:
    """Rounds until LCB(new) >= UCB(deployed) on average, from the moments; half of the runs are earlier."""
    if plan.floor == 0:
        return Power("paper", None, None, "refuses: no floor, hence no b = r_max / p_min")
    s, d, h = plan.changed, plan.preferred, plan.other
    low, high = plan.means
    value = plan.reward_rate
    second = value - s * (d * low + h * high) + s * (h * h / d * low + d * d / h * high)
    new, old = (value + plan.lift, max(second, (value + plan.lift) ** 2)), (value, value)

    def promotes(n: int) -> bool:
        radii = [
            maurer_pontil_radius(Moments(n, n * mean, n * square), upper=1 / plan.floor, delta=plan.delta)
            for mean, square in (new, old)
        ]
        return plan.lift >= sum(radii)

    if not promotes(horizon):
        return Power("paper", None, None, f"b = {1 / plan.floor:g}; for a fixed candidate only")
    few, many = 2, horizon
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if promotes(middle) else (middle, many)
    return Power("paper", many, None, f"b = {1 / plan.floor:g}; holds for a candidate that did not learn from the log")


def power(plan: Plan, *, horizon: int = 10_000_000, runs: int = 200, seed: int = 0) -> dict[str, Any]:
    """Both gates' rounds to promotion, with what was assumed, as plain values."""
    low, high = plan.means
    return {
        "plan": asdict(plan),
        "assumed": {
            "share_changed": plan.changed, "reward_of_deployed_action": low, "reward_of_candidate_action": high,
            "preferred_probability": plan.preferred, "other_probability": plan.other, "horizon": horizon,
        },
        "gates": [
            asdict(paper_power(plan, horizon=horizon)),
            asdict(challenger_power(plan, horizon=horizon, runs=runs, seed=seed)),
        ],
    }  # fmt: skip
