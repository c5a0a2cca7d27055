"""The figures of a load job: as plain data, and on the terminal.

Owns the names (those of the contract for rates and latencies) and the arithmetic over partitions.
Latencies end to end compare the clocks of two processes; on several machines they are as good as
the differences of these clocks were measured (`clock_error_ms`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.hardware import describe, machine
from bench.load.partition import CONSUMER, PRODUCER, Row
from bench.load.workload import Workload
from fifo.histogram import Histogram

PERCENTS = (("p50", 50.0), ("p95", 95.0), ("p99", 99.0))


def report_of(workload: Workload, rows: Sequence[Row]) -> dict[str, Any]:
    """All figures, and a line per partition."""
    producers = [row for row in rows if row.role == PRODUCER]
    consumers = [row for row in rows if row.role == CONSUMER]
    outcomes: Counter[str] = Counter()
    for row in rows:
        outcomes.update(row.outcomes)
    return {
        "published_per_second": _rate(producers),
        "acked_per_second": _rate(consumers),
        "confirm_ms": _latency(producers),
        "end_to_end_ms": _latency(consumers),
        "published": sum(row.messages for row in producers),
        "acked": sum(count for name, count in outcomes.items() if name.startswith("ack ok")),
        "redelivered": sum(row.redelivered for row in consumers),
        "outcomes": dict(sorted(outcomes.items())),
        "partitions": [
            {
                "role": row.role,
                "host": row.host,
                "messages": row.messages,
                "per_second": _rate([row]),
                "latency_ms": _latency([row]),
            }
            for row in rows
        ],
        "clock_error_ms": max((row.clock_error_ns for row in rows), default=0) / 1e6,
        "workload": asdict(workload),
        "machine": machine(),
    }


def _rate(rows: Sequence[Row]) -> float:
    """From the first begin to the last end of the measured time, over all that had work then."""
    busy = [row for row in rows if row.measured]
    if not busy:
        return 0.0
    seconds = (max(row.end_ns for row in busy) - min(row.begin_ns for row in busy)) / 1e9
    return round(sum(row.measured for row in busy) / seconds, 1) if seconds > 0 else 0.0


def _latency(rows: Sequence[Row]) -> dict[str, float | None]:
    total = Histogram()
    for row in rows:
        total.merge(Histogram.from_pairs([(bucket, count) for bucket, count in row.latency]))
    found = {name: total.percentile_ms(percent) for name, percent in PERCENTS}
    return {name: None if value is None else round(value, 2) for name, value in found.items()}


def print_report(report: dict[str, Any], console: Console) -> None:
    """The same for people."""
    table = Table("", "messages", "per second", "p50 ms", "p95 ms", "p99 ms")
    for name, count, rate, latency in (
        ("published, confirmed", "published", "published_per_second", "confirm_ms"),
        ("consumed, acked", "acked", "acked_per_second", "end_to_end_ms"),
    ):
        _add(table, name, report[count], report[rate], report[latency])
    for number, row in enumerate(report["partitions"]):
        name = f"  {row['role']} {number} on {row['host']}"
        _add(table, name, row["messages"], row["per_second"], row["latency_ms"])
    console.print(table)
    for name, count in report["outcomes"].items():
        console.print(f"{name}: {count:,}")
    console.print(f"redelivered: {report['redelivered']:,}")
    console.print(f"left in the queues: {report.get('left', 'not asked')}")
    console.print(describe())


def _add(
    table: Table, name: str, messages: int, rate: float, latency: dict[str, float | None]
) -> None:
    cells = ("" if value is None else f"{value:,.2f}" for value in latency.values())
    table.add_row(name, f"{messages:,}", f"{rate:,.0f}", *cells)
