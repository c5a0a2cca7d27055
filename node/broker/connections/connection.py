"""One client connection: bytes in, frames to its owner; frames out, bounded both ways.

Owns decoding, the pause of reading while the peer has too much unanswered, the bounded output, and
closing. Must not know sessions, leadership or what a message means: the owner decides. An owner
that raises while it looks at a request costs that request an `internal` error, never the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from fifo.wire import BadMessage, Buffer, Code, Frame, Opening, RemoteProtocolError, encode
from fifo.wire.errors import RETRYABLE
from fifo.wire.handshake import FROM_CLIENT
from fifo.wire.limits import TEXT_BYTES_MAX
from fifo.wire.messages import Confirms, Error, Message
from node.broker import limits
from node.broker.connections.output import Later, Output

if TYPE_CHECKING:
    from node.broker.connections.sessions import Session
    from node.broker.permissions import Rights

logger = logging.getLogger(__name__)

_PLAIN_CONFIRM = 6
"""Values of a confirm without a list of repeats, which may be a quarter of what a frame holds."""


class Owner(Protocol):
    """What a connection tells whoever accepted it."""

    def connected(self, connection: Connection) -> None:
        """A new connection; nothing has been read from it."""

    def received(self, connection: Connection, frame: Frame) -> None:
        """One frame of the peer, in order."""

    def disconnected(self, connection: Connection) -> None:
        """The connection is closed; told once, also where we closed it."""

    def request_lost(self, connection: Connection) -> None:
        """Nobody can say what became of a request of this connection."""

    def to_flush(self, connection: Connection) -> None:
        """Something waits to be sent: call `flush` in this turn."""

    def to_read(self, connection: Connection) -> None:
        """What it `needs` has to be read from the disk; then tell it that this `came`."""

    def to_watch(self, connection: Connection) -> None:
        """Look at it in each sweep while `holding`."""


class Connection(asyncio.Protocol):
    """The broker's end of one TCP connection.

    `session`, `role` and `epoch` are set by the owner when the hello was answered with a welcome;
    `heartbeat_s` likewise. `rights`: of the user behind it, None where the cluster knows no users.
    Times are seconds of the owner's monotonic clock.
    """

    def __init__(self, owner: Owner, now: Callable[[], float], messages_max: int) -> None:
        """`messages_max`: messages of unanswered publishes above which the peer is not read."""
        self._owner = owner
        self._now = now
        self._messages_max = messages_max
        self.opening = Opening(awaits=FROM_CLIENT)
        self.address = self.host = ""
        self.rights: Rights | None = None
        self.session: Session | None = None
        self.role = 0
        self.epoch = 0
        self.observer = False
        self.said_hello = False
        self.version = 1
        self.heartbeat_s = 5.0
        self.made_at = self.heard_at = self.spoke_at = now()
        self.closing_at: float | None = None
        self.lost = False
        self._queued_for_flush = False
        self._reading_stopped: set[str] = set()
        self._requests = 0
        self._request_bytes = 0
        self._messages = 0
        self._confirms: list[tuple[object, ...]] = []

    # --- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.host = peer[0]
            self.address = f"{peer[0]}:{peer[1]}"
        self.output = Output(self._transport, self._now())
        # Written at once, told as soon as the socket is full, and again when it is empty. Not 0: a
        # TLS transport of the standard loop calls an empty buffer full then, and is never empty.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._owner.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone, or we are."""
        self.lost = True
        self.opening.closed()
        self.output.clear()
        self._owner.disconnected(self)

    def data_received(self, data: bytes) -> None:
        """Bytes in any cut: decode, and hand over what is whole."""
        self.heard_at = self._now()
        if self.closing_at is not None:
            return
        try:
            frames = self.opening.receive_data(data)
        except RemoteProtocolError as error:
            self.fail(error.code, error.text)
            return
        for frame in frames:
            if self.closing_at is not None:
                return
            if isinstance(frame, BadMessage):
                self.refuse(frame.correlation, frame.code, frame.text)
            else:
                self._hand_over(frame)
        if self.opening.decoder.pending_bytes:
            self._owner.to_watch(self)

    def _hand_over(self, frame: Frame) -> None:
        try:
            self._owner.received(self, frame)
        except RemoteProtocolError as error:
            self.fail(error.code, error.text)
        except Exception:
            # A bug of ours in one request: its client hears of it, everybody else goes on.
            name = type(frame.message).__name__
            logger.exception("event=request_failed message=%s peer=%s", name, self.address)
            self.refuse(frame.correlation, Code.INTERNAL, f"{name} failed on the node; see its log")

    def eof_received(self) -> bool:
        """The peer will not send again: this protocol has no half-open connections."""
        return False

    def pause_writing(self) -> None:
        """The socket is full."""
        self.output.blocked = True

    def resume_writing(self) -> None:
        """The socket took everything: the next turn sends on, where a failed read is seen to."""
        self.output.blocked = False
        self._want_flush()

    # --- sending ----------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """True where requests may come and answers may go."""
        return self.closing_at is None and not self.lost

    def send(self, message: Message, correlation: int = 0, raw: Sequence[Buffer] = ()) -> None:
        """Queue a frame for this turn's write."""
        if self.open:
            self.output.add(list(encode(message, correlation, raw)))
            self._want_flush()

    def send_ahead(self, message: Message, correlation: int = 0) -> None:
        """Queue a frame before all that waits: one that says nothing but that we are there."""
        if self.open:
            self.output.add_first(list(encode(message, correlation)))
            self._want_flush()

    def send_later(self, later: Later) -> None:
        """Queue frames that are made when the socket takes them."""
        if self.open:
            self.output.add_later(later)
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

    def confirm(self, item: tuple[object, ...]) -> None:
        """Answer one publish: those of a turn leave in one frame, long ones alone."""
        if len(item) > _PLAIN_CONFIRM:
            self.flush_confirms()
            self.send(Confirms((item,)))
            return
        self._confirms.append(item)
        self._want_flush()

    def flush_confirms(self) -> None:
        """Make frames of the answers to publishes: before anything that must come behind them."""
        items, self._confirms = self._confirms, []
        for at in range(0, len(items), limits.CONFIRMS_PER_FRAME_MAX):
            self.send(Confirms(tuple(items[at : at + limits.CONFIRMS_PER_FRAME_MAX])))

    def flush(self) -> None:
        """Write what waits, as far as the socket takes it."""
        self._queued_for_flush = False
        if self.lost:
            return
        if self._confirms:
            self.flush_confirms()
        now = self._now()
        if not self.output.empty and not self.output.blocked:
            self._flush_output(now)
        if self.closing_at is not None:
            if self.output.empty:
                self._transport.close()
        elif self.output.over:
            logger.warning(
                "event=peer_closed reason=does_not_read peer=%s waiting_bytes=%d",
                self.address,
                self.output.waiting_bytes,
            )
            self.abort()
        if not self.output.empty:
            self._owner.to_watch(self)

    def _flush_output(self, now: float) -> None:
        output = self.output
        output.flush(now)
        if output.stands and self.open:
            self._owner.to_read(self)
        elif output.stands:
            # Nobody waits for it here: whoever comes back for it gets it again.
            output.drop_later()
            output.flush(now)
        self.spoke_at = output.moved_at

    def needs(self) -> Iterable[Sequence[int]]:
        """Entries of the log that have to be read before anything more can be sent."""
        return self.output.needs()

    def came(self) -> None:
        """Some of them were read."""
        self.flush()

    def _want_flush(self) -> None:
        if not self._queued_for_flush:
            self._queued_for_flush = True
            self._owner.to_flush(self)

    @property
    def held_bytes(self) -> int:
        """What this peer makes us hold: answers that it does not take, and an unfinished frame."""
        return self.output.waiting_bytes + self.opening.decoder.pending_bytes

    @property
    def holding(self) -> bool:
        """Whether we hold something for the peer, or wait for it to take our last words."""
        pending_bytes = self.opening.decoder.pending_bytes
        return self.closing_at is not None or not self.output.empty or pending_bytes > 0

    def stalled(self, now: float) -> bool:
        """Whether the peer has taken nothing for long, while something waits for it."""
        output = self.output
        waits = output.blocked and not output.empty
        return waits and now - output.moved_at > limits.STALLED_SECONDS

    # --- closing ----------------------------------------------------------------------------------

    def fail(self, code: str, text: str) -> None:
        """Tell the peer that the connection itself failed, and close it."""
        self.close(Error(code, shorten(text), code in RETRYABLE))

    def close(self, last: Message | None = None, correlation: int = 0) -> None:
        """Close once everything queued, and this last frame, is sent; cut after a while."""
        if not self.open:
            return
        if self._confirms:
            self.flush_confirms()
        if last is not None:
            self.send(last, correlation)
        self.closing_at = self._now()
        self.opening.closed()
        self.flush()
        self._owner.to_watch(self)

    def abort(self) -> None:
        """Cut the connection now."""
        if self.closing_at is None:
            self.closing_at = self._now()
        self.opening.closed()
        if not self.lost:
            self._transport.abort()

    def lose(self, _outcome: object) -> None:
        """A request of this connection was lost: the client has to come back and ask again."""
        self._owner.request_lost(self)

    # --- what is unanswered -----------------------------------------------------------------------

    def begin(self, size_bytes: int, messages: int) -> None:
        """A request is on its way; too many, and the peer is not read."""
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
        """A request has its answer."""
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
        """Leave what the peer sends in the sockets until every reason is gone."""
        if not self._reading_stopped and self.open:
            self._transport.pause_reading()
        self._reading_stopped.add(reason)

    def start_reading(self, reason: str) -> None:
        """One reason is gone."""
        if reason in self._reading_stopped:
            self._reading_stopped.remove(reason)
            if not self._reading_stopped:
                self.heard_at = self._now()
                if self.open:
                    self._transport.resume_reading()

    @property
    def reading(self) -> bool:
        """False while we leave the peer's bytes in the sockets: its silence proves nothing then."""
        return not self._reading_stopped

    def __repr__(self) -> str:
        """One line for a log."""
        number = "-" if self.session is None else self.session.number
        return f"<Connection {self.address} session={number} role={self.role} epoch={self.epoch}>"


def shorten(text: str) -> str:
    """A text that fits into an error frame."""
    if len(text) * 4 <= TEXT_BYTES_MAX:
        return text
    return text.encode()[: TEXT_BYTES_MAX - 3].decode(errors="ignore") + "..."
