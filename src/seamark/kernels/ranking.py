"""Ranking: scores of documents, top lists, and how they are displayed.

Contract: X is a C-ordered (n_docs, d) array, float32 or float64; sums are float64. The documents of query q are rows
offsets[q] to offsets[q + 1]; `keys` breaks ties (smaller first). A list is a row of document rows (int64), best first,
-1 where it has ended (as in `kernels.clicks`). The first block of loops is dense and may reassociate sums; all others
are strict. Kernels change weights and `out_*` arrays in place, hold no generator, and take one uniform per decision.
"""

import math

import numpy as np
from numba import njit

from seamark.kernels.clicks import comes_before, top_documents
from seamark.kernels.linear import _DENSE, _STRICT

# -- dense inner loops ------------------------------------------------------------------------------------------------


@njit(**_DENSE)
def score_query(X, first, last, w, s):
    """s[i] = <w, document first + i>; four documents at a time share the loads of w."""
    d = w.size
    i = first
    while i + 4 <= last:
        a0 = 0.0
        a1 = 0.0
        a2 = 0.0
        a3 = 0.0
        for k in range(d):
            v = w[k]
            a0 += v * X[i, k]
            a1 += v * X[i + 1, k]
            a2 += v * X[i + 2, k]
            a3 += v * X[i + 3, k]
        s[i - first] = a0
        s[i + 1 - first] = a1
        s[i + 2 - first] = a2
        s[i + 3 - first] = a3
        i += 4
    while i < last:
        a0 = 0.0
        for k in range(d):
            a0 += w[k] * X[i, k]
        s[i - first] = a0
        i += 1


@njit(**_DENSE)
def add_documents(X, first, coefficients, n, w):
    """w += sum_i coefficients[i] * document first + i; documents with coefficient 0 are not read."""
    d = w.size
    c = np.empty(4)
    r = np.empty(4, dtype=np.int64)
    held = 0
    for i in range(n):
        if coefficients[i] == 0.0:
            continue
        c[held] = coefficients[i]
        r[held] = first + i
        held += 1
        if held == 4:
            c0 = c[0]
            c1 = c[1]
            c2 = c[2]
            c3 = c[3]
            r0 = r[0]
            r1 = r[1]
            r2 = r[2]
            r3 = r[3]
            for k in range(d):
                w[k] += c0 * X[r0, k] + c1 * X[r1, k] + c2 * X[r2, k] + c3 * X[r3, k]
            held = 0
    for h in range(held):
        ch = c[h]
        rh = r[h]
        for k in range(d):
            w[k] += ch * X[rh, k]


# -- rankings ---------------------------------------------------------------------------------------------------------


@njit(**_STRICT)
def longest(offsets):
    n = 0
    for q in range(offsets.size - 1):
        n = max(n, offsets[q + 1] - offsets[q])
    return n


@njit(**_STRICT)
def score_queries(X, offsets, queries, w, out_scores):
    """out_scores[document] for all documents of the queries given."""
    for k in range(queries.size):
        first = offsets[queries[k]]
        last = offsets[queries[k] + 1]
        score_query(X, first, last, w, out_scores[first:last])


@njit(**_STRICT)
def rank_queries(scores, offsets, keys, queries, out_top):
    """out_top[q] = the top of query q, for the queries given."""
    for k in range(queries.size):
        q = queries[k]
        top_documents(scores[offsets[q] : offsets[q + 1]], keys, offsets[q], offsets[q + 1], out_top[q])


@njit(**_STRICT)
def score_listed(X, queries, lists, w, out_scores):
    """out_scores[document] for the documents in the lists of the queries given: gathered, then `score_query`."""
    gathered = np.empty((lists.shape[1], X.shape[1]), dtype=X.dtype)
    s = np.empty(lists.shape[1])
    for k in range(queries.size):
        row = lists[queries[k]]
        n = 0
        while n < row.size and row[n] >= 0:
            gathered[n] = X[row[n]]
            n += 1
        score_query(gathered, 0, n, w, s)
        for j in range(n):
            out_scores[row[j]] = s[j]


