"""One cell of the ranking task: what it reports, and that every number is what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamark.estimation.ranking_metrics import ndcg
from seamark.experiments.cell import Stopped, evaluation_rounds
from seamark.experiments.ranking_cell import GatedRanking, RankingCellConfig, RankingStreams, agent_of, run_ranking_cell
from seamark.experiments.ranking_methods import METHODS
from seamark.experiments.run import RunConfig, plan
from seamark.gates import Schedule
from seamark.learners.ranksvm import RankSVM
from seamark.policies.combined import RerankedRanker
from seamark.policies.rankers import LinearRanker, top_lists
from seamark.worlds.clicks import CLICK_MODELS, ClickModel
from seamark.worlds.letor import Queries, RankingData, document_hashes, load
from seamark.worlds.ranking import RankingBaseline, RankingWorld, train_production

KEYS = {
    "schema", "id", "task", "data", "method", "clicks", "semantics", "baseline", "floor", "delta", "seed", "rounds",
    "config",
    "version", "deployments", "unsafe_deployments", "worst_shortfall", "checks", "check_records", "seconds",
    "rounds_per_second", "true_value_baseline", "at",
}  # fmt: skip
CURVES = (
    "cumulative_reward", "baseline_cumulative_reward", "cumulative_ndcg10", "baseline_cumulative_ndcg10",
    "expected_gain", "deployed_test_ndcg10", "deployed_test_value", "learned_test_ndcg10", "learned_test_value",
)  # fmt: skip
AS_RANKED = ("ips", "sea", "bsea", "seamark")
SMALL = "letor-synthetic:queries=40:documents=12:features=8"


def world_of(clicks: str = "perfect", spec: str = SMALL) -> RankingWorld:
    return RankingWorld.of(load(spec), clicks)


def planned(
    method: str, world: RankingWorld | None = None, **options: Any
) -> tuple[RankingCellConfig, RankingWorld, RankingBaseline]:
    world = world or world_of(options.get("clicks", "perfect"))
    config = plan(RunConfig(task="ranking", methods=method, **{"rounds": 300, "seeds": 1, **options}), world).cells[0]
    return config, world, config.baseline(world)


def result_of(method: str, world: RankingWorld | None = None, **options: Any) -> dict[str, Any]:
    return run_ranking_cell(*planned(method, world, **options))


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in result.items() if k not in ("seconds", "rounds_per_second")}


def judged(lengths: list[int], grades: list[int], *, d: int = 3, seed: int = 0) -> RankingData:
    """A set with these grades, the test part equal to the train part."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    qids = np.arange(len(lengths), dtype=np.int64)
    features = np.random.default_rng(seed).random((len(grades), d)).astype(np.float32)
    part = Queries(features, offsets, np.array(grades), qids, document_hashes(qids, offsets))
    return RankingData("judged", part, part, d, 2, "0123")


@pytest.mark.parametrize("method", METHODS)
def test_a_result_has_every_key_and_is_plain_json(method: str) -> None:
    """All that the summary, the tables and a reader need, for every method, without NaN."""
    result = result_of(method, rounds=120)
    json.dumps(result, allow_nan=False)

    assert set(result) == KEYS | set(CURVES)
    assert set(result["seconds"]) == {"total", "learning", "checking"}
    assert result["at"] == evaluation_rounds(120)
    assert all(len(result[name]) == len(result["at"]) for name in CURVES)
    assert all(None not in result[name] for name in CURVES)
    assert [result[name][0] for name in CURVES[:5]] == [0.0] * 5
    assert (result["task"], result["clicks"]) == ("ranking", "perfect")


@pytest.mark.parametrize("method", AS_RANKED)
@pytest.mark.parametrize("semantics", ["paper", "released"])
def test_a_gated_method_earns_exactly_what_the_baseline_earns_before_it_deploys(method: str, semantics: str) -> None:
    """The same queries and click uniforms: clicks and nDCG differ by 0 to the bit until the first deployment."""
    result = result_of(method, rounds=6000, semantics=semantics)
    first = min((d["at"] for d in result["deployments"]), default=6000)
    before = [i for i, t in enumerate(result["at"]) if t <= first]

    assert before
    for own, base in (CURVES[0:2], CURVES[2:4]):
        assert [result[own][i] for i in before] == [result[base][i] for i in before]
    assert all(result["expected_gain"][i] == 0 for i in before)


