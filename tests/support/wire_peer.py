"""A scripted node: speaks the real protocol over a real loopback socket, and follows its script.

Owns accepting, the opening (by default it welcomes everybody), and a record of what came. A test
answers frames itself, or gives `answers` per message type. It has no queue and no memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from fifo.wire import BadMessage, Buffer, Frame, Opening, encode
from fifo.wire.columns import PUBLISH_TAGS, Layout, Publication, lay_out, pack_publication
from fifo.wire.messages import (
    SESSION_NEW,
    SESSION_RESUMED,
    Challenge,
    Close,
    Confirms,
    Deliver,
    Hello,
    Message,
    Ok,
    Ping,
    Pong,
    Publish,
    Receipt,
    Renew,
    Renewed,
    Settle,
    Subscribe,
    Subscribed,
    Welcome,
)

PATIENCE_S: Final = 5.0
_M = TypeVar("_M", bound=Message)
Answer = Callable[["Line", Frame], object]


class Line(asyncio.Protocol):
    """A connection that a client has opened to the peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.hello: Hello | None = None
        self.closed = asyncio.get_running_loop().create_future()
        self._opening = Opening()
        self._transport: asyncio.Transport | None = None

    @property
    def role(self) -> int:
        """0 data, 1 control, 2 observer."""
        assert self.hello is not None, "has said hello"
        return self.hello.role

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's only looks like one
        self.peer.lines.append(self)

    def data_received(self, data: bytes) -> None:
        """Frames, in any cut."""
        for frame in self._opening.receive_data(data):
            assert not isinstance(frame, BadMessage), frame
            if isinstance(frame.message, Hello):
                self.hello = frame.message
                answer = self.peer.opening(self, frame.message)
                if answer is None:
                    continue
                if isinstance(answer, Welcome):
                    self._opening.opened()
                self.send(answer)
                if not isinstance(answer, Welcome | Challenge):
                    self.close()
            else:
                self.peer.take(self, frame)

    def connection_lost(self, error: Exception | None) -> None:
        """The client went, or was dropped."""
        if self in self.peer.lines:
            self.peer.lines.remove(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, message: Message, correlation: int = 0, raw: Sequence[Buffer] = ()) -> None:
        """Send a frame to the client."""
        assert self._transport is not None
        self._transport.write(b"".join(encode(message, correlation, raw)))

    def send_bytes(self, data: bytes) -> None:
        """Bytes, whatever they are."""
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        """Hang up after what is unsent."""
        if self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()

    def deliver(
        self, consumer: int, first_token: int, bodies: Sequence[bytes], **more: Any
    ) -> None:
        """Messages to a consumer, as one run from producer 7 of queue 3."""
        lock_ms = more.pop("remaining_ms", 30_000)
        publication = more.pop("publication", None) or Publication(bodies)
        columns, raw = pack_publication(publication)
        count = len(bodies)
        run = (count, 3, 7, more.pop("number", first_token), 1_700_000_000_000)
        queue = more.pop("queue", "orders")
        self.send(
            Deliver(consumer, queue, first_token, count, lock_ms, columns, (run,), **more), 0, raw
        )


class Peer:
    """A node of one's own. `async with Peer() as peer: fifo.connect(peer.url)`."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.answers: dict[type[Message], Answer] = {Close: _ok}
        self.opening: Callable[[Line, Hello], Message | None] = welcome
        self.heard: list[tuple[Line, Frame]] = []
        self.port = 0
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """host:port of it."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """To connect to it alone."""
        return f"fifo://{self.address}"

    async def __aenter__(self) -> Peer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; on the same port when it is started again."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Line(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Hang up on everybody and stop listening, as a killed node does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for line in list(self.lines):
            line.drop()
            await line.closed

    def take(self, line: Line, frame: Frame) -> None:
        """A frame after the opening: answered by the script, or kept for the test."""
        if isinstance(frame.message, Ping):
            line.send(Pong(), frame.correlation)
            return
        answer = self.answers.get(type(frame.message))
        if answer is not None:
            answer(line, frame)
        self.heard.append((line, frame))
        self._news.set()

    async def hear(self, kind: type[_M], patience_s: float = PATIENCE_S) -> tuple[Line, Frame, _M]:
        """The next frame of this type that no test has heard yet."""
        async with asyncio.timeout(patience_s):
            while True:
                for at, (line, frame) in enumerate(self.heard):
                    if isinstance(frame.message, kind):
                        del self.heard[at]
                        return line, frame, frame.message
                self._news.clear()
                await self._news.wait()

    def count(self, kind: type[Message]) -> int:
        """Number of frames of this type that came and that no test has read yet."""
        return sum([isinstance(frame.message, kind) for _, frame in self.heard])

    def line(self, role: int = 0) -> Line:
        """The open connection of this role."""
        return next(line for line in self.lines if line.hello is not None and line.role == role)


def welcome(line: Line, hello: Hello, *, term: int = 1, **more: Any) -> Welcome:
    """Welcome anybody; a session that is resumed is known."""
    state = SESSION_RESUMED if hello.resume else SESSION_NEW
    return Welcome(1, "n1", b"c" * 16, term, session_state=state, **more)


def _ok(line: Line, frame: Frame) -> None:
    line.send(Ok(), frame.correlation)


def confirm_all(line: Line, frame: Frame) -> None:
    """Store everything."""
    message = frame.message
    assert isinstance(message, Publish)
    line.send(Confirms(((frame.correlation, 3, 7, 0, message.count),)))


def receive_all(line: Line, frame: Frame) -> None:
    """A receipt `ok` for every settled token."""
    message = frame.message
    assert isinstance(message, Settle)
    results = tuple([(first, last, 0, False) for first, last in message.tokens])
    line.send(Receipt(message.consumer, results), frame.correlation)


def renew_all(line: Line, frame: Frame) -> None:
    """Renew everything by 30 seconds."""
    message = frame.message
    assert isinstance(message, Renew)
    items = [
        (number, tuple([(first, last, 30_000) for first, last in tokens]), ())
        for number, tokens in message.items
    ]
    line.send(Renewed(tuple(items)), frame.correlation)


def subscribe_as(consumer: int, lock_ms: int = 30_000, **more: Any) -> Answer:
    """Answer subscriptions with this consumer number."""

    def answer(line: Line, frame: Frame) -> None:
        message = frame.message
        assert isinstance(message, Subscribe)
        line.send(
            Subscribed(
                consumer,
                lock_ms,
                more.get("max_lock_ms", 1_800_000),
                message.prefetch,
                together=more.get("together", False),
            ),
            frame.correlation,
        )

    return answer


def layout_of(frame: Frame) -> Layout:
    """The columns of a publish frame."""
    message = frame.message
    assert isinstance(message, Publish)
    return lay_out(message.columns, frame.raw, message.count, PUBLISH_TAGS)


async def until(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Give the loop turns until the condition holds; TimeoutError after `patience_s`."""
    async with asyncio.timeout(patience_s):
        while not condition():  # noqa: ASYNC110 - anything may make it true
            await asyncio.sleep(0.001)
