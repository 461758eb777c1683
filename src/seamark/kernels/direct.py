"""Direct method and portfolio scores (see the package for the array contract)."""

import numpy as np
from numba import njit

from seamark.kernels.linear import _DENSE, _STRICT, acting


@njit(**_DENSE)
def _dot(u, v):
    s = 0.0
    for j in range(u.size):
        s += u[j] * v[j]
    return s


@njit(**_STRICT)
def count_cells(rows, actions, rewards, weights, cell_weights, cell_rewards, totals):
    """Weight and weighted reward of every round, added to its (context, action) and to its action's totals."""
    for t in range(rows.size):
        i, a, w = rows[t], actions[t], weights[t]
        cell_weights[i, a] += w
        cell_rewards[i, a] += w * rewards[t]
        totals[a, 0] += w
        totals[a, 1] += w * rewards[t]


@njit(**_STRICT)
def _times_normal(X, contexts, counts, l2, v, out):
    """out = (l2 I + sum_x counts[x] x x') v over the given contexts."""
    for j in range(v.size):
        out[j] = l2 * v[j]
    for m in range(contexts.size):
        i = contexts[m]
        s = 0.0
        for k in range(X.indptr[i], X.indptr[i + 1]):
            s += X.data[k] * v[X.indices[k]]
        s *= counts[m]
        for k in range(X.indptr[i], X.indptr[i + 1]):
            out[X.indices[k]] += X.data[k] * s


@njit(**_STRICT)
def conjugate_gradients(X, contexts, counts, sums, l2, w, most, tolerance):
    """Solves (l2 I + sum n_x x x') w = sum s_x x in place, from the w given; returns the iterations it took.

    Stops when the residual's norm is below `tolerance` times that of the right-hand side.
    """
    d = w.size
    r = np.zeros(d)
    for m in range(contexts.size):
        i = contexts[m]
        for k in range(X.indptr[i], X.indptr[i + 1]):
            r[X.indices[k]] += X.data[k] * sums[m]
    enough = tolerance * tolerance * _dot(r, r)
    image = np.empty(d)
    _times_normal(X, contexts, counts, l2, w, image)
    for j in range(d):
        r[j] -= image[j]
    p = r.copy()
    rr = _dot(r, r)
    for iteration in range(most):
        if rr <= enough or rr == 0.0:
            return iteration
        _times_normal(X, contexts, counts, l2, p, image)
        step = rr / _dot(p, image)
        for j in range(d):
            w[j] += step * p[j]
            r[j] -= step * image[j]
        before = rr
        rr = _dot(r, r)
        for j in range(d):
            p[j] = r[j] + rr / before * p[j]
    return most


@njit(**_STRICT)
def gain_scores(scores, source, taus, floors, actions, rewards, propensities, cap, out):
    """out[t, h] = (min(h(a|x) / p, cap) - 1) r, where h acts on scores[t, source[h]] in the form taus[h], floors[h]."""
    h_of_x = np.empty(scores.shape[2])
    for t in range(actions.size):
        for h in range(source.size):
            acting(scores[t, source[h]], taus[h], floors[h], h_of_x)
            out[t, h] = (min(h_of_x[actions[t]] / propensities[t], cap) - 1.0) * rewards[t]
