"""The conduct of a run: who is started when, the killing of the leader, and when all is done.

Owns the order of events. The work is done by other processes; this one starts them, reads their
records as they grow, and judges the records at the end. Whatever ends it, `Household.end` follows.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import fifo
from bench.cluster import BenchCluster
from bench.demo import picture, records
from bench.demo.check import check
from bench.demo.consumer import LOCK_S, PREFETCH
from bench.demo.figures import Event, measure
from bench.demo.growing import grow
from bench.demo.ranges import CHUNK_ROWS
from bench.demo.report import Report
from bench.demo.spark_job import CONSUMERS, MASTER, PUBLISHERS
from bench.demo.upgrading import Installed, upgrade
from bench.hardware import describe
from bench.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.demo.records import Chunk, Delivery
    from bench.processes import Child, Household

QUEUE = "flights"
DEAD_LETTERS = "flights.dlq"
PLAIN_CONSUMERS = 2

LOOK_S = 0.1
UPGRADE_PART = 8
"""An upgrade or a growth begins when a part of one in so many is confirmed: it takes time."""

RESTART_AFTER_S = 4.0
"""Time before the killed node returns: the others work without it, and the picture shows it."""

STALLED_S = 45.0
"""Nothing was confirmed or settled for this long: longer than a lock, so nothing will come."""

END_LIMIT_S = 30.0
"""For consumers to close and Spark to stop once all is done."""


class RunFailed(Exception):
    """A part of the run ended too early or not at all; the text quotes what it said."""


class Tally:
    """The records so far, and what they add up to."""

    def __init__(self, folder: Path) -> None:
        self.chunks: list[Chunk] = []
        self.deliveries: list[Delivery] = []
        self.dead: list[Delivery] = []
        self.confirmed = 0
        self.finished: set[int] = set()
        self._followers = {
            kind: records.Follower(folder, kind)
            for kind in (records.CONFIRMED, records.DELIVERED, records.DEAD)
        }

    def read(self) -> bool:
        """Take in what was added; True if anything was."""
        chunks = list(records.chunks(self._followers[records.CONFIRMED]))
        deliveries = list(records.deliveries(self._followers[records.DELIVERED]))
        dead = list(records.deliveries(self._followers[records.DEAD]))
        self.chunks += chunks
        self.deliveries += deliveries
        self.dead += dead
        self.confirmed += sum(chunk.last - chunk.first + 1 for chunk in chunks)
        self.finished |= {d.row for d in deliveries if d.outcome == "acked"}
        self.finished |= {d.row for d in dead}
        return bool(chunks or deliveries or dead)


@dataclass(slots=True)
class Outage:
    """Consequences of the leader's kill, an upgrade or a growth; None where there was none."""

    events: list[Event] = field(default_factory=list)
    killed_ms: int | None = None
    elected_ms: int | None = None
    caught_up_s: float | None = None
    upgrade_s: float | None = None
    grow_s: float | None = None

    def note(self, kind: str, text: str) -> int:
        """Remember that this happened now."""
        event = Event(records.now_ms(), kind, text)
        self.events.append(event)
        return event.at_ms


@dataclass(frozen=True, slots=True)
class Progress:
    """State that a progress bar shows."""

    stage: str
    finished: int


