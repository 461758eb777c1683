"""Learners of rankings, the ones that move every round included (see `kernels.ranking` for the array contract)."""

import math

import numpy as np
from numba import njit

from seamark.kernels.clicks import click_list, top_documents
from seamark.kernels.linear import _STRICT
from seamark.kernels.ranking import (
    add_documents,
    list_length,
    longest,
    plackett_luce_list,
    score_query,
)

# -- RankSVM ----------------------------------------------------------------------------------------------------------


@njit(**_STRICT)
def ranksvm_step(X, first, n, row, clicks, inverse, w, lr, published, s, coefficients):
    """One round's update from the scores s of all n documents as they were before the round.

    Per click at document i: H = 1 + sum_{j != i} max(0, 1 - (s_i - s_j)), one more when `published`;
    w += lr / p * ln 2 / ((1 + H) ln^2(1 + H)) * (m f_i - sum_violators f_j), m violators with s_i - s_j < 1.
    """
    for i in range(n):
        coefficients[i] = 0.0
    for j in range(row.size):
        if clicks[j] == 0:
            continue
        i = row[j] - first
        edge = s[i] - 1.0
        hinges = 0.0
        violators = 0
        for k in range(n):
            if s[k] > edge:
                hinges += s[k] - edge
                violators += 1
        # the document itself is among them, with a hinge of exactly 1 - 0
        violators -= 1
        h = hinges + 1.0 if published else hinges
        log = math.log1p(h)
        step = lr * inverse[j] * math.log(2.0) / ((1.0 + h) * log * log)
        for k in range(n):
            if s[k] > edge:
                coefficients[k] -= step
        coefficients[i] += step * (violators + 1)
    add_documents(X, first, coefficients, n, w)


@njit(**_STRICT)
def ranksvm_learn(X, offsets, queries, displayed, clicks, inverse, w, lr, published):
    """Learn from rounds; those without clicks cost nothing. inverse: (1, kappa) or (n, kappa), 1 / propensity."""
    longest_query = longest(offsets)
    s = np.empty(longest_query)
    coefficients = np.empty(longest_query)
    for t in range(queries.size):
        some = False
        for j in range(clicks.shape[1]):
            some = some or clicks[t, j] != 0
        if some:
            first = offsets[queries[t]]
            last = offsets[queries[t] + 1]
            score_query(X, first, last, w, s)
            ranksvm_step(
                X, first, last - first, displayed[t], clicks[t], inverse[t if inverse.shape[0] > 1 else 0],
                w, lr, published, s, coefficients,
            )  # fmt: skip


@njit(**_STRICT)
def ranksvm_run(
    X, offsets, keys, queries, examination, attraction, stop, u_clicks, inverse, w, lr, published,
    out_displayed, out_clicks,
):  # fmt: skip
    """Display the learner's own ranking, learn from the clicks, round by round."""
    longest_query = longest(offsets)
    s = np.empty(longest_query)
    coefficients = np.empty(longest_query)
    for t in range(queries.size):
        first = offsets[queries[t]]
        last = offsets[queries[t] + 1]
        score_query(X, first, last, w, s)
        top_documents(s, keys, first, last, out_displayed[t])
        if click_list(out_displayed[t], examination, attraction, stop, u_clicks[t], out_clicks[t]):
            ranksvm_step(
                X, first, last - first, out_displayed[t], out_clicks[t], inverse, w, lr, published, s, coefficients
            )


# -- PDGD -------------------------------------------------------------------------------------------------------------


@njit(**_STRICT)
def _log_add(a, b):
    if a < b:
        a, b = b, a
    return a if b == -np.inf else a + math.log1p(math.exp(b - a))