def test_some_gates_deploy_in_these_tests_and_users_gain() -> None:
    """Else the test above would say nothing of what comes after a deployment."""
    result = result_of("bsea", rounds=6000)
    swaps = result_of("seamark-swaps", rounds=6000)

    assert result["deployments"]
    assert result["expected_gain"][-1] > 0
    assert swaps["deployments"]
    assert swaps["unsafe_deployments"] == 0


def test_the_cost_of_swaps_is_in_the_rewards_but_not_in_the_value_of_the_ranker() -> None:
    """Before a deployment: users see swapped lists, worth less; the deployed ranker is the baseline all the same."""
    world = world_of("position-biased")
    result = result_of("seamark-swaps", world, clicks="position-biased", rounds=400)

    assert not result["deployments"]
    assert result["expected_gain"][-1] < 0
    assert result["worst_shortfall"] <= result["expected_gain"][-1]
    assert len(set(result["deployed_test_ndcg10"])) == 1


def test_a_deployment_tells_its_evidence_and_what_it_was_truly_worth() -> None:
    """Versions in one chain; values are exact expected click-DCG@10 over the population; worse ones are counted."""
    config, world, baseline = planned("bsea", rounds=3000)
    result = run_ranking_cell(config, world, baseline)
    deployments = result["deployments"]
    worse = sum(d["true_value_after"] < d["true_value_before"] for d in deployments)

    assert deployments
    assert deployments[0]["true_value_before"] == result["true_value_baseline"] == world.value(baseline.ranker)
    assert [(d["from"], d["to"]) for d in deployments] == [(i, i + 1) for i in range(len(deployments))]
    assert all(a["true_value_after"] == b["true_value_before"] for a, b in pairwise(deployments))
    assert result["unsafe_deployments"] == worse


def test_values_are_those_of_an_enumeration() -> None:
    """Click-DCG@10 and nDCG@10 by hand: a list of three documents, of which grades 2 and 0 are clicked by 1 and 0."""
    world = RankingWorld.of(judged([3], [0, 2, 0], d=1), "perfect")
    ranker = LinearRanker(np.array([1.0]))
    order = np.argsort(-world.pool.features[:, 0])
    place = int(np.flatnonzero(order == 1)[0])
    expected = 1 / np.log2(2 + place)

    assert world.test.score(ranker) == pytest.approx((expected, expected))
    assert world.value(ranker) == pytest.approx(expected)


def test_ndcg_of_rounds_is_that_of_their_queries() -> None:
    """Lists of rounds, in which queries repeat, against the metric over one list per query."""
    world = world_of("near-random")
    lists = top_lists(LinearRanker(np.ones(world.n_features)), world.pool)
    queries = world.queries(np.random.default_rng(1).random(200))
    whole = ndcg(lists, world.train.grades, world.pool.offsets)

    assert (world.train.ndcg(lists[queries], queries) == whole[queries]).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_numbers_and_another_one_others(method: str) -> None:
    """Baseline, queries, clicks and the learner's own draws come from the seed alone."""
    one, two = (numbers(result_of(method, first_seed=3)) for _ in range(2))
    other = result_of(method, first_seed=4)

    assert one == two
    assert one["cumulative_ndcg10"] != other["cumulative_ndcg10"]


def test_how_rounds_are_cut_into_legs_changes_no_draw() -> None:
    """Ten rounds and then ninety are a hundred."""
    world = world_of()
    whole = RankingStreams(world, 1, draws=True).leg(100)
    parts = RankingStreams(world, 1, draws=True)
    one, two = parts.leg(10), parts.leg(90)

    for name in ("queries", "actions", "clicks"):
        assert (np.concatenate([getattr(one, name), getattr(two, name)]) == getattr(whole, name)).all()


