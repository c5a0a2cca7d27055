"""Requests about pinned views, which every node serves: pin, ask, read pages or all, let go.

Owns the wait of a node that is a little behind, the steps of an answer, its bounds, and the rate at
which whole views are read, for all readers together. Needs no session: a pin belongs to no
connection. Must not know when a pin ends (`node/broker/pins.py`), or how the past is read
(`fifo.machine.contract.Past`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import msgpack

from fifo.machine.contract import STATES, PastQueue, Sought
from fifo.wire import Code, Frame
from fifo.wire.limits import PIECE_ENTRIES_MAX
from fifo.wire.messages import Message, Ok
from fifo.wire.pins import Page, Pin, PinPiece, PinQuery, PinRead, Unpin
from fifo.words.settlement import REASONS
from node.broker import deliveries, limits, views
from node.broker.conditions import of_page
from node.broker.connections.connection import Connection
from node.broker.connections.page_answer import PageAnswer
from node.broker.connections.piece_answer import PieceAnswer
from node.broker.pins import Pin as PinnedView
from node.broker.pins import Pins
from node.broker.refusals import plain
from node.broker.requests.proposer import message_of, refuse_no_queue

T = TypeVar("T")

PINNED: Final[tuple[type[Message], ...]] = (Pin, Unpin, PinQuery, Page, PinRead)
"""The requests that are served here."""


class _Gone(Exception):
    """The pin has ended."""


class _Follower(NamedTuple):
    connection: Connection
    ready: Callable[[], bool]
    until: float


class Pinned:
    """Handler of the requests of `PINNED`."""

    def __init__(
        self,
        node: str,
        pins: Pins,
        read_area: deliveries.ReadArea,
        read_entry: deliveries.ReadArea,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        configuration: Callable[[], str],
    ) -> None:
        self._node = node
        self._pins = pins
        self._read_area = read_area
        self._read_entry = read_entry
        self._now = now
        self._wall_ms = wall_ms
        self._configuration = configuration
        self.waiting: list[_Follower] = []
        """Connections whose pin waits for entries to be applied; looked at in each turn."""
        self._copied_at = now()
        """When what was copied so far is paid for, at the rate that copies have."""

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Answer one of them, in pieces."""
        answers = {
            Pin: self._pin,
            Unpin: self._unpin,
            PinQuery: self._query,
            Page: self._page,
            PinRead: self._read,
        }
        pieces = answers[type(frame.message)](connection, frame)
        connection.answer_in_pieces(frame, self._guarded(connection, frame, pieces))

    def _guarded(
        self, connection: Connection, frame: Frame, pieces: Iterator[None]
    ) -> Iterator[None]:
        try:
            yield from pieces
        except _Gone:
            text = f"node {self._node} has no such pinned view, or not any more: pin anew"
            connection.refuse(frame.correlation, Code.PIN_GONE, text)

    # --- pin and unpin ----------------------------------------------------------------------------

    def _wait(self, connection: Connection, ready: Callable[[], bool]) -> Iterator[None]:
        """Have the answer wait, for as long as a follower may need."""
        if len(self.waiting) < limits.PINS_WAITING_MAX and not ready():
            until = self._now() + limits.PIN_WAIT_SECONDS
            self.waiting.append(_Follower(connection, ready, until))
            connection.stop_reading("pin")
            yield

    def look(self) -> None:
        """Go on with those that have waited enough."""
        now, waiting = self._now(), self.waiting
        self.waiting = []
        for one in waiting:
            if one.connection.open and now < one.until and not one.ready():
                self.waiting.append(one)
            else:
                one.connection.start_reading("pin")

    def _pin(self, connection: Connection, frame: Frame) -> Iterator[None]:
        message, pins = message_of(frame, Pin), self._pins
        if not message.exactly:
            yield from self._wait(connection, lambda: pins.lags(message.at_least) is None)
        lags = pins.unsound() if message.exactly else pins.lags(message.at_least)
        if lags is not None:
            connection.refuse(frame.correlation, Code.NOT_NOW, lags)
            return
        user = "" if connection.rights is None else connection.rights.user.name
        refusal = pins.refusal(user)
        if refusal is not None:
            connection.refuse(frame.correlation, *refusal)
            return
        if message.exactly:
            pin = yield from self._pin_exactly(connection, frame, user)
            if pin is None:
                return
        else:
            pin = pins.make(user, message.lease_ms / 1000)
        answer = {
            "pin": pin.name,
            "node": self._node,
            "index": pin.index,
            "cluster_ms": pin.past.cluster_time_ms,
            "wall_ms": self._wall_ms(),
            "lease_ms": message.lease_ms,
        }
        yield from self._while_pinned(pin, pin.past.opening())
        connection.send(Ok(answer), frame.correlation)

    def _pin_exactly(
        self, connection: Connection, frame: Frame, user: str
    ) -> Generator[None, None, PinnedView | None]:
        """Pin the state at one index; None where the answer is given: it is past, or not reached
        in time."""
        message, pins = message_of(frame, Pin), self._pins
        awaited = pins.awaiting(message.at_least, user, message.lease_ms / 1000)
        if awaited is not None:
            try:
                yield from self._wait(connection, lambda: pins.made(awaited))
            finally:
                pins.forget(awaited)
            if awaited.pin is not None:
                return awaited.pin
        text = f"node {self._node} has applied {pins.applied} entries: {message.at_least} is " + (
            "past; name a later one" if awaited is None else "not reached; name an earlier one"
        )
        connection.refuse(frame.correlation, Code.NOT_NOW, text)
        return None

    def _unpin(self, connection: Connection, frame: Frame) -> Iterator[None]:
        pin = self._pins.used(message_of(frame, Unpin).pin)
        if pin is not None:
            self._pins.end(pin, "let go of")
        connection.send(Ok(None), frame.correlation)
        yield from ()

    def _used(self, name: bytes) -> PinnedView:
        pin = self._pins.used(name)
        if pin is None:
            raise _Gone
        return pin

    def _while_pinned(
        self, pin: PinnedView, steps: Generator[None, None, T]
    ) -> Generator[None, None, T]:
        """Take steps; what a view says after its end is not what was."""
        while pin.ended is None:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            yield
        raise _Gone

    # --- queries ----------------------------------------------------------------------------------

    def _query(self, connection: Connection, frame: Frame) -> Iterator[None]:
        query = message_of(frame, PinQuery)
        pin = self._used(query.pin)
        if query.query == "renew":
            connection.send(Ok({"index": pin.index}), frame.correlation)
        elif query.query == "queues":
            yield from self._while_pinned(pin, self._queues(connection, frame, pin))
        elif query.queue is None or not pin.past.has_queue(query.queue):
            refuse_no_queue(connection, frame.correlation, query.queue)
        elif query.query == "consumers":
            yield from self._while_pinned(pin, self._consumers(connection, frame, pin))
        elif query.query == "ranges":
            queue = yield from self._while_pinned(pin, pin.past.reading(query.queue))
            parts = min(query.limit, limits.PIN_RANGES_MAX)
            answer = {"messages": queue.messages, "ranges": [*map(list, queue.ranges(parts))]}
            connection.send(Ok(answer), frame.correlation)
        else:
            text = f"unknown query {query.query!r}: use one of renew, queues, consumers, ranges"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)

    def _queues(
        self, connection: Connection, frame: Frame, pin: PinnedView
    ) -> Generator[None, None, None]:
        """The queues that the user may see, from the `after`th on; some in each answer."""
        query, rights = message_of(frame, PinQuery), connection.rights
        names = pin.past.queues()

        def rows() -> Iterator[tuple[int, Any]]:
            for place in range(query.after, len(names)):
                if rights is None or rights.sees(names[place]):
                    yield place + 1, pin.past.overview(names[place])

        yield from _listed(connection, frame, rows(), query.limit)

    def _consumers(
        self, connection: Connection, frame: Frame, pin: PinnedView
    ) -> Generator[None, None, None]:
        query, past = message_of(frame, PinQuery), pin.past
        assert query.queue is not None, "looked at before"
        queue = query.queue

        def rows() -> Iterator[tuple[int, Any]]:
            after = query.after
            while found := past.consumers_of(queue, after, limits.LIST_PIECE):
                for one in found:
                    shown = past.session_id(one["session"])[: limits.SESSION_SHOWN_BYTES].hex()
                    yield one["consumer"], views.past_consumer(one, shown)
                after = found[-1]["consumer"]

        yield from _listed(connection, frame, rows(), query.limit)

    # --- pages ------------------------------------------------------------------------------------

    def _page(self, connection: Connection, frame: Frame) -> Iterator[None]:
        message = message_of(frame, Page)
        wrong = _wrong(message)
        if wrong is not None:
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, wrong)
            return
        pin = self._used(message.pin)
        if not pin.past.has_queue(message.queue):
            refuse_no_queue(connection, frame.correlation, message.queue)
            return
        queue: PastQueue = yield from self._while_pinned(pin, pin.past.reading(message.queue))
        conditions = of_page(message)
        apart = conditions.read_the_log
        most = min(message.limit, limits.PAGE_HEADERS_MESSAGES) if apart else message.limit
        sought = Sought(message.state, message.key, message.reason, message.exception_type, apart)
        steps = queue.page(sought, message.after, message.before, most)
        found, after = yield from self._while_pinned(pin, steps)
        found = [seen for seen in found if conditions.may_fit(seen.run)]
        if not message.bodies and not apart:
            found = [seen._replace(run=deliveries.without_body(seen.run)) for seen in found]
        fitting = deliveries.in_one_peek([seen.run for seen in found])
        if len(fitting) < len(found):
            after = found[len(fitting)].position
            found = found[: len(fitting)]
        answer = PageAnswer(connection, frame, found, after, self._read_area, pin, conditions)
        connection.send_deferred(answer)

    # --- whole views ------------------------------------------------------------------------------

    def _read(self, connection: Connection, frame: Frame) -> Iterator[None]:
        message = message_of(frame, PinRead)
        pin = self._used(message.pin)
        if message.part == "entries":
            steps = pin.copy.entries(message.at, PIECE_ENTRIES_MAX)
            indexes, last = yield from self._while_pinned(pin, steps)
            answer = PieceAnswer(
                connection, frame, indexes, last, self._read_entry, pin,
                lambda size: self._pay(connection, size),
            )  # fmt: skip
            connection.send_deferred(answer)
        elif message.part == "state":
            piece = yield from self._while_pinned(pin, pin.copy.state(message.at))
            if piece is None:
                text = f"the state was read past byte {message.at}, or by another reader: pin anew"
                connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
                return
            raw = (piece.data,) if message.content else ()
            answered = PinPiece(piece.after, bool(piece.digest), piece.digest)
            connection.send(answered, frame.correlation, raw)
            self._pay(connection, len(piece.data))
        elif message.part == "configuration":
            raw = (self._configuration().encode(),)
            connection.send(PinPiece(len(raw[0]), last=True), frame.correlation, raw)
        else:
            text = f"unknown part {message.part!r}: use one of state, entries, configuration"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)

    def _pay(self, connection: Connection, size: int) -> None:
        """Have the reader wait for as long as these bytes take at the rate of copies."""
        now = self._now()
        self._copied_at = max(now, self._copied_at) + size / limits.COPY_BYTES_PER_S
        connection.stop_reading("copy")
        loop = asyncio.get_running_loop()
        loop.call_later(self._copied_at - now, connection.start_reading, "copy")


def _listed(
    connection: Connection, frame: Frame, rows: Iterator[tuple[int, Any]], most: int
) -> Iterator[None]:
    """Answer with as many rows as fit, and after which to ask for more; 0 where none are left."""
    found: list[Any] = []
    left_bytes, after, last = limits.LIST_BYTES_MAX, 0, 0
    for count, (place, row) in enumerate(rows):
        shown = plain(row)
        left_bytes -= len(msgpack.packb(shown))
        if count == most or (left_bytes < 0 and found):
            after = last
            break
        found.append(shown)
        last = place
        yield
    connection.send(Ok({"rows": found, "after": after}), frame.correlation)


def _wrong(message: Page) -> str | None:
    """Name a filter that is wrong; None where all are right."""
    if message.state not in (None, *STATES):
        return f"unknown state {message.state!r}: use one of {', '.join(STATES)}"
    if message.reason not in (None, *REASONS):
        return f"unknown reason {message.reason!r}: use one of {', '.join(REASONS)}"
    return None
