"""Percentiles of a benchmark are right to one percent, also after a trip between processes."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fifo.histogram import Histogram

DURATIONS = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)


@given(DURATIONS, st.floats(0, 100))
def test_a_percentile_is_within_one_percent_of_the_exact_one(
    durations: list[int], percent: float
) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.record(duration)
    rank = max(-(-len(durations) * percent // 100), 1)
    exact = sorted(durations)[int(rank) - 1] / 1e6
    found = histogram.percentile_ms(percent)
    assert found is not None
    assert abs(found - exact) <= exact * 0.01


@given(DURATIONS, DURATIONS)
def test_merged_halves_equal_the_whole_after_a_json_round_trip(
    one: list[int], two: list[int]
) -> None:
    whole, halves = Histogram(), [Histogram(), Histogram()]
    for half, durations in zip(halves, (one, two), strict=True):
        for duration in durations:
            whole.record(duration)
            half.record(duration)
    first = Histogram.from_pairs(json.loads(json.dumps(halves[0].to_pairs())))
    first.merge(halves[1])
    assert first.to_pairs() == whole.to_pairs()
    assert first.count == len(one) + len(two)


def test_an_empty_histogram_has_no_percentile() -> None:
    assert Histogram().percentile_ms(50) is None


def test_a_batch_counts_each_message() -> None:
    histogram = Histogram()
    histogram.record(1_000_000, 99)
    histogram.record(50_000_000)
    assert round(histogram.percentile_ms(99) or 0) == 1
    assert round(histogram.percentile_ms(100) or 0) == 50
