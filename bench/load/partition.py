"""Parts of every partition: its place in the run, its figures, and its reports of progress.

Owns the row that a partition gives back, the measured time, and its clock: the driver's, whatever
host this is. How a report reaches the driver is the business of `link`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.load.link import Address, Link
from bench.load.recorder import NoRecorder, Recorder
from bench.load.workload import Phase, Workload
from fifo.histogram import Histogram

PRODUCER = "producer"
CONSUMER = "consumer"

CALL_TIMEOUT_S = 60.0
"""For one publish, a change of leader included."""

TELL_S = 0.5
"""Interval at which a partition reports its progress."""


@dataclass(frozen=True, slots=True)
class Run:
    """Where a job runs; pickled to the workers. `begin`: when publishing begins, in seconds of the
    driver's monotonic clock; `offset_ns`: what this host's is behind it, `error_ns` how exactly
    that is known."""

    url: str
    queue: str
    workload: Workload
    hub: Address | None = None
    history: bool = False
    begin: float = 0.0
    offset_ns: int = 0
    error_ns: int = 0

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

    def now_ns(self) -> int:
        """The time by the driver's clock."""
        return time.monotonic_ns() + self.offset_ns

    def now(self) -> float:
        """The same in seconds."""
        return self.now_ns() / 1e9


@dataclass(slots=True)
class Row:
    """Figures of one partition. Times are nanoseconds of the driver's clock, zero where there was
    nothing; `clock_error_ns` is by how much they may be wrong."""

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
    clock_error_ns: int = 0


class Figures:
    """A partition's row while it is made."""

    def __init__(self, run: Run, row: Row) -> None:
        self._run = run
        self.row = row
        row.clock_error_ns = run.error_ns
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
            # Of two hosts' clocks the difference is known to `error_ns` only.
            self.latency.record(max(now_ns - sent_ns, 0), messages)

    def outcome(self, name: str) -> None:
        """Something ended in this way."""
        self.row.outcomes[name] = self.row.outcomes.get(name, 0) + 1

    def finished(self) -> Row:
        """The row, whole."""
        self.row.latency = self.latency.to_pairs()
        return self.row


@contextlib.asynccontextmanager
async def telling(link: Link, figures: Figures) -> AsyncIterator[None]:
    """Inside, the driver can see how far this partition is."""
    task = asyncio.get_running_loop().create_task(_tell(link, figures))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        link.tell(**_said(figures))


async def _tell(link: Link, figures: Figures) -> None:
    while True:
        # In a thread: a driver that is slow to read must not slow the load down.
        await asyncio.to_thread(link.tell, **_said(figures))
        await asyncio.sleep(TELL_S)


def _said(figures: Figures) -> dict[str, object]:
    row = {**asdict(figures.row), "latency": figures.latency.to_pairs()}
    return {"row": row, "delivered": figures.delivered, "process": str(os.getpid())}


class ShippedRecorder(Recorder):
    """Writes to a file of its own host, and has the driver keep it when it is closed."""

    def __init__(self, run: Run, link: Link, name: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fifo-load-")
        super().__init__(Path(self._folder.name), name, run.now)
        self._link = link
        self._name = f"{name}.parquet"

    def close(self) -> None:
        """Make the file whole, and hand it over."""
        super().close()
        try:
            self._link.send_file(Path(self._folder.name) / self._name, self._name)
        finally:
            self._folder.cleanup()


def recorder(run: Run, link: Link, name: str) -> Recorder:
    """For the events of one partition, or of one incarnation of a consumer."""
    if not run.history:
        return NoRecorder()
    return ShippedRecorder(run, link, f"{name}-{os.getpid()}-{time.monotonic_ns()}")
