"""Cells as a run would write them, with numbers made up by formula."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

GATED = ("sea", "bsea", "seamark")


def evaluation_rounds(rounds: int) -> list[int]:
    """0, then about ten rounds per decade, each power of ten among them, and the last round."""
    exponents = np.arange(0, 10 * math.log10(rounds) + 1e-9) / 10
    return [0, *sorted({*(round(10**e) for e in exponents), rounds})]


def fake_cell(method: str, seed: int, *, rounds: int = 10_000, task: str = "classification", **changes: Any) -> Any:
    """One plausible cell: gated methods rise after a deployment, others from the start, `ips` never acts."""
    rng = np.random.default_rng([seed, zlib.crc32(method.encode())])
    at = np.array(evaluation_rounds(rounds))
    start = {"ips": math.inf}.get(method, rounds / 50 * (1 + 0.2 * rng.random()) if method in GATED else 0.0)
    gain = 0.3 + 0.03 * rng.standard_normal() if method in GATED else 0.25 + 0.05 * rng.standard_normal()
    acted = np.maximum(at - start, 0.0)
    expected = gain * acted - (0.0 if method in GATED else 3.0) * np.sqrt(acted)
    noise = np.where(at > start, np.round(rng.standard_normal(at.size) * 0.3 * np.sqrt(at)), 0.0)
    baseline = np.round(0.55 * at)
    progress = np.where(at > start, 1 - np.exp(-acted / rounds * 5), 0.0)
    learned = 0.6 + 0.3 * (1 - np.exp(-at / rounds * 8)) + 0.005 * rng.standard_normal()
    deployed = 0.55 + (gain + 0.05) * progress
    checks = np.array([t for t in at if t > 0]) if method in GATED else np.array([])
    deployments = [
        {
            "at": int(t),
            "from": f"p{i}",
            "to": f"p{i + 1}",
            "evidence": {},
            "true_value_before": 0.6 + 0.01 * i,
            "true_value_after": 0.6 + 0.01 * (i + 1) - (0.05 if method == "bsea" and i == 1 else 0.0),
        }
        for i, t in enumerate(checks[checks > start][::6])
    ]
    unsafe = sum(one["true_value_after"] < one["true_value_before"] for one in deployments)
    metric = "ndcg10" if task == "ranking" else "accuracy"
    cell: dict[str, Any] = {
        "schema": 1,
        "id": f"{method}-{seed}",
        "task": task,
        "data": "digits" if task == "classification" else "synthetic",
        "method": method,
        **({"clicks": "perfect"} if task == "ranking" else {"rewards": "perfect"}),
        "semantics": "paper",
        "baseline": "boltzmann",
        "floor": 0.05,
        "delta": 0.05,
        "seed": seed,
        "rounds": rounds,
        "config": {"method": method, "seed": seed, "rate": 0.1},
        "version": "0.1.0",
        "at": at.tolist(),
        "cumulative_reward": (baseline + np.round(expected) + noise).tolist(),
        "baseline_cumulative_reward": baseline.tolist(),
        "expected_gain": expected.tolist(),
        f"deployed_test_{metric}": deployed.tolist(),
        f"learned_test_{metric}": learned.tolist(),
        "deployed_test_value": deployed.tolist(),
        "learned_test_value": learned.tolist(),
        "deployments": deployments,
        "unsafe_deployments": unsafe,
        "worst_shortfall": float(min(expected.min(), 0.0)),
        "checks": int(checks.size),
        "check_records": fake_records(method, checks, start, rng),
        "seconds": {"total": 1.5, "learning": 1.0, "checking": 0.25},
        "rounds_per_second": rounds / 1.5,
    }
    if task == "ranking":
        cell["cumulative_ndcg10"] = (0.4 * at + 0.1 * expected).tolist()
        cell["baseline_cumulative_ndcg10"] = (0.4 * at).tolist()
    return cell | changes


def fake_records(method: str, checks: Any, start: float, rng: Any) -> dict[str, list[Any]]:
    """Check records of the gate that the method has: bounds, or log evidence."""
    if method not in GATED:
        return {}
    verdicts = ["promote" if t > start else "hold" for t in checks]
    if method == "seamark":
        evidence = np.cumsum(rng.standard_normal(checks.size) * 0.3 + 0.1)
        return {
            "at": checks.tolist(),
            "log_evidence": evidence.tolist(),
            "threshold": [math.log(20)] * checks.size,
            "verdict": verdicts,
        }
    mean, width = 0.6 + 0.2 * checks / checks.max(), 20 / np.sqrt(checks)
    if method == "bsea":
        width = width * math.nan
    deployed = mean - 0.05
    return {
        "at": checks.tolist(),
        "new_mean": mean.tolist(),
        "new_lower": (mean - width).tolist(),
        "new_upper": (mean + width).tolist(),
        "deployed_mean": deployed.tolist(),
        "deployed_lower": (deployed - width).tolist(),
        "deployed_upper": (deployed + width).tolist(),
        "verdict": verdicts,
    }


def tiny_cell(method: str, seed: int, reward: list[float], **changes: Any) -> Any:
    """A cell of three points with the given cumulative reward over a baseline that earns [0, 5, 50]."""
    cell = {
        "schema": 1,
        "id": f"{method}-{seed}",
        "task": "classification",
        "data": "digits",
        "method": method,
        "rewards": "perfect",
        "semantics": "paper",
        "baseline": "boltzmann",
        "floor": 0.05,
        "delta": 0.05,
        "seed": seed,
        "rounds": 100,
        "config": {},
        "version": "0.1.0",
        "at": [0, 10, 100],
        "cumulative_reward": reward,
        "baseline_cumulative_reward": [0.0, 5.0, 50.0],
        "expected_gain": [0.0, 0.0, 0.0],
        "deployed_test_accuracy": [0.5, 0.5, 0.5],
        "deployed_test_value": [0.5, 0.5, 0.5],
        "learned_test_accuracy": [0.5, 0.6, 0.7],
        "learned_test_value": [0.5, 0.6, 0.7],
        "deployments": [],
        "unsafe_deployments": 0,
        "worst_shortfall": 0.0,
        "checks": 0,
        "check_records": {},
        "seconds": {"total": 2.0, "learning": 1.0, "checking": 0.5},
        "rounds_per_second": 50.0,
    }
    return cell | changes


def deployment(at: int, before: float, after: float) -> dict[str, Any]:
    """One recorded deployment."""
    return {
        "at": at,
        "from": "a",
        "to": "b",
        "evidence": {},
        "true_value_before": before,
        "true_value_after": after,
    }
