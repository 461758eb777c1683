"""`letor-synthetic`: generated queries, documents and grades, for tests, demonstrations and benchmarks.

Nothing here is measured on real queries but the shares of the grades, which are those of the paper's sets.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields, replace

import numpy as np

from seamark.rounds import FloatArray, IntArray
from seamark.worlds.files import DataError
from seamark.worlds.letor_catalogue import SYNTHETIC as NAME
from seamark.worlds.queries import FeatureArray, Queries, RankingData, document_hashes

GRADE_SHARES = {  # the paper's table of relevance grades (Webscope is called yahoo here)
    "mslr10k": (0.52, 0.32, 0.13, 0.02, 0.01),
    "yahoo": (0.26, 0.36, 0.28, 0.08, 0.02),
    "istella-s": (0.89, 0.02, 0.04, 0.03, 0.02),
}
TEST_SHARE = 0.2
N_FACTORS = 6  # what makes a document relevant, seen by every feature through noise
GRADE_NOISE = 0.8  # standard deviation of what no feature knows, against 1 of what some do
QUERY_EFFECT = 0.4  # some queries have better documents than others
LENGTH_SPREAD = 0.5  # of the logarithm of the number of documents
LONGEST = 5  # times the mean


@dataclass(frozen=True)
class Synthetic:
    """What to generate; `documents` is the mean of a log-normal number of documents per query."""

    shares: str = "mslr10k"
    queries: int = 500
    documents: int = 25
    features: int = 46
    seed: int = 0

    def __post_init__(self) -> None:
        if self.shares not in GRADE_SHARES:
            raise DataError(f"{NAME}: grade shares {self.shares!r} are not known; give {', '.join(GRADE_SHARES)}.")
        for name, least in (("queries", 2), ("documents", 1), ("features", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise DataError(f"{NAME}: {name}={getattr(self, name)}; must be at least {least}.")

    @property
    def n_test(self) -> int:
        """How many of the queries are for testing."""
        return max(1, round(TEST_SHARE * self.queries))

    @property
    def spec(self) -> str:
        """The string that names this set."""
        numbers = [f"{f.name}={getattr(self, f.name)}" for f in fields(self)[1:] if getattr(self, f.name) != f.default]
        return ":".join([NAME, self.shares, *numbers])


def parse_spec(spec: str) -> Synthetic:
    """`letor-synthetic[:mslr10k|yahoo|istella-s][:queries=500][:documents=25][:features=46][:seed=0]`."""
    name, *options = spec.split(":")
    if name != NAME:
        raise DataError(f"{spec!r} does not begin with {NAME}.")
    wanted: dict[str, int | str] = {}
    numbers = [f.name for f in fields(Synthetic)[1:]]
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            key, value = "shares", option
        if key in wanted:
            raise DataError(f"{spec}: {key} is given twice.")
        if key == "shares":
            wanted[key] = value
        elif key not in numbers:
            raise DataError(f"{spec}: {key!r} is not an option; give {', '.join(numbers)}.")
        elif not (value.isascii() and value.isdigit()):
            raise DataError(f"{spec}: {key}={value} is not a whole number.")
        else:
            wanted[key] = int(value)
    return replace(Synthetic(), **wanted)  # type: ignore[arg-type]  # str for shares, int for the others


def generate(what: Synthetic | None = None) -> RankingData:
    """A set in which relevance is close to linear in features that all are noisy.

    Factors of a document are standard normal. A feature is a mixture of few factors plus noise, some of them
    stretched, all min-max normalised per query. A grade is a direction in the factors, an effect of the query and
    noise, cut where the shares of the grades want it.
    """
    what = what or Synthetic()
    rng = np.random.default_rng(np.random.SeedSequence(what.seed))
    lengths = _lengths(what, rng)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    n = int(offsets[-1])
    direction = rng.standard_normal(N_FACTORS)
    direction /= np.linalg.norm(direction)
    factors = rng.standard_normal((n, N_FACTORS))
    relevance = factors @ direction + GRADE_NOISE * rng.standard_normal(n)
    relevance += QUERY_EFFECT * np.repeat(rng.standard_normal(what.queries), lengths)
    grades = _grades(relevance, GRADE_SHARES[what.shares])
    features = _features(factors, offsets, what.features, rng)
    qids = np.arange(1, what.queries + 1, dtype=np.int64)
    everything = Queries(features, offsets, grades, qids, document_hashes(qids, offsets))
    order = np.arange(what.queries)
    digest = hashlib.sha256(features.astype("<f4", copy=False).tobytes())
    for array in (offsets, grades):
        digest.update(array.astype("<i8", copy=False).tobytes())
    return RankingData(
        name=what.spec,
        train=everything.take(order[: -what.n_test]),
        test=everything.take(order[-what.n_test :]),
        n_features=what.features,
        max_grade=len(GRADE_SHARES[what.shares]) - 1,
        sha256=digest.hexdigest(),
        notes=(
            "generated, no real queries, documents or judges; only the shares of the grades are those of "
            f"{what.shares} in the paper",
        ),
    )


def _lengths(what: Synthetic, rng: np.random.Generator) -> IntArray:
    mean_of_log = math.log(what.documents) - LENGTH_SPREAD**2 / 2
    drawn = np.rint(rng.lognormal(mean_of_log, LENGTH_SPREAD, what.queries))
    return np.clip(drawn, 1, LONGEST * what.documents).astype(np.int64)


def _grades(relevance: FloatArray, shares: tuple[float, ...]) -> IntArray:
    edges = np.quantile(relevance, np.cumsum(shares)[:-1])
    return np.searchsorted(edges, relevance, side="left").astype(np.int64)


def _features(factors: FloatArray, offsets: IntArray, n_features: int, rng: np.random.Generator) -> FeatureArray:
    """One feature after another, so that no second array of this size is needed."""
    n, n_factors = factors.shape
    features = np.empty((n, n_features), dtype=np.float32)
    starts, lengths = offsets[:-1], np.diff(offsets)
    for j in range(n_features):
        loadings = rng.standard_normal(n_factors) * (rng.random(n_factors) < 0.5)
        noise = 0.5 + 2 * rng.random()
        column = factors @ loadings + noise * rng.standard_normal(n)
        if rng.random() < 1 / 3:
            column = np.exp(column / 2)  # skewed, as counts and frequencies are
        low = np.repeat(np.minimum.reduceat(column, starts), lengths)
        span = np.repeat(np.maximum.reduceat(column, starts), lengths) - low
        features[:, j] = np.divide(column - low, span, out=np.zeros(n), where=span > 0)
    return features
