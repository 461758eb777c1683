"""Paired scores and bets of all challengers over a leg (see the package for the array contract).

`evidence` is a `gates.slots.Evidence`: arrays with one entry per place of a slot, changed in place. Rounds come in
decision order. A round's result depends on those before it through the state only: any split of a leg, the same bits.
"""

import math

from numba import njit

from seamark.kernels.linear import _STRICT

HUGE = 1e100  # a capital moves into its logarithm beyond this (or below its inverse)
SLACK = 1e-9  # rounding allowed below a score's bound


@njit(**_STRICT)
def paired_scores(h, d, p, q, a, r, truncations, z):
    """z[e] = sum_b (h - d)_b qt_b + u_a (r - qt_a) with u = (h - d) / p.

    qt = min(q, k_e / u) where u > 0, q elsewhere; qt = 0 for k_e = 0. Actions with p = 0 (then d = 0: checked by the
    caller) are left out of both sums. Returns whether there were any.
    """
    lost = False
    for e in range(truncations.size):
        z[e] = 0.0
    for b in range(h.size):
        difference = h[b] - d[b]
        if difference == 0.0:
            continue
        if p[b] <= 0.0:
            lost = True
            continue
        u = difference / p[b]
        for e in range(truncations.size):
            k = truncations[e]
            qt = 0.0
            if k > 0.0:
                qt = min(q[b], k / u) if u > 0.0 else q[b]
            z[e] += difference * qt
            if b == a:
                z[e] += u * (r - qt)
    return lost


@njit(**_STRICT)
def multiply(log_capital, capital, bets, gain):
    """Every bet's capital times (1 + bet * gain)."""
    for j in range(bets.size):
        factor = 1.0 + bets[j] * gain
        c = capital[j] * factor
        if c > HUGE or c < 1.0 / HUGE:
            log_capital[j] += math.log(capital[j]) + math.log(factor)
            c = 1.0
        capital[j] = c


@njit(**_STRICT)
def same(h, d):
    equal = True
    for b in range(h.size):
        equal = equal and h[b] == d[b]
    return equal


@njit(**_STRICT)
def learn_mean(rewards, mean):
    """mean = [rounds, sum of rewards]."""
    for t in range(rewards.size):
        mean[0] += 1.0
        mean[1] += rewards[t]


@njit(**_STRICT)
def mean_reward(mean):
    """Running mean of rewards, begun at one half."""
    return (mean[1] + 0.5) / (mean[0] + 1.0)


@njit(**_STRICT)
def score_leg(
    first, actions, rewards, versions, version,
    D, d_at, P, p_at, H, h_at, Q, q_at, by_mean, mean,
    starts, margins, truncations, bounds, bets, z, q, evidence,
):  # fmt: skip
    """Scores every slot with the rounds of this version from its start on. Returns (place, round) of a score below
    its bound, else (-1, -1).

    D[d_at[t]], P[p_at[t]], Q[q_at[t]], H[place, h_at[t]]: distributions and reward model of round t. With `by_mean` the
    reward model is the running mean of all rounds before t, and Q is not read. z, q: room for one round.
    """
    n_places = starts.size
    for t in range(actions.size):
        if versions[t] == version:
            a = actions[t]
            r = rewards[t]
            d = D[d_at[t]]
            p = P[p_at[t]]
            if by_mean:
                level = mean_reward(mean)
                for b in range(q.size):
                    q[b] = level
            for s in range(n_places):
                if first + t < starts[s] or evidence.invalid[s]:
                    continue
                h = H[s, h_at[t]]
                margin = margins[s]
                evidence.scored[s] += 1
                if same(h, d):
                    if margin != 0.0:  # a score of zero is not free then
                        for e in range(truncations.size):
                            multiply(evidence.log_capital[s, e], evidence.capital[s, e], bets[s, e], -margin)
                    continue
                evidence.differed[s] += 1
                if paired_scores(h, d, p, q if by_mean else Q[q_at[t]], a, r, truncations, z):
                    evidence.unsupported[s] += 1
                    for b in range(h.size):
                        if p[b] <= 0.0 and h[b] > 0.0:
                            evidence.lost[s, b] += h[b]
                            evidence.largest_lost[s] = max(evidence.largest_lost[s], h[b])
                for e in range(truncations.size):
                    if not math.isfinite(z[e]):
                        evidence.invalid[s] = 1
                        break
                    if z[e] < -bounds[s, e] - SLACK:
                        return s, t
                    evidence.s1[s, e] += z[e]
                    evidence.s2[s, e] += z[e] * z[e]
                    multiply(evidence.log_capital[s, e], evidence.capital[s, e], bets[s, e], z[e] - margin)
        if by_mean:
            mean[0] += 1.0
            mean[1] += rewards[t]
    return -1, -1
