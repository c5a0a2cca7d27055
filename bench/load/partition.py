"""Parts of every partition: its place in the run, its figures, and its reports of progress.

Owns the row that a partition gives back, the measured time, and the small files by which the driver
shows progress and asks for an early end. Where workers share no folder with the driver, there is no
progress, and an interrupted job ends without a drain; nothing else depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.load.recorder import NoRecorder, Recorder
from bench.load.workload import Phase, Workload
from fifo.histogram import Histogram

PRODUCER = "producer"
CONSUMER = "consumer"

CALL_TIMEOUT_S = 60.0
"""For one publish, a change of leader included."""

TELL_S = 0.5
"""Interval at which a partition reports its progress."""

STOP = "stop"
DONE = "done-"
"""Files in the run's folder: end early; this producer has ended."""


@dataclass(frozen=True, slots=True)
class Run:
    """Where a job runs; pickled to the workers. `begin` is monotonic, when publishing begins."""

    url: str
    queue: str
    workload: Workload
    folder: Path
    history: Path | None
    begin: float

    @property
    def dead_letters(self) -> str:
        """The queue's dead-letter queue, where it has one."""
        return f"{self.queue}.dead"

    def since(self, now: float) -> float | None:
        """When the measured time began that this moment lies in; None where it does not count."""
        last = self.begin
        for phase, begin, end in self.phases():
            if begin <= now < end:
                return begin if phase.measured else None
            last = end
        return last if now >= last else None

    def phases(self) -> Iterator[tuple[Phase, float, float]]:
        """Each phase with its begin and end; a job of so many messages has none."""
        at = self.begin
        for phase in () if self.workload.messages else self.workload.phases:
            yield phase, at, at + phase.seconds
            at += phase.seconds

    @property
    def published(self) -> bool:
        """Whether every producer has ended; by the clock where no folder is shared."""
        if not self.folder.exists():
            return time.monotonic() > max((end for _, _, end in self.phases()), default=0.0)
        return len(list(self.folder.glob(f"{DONE}*"))) >= self.workload.producers

    @property
    def stopped(self) -> bool:
        """Whether the driver wants an early end."""
        return (self.folder / STOP).exists()


@dataclass(slots=True)
class Row:
    """Figures of one partition. Times are monotonic nanoseconds, zero where there was nothing."""

    role: str
    partition: int
    host: str
    messages: int = 0
    measured: int = 0
    redelivered: int = 0
    begin_ns: int = 0
    end_ns: int = 0
    latency: Sequence[tuple[int, int]] = ()
    outcomes: dict[str, int] = field(default_factory=dict)


class Figures:
    """A partition's row while it is made."""

    def __init__(self, run: Run, row: Row) -> None:
        self._run = run
        self.row = row
        self.latency = Histogram()
        self.delivered = 0

    def count(self, sent_ns: int, now_ns: int, messages: int = 1) -> None:
        """Messages that were sent at one time and are through now."""
        self.row.messages += messages
        since = self._run.since(now_ns / 1e9)
        if since is not None:
            self.row.measured += messages
            self.row.begin_ns = self.row.begin_ns or int(since * 1e9)
            self.row.end_ns = now_ns
            self.latency.record(now_ns - sent_ns, messages)

    def outcome(self, name: str) -> None:
        """Something ended in this way."""
        self.row.outcomes[name] = self.row.outcomes.get(name, 0) + 1

    def finished(self) -> Row:
        """The row, whole."""
        self.row.latency = self.latency.to_pairs()
        return self.row


@contextlib.asynccontextmanager
async def telling(run: Run, figures: Figures) -> AsyncIterator[None]:
    """Inside, the driver can see how far this partition is."""
    task = asyncio.get_running_loop().create_task(_tell(run, figures))
    try:
        yield
    finally:
        task.cancel()
        _write(run, figures)


async def _tell(run: Run, figures: Figures) -> None:
    while True:
        _write(run, figures)
        await asyncio.sleep(TELL_S)


def _write(run: Run, figures: Figures) -> None:
    row = figures.row
    said = {
        "role": row.role,
        "messages": row.messages,
        "delivered": figures.delivered,
        "p99": figures.latency.percentile_ms(99),
    }
    path = run.folder / f"progress-{row.role}-{row.partition}-{os.getpid()}.json"
    with contextlib.suppress(OSError):
        path.with_suffix(".new").write_text(json.dumps(said))
        os.replace(path.with_suffix(".new"), path)


def recorder(run: Run, name: str) -> Recorder:
    """For the events of one partition, or of one incarnation of a consumer."""
    if run.history is None:
        return NoRecorder()
    return Recorder(run.history, f"{name}-{time.monotonic_ns()}")
