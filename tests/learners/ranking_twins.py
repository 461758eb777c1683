"""Plain NumPy and brute-force twins of the ranking kernels, written from the formulas and not from the kernels."""

from __future__ import annotations

import itertools
import math

import numpy as np

from seamark.rankings import Users, documents


def small_pool(rng, lengths=(6, 1, 3, 9, 12), d=4, dtype=np.float64):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return documents(rng.normal(size=(offsets[-1], d)).astype(dtype), offsets)


def small_users(rng, pool, kappa=4, eta=1.0, stops=False):
    attraction = rng.choice([0.1, 0.5, 0.9], pool.n_docs)
    stop = rng.choice([0.2, 0.7], pool.n_docs) if stops else np.zeros(pool.n_docs)
    return Users(pool, np.arange(1.0, kappa + 1) ** -eta, attraction, stop)


def order(scores, keys):
    """Places, best first, smaller key first among equals."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], int(keys[i])))


def top_list(w, pool, q, kappa):
    a, b = pool.offsets[q], pool.offsets[q + 1]
    places = order(pool.features[a:b].astype(np.float64) @ w, pool.keys[a:b])[:kappa]
    return [int(a + i) for i in places] + [-1] * (kappa - len(places))


def click(users, shown, uniforms):
    clicks, gone = [], False
    for j, doc in enumerate(shown):
        p = 0.0 if doc < 0 or gone else users.examination[j] * users.attraction[doc]
        clicks.append(int(uniforms[j] < p))
        gone = gone or (doc >= 0 and uniforms[j] < p * users.stop[doc])
    return clicks


def ranksvm_loss(w, features, clicked, inverse, published):
    """sum over clicks of (1/p) * -1 / log2(1 + H), H over pairs; one more for the document itself if published."""
    s = features @ w
    total = 0.0
    for i, weight in zip(clicked, inverse):
        h = 1.0 + published
        for j in range(len(s)):
            if j != i:
                h += max(0.0, 1.0 - (s[i] - s[j]))
        total += weight * -1.0 / math.log2(1.0 + h)
    return total


def ranksvm_step(w, features, clicked, inverse, lr, published):
    """The update as the release writes it: every pair, every feature."""
    s = features @ w
    new = w.copy()
    for i, weight in zip(clicked, inverse):
        h, g = 1.0, np.zeros_like(w)
        for j in range(len(s)):
            if j == i and not published:
                continue
            h += max(0.0, 1.0 - (s[i] - s[j]))
            if s[i] - s[j] < 1.0:
                g -= features[i] - features[j]
        new -= lr * weight * g * math.log(2) / ((1 + h) * math.log(1 + h) ** 2)
    return new


def pl_probability(scores, ranking):
    """Of a (partial) ranking, drawn without replacement with weights exp(score)."""
    left, p = list(range(len(scores))), 1.0
    for i in ranking:
        total = sum(math.exp(scores[k]) for k in left)
        p *= math.exp(scores[i]) / total
        left.remove(i)
    return p


def pdgd_gradient(scores, ranking, clicks):
    """Per document the coefficient of its features, by the definition of rho over whole rankings."""
    out = np.zeros(len(scores))
    clicked = [k for k, c in enumerate(clicks) if c]
    if not clicked:
        return out
    for k, l in itertools.product(clicked, range(len(ranking))):  # noqa: E741 - the paper's letters
        if clicks[l] or l > max(clicked) + 1:
            continue
        other = list(ranking)
        other[k], other[l] = other[l], other[k]
        p, p_other = pl_probability(scores, ranking), pl_probability(scores, other)
        a, b = math.exp(scores[ranking[k]]), math.exp(scores[ranking[l]])
        weight = p_other / (p + p_other) * a * b / (a + b) ** 2
        out[ranking[k]] += weight
        out[ranking[l]] -= weight
    return out


def team_draft(one, two, coins, kappa):
    """List and owners (0, 1, None for the shared prefix)."""
    length = min(kappa, len([d for d in one if d >= 0]))
    shown, owners = [], []
    while len(shown) < length and one[len(shown)] == two[len(shown)]:
        shown.append(one[len(shown)])
        owners.append(None)
    pair = 0
    while len(shown) < length:
        for who in (0, 1) if coins[pair] < 0.5 else (1, 0):
            if len(shown) < length:
                shown.append(next(d for d in (one, two)[who] if d not in shown))
                owners.append(who)
        pair += 1
    return shown, owners


class BubbleTwin:
    """One query of BubbleRank with dictionaries, items by document row."""

    def __init__(self, items, log_term):
        self.base, self.log_term, self.t = list(items), log_term, 0
        self.s = {(i, j): 0 for i in items for j in items}
        self.n = dict(self.s)

    def step(self, uniforms, get_clicks):
        shown, h = list(self.base), self.t % 2
        self.t += 1
        pairs = [(k, k + 1) for k in range(h, len(shown) - 1, 2)]
        for u, (a, b) in zip(uniforms, pairs):
            i, j = shown[a], shown[b]
            if self.s[i, j] <= 2 * math.sqrt(self.n[i, j] * self.log_term) and u < 0.5:
                shown[a], shown[b] = j, i
        clicks = get_clicks(shown)
        for a, b in pairs:
            i, j = shown[a], shown[b]
            if clicks[a] != clicks[b]:
                self.s[i, j] += clicks[a] - clicks[b]
                self.s[j, i] -= clicks[a] - clicks[b]
                self.n[i, j] += 1
                self.n[j, i] += 1
        for k in range(len(self.base) - 1):
            i, j = self.base[k], self.base[k + 1]
            if self.s[j, i] > 2 * math.sqrt(self.n[j, i] * self.log_term):
                self.base[k], self.base[k + 1] = j, i
        return shown, clicks
