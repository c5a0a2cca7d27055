"""Proves the conversions of durations and backoffs: units, bounds, text forms."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fifo
from fifo.client.backoff import parse
from fifo.client.durations import milliseconds, parse_ms, patience
from fifo.machine.backoff import delay_ms
from fifo.words import backoff as words
from fifo.words.durations import to_text


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (1, 1000), (0.07, 70), (0.0001, 1), (1.0005, 1001), (timedelta(minutes=1), 60_000)],
)
def test_seconds_become_milliseconds_and_never_less(value: Any, expected: int) -> None:
    assert milliseconds(value, "lock") == expected


@pytest.mark.parametrize(
    ("timeout", "expected"), [(0.5, 0.5), (timedelta(seconds=2), 2.0), (-3, 0.0), (0, 0.0)]
)
def test_a_timeout_that_is_over_already_waits_for_nothing(timeout: Any, expected: float) -> None:
    assert patience(timeout) == expected


@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), "1s", True, None, 10**12])
def test_an_invalid_duration_is_refused_by_name(value: Any) -> None:
    with pytest.raises(fifo.InvalidArgument, match="lock"):
        milliseconds(value, "lock")


@pytest.mark.parametrize(
    ("text", "backoff"),
    [
        ("fixed:1s", fifo.Fixed(1)),
        ("exponential:1s..1m*2", fifo.Exponential(1, 60)),
        ("exponential:500ms..1h*1.5", fifo.Exponential(0.5, 3600, 1.5)),
        ("table:1s,5s,30s", fifo.Table([1, 5, 30])),
    ],
)
def test_a_backoff_has_a_text_form(text: str, backoff: Any) -> None:
    assert str(backoff) == text
    assert str(parse(text)) == text


def test_a_backoff_grows_as_the_tables_of_the_specification_say() -> None:
    doubling = fifo.Exponential(min=1, max=60, multiplier=2)
    assert [doubling.delay_s(n) for n in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    quintupling = fifo.Exponential(1, 60, 5)
    assert [quintupling.delay_s(n) for n in range(4)] == [1, 5, 25, 60]
    table = fifo.Table([1, 5, 30])
    assert [table.delay_s(n) for n in (-1, 0, 1, 2, 9)] == [1, 1, 5, 30, 30]
    assert fifo.Exponential(0, 60).delay_s(50) == 0


@pytest.mark.parametrize(
    "text",
    ["", "fixed", "fixed:", "fixed:1", "fixed:1y", "exponential:1s", "exponential:2s..1s",
     "exponential:1s..2s*1", "exponential:1s..2s*x", "table:", "table:1s,", "random:1s"],
)  # fmt: skip
def test_an_invalid_backoff_is_refused(text: str) -> None:
    with pytest.raises(fifo.InvalidArgument, match="backoff"):
        parse(text)


@given(st.integers(0, 10**10))
def test_a_duration_survives_its_text_form(duration_ms: int) -> None:
    assert parse_ms(to_text(duration_ms), "lock") == duration_ms


def test_the_backoffs_of_client_and_machine_agree() -> None:
    for text in ("fixed:1s", "exponential:1s..1m*2", "exponential:700ms..9s*1.1", "table:1s,5s"):
        ours, theirs = parse(text), words.parse(text)
        assert str(ours) == str(theirs)
        for failures in range(40):
            # The server's are exact integers; ours may differ by what floats cannot say.
            assert abs(ours.delay_s(failures) * 1000 - delay_ms(theirs, failures)) <= 1
