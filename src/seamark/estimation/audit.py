r"""Propensity audit: are the recorded probabilities those that the actions were drawn from?

For any policy h that was fixed before a round, the importance weight w = h(a|x) / p(a|x) has mean 1 if p is right and
h has support (less if it has not). So v = w - 1 >= -1 is bet on, both ways:

- up: prod (1 + l v), 0 < l < 1, is a supermartingale if the mean of w is at most 1;
- down: prod (1 - l v), 0 < l < 1 / (w_max - 1), if it is at least 1; w_max is known where p has a floor. Where it has
  not, v is capped above, which makes the bet unfair: then the finding is a warning only.

An e-process that reaches 1/alpha refutes the records at level alpha, whenever one looks [Ville39]. The audit spends a
level of its own over the policies that it watches and takes nothing from a gate's. It runs before a gate decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from seamark.estimation.eprocess import log_mean_exp
from seamark.policies import Policy
from seamark.rounds import FloatArray, IntArray, Rounds, n_contexts

Severity = Literal["blocked", "warning"]

AUDIT_DELTA = 1e-3
PROPENSITY_TOLERANCE = 1e-6
LARGEST_WEIGHT = 20.0
"""Cap of weights where no floor bounds them; beyond it a weight counts as extreme."""
FEW_EFFECTIVE = 0.01
MANY_CLIPPED = 0.05
_BETS = 0.5 * 2.0 ** -np.arange(8)
_FEW_VALUES = 20
_TABLE_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    """Machine-readable."""
    detail: str
    remedy: str
    severity: Severity = "warning"


@dataclass(frozen=True)
class Audit:
    """blocked: nothing may be deployed on these records. warning: read the findings. ok: nothing was found."""

    verdict: Literal["ok", "warning", "blocked"]
    findings: tuple[Finding, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, findings: list[Finding], numbers: dict[str, Any]) -> Audit:
        severities = {f.severity for f in findings}
        verdict: Literal["ok", "warning", "blocked"] = "ok"
        if severities:
            verdict = "blocked" if "blocked" in severities else "warning"
        return cls(verdict, tuple(findings), numbers)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What blocks, machine-readable."""
        return tuple(f"{f.kind}:{f.detail}" for f in self.findings if f.severity == "blocked")

    def as_dict(self) -> dict[str, Any]:
        names = ("kind", "detail", "remedy", "severity")
        return {
            "verdict": self.verdict, "numbers": self.numbers,
            "findings": [{name: getattr(f, name) for name in names} for f in self.findings],
        }  # fmt: skip


# -- evidence over time ---------------------------------------------------------------------------------------------


class WeightTest:
    """Two e-processes on the weights of one policy (or of several: their average), up and down.

    floor: known lower bound of the recorded probabilities; 0 where there is none.

    >>> test = WeightTest(alpha=0.01, floor=0.1)
    >>> test.add(np.full((200, 1), 2.0))          # weights of mean 2: actions are drawn from something else
    >>> test.too_high, test.too_low
    (True, False)
    """

    def __init__(self, *, alpha: float, floor: float, n_policies: int = 1) -> None:
        self.threshold = math.log(2 / alpha)  # half of it for each side
        self.is_bounded = floor > 0
        largest = max(1.0, 1 / floor - 1) if floor > 0 else LARGEST_WEIGHT
        self._room = largest
        self._up, self._down = np.zeros((2, n_policies, _BETS.size))
        self._top = np.array([-math.inf, -math.inf])  # the largest evidence so far: a rejection stays one
        self.n = 0
        self.s1, self.s2 = 0.0, 0.0
        self.n_extreme = 0
        self.is_invalid = False

    def add(self, weights: FloatArray) -> None:
        """Weights (rounds, policies), in decision order."""
        if not np.isfinite(weights).all():
            self.is_invalid = True
            return
        v = weights - 1
        self._up += np.log1p(_BETS * v[:, :, None]).sum(axis=0)
        low = v if self.is_bounded else np.minimum(v, self._room)
        bets = _BETS / self._room
        # a weight above what the floor allows is a finding of its own; here it only must not break the logarithm
        self._down += np.log1p(np.maximum(-bets * low[:, :, None], -0.999)).sum(axis=0)
        self._top = np.maximum(self._top, self.log_evidence)
        self.n += weights.shape[0]
        self.s1 += float(weights.sum()) / weights.shape[1]
        self.s2 += float((weights * weights).sum()) / weights.shape[1]
        self.n_extreme += int((weights > LARGEST_WEIGHT).sum())

    @property
    def log_evidence(self) -> FloatArray:
        """ln E up and down, now."""
        return np.array([log_mean_exp(self._up), log_mean_exp(self._down)])

    @property
    def too_high(self) -> bool:
        return bool(self._top[0] >= self.threshold)

    @property
    def too_low(self) -> bool:
        """A proof where `is_bounded`, an indication elsewhere."""
        return bool(self._top[1] >= self.threshold)

    @property
    def mean(self) -> float:
        return self.s1 / self.n if self.n else math.nan

    @property
    def effective(self) -> float:
        """Effective sample size (sum w)^2 / sum w^2, as a share of the rounds."""
        return self.s1 * self.s1 / (self.n * self.s2) if self.s2 > 0 else math.nan