class Run:
    """A run over rows 1..count, in a folder that is its own."""

    def __init__(
        self,
        count: int,
        household: Household,
        folder: Path,
        show: Callable[[Progress], None],
        limit_s: float,
        older: str | None = None,
        *,
        grows: bool = False,
    ) -> None:
        """`older`: the kept release that the nodes begin with. They are upgraded then, and no
        leader is killed; nor is one where the cluster `grows` to five nodes."""
        self._grows = grows
        self._count = count
        self._household = household
        self._folder = folder
        self._show = show
        self._limit_s = limit_s
        self._began = time.monotonic()
        self._stage = "starting three nodes"
        self._installed = None if older is None else Installed(folder / "releases", older)
        if self._installed is None:
            self._cluster = BenchCluster(household, folder / "cluster")
        else:
            program = self._installed.program
            self._cluster = BenchCluster(household, folder / "cluster", program=program)
        self._tally = Tally(folder / "records")
        self._outage = Outage()
        self._due = asyncio.Event()
        self._due_part = 2 if older is None and not grows else UPGRADE_PART
        self._workers: list[Child] = []

    async def conduct(self) -> Report:
        """From nothing to the report. Raises RunFailed or ClusterFailed."""
        self._look()
        await self._cluster.start()
        await self._declare()
        self._start_workers()
        self._stage = "starting Spark"
        outage = asyncio.create_task(self._go_wrong())
        try:
            await self._follow(outage)
        finally:
            outage.cancel()
        await self._end_workers()
        return self._report()

    async def _declare(self) -> None:
        spec = fifo.QueueSpec(
            QUEUE, lock=LOCK_S, dead_letter=DEAD_LETTERS, nack_backoff=fifo.Fixed(1)
        )
        async with fifo.connect(self._cluster.url) as client:
            await client.declare(spec)

    def _start_workers(self) -> None:
        common = ("--url", self._cluster.url)
        stop = ("--records", str(self._folder / "records"), "--stop", str(self._folder / "stop"))
        consumer = (sys.executable, "-m", "bench.demo.consumer", *common, *stop)
        for number in range(PLAIN_CONSUMERS):
            name = f"plain-{number}"
            self._start(name, *consumer, "--queue", QUEUE, "--name", name)
        self._start(
            "spark",
            *(sys.executable, "-m", "bench.demo.spark_job", *common, "--queue", QUEUE),
            *("--dead-letters", DEAD_LETTERS),
            *("--count", str(self._count), "--folder", str(self._folder)),
        )

    def _start(self, name: str, *command: str) -> None:
        self._workers.append(self._household.start(name, *command))

    async def _go_wrong(self) -> None:
        """When enough is confirmed, kill the leader, or grow to five, or upgrade all nodes."""
        await self._due.wait()
        outage = self._outage
        if self._grows:
            folder = self._folder / "new"
            outage.grow_s = await grow(self._cluster, self._household, folder, outage.note)
        elif self._installed is None:
            await self._kill_and_restart()
        else:
            outage.upgrade_s = await upgrade(self._cluster, self._installed, outage.note)

    async def _kill_and_restart(self) -> None:
        """Kill the leader; later start that node again and see it catch up."""
        outage, cluster = self._outage, self._cluster
        node, term = await cluster.leader()
        await cluster.kill(node)
        outage.killed_ms = outage.note(picture.KILLED, f"leader {node.name} killed (SIGKILL)")
        successor, _ = await cluster.leader(above_term=term)
        outage.elected_ms = outage.note(picture.ELECTED, f"{successor.name} leads")
        await asyncio.sleep(RESTART_AFTER_S)
        back_ms = outage.note(picture.BACK, f"{node.name} started again")
        await cluster.restart(node)
        await cluster.caught_up(node)
        caught_up_ms = outage.note(picture.CAUGHT_UP, f"{node.name} has caught up")
        outage.caught_up_s = (caught_up_ms - back_ms) / 1000

    async def _follow(self, outage: asyncio.Task[None]) -> None:
        """Read records until every row is finished and the killed node is back."""
        moved_at = time.monotonic()
        while True:
            now = time.monotonic()
            if self._look():
                moved_at = now
            if outage.done():
                outage.result()
            if len(self._tally.finished) >= self._count and outage.done():
                return
            self._refuse_early_ends()
            if now - moved_at > STALLED_S and (self._folder / "published").exists():
                return  # What is missing shows in the verdict.
            if now - self._began > self._limit_s:
                tally = self._tally
                raise RunFailed(
                    f"not finished after {self._limit_s:.0f} s: {tally.confirmed} rows confirmed,"
                    f" {len(tally.finished)} done"
                )
            await asyncio.sleep(LOOK_S)

    def _look(self) -> bool:
        moved = self._tally.read()
        if moved and self._stage == "starting Spark":
            self._stage = "publishing and consuming"
        if self._tally.confirmed * self._due_part >= self._count:
            self._due.set()
        stage = self._outage.events[-1].text if self._outage.events else self._stage
        self._show(Progress(stage, len(self._tally.finished)))
        return moved

    def _refuse_early_ends(self) -> None:
        for child in (self._cluster.supervisor, *self._workers):
            code = child.exit_code()
            if code is not None:
                raise RunFailed(f"{child.name} ended with code {code}:\n{child.last_lines()}")

    async def _end_workers(self) -> None:
        (self._folder / "stop").touch()
        deadline = time.monotonic() + END_LIMIT_S
        while any(child.exit_code() is None for child in self._workers):
            if time.monotonic() > deadline:
                late = ", ".join(c.name for c in self._workers if c.exit_code() is None)
                raise RunFailed(f"still running {END_LIMIT_S:.0f} s after the end: {late}")
            await asyncio.sleep(LOOK_S)
        for child in self._workers:
            if child.exit_code() != 0:
                raise RunFailed(f"{child.name} failed at its end:\n{child.last_lines()}")
        self._look()

    def _report(self) -> Report:
        tally, outage = self._tally, self._outage
        published = self._folder / "published"
        sent = int(published.read_text()) if published.exists() else tally.confirmed
        leaderless_ms = None
        if outage.killed_ms is not None and outage.elected_ms is not None:
            leaderless_ms = (outage.killed_ms, outage.elected_ms)
        window_ms = leaderless_ms
        if outage.upgrade_s is not None or outage.grow_s is not None:
            window_ms = (outage.events[0].at_ms, outage.events[-1].at_ms)
        return Report(
            verdict=check(self._count, sent, tally.chunks, tally.deliveries, tally.dead),
            figures=measure(tally.chunks, tally.deliveries, window_ms),
            events=tuple(outage.events),
            leaderless_s=(leaderless_ms[1] - leaderless_ms[0]) / 1000 if leaderless_ms else None,
            caught_up_s=outage.caught_up_s,
            total_s=time.monotonic() - self._began,
            upgrade_s=outage.upgrade_s,
            grow_s=outage.grow_s,
            settings=settings(),
        )


def settings() -> tuple[tuple[str, str], ...]:
    """Settings that the figures of a run depend on."""
    java = find_java()
    return (
        ("machine", describe()),
        ("Java", "none" if java is None else str(java.version)),
        ("nodes", "3, fsync before every confirm"),
        (
            "publishers",
            f'{PUBLISHERS} Spark partitions through format("fifo"), frames of {CHUNK_ROWS} rows',
        ),
        (
            "consumers",
            f"{CONSUMERS} on Spark ({MASTER}), {PLAIN_CONSUMERS} plain processes,"
            f" prefetch {PREFETCH}, lock {LOCK_S:.0f} s; dead letters: a Spark stream",
        ),
    )
