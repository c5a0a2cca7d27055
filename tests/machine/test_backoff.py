"""Backoffs: PIP-106's and PIP-130's tables to the millisecond, text forms, exactness."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fifo.machine.backoff import delay_ms
from fifo.words.backoff import (
    Backoff,
    DelayTable,
    ExponentialDelay,
    FixedDelay,
    parse,
)


def delays_s(text: str, count: int) -> list[float]:
    policy = parse(text)
    return [delay_ms(policy, failures) / 1_000 for failures in range(count)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exponential:1s..60s*2", [1, 2, 4, 8, 16, 32, 60, 60]),
        ("exponential:1s..60s", [1, 2, 4, 8, 16, 32, 60, 60]),
        ("exponential:1s..60s*5", [1, 5, 25, 60, 60]),
        ("exponential:1s..60s*1.5", [1, 1.5, 2.25, 3.375, 5.062, 7.593, 11.39]),
        ("exponential:0s..60s*2", [0, 0, 0]),
        ("fixed:1s", [1, 1, 1]),
        ("table:1s,5s,30s", [1, 5, 30, 30, 30]),
    ],
)
def test_the_tables_of_pip_106_and_pip_130_come_out_exactly(
    text: str, expected: list[float]
) -> None:
    assert delays_s(text, len(expected)) == expected


def test_failures_below_zero_wait_the_minimum() -> None:
    assert delay_ms(ExponentialDelay(1_000, 60_000), -3) == 1_000
    assert delay_ms(DelayTable((7, 8)), -1) == 7


@given(
    st.integers(0, 10_000),
    st.integers(0, 10**9),
    st.integers(1_100, 10_000),
    st.integers(0, 400),
)
def test_an_exponential_is_the_floor_of_the_true_power(
    low: int, more: int, thousandths: int, failures: int
) -> None:
    exact = low * Fraction(thousandths, 1_000) ** failures
    expected = min(low + more, exact.numerator // exact.denominator)
    assert delay_ms(ExponentialDelay(low, low + more, thousandths), failures) == expected


def test_a_million_failures_cost_no_more_than_reaching_the_maximum() -> None:
    policy = ExponentialDelay(1, 366 * 86_400_000, 1_100)
    assert delay_ms(policy, 10**6) == 366 * 86_400_000


@given(
    st.one_of(
        st.builds(FixedDelay, st.integers(0, 10**9)),
        st.builds(
            lambda low, more, factor: ExponentialDelay(low, low + more, factor),
            st.integers(0, 10**8),
            st.integers(0, 10**8),
            st.integers(1_100, 10**6),
        ),
        st.builds(DelayTable, st.lists(st.integers(0, 10**8), min_size=1, max_size=8).map(tuple)),
    )
)
def test_the_text_form_of_a_backoff_round_trips(policy: Backoff) -> None:
    assert parse(str(policy)) == policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1s",
        "fixed:",
        "fixed:1",
        "fixed:-1s",
        "fixed:1.s",
        "fixed:1.2345s",
        "fixed:1e3s",
        "fixed:3651d",
        "exponential:1s",
        "exponential:5s..1s",
        "exponential:1s..5s*1",
        "exponential:1s..5s*1.05",
        "exponential:1s..5s*x",
        "table:",
        "table:1s,,2s",
        "table:" + ",".join(["1s"] * 65),
        "callable:module:name",
        "fixed:" + "9" * 30 + "s",
    ],
)
def test_a_malformed_backoff_is_refused_with_a_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)