class PropensityAudit:
    """Watches rounds as they come. `delta`: P(right records are ever blocked by the weights) <= delta.

    Watched are every action's frequency against its recorded probability, and each policy that `watch` is told of
    (before the rounds that test it). Besides, recorded propensities must equal the deployed policy's.
    """

    def __init__(self, n_actions: int, *, delta: float = AUDIT_DELTA, floor: float = 0.0) -> None:
        if not 0 < delta < 1:
            raise ValueError(f"delta: {delta}; must be between 0 and 1.")
        self.n_actions, self.delta, self.floor = n_actions, delta, floor
        self.n = self.n_mismatches = 0
        self._first_mismatch = ""
        self._invalid = ""
        self._smallest, self._largest, self._n_smallest = math.inf, 0.0, 0
        self._values: set[float] = set()
        self._counts = np.zeros(n_actions, dtype=np.int64)
        self._marginals = WeightTest(alpha=delta / 2, floor=floor, n_policies=n_actions)
        self._watched: dict[str, tuple[Policy, WeightTest]] = {}
        self._n_watched = 0
        self._lost: dict[str, int] = {}
        self._tables: dict[str, FloatArray] = {}
        self._pool: Any = None

    def watch(self, policy: Policy) -> None:
        """Tests this policy's weights from the next round on; the j-th costs the level delta / (2 j (j + 1))."""
        if policy.id in self._watched:
            return
        self._n_watched += 1
        j = self._n_watched
        test = WeightTest(alpha=self.delta / (2 * j * (j + 1)), floor=self.floor)
        self._watched[policy.id] = (policy.frozen(), test)

    def forget(self, policy_id: str) -> None:
        """Stops watching; what was found before stays found only while a policy is watched."""
        self._watched.pop(policy_id, None)
        self._tables.pop(policy_id, None)

    @property
    def watched(self) -> list[str]:
        return list(self._watched)

    def observe(self, rounds: Rounds, deployed: Policy | None = None, *, version: int | None = None) -> None:
        """Takes in rounds. `deployed`: who drew those of this `version` (None: all of them)."""
        if not len(rounds):
            return
        p = rounds.propensities
        bad = ~(np.isfinite(p) & (p > 0) & (p <= 1))
        if bad.any():
            self._invalid = self._invalid or f"round {rounds.first + int(np.argmax(bad))}: {p[bad][0]}"
            return
        self.n += len(rounds)
        self._note_values(p)
        self._counts += np.bincount(rounds.actions, minlength=self.n_actions)
        here = np.arange(len(rounds))
        if deployed is not None:
            mine = np.ones(len(rounds), dtype=bool) if version is None else rounds.versions == version
            d = self._probabilities(deployed, rounds)
            expected = (
                d[here, rounds.actions] if rounds.probabilities is None else rounds.probabilities[here, rounds.actions]
            )
            self._compare(rounds, np.where(mine, expected, p))
        marginal = np.zeros((len(rounds), self.n_actions))
        marginal[here, rounds.actions] = 1 / p
        self._marginals.add(marginal)
        for policy, test in self._watched.values():
            h = self._probabilities(policy, rounds)
            test.add((h[here, rounds.actions] / p)[:, None])
            if rounds.probabilities is not None:
                lost = ((rounds.probabilities <= 0) & (h > 0)).any(axis=1)
                self._lost[policy.id] = self._lost.get(policy.id, 0) + int(lost.sum())

    def _note_values(self, p: FloatArray) -> None:
        low = float(p.min())
        if low < self._smallest:
            self._smallest, self._n_smallest = low, 0
        self._n_smallest += int((p == self._smallest).sum())
        self._largest = max(self._largest, float(p.max()))
        if len(self._values) <= _FEW_VALUES:
            self._values.update(float(v) for v in np.unique(p)[: _FEW_VALUES + 1])

    def _compare(self, rounds: Rounds, expected: FloatArray) -> None:
        off = ~(np.abs(rounds.propensities - expected) <= PROPENSITY_TOLERANCE * np.maximum(expected, 1e-12))
        if off.any() and not self._first_mismatch:
            i = int(np.argmax(off))
            self._first_mismatch = (
                f"round {rounds.first + i} records {rounds.propensities[i]:.6g}, the policy says {expected[i]:.6g}"
            )
        self.n_mismatches += int(off.sum())

    def _probabilities(self, policy: Policy, rounds: Rounds) -> FloatArray:
        """Per round; from a table where contexts recur and it is small."""
        cells = n_contexts(rounds.features) * self.n_actions
        if not rounds.recurring or cells > _TABLE_CELLS:
            return policy.probabilities(rounds.contexts())
        if self._pool is not rounds.features:
            self._pool, self._tables = rounds.features, {}
        if policy.id not in self._tables:
            if len(self._tables) > len(self._watched) + 1:
                self._tables = {k: t for k, t in self._tables.items() if k in self._watched}
            self._tables[policy.id] = policy.probabilities(rounds.features)
        return self._tables[policy.id][rounds.rows]

    # -- verdict ---------------------------------------------------------------------------------------------------

    @property
    def is_blocked(self) -> bool:
        return self.result().verdict == "blocked"

    def result(self) -> Audit:
        """What was found so far."""
        findings = [*self._records_findings(), *self._weight_findings("actions", self._marginals, 0)]
        for name, (_, test) in self._watched.items():
            findings += self._weight_findings(name, test, self._lost.get(name, 0))
        tests = {name: test for name, (_, test) in self._watched.items()}
        numbers = {
            "rounds": self.n, "mismatches": self.n_mismatches, "smallest_propensity": self._smallest,
            "largest_propensity": self._largest, "actions_taken": int((self._counts > 0).sum()),
            "threshold_actions": self._marginals.threshold,
            "log_evidence_actions": self._marginals.log_evidence.tolist(),
            "policies": {
                name: {
                    "mean_weight": test.mean, "effective_share": test.effective, "threshold": test.threshold,
                    "log_evidence": test.log_evidence.tolist(),
                    "share_of_extreme_weights": test.n_extreme / test.n if test.n else math.nan,
                }
                for name, test in tests.items()
            },
        }  # fmt: skip
        return Audit.of(findings, numbers)

    def _records_findings(self) -> list[Finding]:
        found = []
        if self._invalid:
            found.append(
                Finding(
                    "propensity-invalid", self._invalid,
                    "Log the probability, in (0, 1], with which the action was drawn.", "blocked",
                )
            )  # fmt: skip
        if self._smallest < self.floor * (1 - PROPENSITY_TOLERANCE):
            found.append(
                Finding(
                    "propensity-below-floor", f"{self._smallest:.6g} is below the known floor {self.floor:.6g}",
                    "Log the acting policy's own probability, or declare the floor that holds.", "blocked",
                )
            )  # fmt: skip
        if self.n_mismatches:
            found.append(
                Finding(
                    "propensity-mismatch", f"{self.n_mismatches} of {self.n} rounds; {self._first_mismatch}",
                    "Log the acting policy's own probability: not clipped, not rounded, not of another version.",
                    "blocked",
                )
            )  # fmt: skip
        if self.n > self.n_actions and len(self._values) == 1 and self.n_actions > 1:
            taken = int((self._counts > 0).sum())
            found.append(
                Finding(
                    "propensity-constant", f"all {self.n} rounds: {self._smallest:.6g}; {taken} actions taken",
                    "Right only if every action was drawn with this probability. Otherwise log the real ones.",
                )
            )  # fmt: skip
        share = self._n_smallest / self.n if self.n else 0.0
        if len(self._values) > _FEW_VALUES and share > MANY_CLIPPED:
            found.append(
                Finding(
                    "propensity-clipped", f"{share:.1%} of rounds record the smallest value, {self._smallest:.6g}",
                    "Probabilities seem raised to a cap before logging; log them as they were.",
                )
            )  # fmt: skip
        return found

    def _weight_findings(self, name: str, test: WeightTest, lost: int) -> list[Finding]:
        found = []
        draw = "Record the probabilities that actions are drawn from; look for a second place that picks actions."
        if test.is_invalid:
            found.append(Finding("weights-not-finite", name, "The policy's probabilities are not numbers.", "blocked"))
        if test.too_high:
            detail = f"{name}, mean {test.mean:.4g}"
            found.append(Finding("weights-above-one", detail, draw, "blocked"))
        if test.too_low:
            detail = f"{name}, mean {test.mean:.4g}"
            proved = test.is_bounded
            remedy = draw if proved else f"{draw} Or the policy takes actions that are never tried."
            found.append(Finding("weights-below-one", detail, remedy, "blocked" if proved else "warning"))
        if name == "actions":
            return found
        if lost:
            found.append(
                Finding(
                    "unsupported-actions", f"{name}, {lost} rounds", "Explore them: mix in a floor of exploration.",
                )
            )  # fmt: skip
        if test.n >= 100 and test.effective < FEW_EFFECTIVE:
            found.append(
                Finding(
                    "few-effective-rounds", f"{name}, {test.effective:.2%} of {test.n} rounds",
                    "Explore more, or take a candidate closer to the deployed policy.",
                )
            )  # fmt: skip
        return found


