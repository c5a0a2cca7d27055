"""The Spark job: one barrier stage whose partitions are producers and consumers.

Owns how a workload is laid out over partitions, and that all begin together, on whatever hosts they
are. The JVM, its Python workers and the processes of consumers are up before the measured time
begins: the partitions meet at the barrier first.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import fifo
from bench import loop
from bench.load.bodies import PADDING, body_of
from bench.load.consumer import Incarnation, consume_crashing, run_consumer
from bench.load.link import Link
from bench.load.partition import (
    CALL_TIMEOUT_S,
    CONSUMER,
    PRODUCER,
    Figures,
    Row,
    Run,
    recorder,
)
from bench.load.producer import produce
from bench.load.recorder import Recorder
from bench.spark import task_errors

if TYPE_CHECKING:
    from pyspark import SparkContext

BEGIN_S = 0.5
"""From the barrier to the first message: every partition connects meanwhile."""

FILL = 1000
"""Messages per call when a queue is filled before a run."""


def run_partition(run: Run, row: Row, link: Link, crashing: Incarnation | None) -> Row:
    """A partition, until it has done its part."""
    if crashing is not None:
        return consume_crashing(run, row, crashing)
    if row.role == CONSUMER:
        return run_consumer(run, row, link)
    figures = Figures(run, row)
    try:
        with recorder(run, link, f"producer-{row.partition}") as record:
            loop.run(produce(run, figures, record, link))
    finally:
        link.tell(ended=row.partition)
    return figures.finished()


def work(run: Run, partitions: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Run a Spark task: meet the others, then its partition. Numbers below `producers` produce, the
    others consume."""
    from pyspark import BarrierTaskContext

    assert run.hub is not None, "a job has a driver"
    for partition in partitions:
        with contextlib.ExitStack() as stack:
            producing = partition < run.workload.producers
            row = Row(PRODUCER if producing else CONSUMER, partition, socket.gethostname())
            crashing = None
            if not producing and run.workload.failures.crash > 0:
                crashing = Incarnation(partition, run.hub)
                stack.callback(crashing.end)
            link = stack.enter_context(Link(run.hub))
            mine = replace(run, offset_ns=link.offset_ns, error_ns=link.error_ns)
            met = BarrierTaskContext.get().allGather(str(mine.now()))
            begun = replace(mine, begin=max(map(float, met)) + BEGIN_S)
            yield asdict(run_partition(begun, row, link, crashing))


def run_job(context: SparkContext, run: Run) -> list[Row]:
    """Run it; raises JobFailed. The queue must be there: `prepare`."""
    count = run.workload.producers + run.workload.consumers
    job = context.parallelize(range(count), count).barrier()
    with task_errors():
        rows = job.mapPartitions(lambda part: work(run, part)).collect()
    return [Row(**row) for row in rows]


def driver_of(context: SparkContext) -> tuple[str, str]:
    """The driver's name for executors, and the address that it listens on."""
    conf = context.getConf()
    host = conf.get("spark.driver.host", None) or socket.gethostname()
    return host, conf.get("spark.driver.bindAddress", None) or host


async def prepare(run: Run, record: Recorder) -> None:
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
        bodies = [body_of(name, run.now_ns(), data) for name in names]
        for value, confirm in zip(
            values, await client.publish_many(run.queue, bodies), strict=True
        ):
            record.add("ok", "publish", "fill", **value, id=confirm.id)


async def left(run: Run, record: Recorder) -> dict[str, int]:
    """Messages left in the queues: the last word of a history."""
    names = [run.queue, *([run.dead_letters] if run.workload.queue.dead_letter else [])]
    async with fifo.connect(run.url, timeout=CALL_TIMEOUT_S) as client:
        found = {name: int((await client.queue(name)).messages) for name in names}
    record.add("ok", "left", "driver", queues=json.dumps(found))
    return found
