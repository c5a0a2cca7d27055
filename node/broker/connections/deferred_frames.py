"""Frames of messages that are made when they can be sent: deliveries, and answers to a peek.

Owns the handling of log entries that are not in memory, or no longer exist. Must not know when a
frame is requested, or how entries are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from fifo.machine.contract import Deliver, Run
from fifo.wire import Buffer, Code, Frame, LocalProtocolError, encode
from fifo.wire.messages import Peeked, Resumed
from node.broker import deliveries
from node.broker.connections.connection import Connection
from node.raft import NotCached

logger = logging.getLogger(__name__)


class Delivery:
    """Runs on their way to one consumer: one frame, or several if some of their entries have to be
    read first."""

    __slots__ = ("_effect", "_first_token", "_keys_out", "_now_ms", "_read", "_runs")

    def __init__(
        self,
        effect: Deliver,
        runs: Sequence[Run],
        first_token: int,
        now_ms: Callable[[], int],
        read: deliveries.ReadArea,
        keys_out: bool = False,
    ) -> None:
        """`keys_out`: what is left of the queue waits for its key, and the consumer has places."""
        self._effect = effect
        self._runs = runs
        self._first_token = first_token
        self._now_ms = now_ms
        self._read = read
        self._keys_out = keys_out

    @property
    def waits(self) -> bool:
        """See `node.broker.connections.output.Deferred`."""
        return bool(self._runs)

    def make(self) -> list[Buffer]:
        """See `node.broker.connections.output.Deferred`."""
        runs, self._runs = self._runs, ()
        try:
            try:
                return self._frame(runs)
            except NotCached:
                count = deliveries.count_at_hand(runs, self._read)
                frame = self._frame(runs[:count]) if count else []
                self._first_token += sum([run.count for run in runs[:count]])
                self._runs = runs[count:]
                return frame
        except IndexError:
            # Its peer was so slow that the locks expired, other consumers settled the messages, and
            # a snapshot dropped them: there is nothing left to deliver.
            logger.info("event=delivery_outdated consumer=%d", self._effect.consumer)
        except LocalProtocolError as error:
            # A frame that no client could read: its locks expire, and the node goes on.
            consumer = self._effect.consumer
            logger.exception("event=delivery_failed consumer=%d", consumer, exc_info=error)
        return []

    def _frame(self, runs: Sequence[Run]) -> list[Buffer]:
        effect = self._effect
        remaining_ms = max(0, effect.deadline_ms - self._now_ms())
        return deliveries.deliver_frame(
            effect, runs, self._first_token, remaining_ms, self._read, keys_out=self._keys_out
        )

    def needs(self) -> Iterable[Sequence[int]]:
        """See `node.broker.connections.output.Deferred`."""
        return map(deliveries.entries_of, self._runs)


class ResumedMark:
    """The frame behind the deliveries that a resume repeats; dropped where they are dropped."""

    waits = False

    def make(self) -> list[Buffer]:
        """See `node.broker.connections.output.Deferred`."""
        return encode(Resumed(), 0)

    def needs(self) -> Iterable[Sequence[int]]:
        """See `node.broker.connections.output.Deferred`."""
        return ()


class PeekAnswer:
    """The answer to a peek, made once all of its entries have been read; until then the request
    counts as unanswered."""

    def __init__(
        self,
        connection: Connection,
        frame: Frame,
        queue: str,
        runs: Sequence[Run],
        read: deliveries.ReadArea,
        places: tuple[dict[str, Any], ...] = (),
        after: int = 0,
    ) -> None:
        """`frame` is the peek, `runs` are the messages to show, `places` says where each stands."""
        self._connection = connection
        self._correlation = frame.correlation
        self._queue = queue
        self._places, self._after = places, after
        self._runs = runs
        self._read = read
        self._areas: dict[int, memoryview] = {}
        self.waits = True
        connection.begin(0, len(runs))

    def make(self) -> list[Buffer]:
        """See `node.broker.connections.output.Deferred`."""
        frame: list[Buffer] = []
        try:
            if deliveries.count_at_hand(self._runs, self._area) < len(self._runs):
                return frame
            answer, raw = self._answer()
            frame = encode(answer, self._correlation, raw)
            self._connection.answered(self._correlation)
        except IndexError:
            text = "a message was settled while it was being read; retry"
            self._connection.refuse(self._correlation, Code.NOT_NOW, text)
        except LocalProtocolError as error:
            self._connection.refuse(self._correlation, Code.INTERNAL, str(error))
        self.waits = False
        self._connection.end(0, len(self._runs))
        return frame

    def _answer(self) -> tuple[Peeked, list[Buffer]]:
        """The message and its raw part. All entries are at hand."""
        answer, raw = deliveries.peeked(self._queue, self._runs, self._area)
        return replace(answer, places=self._places, after=self._after), raw

    def _area(self, index: int) -> memoryview:
        """Read one area and keep it: not all of them may be in memory at the same time."""
        area = self._areas.get(index)
        if area is None:
            area = self._areas[index] = self._read(index)
        return area

    def needs(self) -> Iterable[Sequence[int]]:
        """See `node.broker.connections.output.Deferred`."""
        for run in self._runs:
            missing = [index for index in deliveries.entries_of(run) if index not in self._areas]
            if missing:
                yield missing
