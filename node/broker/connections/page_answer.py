"""The answer to a page of a pinned view, made once all of its entries have been read.

Owns the choice by what lies in those entries, and the form of the answer. Must not know
how the page was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fifo.machine.contract import PLACES, Run, Seen
from fifo.wire import Buffer, Code, Frame, LocalProtocolError, encode
from fifo.wire.pins import Page, Paged
from node.broker import deliveries
from node.broker.conditions import Conditions
from node.broker.connections.connection import Connection
from node.broker.pins import Pin

_PLACE = {place: number for number, place in enumerate(PLACES)}


def paged(
    queue: str, found: Sequence[Seen], after: int, read: deliveries.ReadArea, *, bodies: bool = True
) -> tuple[Paged, list[Buffer]]:
    """A page with these messages, and its raw part."""
    runs: list[Run] = [seen.run for seen in found]
    if not bodies:
        runs = [deliveries.without_body(run) for run in runs]
    shown, raw = deliveries.peeked(queue, runs, read)
    spots = tuple(
        [(seen.run.count, seen.position, _PLACE[seen.place], seen.consumer, seen.token,
          seen.since_ms, seen.until_ms, seen.cause) for seen in found]
    )  # fmt: skip
    page = Paged(
        shown.queue, shown.count, shown.columns, shown.runs, shown.dead_letters, spots, after
    )
    return page, raw


class PageAnswer:
    """A `node.broker.connections.output.Deferred`; until it is made the request is unanswered."""

    def __init__(
        self,
        connection: Connection,
        frame: Frame,
        found: Sequence[Seen],
        after: int,
        read: deliveries.ReadArea,
        pin: Pin,
        conditions: Conditions,
    ) -> None:
        """`frame` is the request, `found` the messages that it may be about."""
        assert isinstance(frame.message, Page), "it answers a page"
        self._connection = connection
        self._correlation = frame.correlation
        self._request = frame.message
        self._found = found
        self._after = after
        self._read = read
        self._pin = pin
        self._conditions = conditions
        self._areas: dict[int, memoryview] = {}
        self.waits = True
        connection.begin(0, len(found))

    def make(self) -> list[Buffer]:
        """See `Deferred`."""
        frame: list[Buffer] = []
        try:
            if not self._at_hand():
                return frame
            frame = self._frame()
            self._connection.answered(self._correlation)
        except IndexError:
            text = "the pinned view has ended while it was read: pin anew"
            self._connection.refuse(self._correlation, Code.PIN_GONE, text)
        except LocalProtocolError as error:
            self._connection.refuse(self._correlation, Code.INTERNAL, str(error))
        self.waits = False
        self._connection.end(0, len(self._found))
        return frame

    def _at_hand(self) -> bool:
        """Whether all entries are in memory; those that are stay there."""
        runs = [seen.run for seen in self._found]
        return deliveries.count_at_hand(runs, self._area) == len(runs)

    def _frame(self) -> list[Buffer]:
        request = self._request
        found = [seen for seen in self._found if self._conditions.fits(seen.run, self._area)]
        answer, raw = paged(request.queue, found, self._after, self._area, bodies=request.bodies)
        return encode(answer, self._correlation, raw)

    def _area(self, index: int) -> memoryview:
        """Read one area and keep it: not all of them may be in memory at the same time."""
        area = self._areas.get(index)
        if area is None:
            if self._pin.ended is not None or self._pin.hold.ended:
                raise IndexError("what the pin kept is let go of")
            area = self._areas[index] = self._read(index)
        return area

    def needs(self) -> Iterable[Sequence[int]]:
        """See `Deferred`."""
        for seen in self._found:
            entries = deliveries.entries_of(seen.run)
            missing = [index for index in entries if index not in self._areas]
            if missing:
                yield missing
