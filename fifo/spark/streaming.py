"""The streaming read: micro-batches from a reservation that outlives driver and leader.

Owns offsets, and when what is acked. An offset is the last token of a batch in its reservation,
with all that is needed to know it again after a restart. Runs in one long-lived process on the
driver, except `read`, which runs in tasks on a pickled copy.

Spark commits a batch only when it plans the next one, and tells the end of the last one by asking
for the next offset from there: whatever stands before `start` is done, and is acked there as well.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

import fifo
from fifo.blocking import BlockingClient
from fifo.spark import limits
from fifo.spark.bodies.typed import decoded
from fifo.spark.errors import SourceError, telling
from fifo.spark.holding import count
from fifo.spark.options import Settings
from fifo.spark.reservation import (
    Keeper,
    Part,
    Places,
    Position,
    Reservation,
    behind,
    fetched,
    gone,
    split,
    token_at,
)

_log = logging.getLogger("fifo.spark")

Offset: TypeAlias = dict[str, Any]
"""queue, reservation, consumer (its number), token (the last one), rows (of the batch it ends), and
where the reservation has other consumers `more`: the number and the last token of each."""


REMEDY: Final = '.option("failOnDataLoss", "false") goes on without them'


class FifoStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """For `spark.readStream.format("fifo")`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._where = f"{settings.where()}, reservation {settings.reservation!r}"
        self._driver: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    # On the driver.

    def initialOffset(self) -> Offset:
        """Before what is held, else before what comes next."""
        with telling(self._where):
            return self._driving().offset(self._driving().reservation.begin, 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option maxRowsPerTrigger."""
        return ReadMaxRows(self.settings.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Bound this run to the messages that are ready now."""
        with telling(self._where):
            driver = self._driving()
            driver.budget = driver.ready()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Ack what is before `start`; the end of the next batch, or `start` for none."""
        self._check(start)
        with telling(self._where):
            driver = self._driving()
            driver.ack(_position(start))
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.settings.max_rows
            end = driver.next_end(_position(start), min(most, self.settings.max_rows))
            return start if end is None else end

    def partitions(self, start: Offset, end: Offset) -> list[Part]:
        """The tasks of a batch; after a restart of the same one, from the offsets alone."""
        self._check(start)
        self._check(end)
        with telling(self._where):
            reservation = self._driving().reservation
            held = reservation.held(_position(start), _position(end))
            # Rows that are neither held nor lost have had a verdict (`fifo.spark.settle`).
            missing = count(reservation.lost(_position(start), _position(end)))
        if missing > 0 and self.settings.fail_on_data_loss:
            raise gone(self.settings, missing, int(end["rows"]), REMEDY)
        return [Part(part, reservation.opened) for part in split(held, self.settings.partitions)]

    def commit(self, end: Offset) -> None:
        """The batch is done: ack it, again without harm."""
        self._check(end)
        with telling(self._where):
            self._driving().ack(_position(end))

    def reportLatestOffset(self) -> Offset:
        """The backlog, for the progress of the query: `latestOffset` of its source."""
        with telling(self._where):
            driver = self._driving()
            return {**driver.offset(driver.reservation.last, 0), **driver.backlog()}

    def stop(self) -> None:
        """Close the connection; the reservation keeps unacked messages for the next run."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    # In tasks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, Part)
        rows = fetched(
            self.settings,
            partition,
            follow=False,
            remedy=REMEDY if self.settings.fail_on_data_loss else None,
        )
        return decoded(rows, self.settings.body, self._where)

    # Within.

    def _driving(self) -> _Driver:
        if self._driver is None:
            self._driver = _Driver(self.settings)
        return self._driver

    def _check(self, offset: Offset) -> None:
        """Refuse an offset of another queue or reservation, or of one that is gone."""
        names = (self.settings.queue, self.settings.reservation)
        found = (offset.get("queue"), offset.get("reservation"))
        if found != names:
            raise SourceError(
                f"{self._where}: the checkpoint is of queue {found[0]!r}, reservation {found[1]!r};"
                " give this query a checkpointLocation of its own"
            )
        with telling(self._where):
            opened = self._driving().reservation.opened
        numbers = [offset.get("consumer"), *(number for number, _ in offset.get("more", []))]
        if numbers != [one.consumer for one in opened][: len(numbers)]:
            raise SourceError(
                f"{self._where}: the reservation of the checkpoint is gone (released, unused for 7"
                " days, or the queue was deleted), and what it held is back in the queue; start"
                " again with a new checkpointLocation"
            )


def _position(offset: Offset) -> Position:
    return (int(offset["token"]), *(int(token) for _, token in offset.get("more", [])))


class _Driver:
    """The open reservation of a running query."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: BlockingClient = fifo.blocking.connect(settings.url)
        try:
            self.reservation = Reservation(self._client, settings, settings.max_rows)
        except BaseException:
            self._client.close()
            raise
        self.budget: int | None = None
        self.lost = 0
        self._acked = self.reservation.begin
        self._idle_since: float | None = None
        self._pause = threading.Event()
        self._keeper = Keeper(self.reservation, self.reservation.lock_s)
        self._keeper.start()

    def close(self) -> None:
        """End the renewals and the connection."""
        self._keeper.stop()
        self._client.close()

    def offset(self, position: Position, rows: int) -> Offset:
        """As it stands in the checkpoint."""
        opened = self.reservation.opened
        found: Offset = {
            "queue": self._settings.queue,
            "reservation": self._settings.reservation,
            "consumer": opened[0].consumer,
            "token": token_at(position, 0),
            "rows": rows,
        }
        if len(opened) > 1:
            others = enumerate(opened[1:], 1)
            found["more"] = [[one.consumer, token_at(position, at)] for at, one in others]
        return found

    def ready(self) -> int:
        """Messages that could be taken now."""
        return int(self._client.queue(self._settings.queue).ready)

    def backlog(self) -> dict[str, Any]:
        """The backlog in messages, the number lost since the query started, and the time for which
        the locks last without another renewal."""
        view = self._client.queue(self._settings.queue)
        first = self._client.peek(self._settings.queue, 1) if view.ready else []
        held = self.reservation.held(self._acked, self.reservation.last)
        return {
            "ready": view.ready,
            "delayed": view.delayed,
            "oldest_s": round(max(time.time() - one.published_at.timestamp(), 0.0), 1)
            if (one := next(iter(first), None))
            else 0.0,
            "held": count(held),
            "lost": self.lost,
            "lock_left_s": round(self._keeper.left_s(), 1),
        }

    def ack(self, upto: Position) -> None:
        """Once for each batch, whichever hook comes first."""
        if all(token <= token_at(self._acked, at) for at, token in enumerate(upto)):
            return
        lost = self.reservation.ack(upto)
        self._acked = upto
        self.lost += lost
        if lost:
            text = (
                f"{lost} messages of {self._settings.queue!r} were processed, but their locks had"
                " expired before the batch was committed: they are redelivered; raise the option"
                " maxLock, or the lock"
            )
            if self._settings.fail_on_data_loss:
                # The broker names them once: the query goes on behind this batch when restarted.
                raise SourceError(f"{text}; {REMEDY}")
            _log.warning(text)

    def next_end(self, start: Position, most: int) -> Offset | None:
        """The end of the next batch behind `start`; None where nothing is there to read.

        What was taken for a batch that never got into the checkpoint comes first.
        """
        reservation = self.reservation
        if not reservation.held(start, reservation.last) and not self._take(most):
            return None
        held = split_at(reservation.held(start, reservation.last), most)
        return self.offset(behind(start, held), count(held))

    def _take(self, most: int) -> int:
        if self.budget is not None:
            most = min(most, self.budget)
        self._wait_while_idle()
        taken = 0
        if most and self.ready():
            taken = self.reservation.take(most, self._settings.max_bytes)
        self._idle_since = None if taken else time.monotonic()
        if self.budget is not None:
            # Nothing more can be had: whatever was counted has gone to others.
            self.budget = self.budget - taken if taken else 0
        return taken

    def _wait_while_idle(self) -> None:
        """Spark asks again at once; a broker has better things to do."""
        if self._idle_since is not None:
            self._pause.wait(max(0.0, self._idle_since + limits.IDLE_S - time.monotonic()))


def split_at(ranges: Places, most: int) -> Places:
    """The first `most` of these places."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if most <= 0:
            break
        cut = min(last, first + most - 1)
        found.append((first, cut))
        most -= cut - first + 1
    return tuple(found)
