"""Linear scores, acting, and gradient learners (see the package for the array contract)."""

import math

import numpy as np
from numba import njit, types
from numba.extending import overload

# error_model="numpy": divisions by zero give infinities, never exceptions, as in the NumPy twins
_STRICT = {"cache": True, "nogil": True, "error_model": "numpy"}
_DENSE = {**_STRICT, "fastmath": {"reassoc", "contract"}}


def scores(X, i, W, out):
    """out[a] = <weights of a, context i>."""
    raise NotImplementedError("compiled only")


def step(X, i, W, coefficients, decay, everywhere):
    """weights of a <- (1 - decay) * weights of a + coefficients[a] * x, decay only where x is not zero,
    unless `everywhere` (dense contexts only; sparse kernels scale as a whole)."""
    raise NotImplementedError("compiled only")


def score_of(X, i, W, a):
    """The score of one action."""
    raise NotImplementedError("compiled only")


def step_one(X, i, W, a, coefficient, decay, everywhere):
    """`step` for one action's weights only."""
    raise NotImplementedError("compiled only")


@njit(**_DENSE)
def _dense_score(X, i, W, a):
    s = 0.0
    for j in range(W.shape[1]):
        s += W[a, j] * X[i, j]
    return s


@njit(**_DENSE)
def _dense_scores(X, i, W, out):
    n_actions = W.shape[0]
    a = 0
    while a + 1 < n_actions:  # two actions at a time share the loads of x
        s = 0.0
        r = 0.0
        for j in range(W.shape[1]):
            x = X[i, j]
            s += W[a, j] * x
            r += W[a + 1, j] * x
        out[a] = s
        out[a + 1] = r
        a += 2
    if a < n_actions:
        out[a] = _dense_score(X, i, W, a)


@njit(**_DENSE)
def _dense_scores_pair(X, i, k, W, out_i, out_k):
    n_actions = W.shape[0]
    a = 0
    while a + 1 < n_actions:  # 2 x 2 blocks: four products for four loads
        s = 0.0
        r = 0.0
        p = 0.0
        q = 0.0
        for j in range(W.shape[1]):
            x = X[i, j]
            z = X[k, j]
            s += W[a, j] * x
            r += W[a + 1, j] * x
            p += W[a, j] * z
            q += W[a + 1, j] * z
        out_i[a] = s
        out_i[a + 1] = r
        out_k[a] = p
        out_k[a + 1] = q
        a += 2
    if a < n_actions:
        out_i[a] = _dense_score(X, i, W, a)
        out_k[a] = _dense_score(X, k, W, a)


@njit(**_DENSE)
def _dense_step_one(X, i, W, a, coefficient, decay, everywhere):
    if decay == 0.0:
        for j in range(W.shape[1]):
            W[a, j] += coefficient * X[i, j]
    elif everywhere:
        for j in range(W.shape[1]):
            W[a, j] = (1.0 - decay) * W[a, j] + coefficient * X[i, j]
    else:
        for j in range(W.shape[1]):
            x = X[i, j]
            shrink = decay if x != 0.0 else 0.0
            W[a, j] = (1.0 - shrink) * W[a, j] + coefficient * x


@overload(score_of)
def _score_of(X, i, W, a):
    if isinstance(X, types.Array):
        return lambda X, i, W, a: _dense_score(X, i, W, a)

    def sparse(X, i, W, a):
        s = 0.0
        for k in range(X.indptr[i], X.indptr[i + 1]):
            s += X.data[k] * W[X.indices[k], a]
        return s

    return sparse


