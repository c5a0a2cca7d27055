"""Batch reads, one class for each `ackMode`: what is taken, and what a failure means.

Owns the choice, and the mode that takes. Spark plans a read on the driver (`partitions`) and runs
`read` in tasks, maybe twice, on pickled copies of the reader; it has no hook for "the action has
succeeded", and its Python workers run ahead of what Spark consumes. So no read acks: `taking` does,
after the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

import fifo
from fifo.spark import limits, options
from fifo.spark.bodies.typed import TypedReader
from fifo.spark.errors import telling
from fifo.spark.options import Settings
from fifo.spark.reservation import Followers, Keeper, Part, Reservation, fetched, split
from fifo.spark.scanning import ScanReader


def reader_for(settings: Settings) -> DataSourceReader:
    """By the option ackMode."""
    modes: dict[str | None, Callable[[Settings], DataSourceReader]] = {
        None: ScanReader,
        options.NOTHING: ScanReader,
        options.MANUAL: ManualReader,
    }
    reader = modes[settings.ack_mode](settings)
    if settings.body is None:
        return reader
    return TypedReader(reader, settings.body, settings.where())


class ManualReader(DataSourceReader):
    """`ackMode=manual`: what is read stays reserved, and every read gives it again, until
    `fifo.spark.ack`. Only a reservation that holds nothing takes anything.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def partitions(self) -> list[Part]:
        """Plan the held messages, in parts; without any, up to `maxMessages` new ones."""
        settings = self.settings
        with (
            telling(f"{settings.where()}, reservation {settings.reservation!r}"),
            fifo.blocking.connect(settings.url) as client,
        ):
            most = settings.max_messages or limits.HELD_MAX
            reservation = Reservation(client, settings, most)
            held = reservation.held((), reservation.last)
            if not held:
                reservation.take(most)
                held = reservation.held((), reservation.last)
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
            holder = Followers(client, settings.queue, settings.reservation, partition.opened)
            with Keeper(holder, settings.lock_s or limits.LOCK_S):
                yield from fetched(settings, partition, follow=True, remedy="read again")
