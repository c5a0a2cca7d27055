"""The Spark job: one barrier stage whose partitions are producers and consumers.

Owns how a workload is laid out over partitions, that all begin together, and how their files become
one history. The JVM and its Python workers are up before the measured time begins: the partitions
meet at the barrier first.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fifo
from bench import loop
from bench.check.form import FIELDS
from bench.check.numbering import write_numbered
from bench.check.tuning import EVENTS_PER_PARTITION, tune
from bench.load.bodies import PADDING, body_of
from bench.load.consumer import consume_crashing, run_consumer
from bench.load.partition import (
    CALL_TIMEOUT_S,
    CONSUMER,
    DONE,
    PRODUCER,
    Figures,
    Row,
    Run,
    recorder,
)
from bench.load.producer import produce
from bench.load.recorder import Recorder
from bench.load.workload import Workload
from bench.spark import task_errors

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

BEGIN_S = 0.5
"""From the barrier to the first message: every partition connects meanwhile."""

FILL = 1000
"""Messages per call when a queue is filled before a run."""


def run_partition(run: Run, partition: int) -> Row:
    """A partition: numbers below `producers` produce, the others consume."""
    producing = partition < run.workload.producers
    row = Row(PRODUCER if producing else CONSUMER, partition, socket.gethostname())
    if not producing:
        crashing = run.workload.failures.crash > 0
        return consume_crashing(run, row) if crashing else run_consumer(run, row)
    figures = Figures(run, row)
    try:
        with recorder(run, f"producer-{partition}") as record:
            loop.run(produce(run, figures, record))
    finally:
        if run.folder.exists():
            (run.folder / f"{DONE}{partition}").touch()
    return figures.finished()


def work(run: Run, partitions: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Run a Spark task: meet the others, then its partition."""
    from pyspark import BarrierTaskContext

    met = BarrierTaskContext.get().allGather(str(time.monotonic()))
    begun = replace(run, begin=max(map(float, met)) + BEGIN_S)
    for partition in partitions:
        yield asdict(run_partition(begun, partition))


def run_job(context: SparkContext, run: Run) -> list[Row]:
    """Run it; raises JobFailed. The queue must be there: `prepare`."""
    count = run.workload.producers + run.workload.consumers
    job = context.parallelize(range(count), count).barrier()
    with task_errors():
        rows = job.mapPartitions(lambda part: work(run, part)).collect()
    return [Row(**row) for row in rows]


async def prepare(run: Run) -> None:
    """Declare the queue, fill it if the workload wants that, and begin the history with it."""
    queue = run.workload.queue
    spec = fifo.QueueSpec(
        run.queue,
        lock=queue.lock,
        max_lock=queue.max_lock,
        max_deliveries=queue.max_deliveries,
        dead_letter=run.dead_letters if queue.dead_letter else None,
        nack_backoff=queue.nack_backoff,
        ordering=None if queue.ordering == "none" else queue.ordering,
    )
    told = {
        "lock": queue.lock,
        "max_deliveries": queue.max_deliveries,
        "dead_letter": spec.dead_letter,
        "ordering": spec.ordering,
    }
    with recorder(run, "declare") as record:
        async with fifo.connect(run.url, timeout=CALL_TIMEOUT_S) as client:
            if spec.dead_letter:
                await client.declare(fifo.QueueSpec(spec.dead_letter))
                record.add("ok", "declare", "driver", queue=spec.dead_letter, spec="{}")
            await client.declare(spec)
            given = {name: value for name, value in told.items() if value is not None}
            record.add("ok", "declare", "driver", queue=run.queue, spec=json.dumps(given))
            await _fill(run, client, record)


async def _fill(run: Run, client: fifo.Client, record: Recorder) -> None:
    for first in range(0, run.workload.depth, FILL):
        names = [f"fill-{n}" for n in range(first, min(first + FILL, run.workload.depth))]
        values: list[dict[str, Any]] = [{"queue": run.queue, "body": name} for name in names]
        for value in values:
            record.add("invoke", "publish", "fill", **value)
        data = PADDING[: run.workload.body.bytes]
        bodies = [body_of(name, time.monotonic_ns(), data) for name in names]
        for value, confirm in zip(
            values, await client.publish_many(run.queue, bodies), strict=True
        ):
            record.add("ok", "publish", "fill", **value, id=confirm.id)


async def left(run: Run) -> dict[str, int]:
    """Messages left in the queues: the last word of a history."""
    names = [run.queue, *([run.dead_letters] if run.workload.queue.dead_letter else [])]
    async with fifo.connect(run.url, timeout=CALL_TIMEOUT_S) as client:
        found = {name: int((await client.queue(name)).messages) for name in names}
    with recorder(run, "left") as record:
        record.add("ok", "left", "driver", queues=json.dumps(found))
    return found


def number(spark: SparkSession, parts: Path, folder: Path) -> int:
    """Make one history of what the partitions wrote, and give how many events it has."""
    from pyarrow import parquet

    count = sum(parquet.read_metadata(path).num_rows for path in parts.iterdir())
    tune(spark, count)
    events = spark.read.parquet(str(parts))
    assert set(FIELDS) - {"index"} < set(events.columns), "recorders write this form"
    pieces = max(1, count // EVENTS_PER_PARTITION)
    return write_numbered(events, folder, pieces, order="place")


def new_run(url: str, queue: str, workload: Workload, folder: Path, *, history: bool) -> Run:
    """A run in a folder of its own."""
    folder.mkdir(parents=True)
    os.chmod(folder, 0o700)
    return Run(url, queue, workload, folder, folder / "events" if history else None, 0.0)