@overload(scores)
def _scores(X, i, W, out):
    if isinstance(X, types.Array):
        return lambda X, i, W, out: _dense_scores(X, i, W, out)

    def sparse(X, i, W, out):
        n_actions = W.shape[1]
        for a in range(n_actions):
            out[a] = 0.0
        k = X.indptr[i]
        end = X.indptr[i + 1]
        while k + 7 < end:  # eight features at a time: an eighth of the traffic on out, the same order of sums
            x0, x1, x2, x3 = X.data[k], X.data[k + 1], X.data[k + 2], X.data[k + 3]
            x4, x5, x6, x7 = X.data[k + 4], X.data[k + 5], X.data[k + 6], X.data[k + 7]
            w0, w1, w2, w3 = W[X.indices[k]], W[X.indices[k + 1]], W[X.indices[k + 2]], W[X.indices[k + 3]]
            w4, w5, w6, w7 = W[X.indices[k + 4]], W[X.indices[k + 5]], W[X.indices[k + 6]], W[X.indices[k + 7]]
            for a in range(n_actions):
                s = (((out[a] + x0 * w0[a]) + x1 * w1[a]) + x2 * w2[a]) + x3 * w3[a]
                out[a] = (((s + x4 * w4[a]) + x5 * w5[a]) + x6 * w6[a]) + x7 * w7[a]
            k += 8
        while k < end:
            x = X.data[k]
            w = W[X.indices[k]]
            for a in range(n_actions):
                out[a] += x * w[a]
            k += 1

    return sparse


def scores_pair(X, i, k, W, out_i, out_k):
    """`scores` of two contexts at once."""
    raise NotImplementedError("compiled only")


@overload(scores_pair)
def _scores_pair(X, i, k, W, out_i, out_k):
    if isinstance(X, types.Array):
        return lambda X, i, k, W, out_i, out_k: _dense_scores_pair(X, i, k, W, out_i, out_k)

    def sparse(X, i, k, W, out_i, out_k):
        scores(X, i, W, out_i)
        scores(X, k, W, out_k)

    return sparse


@overload(step)
def _step(X, i, W, coefficients, decay, everywhere):
    if isinstance(X, types.Array):

        def dense(X, i, W, coefficients, decay, everywhere):
            for a in range(W.shape[0]):
                _dense_step_one(X, i, W, a, coefficients[a], decay, everywhere)

        return dense

    def sparse(X, i, W, coefficients, decay, everywhere):
        n_actions = W.shape[1]
        keep = 1.0 if everywhere else 1.0 - decay
        for k in range(X.indptr[i], X.indptr[i + 1]):
            j = X.indices[k]
            x = X.data[k]
            for a in range(n_actions):
                W[j, a] = keep * W[j, a] + coefficients[a] * x

    return sparse


@overload(step_one)
def _step_one(X, i, W, a, coefficient, decay, everywhere):
    if isinstance(X, types.Array):
        return lambda X, i, W, a, coefficient, decay, everywhere: _dense_step_one(
            X, i, W, a, coefficient, decay, everywhere
        )

    def sparse(X, i, W, a, coefficient, decay, everywhere):
        keep = 1.0 if everywhere else 1.0 - decay
        for k in range(X.indptr[i], X.indptr[i + 1]):
            j = X.indices[k]
            W[j, a] = keep * W[j, a] + coefficient * X.data[k]

    return sparse


def is_sparse(X):
    raise NotImplementedError("compiled only")


@overload(is_sparse)
def _is_sparse(X):
    sparse = not isinstance(X, types.Array)
    return lambda X: sparse


@njit(**_STRICT)
def softmax(values, tau, out):
    """out = softmax(values / tau)."""
    top = values[0]
    for a in range(1, values.size):
        top = max(top, values[a])
    total = 0.0
    for a in range(values.size):
        out[a] = math.exp((values[a] - top) / tau)
        total += out[a]
    share = 1.0 / total
    for a in range(values.size):
        out[a] *= share


@njit(**_STRICT)
def acting(values, tau, floor, out):
    """Probabilities of an acting form (`policies.ActingForm`): softmax or greedy with ties shared, plus a floor."""
    n_actions = values.size
    if tau > 0.0:
        softmax(values, tau, out)
    else:
        top = values[0]
        for a in range(1, n_actions):
            top = max(top, values[a])
        ties = 0
        for a in range(n_actions):
            ties += values[a] == top
        for a in range(n_actions):
            out[a] = 1.0 / ties if values[a] == top else 0.0
    if floor > 0.0:
        least = floor / n_actions
        for a in range(n_actions):
            out[a] = (1.0 - floor) * out[a] + least


@njit(**_STRICT)
def pick(probabilities, uniform):
    """The action of one uniform by inverse CDF; never one of probability zero."""
    below = 0.0
    last = 0
    for a in range(probabilities.size):
        if probabilities[a] > 0.0:
            last = a
            below += probabilities[a]
            if uniform < below:
                return a
    return last  # rounding: the sum may end just below one


