"""Ranking lists and simulated users, compiled.

Contract: a list is a row of document rows (int64), best first, -1 where it has ended; `uniforms` are in [0, 1),
one per position. Higher scores come first, equal ones in increasing order of the documents' hash, NaN last.
"""

import math
from typing import Any

import numpy as np
from numba import njit

_STRICT: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


@njit(**_STRICT)
def comes_before(score_a, hash_a, score_b, hash_b):
    """Whether document a is ranked above document b."""
    if score_a > score_b:
        return True
    if score_a == score_b:
        return hash_a < hash_b
    if math.isnan(score_a):
        return math.isnan(score_b) and hash_a < hash_b
    return math.isnan(score_b)


@njit(**_STRICT)
def top_documents(scores, doc_hash, start, stop, out):
    """out <- the best documents of rows start..stop-1, as rows; `scores` has one entry per row of the query."""
    k = out.size
    held = 0
    for i in range(start, stop):
        s = scores[i - start]
        h = doc_hash[i]
        if held == k:
            last = out[k - 1]
            if k == 0 or not comes_before(s, h, scores[last - start], doc_hash[last]):
                continue
            j = k - 1
        else:
            j = held
            held += 1
        while j > 0 and comes_before(s, h, scores[out[j - 1] - start], doc_hash[out[j - 1]]):
            out[j] = out[j - 1]
            j -= 1
        out[j] = i
    for j in range(held, k):
        out[j] = -1


@njit(**_STRICT)
def top_of_queries(scores, offsets, doc_hash, out):
    """The same for every query; `scores` has one entry per document."""
    for q in range(offsets.size - 1):
        top_documents(scores[offsets[q] : offsets[q + 1]], doc_hash, offsets[q], offsets[q + 1], out[q])


@njit(**_STRICT)
def click_list(documents, examination, attraction, stop, uniforms, out):
    """Clicks of one user on one list; returns how many.

    One uniform serves click and stop: below examination x attraction it is a click, and below that times the
    probability to stop the user leaves after it. Positions beyond `examination` are not looked at.
    """
    n_clicks = 0
    has_left = False
    for j in range(out.size):
        out[j] = 0
        if has_left or j >= examination.size or documents[j] < 0:
            continue
        p = examination[j] * attraction[documents[j]]
        if uniforms[j] < p:
            out[j] = 1
            n_clicks += 1
            has_left = uniforms[j] < p * stop[documents[j]]
    return n_clicks


@njit(**_STRICT)
def click_lists(display, examination, attraction, stop, uniforms, out):
    """Clicks of one user on each list."""
    for t in range(display.shape[0]):
        click_list(display[t], examination, attraction, stop, uniforms[t], out[t])


@njit(**_STRICT)
def click_probabilities(display, examination, attraction, stop, out):
    """The probability of a click at each position of each list, over examination, attraction and stopping."""
    for t in range(display.shape[0]):
        is_there = 1.0  # probability that the user has not left before this position
        for j in range(display.shape[1]):
            out[t, j] = 0.0
            d = display[t, j]
            if d < 0 or j >= examination.size:
                continue
            p = is_there * examination[j] * attraction[d]
            out[t, j] = p
            is_there -= p * stop[d]


@njit(**_STRICT)
def ideal_dcg(grades, offsets, weights, out):
    """out[q] = the largest discounted gain that the grades of query q allow."""
    n_grades = 1
    for i in range(grades.size):
        n_grades = max(n_grades, grades[i] + 1)
    counts = np.empty(n_grades, np.int64)
    for q in range(offsets.size - 1):
        counts[:] = 0
        for i in range(offsets[q], offsets[q + 1]):
            counts[grades[i]] += 1
        total = 0.0
        j = 0
        g = n_grades - 1
        while j < weights.size and g > 0:
            if counts[g] == 0:
                g -= 1
                continue
            counts[g] -= 1
            total += weights[j] * (2.0**g - 1.0)
            j += 1
        out[q] = total


@njit(**_STRICT)
def dcg(display, grades, weights, out):
    """out[q] = the discounted gain of the list displayed for query q."""
    for q in range(display.shape[0]):
        total = 0.0
        for j in range(min(display.shape[1], weights.size)):
            if display[q, j] >= 0:
                total += weights[j] * (2.0 ** grades[display[q, j]] - 1.0)
        out[q] = total
