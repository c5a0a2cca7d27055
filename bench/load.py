"""A load job on Spark: `python -m bench.load --url ... --queue ...`, or the same by spark-submit.

Owns the layout of the job: one barrier stage in which each partition is a producer or a consumer
with a connection of its own, so that all start together; and the figures that come back, one row
with a histogram per partition, never one per message. Latencies end to end compare the clocks of
two partitions: on several machines they are only as good as these agree.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import fifo
from bench import loop
from bench.hardware import machine
from bench.interrupts import EXIT_CODE
from bench.processes import Household
from bench.spark import JavaMissing, JobFailed, start_spark, task_errors
from node.cli.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark import SparkContext

PRODUCER = "producer"
CONSUMER = "consumer"

STAMP_BYTES = 8
"""A body begins with the time at which it was handed to the client."""

CHUNKS_PER_WINDOW = 4
"""A producer's window travels in so many calls: some are confirmed while others are on their
way."""

CALL_TIMEOUT_S = 60.0
"""For one publish, a change of leader included."""

FIRST_MESSAGE_S = 60.0
"""How long a consumer waits for its first message."""

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which then decides about master and settings."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to do; pickled to the workers."""

    url: str
    queue: str
    producers: int
    consumers: int
    messages: int
    size: int
    window: int
    prefetch: int
    idle_s: float

    def share(self, producer: int) -> int:
        """How many messages this producer sends; all of them together send `messages`."""
        edge = self.messages * producer // self.producers
        return self.messages * (producer + 1) // self.producers - edge


@dataclass(slots=True)
class Row:
    """What one partition did. Times are wall-clock nanoseconds, zero where there was nothing."""

    role: str
    partition: int
    host: str
    messages: int = 0
    redelivered: int = 0
    begin_ns: int = 0
    end_ns: int = 0
    latency: Sequence[tuple[int, int]] = ()


