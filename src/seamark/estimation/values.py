"""What every single round says of a policy: values per round, kept apart from their summary.

Arrays have one entry per round. `pi` is the policy's probability of the logged action, `p` the propensity.
"""

from __future__ import annotations

import numpy as np

from seamark.policies import Policy
from seamark.rounds import FloatArray, Rounds


def probability_of_actions(policy: Policy, rounds: Rounds) -> FloatArray:
    """pi(a_i | x_i)."""
    p = policy.probabilities(rounds.contexts())
    return p[np.arange(len(rounds)), rounds.actions]


def ips_values(rounds: Rounds, pi: FloatArray) -> FloatArray:
    """R_i = r_i pi_i / p_i: unbiased where p > 0 wherever pi > 0 (the paper's R-hat_i)."""
    return rounds.rewards * (pi / rounds.propensities)


def translated_ips_values(rounds: Rounds, pi: FloatArray, *, shift: float) -> FloatArray:
    """(r_i - shift) pi_i / p_i + shift: unbiased like IPS, other variance (lambda-translation)."""
    return (rounds.rewards - shift) * (pi / rounds.propensities) + shift


def dm_values(probabilities: FloatArray, predicted: FloatArray) -> FloatArray:
    """Direct method: sum_a pi(a|x_i) q(x_i, a); biased as the reward model q is."""
    values: FloatArray = (probabilities * predicted).sum(axis=1)
    return values


def dr_values(rounds: Rounds, probabilities: FloatArray, predicted: FloatArray) -> FloatArray:
    """Doubly robust: direct method plus the weighted residual; unbiased for any q fixed before the round."""
    i = np.arange(len(rounds))
    weight = probabilities[i, rounds.actions] / rounds.propensities
    return dm_values(probabilities, predicted) + weight * (rounds.rewards - predicted[i, rounds.actions])


def snips_mean(rounds: Rounds, pi: FloatArray) -> float:
    """Self-normalised IPS, sum r w / sum w: biased (of order 1/n), hence for display, never for a gate."""
    weight = pi / rounds.propensities
    total = weight.sum()
    return float((rounds.rewards * weight).sum() / total) if total > 0 else float("nan")


def snips_values(rounds: Rounds, pi: FloatArray) -> FloatArray:
    """SNIPS linearised: mean + (w_i / mean w) (r_i - mean). Their mean is the SNIPS estimate, their variance its own
    (delta method)."""
    weight = pi / rounds.propensities
    mean = snips_mean(rounds, pi)
    values: FloatArray = mean + weight / weight.mean() * (rounds.rewards - mean)
    return values
