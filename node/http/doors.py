"""The connections of the http port, bounded in number, time and bytes.

Owns each connection between the socket and aiohttp, which serves what it lets through. Must not
know requests or pages: it is notified where one begins and where it has its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from node.broker.connections.proxy_header import Source
from node.http import limits


class Doors:
    """The open connections of an http port, those that have waited longest for a request first."""

    def __init__(self, make: Callable[[], asyncio.Protocol]) -> None:
        """`make` returns the protocol that serves one connection."""
        self._make = make
        self._waiting: dict[Door, None] = {}
        self._open: dict[asyncio.BaseProtocol, Door] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __call__(self) -> asyncio.Protocol:
        """The protocol of a connection that was accepted."""
        return Door(self, self._make())

    def opened(self, door: Door) -> bool:
        """Take a connection. Where there are too many, the one that has waited longest for a
        request is closed; False where each has one."""
        if len(self._open) >= limits.CONNECTIONS_MAX:
            if not self._waiting:
                return False
            next(iter(self._waiting)).close()
        self._open[door.inner] = door
        self._waiting[door] = None
        return True

    def closed(self, door: Door) -> None:
        """Forget a connection; harmless when repeated."""
        self._waiting.pop(door, None)
        self._open.pop(door.inner, None)

    async def begun(self, inner: asyncio.BaseProtocol) -> None:
        """Note that a connection has a request to be answered, and wait for its turn: of the loop,
        and until the peer has taken the answers before."""
        door = self._open.get(inner)
        if door is not None:
            self._waiting.pop(door, None)
            door.within(limits.ANSWER_SECONDS)
            await asyncio.sleep(0)
            await door.taken.wait()

    def source(self, inner: asyncio.BaseProtocol) -> Source | None:
        """The client that a balancer has named; None where there is none."""
        door = self._open.get(inner)
        return None if door is None else door.source

    def proxied(self, inner: asyncio.BaseProtocol) -> bool:
        """Whether a connection came through a balancer; one that has ended may have."""
        door = self._open.get(inner)
        return door is None or door.proxied

    def goes_on(self, inner: asyncio.BaseProtocol) -> None:
        """Note that an answer comes in pieces, of which this is not the last."""
        door = self._open.get(inner)
        if door is not None:
            door.within(limits.ANSWER_SECONDS)

    def allow(self, inner: asyncio.BaseProtocol, count: int) -> None:
        """Take `count` bytes of a body from a peer, beside what a request may have."""
        door = self._open.get(inner)
        if door is not None:
            door.allow(count)

    def lost(self, inner: asyncio.BaseProtocol) -> asyncio.Future[None]:
        """A future that is done when the connection has ended."""
        door = self._open.get(inner)
        if door is not None:
            return door.lost
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lost.set_result(None)
        return lost

    def answered(self, inner: asyncio.BaseProtocol) -> None:
        """Note that the answer of a connection is on its way."""
        door = self._open.get(inner)
        if door is not None:
            self._waiting[door] = None
            door.answered()


class Door(asyncio.Protocol):
    """A connection, which hands on to `inner` what arrives, unchanged.

    What is more than a request may need waits here, unread, until its page takes it, or it is
    answered; if neither comes soon, the connection ends.
    """

    def __init__(self, doors: Doors, inner: asyncio.Protocol) -> None:
        self._doors = doors
        self.inner = inner
        self.source: Source | None = None
        self.proxied = False
        self._unanswered_bytes = 0
        self._allowed_bytes = limits.UNANSWERED_BYTES_MAX
        self._held_back = bytearray()
        self._too_much: asyncio.TimerHandle | None = None
        self.taken = asyncio.Event()
        """Set while the peer takes what is sent, and when the connection has ended."""
        self.taken.set()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the first request has little time."""
        self._transport = cast("asyncio.Transport", transport)
        self.inner.connection_made(transport)
        if self._doors.opened(self):
            self.within(limits.REQUEST_SECONDS)
        else:
            self.close()

    def data_received(self, data: bytes) -> None:
        """Hand on what a request may need, and hold back the rest."""
        if self._held_back:
            self._held_back += data
            if len(self._held_back) > limits.HELD_BACK_BYTES_MAX:
                self.close()
            return
        room = self._allowed_bytes - self._unanswered_bytes
        if len(data) <= room:
            self._hand_on(data)
            return
        self._held_back += data[room:]
        if self._transport is not None:
            self._transport.pause_reading()
            loop = asyncio.get_running_loop()
            self._too_much = loop.call_later(limits.LARGE_BODY_SECONDS, self.close)
        if room:
            self._hand_on(data[:room])

    def _hand_on(self, data: bytes) -> None:
        self._unanswered_bytes += len(data)
        if self._transport is not None:
            self.inner.data_received(data)

    def allow(self, count: int) -> None:
        """Take `count` bytes more before the answer."""
        self._allowed_bytes = limits.UNANSWERED_BYTES_MAX + count
        self._go_on()

    def answered(self) -> None:
        """Begin to count anew: the request has its answer."""
        self._unanswered_bytes = 0
        self._allowed_bytes = limits.UNANSWERED_BYTES_MAX
        self.within(limits.IDLE_SECONDS)
        self._go_on()

    def _go_on(self) -> None:
        """Hand on what was held back, as far as there is room, and read again."""
        if not self._held_back:
            return
        if self._too_much is not None:
            self._too_much.cancel()
        held, self._held_back = bytes(self._held_back), bytearray()
        if self._transport is not None:
            self._transport.resume_reading()
            self.data_received(held)

    def eof_received(self) -> bool | None:
        """Hand on that the peer sends no more."""
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        """Hand on that the socket is full; the peer has to read soon."""
        self.within(limits.STALLED_SECONDS)
        self.taken.clear()
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Hand on that the socket takes more."""
        self.taken.set()
        self.within(limits.IDLE_SECONDS)
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._forget()
        self.inner.connection_lost(exc)

    def within(self, seconds: float) -> None:
        """Close the connection unless something else is due by then. A peer that has stalled gets
        no more time."""
        if not self.taken.is_set():
            return
        if self._deadline is not None:
            self._deadline.cancel()
        if self._transport is not None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self.close)

    def close(self) -> None:
        """Cut the connection now."""
        transport = self._transport
        self._forget()
        if transport is not None:
            transport.abort()

    def _forget(self) -> None:
        self._doors.closed(self)
        self._transport = None
        self._held_back.clear()
        self.taken.set()
        if not self.lost.done():
            self.lost.set_result(None)
        for timer in (self._deadline, self._too_much):
            if timer is not None:
                timer.cancel()
