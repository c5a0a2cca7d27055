"""Batch reads, one class for each `ackMode`: what is taken, and what a failure means.

Owns the two modes. Spark plans a read on the driver (`partitions`) and runs `read` in tasks, maybe
twice, on pickled copies of the reader; it has no hook for "the action has succeeded", and its
Python workers run ahead of what Spark consumes. So no read acks: `taking` does, after the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

import fifo
from fifo.blocking import BlockingClient
from fifo.spark import columns, limits, options
from fifo.spark.errors import SourceError, telling
from fifo.spark.options import Settings
from fifo.spark.reservation import Follower, Keeper, Part, Reservation, fetched, split


class FifoReader(DataSourceReader):
    """The common base of the modes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings


def reader_for(settings: Settings) -> FifoReader:
    """By the option ackMode."""
    modes: dict[str | None, Callable[[Settings], FifoReader]] = {
        options.MANUAL: ManualReader,
        options.PEEK: PeekReader,
    }
    return modes[settings.ack_mode](settings)


class ManualReader(FifoReader):
    """`ackMode=manual`: what is read stays reserved, and every read gives it again, until
    `fifo.spark.ack`. Only a reservation that holds nothing takes anything.
    """

    def partitions(self) -> list[Part]:
        """Plan the held messages, in parts; without any, up to `maxMessages` new ones."""
        settings = self.settings
        with (
            telling(f"{settings.where()}, reservation {settings.reservation!r}"),
            fifo.blocking.connect(settings.url) as client,
        ):
            reservation = Reservation(client, settings)
            held = reservation.held(0, reservation.last)
            if not held:
                reservation.take(settings.max_messages or limits.HELD_MAX)
                held = reservation.held(0, reservation.last)
            parts = split(held, settings.partitions)
            return [Part(part, reservation.opened) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task; its locks are renewed while it reads."""
        if not isinstance(partition, Part):
            return  # Nothing is held: Spark plans one empty partition.
        settings = self.settings
        assert settings.reservation is not None
        with (
            telling(f"{settings.where()}, reservation {settings.reservation!r}"),
            fifo.blocking.connect(settings.url) as client,
        ):
            holder = Follower(client, settings.queue, settings.reservation, partition.opened)
            with Keeper(holder, settings.lock_s or limits.LOCK_S):
                yield from fetched(settings, partition, follow=True, remedy="read again")


class PeekReader(FifoReader):
    """`ackMode=peek`: looks at the front of the queue, and takes nothing."""

    def partitions(self) -> list[InputPartition]:
        """Plan one partition; a wrong url or queue is an error here, on the driver."""
        settings = self.settings
        with telling(settings.where()), fifo.blocking.connect(settings.url) as client:
            client.peek(settings.queue)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one `peek`; raises where it could not show all that was asked."""
        settings = self.settings
        with telling(settings.where()), fifo.blocking.connect(settings.url) as client:
            messages = self._peeked(client)
        if messages:
            yield columns.to_batch(messages, binary_keys=settings.binary_keys)

    def _peeked(self, client: BlockingClient) -> list[fifo.StoredMessage]:
        settings = self.settings
        before = client.queue(settings.queue).ready
        messages = client.peek(settings.queue, settings.max_messages or limits.GET_MESSAGES)
        shown, size = len(messages), sum(len(message.body) for message in messages)
        if shown < limits.GET_MESSAGES and size < limits.PEEK_UNCUT_BYTES:
            return messages
        # The broker may have ended the peek. What comes or goes meanwhile must not look like it.
        wanted = min(before, client.queue(settings.queue).ready)
        if settings.max_messages is not None:
            wanted = min(wanted, settings.max_messages)
        if shown < wanted:
            raise SourceError(
                f"{settings.where()}: a peek shows {shown} of {wanted} messages ({size} bytes);"
                f' .option("maxMessages", {shown}) reads only those, and ackMode=manual takes up to'
                f" {limits.HELD_MAX}"
            )
        return messages
