"""When checks happen."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.gates import Schedule


def times(text: str, n: int, tail: int = 1000) -> list[int]:
    return list(islice(Schedule.parse(text, tail=tail).times(), n))


def test_the_published_schedule() -> None:
    """1-9, 10-90 by 10, 100-900 by 100, then every 1,000."""
    expected = [*range(1, 10), *range(10, 100, 10), *range(100, 1000, 100), *range(1000, 30_001, 1000)]

    assert times("published", len(expected)) == expected


def test_the_published_schedule_of_ranking() -> None:
    """The same up to 10,000, then every 10,000."""
    expected = [
        *range(1, 10), *range(10, 100, 10), *range(100, 1000, 100), *range(1000, 10_000, 1000),
        *range(10_000, 100_001, 10_000),
    ]  # fmt: skip

    assert times("published", len(expected), tail=10_000) == expected


def test_the_log_schedule_has_nine_checks_per_decade() -> None:
    """No tail: the number of checks grows with the logarithm of the rounds."""
    expected = [m * 10**k for k in range(7) for m in range(1, 10)]

    assert times("log", len(expected)) == expected


def test_every_n() -> None:
    """Multiples of N."""
    assert times("every:7", 4) == [7, 14, 21, 28]


@given(st.sampled_from(["published", "log", "every:1", "every:250"]), st.integers(0, 10**9))
def test_the_next_check_is_later_and_none_lies_between(text: str, t: int) -> None:
    """`after` is the first check beyond t, from wherever it is asked; rounding in log10 is caught."""
    schedule = Schedule.parse(text)
    following = schedule.after(t)

    assert following > t
    assert schedule.after(following - 1) == following
    assert schedule.after((t + following) // 2) == following or (t + following) // 2 == following


@pytest.mark.parametrize("text", ["published", "log", "every:500"])
def test_a_schedule_is_written_as_it_is_read(text: str) -> None:
    """Text and back."""
    assert str(Schedule.parse(text)) == text


@pytest.mark.parametrize("text", ["", "sometimes", "every", "every:", "every:0", "every:-3", "every:1.5", "each:10"])
def test_an_unknown_schedule_is_refused(text: str) -> None:
    """The message lists what there is."""
    with pytest.raises(ValueError, match="must be 'published', 'log' or 'every:N' with a positive N"):
        Schedule.parse(text)
