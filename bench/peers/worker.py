"""One publisher or one consumer of a peer: a process that measures itself and prints its figures.

Owns the measured loops, the same for every system. Times are of the monotonic clock, which all
processes of a machine share: figures count from `begin` to `end`. Run as
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
from dataclasses import dataclass

from bench import loop
from bench.peers.choice import driver_of
from bench.peers.drivers import Driver
from node.cli.histogram import Histogram

STAMP_BYTES = 8
LANES = 4
"""A window travels in so many calls: some are confirmed while others are on their way."""

PUBLISHER = "publisher"
CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker does. `begin_ns` and `end_ns` are monotonic."""

    system: str
    url: str
    role: str
    size: int
    window: int
    begin_ns: int
    end_ns: int


@dataclass(slots=True)
class Figures:
    """What was measured: messages, and how long each took."""

    messages: int
    latency: Histogram

    def count(self, job: Job, sent_ns: int, now_ns: int, messages: int = 1) -> None:
        """Messages that were sent at one time, and are through now."""
        if job.begin_ns <= now_ns < job.end_ns:
            self.messages += messages
            self.latency.record(now_ns - sent_ns, messages)


async def publish(driver: Driver, job: Job, figures: Figures, count: int) -> None:
    """One lane of a window: so many at once, again and again, until the end."""
    padding = os.urandom(job.size - STAMP_BYTES)
    now = time.monotonic_ns()
    while now < job.end_ns:
        sent = now
        await driver.publish(sent.to_bytes(STAMP_BYTES, "little") + padding, count)
        now = time.monotonic_ns()
        figures.count(job, sent, now, count)


async def consume(driver: Driver, job: Job, figures: Figures) -> None:
    """Take and ack until the end."""
    async for bodies in driver.batches(job.window):
        now = time.monotonic_ns()
        for stamp, same in itertools.groupby(body[:STAMP_BYTES] for body in bodies):
            figures.count(job, int.from_bytes(stamp, "little"), now, sum(1 for _ in same))


async def work(job: Job) -> Figures:
    """Connect, do the job, leave."""
    figures = Figures(0, Histogram())
    driver = driver_of(job.system)
    await driver.open(job.url)
    if time.monotonic_ns() > job.begin_ns:
        raise TimeoutError("not connected before the measured time began: --warm-up is too short")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout((job.end_ns - time.monotonic_ns()) / 1e9):
            await _load(driver, job, figures)
    with contextlib.suppress(Exception):  # What was measured stands, however it leaves.
        await asyncio.wait_for(driver.close(), 2)
    return figures


async def _load(driver: Driver, job: Job, figures: Figures) -> None:
    if job.role == CONSUMER:
        await consume(driver, job, figures)
        return
    lanes = min(LANES, job.window)
    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(publish(driver, job, figures, job.window // lanes))


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
    print(json.dumps({"messages": figures.messages, "latency": figures.latency.to_pairs()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
