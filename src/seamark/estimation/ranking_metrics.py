"""What a ranking is worth: nDCG by the judges' grades, click-DCG by what attracts users.

Array contract: documents of query q are the rows `offsets[q]:offsets[q + 1]`; a list is a row of document rows
(int64), best first, -1 where it has ended, and `display` has one list per query.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seamark.rounds import FloatArray, IntArray

CUTOFF = 10
_Entry = TypeVar("_Entry", bound=np.generic)


def dcg_weights(cutoff: int = CUTOFF) -> FloatArray:
    """lambda(j) = 1 / log2(1 + j) for ranks j = 1..cutoff; beyond it lambda is 0."""
    return 1 / np.log2(np.arange(2, cutoff + 2, dtype=np.float64))


def rank_documents(scores: ArrayLike, doc_hash: NDArray[np.uint64], cutoff: int | None = None) -> IntArray:
    """The places of one query's documents, best first; all of them, or the best `cutoff`.

    Equal scores are ordered by increasing hash, so a ranker is a function of its scores.
    """
    scores = _sound(scores, doc_hash)
    if cutoff is None or cutoff >= scores.size:
        return np.lexsort((doc_hash, -scores)).astype(np.int64)
    from seamark.kernels.clicks import top_documents

    out = np.empty(cutoff, dtype=np.int64)
    top_documents(scores, _read_only(doc_hash), 0, scores.size, out)
    return out


def rank_queries(
    scores: ArrayLike, offsets: IntArray, doc_hash: NDArray[np.uint64], *, cutoff: int = CUTOFF
) -> IntArray:
    """The list displayed for every query, shape (n_queries, cutoff), by one score per document."""
    from seamark.kernels.clicks import top_of_queries

    scores = _sound(scores, doc_hash)
    out = np.empty((offsets.size - 1, cutoff), dtype=np.int64)
    top_of_queries(scores, _read_only(offsets), _read_only(doc_hash), out)
    return out


def ideal_dcg(grades: IntArray, offsets: IntArray, *, cutoff: int = CUTOFF) -> FloatArray:
    """The largest DCG@cutoff that each query's own grades allow; 0 if all of them are 0."""
    from seamark.kernels.clicks import ideal_dcg as kernel

    out = np.empty(offsets.size - 1, dtype=np.float64)
    kernel(_read_only(grades), _read_only(offsets), dcg_weights(cutoff), out)
    return out


def ndcg(display: ArrayLike, grades: IntArray, offsets: IntArray, *, cutoff: int = CUTOFF) -> FloatArray:
    r"""nDCG@cutoff of each query's list.

    .. math:: DCG = \sum_{j \le \kappa} (2^{g_j} - 1) / \log_2(1 + j), \quad nDCG = DCG / \max DCG

    where the largest DCG is taken over all documents of the query, displayed or not. A query whose grades are all 0
    has no best list: its value is 0 by convention (`mean_ndcg` can leave such queries out).
    """
    from seamark.kernels.clicks import dcg

    lists = np.ascontiguousarray(display, dtype=np.int64)
    if lists.ndim != 2 or lists.shape[0] != offsets.size - 1:
        raise ValueError(
            f"ndcg: display has shape {lists.shape}; must have a list for each of {offsets.size - 1} queries."
        )
    reached = np.empty(lists.shape[0], dtype=np.float64)
    dcg(lists, _read_only(grades), dcg_weights(cutoff), reached)
    ideal = ideal_dcg(grades, offsets, cutoff=cutoff)
    return np.divide(reached, ideal, out=np.zeros_like(ideal), where=ideal > 0)


def mean_ndcg(
    display: ArrayLike, grades: IntArray, offsets: IntArray, *, cutoff: int = CUTOFF, skip_unjudged: bool = False
) -> float:
    """The mean over queries; with `skip_unjudged` only over those that have a grade above 0."""
    values = ndcg(display, grades, offsets, cutoff=cutoff)
    if skip_unjudged:
        values = values[np.maximum.reduceat(grades, offsets[:-1]) > 0]
        if not values.size:
            raise ValueError("mean_ndcg: no query has a grade above 0.")
    return float(values.mean())


def click_dcg(
    display: ArrayLike, attraction: FloatArray, *, cutoff: int = CUTOFF, weights: FloatArray | None = None
) -> FloatArray:
    """sum_d lambda(rank(d)) alpha(d) of each list; lambda are the `weights`, by default those of DCG@cutoff.

    Additive over documents and 0 beyond the cut-off, as the gates need it: the certified metric is the reported one.
    """
    lists = np.asarray(display, dtype=np.int64)
    weights = dcg_weights(cutoff) if weights is None else weights
    k = min(lists.shape[1], weights.size)
    shown = lists[:, :k]
    gains = np.where(shown >= 0, attraction[np.maximum(shown, 0)], 0.0)
    values: FloatArray = gains @ weights[:k]
    return values


def _sound(scores: ArrayLike, doc_hash: NDArray[np.uint64]) -> FloatArray:
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    if scores.shape != doc_hash.shape:
        raise ValueError(f"scores have shape {scores.shape}; must be {doc_hash.shape}, one per document.")
    if np.isnan(scores).any():
        raise ValueError(f"scores: document {int(np.flatnonzero(np.isnan(scores))[0])} is NaN; a NaN has no rank.")
    return scores


def _read_only(array: NDArray[_Entry]) -> NDArray[_Entry]:
    """A view that cannot be written: data sets are read-only, and kernels compile once for it."""
    view = array.view()
    view.flags.writeable = False
    return view
