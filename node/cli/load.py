"""A worker process of ``fifo bench``: publishers or consumers on real connections.

Owns the measured loops. Speaks JSON lines with `node.cli.bench`: settings on stdin, ``ready``, a
start time on stdin, progress, and one result. Times are of the monotonic clock, which all processes
of a machine share. Internal: run as ``python -m node.cli.load``.
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
from typing import TYPE_CHECKING, Any

import fifo
from fifo.histogram import Histogram
from fifo.loop import new_loop
from node.cli.errors import one_line
from node.cli.limits import BENCH_BATCHES, BENCH_PACE_STEP_S, BENCH_REPORT_S, CALL_TIMEOUT_S
from node.cli.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from typing import TypeAlias

    Say: TypeAlias = Callable[[dict[str, Any]], None]

_STAMP_BYTES = 8


@dataclass(frozen=True, slots=True)
class Job:
    """Settings of one worker, sent by `node.cli.bench`."""

    url: str
    queue: str
    role: str
    clients: int
    size: int
    window: int
    prefetch: int | str | None
    """None: the client's default."""
    rate: int
    """Messages a second of a paced load, all clients together; 0: as many as the window allows."""
    parent: int


@dataclass(frozen=True, slots=True)
class Times:
    """Nanoseconds of the monotonic clock: counts count from ``begin`` to ``end``."""

    begin: int
    end: int
    drained: int

    def measures(self, now: int) -> bool:
        """Whether an event at this time is measured."""
        return self.begin <= now < self.end


class Counts:
    """Counters of a worker: the total, and the measured part with its latencies."""

    def __init__(self) -> None:
        self.total = 0
        self.measured = 0
        self.latency = Histogram()


