"""Ridge regression per action with rank-one updates: LinUCB, Thompson sampling, CLUCB (see the package).

Dense contexts only. `ridge` is a `learners.ridge.Arms`: five arrays that the kernels change in place.
    packed     (n_actions, d, d)  lower triangle with diagonal: the inverse A of the Gram matrix V = l2 I + sum x x';
                                  strictly above the diagonal: V itself (so V costs no memory and the inverse can be
                                  recomputed from it, which bounds the drift of the rank-one updates)
    diagonals  (n_actions, d)     diagonal of V
    weights    (n_actions, d)     theta = A b
    responses  (n_actions, d)     b = sum r x
    counts     (n_actions,)       updates so far
Reading half a symmetric matrix halves the memory traffic, which is what bounds the speed: two rows at a time it is
1.7 times as fast as whole rows (d = 256, 10 actions).
"""

import math

import numpy as np
from numba import njit

from seamark.kernels.linear import _DENSE, _STRICT, _reward, acting, pick

ROUNDING = 1 + 1e-6  # an earlier x'Ax times this is a bound in floating point too


@njit(**_DENSE)
def dot(u, v):
    s = 0.0
    for j in range(u.size):
        s += u[j] * v[j]
    return s


@njit(**_DENSE)
def axpy(c, x, y):
    """y += c x."""
    for j in range(x.size):
        y[j] += c * x[j]


@njit(**_DENSE)
def quadratic(A, x):
    """x'Ax, from the lower triangle, two rows at a time; pairs of zeros in x cost nothing."""
    d = x.size
    s = 0.0
    i = 0
    while i + 2 <= d:
        x0 = x[i]
        x1 = x[i + 1]
        if x0 != 0.0 or x1 != 0.0:
            r0 = A[i]
            r1 = A[i + 1]
            t = 0.0
            for j in range(i):
                t += x[j] * (x0 * r0[j] + x1 * r1[j])
            s += 2.0 * t + x0 * x0 * r0[i] + x1 * (x1 * r1[i + 1] + 2.0 * x0 * r1[i])
        i += 2
    if i < d:
        t = 0.0
        for j in range(i):
            t += x[j] * A[i, j]
        s += x[i] * (2.0 * t + A[i, i] * x[i])
    return max(s, 0.0)


@njit(**_DENSE)
def times(A, x, out):
    """out = A x, from the lower triangle, two rows at a time."""
    d = x.size
    for j in range(d):
        out[j] = 0.0
    i = 0
    while i + 2 <= d:
        x0 = x[i]
        x1 = x[i + 1]
        r0 = A[i]
        r1 = A[i + 1]
        s0 = r0[i] * x0 + r1[i] * x1
        s1 = r1[i] * x0 + r1[i + 1] * x1
        for j in range(i):
            s0 += r0[j] * x[j]
            s1 += r1[j] * x[j]
            out[j] += x0 * r0[j] + x1 * r1[j]
        out[i] = s0
        out[i + 1] = s1
        i += 2
    if i < d:
        s0 = A[i, i] * x[i]
        for j in range(i):
            s0 += A[i, j] * x[j]
            out[j] += x[i] * A[i, j]
        out[i] = s0


@njit(**_DENSE)
def shrink_inverse(A, w, c):
    """A <- A - w w' / c in the lower triangle (Sherman-Morrison: w = A x, c = 1 + x'w), two rows at a time."""
    d = w.size
    i = 0
    while i + 2 <= d:
        r0 = A[i]
        r1 = A[i + 1]
        k0 = w[i] / c
        k1 = w[i + 1] / c
        for j in range(i + 1):
            r0[j] -= k0 * w[j]
            r1[j] -= k1 * w[j]
        r1[i + 1] -= k1 * w[i + 1]
        i += 2
    if i < d:
        k0 = w[i] / c
        for j in range(i + 1):
            A[i, j] -= k0 * w[j]


