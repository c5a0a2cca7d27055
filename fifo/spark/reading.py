"""Batch reads, one class for each `ackMode`: what is taken, when it is acked, what a failure means.

Owns the three modes. Spark plans a read on the driver (`partitions`) and runs `read` in tasks,
maybe twice, on pickled copies of the reader; it has no hook for "the action has succeeded".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

import fifo
from fifo.blocking import BlockingClient, BlockingMessage
from fifo.client import Status
from fifo.spark import columns, limits, options
from fifo.spark.errors import telling
from fifo.spark.options import Settings
from fifo.spark.reservation import Follower, Keeper, Part, Reservation, fetched, split

_log = logging.getLogger("fifo.spark")


class FifoReader(DataSourceReader):
    """The common base of the modes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def _see_the_queue(self) -> None:
        """Say now, on the driver, that the url or the queue is wrong; not in each task."""
        with (
            telling(self.settings.where()),
            fifo.blocking.connect(self.settings.url) as client,
        ):
            client.peek(self.settings.queue)


def reader_for(settings: Settings) -> FifoReader:
    """By the option ackMode."""
    modes: dict[str, Callable[[Settings], FifoReader]] = {
        options.READ: TakingReader,
        options.MANUAL: ManualReader,
        options.PEEK: PeekReader,
    }
    return modes[settings.ack_mode](settings)


class Share(InputPartition):
    """The number of messages that a task takes; None: until the queue is drained."""

    def __init__(self, messages: int | None) -> None:
        super().__init__(messages)
        self.messages = messages


class TakingReader(FifoReader):
    """`ackMode=read`: each task takes messages, and acks them when Spark has read its last row.

    A task that fails before gives back what it took.
    """

    def partitions(self) -> list[Share]:
        """Equal shares of `maxMessages`."""
        self._see_the_queue()
        most, parts = self.settings.max_messages, self.settings.partitions
        if most is None:
            return [Share(None) for _ in range(parts)]
        edges = [most * part // parts for part in range(parts + 1)]
        shares = [edges[part + 1] - edges[part] for part in range(parts)]
        return [Share(share) for share in shares if share]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, Share)
        with telling(self.settings.where()):
            takers: list[_Taker] = []
            try:
                yield from self._taken(partition, takers)
                for taker in takers:
                    taker.ack()
            finally:
                for taker in takers:
                    taker.client.close()

    def _taken(self, share: Share, takers: list[_Taker]) -> Iterator[pa.RecordBatch]:
        left = share.messages
        while left is None or left > 0:
            if not takers or takers[-1].full:
                takers.append(_Taker(fifo.blocking.connect(self.settings.url), self.settings))
            messages = takers[-1].take(left)
            if not messages:
                return
            left = None if left is None else left - len(messages)
            yield columns.to_batch(messages, binary_keys=self.settings.binary_keys)


class _Taker:
    """A session of a task: the broker bounds the messages of a queue that one session holds."""

    def __init__(self, client: BlockingClient, settings: Settings) -> None:
        self.client = client
        self._settings = settings
        self._taken: list[BlockingMessage] = []

    @property
    def full(self) -> bool:
        """Whether another session is needed."""
        return len(self._taken) >= limits.HELD_MAX

    def take(self, most: int | None) -> list[BlockingMessage]:
        """Up to a step of messages, renewed until acked; none where the queue is drained."""
        room = limits.HELD_MAX - len(self._taken)
        wanted = min(limits.GET_MESSAGES, room, limits.GET_MESSAGES if most is None else most)
        found = self.client.get(
            self._settings.queue, wanted, lock=self._settings.lock_s, auto_renew=True
        )
        self._taken += found
        return found

    def ack(self) -> None:
        """Ack all of it, with receipts. Rows that have left cannot be taken back: a lost lock is
        logged, and the message is redelivered.
        """
        results = self.client.settle_many(self._taken)
        lost = sum(result.status is not Status.OK for result in results)
        if lost:
            _log.warning(
                "%d of %d messages of %r were read, but their locks had expired before their ack:"
                " they are redelivered",
                lost,
                len(results),
                self._settings.queue,
            )


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
        """Plan one partition."""
        self._see_the_queue()
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one `peek`."""
        settings = self.settings
        with telling(settings.where()), fifo.blocking.connect(settings.url) as client:
            messages = client.peek(settings.queue, settings.max_messages or limits.GET_MESSAGES)
        if messages:
            yield columns.to_batch(messages, binary_keys=settings.binary_keys)