@njit(**_STRICT)
def pdgd_coefficients(s, first, n, row, clicks, coefficients):
    """coefficients[i] = sum over preferences of rho times the derivative, signed; returns whether there are any.

    A clicked k is preferred to an unclicked l displayed no more than one below the last click. With a < b their
    positions, only the Plackett-Luce factors at a + 1 .. b differ between R and R*:
    P(R*) / P(R) = prod_{m = a+1..b} (T_m + e^{f at b}) / (T_m + e^{f at a}), T_m = sum of exp over everything from
    position m on, without the document at b. In logs throughout.
    """
    length = list_length(row)
    last = -1
    for j in range(length):
        if clicks[j] != 0:
            last = j
    if last < 0:
        return False
    for i in range(n):
        coefficients[i] = 0.0
    # log of the summed exp of what was not displayed
    shown = np.zeros(n, dtype=np.bool_)
    for j in range(length):
        shown[row[j] - first] = True
    best = -np.inf
    for i in range(n):
        if not shown[i]:
            best = max(best, s[i])
    tail = -np.inf
    if best > -np.inf:
        total = 0.0
        for i in range(n):
            if not shown[i]:
                total += math.exp(s[i] - best)
        tail = best + math.log(total)
    # after[j]: everything beyond position j
    after = np.empty(length)
    for j in range(length - 1, -1, -1):
        after[j] = tail
        tail = _log_add(tail, s[row[j] - first])
    some = False
    for k in range(length):
        if clicks[k] == 0:
            continue
        for j in range(min(last + 2, length)):
            if clicks[j] != 0:
                continue
            a = min(k, j)
            b = max(k, j)
            fa = s[row[a] - first]
            fb = s[row[b] - first]
            log_ratio = 0.0
            rest = after[b]
            for m in range(b, a, -1):
                if m < b:
                    rest = _log_add(rest, s[row[m] - first])
                log_ratio += _log_add(rest, fb) - _log_add(rest, fa)
            rho = 1.0 / (1.0 + math.exp(-log_ratio))
            gap = abs(s[row[k] - first] - s[row[j] - first])
            small = math.exp(-gap)
            weight = rho * small / ((1.0 + small) * (1.0 + small))
            coefficients[row[k] - first] += weight
            coefficients[row[j] - first] -= weight
            some = True
    return some


@njit(**_STRICT)
def pdgd_run(X, offsets, queries, examination, attraction, stop, u_actions, u_clicks, w, lr, out_displayed, out_clicks):
    """Display a ranking sampled from the learner's Plackett-Luce model, learn from the clicks, round by round."""
    longest_query = longest(offsets)
    s = np.empty(longest_query)
    scratch = np.empty(longest_query)
    for t in range(queries.size):
        first = offsets[queries[t]]
        n = offsets[queries[t] + 1] - first
        score_query(X, first, first + n, w, s)
        plackett_luce_list(s, first, n, u_actions[t], scratch, out_displayed[t])
        if click_list(out_displayed[t], examination, attraction, stop, u_clicks[t], out_clicks[t]) and (
            pdgd_coefficients(s, first, n, out_displayed[t], out_clicks[t], scratch)
        ):
            for i in range(n):
                scratch[i] *= lr
            add_documents(X, first, scratch, n, w)


# -- DBGD with team-draft interleaving --------------------------------------------------------------------------------


