"""Scores and sums that gates of rankers need (see `kernels.ranking` for the array contract)."""

import math

import numpy as np
from numba import njit

from seamark.kernels.challenger import multiply
from seamark.kernels.clicks import comes_before, top_documents
from seamark.kernels.linear import _STRICT
from seamark.kernels.ranking import (
    list_length,
)


@njit(**_STRICT)
def rank_in(row, document):
    """Rank of a document in a top list, from 0; -1 when it is not there."""
    for j in range(row.size):
        if row[j] == document:
            return j
    return -1


@njit(**_STRICT)
def paired_scores(queries, displayed, clicks, inverse, top_new, top_old, discounts, ceiling, out_scores):
    """z = sum over clicked displayed documents of (discount by new - discount by old) * inverse propensity.

    discounts[n, rank - 1]: in a list of n documents. The inverse is cut at `ceiling` where the new ranker promotes.
    """
    for t in range(queries.size):
        q = queries[t]
        z = 0.0
        worth = discounts[list_length(top_old[q])]
        for j in range(displayed.shape[1]):
            if clicks[t, j] != 0:
                new = rank_in(top_new[q], displayed[t, j])
                old = rank_in(top_old[q], displayed[t, j])
                gain = (worth[new] if new >= 0 else 0.0) - (worth[old] if old >= 0 else 0.0)
                weight = inverse[t if inverse.shape[0] > 1 else 0, j]
                z += gain * (min(weight, ceiling) if gain > 0.0 else weight)
        out_scores[t] = z


@njit(**_STRICT)
def bet_on_scores(z, margin, bets, capital, log_capital, s1, s2):
    """Moves the capitals of constant bets on by the scores; s1[0], s2[0]: sums of z and of z squared.

    A score of 0 still owes the margin; without a margin it changes nothing.
    """
    for t in range(z.size):
        if z[t] != 0.0 or margin != 0.0:
            s1[0] += z[t]
            s2[0] += z[t] * z[t]
            multiply(log_capital, capital, bets, z[t] - margin)


@njit(**_STRICT)
def switching_costs(top_new, top_old, discounts, inverse, out_costs):
    """Per query: sum over the old list of (discount by old - discount by new)_+ * inverse examination."""
    for q in range(top_old.shape[0]):
        cost = 0.0
        for j in range(top_old.shape[1]):
            if top_old[q, j] >= 0:
                new = rank_in(top_new[q], top_old[q, j])
                cost += max(0.0, discounts[j] - (discounts[new] if new >= 0 else 0.0)) * inverse[j]
        out_costs[q] = cost


@njit(**_STRICT)
def _slot(keys, key):
    """Where a key is, or would be put, in the open-addressed table; its size is a power of two."""
    mask = keys.size - 1
    # multiplicative hashing; the product wraps around, the sign bit is masked off
    at = ((key * np.int64(-7046029254386353131)) >> np.int64(20)) & mask
    while keys[at] != -1 and keys[at] != key:
        at = (at + 1) & mask
    return at


@njit(**_STRICT)
def rehash(keys, values, out_keys, out_values):
    for i in range(keys.size):
        if keys[i] != -1:
            at = _slot(out_keys, keys[i])
            out_keys[at] = keys[i]
            out_values[at] = values[i]


@njit(**_STRICT)
def add_clicks(start, queries, displayed, clicks, inverse, W1, W2, seen, keys, values, size):
    """W1 += c/p, W2 += (c/p)^2 per document, and per pair of documents clicked in one round c c'/(p p').

    Stops before the round that could fill the pair table beyond a half and returns its number, or the number of rounds.
    """
    n_docs = W1.size
    kappa = displayed.shape[1]
    held = np.empty(kappa, dtype=np.int64)
    weight = np.empty(kappa)
    for t in range(start, queries.size):
        m = 0
        for j in range(kappa):
            if clicks[t, j] != 0:
                held[m] = displayed[t, j]
                weight[m] = inverse[t if inverse.shape[0] > 1 else 0, j]
                m += 1
        if m == 0:
            continue
        if 2 * (size[0] + m * (m - 1) // 2) > keys.size:
            return t
        seen[queries[t]] = True
        for a in range(m):
            W1[held[a]] += weight[a]
            W2[held[a]] += weight[a] * weight[a]
            for b in range(a):
                low = min(held[a], held[b])
                high = max(held[a], held[b])
                key = low * n_docs + high
                at = _slot(keys, key)
                if keys[at] == -1:
                    keys[at] = key
                    size[0] += 1
                values[at] += weight[a] * weight[b]
    return queries.size


@njit(**_STRICT)
def discounts_of_top(scores, offsets, keys, queries, discounts, scratch, out):
    """out[document] = discounts[n, rank - 1] for the top n of each query given, 0 below."""
    for k in range(queries.size):
        first = offsets[queries[k]]
        last = offsets[queries[k] + 1]
        for i in range(first, last):
            out[i] = 0.0
        top_documents(scores[first:last], keys, first, last, scratch)
        n = list_length(scratch)
        for j in range(n):
            out[scratch[j]] = discounts[n, j]


@njit(**_STRICT)
def discounts_of_list(scores, offsets, keys, queries, W1, out):
    """out[document] = 1 / log2(1 + rank) over the whole list, for documents with any weight, else 0."""
    for k in range(queries.size):
        first = offsets[queries[k]]
        last = offsets[queries[k] + 1]
        for i in range(first, last):
            out[i] = 0.0
            if W1[i] != 0.0:
                rank = 1
                for j in range(first, last):
                    rank += comes_before(scores[j], keys[j], scores[i], keys[i])
                out[i] = 1.0 / math.log2(1.0 + rank)


@njit(**_STRICT)
def sums_of_discounts(lam, offsets, queries, W1, W2, keys, values, pairs):
    """S1 = sum lam W1, S2 = sum lam^2 W2 (+ 2 sum over pairs lam lam' G with `pairs`), and the largest lam W1."""
    n_docs = W1.size
    s1 = 0.0
    s2 = 0.0
    largest = 0.0
    for k in range(queries.size):
        for i in range(offsets[queries[k]], offsets[queries[k] + 1]):
            if W1[i] != 0.0:
                value = lam[i] * W1[i]
                s1 += value
                s2 += lam[i] * lam[i] * W2[i]
                largest = max(largest, value)
    if pairs:
        for at in range(keys.size):
            if keys[at] != -1:
                s2 += 2.0 * lam[keys[at] // n_docs] * lam[keys[at] % n_docs] * values[at]
    return s1, s2, largest


@njit(**_STRICT)
def followed_sums(displayed, clicks, inverse, discounts, lam, own, per_click, W1, s1, s2, largest):
    """S1, S2 and the largest cell of the deployed ranker, continued over rounds.

    own[t]: it displayed them itself, in its order, so its discount is the position's; else it is lam[document].
    per_click: every click is a sample of its own (released), else a round is.
    """
    for t in range(displayed.shape[0]):
        total = 0.0
        for j in range(displayed.shape[1]):
            if clicks[t, j] != 0:
                discount = discounts[j] if own[t] else lam[displayed[t, j]]
                value = discount * inverse[t if inverse.shape[0] > 1 else 0, j]
                largest = max(largest, discount * W1[displayed[t, j]])
                s1 += value
                total += value
                if per_click:
                    s2 += value * value
        if not per_click:
            s2 += total * total
    return s1, s2, largest
