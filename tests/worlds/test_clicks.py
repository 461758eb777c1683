"""Simulated users: the published tables, their clicks, and exact expectations against enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from seamark.worlds.clicks import CLICK_MODELS, CUTOFF, ClickModel, click_grade, find_model

GRADES = np.array([0, 1, 2, 3, 4, 2, 0, 4, 3, 1, 0, 4], dtype=np.int64)
CASCADES = [name for name, model in CLICK_MODELS.items() if model.is_cascade]
POSITION_BASED = [name for name in CLICK_MODELS if name not in CASCADES]


def shuffled(n_lists: int, length: int, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(GRADES.size)[:length] for _ in range(n_lists)])


def slow_clicks(model: ClickModel, grades: list[int], uniforms: list[float]) -> list[int]:
    """The NumPy-free twin of the kernel."""
    clicks = []
    for j, (grade, u) in enumerate(zip(grades, uniforms), 1):
        p = model.p_click[grade] * j**-model.eta
        clicks.append(int(u < p))
        if model.p_stop is not None and u < p * model.p_stop[grade]:
            break
    return clicks + [0] * (len(grades) - len(clicks))


def pattern_probabilities(model: ClickModel, grades: list[int]) -> dict[tuple[int, ...], float]:
    """P(clicks) of every pattern, by enumeration of examination, attraction and stopping as separate coins."""
    found: dict[tuple[int, ...], float] = {}

    def walk(j: int, clicks: tuple[int, ...], p: float) -> None:
        if p == 0:
            return
        if j == len(grades):
            found[clicks] = found.get(clicks, 0.0) + p
            return
        g = grades[j]
        examined, attracted = (j + 1.0) ** -model.eta, model.p_click[g]
        stop = model.p_stop[g] if model.p_stop else 0.0
        walk(j + 1, (*clicks, 0), p * (1 - examined))
        walk(j + 1, (*clicks, 0), p * examined * (1 - attracted))
        walk(j + 1, (*clicks, 1), p * examined * attracted * (1 - stop))
        walk(len(grades), (*clicks, 1, *[0] * (len(grades) - j - 1)), p * examined * attracted * stop)

    walk(0, (), 1.0)
    return found


def test_the_tables_are_those_of_the_paper() -> None:
    published = {
        "perfect": ((0.00, 0.20, 0.40, 0.80, 1.00), 0.0),
        "position-biased": ((0.10, 0.10, 0.10, 1.00, 1.00), 1.0),
        "near-random": ((0.40, 0.45, 0.50, 0.55, 0.60), 1.0),
    }

    assert {name: (m.p_click, m.eta) for name, m in CLICK_MODELS.items() if not m.is_cascade} == published


def test_examination_falls_with_rank_and_ends_at_the_cut_off() -> None:
    np.testing.assert_allclose(find_model("near-random").examination(), [1 / j for j in range(1, 11)])
    np.testing.assert_array_equal(find_model("perfect").examination(), np.ones(10))
    np.testing.assert_allclose(ClickModel("x", (0, 0, 0, 0, 1), eta=0.5).examination(4), [1, 2**-0.5, 3**-0.5, 0.5])


def test_documents_beyond_the_cut_off_and_ended_lists_are_never_clicked() -> None:
    users = find_model("informational").users(GRADES, cutoff=3)
    display = np.array([[0, 1, 2, 3, 4], [4, -1, -1, -1, -1]])

    clicks = users.clicks(display, np.full((2, 5), 0.39999))  # clicks, and grade 0 does not stop

    np.testing.assert_array_equal(clicks, [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(users.click_probabilities(display)[0, 3:], [0, 0])
    np.testing.assert_array_equal(users.click_probabilities(display)[1, 1:], [0, 0, 0, 0])


@pytest.mark.parametrize("name", CLICK_MODELS)
def test_clicks_equal_those_of_a_slow_twin(name: str) -> None:
    model = find_model(name)
    display = shuffled(500, CUTOFF)
    uniforms = np.random.default_rng(4).random(display.shape)

    clicks = model.users(GRADES).clicks(display, uniforms)

    expected = [slow_clicks(model, [int(GRADES[d]) for d in row], list(u)) for row, u in zip(display, uniforms)]
    np.testing.assert_array_equal(clicks, expected)
    assert clicks.dtype == np.uint8


@pytest.mark.parametrize("name", CLICK_MODELS)
def test_expectations_equal_an_enumeration_of_all_patterns(name: str) -> None:
    model = find_model(name)
    users = model.users(GRADES)
    for row in shuffled(5, 6):
        patterns = pattern_probabilities(model, [int(GRADES[d]) for d in row])
        assert math.isclose(sum(patterns.values()), 1)
        by_position = sum(p * np.array(clicks) for clicks, p in patterns.items())

        np.testing.assert_allclose(users.click_probabilities(row[None])[0], by_position, rtol=1e-12)
        assert math.isclose(users.expected_clicks(row[None])[0], sum(by_position))


@pytest.mark.parametrize("name", CLICK_MODELS)
def test_one_uniform_per_position_gives_every_pattern_its_probability(name: str) -> None:
    """All uniforms, enumerated: one from each interval between the thresholds, weighted by its length."""
    model = find_model(name)
    users = model.users(GRADES)
    row = np.array([1, 2, 4, 0])
    cells = []
    for j, d in enumerate(row, 1):
        p = float(users.attraction[d]) * j**-model.eta
        edges = sorted({0.0, p * float(users.stop[d]), p, 1.0})
        cells.append([((a + b) / 2, b - a) for a, b in itertools.pairwise(edges)])
    found: dict[tuple[int, ...], float] = {}
    for chosen in itertools.product(*cells):
        clicks = users.clicks(row[None], np.array([[u for u, _ in chosen]]))[0]
        key = tuple(int(c) for c in clicks)
        found[key] = found.get(key, 0.0) + math.prod(length for _, length in chosen)

    expected = pattern_probabilities(model, [int(GRADES[d]) for d in row])
    assert found.keys() == expected.keys()
    for key, p in expected.items():
        assert math.isclose(found[key], p, rel_tol=1e-12)


@pytest.mark.parametrize("name", CASCADES)
def test_cascade_users_leave_after_a_click_and_only_then(name: str) -> None:
    model = find_model(name)
    users = model.users(GRADES)
    certain = ClickModel("all", (1.0,) * 5, p_stop=(1.0,) * 5).users(GRADES)

    assert users.clicks([[0, 1, 2]], [[0.0, 0.0, 0.0]]).tolist() == [[1, 0, 0]]
    assert users.clicks([[0, 1, 2]], [[0.99, 0.0, 0.0]]).tolist() == [[0, 1, 0]]
    assert certain.expected_clicks([[0, 1, 2]]).tolist() == [1.0]


@pytest.mark.statistical
@pytest.mark.parametrize("name", CLICK_MODELS)
def test_clicks_come_as_often_as_the_table_says(name: str) -> None:
    """False alarm <= 1e-6 per model (two-sided, over 5 grades at 4 ranks); a rate off by 0.01 is caught."""
    model = find_model(name)
    grades = np.arange(5, dtype=np.int64)
    users = model.users(grades)
    n, seen = 200_000, 0
    rng = np.random.default_rng(20200406)
    for rank, grade in itertools.product((1, 2, 3, 10), range(5)):
        display = np.full((n, rank), -1)
        display[:, -1] = grade  # nothing above it, so that a cascade user arrives
        k = int(users.clicks(display, rng.random(display.shape))[:, -1].sum())
        p = model.p_click[grade] * rank**-model.eta
        tail = min(binom.cdf(k, n, p), binom.sf(k - 1, n, p))
        assert tail > 1e-6 / 40, f"{name}: grade {grade} at rank {rank}: {k} clicks of {n}, expected {p * n:.0f}"
        seen += 1
    assert seen == 20


def test_the_value_is_the_attraction_discounted_by_rank() -> None:
    display = np.array([[4, 0, 3, -1], [2, 1, -1, -1]])

    value = find_model("perfect").users(GRADES).value(display)

    first = 1.00 / math.log2(2) + 0.00 / math.log2(3) + 0.80 / math.log2(4)
    second = 0.40 / math.log2(2) + 0.20 / math.log2(3)
    assert math.isclose(value, (first + second) / 2)


def test_the_value_ends_at_the_cut_off() -> None:
    display = np.array([[4, 3, 7]])

    assert find_model("perfect").users(GRADES, cutoff=1).value(display) == 1.0


def test_grades_of_short_scales_use_the_outer_columns() -> None:
    np.testing.assert_array_equal(click_grade(np.array([0, 1, 2]), 2), [0, 2, 4])
    np.testing.assert_array_equal(click_grade(np.array([0, 1]), 1), [0, 4])
    np.testing.assert_array_equal(click_grade(np.arange(4), 3), np.arange(4))
    np.testing.assert_array_equal(click_grade(np.arange(5), 4), np.arange(5))
    model = find_model("navigational")
    np.testing.assert_array_equal(model.attraction(np.array([0, 1, 2]), max_grade=2), [0.05, 0.5, 0.95])
    np.testing.assert_array_equal(model.users(np.array([0, 1, 2]), max_grade=2).stop, [0.2, 0.5, 0.9])


def test_wrong_models_and_lists_are_refused() -> None:
    users = find_model("perfect").users(GRADES)
    for call, message in [
        (lambda: ClickModel("x", (0, 0, 0, 0, 1.1)), "must be 5 probabilities"),
        (lambda: ClickModel("x", (0, 0, 1)), "must be 5 probabilities"),  # type: ignore[arg-type]
        (lambda: ClickModel("x", (0, 0, 0, 0, math.nan)), "must be 5 probabilities"),
        (lambda: ClickModel("x", (0, 0, 0, 0, 1), eta=-1), "eta is -1"),
        (lambda: ClickModel("x", (0, 0, 0, 0, 1), eta=1, p_stop=(0, 0, 0, 0, 0)), "eta belongs to position-based"),
        (lambda: find_model("random"), "'random' is not a click model; give perfect"),
        (lambda: click_grade(np.array([3]), 2), r"must be in 0\.\.2"),
        (lambda: click_grade(np.array([3]), 5), r"must be in 1\.\.4"),
        (lambda: users.clicks([[0, 99]], [[0.5, 0.5]]), r"must be rows of the 12 documents"),
        (lambda: users.clicks([[0, -2]], [[0.5, 0.5]]), r"must be rows of the 12 documents"),
        (lambda: users.clicks([[0, 1]], [[0.5]]), r"must be \(1, 2\), as the lists"),
        (lambda: users.clicks([0, 1], [0.5, 0.5]), r"must be \(lists, positions\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
