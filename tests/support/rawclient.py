"""A client made of frames: what goes over the wire, with nothing of `fifo.client` in between.

Owns one TCP connection and the frames that came over it and that no test has asked for yet. Tests
of the broker speak through it, so that they hold for a stranger's client too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from fifo.wire import Buffer, Decoder, Frame, columns, encode
from fifo.wire.messages import (
    Authenticate,
    Challenge,
    Confirms,
    Declare,
    Deliver,
    Hello,
    Message,
    Notice,
    Ok,
    Ping,
    Pong,
    Publish,
    PublishAcross,
    Receipt,
    Settle,
    Subscribe,
    Subscribed,
    Welcome,
)
from node.config import Address

M = TypeVar("M", bound=Message)
REPLY_SECONDS = 10.0

_UNASKED = (Confirms, Deliver, Notice)
"""Messages that come without being the answer to the request just made."""


_opened: list[RawClient] = []
"""Every client of the running test that has connected."""


async def close_all() -> None:
    """Close what a test has left open."""
    while _opened:
        await _opened.pop().close()


class Closed(Exception):
    """The node closed the connection."""


class RawClient:
    """A connection. `session` and `incarnation` are drawn anew unless given."""

    def __init__(self, session: bytes | None = None, incarnation: bytes | None = None) -> None:
        self.session = session or os.urandom(16)
        self.incarnation = incarnation or os.urandom(16)
        self.frames: list[Frame] = []
        self.arrived: list[type[Message]] = []
        self._decoder = Decoder()
        self._correlation = 0

    async def connect(self, address: Address) -> RawClient:
        """Open the connection, saying nothing."""
        self._reader, self._writer = await asyncio.open_connection(address.host, address.port)
        _opened.append(self)
        return self

    async def hello(
        self,
        *,
        role: int = 0,
        resume: bool = False,
        heartbeat_ms: int = 5000,
        user: str | None = None,
        secret: tuple[str, bytes] | None = None,
        after_term: int = 0,
        unreached: str = "",
    ) -> Frame:
        """Say hello; the node's answer, whatever it is. `secret`: a mechanism, and its proof,
        which is given where the node asks for it."""
        mechanism = None if secret is None else secret[0]
        message = Hello(
            *(1, 1, role, self.session, self.incarnation, "raw", (), user, mechanism),
            heartbeat_ms,
            resume,
            after_term,
            unreached,
        )
        self.send(message)
        answer = await self.take(lambda frame: True)
        if secret is not None and isinstance(answer.message, Challenge):
            self.send(Authenticate(*secret))
            answer = await self.take(lambda frame: True)
        return answer

    async def welcome(self, *, role: int = 0, resume: bool = False) -> Welcome:
        """Say hello and be welcomed."""
        frame = await self.hello(role=role, resume=resume)
        assert isinstance(frame.message, Welcome), frame.message
        return frame.message

    def send(self, message: Message, correlation: int = 0, raw: Sequence[Buffer] = ()) -> None:
        """Write a frame."""
        self._writer.write(b"".join(encode(message, correlation, raw)))

    def send_bytes(self, data: bytes) -> None:
        """Write anything."""
        self._writer.write(data)

    def next_correlation(self) -> int:
        """A number for the next request."""
        self._correlation += 1
        return self._correlation

    async def ask(self, message: Message, raw: Sequence[Buffer] = ()) -> Message:
        """Send a request; the frame that answers it."""
        correlation = self.next_correlation()
        self.send(message, correlation, raw)
        frame = await self.take(
            lambda frame: (
                frame.correlation == correlation and not isinstance(frame.message, _UNASKED)
            )
        )
        return frame.message

    async def next(self, kind: type[M]) -> M:
        """Return the next message of a type that no test has taken yet."""
        return (await self.next_frame(kind)).message  # type: ignore[return-value]  # by its kind

    async def next_frame(self, kind: type[M]) -> Frame:
        """The same with its raw part."""
        return await self.take(lambda frame: isinstance(frame.message, kind))

    async def take(self, wanted: Callable[[Frame], bool]) -> Frame:
        """The first frame that is wanted; pings are answered meanwhile. Raises Closed."""
        async with asyncio.timeout(REPLY_SECONDS):
            while True:
                for at, frame in enumerate(self.frames):
                    if wanted(frame):
                        return self.frames.pop(at)
                await self._read()

    async def _read(self) -> None:
        data = await self._reader.read(1 << 18)
        if not data:
            raise Closed
        for frame in self._decoder.receive_data(data):
            assert isinstance(frame, Frame), frame
            self.arrived.append(type(frame.message))
            if isinstance(frame.message, Ping):
                self.send(Pong(), frame.correlation)
            else:
                self.frames.append(frame)

    async def closed(self) -> list[Message]:
        """Wait until the node closes the connection; what it said before."""
        with contextlib.suppress(Closed, ConnectionError):
            await self.take(lambda frame: False)
        return [frame.message for frame in self.frames]

    async def close(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    # --- what most tests do -----------------------------------------------------------------------

    async def declare(self, queue: str, **spec: object) -> None:
        """A queue that is there afterwards."""
        answer = await self.ask(Declare(queue, spec))
        assert isinstance(answer, Ok), answer

    def publish(
        self, queue: str, previous: int, number: int, bodies: Sequence[bytes], producer: int = 0
    ) -> int:
        """Send bodies with consecutive numbers; the correlation of the frame."""
        listed, raw = columns.pack_publication(columns.Publication(bodies))
        correlation = self.next_correlation()
        message = Publish(queue, producer, previous, number, len(bodies), listed)
        self.send(message, correlation, raw)
        return correlation

    def publish_across(
        self, places: Sequence[tuple[str, int, columns.Publication]], producer: int = 0
    ) -> list[int]:
        """Send (queue, previous, messages) in one frame; the correlation of each."""
        correlations = [self.next_correlation() for _ in places]
        parts = [
            (correlation, previous, previous + 1, 0, publication)
            for correlation, (_, previous, publication) in zip(correlations, places, strict=True)
        ]
        count, listed, raw = columns.pack_parts(parts)
        queues = tuple([queue for queue, _, _ in places])
        self.send(PublishAcross(producer, queues, count, listed), correlations[0], raw)
        return correlations

    async def confirmed(self, correlation: int) -> tuple[object, ...]:
        """The item of a confirms frame that answers this publish."""
        while True:
            for frame in self.frames:
                if isinstance(frame.message, Confirms):
                    for item in frame.message.items:
                        if item[0] == correlation:
                            return item
            await asyncio.wait_for(self._read(), REPLY_SECONDS)

    async def subscribe(
        self, queue: str, prefetch: int = 10, tag: str = "", **options: object
    ) -> Subscribed:
        """A consumer."""
        answer = await self.ask(Subscribe(queue, tag, prefetch, **options))  # type: ignore[arg-type]  # a test's own options
        assert isinstance(answer, Subscribed), answer
        return answer

    async def delivery(self) -> tuple[Deliver, list[bytes]]:
        """The next delivery and its bodies."""
        frame = await self.next_frame(Deliver)
        message = frame.message
        assert isinstance(message, Deliver)
        layout = columns.lay_out(message.columns, frame.raw, message.count, columns.DELIVER_TAGS)
        return message, layout.bodies()

    async def settle(
        self, consumer: int, first: int, last: int, verb: int = 0, **more: object
    ) -> tuple[tuple[int, int, int, bool], ...]:
        """Settle one range; the results of its receipt."""
        answer = await self.ask(Settle(consumer, verb, ((first, last),), **more))  # type: ignore[arg-type]  # a test's own fields
        assert isinstance(answer, Receipt), answer
        return answer.results


async def connected(address: Address) -> RawClient:
    """A client whose session is open at the node that leads."""
    client = await RawClient().connect(address)
    await client.welcome()
    return client