async def publish_load(client: fifo.Client, job: Job, times: Times, counts: Counts) -> None:
    """Publish until the end: at the pace of the job, or with a window of messages in flight, in a
    few batches."""
    if job.rate:
        await _publish_paced(client, job, times, counts)
        return
    if job.window == 1:
        await _publish_singly(client, job, times, counts)
        return
    lanes = min(BENCH_BATCHES, job.window)
    sizes = [job.window // lanes + (1 if i < job.window % lanes else 0) for i in range(lanes)]
    await _all(_publish_lane(client, job, times, counts, count) for count in sizes)


async def _publish_lane(
    client: fifo.Client, job: Job, times: Times, counts: Counts, count: int
) -> None:
    padding = os.urandom(job.size - _STAMP_BYTES)
    now = time.monotonic_ns()
    while now < times.end:
        sent = now
        body = sent.to_bytes(_STAMP_BYTES, "little") + padding
        await client.publish_many(job.queue, [body] * count)
        now = time.monotonic_ns()
        counts.total += count
        if times.measures(now):
            counts.measured += count
            counts.latency.record(now - sent, count)


async def _publish_singly(client: fifo.Client, job: Job, times: Times, counts: Counts) -> None:
    padding = os.urandom(job.size - _STAMP_BYTES)
    now = time.monotonic_ns()
    while now < times.end:
        sent = now
        await client.publish(job.queue, sent.to_bytes(_STAMP_BYTES, "little") + padding)
        now = time.monotonic_ns()
        counts.total += 1
        if times.measures(now):
            counts.measured += 1
            counts.latency.record(now - sent)


async def _publish_paced(client: fifo.Client, job: Job, times: Times, counts: Counts) -> None:
    """Publish the client's part of the pace, each message on its own; what is late goes at once."""
    padding = os.urandom(job.size - _STAMP_BYTES)

    async def publish() -> None:
        sent = time.monotonic_ns()
        await client.publish(job.queue, sent.to_bytes(_STAMP_BYTES, "little") + padding)
        now = time.monotonic_ns()
        counts.total += 1
        if times.measures(now):
            counts.measured += 1
            counts.latency.record(now - sent)

    per_s = job.rate / job.clients
    begun, sent = time.monotonic(), 0
    async with asyncio.TaskGroup() as group:
        while time.monotonic_ns() < times.end:
            due = int((time.monotonic() - begun) * per_s) - sent
            for _ in range(due):
                group.create_task(publish())
            sent += due
            next_s = begun + (sent + 1) / per_s - time.monotonic()
            await asyncio.sleep(max(BENCH_PACE_STEP_S, next_s))


async def consume_load(client: fifo.Client, job: Job, times: Times, counts: Counts) -> None:
    """Consume and ack until the queue is drained or the time is over."""
    taking = asyncio.ensure_future(_take(client, job, times, counts))
    try:
        await _until(times.begin, taking)
        before = client.metrics.acked
        await _until(times.end, taking)
        # Only acks with a receipt count, not those merely sent.
        counts.measured += client.metrics.acked - before
        seen = -1
        while seen != counts.total and time.monotonic_ns() < times.drained and not taking.done():
            seen = counts.total
            await asyncio.wait((taking,), timeout=BENCH_REPORT_S)
    finally:
        taking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await taking


async def _take(client: fifo.Client, job: Job, times: Times, counts: Counts) -> None:
    chosen: dict[str, Any] = {} if job.prefetch is None else {"prefetch": job.prefetch}
    async with client.consume(job.queue, **chosen) as messages:
        async for batch in messages.batches():
            now = time.monotonic_ns()
            counts.total += len(batch)
            if times.measures(now):
                # Messages of one publish share their stamp, and mostly arrive side by side.
                stamps = (message.body[:_STAMP_BYTES] for message in batch)
                for stamp, same in itertools.groupby(stamps):
                    sent = int.from_bytes(stamp, "little")
                    counts.latency.record(now - sent, sum(1 for _ in same))
            messages.ack_many(batch)


async def _until(moment: int, task: asyncio.Task[None]) -> None:
    """Wait until a time of the monotonic clock, or the early end of a task."""
    await asyncio.wait((task,), timeout=max(moment - time.monotonic_ns(), 0) / 1e9)


async def work(job: Job, say: Say, start: Callable[[], Awaitable[Times]]) -> None:
    """Connect the clients, report ready, wait for the start, run the job, report the result."""
    counts = Counts()
    load = publish_load if job.role == "publish" else consume_load
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(fifo.connect(job.url, timeout=CALL_TIMEOUT_S))
            for _ in range(job.clients)
        ]
        say({"ready": True})
        times = await start()
        reporter = asyncio.ensure_future(_report(counts, say))
        try:
            await _all(load(client, job, times, counts) for client in clients)
        finally:
            reporter.cancel()
    # Closing the clients waited for the last receipts.
    metrics = [client.metrics for client in clients]
    publishes = job.role == "publish"
    result = {
        "total": sum(one.confirmed if publishes else one.acked for one in metrics),
        "measured": counts.measured,
        "latency": counts.latency.to_pairs(),
    }
    say({"result": result})


async def _all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all; the first failure cancels the others."""
    async with asyncio.TaskGroup() as group:
        for coroutine in coroutines:
            group.create_task(coroutine)


async def _report(counts: Counts, say: Say) -> None:
    while True:
        await asyncio.sleep(BENCH_REPORT_S)
        say({"total": counts.total})


def main() -> int:
    """Read the job, run it and report its result; returns the exit code."""
    job = Job(**json.loads(sys.stdin.readline()))
    die_with_parent(job.parent)

    def say(line: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    async def start() -> Times:
        return Times(**json.loads(await asyncio.to_thread(sys.stdin.readline)))

    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(work(job, say, start))
    except BaseExceptionGroup as group:
        say({"error": one_line(_first(group))})
        return 1
    except (fifo.FifoError, OSError) as error:
        say({"error": one_line(error)})
        return 1
    return 0


def _first(error: BaseException) -> BaseException:
    """The first leaf of a group: the one that cancelled the others."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(main())