# -- a log at once -----------------------------------------------------------------------------------------------------


def audit_rounds(
    rounds: Rounds,
    *,
    n_actions: int,
    deployed: Policy | None = None,
    candidate: Policy | None = None,
    is_trained_on: bool = False,
    floor: float | None = None,
    cap: float = 0.0,
    delta: float = AUDIT_DELTA,
) -> Audit:
    """The audit of a log. `candidate`: whose weights to look at; with `is_trained_on` it learned from this very log,
    so its weights prove nothing and are looked at for propensity overfitting instead. `cap`: propensities that the
    caller means to raise to it; reported is whom that would concern. `floor`: known, else that of `deployed`.
    """
    known = floor if floor is not None else (deployed.min_probability if deployed is not None else 0.0)
    audit = PropensityAudit(n_actions, delta=delta, floor=known)
    if candidate is not None and not is_trained_on:
        audit.watch(candidate)
    audit.observe(rounds, deployed)
    result = audit.result()
    findings, numbers = list(result.findings), dict(result.numbers)
    if cap > 0 and len(rounds):
        numbers["share_clipped"] = share = float((rounds.propensities < cap).mean())
        if share > 0:
            findings.append(
                Finding(
                    "clipping", f"{share:.1%} of rounds are below the cap {cap:g}",
                    "Clipping propensities biases every estimate downwards, the deployed policy's too; leave it off.",
                )
            )  # fmt: skip
    if candidate is not None and not audit._invalid:
        findings += _candidate_findings(rounds, candidate, n_actions, is_trained_on, numbers)
    return Audit.of(findings, numbers)


