"""Confidence radii. Each is given its range; none reads it off the data.

Every function returns r such that P(E[X] > mean + r) <= delta and P(E[X] < mean - r) <= delta (one-sided each),
for n fixed beforehand and one look. `delta` is a failure probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over rounds of a score: how many, their sum, their sum of squares.

    >>> m = Moments(4, 3.0, 5.0)
    >>> m.mean, m.spread
    (0.75, 22.0)
    """

    n: int
    s1: float
    s2: float
    largest: float = math.nan
    """Largest accumulated table cell, where tables were used (read by the released semantics only)."""

    @property
    def mean(self) -> float:
        return self.s1 / self.n if self.n else math.nan

    @property
    def spread(self) -> float:
        """sum over i, j of (X_i - X_j)^2 = 2 (n S2 - S1^2), clamped at 0 against cancellation."""
        return max(0.0, 2.0 * (self.n * self.s2 - self.s1 * self.s1))


def maurer_pontil_radius(moments: Moments, *, upper: float, delta: float) -> float:
    r"""Empirical Bernstein radius (the paper's CB; [MP09, Theorem 4] scaled from [0, 1] to [0, b]).

    .. math:: \frac{7 b \ln(2/\delta)}{3 (t-1)} + \frac1t \sqrt{\frac{\ln(2/\delta)}{t-1} \sum_{i,j} (R_i - R_j)^2}

    with b = upper. Assumes: independent X_i in [0, upper], upper known beforehand, t >= 2 fixed beforehand, one
    look. Infinite for t < 2.
    """
    n = moments.n
    if n < 2:
        return math.inf
    log_term = math.log(2 / delta)
    return 7 * upper * log_term / (3 * (n - 1)) + math.sqrt(log_term / (n - 1) * moments.spread) / n


def hoeffding_radius(n: int, *, upper: float, delta: float) -> float:
    r"""Chernoff-Hoeffding radius :math:`b \sqrt{\ln(1/\delta) / (2 n)}` [H63, Theorem 2].

    Assumes: independent X_i in [0, upper], upper known beforehand, n fixed beforehand, one look.
    """
    return upper * math.sqrt(math.log(1 / delta) / (2 * n)) if n else math.inf