@njit(**_STRICT)
def act_from_table(table, rows, uniforms, out_actions, out_propensities):
    """Act from cached probabilities table[context, action]."""
    for t in range(rows.size):
        p = table[rows[t]]
        a = pick(p, uniforms[t])
        out_actions[t] = a
        out_propensities[t] = p[a]


@njit(**_STRICT)
def rewards_of(labels, p_right, p_wrong, rows, actions, uniforms, out_rewards):
    """Bernoulli rewards: p_right for the context's label, p_wrong otherwise."""
    for t in range(rows.size):
        p = p_right if actions[t] == labels[rows[t]] else p_wrong
        out_rewards[t] = 1.0 if uniforms[t] < p else 0.0


@njit(**_STRICT)
def sparse_scores(X, W):
    """Scores of all contexts, (n, n_actions)."""
    n = X.indptr.size - 1
    out = np.empty((n, W.shape[1]))
    for i in range(n):
        scores(X, i, W, out[i])
    return out


@njit(**_STRICT)
def _rescale(W, factor):
    for j in range(W.shape[0]):
        for a in range(W.shape[1]):
            W[j, a] *= factor


@njit(**_STRICT)
def ips_learn(X, rows, actions, rewards, propensities, W, tau, lr, l2, shift, cap, everywhere):
    """Gradient ascent on (r - shift) / max(p, cap) * softmax(W x / tau)[a], one step per round.

    d softmax[a] / d w_b = softmax[a] (1{b = a} - softmax[b]) x / tau. L2: w <- (1 - lr l2) w, on the non-zero
    features of the context (as published) or `everywhere` (ridge).
    """
    n_actions = W.shape[1] if is_sparse(X) else W.shape[0]
    p = np.empty(n_actions)
    c = np.empty(n_actions)
    decay = lr * l2
    lazy = everywhere and is_sparse(X) and decay > 0.0
    scale = 1.0  # the weights are scale * W while the loop runs
    for t in range(rows.size):
        i = rows[t]
        a = actions[t]
        scores(X, i, W, c)
        if lazy:
            for b in range(n_actions):
                c[b] *= scale
            scale *= 1.0 - decay
        softmax(c, tau, p)
        g = lr * (rewards[t] - shift) / max(propensities[t], cap) * p[a] / (tau * scale)
        for b in range(n_actions):
            c[b] = -g * p[b]
        c[a] += g
        step(X, i, W, c, decay, everywhere)
        if lazy and scale < 1e-9:
            _rescale(W, scale)
            scale = 1.0
    if lazy:
        _rescale(W, scale)


@njit(**_STRICT)
def boltzmann_run(
    X, rows, labels, p_right, p_wrong, u_actions, u_rewards, W, tau, floor, lr, l2, shift, everywhere,
    out_actions, out_rewards, out_propensities, out_expected,
):  # fmt: skip
    """Act by softmax (with a floor) of the weights and learn by policy gradient, round by round.

    Ascent on (r - shift) log pi[a]; under a floor the draw comes from p, not pi, hence the weight pi[a] / p[a].
    """
    n_actions = W.shape[1] if is_sparse(X) else W.shape[0]
    p = np.empty(n_actions)
    c = np.empty(n_actions)
    decay = lr * l2
    lazy = everywhere and is_sparse(X) and decay > 0.0
    scale = 1.0
    for t in range(rows.size):
        i = rows[t]
        scores(X, i, W, c)
        if lazy:
            for b in range(n_actions):
                c[b] *= scale
            scale *= 1.0 - decay
        softmax(c, tau, p)
        for b in range(n_actions):
            c[b] = (1.0 - floor) * p[b] + floor / n_actions
        a = pick(c, u_actions[t])
        drawn = c[a]
        reward = _reward(labels[i], a, p_right, p_wrong, u_rewards[t])
        out_actions[t] = a
        out_rewards[t] = reward
        out_propensities[t] = drawn
        out_expected[t] = p_wrong + (p_right - p_wrong) * c[labels[i]]
        g = lr * (reward - shift) * (p[a] / drawn) / (tau * scale)
        for b in range(n_actions):
            c[b] = -g * p[b]
        c[a] += g
        step(X, i, W, c, decay, everywhere)
        if lazy and scale < 1e-9:
            _rescale(W, scale)
            scale = 1.0
    if lazy:
        _rescale(W, scale)


