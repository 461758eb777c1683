"""NumPy twins of `seamark.kernels.linear`, written from the formulas: dense contexts, weights (actions, features)."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamark.policies import ActingForm, draw
from seamark.rounds import FloatArray, IntArray


def softmax(values: FloatArray, tau: float) -> FloatArray:
    return ActingForm.softmax(tau).probabilities(values[None, :])[0]


def stepped(w: FloatArray, x: FloatArray, coefficients: FloatArray, decay: float, everywhere: bool) -> FloatArray:
    """(1 - decay) w + coefficients x', the decay on the features of x that are not zero, or everywhere."""
    shrink = decay * (np.ones_like(x) if everywhere else (x != 0))
    return w * (1 - shrink) + np.outer(coefficients, x)


def ips_learn(
    x: FloatArray, rows: IntArray, actions: IntArray, rewards: FloatArray, propensities: FloatArray, w: FloatArray,
    *, tau: float, lr: float, l2: float, shift: float, cap: float, everywhere: bool,
) -> FloatArray:  # fmt: skip
    w = w.copy()
    for t, i in enumerate(rows):
        p = softmax(w @ x[i], tau)
        chosen = np.eye(len(w))[actions[t]]
        gradient = p[actions[t]] * (chosen - p) / tau
        weight = (rewards[t] - shift) / max(propensities[t], cap)
        w = stepped(w, x[i], lr * weight * gradient, lr * l2, everywhere)
    return w


def rewarded(label: int, action: int, right: float, wrong: float, uniform: float) -> float:
    return float(uniform < (right if action == label else wrong))


def boltzmann_run(
    x: FloatArray, rows: IntArray, labels: IntArray, right: float, wrong: float, u_actions: FloatArray,
    u_rewards: FloatArray, w: FloatArray, *, tau: float, floor: float, lr: float, l2: float, shift: float,
    everywhere: bool,
) -> tuple[FloatArray, list[list[Any]]]:  # fmt: skip
    """The weights after it, and (action, reward, propensity, expected reward) per round."""
    w, out = w.copy(), []
    for t, i in enumerate(rows):
        pi = softmax(w @ x[i], tau)
        p = ActingForm.softmax(tau, floor=floor).probabilities((w @ x[i])[None, :])
        drawn = draw(p, u_actions[t : t + 1])
        a, propensity = int(drawn.actions[0]), float(drawn.propensities[0])
        r = rewarded(labels[i], a, right, wrong, u_rewards[t])
        out.append([a, r, propensity, wrong + (right - wrong) * p[0, labels[i]]])
        gradient_of_log = (np.eye(len(w))[a] - pi) / tau
        w = stepped(w, x[i], lr * (r - shift) * pi[a] / propensity * gradient_of_log, lr * l2, everywhere)
    return w, out


def squared_step(
    w: FloatArray, x: FloatArray, a: int, r: float, lr: float, l2: float, everywhere: bool
) -> FloatArray:  # fmt: skip
    w = w.copy()
    w[[a]] = stepped(w[[a]], x, np.array([-lr * (w[a] @ x - r)]), lr * l2, everywhere)
    return w


def squared_learn(
    x: FloatArray, rows: IntArray, actions: IntArray, rewards: FloatArray, w: FloatArray,
    *, lr: float, l2: float, everywhere: bool,
) -> FloatArray:  # fmt: skip
    for t, i in enumerate(rows):
        w = squared_step(w, x[i], actions[t], rewards[t], lr, l2, everywhere)
    return w


def epsilon_greedy_run(
    x: FloatArray, rows: IntArray, labels: IntArray, right: float, wrong: float, u_actions: FloatArray,
    u_rewards: FloatArray, w: FloatArray, *, epsilon: float, lr: float, l2: float, everywhere: bool,
) -> tuple[FloatArray, list[list[Any]]]:  # fmt: skip
    out = []
    for t, i in enumerate(rows):
        p = ActingForm.epsilon_greedy(epsilon).probabilities((w @ x[i])[None, :])
        drawn = draw(p, u_actions[t : t + 1])
        a = int(drawn.actions[0])
        r = rewarded(labels[i], a, right, wrong, u_rewards[t])
        out.append([a, r, float(drawn.propensities[0]), wrong + (right - wrong) * p[0, labels[i]]])
        w = squared_step(w, x[i], a, r, lr, l2, everywhere)
    return w, out


def hinge_train(x: FloatArray, rows: IntArray, labels: IntArray, w: FloatArray, lr: float, l2: float) -> FloatArray:
    """Sub-gradient steps on sum over a != y of max(0, 1 - (s_y - s_a))."""
    for i in rows:
        y, s = labels[i], w @ x[i]
        violated = (1 + s - s[y] > 0) & (np.arange(len(w)) != y)
        coefficients = -lr * violated.astype(float)
        coefficients[y] = lr * violated.sum()
        w = stepped(w, x[i], coefficients, lr * l2, False)
    return w
