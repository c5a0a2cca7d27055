"""Writing: rows of a partition, published in order under numbers that a repeated task repeats.

Owns who the producer of a partition is, how its rows are numbered, and how far it may run ahead of
its confirms. Whether a number was stored before is the broker's business.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import fifo
from fifo.blocking import BlockingProducer, BlockingSent
from fifo.spark import columns, limits
from fifo.spark.errors import SourceError, telling, told
from fifo.spark.options import Settings

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Published(WriterCommitMessage):
    """The result of a task: its rows, and the number stored by an earlier attempt."""

    partition: int
    rows: int
    duplicates: int


class Sending:
    """Publishes the rows of one partition. Subclasses may watch what is confirmed."""

    def __init__(self, settings: Settings, producer: str, partition: int, base: int) -> None:
        """Row n, from 1, gets the number base + n."""
        self.settings = settings
        self.partition = partition
        self._producer_name = producer
        self._base = base
        self._rows = 0
        self._duplicates = 0
        self._under_way: deque[tuple[int, list[bytes], BlockingSent]] = deque()

    def confirmed(self, bodies: Sequence[bytes]) -> None:
        """These rows, in order, are on the disks of a majority."""

    def sent(self, bodies: Sequence[bytes]) -> None:
        """These rows, in order, are handed to the client."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Published:
        """Publish all; returns when all is confirmed. Raises SourceError with the row."""
        with (
            telling(self._where()),
            fifo.blocking.connect(self.settings.url) as client,
        ):
            producer = client.open_producer(self._producer_name)
            try:
                for batch in batches:
                    for start in range(0, batch.num_rows, limits.SEND_MESSAGES):
                        self._send(producer, batch.slice(start, limits.SEND_MESSAGES))
                while self._under_way:
                    self._confirm()
            finally:
                for _, _, sending in self._under_way:
                    sending.give_up()
        return Published(self.partition, self._rows, self._duplicates)

    def _where(self) -> str:
        return f"{self.settings.where()}, partition {self.partition}"

    def _send(self, producer: BlockingProducer, rows: pa.RecordBatch) -> None:
        first = self._rows + 1
        self._rows += rows.num_rows
        with telling(f"{self._where()}, rows {first} to {self._rows}"):
            bodies, given = columns.to_messages(rows, first)
            numbers = range(self._base + first, self._base + self._rows + 1)
            while len(self._under_way) >= limits.SENDS_UNDER_WAY or self._is_done():
                self._confirm()
            self.sent(bodies)
            sending = producer.send_many(self.settings.queue, bodies, numbers=numbers, **given)
        self._under_way.append((first, bodies, sending))

    def _is_done(self) -> bool:
        return bool(self._under_way) and self._under_way[0][2].done()

    def _confirm(self) -> None:
        """Wait for the oldest call; a refusal names the row."""
        first, bodies, sending = self._under_way.popleft()
        try:
            confirms = sending.result()
        except fifo.FifoError as error:
            row = first + getattr(error, "index", 0)
            stored = f"{row - 1} rows before it are stored"
            raise told(error, f"{self._where()}, row {row} was not stored ({stored})") from error
        self._duplicates += sum(confirm.duplicate for confirm in confirms)
        self.confirmed(bodies)


class FifoWriter(DataSourceArrowWriter):
    """For `df.write`: a producer for each partition of this job, whatever the attempt."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Made on the driver and pickled to the tasks: each attempt has the same.
        self.job = settings.job or str(uuid.uuid4())

    def see_the_queue(self) -> None:
        """Say now, on the driver, that the url or the queue is wrong; not in each task."""
        with (
            telling(self.settings.where()),
            fifo.blocking.connect(self.settings.url) as client,
        ):
            client.queue(self.settings.queue)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition."""
        partition = _context().partitionId()
        return self.sending(f"spark/{self.job}/{partition}", partition, 0).run(iterator)

    def sending(self, producer: str, partition: int, base: int) -> Sending:
        """Make the publishing part; subclasses may give another."""
        return Sending(self.settings, producer, partition, base)


class FifoStreamWriter(DataSourceStreamArrowWriter):
    """For `df.writeStream`: a producer per partition of the query, numbers by batch and row."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of one batch."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise SourceError(
                "this Spark version gives a task neither the query nor the batch: use 4.2 or newer"
            )
        partition = context.partitionId()
        base = int(batch) << limits.BATCH_BITS
        return Sending(self.settings, f"spark/{query}/{partition}", partition, base).run(iterator)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark runs write() in a task"
    return context
