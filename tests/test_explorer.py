"""Algorithm 1: its order, its schedule, late rewards, and resuming with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamark import Explorer, GateRefusal
from seamark.gates import AlwaysGate, Decision, MeansGate, NeverGate, PaperGate
from seamark.learners.gradient import IPSGradient
from seamark.policies import ActingForm, CallablePolicy, ConstantPolicy, LinearPolicy, Policy, UniformPolicy
from seamark.rounds import FloatArray, Rounds
from support import csr, drawn_rounds, in_form, random_linear, with_zeros

K, D = 2, 3
POOL = with_zeros(np.random.default_rng(1), 40, D)
TRUTH = np.array([1.0, -1.0, 0.5])


def replay(explorer: Explorer, rounds: list[Rounds]) -> list[Decision]:
    """The decisions that the explorer takes over legs that already happened."""
    return [decision for decision in map(explorer.absorb, rounds) if decision is not None]


def linear_baseline(floor: float = 0.4) -> LinearPolicy:
    return LinearPolicy(np.zeros((K, D)), ActingForm.softmax(0.5, floor=floor))


def right(contexts: FloatArray, actions: Any) -> FloatArray:
    """Action 1 is right where the truth is positive."""
    return (actions == (contexts @ TRUTH > 0)).astype(float)


def batches(n: int, size: int, seed: int = 3) -> list[FloatArray]:
    rng = np.random.default_rng(seed)
    return [POOL[rng.integers(0, len(POOL), size)] for _ in range(n)]


class Recorder:
    """A gate and a learner in one that write down what is asked of them, and promote when told."""

    name = "recorder"

    def __init__(self, promote_at: tuple[str, int] | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.promote_at = promote_at
        self.learned = 0
        self.policy = ConstantPolicy([0.3, 0.7])

    def _decide(self, where: str, at: int) -> Decision | None:
        if self.promote_at == (where, at):
            return Decision("promote", at, self.policy)
        return None

    def reign(self, deployed: Policy, at: int, version: int) -> None:
        self.calls.append(("reign", at, version))

    def acting(self, deployed: Policy) -> Policy:
        return deployed

    def observe(self, rounds: Rounds, deployed: Policy) -> Decision | None:
        self.calls.append(("observe", rounds.first, rounds.last, self.learned))
        return self._decide("observe", rounds.last)

    def wants(self, at: int) -> bool:
        return True

    def offer(self, candidate: Policy, at: int) -> Decision | None:
        self.calls.append(("offer", at, self.learned))
        return self._decide("offer", at)

    def update(self, rounds: Rounds) -> None:
        self.calls.append(("update", rounds.first, rounds.last))
        self.learned = rounds.last

    def candidate(self) -> Policy:
        return UniformPolicy(K)

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None: ...


def constructed(recorder: Any, baseline: Policy | None = None, **options: Any) -> Explorer:
    return Explorer(
        baseline or UniformPolicy(K), gate=recorder, learner=recorder, **{"schedule": "every:10", **options}
    )


def legs(*sizes: int) -> list[Rounds]:
    rng = np.random.default_rng(0)
    out, first = [], 0
    for n in sizes:
        out.append(drawn_rounds(rng, UniformPolicy(K), POOL, n, first=first))
        first += n
    return out


def test_a_leg_goes_observe_learn_offer() -> None:
    """Evidence first, then learning, then the offer: the gate never sees a round that the candidate learned from
    before it was scored; exchanging any two steps is caught."""
    recorder = Recorder()
    explorer = constructed(recorder)
    replay(explorer, legs(10, 10))

    assert recorder.calls == [
        ("reign", 0, 0),
        ("observe", 0, 10, 0), ("update", 0, 10), ("offer", 10, 10),
        ("observe", 10, 20, 10), ("update", 10, 20), ("offer", 20, 20),
    ]  # fmt: skip


@pytest.mark.parametrize("where", ["observe", "offer"])
def test_a_promotion_takes_over_at_once(where: str) -> None:
    """The new policy reigns from the next round on, as the next version, whichever call decided."""
    recorder, seen = Recorder((where, 10)), []
    explorer = constructed(recorder, on_decision=seen.append)
    decisions = replay(explorer, legs(10, 10))

    assert explorer.deployed is recorder.policy
    assert explorer.baseline.id == UniformPolicy(K).id
    assert explorer.version == 1
    assert decisions == explorer.deployments == seen
    assert ("reign", 10, 1) in recorder.calls
    offered_at_10 = ("offer", 10, 10) in recorder.calls
    assert offered_at_10 == (where == "offer")  # after a hand-over nothing else is offered in this leg
    assert recorder.calls.index(("reign", 10, 1)) < recorder.calls.index(("observe", 10, 20, 10))


@pytest.mark.parametrize("sizes", [(30,), (1,) * 30, (7, 7, 7, 9), (10, 10, 10), (9, 2, 19)])
def test_offers_happen_at_checks_only_whatever_the_legs(sizes: tuple[int, ...]) -> None:
    """At the end of the first leg that reaches a check, and never between checks."""
    recorder = Recorder()
    replay(constructed(recorder), legs(*sizes))
    ends = np.cumsum(sizes)
    expected = sorted({int(ends[ends >= check][0]) for check in (10, 20, 30)})

    assert [call[1] for call in recorder.calls if call[0] == "offer"] == expected


@pytest.mark.parametrize(
    ("schedule", "checks"),
    [
        ("published", [*range(1, 10), *range(10, 100, 10), *range(100, 1000, 100), 1000, 2000, 3000]),
        ("log", [*range(1, 10), *range(10, 100, 10), *range(100, 1000, 100), 1000, 2000, 3000]),
        ("every:700", [700, 1400, 2100, 2800]),
    ],
)
def test_live_traffic_is_checked_on_schedule(schedule: str, checks: list[int]) -> None:
    """Rounds of live traffic are cut into legs that end exactly at checks."""
    recorder = Recorder()
    explorer = constructed(recorder, schedule=schedule)
    for x in batches(60, 50):
        decisions = explorer.decide(x)
        explorer.reward(decisions.ids, np.ones(50))

    assert [call[1] for call in recorder.calls if call[0] == "offer"] == checks
    assert [call[2] for call in recorder.calls if call[0] == "observe"] == checks


def test_decisions_are_drawn_from_the_deployed_policy_with_true_propensities() -> None:
    """Every propensity is the deployed policy's probability, and frequencies follow within 5 standard errors."""
    policy = random_linear(np.random.default_rng(4), K, D)
    explorer = Explorer(policy, gate=NeverGate(), seed=2)
    x = np.repeat(POOL[:1], 20_000, axis=0)
    decisions = explorer.decide(x)
    p = policy.probabilities(POOL[:1])[0]

    assert decisions.ids.tolist() == list(range(20_000))
    assert decisions.propensities == pytest.approx(p[decisions.actions], rel=1e-12)
    assert abs((decisions.actions == 1).mean() - p[1]) < 5 * np.sqrt(p[0] * p[1] / 20_000)


