"""Simulated users: what is clicked in a list of documents.

A list is a row of document rows (int64), best first, -1 where it has ended. Randomness comes in as uniforms of
shape (lists, positions), one per position; `SimulatedUsers.clicks` draws nothing.

References:
    Joachims, Swaminathan, Schnabel. Unbiased learning-to-rank with biased feedback. WSDM 2017 (examination).
    Guo, Liu, Wang. Efficient multiple-click models in web search. WSDM 2009 (the cascade).
    Hofmann, Schuth, Whiteson, de Rijke. Reusing historical interaction data for faster online learning to rank for
    IR. WSDM 2013 (navigational and informational users).
    Oosterhuis, de Rijke. Differentiable unbiased online learning to rank. CIKM 2018 (the same for five grades).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seamark.rounds import FloatArray, IntArray

CUTOFF = 10  # the paper: clicks are simulated only on the top 10 documents
N_GRADES = 5


@dataclass(frozen=True)
class ClickModel:
    """P(click | grade) of an examined document, and how users go down the list.

    Position-based (`p_stop` is None): the document at rank j is examined with probability (1/j)^eta, independently
    of everything else [the paper, eq. for p_i]. Cascade: every document is examined from the top until the user
    stops, which happens after a click with probability `p_stop` of its grade.
    """

    name: str
    p_click: tuple[float, float, float, float, float]
    eta: float = 0.0
    p_stop: tuple[float, float, float, float, float] | None = None

    def __post_init__(self) -> None:
        for name, row in (("p_click", self.p_click), ("p_stop", self.p_stop)):
            if row is not None and (len(row) != N_GRADES or not all(0 <= p <= 1 for p in row)):
                raise ValueError(f"ClickModel: {name} is {row}; must be {N_GRADES} probabilities, one per grade.")
        if not 0 <= self.eta < np.inf:
            raise ValueError(f"ClickModel: eta is {self.eta}; must be at least 0 and finite.")
        if self.is_cascade and self.eta:
            raise ValueError("ClickModel: eta belongs to position-based users; leave it 0 where p_stop is given.")

    @property
    def is_cascade(self) -> bool:
        return self.p_stop is not None

    def examination(self, cutoff: int = CUTOFF) -> FloatArray:
        """e(j) = (1/j)^eta for ranks j = 1..cutoff; beyond it nobody looks.

        For cascade users all ones: what is examined there also depends on the clicks above, see `SimulatedUsers`.
        """
        return np.arange(1, cutoff + 1, dtype=np.float64) ** -self.eta

    def attraction(self, grades: IntArray, *, max_grade: int = N_GRADES - 1) -> FloatArray:
        """alpha(q, d) = P(click | grade, examined) of each document."""
        return np.asarray(self.p_click, dtype=np.float64)[click_grade(grades, max_grade)]

    def users(self, grades: IntArray, *, max_grade: int = N_GRADES - 1, cutoff: int = CUTOFF) -> SimulatedUsers:
        """These users in front of documents with these grades (of a set judged 0..max_grade)."""
        rows = click_grade(grades, max_grade)
        stop = np.zeros(N_GRADES) if self.p_stop is None else np.asarray(self.p_stop, dtype=np.float64)
        return SimulatedUsers(
            self.examination(cutoff), self.attraction(grades, max_grade=max_grade), stop[rows], self.is_cascade
        )


_ROWS = (
    # the paper's table of click noise; eta as in the published runs
    ClickModel("perfect", (0.00, 0.20, 0.40, 0.80, 1.00), eta=0.0),
    ClickModel("position-biased", (0.10, 0.10, 0.10, 1.00, 1.00), eta=1.0),
    ClickModel("near-random", (0.40, 0.45, 0.50, 0.55, 0.60), eta=1.0),
    # cascades of the literature on online learning to rank, in the form for five grades [Oosterhuis, de Rijke 2018]
    ClickModel("navigational", (0.05, 0.30, 0.50, 0.70, 0.95), p_stop=(0.20, 0.30, 0.50, 0.70, 0.90)),
    ClickModel("informational", (0.40, 0.60, 0.70, 0.80, 0.90), p_stop=(0.10, 0.20, 0.30, 0.40, 0.50)),
)
CLICK_MODELS: dict[str, ClickModel] = {row.name: row for row in _ROWS}


def find_model(name: str) -> ClickModel:
    """The click model called `name`; a ValueError that lists the known names if there is none."""
    if name not in CLICK_MODELS:
        raise ValueError(f"{name!r} is not a click model; give {', '.join(CLICK_MODELS)}.")
    return CLICK_MODELS[name]


def click_grade(grades: IntArray, max_grade: int) -> IntArray:
    """The column of a click table, which has five, for grades 0..max_grade.

    Sets judged 0..2 use the columns 0, 2, 4 and sets judged 0..1 the columns 0, 4 (as the tables for three and two
    grades in the literature do); sets judged 0..3 and 0..4 use the grades themselves.
    """
    if not 1 <= max_grade < N_GRADES:
        raise ValueError(f"click_grade: max_grade is {max_grade}; must be in 1..{N_GRADES - 1}.")
    grades = np.asarray(grades, dtype=np.int64)
    if grades.size and not 0 <= grades.min() <= grades.max() <= max_grade:
        raise ValueError(f"click_grade: grades from {grades.min()} to {grades.max()}; must be in 0..{max_grade}.")
    return grades * {1: 4, 2: 2, 3: 1, 4: 1}[max_grade]


@dataclass(frozen=True, eq=False)
class SimulatedUsers:
    """Users of one kind in front of known documents: what kernels need to draw their clicks."""

    examination: FloatArray  # (cutoff,): e(j); ones for cascade users
    attraction: FloatArray  # (n_documents,): alpha
    stop: FloatArray  # (n_documents,): P(stop | clicked); zeros for position-based users
    is_cascade: bool = False

    @property
    def cutoff(self) -> int:
        return int(self.examination.size)

    def clicks(self, display: ArrayLike, uniforms: ArrayLike) -> NDArray[np.uint8]:
        """Who clicks what: ones and zeros of the lists' shape.

        A click needs uniform < e(j) alpha; with a cascade the user leaves after it if uniform < alpha P(stop),
        so one uniform per position has the law of two.
        """
        from seamark.kernels.clicks import click_lists

        display, uniforms = self._lists(display), np.ascontiguousarray(uniforms, dtype=np.float64)
        if uniforms.shape != display.shape:
            raise ValueError(f"clicks: uniforms have shape {uniforms.shape}; must be {display.shape}, as the lists.")
        out = np.empty(display.shape, dtype=np.uint8)
        click_lists(display, self.examination, self.attraction, self.stop, uniforms, out)
        return out

    def click_probabilities(self, display: ArrayLike) -> FloatArray:
        """P(click) at each position of each list, exactly.

        Position-based: e(j) alpha_j. Cascade: alpha_j prod_{i<j} (1 - alpha_i P(stop_i)).
        """
        from seamark.kernels.clicks import click_probabilities

        display = self._lists(display)
        out = np.empty(display.shape, dtype=np.float64)
        click_probabilities(display, self.examination, self.attraction, self.stop, out)
        return out

    def expected_clicks(self, display: ArrayLike) -> FloatArray:
        """The exact expected number of clicks on each list."""
        expected: FloatArray = self.click_probabilities(display).sum(axis=1)
        return expected

    def value(self, display: ArrayLike) -> float:
        r"""Exact expected click-DCG of a ranker, given its list for every query.

        .. math:: V(f) = E_q \sum_d \lambda(rank_f(d | q)) \alpha(q, d), \quad
                  \lambda(j) = 1\{j \le \kappa\} / \log_2(1 + j)

        with queries equally likely and kappa the cut-off. Examination does not enter: it is what the weights of a
        gate's estimate undo. The expected clicks are `expected_clicks(display).mean()`.
        """
        from seamark.estimation.ranking_metrics import click_dcg

        return float(click_dcg(self._lists(display), self.attraction, cutoff=self.cutoff).mean())

    def _lists(self, display: ArrayLike) -> IntArray:
        lists = np.ascontiguousarray(display, dtype=np.int64)
        if lists.ndim != 2:
            raise ValueError(f"display has shape {lists.shape}; must be (lists, positions).")
        if lists.size and not -1 <= lists.min() <= lists.max() < self.attraction.size:
            raise ValueError(
                f"display: rows from {lists.min()} to {lists.max()}; must be rows of the {self.attraction.size} "
                "documents, or -1 where a list has ended."
            )
        return lists
