"""How the error budget is spent over challengers and reigns, and a negative margin over reigns.

A reign is the time during which one policy is deployed; reigns count from 1, challengers from 1 within a reign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Guarantee = Literal["run", "deployment", "fdr"]

_FLAT = 16  # the first challengers of a reign share one half of its level evenly, later ones the other half
_LARGEST_FDR_LEVEL = 0.5


def reign_share(reign: int) -> float:
    """gamma_k = 1 / (k (k + 1)); sums to one over all reigns."""
    return 1.0 / (reign * (reign + 1))


def challenger_share(challenger: int) -> float:
    """g_j = 1/32 for the first 16 challengers, 8 / (j (j - 1)) after; sums to one over all challengers."""
    return 1.0 / (2 * _FLAT) if challenger <= _FLAT else _FLAT / 2 / (challenger * (challenger - 1))


def reign_margin(margin: float, reign: int) -> float:
    """The margin of one reign: the same in all if positive or zero; a negative one is a budget over all reigns.

    With mu0 = -m in every reign, k deployments could lose k m. So reign k may lose m / (k (k + 1)): m in total.

    >>> [reign_margin(-0.06, k) for k in (1, 2, 3)]
    [-0.03, -0.01, -0.005]
    """
    return margin if margin >= 0 else margin / (reign * (reign + 1))


@dataclass(frozen=True, slots=True)
class Spending:
    """Levels alpha such that deploying at evidence 1 / alpha keeps the promise `guarantee` at `delta`.

    guarantee:
      "run"         P(any false deployment, ever) <= delta: alpha = delta gamma_k g_j, which sums to delta.
      "deployment"  P(a false deployment in this reign | the past) <= delta: alpha = delta g_j.
      "fdr"         expected share of false deployments <= delta, under any dependence [e-LOND, Xu and Ramdas 2024]:
                    alpha = min(delta g_j (deployments before the freeze + 1), 1/2), j counted over the run.
    """

    delta: float = 0.05
    guarantee: Guarantee = "run"

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise ValueError(f"delta: {self.delta}; must be between 0 and 1.")
        if self.guarantee not in ("run", "deployment", "fdr"):
            raise ValueError(f"guarantee: {self.guarantee!r}; must be 'run', 'deployment' or 'fdr'.")

    def level(self, reign: int, challenger: int, *, frozen: int = 0, deployments: int = 0) -> float:
        """alpha of the challenger-th challenger of a reign: the frozen-th of the run, after so many deployments."""
        if self.guarantee == "run":
            return self.delta * reign_share(reign) * challenger_share(challenger)
        if self.guarantee == "deployment":
            return self.delta * challenger_share(challenger)
        return min(self.delta * challenger_share(frozen) * (deployments + 1), _LARGEST_FDR_LEVEL)
