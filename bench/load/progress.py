"""The progress of a running job: published, delivered, acked, lag and p99, a line at a time.

Owns the reading of the small files that partitions write, and their sum. Knows no Spark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from bench.load.partition import PRODUCER


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


def progress(folder: Path) -> Progress:
    """The sum of what all partitions said last."""
    confirmed = delivered = 0
    slow = {True: 0.0, False: 0.0}
    for path in folder.glob("progress-*.json"):
        said = json.loads(path.read_text())
        producing = said["role"] == PRODUCER
        confirmed += said["messages"] if producing else 0
        delivered += said["delivered"]
        slow[producing] = max(slow[producing], said["p99"] or 0.0)
    return Progress(confirmed, delivered, slow[True], slow[False])
