"""Queries with their judged documents, and ranking sets made of them.

Array contract: documents of one query are contiguous rows; `offsets[q]:offsets[q + 1]` are those of query q.
Features are C-ordered float32, all arrays are read-only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from seamark.rounds import IntArray

FeatureArray: TypeAlias = NDArray[np.float32]
HashArray: TypeAlias = NDArray[np.uint64]

MAX_GRADE = 4


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries, their documents and the judges' grades: one part (train, vali, test) of a ranking set."""

    features: FeatureArray  # (n_documents, n_features)
    offsets: IntArray  # (n_queries + 1,)
    grades: IntArray  # (n_documents,)
    qids: IntArray  # (n_queries,)
    doc_hash: HashArray  # (n_documents,), different for the documents of one query

    def __post_init__(self) -> None:
        for name in ("features", "offsets", "grades", "qids", "doc_hash"):
            view = np.asarray(getattr(self, name)).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        n = self.grades.size
        if self.features.shape[:1] != (n,) or self.features.ndim != 2 or self.doc_hash.shape != (n,):
            raise ValueError(
                f"Queries: features {self.features.shape} and doc_hash {self.doc_hash.shape} must have one row for "
                f"each of the {n} grades."
            )
        if self.features.dtype != np.float32 or not self.features.flags.c_contiguous:
            raise ValueError(f"Queries: features must be C-ordered float32, not {self.features.dtype}.")
        if self.offsets.shape != (self.qids.size + 1,) or self.offsets[0] != 0 or self.offsets[-1] != n:
            raise ValueError(f"Queries: offsets must run from 0 to {n} with one entry more than qids.")
        if (np.diff(self.offsets) < 1).any():
            raise ValueError("Queries: offsets must increase; every query has at least one document.")
        if n and not 0 <= self.grades.min() <= self.grades.max() <= MAX_GRADE:
            raise ValueError(f"Queries: grades must be in 0..{MAX_GRADE}.")

    def __len__(self) -> int:
        return int(self.qids.size)

    @property
    def n_documents(self) -> int:
        return int(self.grades.size)

    @property
    def n_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def lengths(self) -> IntArray:
        """Documents of each query."""
        return np.diff(self.offsets)

    @property
    def query_of(self) -> IntArray:
        """The query (its index, not its qid) of each document."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, queries: IntArray) -> Queries:
        """The chosen queries with all their documents, copied."""
        starts, lengths = self.offsets[:-1][queries], self.lengths[queries]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Queries(
            self.features[rows], offsets, self.grades[rows], np.asarray(self.qids[queries]), self.doc_hash[rows]
        )


@dataclass(frozen=True, eq=False)
class RankingData:
    """A ranking set, ready to be searched by simulated users."""

    name: str
    train: Queries
    test: Queries
    n_features: int
    max_grade: int  # 2 for sets judged 0..2; of the set, not of one part
    sha256: str  # of the content files' checksums; for generated sets of the arrays
    vali: Queries | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for side, part in self.parts().items():
            if part.n_features != self.n_features:
                raise ValueError(f"RankingData: {side} has {part.n_features} features; must have {self.n_features}.")
            if part.n_documents and part.grades.max() > self.max_grade:
                raise ValueError(f"RankingData: {side} has grades above {self.max_grade}.")

    def parts(self) -> dict[str, Queries]:
        """The parts that there are, by name."""
        parts = {"train": self.train, "vali": self.vali, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}


def document_hashes(qids: IntArray, offsets: IntArray) -> HashArray:
    """A fixed number per document that orders documents of equal score.

    Made of the qid and the place within the query alone: other queries do not matter, and as the last mixing
    step is a bijection no two documents of a query have the same one.
    """
    lengths = np.diff(offsets)
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return mix64(np.repeat(mix64(qids.astype(np.uint64)), lengths) + place.astype(np.uint64))


def mix64(values: HashArray) -> HashArray:
    """The finaliser of SplitMix64 [Steele, Lea, Flood 2014]: a bijection of 64-bit numbers that looks random."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: HashArray = z ^ (z >> np.uint64(31))
    return mixed
