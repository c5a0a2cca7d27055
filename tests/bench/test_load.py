"""The load job's arithmetic: shares, rates, merged histograms, options."""

from __future__ import annotations

import pytest

from bench.load import CONSUMER, PRODUCER, Load, Row, parse, report_of
from bench.rates import GAP, WORKLOADS, rows_of
from node.cli.histogram import Histogram

LOAD = Load(
    url="fifo://user:secret@127.0.0.1:7101",
    queue="load",
    producers=3,
    consumers=1,
    messages=1000,
    size=1024,
    window=1000,
    prefetch=1000,
    idle_s=3.0,
)
SECOND_NS = 1_000_000_000


def row(role: str, partition: int, messages: int, begin_s: int, end_s: int, ms: int) -> Row:
    """A partition whose messages all took the same time."""
    histogram = Histogram()
    histogram.record(ms * 1_000_000, messages)
    return Row(
        role=role,
        partition=partition,
        host="h",
        messages=messages,
        begin_ns=begin_s * SECOND_NS,
        end_ns=end_s * SECOND_NS,
        latency=histogram.to_pairs(),
    )


def test_the_producers_shares_add_up() -> None:
    """Also where they do not divide."""
    assert [LOAD.share(producer) for producer in range(3)] == [333, 333, 334]


def test_rates_span_all_partitions_and_latencies_are_merged() -> None:
    """Two producers that overlap, one consumer that had nothing to do."""
    rows = [
        row(PRODUCER, 0, 600, 10, 12, 5),
        row(PRODUCER, 1, 400, 11, 14, 50),
        row(CONSUMER, 2, 0, 0, 0, 1),
        row(CONSUMER, 3, 1000, 11, 15, 8),
    ]
    report = report_of(LOAD, rows)
    assert report["published"] == 1000
    assert report["published_per_second"] == 250
    assert report["acked_per_second"] == 250
    assert report["confirm_ms"]["p50"] == pytest.approx(5, rel=0.01)
    assert report["confirm_ms"]["p99"] == pytest.approx(50, rel=0.01)
    assert [part["per_second"] for part in report["partitions"]] == [300, 133.3, 0, 250]


def test_a_report_does_not_show_the_url() -> None:
    """It may hold a password."""
    assert "secret" not in str(report_of(LOAD, []))


def test_a_job_without_messages_has_no_rates() -> None:
    """And no division by zero."""
    report = report_of(LOAD, [row(PRODUCER, 0, 0, 0, 0, 1)])
    assert report["published_per_second"] == 0
    assert report["end_to_end_ms"] == {"p50": None, "p95": None, "p99": None}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--queue", "q", "--size", "7"],
        ["--queue", "q", "--producers", "0", "--consumers", "0"],
        ["--queue", "q", "--window", "0"],
        ["--queue", "q", "--messages", "-1"],
        [],
    ],
)
def test_options_that_make_no_sense_are_a_usage_error(arguments: list[str]) -> None:
    """Exit code 2, before a JVM is started."""
    with pytest.raises(SystemExit) as ended:
        parse(["--url", "fifo://127.0.0.1:7101", *arguments])
    assert ended.value.code == 2


def test_without_an_address_the_options_are_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no default cluster for a job that may run anywhere."""
    monkeypatch.delenv("FIFO_URL", raising=False)
    with pytest.raises(SystemExit):
        parse(["--queue", "q"])


def test_the_table_of_rates_has_a_row_per_figure_with_its_median() -> None:
    """In the order of the workloads, the change of leader last."""
    measured = {
        (workload.name, figure): [3.0, 1.0, 2.0]
        for workload in WORKLOADS
        for _, figure, _ in workload.figures
    }
    measured[GAP[:2]] = [0.5]
    rows = rows_of(measured)
    assert len(rows) == sum(len(workload.figures) for workload in WORKLOADS) + 1
    assert rows[0][2] == (2, 1, 3)
    assert rows[-1][0] == "leader killed"
