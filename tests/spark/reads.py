"""Reads and writes as Spark runs them, without Spark: plan on the driver, pickle, run in a task."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader

from fifo.spark import options
from fifo.spark.options import Settings
from fifo.spark.reading import reader_for
from fifo.spark.streaming import FifoStreamReader
from fifo.spark.writing import Published, Sending


def settings(use: str, url: str, queue: str, given: dict[str, Any]) -> Settings:
    """Options as a user gives them: text."""
    texts = {name: str(value) for name, value in given.items()}
    return options.parse({"url": url, "queue": queue, **texts}, use)


def batch_reader(url: str, queue: str, **given: Any) -> DataSourceReader:
    """Make the reader of `spark.read`."""
    return reader_for(settings(options.BATCH_READ, url, queue, given))


def stream_reader(url: str, queue: str, **given: Any) -> FifoStreamReader:
    """Make the reader of `spark.readStream`."""
    return FifoStreamReader(settings(options.STREAM_READ, url, queue, given))


def planned(reader: Any, *offsets: Any) -> list[Iterator[pa.RecordBatch]]:
    """The tasks of a read, each an iterator that has not begun; on copies, as in workers."""
    copy = pickle.loads(pickle.dumps(reader))
    parts = pickle.loads(pickle.dumps(reader.partitions(*offsets)))
    return [iter(copy.read(part)) for part in parts]


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """All rows of a task."""
    return [row for batch in batches for row in batch.to_pylist()]


def bodies(tasks: Iterable[Iterable[pa.RecordBatch]]) -> list[bytes]:
    """The bodies of some tasks, in order."""
    return [row["body"] for task in tasks for row in rows(task)]


def send(url: str, queue: str, producer: str, batch: int, texts: Iterable[str]) -> Published:
    """Run one attempt of a task of a write."""
    wanted = settings(options.STREAM_WRITE, url, queue, {})
    batches = pa.table({"body": pa.array(list(texts), pa.string())}).to_batches()
    return Sending(wanted, producer, 0, batch).run(iter(batches))