@pytest.mark.parametrize("method", ["ips", "ranksvm-online", "pdgd"])
def test_defaults_learn(method: str) -> None:
    """On a synthetic set the learned ranker ends clearly above the baseline, in the mean over three seeds."""
    world = world_of(spec="letor-synthetic:queries=100:documents=20:features=20")
    results = [result_of(method, world, rounds=5000, first_seed=seed) for seed in range(3)]
    gains = [r["learned_test_ndcg10"][-1] - r["learned_test_ndcg10"][0] for r in results]

    assert np.mean(gains) > 0.03


@pytest.mark.parametrize("clicks", CLICK_MODELS)
def test_every_kind_of_user_runs(clicks: str) -> None:
    """Cascade users too; gates then assume e(j) = 1/j, and the world says that nothing is certified."""
    world = world_of(clicks)
    result = result_of("sea", world, clicks=clicks, rounds=200)

    assert result["config"]["examination"] == world.examination.tolist()
    assert any("no certificate" in note for note in world.notes) == world.model.is_cascade
    if world.model.is_cascade:
        assert world.examination.tolist() == [1 / j for j in range(1, 11)]


def test_bubblerank_is_judged_by_the_production_ranker_where_it_knows_nothing() -> None:
    """It has no features: on held-out queries it is the baseline, while its own lists improve."""
    result = result_of("bubblerank", rounds=20_000)

    assert len(set(result["learned_test_ndcg10"])) == 1
    assert result["cumulative_ndcg10"][-1] > result["baseline_cumulative_ndcg10"][-1]


def test_the_baseline_is_drawn_anew_per_seed_and_says_on_how_many_queries() -> None:
    """0.1 % of 32 queries is less than one: two are taken, and only ones that can teach."""
    world = world_of()
    one, two = (train_production(world, seed=s, fraction=0.001, least=2, lr=0.01, epochs=5) for s in (1, 2))

    assert one.config["queries"] == 2
    assert one.ranker.id != two.ranker.id
    assert train_production(world, seed=1, fraction=1.0, lr=0.01, epochs=1).config["queries"] <= 32


def test_the_default_baseline_is_better_than_chance_and_worse_than_what_can_be_learned() -> None:
    """Means over five seeds on letor-synthetic, with clear distances on both sides."""
    world = world_of(spec="letor-synthetic")
    config = plan(RunConfig(task="ranking", methods="ips", seeds=5), world)
    baseline = np.mean([world.test.score(c.baseline(world).ranker)[0] for c in config.cells])
    rng = np.random.default_rng(0)
    chance = np.mean([world.test.score(LinearRanker(rng.normal(size=world.n_features)))[0] for _ in range(20)])
    options = {**config.cells[0].baseline_options, "fraction": 1.0}
    most = world.test.score(train_production(world, seed=0, **options).ranker)[0]

    assert chance + 0.1 < baseline < most - 0.05


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("lengths", "grades"),
    [([1, 3], [1, 0, 2, 1]), ([3, 2], [0] * 5), ([1, 1, 1], [0, 1, 2]), ([2, 11], [2] * 13)],
    ids=["one document", "all grades 0", "only queries of one", "all relevant"],
)
def test_poor_queries_neither_crash_nor_give_nan(method: str, lengths: list[int], grades: list[int]) -> None:
    """Nothing to learn from, lists that are shorter than the display, queries without an ideal ranking."""
    world = RankingWorld.of(judged(lengths, grades), "position-biased")
    result = result_of(method, world, clicks="position-biased", rounds=200)
    json.dumps(result, allow_nan=False)

    assert all(None not in result[name] for name in CURVES)


