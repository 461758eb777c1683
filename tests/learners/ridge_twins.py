"""NumPy twins of the ridge kernels: plain loops, every inverse from scratch, every sum written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from seamark.learners.base import Answers, Draws
from seamark.learners.ridge import RidgeStart
from seamark.policies import draw


class RidgeTwin:
    """V and b per action, inverted at every use."""

    def __init__(self, n_actions: int, d: int, l2: float, start: RidgeStart | None) -> None:
        gram = l2 * np.eye(d) if start is None else start.gram
        self.V = np.array([gram.copy() for _ in range(n_actions)])
        self.b = np.zeros((n_actions, d)) if start is None else start.responses.copy()

    def inverse(self, a: int) -> Any:
        return np.linalg.inv(self.V[a])

    def theta(self, a: int) -> Any:
        return np.linalg.solve(self.V[a], self.b[a])

    def learn(self, a: int, x: Any, reward: float) -> None:
        self.V[a] += np.outer(x, x)
        self.b[a] += reward * x


def ridge_twin(
    twin: RidgeTwin, answers: Answers, draws: Draws, *, alpha: float, clip: bool, floor: float, normals: Any = None
) -> list[tuple[int, float, float, float]]:
    """LinUCB, or with normals Thompson sampling: (action, reward, propensity, expected) per round."""
    n_actions = twin.b.shape[0]
    out = []
    for t, i in enumerate(draws.rows):
        x = np.asarray(answers.features)[i]
        scores = []
        for a in range(n_actions):
            width = alpha * np.sqrt(x @ twin.inverse(a) @ x)
            score = twin.theta(a) @ x + (width if normals is None else width * normals[t, a])
            scores.append(min(1.0, score) if clip else score)
        tied = np.array(scores) == max(scores)
        p = (1 - floor) * tied / tied.sum() + floor / n_actions
        a = int(draw(p[None], draws.actions[t : t + 1]).actions[0])
        means = [answers.right if c == answers.labels[i] else answers.wrong for c in range(n_actions)]
        reward = 1.0 if draws.rewards[t] < means[a] else 0.0
        twin.learn(a, x, reward)
        out.append((a, reward, p[a], float(p @ means)))
    return out


class ClucbTwin(RidgeTwin):
    """The constraint over all rounds so far: features in (n_actions * d,) blocks, V block-diagonal."""

    def __init__(
        self, n_actions: int, d: int, l2: float, start: RidgeStart | None,
        *, alpha: float, delta: float, norm_bound: float, noise: float, beta_scale: float,
    ) -> None:  # fmt: skip
        super().__init__(n_actions, d, l2, start)
        self.n_actions, self.d, self.l2 = n_actions, d, l2
        self.alpha, self.delta, self.norm_bound = alpha, delta, norm_bound
        self.noise, self.beta_scale = noise, beta_scale
        self.played: list[Any] = []
        self.baseline: list[Any] = []
        self.conservative: list[bool] = []
        self.slacks: list[float] = []

    def phi(self, x: Any, a: int) -> Any:
        out = np.zeros((self.n_actions, self.d))
        out[a] = x
        return out.ravel()

    def block_diagonal(self) -> Any:
        out = np.zeros((self.n_actions * self.d, self.n_actions * self.d))
        for a in range(self.n_actions):
            part = slice(a * self.d, (a + 1) * self.d)
            out[part, part] = self.V[a]
        return out

    def beta(self) -> float:
        V = self.block_diagonal()
        log_det = np.linalg.slogdet(V)[1] - V.shape[0] * np.log(self.l2)
        radius = self.noise * np.sqrt(log_det + 2 * np.log(1 / self.delta))
        return float(self.beta_scale * (radius + np.sqrt(self.l2) * self.norm_bound))

    def bound(self, x: Any, best: int, b: int) -> float:
        """min <theta, y> over the ellipsoid, y summed over all rounds, were `best` played against b's draw."""
        y = self.phi(x, best) - (1 - self.alpha) * self.phi(x, b)
        for played, baseline in zip(self.played, self.baseline):
            y = y + played - (1 - self.alpha) * baseline
        V = self.block_diagonal()
        theta = np.linalg.solve(V, self.b.ravel())
        return float(theta @ y - self.beta() * np.sqrt(y @ np.linalg.solve(V, y)))

    def best(self, x: Any) -> int:
        beta = self.beta()
        return int(
            np.argmax([self.theta(a) @ x + beta * np.sqrt(x @ self.inverse(a) @ x) for a in range(self.n_actions)])
        )

    def leads_to(self, x: Any, b: int) -> int:
        best = self.best(x)
        return best if b == best or self.bound(x, best, b) >= 0 else b

    def run(self, answers: Answers, draws: Draws, table: Any) -> list[tuple[int, float, float, float]]:
        out = []
        slack = self.slacks[-1] if self.slacks else 0.0
        for t, i in enumerate(draws.rows):
            x = np.asarray(answers.features)[i]
            means = [answers.right if c == answers.labels[i] else answers.wrong for c in range(self.n_actions)]
            p = np.zeros(self.n_actions)
            for b in range(self.n_actions):
                p[self.leads_to(x, b)] += table[i, b]
            b = int(draw(table[i : i + 1], draws.actions[t : t + 1]).actions[0])
            best = self.best(x)
            a = self.leads_to(x, b)
            reward = 1.0 if draws.rewards[t] < means[a] else 0.0
            self.conservative.append(b != best and a == b)
            self.played.append(self.phi(x, a))
            self.baseline.append(self.phi(x, b))
            self.learn(a, x, reward)
            slack += means[a] - (1 - self.alpha) * means[b]
            self.slacks.append(slack)
            out.append((a, reward, p[a], float(p @ means)))
        return out
