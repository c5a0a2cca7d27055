"""The report of a benchmark has the figures of the contract, computed from what was counted."""

from __future__ import annotations

from fifo.histogram import Histogram
from node.cli.bench import make_report

SETTINGS = {"seconds": 10, "publishers": 1, "consumers": 1}


def counted(count: int, milliseconds: int) -> dict[str, object]:
    histogram = Histogram()
    histogram.record(milliseconds * 1_000_000, count)
    return {"total": 2 * count, "measured": count, "latency": histogram.to_pairs()}


def test_rates_cover_the_measured_time_and_latencies_are_in_milliseconds() -> None:
    results = {"publish": counted(1000, 8), "consume": counted(900, 500)}
    paced = {"publish": counted(100, 1), "consume": counted(100, 16)}
    report = make_report(results, SETTINGS, 3, paced)
    assert report["published_per_second"] == 100
    assert report["acked_per_second"] == 90
    assert round(report["confirm_ms"]["p50"]) == 8
    assert round(report["end_to_end_ms"]["p99"]) == 16
    assert report["published"] == 2000
    assert report["left_in_queue"] == 3
    assert report["settings"] == SETTINGS
    assert {"cores", "python", "kernel"} <= set(report["machine"])


def test_a_backlog_is_not_shown_as_end_to_end_latency() -> None:
    report = make_report({"publish": counted(10, 1), "consume": counted(10, 900)}, SETTINGS, 5)
    assert report["end_to_end_ms"] is None


def test_without_consumers_there_is_no_end_to_end_latency() -> None:
    report = make_report({"publish": counted(10, 1)}, SETTINGS, None)
    assert report["acked_per_second"] == 0
    assert report["end_to_end_ms"] is None
