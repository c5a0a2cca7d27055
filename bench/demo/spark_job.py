"""The Spark side of the demo: one driver, a job that consumes and a job that publishes.

Owns how the work is laid out over partitions. Runs as a process of its own, so that whoever started
it can end it with its JVM and its Python workers at any moment. Tells how far it is through files:
the records, and `publishing` in the run's folder when it begins to publish.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench import loop
from bench.demo.consumer import consume_rows
from bench.demo.publisher import publish_rows
from bench.demo.records import DELIVERED
from bench.spark import JavaMissing, JobFailed, start_spark, task_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark import SparkContext

T = TypeVar("T")

CONSUMERS = 2
PUBLISHERS = 4
"""Partitions of the two jobs. The consumers hold their slots to the end, so there must be more."""

MASTER = "local[4]"
"""Slots, not cores: two consumers, and two publishers at a time."""

LOOK_S = 0.05
CONSUMERS_READY_S = 60.0
"""For the first Python workers to start and connect, on a machine that is busy starting a JVM."""


def ranges(count: int, parts: int) -> list[tuple[int, int]]:
    """Rows 1..count in consecutive ranges (first, last) of nearly the same length."""
    edges = [count * part // parts for part in range(parts + 1)]
    return [(first + 1, last) for first, last in itertools.pairwise(edges) if first < last]


def run_jobs(context: SparkContext, url: str, queue: str, count: int, folder: Path) -> int:
    """Publish `count` rows while Spark consumes too; returns the rows that were sent."""
    records, stop = folder / "records", folder / "stop"

    def consume(parts: Iterable[int]) -> Iterator[int]:
        for part in parts:
            yield loop.run(consume_rows(url, queue, records, f"spark-{part}", stop))

    def publish(parts: Iterable[tuple[int, int]]) -> Iterator[int]:
        for first, last in parts:
            yield loop.run(publish_rows(url, queue, first, last, records))

    failures: list[BaseException] = []
    consuming = threading.Thread(
        target=_keeping(failures, lambda: _sum(context, range(CONSUMERS), consume)), daemon=True
    )
    consuming.start()
    _wait_for_consumers(records, failures)
    (folder / "publishing").touch()
    sent = _sum(context, ranges(count, PUBLISHERS), publish)
    (folder / "published").write_text(str(sent))
    consuming.join()
    if failures:
        raise failures[0]
    return sent


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
    parser.add_argument("--count", type=int, required=True, help="rows to publish, from the first")
    parser.add_argument("--folder", type=Path, required=True, help="the run's folder")
    options = parser.parse_args()
    try:
        context = start_spark("fifo demo", MASTER, options.folder / "spark")
    except JavaMissing as error:
        print(f"no Java for Spark: {error}", file=sys.stderr)
        return 1
    try:
        run_jobs(context, options.url, options.queue, options.count, options.folder)
    except JobFailed as error:
        print(f"the Spark job failed: {error}", file=sys.stderr)
        return 1
    finally:
        context.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