@njit(**_DENSE)
def grow_gram(A, diagonal, x):
    """V <- V + x x', strictly above the diagonal of A and in `diagonal`."""
    for i in range(x.size):
        x_i = x[i]
        if x_i != 0.0:
            diagonal[i] += x_i * x_i
            above = A[i, i + 1 :]  # slices: indexing from i + 1 would not vectorise
            right = x[i + 1 :]
            for j in range(above.size):
                above[j] += x_i * right[j]


@njit(**_DENSE)
def invert(V):
    """V <- its inverse (Gauss-Jordan; V symmetric positive definite, so no pivoting); returns ln det V.

    Not LAPACK, whose bits depend on its number of threads.
    """
    d = V.shape[0]
    log_det = 0.0
    for k in range(d):
        log_det += math.log(V[k, k])
        pivot = 1.0 / V[k, k]
        V[k, k] = 1.0
        for j in range(d):
            V[k, j] *= pivot
        for i in range(d):
            if i != k:
                factor = V[i, k]
                V[i, k] = 0.0
                for j in range(d):
                    V[i, j] -= factor * V[k, j]
    return log_det


@njit(**_STRICT)
def reinvert(ridge, a):
    """Recomputes inverse and weights of one action from its V and b; returns ln det V."""
    A = ridge.packed[a]
    d = A.shape[0]
    V = np.empty((d, d))
    for i in range(d):
        V[i, i] = ridge.diagonals[a, i]
        for j in range(i + 1, d):
            V[i, j] = A[i, j]
            V[j, i] = A[i, j]
    log_det = invert(V)
    for i in range(d):
        for j in range(i + 1):
            A[i, j] = 0.5 * (V[i, j] + V[j, i])
    times(A, ridge.responses[a], ridge.weights[a])
    return log_det


@njit(**_STRICT)
def learn_one(ridge, a, x, reward, w):
    """One rank-one update; w becomes A x of the *new* A. Returns c = 1 + x'Ax of the old A.

    V <- V + x x' ; A <- A - A x (A x)'/c ; theta <- theta + A x (r - theta x)/c.
    """
    A = ridge.packed[a]
    times(A, x, w)
    c = 1.0 + max(dot(x, w), 0.0)
    error = reward - dot(ridge.weights[a], x)
    shrink_inverse(A, w, c)
    grow_gram(A, ridge.diagonals[a], x)
    for j in range(w.size):
        w[j] /= c
    axpy(error, w, ridge.weights[a])
    axpy(reward, x, ridge.responses[a])
    ridge.counts[a] += 1
    return c


@njit(**_STRICT)
def is_due(ridge, a, refresh_every):
    return ridge.counts[a] % refresh_every == 0


@njit(**_STRICT)
def ridge_learn(X, rows, actions, rewards, ridge, refresh_every):
    """One update per round."""
    w = np.empty(X.shape[1])
    for t in range(rows.size):
        a = actions[t]
        learn_one(ridge, a, X[rows[t]], rewards[t], w)
        if is_due(ridge, a, refresh_every):
            reinvert(ridge, a)


@njit(**_STRICT)
def score_of(ridge, a, x, alpha, g, squares):
    """theta_a x + alpha sqrt(x' A_a x) g; squares[a] becomes x' A_a x.

    g = 1 is optimism; g ~ N(0, 1) gives the law of w x with w ~ N(theta_a, alpha^2 A_a).
    """
    score = dot(ridge.weights[a], x)
    if alpha > 0.0:
        squares[a] = quadratic(ridge.packed[a], x)
        score += alpha * math.sqrt(squares[a]) * g
    return score