@pytest.mark.parametrize("method", [m for m, row in METHODS.items() if row.gate])
@pytest.mark.parametrize("semantics", ["paper", "released"])
def test_nothing_is_deployed_on_no_click(method: str, semantics: str) -> None:
    """Users who never click: no evidence, no deployment, no NaN, in any semantics."""
    silent = ClickModel("perfect", (0.0, 0.0, 0.0, 0.0, 0.0))
    world = world_of()
    users = {side: replace(getattr(world, side).users, attraction=np.zeros(getattr(world, side).pool.n_docs))
             for side in ("train", "test")}  # fmt: skip
    world = replace(
        world, model=silent, train=replace(world.train, users=users["train"]),
        test=replace(world.test, users=users["test"]),
    )  # fmt: skip
    result = result_of(method, world, rounds=2000, semantics=semantics)

    assert result["deployments"] == []
    assert result["cumulative_reward"][-1] == 0
    assert result["expected_gain"][-1] == 0
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize("method", ["sea", "bsea", "seamark", "seamark-swaps"])
def test_a_learner_that_diverges_is_never_deployed(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are no numbers rank nothing: held-out values are missing, and the baseline stays."""

    def diverged(options: Any, world: RankingWorld, *_: Any) -> RankSVM:
        return RankSVM(np.full(world.n_features, np.nan), lr=0.1)

    monkeypatch.setitem(METHODS, method, replace(METHODS[method], learner=diverged))
    result = result_of(method, rounds=3000)
    json.dumps(result, allow_nan=False)

    assert result["deployments"] == []
    assert result["learned_test_ndcg10"][-1] is None
    assert result["deployed_test_ndcg10"][-1] == result["deployed_test_ndcg10"][0]


@pytest.mark.parametrize("method", ["sea", "bsea", "seamark"])
def test_an_explorer_of_rankers_resumes_with_the_same_bits(method: str, tmp_path: Path) -> None:
    """Saved after 3,000 rounds and loaded into a new one: the next 3,000 are those of an explorer never interrupted."""

    def agent() -> GatedRanking:
        config, world, baseline = planned(method, rounds=6000)
        made, _ = agent_of(config, world, baseline, Schedule.parse("every:250"))
        assert isinstance(made, GatedRanking)
        return made

    one, two = agent(), agent()
    streams = RankingStreams(one.world, 7, draws=False)
    legs = [streams.leg(250) for _ in range(24)]
    for leg in legs[:12]:
        one.step(leg)
    one.explorer.save(tmp_path / "kept")
    two.explorer.load(tmp_path / "kept")
    for leg in legs[12:]:
        first, second = one.step(leg), two.step(leg)
        assert (first.displayed == second.displayed).all()

    assert one.explorer.version == two.explorer.version
    assert one.deployed.id == two.deployed.id
    assert one.learned.id == two.learned.id


def test_rerankings_of_rerankings_are_flattened_and_order_alike() -> None:
    """Three deployments deep, of any depth: the flat form has one incumbent and gives the same full order."""
    world = world_of()
    rng = np.random.default_rng(0)
    for depth in (3, 10):
        ranker: Any = LinearRanker(rng.normal(size=world.n_features)).frozen()
        for _ in range(3):
            ranker = RerankedRanker(LinearRanker(rng.normal(size=world.n_features)).frozen(), ranker, depth)
        once = RerankedRanker.of(ranker.new, ranker.incumbent, depth)

        assert isinstance(once, RerankedRanker)
        assert isinstance(once.incumbent, LinearRanker)
        assert (top_lists(once, world.pool, 60) == top_lists(ranker, world.pool, 60)).all()


def test_what_seamark_deploys_never_nests() -> None:
    """Many deployments, one reranking: the cost of a round does not grow with their number."""
    config, world, baseline = planned("seamark", world_of(spec="letor-synthetic"), rounds=20_000)
    agent, _ = agent_of(config, world, baseline, Schedule.parse("every:500"))
    assert isinstance(agent, GatedRanking)
    streams = RankingStreams(world, config.seed, draws=False)
    for _ in range(40):
        agent.step(streams.leg(500))

    assert agent.explorer.version >= 2
    assert not isinstance(getattr(agent.deployed, "incumbent", None), RerankedRanker)


def test_a_cell_stops_when_it_is_told_to() -> None:
    """Nothing comes back."""
    with pytest.raises(Stopped):
        run_ranking_cell(*planned("sea"), stopped=lambda: True)


def test_the_id_follows_everything_that_matters() -> None:
    """Another value of any field is another cell."""
    config, _, _ = planned("sea")
    changed = [
        replace(config, **{name: value})
        for name, value in (
            ("data", "x"), ("data_sha256", "x"), ("method", "ips"), ("clicks", "near-random"),
            ("semantics", "released"), ("baseline_options", {}), ("delta", 0.1), ("seed", 1), ("rounds", 7),
            ("check", "log"), ("options", {}),
        )
    ]  # fmt: skip

    assert len({c.id for c in [config, *changed]}) == 12