async def produce(load: Load, row: Row, messages: int) -> None:
    """Publish `messages` bodies in a window; the latency is from call to confirm, per message."""
    histogram = Histogram()
    padding = os.urandom(load.size - STAMP_BYTES)
    chunk = max(1, load.window // CHUNKS_PER_WINDOW)
    places = asyncio.Semaphore(max(1, load.window // chunk))
    row.begin_ns = time.time_ns()

    async def publish(client: fifo.Client, count: int) -> None:
        sent_ns = time.time_ns()
        body = sent_ns.to_bytes(STAMP_BYTES, "little") + padding
        await client.publish_many(load.queue, [body] * count, timeout=CALL_TIMEOUT_S)
        row.end_ns = time.time_ns()
        row.messages += count
        histogram.record(row.end_ns - sent_ns, count)
        places.release()

    async with fifo.connect(load.url) as client, asyncio.TaskGroup() as calls:
        for first in range(0, messages, chunk):
            await places.acquire()
            calls.create_task(publish(client, min(chunk, messages - first)))
    row.latency = histogram.to_pairs()


async def consume(load: Load, row: Row) -> None:
    """Take and ack until nothing has come for `idle_s`; the latency is from stamp to arrival."""
    histogram = Histogram()
    async with (
        fifo.connect(load.url) as client,
        client.consume(load.queue, prefetch=load.prefetch) as messages,
    ):
        patience = asyncio.create_task(_cancel_when_idle(messages, row, load.idle_s))
        async for message in messages:
            row.end_ns = time.time_ns()
            row.begin_ns = row.begin_ns or row.end_ns
            row.messages += 1
            row.redelivered += message.attempt > 1
            stamp = int.from_bytes(message.body[:STAMP_BYTES], "little")
            histogram.record(row.end_ns - stamp)
            await message.ack()
        patience.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await patience
    row.latency = histogram.to_pairs()


async def _cancel_when_idle(messages: fifo.Consumer[fifo.Message], row: Row, idle_s: float) -> None:
    seen, limit_s = 0, FIRST_MESSAGE_S
    moved = time.monotonic()
    while time.monotonic() - moved < limit_s:
        await asyncio.sleep(idle_s / 10)
        if row.messages != seen:
            seen, limit_s, moved = row.messages, idle_s, time.monotonic()
    await messages.cancel()


def work(load: Load, partitions: Iterable[int]) -> Iterator[dict[str, Any]]:
    """One partition: numbers below `producers` produce, the others consume. Runs on a worker."""
    import socket

    from pyspark import BarrierTaskContext

    BarrierTaskContext.get().barrier()
    for partition in partitions:
        producing = partition < load.producers
        row = Row(PRODUCER if producing else CONSUMER, partition, socket.gethostname())
        task = produce(load, row, load.share(partition)) if producing else consume(load, row)
        loop.run(task)
        yield asdict(row)


def run_load(context: SparkContext, load: Load) -> dict[str, Any]:
    """Run the job, and give the report as plain data; the queue must be there."""
    partitions = load.producers + load.consumers
    job = context.parallelize(range(partitions), partitions).barrier()
    with task_errors():
        rows = job.mapPartitions(lambda part: work(load, part)).collect()
    return report_of(load, [Row(**row) for row in rows])


async def _declare(load: Load) -> None:
    async with fifo.connect(load.url) as client:
        with contextlib.suppress(fifo.QueueExists):  # With another spec: it is used as it is.
            await client.declare(fifo.QueueSpec(load.queue))


def report_of(load: Load, rows: Sequence[Row]) -> dict[str, Any]:
    """The contract's names for rates and latencies, and a line per partition."""
    producers = [row for row in rows if row.role == PRODUCER]
    consumers = [row for row in rows if row.role == CONSUMER]
    return {
        "published_per_second": _rate(producers),
        "acked_per_second": _rate(consumers),
        "confirm_ms": _latency(producers),
        "end_to_end_ms": _latency(consumers),
        "published": sum(row.messages for row in producers),
        "acked": sum(row.messages for row in consumers),
        "redelivered": sum(row.redelivered for row in consumers),
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
        "settings": {key: value for key, value in asdict(load).items() if key != "url"},
        "machine": machine(),
    }


def _rate(rows: Sequence[Row]) -> float:
    """From the first begin to the last end, over all that had something to do."""
    busy = [row for row in rows if row.messages]
    if not busy:
        return 0.0
    seconds = (max(row.end_ns for row in busy) - min(row.begin_ns for row in busy)) / 1e9
    return round(sum(row.messages for row in busy) / seconds, 1) if seconds > 0 else 0.0


def _latency(rows: Sequence[Row]) -> dict[str, float | None]:
    total = Histogram()
    for row in rows:
        total.merge(Histogram.from_pairs(list(row.latency)))
    found = {name: total.percentile_ms(percent) for name, percent in PERCENTS}
    return {name: None if value is None else round(value, 2) for name, value in found.items()}


PERCENTS = (("p50", 50.0), ("p95", 95.0), ("p99", 99.0))


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
    console.print(f"redelivered: {report['redelivered']:,}")


def _add(
    table: Table, name: str, messages: int, rate: float, latency: dict[str, float | None]
) -> None:
    cells = ("" if value is None else f"{value:,.2f}" for value in latency.values())
    table.add_row(name, f"{messages:,}", f"{rate:,.0f}", *cells)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options; exits with code 2 where they make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.load",
        description="Publish and consume through a queue from Spark partitions.",
        epilog="Example: python -m bench.load --url fifo://127.0.0.1:7101 --queue load"
        " --producers 4 --consumers 4 --messages 400000 --size 1024",
    )
    parser.add_argument("--url", default=os.environ.get("FIFO_URL"), help="else $FIFO_URL")
    parser.add_argument("--queue", required=True, help="is declared if it does not exist")
    parser.add_argument("--producers", type=int, default=4, help="partitions that publish")
    parser.add_argument("--consumers", type=int, default=4, help="partitions that consume")
    parser.add_argument("--messages", type=int, default=100_000, help="of all producers together")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body, 8 at least")
    parser.add_argument("--window", type=int, default=1000, help="unconfirmed, per producer")
    parser.add_argument("--prefetch", type=int, default=1000, help="per consumer")
    parser.add_argument("--idle", type=float, default=3.0, help="seconds without a message end it")
    parser.add_argument(
        "--master", help="Spark's; a slot per partition on this machine unless told"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if not options.url:
        parser.error("--url or $FIFO_URL is needed")
    if options.size < STAMP_BYTES:
        parser.error(f"--size must be {STAMP_BYTES} at least: a body begins with a time stamp")
    if min(options.producers, options.consumers, options.messages) < 0:
        parser.error("--producers, --consumers and --messages cannot be negative")
    if options.producers + options.consumers == 0:
        parser.error("nothing to do with 0 producers and 0 consumers")
    if min(options.window, options.prefetch) < 1 or options.idle <= 0:
        parser.error("--window, --prefetch and --idle must be above zero")
    return options


def main() -> int:
    """Run the job and print its report; 1 and one line on stderr where it failed."""
    options = parse()
    load = Load(
        url=options.url,
        queue=options.queue,
        producers=options.producers,
        consumers=options.consumers,
        messages=options.messages if options.producers else 0,
        size=options.size,
        window=options.window,
        prefetch=options.prefetch,
        idle_s=options.idle,
    )
    try:
        asyncio.run(_declare(load))  # A cluster that cannot be reached is said before a JVM starts.
        report = _submitted(load) if SUBMITTED in os.environ else _here(load, options.master)
    except (JavaMissing, JobFailed, fifo.FifoError, OSError) as error:
        print(f"the load job failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_CODE
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print_report(report, Console(highlight=False))
    complete = not load.producers or report["published"] == load.messages
    return 0 if complete else 1


def _submitted(load: Load) -> dict[str, Any]:
    from pyspark import SparkContext

    return run_load(SparkContext.getOrCreate(), load)


def _here(load: Load, master: str | None) -> dict[str, Any]:
    """On a Spark of our own, which leaves nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="fifo-load-"))
    household = Household(folder)
    slots = load.producers + load.consumers
    try:
        context = start_spark("fifo load", master or f"local[{slots}]", folder)
        try:
            return run_load(context, load)
        finally:
            context.stop()
    finally:
        household.end(hurry=lambda: True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
