"""A connection to a node: bytes to frames, the handshake, heartbeats, and back-pressure.

Owns a transport, and of the meaning of frames only ping, pong and the handshake. Runs on the loop
that made it; the data and the control connection each have their own. Never reconnects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from fifo.client import limits
from fifo.client.errors import AuthenticationFailed, ConnectionLost, FifoError, from_code
from fifo.wire import BadMessage, Buffer, Code, Frame, Opening, RemoteProtocolError, encode
from fifo.wire import limits as wire
from fifo.wire.messages import (
    Authenticate,
    Challenge,
    Error,
    Hello,
    Message,
    Nodes,
    Ping,
    Pong,
    Redirect,
    Welcome,
)

if TYPE_CHECKING:
    from fifo.client.connection.environment import Environment

_log = logging.getLogger("fifo.client")

HandshakeAnswer: TypeAlias = Welcome | Redirect


class Receiver(Protocol):
    """The user of an open connection."""

    def frame_received(self, link: Link, frame: Frame) -> None:
        """A frame other than ping and pong."""

    def link_lost(self, link: Link, error: FifoError) -> None:
        """Handle the loss of the connection; called once."""

    def link_writable(self, link: Link) -> None:
        """Unsent bytes have drained; frames may be sent again."""

    def owes_answers(self) -> bool:
        """Whether the node owes us an answer: then silence is suspicious earlier."""


class Link(asyncio.Protocol):
    """A connection. `open()` says hello; afterwards frames go to the receiver."""

    def __init__(
        self, address: str, environment: Environment, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.address = address
        self.writable = True
        self.heartbeat_s = wire.HEARTBEAT_MS / 1000
        self.term = 0
        """Of the leader that has welcomed us."""
        self.learn: Callable[[Nodes], None] = lambda nodes: None
        """Takes the nodes of the cluster where they have changed since the welcome."""
        self.retired = False
        """Whether a later leader has welcomed us: no frame is handed over any more."""
        self.closed = loop.create_future()
        self._environment = environment
        self._loop = loop
        self._opening = Opening(wire.FRAME_BYTES_MAX)
        self._opened: asyncio.Future[HandshakeAnswer] = loop.create_future()
        self._receiver: Receiver | None = None
        self._early: list[Frame] = []
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._watched_at = 0.0
        self._heard_at = self._sent_at = environment.monotonic()
        self._pinged_at: float | None = None
        self._error: FifoError | None = None
        self._hello: Hello | None = None
        self._secret = b""

    def __repr__(self) -> str:
        state = "closed" if self.closed.done() else self._opening.state.value
        return f"<link to {self.address}, {state}>"

    # Opening.

    async def open(self, hello: Hello, secret: bytes = b"") -> HandshakeAnswer:
        """Say hello; the node's welcome or redirect. Raises what the node answers as an error.

        `secret` proves who the hello says we are, where the node asks for it.
        """
        self._hello, self._secret = hello, secret
        self.send(hello)
        return await asyncio.shield(self._opened)

    def attach(self, receiver: Receiver, heartbeat_s: float) -> None:
        """From here on frames go to `receiver`, and silence is noticed."""
        self.heartbeat_s = heartbeat_s
        self._receiver = receiver
        early, self._early = self._early, []
        for frame in early:
            if not self.retired:
                receiver.frame_received(self, frame)
        if self.closed.done():
            receiver.link_lost(self, self._error or ConnectionLost(f"{self.address}: closed"))
            return
        self._look_at(min(heartbeat_s / 2, limits.STALL_S / 2))

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there."""
        # A cast, not a check: the transports of other loops (uvloop) only look like asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=limits.UNSENT_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        """Bytes came: everything that they complete is handled at once."""
        self._heard_at = self._environment.monotonic()
        self._pinged_at = None
        try:
            for frame in self._opening.receive_data(data):
                self._take(frame)
        except RemoteProtocolError as error:
            self.abort(from_code(error.code, f"{self.address} sent {error.text}"))
        except Exception as error:
            # A bug of ours must not leave a connection that looks alive and ignores frames.
            _log.exception("a frame from %s could not be handled", self.address)
            self.abort(FifoError(f"a frame from {self.address} could not be handled: {error!r}"))

    def _take(self, frame: Frame | BadMessage) -> None:
        if self.retired:
            return
        if isinstance(frame, BadMessage):
            raise RemoteProtocolError(frame.code, frame.text)
        message = frame.message
        if not self._opened.done():
            self._take_opening(message)
        elif isinstance(message, Ping):
            self.send(Pong(), frame.correlation)
            if message.nodes:
                self.learn(message.nodes)
        elif isinstance(message, Pong):
            return
        elif self._receiver is None:
            self._early.append(frame)
        else:
            self._receiver.frame_received(self, frame)

    def _take_opening(self, message: Message) -> None:
        if isinstance(message, Welcome | Redirect):
            self.term = message.term if isinstance(message, Welcome) else 0
            self._opened.set_result(message)
        elif isinstance(message, Error):
            error = from_code(message.code, message.text, message.detail)
            self._error = error
            self._opened.set_exception(error)
        elif isinstance(message, Challenge):
            self._prove(message)
        else:
            raise RemoteProtocolError(
                Code.PROTOCOL, f"unexpected {type(message).__name__} during handshake"
            )

    def _prove(self, challenge: Challenge) -> None:
        """Answer a challenge, once, and only the one that our hello has offered."""
        hello, secret = self._hello, self._secret
        if hello is None or challenge.mechanism != hello.mechanism or not secret:
            self._opened.set_exception(
                AuthenticationFailed(
                    f"{self.address} asks for {challenge.mechanism!r}, which we did not offer"
                )
            )
            return
        self._secret = b""
        self.send(Authenticate(challenge.mechanism, secret))

    def connection_lost(self, error: Exception | None) -> None:
        """The transport is gone."""
        self._opening.closed()
        if self._watch is not None:
            self._watch.cancel()
        reason = self._error or ConnectionLost(f"{self.address}: {error or self._hung_up()}")
        self._error = reason
        if not self._opened.done():
            self._opened.set_exception(reason)
        # Looked at, so that asyncio does not complain about a handshake that was abandoned.
        self._opened.exception()
        if not self.closed.done():
            self.closed.set_result(None)
            if self._receiver is not None:
                self._receiver.link_lost(self, reason)

    def _hung_up(self) -> str:
        said = "the node closed the connection"
        plain = self._transport is None or self._transport.get_extra_info("ssl_object") is None
        # A port that speaks TLS, and the port for peers, answer a plain opening by nothing else.
        hint = "; is it fifos:// and not fifo://, and is this a node's client port?"
        return said + hint if plain and not self._opened.done() else said

    def pause_writing(self) -> None:
        """Too many unsent bytes: publishers wait."""
        self.writable = False

    def resume_writing(self) -> None:
        """Go on."""
        self.writable = True
        if self._receiver is not None:
            self._receiver.link_writable(self)

    # Sending.

    def send(self, message: Message, correlation: int = 0, raw: Sequence[Buffer] = ()) -> None:
        """Write one frame; nothing happens on a connection that is closing."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._sent_at = self._environment.monotonic()
        frame = encode(message, correlation, raw, header_bytes_max=wire.REQUEST_HEADER_BYTES_MAX)
        if sum(map(len, frame)) <= limits.JOIN_BYTES_MAX:
            transport.write(b"".join(frame))
            return
        for piece in coalesced(frame):
            transport.write(piece)

    # Heartbeats.

    def _look_at(self, delay_s: float) -> None:
        self._watched_at = self._loop.time() + delay_s
        self._watch = self._loop.call_at(self._watched_at, self._look)

    def _look(self) -> None:
        """Say something where we were silent; give the node up where it was for too long."""
        now = self._environment.monotonic()
        period = min(self.heartbeat_s / 2, limits.STALL_S / 2)
        if self._loop.time() - self._watched_at > limits.STALL_S / 2:
            # Our own loop was blocked: what the node said meanwhile may still lie in the socket.
            self._heard_at = max(self._heard_at, now - period)
            self._pinged_at = None
        silent = now - self._heard_at
        owed = self._receiver is not None and self._receiver.owes_answers()
        if silent >= self.heartbeat_s * wire.HEARTBEATS_MISSED_MAX or (
            owed and self._pinged_at is not None and now - self._pinged_at >= limits.STALL_S
        ):
            self.abort(ConnectionLost(f"{self.address}: silent for {silent:.1f} s"))
            return
        if owed and silent >= limits.STALL_S and self._pinged_at is None:
            self._pinged_at = now
            self.send(Ping())
        elif now - self._sent_at >= self.heartbeat_s - period / 2:
            self.send(Ping())
        self._look_at(period)

    # Closing.

    def abort(self, error: FifoError) -> None:
        """Drop the connection for this reason, unsent bytes and all."""
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close now; the receiver hears nothing more.

        What is unsent is dropped, for no caller waits for its answer any more. To wait until the
        node has read it, or has said goodbye over TLS, would outlive the program's event loop.
        """
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    def fileno(self) -> int:
        """The socket's descriptor, -1 without one: for what a forked child must let go of."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        return -1 if sock is None else int(sock.fileno())


def coalesced(parts: Iterable[Buffer]) -> Iterable[Buffer]:
    """Small buffers joined to a size worth a system call; large ones as they are."""
    small: list[Buffer] = []
    size = 0
    for part in parts:
        length = len(part)
        if length > limits.JOIN_BYTES_MAX:
            if small:
                yield small[0] if len(small) == 1 else b"".join(small)
                small, size = [], 0
            yield part
            continue
        small.append(part)
        size += length
        if size >= limits.WRITE_BYTES:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)