def gate_of(name: str) -> Any:
    return {
        "paper": lambda: PaperGate(K),
        "released": lambda: PaperGate(K, semantics="released"),
        "means": lambda: MeansGate(K),
        "always": AlwaysGate,
    }[name]()


def running(name: str = "paper", **options: Any) -> Explorer:
    return Explorer(linear_baseline(), gate=gate_of(name), **{"schedule": "every:25", "seed": 7, **options})


def contents(explorer: Explorer) -> Any:
    """Everything that was decided and learned, bit by bit."""
    return (
        explorer.t, explorer.version, explorer.deployed.id, [d.at for d in explorer.deployments],
        explorer.gate.records(), explorer.learner.candidate().id, explorer.open_decisions,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["paper", "released", "means", "always"])
def test_rewards_in_any_order_give_the_same_bits(name: str) -> None:
    """Rewards one by one and backwards, before the next decisions are made: nothing changes, deployments included."""
    prompt, shuffled = running(name), running(name)
    rng = np.random.default_rng(5)
    for x in batches(60, 40):
        one, two = prompt.decide(x), shuffled.decide(x)
        assert np.array_equal(one.actions, two.actions)
        prompt.reward(one.ids, right(x, one.actions))
        for i in rng.permutation(40):
            shuffled.reward(two.ids[i], right(x[i : i + 1], two.actions[i : i + 1]))

    assert contents(prompt) == contents(shuffled)
    assert prompt.version > 0


