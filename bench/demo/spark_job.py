"""The Spark side of the demo: one driver, a job that consumes, a job that publishes through
`format("fifo")`, and a stream that reads the dead letters through it.

Owns how the work is laid out over partitions. Runs as a process of its own, so that its
parent can end it with its JVM and its Python workers at any moment. Reports its progress in files:
the records, and `publishing` in the run's folder when it begins to publish.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench import loop
from bench.demo.consumer import consume_rows
from bench.demo.records import DELIVERED
from bench.spark import JavaMissing, JobFailed, start_spark, task_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark import SparkContext

T = TypeVar("T")

CONSUMERS = 2
PUBLISHERS = 2
"""Partitions of the two jobs. Consumers and publishers hold their slots, so there must be more."""

MASTER = "local[5]"
"""Slots, not cores: two consumers, two publishers, and one for the stream of dead letters."""

LOOK_S = 0.05
CONSUMERS_READY_S = 60.0
"""For the first Python workers to start and connect, on a machine that is busy starting a JVM."""


def run_jobs(
    context: SparkContext, url: str, queue: str, letters: str, count: int, folder: Path
) -> None:
    """Publish `count` rows while Spark consumes too, until the file `stop` is there."""
    from pyspark.sql import SparkSession

    from bench.demo.letters import DeadLetters
    from bench.demo.source import FlightsSource, RecordingSource

    records, stop = folder / "records", folder / "stop"
    spark = SparkSession(context)
    for source in (FlightsSource, RecordingSource):
        spark.dataSource.register(source)

    with task_errors():
        dead = DeadLetters(spark, url, letters, folder)

    def consume(parts: Iterable[int]) -> Iterator[int]:
        for part in parts:
            yield loop.run(consume_rows(url, queue, records, f"spark-{part}", stop))

    failures: list[BaseException] = []
    consuming = threading.Thread(
        target=_keeping(failures, lambda: _sum(context, range(CONSUMERS), consume)), daemon=True
    )
    consuming.start()
    _wait_for_consumers(records, failures)
    (folder / "publishing").touch()
    flights = spark.read.format("flights").options(rows=count, partitions=PUBLISHERS).load()
    sink = flights.write.format("fifo").mode("append")
    with task_errors():
        sink.options(url=url, queue=queue, records=str(records)).save()
    consuming.join()
    if failures:
        raise failures[0]
    with task_errors():
        dead.end()


def _sum(
    context: SparkContext, parts: Iterable[T], work: Callable[[Iterable[T]], Iterator[int]]
) -> int:
    items = list(parts)
    with task_errors():
        return int(context.parallelize(items, len(items)).mapPartitions(work).sum())


def _keeping(failures: list[BaseException], work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    return run


def _wait_for_consumers(records: Path, failures: list[BaseException]) -> None:
    """Until each has opened its record, or one has failed: publishing would take all slots."""
    waiting = threading.Event()
    for _ in range(int(CONSUMERS_READY_S / LOOK_S)):
        if failures:
            raise failures[0]
        if len(list(records.glob(f"{DELIVERED}-spark-*.csv"))) == CONSUMERS:
            return
        waiting.wait(LOOK_S)
    raise TimeoutError(f"the Spark consumers did not start within {CONSUMERS_READY_S:.0f} s")


def main() -> int:
    """Run both jobs; 1 with one line on stderr where there is no Java."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo.spark_job")
    parser.add_argument("--url", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--dead-letters", required=True, help="the queue of the dead letters")
    parser.add_argument("--count", type=int, required=True, help="rows to publish, from the first")
    parser.add_argument("--folder", type=Path, required=True, help="the run's folder")
    options = parser.parse_args()
    try:
        context = start_spark("fifo demo", MASTER, options.folder / "spark")
    except JavaMissing as error:
        print(f"no Java for Spark: {error}", file=sys.stderr)
        return 1
    try:
        run_jobs(
            context,
            options.url,
            options.queue,
            options.dead_letters,
            options.count,
            options.folder,
        )
    except JobFailed as error:
        print(f"the Spark job failed: {error}", file=sys.stderr)
        return 1
    finally:
        context.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