@njit(**_STRICT)
def leading_scores(ridge, x, alpha, clip, normals, squares, out):
    """out[a] = the score of a with g = normals[a] (1 where empty), at most 1 where `clip`; -inf where a cannot lead.

    squares[a] bounds x' A_a x from above: what it was when x was last seen, as A_a only shrinks. Scores are computed
    in the order of what that allows them, until no other can reach the highest one. So leaders and their scores are
    exact, and mostly two of the quadratic forms are computed, not all.
    """
    allowed = np.empty(out.size)
    for a in range(out.size):
        g = normals[a] if normals.size else 1.0
        room = alpha * math.sqrt(squares[a] * ROUNDING) * g if alpha > 0.0 and g > 0.0 else 0.0
        allowed[a] = dot(ridge.weights[a], x) + room
        if clip:
            allowed[a] = min(allowed[a], 1.0)
        out[a] = -np.inf
    highest = -np.inf
    for _ in range(out.size):
        a = np.argmax(allowed)
        if allowed[a] < highest:
            break
        allowed[a] = -np.inf
        score = score_of(ridge, a, x, alpha, normals[a] if normals.size else 1.0, squares)
        out[a] = min(score, 1.0) if clip else score
        highest = max(highest, out[a])


@njit(**_STRICT)
def ridge_run(
    X, rows, labels, p_right, p_wrong, u_actions, u_rewards, normals, ridge, alpha, clip, floor, refresh_every,
    squares, out_actions, out_rewards, out_propensities, out_expected,
):  # fmt: skip
    """Act greedily (ties shared, plus a floor) on optimistic scores and learn, round by round.

    With `normals` (rounds, actions) the scores are sampled instead; with an empty array (0, 0) they are optimistic.
    squares (contexts, actions): upper bounds of x'A_a x, infinite where nothing is known; see `leading_scores`.
    """
    n_actions = ridge.weights.shape[0]
    scores = np.empty(n_actions)
    p = np.empty(n_actions)
    w = np.empty(X.shape[1])
    none = np.empty(0)
    for t in range(rows.size):
        i = rows[t]
        x = X[i]
        leading_scores(ridge, x, alpha, clip, normals[t] if normals.shape[0] else none, squares[i], scores)
        acting(scores, 0.0, floor, p)
        a = pick(p, u_actions[t])
        reward = _reward(labels[i], a, p_right, p_wrong, u_rewards[t])
        out_actions[t] = a
        out_rewards[t] = reward
        out_propensities[t] = p[a]
        out_expected[t] = p_wrong + (p_right - p_wrong) * p[labels[i]]
        learn_one(ridge, a, x, reward, w)
        if is_due(ridge, a, refresh_every):
            reinvert(ridge, a)


@njit(**_STRICT)
def _clucb_learn_one(ridge, budget, a, x, reward, log_det_start, refresh_every, w):
    """`learn_one`, keeping g_a = A_a m_a and ln(det V_a / det l2 I) in step. w becomes A_a x of the new A."""
    along = dot(budget.images[a], x)  # x'A m, before the update
    c = learn_one(ridge, a, x, reward, w)
    axpy(-along, w, budget.images[a])  # w is (A x)/c already
    budget.log_dets[a] += math.log(c)
    if is_due(ridge, a, refresh_every):
        budget.log_dets[a] = reinvert(ridge, a) - log_det_start
        times(ridge.packed[a], budget.balances[a], budget.images[a])
        times(ridge.packed[a], x, w)


@njit(**_STRICT)
def _refresh_sums(ridge, budget, a):
    budget.norms[a] = max(dot(budget.balances[a], budget.images[a]), 0.0)
    budget.values[a] = dot(ridge.weights[a], budget.balances[a])


@njit(**_STRICT)
def clucb_learn(X, rows, actions, rewards, ridge, budget, log_det_start, refresh_every):
    """One update per round of somebody else's: narrows the ellipsoid, leaves the balance alone."""
    w = np.empty(X.shape[1])
    for t in range(rows.size):
        a = actions[t]
        _clucb_learn_one(ridge, budget, a, X[rows[t]], rewards[t], log_det_start, refresh_every, w)
        _refresh_sums(ridge, budget, a)


@njit(**_STRICT)
def clucb_beta(budget, delta, bias, noise, scale):
    """beta = R sqrt(ln(det V / det l2 I) + 2 ln(1 / delta)) + sqrt(l2) S, with bias = sqrt(l2) S."""
    return scale * (noise * math.sqrt(budget.log_dets.sum() + 2.0 * math.log(1.0 / delta)) + bias)