def test_late_rewards_give_the_same_bits() -> None:
    """All rewards after all decisions, in random order: the same evidence and weights as prompt ones, without a
    deployment between; scoring rounds in the order of their rewards is caught."""
    prompt = Explorer(linear_baseline(), gate=PaperGate(K, delta=1e-9), schedule="published", seed=7)
    late = Explorer(linear_baseline(), gate=PaperGate(K, delta=1e-9), schedule="published", seed=7)
    ids: list[int] = []
    rewards: list[float] = []
    for x in batches(20, 10):
        one, two = prompt.decide(x), late.decide(x)
        prompt.reward(one.ids, right(x, one.actions))
        ids += two.ids.tolist()
        rewards += right(x, two.actions).tolist()
    order = np.random.default_rng(6).permutation(200)
    assert late.t == 0
    for chunk in np.array_split(order, 17):
        late.reward(np.array(ids)[chunk], np.array(rewards)[chunk])

    assert contents(prompt) == contents(late)
    assert prompt.version == 0
    assert len(prompt.gate.records()["at"]) == 9 + 9 + 2


def test_rounds_decided_before_a_deployment_and_rewarded_after_it_are_scored_by_version() -> None:
    """The running sums of the deployed policy equal recomputation although rounds of the baseline come in late.

    Taking recorded propensities for the deployed policy's probabilities is caught.
    """
    explorer = running("means")
    explorer.gate.wants = lambda at: at <= 50  # type: ignore[method-assign]
    waiting = explorer.decide(np.concatenate(batches(1, 60, seed=11)))
    seen = batches(1, 60, seed=11)[0]
    early = batches(4, 40, seed=12)
    later = [explorer.decide(x) for x in early]
    explorer.reward(waiting.ids, right(seen, waiting.actions))  # enough for checks at 25 and 50
    for x, decisions in zip(early, later):
        explorer.reward(decisions.ids, right(x, decisions.actions))
    sums = explorer.gate.sums  # type: ignore[attr-defined]

    assert explorer.version > 0
    assert explorer.t == 200
    again = sums.moments(explorer.deployed)
    assert (sums.deployed.s1, sums.deployed.s2) == pytest.approx((again.s1, again.s2), rel=1e-12)


def test_a_window_closes_with_the_default_reward() -> None:
    """Decisions without reward after `window` later ones count as the default, so that nothing waits for ever."""
    recorder = Recorder()
    explorer = constructed(recorder, window=20, default_reward=0.0)
    kept: list[Rounds] = []
    recorder.update = kept.append  # type: ignore[assignment, method-assign]
    first = explorer.decide(POOL[:20])
    explorer.reward(first.ids[1::2], np.ones(10))
    assert explorer.t == 0
    second = explorer.decide(POOL[:20])

    assert explorer.t == 20
    assert np.concatenate([r.rewards for r in kept]).tolist() == [0.0, 1.0] * 10
    assert explorer.open_decisions == 20
    explorer.expire(int(second.ids[-1]) + 1)
    assert explorer.t == 40


def test_wrong_rewards_are_refused_and_change_nothing() -> None:
    """Twice, unknown, out of range: each with its id, and the explorer goes on."""
    explorer = running()
    ids = explorer.decide(POOL[:3]).ids
    explorer.reward(ids[0], 1.0)
    for one, value, message in (
        (ids[0], 1.0, "ids: 0 already has its final reward, or its window is over; each decision is scored once"),
        (99, 1.0, "ids: 99 was never decided"),
        (ids[1], 1.5, r"rewards: 1.5 for id 1; must be in \[0, 1\]"),
        (ids[1], np.nan, "rewards: nan for id 1"),
    ):
        with pytest.raises(ValueError, match=message):
            explorer.reward(one, value)
    explorer.reward(ids[1:], [0.0, 1.0])

    assert explorer.open_decisions == 0


def live(explorer: Explorer, some: list[FloatArray], owed: list[tuple[Any, FloatArray]]) -> list[Any]:
    """Traffic whose rewards always come two batches late; returns all that was decided."""
    out = []
    for x in some:
        decisions = explorer.decide(x)
        owed.append((decisions, x))
        out.append((decisions.ids.tolist(), decisions.actions.tolist(), decisions.propensities.tolist()))
        if len(owed) > 2:
            d, seen = owed.pop(0)
            explorer.reward(d.ids, right(seen, d.actions))
    return out


