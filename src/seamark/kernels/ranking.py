"""Ranking: scores, displays, clicks, learners that move every round, and the sums the gates need.

Contract: X is a C-ordered (n_docs, d) array, float32 or float64; sums are float64. The documents of query q are rows
offsets[q] to offsets[q + 1]; `keys` breaks ties (smaller first). A list is a row of document rows (int64), best first,
-1 where it has ended (as in `kernels.clicks`). The first block of loops is dense and may reassociate sums; all others
are strict. Kernels change weights and `out_*` arrays in place, hold no generator, and take one uniform per decision.
"""

import math

import numpy as np
from numba import njit

from seamark.kernels.challenger import multiply
from seamark.kernels.clicks import click_list, comes_before, top_documents
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
def _log_add(a, b):
    if a < b:
        a, b = b, a
    return a if b == -np.inf else a + math.log1p(math.exp(b - a))


@njit(**_STRICT)
def list_length(row):
    """How many documents a list has before its padding."""
    n = 0
    while n < row.size and row[n] >= 0:
        n += 1
    return n


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


# -- scores and sums of the gates -------------------------------------------------------------------------------------


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
