"""A publisher or a consumer of a peer: a process that measures itself and prints its figures.

Owns the measured loops, the same for every system. Run as
`python -m bench.peers.worker '{"system": ...}'`; not for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench import loop
from bench.peers.choice import driver_of
from bench.peers.drivers import RECONNECT_S, Driver
from bench.peers.meeting import Meeting, Times
from bench.statistics import longest_gap
from fifo.histogram import Histogram

STAMP_BYTES = 8
LANES = 4
"""A window travels in so many calls: some are confirmed while others are on their way."""

PUBLISHER = "publisher"
CONSUMER = "consumer"
PACER = "pacer"
"""Publishes so many messages a second, each when it is due, however long the others take."""

SURVIVOR = "survivor"
"""Publishes one message after the other, again and again each, while the leader is killed."""

ATTEMPT_S = 0.5
"""A survivor's publish that is not confirmed by then is sent again."""

RECOVERY_S = 2.0
"""Time that a client may take to connect to another node before it tries the next."""

SETTLED_S = 2.0
"""Seconds of confirms after the kill of the leader that make a survivor content."""

PACE_S = 0.001
"""A pacer sends what is due at each of these steps."""

BEFORE_S = 1.0
"""Seconds before the kill of the leader: a pause that began earlier is another one."""

PAUSE_LIMIT_S = 45.0
"""Seconds without a confirm after which a system has failed."""


class NoConfirm(Exception):
    """A publish was never confirmed again."""


@dataclass(frozen=True, slots=True)
class Job:
    """Task of one worker. `meeting`: the folder of its load; `rate`: a pacer's."""

    name: str
    system: str
    url: str
    queue: str
    role: str
    size: int
    window: int
    meeting: str
    rate: int = 0


@dataclass(slots=True)
class Figures:
    """Measurements: messages, how long each took, and the longest pause of a survivor."""

    messages: int = 0
    latency: Histogram = field(default_factory=Histogram)
    pause_s: float = 0.0

    def count(self, times: Times, sent_ns: int, now_ns: int, messages: int = 1) -> None:
        """Messages that were sent at one time, and are through now."""
        if times.begin_ns <= now_ns < times.end_ns:
            self.messages += messages
            self.latency.record(now_ns - sent_ns, messages)


def _body(job: Job, sent_ns: int, padding: bytes) -> bytes:
    return sent_ns.to_bytes(STAMP_BYTES, "little") + padding[: job.size - STAMP_BYTES]


async def publish(driver: Driver, job: Job, times: Times, figures: Figures, count: int) -> None:
    """A lane of a window: so many at once, again and again, until the end."""
    padding = os.urandom(job.size)
    now = time.monotonic_ns()
    while now < times.end_ns:
        sent = now
        await driver.publish(_body(job, sent, padding), count)
        now = time.monotonic_ns()
        figures.count(times, sent, now, count)


async def pace(driver: Driver, job: Job, times: Times, figures: Figures) -> None:
    """Publish what is due, one by one, until the end."""
    padding = os.urandom(job.size)

    async def once() -> None:
        sent = time.monotonic_ns()
        await driver.publish(_body(job, sent, padding), 1)
        figures.count(times, sent, time.monotonic_ns())

    begun, sent = time.monotonic(), 0
    async with asyncio.TaskGroup() as group:
        while time.monotonic_ns() < times.end_ns:
            due = int((time.monotonic() - begun) * job.rate) - sent
            for _ in range(due):
                group.create_task(once())
            sent += due
            await asyncio.sleep(PACE_S)


async def survive(driver: Driver, job: Job, figures: Figures, meeting: Meeting) -> None:
    """Publish one by one over the death of the leader; see how long nothing was confirmed.

    Raises NoConfirm where that never ends.
    """
    padding = os.urandom(job.size)
    confirmed = [time.monotonic_ns()]
    killed: int | None = None
    while killed is None or confirmed[-1] < killed + SETTLED_S * 1e9:
        await _confirm(driver, _body(job, confirmed[-1], padding), meeting)
        confirmed.append(time.monotonic_ns())
        killed = meeting.killed_ns()
    figures.pause_s = longest_gap(confirmed, killed - BEFORE_S * 1e9, confirmed[-1]) / 1e9


async def _confirm(driver: Driver, body: bytes, meeting: Meeting) -> None:
    lost: tuple[type[Exception], ...] = (TimeoutError, *driver.errors)
    while True:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                await driver.publish(body, 1)
                return
        except lost:
            killed = meeting.killed_ns()
            if killed is not None and time.monotonic_ns() > killed + PAUSE_LIMIT_S * 1e9:
                raise NoConfirm(
                    f"nothing was confirmed for {PAUSE_LIMIT_S:g} s after the leader was killed"
                ) from None
            await asyncio.sleep(RECONNECT_S)
            with contextlib.suppress(*lost):
                async with asyncio.timeout(RECOVERY_S):
                    await driver.recover()


async def consume(driver: Driver, job: Job, times: Times, figures: Figures) -> None:
    """Take and ack until the end."""
    async for bodies in driver.batches(job.window):
        now = time.monotonic_ns()
        for stamp, same in itertools.groupby(body[:STAMP_BYTES] for body in bodies):
            figures.count(times, int.from_bytes(stamp, "little"), now, sum(1 for _ in same))


async def work(job: Job) -> Figures:
    """Connect, wait for the others, do the job, leave."""
    figures = Figures()
    meeting = Meeting(Path(job.meeting))
    driver = driver_of(job.system)
    await driver.open(job.url, job.queue)
    if job.role != CONSUMER:  # What a first message costs is none of the figures.
        await driver.publish(_body(job, time.monotonic_ns(), bytes(job.size)), 1)
    meeting.arrive(job.name)
    times = await meeting.times()
    if job.role == SURVIVOR:
        await survive(driver, job, figures, meeting)
    else:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((times.end_ns - time.monotonic_ns()) / 1e9):
                await _load(driver, job, times, figures)
    with contextlib.suppress(Exception):  # What was measured stands, however it leaves.
        await asyncio.wait_for(driver.close(), 2)
    return figures


async def _load(driver: Driver, job: Job, times: Times, figures: Figures) -> None:
    if job.role == CONSUMER:
        await consume(driver, job, times, figures)
        return
    if job.role == PACER:
        await pace(driver, job, times, figures)
        return
    lanes = min(LANES, job.window)
    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(publish(driver, job, times, figures, job.window // lanes))


def main() -> int:
    """Do the job of the command line; 1 and one line on stderr where it failed."""
    job = Job(**json.loads(sys.argv[1]))
    try:
        figures = loop.run(work(job))
    except Exception as failed:  # Three libraries with errors of their own: each is one line here.
        error: BaseException = failed
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        print(f"{job.system} {job.role}: {error or type(error).__name__}", file=sys.stderr)
        return 1
    print(
        json.dumps(
            {
                "messages": figures.messages,
                "latency": figures.latency.to_pairs(),
                "pause_s": figures.pause_s,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