@pytest.mark.parametrize("name", ["paper", "released", "means", "always"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("before", [0, 7, 31])
def test_a_resumed_explorer_makes_the_same_decisions(name: str, sparse: bool, before: int, tmp_path: Path) -> None:
    """Saved in the middle, with open decisions and rounds that wait for a check: the next 1,000 decisions, all
    evidence and the weights are the same bits; leaving out the generator, the pending or `p_min` is caught."""
    options: dict[str, Any] = {"schedule": "every:33", "seed": 7}
    one = running(name, **options)
    convert = (lambda x: csr(x)) if sparse else (lambda x: x)
    traffic = batches(before + 50, 20)
    owed: list[tuple[Any, FloatArray]] = []

    def go(explorer: Explorer, some: list[FloatArray], debts: list[tuple[Any, FloatArray]]) -> list[Any]:
        original = explorer.decide
        explorer.decide = lambda x: original(convert(x))  # type: ignore[method-assign]
        try:
            return live(explorer, some, debts)
        finally:
            del explorer.decide  # type: ignore[method-assign]

    go(one, traffic[:before], owed)
    one.save(tmp_path / "explorer.npz")
    two = running(name, schedule="published", seed=1).load(tmp_path / "explorer.npz")
    owed_again = list(owed)

    assert two.open_decisions == one.open_decisions == min(before, 2) * 20
    assert go(one, traffic[before:], owed) == go(two, traffic[before:], owed_again)
    assert one.t > before * 20
    first, second = contents(one), contents(two)
    assert first[:3] == second[:3]
    assert first[4:] == second[4:]
    assert one.version > 0


def test_saving_is_possible_while_a_batch_is_half_closed(tmp_path: Path) -> None:
    """Some rewards of a batch given, the first one not: all of it survives."""
    one = running()
    ids = one.decide(POOL[:30]).ids
    one.reward(ids[1:20], np.ones(19))
    one.save(tmp_path / "s")
    two = running().load(tmp_path / "s")
    for explorer in (one, two):
        explorer.reward(ids[20:], np.ones(10))
        explorer.reward(ids[0], 0.5)

    assert contents(one) == contents(two)
    assert one.t == 25


def test_what_is_deployed_cannot_be_changed_from_outside() -> None:
    """Baseline and candidates are frozen: training on does not move what acts."""
    weights = np.zeros((K, D))
    explorer = Explorer(LinearPolicy(weights, ActingForm.softmax(1.0, floor=0.1)), gate=AlwaysGate(), schedule="log")
    weights += np.arange(K)[:, None]
    assert explorer.decide(POOL[:5]).propensities.tolist() == [0.5] * 5

    explorer.reward(np.arange(5), np.ones(5))
    before = explorer.deployed.id
    explorer.learner.update(legs(20)[0])
    assert explorer.version == 5
    assert explorer.deployed.id == before


def test_the_papers_learner_is_had_by_name() -> None:
    """Translated IPS, warm-started from the baseline's weights, in its acting form."""
    baseline = random_linear(np.random.default_rng(4), K, D, tau=0.3, floor=0.2)
    learner = Explorer(baseline, gate=PaperGate(K), learner="ips").learner

    assert isinstance(learner, IPSGradient)
    assert np.array_equal(learner.weights, baseline.weights)
    assert (learner.acts, learner.tau, learner.shift, learner.cap) == (baseline.acts, 0.3, 0.2, 0.1)


@pytest.mark.parametrize("kind", ["linear", "uniform", "code"])
def test_the_default_learner_takes_any_baseline_and_continues_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    """Saved before and after the portfolio is made; a better policy is deployed whatever the baseline is."""
    baseline: Any = {
        "linear": linear_baseline(), "uniform": UniformPolicy(K),
        "code": CallablePolicy(lambda x: np.full((len(x), K), 1 / K), K, "even", 1 / K),
    }[kind]  # fmt: skip

    def build() -> Explorer:
        return Explorer(baseline, schedule="every:40", seed=3)

    whole, resumed = build(), build()
    for i, x in enumerate(batches(60, 40)):
        for explorer in (whole, resumed):
            decided = explorer.decide(x)
            explorer.reward(decided.ids, right(x, decided.actions))
        if i in (0, 30):
            resumed.save(tmp_path / "explorer.npz")
            resumed = build().load(tmp_path / "explorer.npz")

    assert whole.version >= 1
    assert resumed.version == whole.version
    assert resumed.learner.candidate().id == whole.learner.candidate().id
    assert resumed.decide(POOL).actions.tolist() == whole.decide(POOL).actions.tolist()


def test_an_explorer_of_another_baseline_is_not_loaded(tmp_path: Path) -> None:
    """A saved run goes on from its own baseline; silently it would go on from a stranger's."""
    Explorer(linear_baseline(), seed=1).save(tmp_path / "explorer.npz")
    with pytest.raises(ValueError, match=r"baseline: not the one of .*explorer\.npz"):
        Explorer(UniformPolicy(K)).load(tmp_path / "explorer.npz")


def test_a_classifier_is_a_baseline_as_it_is() -> None:
    """Its classes must be the actions; anything else is told what to do."""
    from sklearn.linear_model import LogisticRegression

    y = np.arange(len(POOL)) % K
    model = LogisticRegression().fit(POOL, y)
    explorer = Explorer(model, seed=0)

    assert explorer.decide(POOL).propensities.min() > 0
    assert explorer.deployed.probabilities(POOL) == pytest.approx(model.predict_proba(POOL))
    with pytest.raises(ValueError, match=r"classes are \[1, 2\], not the actions 0 to 1"):
        Explorer(LogisticRegression().fit(POOL, y + 1))
    with pytest.raises(TypeError, match=r"a function is no policy; give policies\.CallablePolicy"):
        Explorer(lambda x: x)
    with pytest.raises(TypeError, match="a str is no policy"):
        Explorer("uniform")


def test_probabilities_that_are_no_numbers_decide_nothing() -> None:
    """Caught: an action drawn from NaN, with propensity NaN."""
    explorer = Explorer(LinearPolicy(np.full((K, D), np.nan), ActingForm.softmax(1.0, floor=0.1)))
    with pytest.raises(ValueError, match=r"probabilities: row 0 is \[nan.* must be finite"):
        explorer.decide(POOL)
    assert explorer.open_decisions == 0


def test_impossible_explorers_are_refused() -> None:
    """No floor under the paper's gate, no weights for the paper's learner, unknown names."""
    with pytest.raises(GateRefusal, match="no floor"):
        Explorer(linear_baseline(floor=0.0), gate=PaperGate(K))
    with pytest.raises(ValueError, match="starts from a linear baseline's weights"):
        Explorer(UniformPolicy(K), gate=PaperGate(K), learner="ips")
    with pytest.raises(ValueError, match="learner: 'sgd'; must be 'portfolio', 'ips' or a learner object"):
        Explorer(linear_baseline(), gate=PaperGate(K), learner="sgd")
    with pytest.raises(ValueError, match="check schedule: 'daily'"):
        Explorer(linear_baseline(), gate=PaperGate(K), schedule="daily")
    with pytest.raises(ValueError, match="contexts: row 0, feature 1 is nan"):
        running().decide(np.array([[0.0, np.nan, 1.0]]))
    with pytest.raises(ValueError, match="contexts: 2 features, but the policy has weights for 3"):
        running().decide(np.ones((1, 2)))


def test_absorbing_equals_deciding() -> None:
    """A log replayed leg by leg ends where the live traffic that made it ended."""
    decided = running("means", schedule="every:40")
    replayed = running("means", schedule="every:40")
    for x in batches(30, 40):
        version = decided.version
        d = decided.decide(x)
        r = right(x, d.actions)
        decided.reward(d.ids, r)
        replayed.absorb(
            Rounds.of(
                in_form(x, False), d.actions, r, d.propensities, n_actions=K, versions=version, first=int(d.ids[0])
            )
        )

    assert contents(decided) == contents(replayed)
    assert decided.version > 0


def test_an_explorer_whose_baseline_is_code_can_be_saved_before_its_first_deployment(tmp_path: Path) -> None:
    """What the baseline is need not be written: whoever loads builds the explorer with it again."""
    baseline = CallablePolicy(lambda x: np.full((len(x), 2), 0.5), 2, "even", 0.5)
    learner = IPSGradient(np.zeros((2, POOL.shape[1])), ActingForm.softmax(1.0), tau=1.0, lr=0.1)

    def build() -> Explorer:
        return Explorer(baseline, learner=learner, seed=3)

    first = build()
    first.reward(first.decide(POOL[:5]).ids, np.ones(5))
    first.save(tmp_path / "explorer.npz")
    second = build().load(tmp_path / "explorer.npz")

    assert second.t == first.t == 5
    assert second.deployed.id == baseline.id
    assert second.decide(POOL).actions.tolist() == first.decide(POOL).actions.tolist()


def test_a_decision_names_the_version_that_drew_it() -> None:
    """A call may close older rounds by its window and so deploy; what it drew was drawn before. Caught: read after."""
    explorer = Explorer(
        UniformPolicy(2), gate=AlwaysGate(), learner=IPSGradient(np.zeros((2, 3)), ActingForm(), tau=1.0, lr=0.1),
        schedule="every:2", window=2,
    )  # fmt: skip
    versions = [explorer.decide(np.ones((2, 3))).version for _ in range(3)]

    assert versions == [0, 0, 1]
    assert explorer.version == 2