@njit(**_STRICT)
def _reward(label, action, p_right, p_wrong, uniform):
    return 1.0 if uniform < (p_right if action == label else p_wrong) else 0.0


@njit(**_STRICT)
def squared_learn(X, rows, actions, rewards, W, lr, l2, everywhere):
    """Descent on (w_a x - r)^2 / 2, one step per round on the action's weights."""
    for t in range(rows.size):
        i = rows[t]
        a = actions[t]
        error = score_of(X, i, W, a) - rewards[t]
        step_one(X, i, W, a, -lr * error, lr * l2, everywhere)


@njit(**_STRICT)
def epsilon_greedy_run(
    X, rows, labels, p_right, p_wrong, u_actions, u_rewards, W, epsilon, lr, l2, everywhere,
    out_actions, out_rewards, out_propensities, out_expected,
):  # fmt: skip
    """Act epsilon-greedily on the scores and learn by squared loss, round by round."""
    n_actions = W.shape[1] if is_sparse(X) else W.shape[0]
    s = np.empty(n_actions)
    p = np.empty(n_actions)
    for t in range(rows.size):
        i = rows[t]
        scores(X, i, W, s)
        acting(s, 0.0, epsilon, p)
        a = pick(p, u_actions[t])
        reward = _reward(labels[i], a, p_right, p_wrong, u_rewards[t])
        out_actions[t] = a
        out_rewards[t] = reward
        out_propensities[t] = p[a]
        out_expected[t] = p_wrong + (p_right - p_wrong) * p[labels[i]]
        step_one(X, i, W, a, -lr * (s[a] - reward), lr * l2, everywhere)


@njit(**_STRICT)
def table_moments(X, contexts, W, tau, floor, W1, W2):
    """Sums over the given contexts of pi W1 and pi^2 W2, and the largest pi W1: the paper's W form.

    pi is the acting form (tau, floor) of the scores W x. Contexts without any weight are not scored.
    """
    n_actions = W1.shape[1]
    s = np.empty((2, n_actions))
    p = np.empty(n_actions)
    s1 = 0.0
    s2 = 0.0
    largest = 0.0
    waiting = -1  # contexts are scored in pairs
    for k in range(contexts.size + 1):
        i = -1
        if k < contexts.size:
            i = contexts[k]
            some = False
            for a in range(n_actions):
                some = some or W1[i, a] != 0.0
            if not some:
                continue
            if waiting < 0:
                waiting = i
                continue
        if waiting < 0:
            break
        if i >= 0:
            scores_pair(X, waiting, i, W, s[0], s[1])
        else:
            scores(X, waiting, W, s[0])
        for h in range(1 if i < 0 else 2):
            at = waiting if h == 0 else i
            acting(s[h], tau, floor, p)
            for a in range(n_actions):
                value = p[a] * W1[at, a]
                s1 += value
                s2 += p[a] * p[a] * W2[at, a]
                largest = max(largest, value)
        waiting = -1
    return s1, s2, largest


@njit(**_STRICT)
def add_to_tables(rows, actions, values, W1, W2, seen):
    """W1[x, a] += value, W2[x, a] += value^2, and marks the contexts seen."""
    for t in range(rows.size):
        i = rows[t]
        seen[i] = True
        W1[i, actions[t]] += values[t]
        W2[i, actions[t]] += values[t] * values[t]


@njit(**_STRICT)
def hinge_train(X, rows, labels, W, lr, l2):
    """Multiclass hinge loss sum_{a != y} max(0, 1 - (s_y - s_a)) by stochastic gradient, one step per row."""
    n_actions = W.shape[1] if is_sparse(X) else W.shape[0]
    s = np.empty(n_actions)
    for t in range(rows.size):
        i = rows[t]
        y = labels[i]
        scores(X, i, W, s)
        right = s[y]
        violations = 0
        for a in range(n_actions):
            violated = a != y and 1.0 + s[a] - right > 0.0
            violations += violated
            s[a] = -lr if violated else 0.0
        s[y] = lr * violations
        step(X, i, W, s, lr * l2, False)
