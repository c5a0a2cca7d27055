"""The progress of a running job: published, delivered, acked, lag and p99, a line at a time.

Owns the sum of what partitions have reported last. Knows no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bench.load.partition import PRODUCER, Row
from fifo.histogram import Histogram


class Progress(NamedTuple):
    """Progress of a job. `p99_ms` are the slowest partition's."""

    confirmed: int
    delivered: int
    confirm_p99_ms: float
    delivery_p99_ms: float

    def line(self) -> str:
        """A line for people."""
        return (
            f"{self.confirmed:,} confirmed (p99 {self.confirm_p99_ms:,.1f} ms),"
            f" {self.delivered:,} delivered (p99 {self.delivery_p99_ms:,.1f} ms),"
            f" lag {max(0, self.confirmed - self.delivered):,}"
        )


def progress(rows: Iterable[tuple[Row, int]]) -> Progress:
    """The sum of rows, each with what was delivered to its partition."""
    confirmed = total = 0
    slow = {True: 0.0, False: 0.0}
    for row, delivered in rows:
        producing = row.role == PRODUCER
        confirmed += row.messages if producing else 0
        total += delivered
        latency = Histogram.from_pairs([(bucket, count) for bucket, count in row.latency])
        slow[producing] = max(slow[producing], latency.percentile_ms(99) or 0.0)
    return Progress(confirmed, total, slow[True], slow[False])