def _candidate_findings(
    rounds: Rounds, candidate: Policy, n_actions: int, is_trained_on: bool, numbers: dict[str, Any]
) -> list[Finding]:
    found = []
    h = candidate.probabilities(rounds.contexts())
    n = len(rounds)
    never: IntArray = np.setdiff1d(np.flatnonzero((h > 0).any(axis=0)), rounds.actions).astype(np.int64)
    if never.size:
        share = float(h[:, never].sum(axis=1).mean())
        numbers["share_on_actions_never_logged"] = share
        found.append(
            Finding(
                "actions-never-logged", f"{never.tolist()} (the candidate takes them with probability {share:.3g})",
                "Nothing in this log says what they are worth; explore them first.",
            )
        )  # fmt: skip
    if is_trained_on and n > 1:
        values = rounds.rewards * h[np.arange(n), rounds.actions] / rounds.propensities
        mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(n)
        numbers |= {"ips_mean_on_training_log": mean, "ips_standard_error": error}
        if not mean <= 1 + 3 * error:
            found.append(
                Finding(
                    "propensity-overfitting", f"IPS mean {mean:.3g} on its own log; no policy earns above 1",
                    "The learner chases rare actions: translate rewards (r - mean), or fit a reward model.",
                )
            )  # fmt: skip
    return found
