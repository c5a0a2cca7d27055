"""Writing: rows of a partition, published in order under numbers that a repeated task repeats.

Owns who the producer of a partition is, and how far it may run ahead of its confirms; `numbering`
has the numbers. Whether a number was stored before is the broker's business.
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
from fifo.blocking import BlockingClient, BlockingProducer, BlockingSent
from fifo.spark import columns, limits
from fifo.spark.bodies.typed import encoded
from fifo.spark.errors import SourceError, telling, told
from fifo.spark.numbering import Numbering, chunks
from fifo.spark.options import Settings
from fifo.spark.reporting import report

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Published(WriterCommitMessage):
    """The result of a task: its rows, and the number stored by an earlier attempt."""

    producer: str
    partition: int
    rows: int
    duplicates: int


class Sending:
    """Publishes the rows of one partition. Subclasses may watch what is confirmed."""

    def __init__(self, settings: Settings, producer: str, partition: int, batch: int = 0) -> None:
        """`batch`: of a stream, part of the numbers; a write of its own has one."""
        self.settings = settings
        self.partition = partition
        self._producer_name = producer
        self._batch = batch
        self._rows = 0
        self._duplicates = 0
        self._under_way: deque[tuple[int, list[bytes], BlockingSent]] = deque()

    def confirmed(self, bodies: Sequence[bytes]) -> None:
        """These rows, in order, are on the disks of a majority."""

    def sent(self, bodies: Sequence[bytes]) -> None:
        """These rows, in order, are handed to the client."""

    def under_way(self, sending: BlockingSent) -> None:
        """The call for the rows that were handed over last."""

    def run(self, batches: Iterator[pa.RecordBatch]) -> Published:
        """Publish all; returns when all is confirmed. Raises SourceError with the row."""
        with (
            telling(self._where()),
            fifo.blocking.connect(self.settings.url) as client,
        ):
            if self.settings.id_column is not None:
                return self._run_by_ids(client, batches)
            producer = client.open_producer(self._producer_name)
            numbering = Numbering(self._batch, producer.last(self.settings.queue))
            try:
                for rows, is_last in chunks(batches):
                    self._send(producer, numbering, rows, is_last=is_last)
                numbering.end()
                while self._under_way:
                    self._confirm()
            finally:
                for _, _, sending in self._under_way:
                    sending.give_up()
        return Published(self._producer_name, self.partition, self._rows, self._duplicates)

    def _run_by_ids(self, client: BlockingClient, batches: Iterator[pa.RecordBatch]) -> Published:
        """Publish all under the rows' own ids, whatever partition or attempt they come in: each of
        Spark's batches in one call, which keeps the client's window full."""
        for rows in batches:
            first = self._rows + 1
            with telling(f"{self._where()}, rows {first} to {first + rows.num_rows - 1}"):
                bodies, given = columns.to_messages(rows, first, self.settings.id_column)
                try:
                    confirms = client.publish_many(self.settings.queue, bodies, **given)
                except fifo.FifoError as error:
                    raise self._refused(error, first) from error
            self._rows += rows.num_rows
            self._duplicates += confirms.duplicates
            self.confirmed(bodies)
        return Published(self._producer_name, self.partition, self._rows, self._duplicates)

    def _refused(self, error: fifo.FifoError, first: int) -> SourceError:
        """The error with the row that it is about."""
        row = first + getattr(error, "index", 0)
        stored = f"{row - 1} rows before it are stored"
        return told(error, f"{self._where()}, row {row} was not stored ({stored})")

    def _where(self) -> str:
        return f"{self.settings.where()}, partition {self.partition}"

    def _send(
        self, producer: BlockingProducer, numbering: Numbering, rows: pa.Table, *, is_last: bool
    ) -> None:
        first = self._rows + 1
        self._rows += rows.num_rows
        with telling(f"{self._where()}, rows {first} to {self._rows}"):
            bodies, given = columns.to_messages(rows, first)
            numbers = numbering.next(rows.column("body"), is_last=is_last)
            while len(self._under_way) >= limits.SENDS_UNDER_WAY or self._is_done():
                self._confirm()
            self.sent(bodies)
            sending = producer.send_many(self.settings.queue, bodies, numbers=numbers, **given)
        self.under_way(sending)
        self._under_way.append((first, bodies, sending))

    def _is_done(self) -> bool:
        return bool(self._under_way) and self._under_way[0][2].done()

    def _confirm(self) -> None:
        """Wait for the oldest call; a refusal names the row."""
        first, bodies, sending = self._under_way.popleft()
        try:
            confirms = sending.result()
        except fifo.FifoError as error:
            raise self._refused(error, first) from error
        self._duplicates += confirms.duplicates
        self.confirmed(bodies)


class FifoWriter(DataSourceArrowWriter):
    """For `df.write`: a producer for each partition of this job, whatever the attempt."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Made on the driver and pickled to the tasks: each attempt has the same.
        self.job = settings.job or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition."""
        partition = _context().partitionId()
        sending = self.sending(f"spark/{self.job}/{partition}", partition)
        return sending.run(encoded(iterator, self.settings.body))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have ended well."""
        if self.settings.job:
            _check_behind(self.settings, messages)
        _report(self.settings, self.job, None, messages)

    def sending(self, producer: str, partition: int) -> Sending:
        """Make the publishing part; subclasses may give another."""
        return Sending(self.settings, producer, partition)


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
        producer = stream_producer(query, int(batch), partition)
        sending = Sending(self.settings, producer, partition, int(batch))
        return sending.run(encoded(iterator, self.settings.body))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a batch have ended well; one that had not begun before has no duplicates."""
        done = [one for one in messages if isinstance(one, Published)]
        if self.settings.id_column is None and any(one.duplicates for one in done):
            _check_behind(self.settings, messages, batchId)
        if done:
            _report(self.settings, done[0].producer.split("/")[1], batchId, messages)


def see_the_queue(settings: Settings) -> None:
    """Say now, on the driver, that the url or a queue is wrong; not in each task."""
    with telling(settings.where()), fifo.blocking.connect(settings.url) as client:
        spec = client.queue(settings.queue).spec
        if settings.report_queue is not None:
            client.queue(settings.report_queue)
    if settings.id_column is not None and not spec.get("dedup_window_ms"):
        raise SourceError(
            f"{settings.where()}: option idColumn needs a queue that remembers ids:"
            f" fifo queue update {settings.queue} --dedup-window 10m"
        )


def _check_behind(
    settings: Settings, messages: Sequence[WriterCommitMessage | None], batch: int = 0
) -> None:
    """Raise SourceError where the partition behind the last has stored rows.

    An earlier attempt had more partitions then; its rows came again in others.
    """
    producers = [one.producer for one in messages if isinstance(one, Published)]
    if not producers:
        return
    name = f"{producers[0].rpartition('/')[0]}/{len(messages)}"
    with (
        telling(f"{settings.where()}, {len(messages)} partitions"),
        fifo.blocking.connect(settings.url) as client,
    ):
        Numbering(batch, client.open_producer(name).last(settings.queue)).end()


def _report(
    settings: Settings,
    name: str,
    batch: int | None,
    messages: Sequence[WriterCommitMessage | None],
) -> None:
    done = [one for one in messages if isinstance(one, Published)]
    report(settings, name, batch, [one.rows for one in done], sum(one.duplicates for one in done))


def stream_producer(query: str, batch: int, partition: int) -> str:
    """Name the producer of a batch: another one behind each 2**BATCH_BITS batches."""
    return f"spark/{query}/{batch >> limits.BATCH_BITS}/{partition}"


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark runs write() in a task"
    return context
