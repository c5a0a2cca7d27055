"""The answer to a find with conditions, made once all entries of what was looked at have been read.

Owns the choice of those that meet them, up to the limit. Must not know how they were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fifo.machine.contract import Standing
from fifo.wire import Buffer, Frame
from fifo.wire.messages import Peeked
from fifo.wire.operating import Find
from node.broker import deliveries
from node.broker.conditions import Conditions
from node.broker.connections.connection import Connection
from node.broker.connections.deferred_frames import PeekAnswer


class FindAnswer(PeekAnswer):
    """A `node.broker.connections.output.Deferred`, of no more than the request's limit."""

    def __init__(
        self,
        connection: Connection,
        frame: Frame,
        found: Sequence[Standing],
        places: tuple[dict[str, Any], ...],
        after: int,
        read: deliveries.ReadArea,
        conditions: Conditions,
    ) -> None:
        """`found`: the messages that may be meant, `places` says where each stands; `after` is
        where to look for more behind all of them."""
        assert isinstance(frame.message, Find), "it answers a find"
        request, runs = frame.message, [one.run for one in found]
        super().__init__(connection, frame, request.queue, runs, read, places, after)
        self._limit = request.limit
        self._positions = [one.position for one in found]
        self._conditions = conditions

    def _answer(self) -> tuple[Peeked, list[Buffer]]:
        chosen: list[int] = []
        after = self._after
        for at, run in enumerate(self._runs):
            if not self._conditions.fits(run, self._area):
                continue
            if len(chosen) == self._limit:
                after = self._positions[at]
                break
            chosen.append(at)
        runs, places = [self._runs[at] for at in chosen], [self._places[at] for at in chosen]
        answer, raw = deliveries.peeked(self._queue, runs, self._area)
        return replace(answer, places=tuple(places), after=after), raw