@njit(**_STRICT)
def reorder_lists(scores, keys, queries, lists, first, out_top):
    """out_top[q] = the list of q with its `first` documents by `scores`, for the queries given."""
    for k in range(queries.size):
        q = queries[k]
        n = min(first, lists.shape[1])
        order = np.full(n, -1, dtype=np.int64)
        for j in range(n):
            document = lists[q, j]
            if document < 0:
                break
            at = j
            while at > 0 and comes_before(scores[document], keys[document], scores[order[at - 1]], keys[order[at - 1]]):
                order[at] = order[at - 1]
                at -= 1
            order[at] = document
        for j in range(out_top.shape[1]):
            out_top[q, j] = order[j] if j < n else lists[q, j]


@njit(**_STRICT)
def swap_row(top, probability, depth, uniforms, out):
    """Swap exploration of one ranking: a coin says which adjacent pairs, each is swapped with the probability given.

    `top` has `depth` places. uniforms[0] < 1/2: pairs (1,2), (3,4), ...; else (2,3), (4,5), ...
    """
    n = 0
    while n < depth and top[n] >= 0:
        n += 1
    start = 0 if uniforms[0] < 0.5 else 1
    held = np.empty(max(n, 1), dtype=np.int64)
    for j in range(n):
        held[j] = top[j]
    pair = 0
    j = start
    while j + 1 < n:
        pair += 1
        if uniforms[pair] < probability:
            held[j], held[j + 1] = held[j + 1], held[j]
        j += 2
    for j in range(out.size):
        out[j] = held[j] if j < n else -1


@njit(**_STRICT)
def swap_display(top, queries, probability, depth, rho, uniforms, out_displayed, out_propensities):
    """Swap exploration over a leg; rho[n, j] is the propensity of rank j + 1 among n documents, n <= depth."""
    for t in range(queries.size):
        row = top[queries[t]]
        swap_row(row, probability, depth, uniforms[t], out_displayed[t])
        n = 0
        while n < depth and row[n] >= 0:
            n += 1
        for j in range(out_displayed.shape[1]):
            out_propensities[t, j] = 1.0
            for k in range(n):
                if row[k] == out_displayed[t, j]:
                    out_propensities[t, j] = rho[n, k]


@njit(**_STRICT)
def plackett_luce_list(s, first, n, uniforms, weights, out):
    """One ranking drawn without replacement with probabilities proportional to exp(s), one uniform per position.

    Each position is an inverse CDF over the documents that are left, relative to the best of them when the rest
    has become too small for the first scale. `weights` is scratch of size n.
    """
    taken = -1.0
    total = 0.0
    length = min(n, out.size)
    for j in range(length):
        if total < 1e-200:
            best = -np.inf
            for i in range(n):
                if j == 0 or weights[i] != taken:
                    best = max(best, s[i])
            for i in range(n):
                if j == 0 or weights[i] != taken:
                    weights[i] = math.exp(s[i] - best)
        total = 0.0
        for i in range(n):
            if weights[i] != taken:
                total += weights[i]
        below = 0.0
        chosen = -1
        for i in range(n):
            if weights[i] > 0.0:
                chosen = i
                below += weights[i]
                if uniforms[j] * total < below:
                    break
        out[j] = first + chosen
        weights[chosen] = taken
        total = 0.0
        for i in range(n):
            if weights[i] != taken:
                total += weights[i]
    for j in range(length, out.size):
        out[j] = -1


@njit(**_STRICT)
def plackett_luce_display(scores, offsets, queries, uniforms, out_displayed):
    """One sampled ranking per round from scores (n_docs,)."""
    scratch = np.empty(longest(offsets))
    for t in range(queries.size):
        first = offsets[queries[t]]
        last = offsets[queries[t] + 1]
        plackett_luce_list(scores[first:last], first, last - first, uniforms[t], scratch, out_displayed[t])


@njit(**_STRICT)
def list_length(row):
    """How many documents a list has before its padding."""
    n = 0
    while n < row.size and row[n] >= 0:
        n += 1
    return n
