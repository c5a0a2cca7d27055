"""A client connection: bytes in, frames to its owner; frames out, bounded both ways.

Owns decoding, backpressure while the peer has too many unanswered requests, the bounded output, and
closing. Must not know sessions, leadership or what a message means: the owner decides. An owner
that raises while it handles a request costs that request an `internal` error, never the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, cast

from fifo.wire import BadMessage, Buffer, Code, Frame, Opening, RemoteProtocolError, encode
from fifo.wire.errors import RETRYABLE
from fifo.wire.handshake import FROM_CLIENT
from fifo.wire.limits import TEXT_BYTES_MAX
from fifo.wire.messages import Confirms, Error, Message
from node.broker import limits
from node.broker.connections.input_turns import Share
from node.broker.connections.output import Deferred, Output
from node.broker.connections.proxy_header import Source
from node.broker.permissions import Rights
from node.certificates import subject_of

logger = logging.getLogger(__name__)

_ERROR = 5
"""The place of the error in a confirm."""

_PLAIN_CONFIRM = 6
"""Values of a confirm without a list of repeats, which may fill a quarter of a frame."""


class Binding(Protocol):
    """The session that a connection was attached to, as far as a request needs it."""

    number: int
    ending: bool
    """True once the client has asked to close the session."""


class Owner(Protocol):
    """Notifications of a connection to the part that accepted it."""

    def connected(self, connection: Connection) -> None:
        """A new connection; nothing has been read from it."""

    def arrived(self, connection: Connection) -> None:
        """Bytes have arrived: call `handle`, now or in turn."""

    def to_handle(self, connection: Connection) -> None:
        """Something that has arrived waits: call `handle` in turn."""

    def received(self, connection: Connection, frame: Frame) -> None:
        """The next frame of the peer."""

    def disconnected(self, connection: Connection) -> None:
        """The connection is closed, by either side. Called once."""

    def request_lost(self, connection: Connection) -> None:
        """The outcome of a request of this connection is unknown."""

    def to_flush(self, connection: Connection) -> None:
        """Output waits: call `flush` in this turn."""

    def to_read(self, connection: Connection) -> None:
        """Read the entries that it `needs` from the disk, then call `entries_cached`."""

    def to_watch(self, connection: Connection) -> None:
        """Check it in each sweep while `holding`."""

    def answered(self, kind: type[Message], seconds: float) -> None:
        """Note the time from the receipt of a request until its answer."""


class Connection(asyncio.Protocol):
    """The broker's end of one TCP connection.

    `session`, `role`, `epoch` and `heartbeat_s` are set by the owner during the handshake.
    `rights`: of the authenticated user, None in a cluster without users. `proxied`: it came through
    a balancer, from `source` where that speaks for a client; `host` is the client's then.
    `subject`: of the certificate that the client showed. Times are seconds of the owner's monotonic
    clock.
    """

    def __init__(self, owner: Owner, now: Callable[[], float], messages_max: int) -> None:
        """`messages_max`: messages of unanswered publishes above which reading pauses."""
        self._owner = owner
        self._now = now
        self._messages_max = messages_max
        self.opening = Opening(awaits=FROM_CLIENT)
        self.address = self.host = ""
        self.proxied = False
        self.source: Source | None = None
        self.subject: str | None = None
        self.rights: Rights | None = None
        self.without_user = False
        """Whether it was let in while the cluster had no users."""
        self.session: Binding | None = None
        self.role = 0
        self.epoch = 0
        self.observer = False
        self.said_hello = False
        self.version = 1
        self.heartbeat_s = 5.0
        self.made_at = self.heard_at = self.spoke_at = now()
        self.closing_at: float | None = None
        self._has_last = False
        """Whether a frame says why it is closed."""
        self.lost = False
        self.queued = False
        self._queued_for_flush = False
        self._reading_stopped: set[str] = set()
        self._answering: tuple[Frame, Iterator[None]] | None = None
        self._requests = 0
        self._request_bytes = 0
        self._messages = 0
        self._confirms: list[tuple[object, ...]] = []
        self._asked: dict[int, tuple[type[Message], float]] = {}

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start: the transport is connected."""
        self._transport = cast("asyncio.Transport", transport)
        peer = self.source or transport.get_extra_info("peername")
        if peer:
            self.host = peer[0]
            self.address = f"{peer[0]}:{peer[1]}"
        certificate = transport.get_extra_info("peercert")
        if certificate:  # Verified: an unknown authority ends the handshake.
            self.subject = subject_of(certificate)
        self.output = Output(self._transport, self._now())
        # Write at once; be notified as soon as the socket is full, and again when it is empty. Not
        # 0: a TLS transport of the standard loop takes an empty buffer for a full one then.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._owner.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop: the transport is closed, by either side."""
        self.lost = True
        self._answering = None  # What it waits for is waited for no longer.
        self.opening.closed()
        self.output.clear()
        self._owner.disconnected(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes, cut anywhere; their frames are handled within this connection's share."""
        self.heard_at = self._now()
        if self.closing_at is None:
            decoder = self.opening.decoder
            decoder.feed(data)  # The opening is not closed, or `closing_at` were set.
            self._owner.arrived(self)
            if not decoder.empty:
                self._owner.to_watch(self)

    def handle(self, share: Share) -> bool:
        """Handle what has arrived, within the share; whether more waits for the next turn.

        While the peer has too many unanswered requests, its frames wait here as in its socket.
        """
        while self.closing_at is None and not self.lost and not self._reading_stopped:
            kind = self._handle_next()
            if kind is None:
                return False
            if share.spend(kind):
                return self._waits
            if self._answering is None and self.opening.decoder.empty:
                return False
        return False

    @property
    def _waits(self) -> bool:
        """Whether anything is left to handle."""
        return self._answering is not None or not self.opening.decoder.empty

    def _handle_next(self) -> type[Message] | None:
        """Handle a frame, or a piece of a long answer; return what it was, None if none is left."""
        if self._answering is not None:
            return self._answer_piece(*self._answering)
        try:
            frame = self.opening.next_frame()
        except RemoteProtocolError as error:
            self.fail(error.code, error.text)
            return None
        if frame is None:
            return None
        if isinstance(frame, BadMessage):
            self.refuse(frame.correlation, frame.code, frame.text)
            return Message
        kind = type(frame.message)
        if frame.correlation and len(self._asked) < limits.REQUESTS_TIMED_MAX:
            self._asked[frame.correlation] = kind, self.heard_at
        try:
            self._owner.received(self, frame)
        except Exception as error:
            self._failed(frame, error)
        return kind

    def answer_in_pieces(self, frame: Frame, pieces: Iterator[None]) -> None:
        """Answer a request by exhausting `pieces`, each of which counts as a frame of the peer; the
        peer's next frame comes after them. To be called while that frame is handled."""
        self._answering = frame, pieces

    def _answer_piece(self, frame: Frame, pieces: Iterator[None]) -> type[Message]:
        try:
            next(pieces)
        except StopIteration:
            self._answering = None
        except Exception as error:
            self._answering = None
            self._failed(frame, error)
        return type(frame.message)

    def _failed(self, frame: Frame, error: Exception) -> None:
        """Answer for a handler that raised: a bug in one request costs its client an answer."""
        if isinstance(error, RemoteProtocolError):
            self.fail(error.code, error.text)
            return
        name = type(frame.message).__name__
        logger.error("event=request_failed message=%s peer=%s", name, self.address, exc_info=error)
        self.refuse(frame.correlation, Code.INTERNAL, f"{name} failed on this node; see its log")

    def eof_received(self) -> bool:
        """Close when the peer has: this protocol has no half-open connections."""
        return False

    def pause_writing(self) -> None:
        """The socket is full."""
        self.output.blocked = True

    def resume_writing(self) -> None:
        """The socket took everything: continue in the next turn, which handles a failed read."""
        self.output.blocked = False
        if not self._queued_for_flush:
            self._want_flush()

    # --- sending ----------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """True where requests may come and answers may go."""
        return self.closing_at is None and not self.lost

    def send(self, message: Message, correlation: int = 0, raw: Sequence[Buffer] = ()) -> None:
        """Queue a frame for this turn's write."""
        if self.closing_at is None and not self.lost:
            self.output.add(list(encode(message, correlation, raw)))
            if not self._queued_for_flush:
                self._want_flush()
            if correlation:
                self.answered(correlation)

    def answered(self, correlation: int) -> None:
        """Note that a request has its answer."""
        asked = self._asked.pop(correlation, None)
        if asked is not None:
            self._owner.answered(asked[0], self._now() - asked[1])

    def send_ahead(self, message: Message, correlation: int = 0) -> None:
        """Queue a frame ahead of all others: for heartbeats, which carry no data."""
        if self.open:
            self.output.add_first(list(encode(message, correlation)))
            if not self._queued_for_flush:
                self._want_flush()

    def send_deferred(self, deferred: Deferred) -> None:
        """Queue frames that are made when the socket takes them."""
        if self.open:
            self.output.add_deferred(deferred)
            if not self._queued_for_flush:
                self._want_flush()

    def refuse(
        self,
        correlation: int,
        code: str,
        text: str,
        detail: object = None,
        *,
        retryable: bool | None = None,
    ) -> None:
        """Answer one request with an error."""
        if retryable is None:
            retryable = code in RETRYABLE
        self.send(Error(code, shorten(text), retryable, detail), correlation)

    def confirm(self, correlation: int, item: tuple[object, ...]) -> None:
        """Answer one publish. Confirms of a turn leave in one frame, long ones alone."""
        item = (correlation, *item)
        if len(item) > _PLAIN_CONFIRM:
            self.flush_confirms()
            self.send(Confirms((item,)))
            self.answered(correlation)
            return
        self._confirms.append(item)
        if not self._queued_for_flush:
            self._want_flush()
        self.answered(correlation)

    def flush_confirms(self) -> None:
        """Queue pending confirms as frames, ahead of anything that must follow them."""
        items, self._confirms = self._confirms, []
        most = limits.CONFIRMS_PER_FRAME_MAX
        for item in items:
            if item[_ERROR] is not None:
                most = limits.REFUSED_PER_FRAME_MAX
        for at in range(0, len(items), most):
            self.send(Confirms(tuple(items[at : at + most])))

    def flush(self) -> None:
        """Write waiting output, as far as the socket takes it."""
        if self._confirms and not self.lost:
            self.flush_confirms()
        # Only now: a confirm on its way to the socket asks for no other flush.
        self._queued_for_flush = False
        if self.lost:
            return
        output = self.output
        if output.items and not output.blocked:
            self._flush_output(self._now())
        if self.closing_at is not None:
            if not output.items:
                self._transport.close()
        elif output.items and output.over:
            logger.warning(
                "event=peer_closed reason=does_not_read peer=%s waiting_bytes=%d",
                self.address,
                self.output.waiting_bytes,
            )
            self.abort()
        if output.items:
            self._owner.to_watch(self)

    def _flush_output(self, now: float) -> None:
        output = self.output
        output.flush(now)
        if output.stands and self.open:
            self._owner.to_read(self)
        elif output.stands:
            # The peer is leaving: a resumed session gets these deliveries again, and asks again for
            # what was not answered.
            output.end_before_deferred(last=self._has_last)
            output.flush(now)
        self.spoke_at = output.moved_at

    def needs(self) -> Iterable[Sequence[int]]:
        """Entries of the log that have to be read before more can be sent."""
        return self.output.needs()

    def entries_cached(self) -> None:
        """Continue: some of those entries were read."""
        self.flush()

    def _want_flush(self) -> None:
        self._queued_for_flush = True
        self._owner.to_flush(self)

    @property
    def held_bytes(self) -> int:
        """Memory held for this peer: answers that it does not take, and an unfinished frame."""
        return self.output.waiting_bytes + self.opening.decoder.pending_bytes

    @property
    def holding(self) -> bool:
        """Whether output, an unfinished frame or a pending close keeps this connection busy."""
        unfinished = not self.opening.decoder.empty
        return self.closing_at is not None or bool(self.output.items) or unfinished

    def stalled(self, now: float) -> bool:
        """Whether output waits and the peer has taken none of it for too long."""
        output = self.output
        waits = output.blocked and bool(output.items)
        return waits and now - output.moved_at > limits.STALLED_SECONDS

    # --- closing ----------------------------------------------------------------------------------

    def fail(self, code: str, text: str) -> None:
        """Send an error for the connection itself, and close it."""
        self.close(Error(code, shorten(text), code in RETRYABLE))

    def close(self, last: Message | None = None, correlation: int = 0) -> None:
        """Close once all queued frames and this last one are sent; abort after a timeout."""
        if not self.open:
            return
        if self._confirms:
            self.flush_confirms()
        if last is not None:
            self.send(last, correlation)
            self._has_last = True
        self.closing_at = self._now()
        self.opening.closed()
        self.flush()
        self._owner.to_watch(self)

    def abort(self) -> None:
        """Close the connection now, without sending."""
        if self.closing_at is None:
            self.closing_at = self._now()
        self.opening.closed()
        if not self.lost:
            self._transport.abort()

    def lose(self, _outcome: object) -> None:
        """Redirect the client: the outcome of one of its requests is unknown, and it must retry."""
        self._owner.request_lost(self)

    # --- backpressure -----------------------------------------------------------------------------

    def begin(self, size_bytes: int, messages: int) -> None:
        """Count a request as unanswered; with too many of them, reading pauses."""
        self._requests += 1
        self._request_bytes += size_bytes
        self._messages += messages
        if (
            self._requests >= limits.REQUESTS_IN_FLIGHT_MAX
            or self._request_bytes >= limits.REQUEST_BYTES_IN_FLIGHT_MAX
            or self._messages >= self._messages_max
        ):
            self.stop_reading("in_flight")

    def end(self, size_bytes: int, messages: int) -> None:
        """Count a request as answered."""
        self._requests -= 1
        self._request_bytes -= size_bytes
        self._messages -= messages
        if (
            self._reading_stopped
            and self._requests <= limits.REQUESTS_IN_FLIGHT_MAX // 2
            and self._request_bytes <= limits.REQUEST_BYTES_IN_FLIGHT_MAX // 2
            and self._messages <= self._messages_max // 2
        ):
            self.start_reading("in_flight")

    def stop_reading(self, reason: str) -> None:
        """Pause reading until every reason has been withdrawn."""
        if self.reading and self.open:
            self._transport.pause_reading()
        self._reading_stopped.add(reason)

    def start_reading(self, reason: str) -> None:
        """Withdraw one reason to pause; without any, go on with what waits, then read."""
        if reason in self._reading_stopped:
            self._reading_stopped.remove(reason)
            if self.reading:
                if self.open and self._waits:
                    self._owner.to_handle(self)
                self._read_again()

    def pause_for_turn(self) -> None:
        """Do not read while frames wait for this connection's turn."""
        if not self._reading_stopped and self.open:
            self._transport.pause_reading()

    def resume_after_turn(self) -> None:
        """Read again: what had arrived is handled, or waits for another reason."""
        self._read_again()

    def _read_again(self) -> None:
        if self.reading:
            self.heard_at = self._now()
            if self.open:
                self._transport.resume_reading()

    @property
    def reading(self) -> bool:
        """False while reading is paused: the peer's silence proves nothing then."""
        return not (self._reading_stopped or self.queued)

    def __repr__(self) -> str:
        """Describe the connection in a line for a log."""
        number = "-" if self.session is None else self.session.number
        return f"<Connection {self.address} session={number} role={self.role} epoch={self.epoch}>"


def shorten(text: str) -> str:
    """Cut a text to what fits into an error frame."""
    if len(text) * 4 <= TEXT_BYTES_MAX:
        return text
    return text.encode()[: TEXT_BYTES_MAX - 3].decode(errors="ignore") + "..."