@njit(**_STRICT)
def clucb_bounds(budget, means, squares, along, best, keep, beta, out):
    """out[b] = min <theta, y> over the ellipsoid, y = m + phi_best - keep * phi_b: the constraint if `best` is played.

    keep = 1 - alpha; means[a] = theta_a x, squares[a] = x'A_a x, along[a] = x'A_a m_a. out[best] is +inf: there both
    play the same action.
    """
    value = budget.values.sum() + means[best]
    norm = budget.norms.sum() + 2.0 * along[best] + squares[best]
    for b in range(out.size):
        square = norm - 2.0 * keep * along[b] + keep * keep * squares[b]
        out[b] = value - keep * means[b] - beta * math.sqrt(max(square, 0.0))
    out[best] = np.inf


@njit(**_STRICT)
def clucb_run(
    X, rows, labels, p_right, p_wrong, u_actions, u_rewards, table, ridge, budget,
    alpha, delta, bias, noise, beta_scale, log_det_start, refresh_every,
    out_actions, out_rewards, out_propensities, out_expected,
):  # fmt: skip
    """Play the optimistic action where the constraint allows it, the baseline's otherwise; learn from every round.

    table[context] holds the baseline's probabilities; its action b is drawn with the round's action uniform.
    budget.ledger = [slack, smallest slack], in true expected rewards; budget.tally = [rounds, conservative rounds].
    """
    n_actions = ridge.weights.shape[0]
    keep = 1.0 - alpha
    means = np.empty(n_actions)
    squares = np.empty(n_actions)
    along = np.empty(n_actions)
    bounds = np.empty(n_actions)
    p = np.empty(n_actions)
    w = np.empty(X.shape[1])
    w_b = np.empty(X.shape[1])
    for t in range(rows.size):
        i = rows[t]
        x = X[i]
        beta = clucb_beta(budget, delta, bias, noise, beta_scale)
        best = 0
        highest = -np.inf
        for a in range(n_actions):
            means[a] = dot(ridge.weights[a], x)
            squares[a] = quadratic(ridge.packed[a], x)
            along[a] = dot(budget.images[a], x)
            upper = means[a] + beta * math.sqrt(squares[a])
            if upper > highest:
                best = a
                highest = upper
        clucb_bounds(budget, means, squares, along, best, keep, beta, bounds)
        baseline = table[i]
        for b in range(n_actions):
            p[b] = 0.0
        for b in range(n_actions):
            p[best if bounds[b] >= 0.0 else b] += baseline[b]
        b = pick(baseline, u_actions[t])
        conservative = not bounds[b] >= 0.0
        a = b if conservative else best
        reward = _reward(labels[i], a, p_right, p_wrong, u_rewards[t])
        out_actions[t] = a
        out_rewards[t] = reward
        out_propensities[t] = min(p[a], 1.0)
        out_expected[t] = p_wrong + (p_right - p_wrong) * p[labels[i]]

        _clucb_learn_one(ridge, budget, a, x, reward, log_det_start, refresh_every, w)
        if a == b:  # phi_a - (1 - alpha) phi_b = alpha phi_b
            axpy(alpha, x, budget.balances[a])
            axpy(alpha, w, budget.images[a])
        else:
            axpy(1.0, x, budget.balances[a])
            axpy(1.0, w, budget.images[a])
            times(ridge.packed[b], x, w_b)
            axpy(-keep, x, budget.balances[b])
            axpy(-keep, w_b, budget.images[b])
            _refresh_sums(ridge, budget, b)
        _refresh_sums(ridge, budget, a)

        budget.tally[0] += 1
        budget.tally[1] += conservative
        budget.ledger[0] += p_right if a == labels[i] else p_wrong
        budget.ledger[0] -= keep * (p_right if b == labels[i] else p_wrong)
        budget.ledger[1] = min(budget.ledger[1], budget.ledger[0])
