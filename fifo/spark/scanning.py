"""Reads that take nothing: a queue, or a system table, as it is at one index of the log.

Owns the pinned view that all tasks of a read share, and its parts, cut by place. The driver pins it
and lets go of the connection; each task reads on, and renews its lease meanwhile. No hook says when
the last task has ended, so the view ends with its lease.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

import fifo
from fifo.blocking import BlockingClient, BlockingPinnedView
from fifo.client import Delivered
from fifo.spark import batches, columns, limits, tables
from fifo.spark.ahead import ahead
from fifo.spark.errors import telling
from fifo.spark.options import Settings

if TYPE_CHECKING:
    from fifo.client.scanning import ScanState

_END = 2**63 - 1


class ScanPart(InputPartition):
    """A range of positions of a queue in a view; without a queue all that is no message's."""

    def __init__(self, ref: str, queue: str, first: int = 0, end: int = _END) -> None:
        super().__init__(first)
        self.ref = ref
        self.queue = queue
        self.first = first
        self.end = end


class ScanReader(DataSourceReader):
    """The default of `spark.read`: all messages of a queue, or the rows of a system table."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def partitions(self) -> list[InputPartition]:
        """Pin a view, and cut it; a wrong url or queue is an error here, on the driver."""
        settings = self.settings
        with telling(settings.where()), fifo.blocking.connect(settings.url) as client:
            view = client.pin(lease=limits.SCAN_LEASE_S)
            try:
                return list(self._parts(client, view))
            finally:
                view.leave()

    def _parts(self, client: BlockingClient, view: BlockingPinnedView) -> Iterator[ScanPart]:
        settings = self.settings
        if settings.table == tables.QUEUES:
            yield ScanPart(view.ref, "")
            return
        queues = {one.name: one for one in view.queues()}
        if settings.queue and settings.queue not in queues:
            client.queue(settings.queue)  # says what is wrong with it
        for name in [settings.queue] if settings.queue else queues:
            if settings.table == tables.CONSUMERS or settings.max_messages is not None:
                yield ScanPart(view.ref, name)
                continue
            parts = settings.partitions_given or _parts_of(queues[name].messages)
            for first, end in view.ranges(name, parts):
                yield ScanPart(view.ref, name, first, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        if not isinstance(partition, ScanPart):
            return  # There is no queue: Spark plans one empty partition.
        settings = self.settings
        with telling(settings.where()), fifo.blocking.connect(settings.url) as client:
            view = client.pinned(partition.ref)
            try:
                with _Renewed(view):
                    yield from self._rows(view, partition)
            finally:
                view.leave()

    def _rows(self, view: BlockingPinnedView, part: ScanPart) -> Iterator[pa.RecordBatch]:
        settings = self.settings
        if settings.table == tables.QUEUES:
            yield tables.of_queues(view.queues())
        elif settings.table == tables.CONSUMERS:
            yield tables.of_consumers(part.queue, view.consumers(part.queue))
        else:
            holders = tables.holders(settings.table, view, part.queue)
            schema = columns.arrow_schema(binary_keys=settings.binary_keys, names=settings.columns)
            for page in ahead(self._pages(view, part)):
                if settings.table is None:
                    yield from batches.to_batches(page, schema)
                else:
                    yield tables.of_messages(settings.table, page, holders)

    def _pages(
        self, view: BlockingPinnedView, part: ScanPart
    ) -> Iterator[Delivered[fifo.ScannedMessage]]:
        settings = self.settings
        wanted = tables.WANTED[settings.table].copy()
        if not columns.want_bodies(settings.columns):
            wanted["bodies"] = False
        if settings.state is not None:
            wanted["state"] = cast("ScanState", settings.state)
        after: int | None = part.first
        left = settings.max_messages
        while after is not None and left != 0:
            size = limits.SCAN_MESSAGES if left is None else min(limits.SCAN_MESSAGES, left)
            page = view.page(part.queue, after=after, before=part.end, limit=size, **wanted)
            after = page.after or None
            if left is not None:
                left -= len(page.messages)
            if page.messages:
                yield page.messages


class _Renewed:
    """Renews a view while its task lives: what comes behind the read may take its time."""

    def __init__(self, view: BlockingPinnedView) -> None:
        self._view = view
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fifo-scan", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(limits.SCAN_LEASE_S / limits.RENEWALS_PER_LOCK):
            try:
                self._view.renew()
            except fifo.FifoError:
                return  # The next page says what is wrong.


def _parts_of(messages: int) -> int:
    """Tasks for a queue of this depth."""
    return min(messages // limits.SCAN_PART_MESSAGES + 1, limits.SCAN_PARTS_MAX)