@njit(**_STRICT)
def team_draft(one, two, coins, out, owners):
    """Interleaves two lists; owners: 0 and 1 for the rankers, -1 for the shared prefix.

    After the shared prefix, in pairs of turns: coins[pair] < 1/2 lets `one` go first, and each adds its best document
    that is not there yet.
    """
    length = 0
    while length < out.size and length < one.size and one[length] >= 0:
        length += 1
    filled = 0
    while filled < length and one[filled] == two[filled]:
        out[filled] = one[filled]
        owners[filled] = -1
        filled += 1
    at_one = filled
    at_two = filled
    turn = 0
    while filled < length:
        goes_one = (coins[turn // 2] < 0.5) == (turn % 2 == 0)
        while True:
            place = one[at_one] if goes_one else two[at_two]
            if goes_one:
                at_one += 1
            else:
                at_two += 1
            fresh = True
            for j in range(filled):
                fresh = fresh and out[j] != place
            if fresh:
                break
        out[filled] = place
        owners[filled] = 0 if goes_one else 1
        filled += 1
        turn += 1
    for j in range(length, out.size):
        out[j] = -1
        owners[j] = -1


@njit(**_STRICT)
def dbgd_run(
    X, offsets, keys, queries, examination, attraction, stop, coins, u_clicks, directions, w, lr, reach,
    out_displayed, out_clicks,
):  # fmt: skip
    """Interleave the rankings of w and w + reach u; move to u when its documents got more clicks, round by round."""
    longest_query = longest(offsets)
    kappa = out_displayed.shape[1]
    s = np.empty(longest_query)
    one = np.empty(kappa, dtype=np.int64)
    two = np.empty(kappa, dtype=np.int64)
    owners = np.empty(kappa, dtype=np.int8)
    other = np.empty(w.size)
    for t in range(queries.size):
        first = offsets[queries[t]]
        n = offsets[queries[t] + 1] - first
        score_query(X, first, first + n, w, s)
        top_documents(s, keys, first, first + n, one)
        norm = 0.0
        for k in range(w.size):
            norm += directions[t, k] * directions[t, k]
        norm = math.sqrt(norm)
        for k in range(w.size):
            other[k] = w[k] + reach * directions[t, k] / norm
        score_query(X, first, first + n, other, s)
        top_documents(s, keys, first, first + n, two)
        team_draft(one, two, coins[t], out_displayed[t], owners)
        lead = 0
        if click_list(out_displayed[t], examination, attraction, stop, u_clicks[t], out_clicks[t]):
            for j in range(kappa):
                if out_clicks[t, j] != 0:
                    lead += (owners[j] == 1) - (owners[j] == 0)
        if lead > 0:
            for k in range(w.size):
                w[k] += lr * directions[t, k] / norm


# -- BubbleRank -------------------------------------------------------------------------------------------------------


@njit(**_STRICT)
def bubble_display(base, wins, counts, start, log_term, uniforms, out):
    """The list of items (numbers within the initial list) to display: pairs without a decision swapped by a coin.

    `start` is h = t mod 2: pairs (1, 2), (3, 4), ... for 0, (2, 3), (4, 5), ... for 1.
    """
    for j in range(base.size):
        out[j] = base[j]
    pair = 0
    k = start
    while k + 1 < base.size:
        i = base[k]
        j = base[k + 1]
        if wins[i, j] <= 2.0 * math.sqrt(counts[i, j] * log_term) and uniforms[pair] < 0.5:
            out[k] = j
            out[k + 1] = i
        pair += 1
        k += 2


@njit(**_STRICT)
def bubble_learn(base, shown, clicks, wins, counts, start, log_term):
    """Statistics of the compared pairs, then exchanges of adjacent items whose order is refuted, in order."""
    k = start
    while k + 1 < base.size:
        if clicks[k] != clicks[k + 1]:
            i = shown[k]
            j = shown[k + 1]
            difference = 1 if clicks[k] != 0 else -1
            wins[i, j] += difference
            wins[j, i] -= difference
            counts[i, j] += 1
            counts[j, i] += 1
        k += 2
    for k in range(base.size - 1):
        i = base[k]
        j = base[k + 1]
        if wins[j, i] > 2.0 * math.sqrt(counts[j, i] * log_term):
            base[k] = j
            base[k + 1] = i


@njit(**_STRICT)
def bubble_run(
    queries, examination, attraction, stop, u_actions, u_clicks, items, base, wins, counts, rounds, log_term,
    out_displayed, out_clicks,
):  # fmt: skip
    """BubbleRank over a leg: items[q] is the initial list, base[q] the current order of its items."""
    kappa = out_displayed.shape[1]
    shown = np.empty(kappa, dtype=np.int64)
    for t in range(queries.size):
        q = queries[t]
        n = 0
        while n < kappa and items[q, n] >= 0:
            n += 1
        start = rounds[q] % 2
        rounds[q] += 1
        bubble_display(base[q, :n], wins[q], counts[q], start, log_term, u_actions[t], shown)
        for j in range(n):
            out_displayed[t, j] = items[q, shown[j]]
        for j in range(n, kappa):
            out_displayed[t, j] = -1
        click_list(out_displayed[t], examination, attraction, stop, u_clicks[t], out_clicks[t])
        bubble_learn(base[q, :n], shown, out_clicks[t], wins[q], counts[q], start, log_term)
