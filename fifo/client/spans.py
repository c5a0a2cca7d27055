"""Spans by the messaging conventions of OpenTelemetry, and the context in headers of messages.

Owns their names, kinds, attributes and links. Must not know frames, nor how an outcome reaches a
client: it wraps what publishes, what settles, and the blocks that handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Final, TypeVar

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, SpanKind, StatusCode

from fifo.client.connection.session import Session
from fifo.client.consuming.message import LockedMessage
from fifo.client.consuming.settler import Settler
from fifo.client.consuming.verbs import ACK, SettleResult, Settling
from fifo.client.durations import Duration
from fifo.client.publishing.confirms import Confirm, Confirms
from fifo.client.publishing.publisher import Batch, Extras, Publisher
from fifo.wire.columns import decode_headers, encode_headers
from fifo.words.settlement import Verb

_T = TypeVar("_T")

SYSTEM: Final = "fifo"
"""The value of `messaging.system`."""

TRACEPARENT: Final = "traceparent"
"""Header: the context in which a message was made. A program's own is kept."""


class Spans:
    """Makes the spans of a client, by a tracer of the program's provider."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("fifo")

    def publisher(self, session: Session) -> Publisher:
        """Make the publisher of a client."""
        return TracedPublisher(session, self)

    def settler(self, session: Session) -> Settler:
        """Make the settler of a client."""
        return TracedSettler(session, self)

    def handling(self, message: LockedMessage, block: _T) -> _T:
        """Give the block that handles a message its span: the current one inside of it."""
        stands_in: Any = Handling(self, message, block)
        found: _T = stands_in
        return found

    @contextmanager
    def sending(self, session: Session, queue: str, count: int | None) -> Iterator[Any]:
        """Make the span of a publish."""
        attributes = {**_place(_address(session)), **_about("send", "send", queue)}
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        with self._span(f"send {queue}", SpanKind.PRODUCER, attributes) as span:
            yield span

    @contextmanager
    def settling(
        self, session: Session, what: Settling, queue: str, messages: Sequence[LockedMessage]
    ) -> Iterator[None]:
        """Make the span of a settlement."""
        verb = Verb(what.verb).name.lower()
        attributes = {**_place(_address(session)), **_about(verb, "settle", queue)}
        if len(messages) == 1:
            attributes["messaging.message.id"] = str(messages[0].id)
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        with self._span(f"{verb} {queue}", SpanKind.CLIENT, attributes):
            yield

    def begin(self, message: LockedMessage) -> tuple[Any, Any]:
        """Begin the span of a handler, and make it current; what `end` needs."""
        made_in = propagate.extract(message.headers, context.Context())
        origin = trace.get_current_span(made_in).get_span_context()
        inside = trace.get_current_span().get_span_context().is_valid
        span = self._tracer.start_span(
            f"process {message.queue}",
            None if inside else made_in,
            SpanKind.CONSUMER,
            {
                **_place(message.ledger.settler.address),
                **_about("process", "process", message.queue),
                "messaging.message.id": str(message.id),
                "messaging.message.body.size": len(message.body),
                "fifo.delivery.attempt": message.attempt,
            },
            [Link(origin)] if origin.is_valid else [],
        )
        return span, context.attach(trace.set_span_in_context(span))

    def end(self, began: tuple[Any, Any], error: BaseException | None) -> None:
        """End it, by how the handler ended."""
        span, token = began
        context.detach(token)
        if error is not None:
            _failed(span, error)
        span.end()

    @contextmanager
    def _span(self, name: str, kind: Any, attributes: Mapping[str, Any]) -> Iterator[Any]:
        with self._tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _failed(span, error)
                raise


class Handling:
    """A `process()` block in a span, for `with` or `async with`."""

    __slots__ = ("_began", "_block", "_message", "_spans")

    def __init__(self, spans: Spans, message: LockedMessage, block: Any) -> None:
        self._spans = spans
        self._message = message
        self._block: Any = block
        self._began: Any = None

    def __enter__(self) -> Any:
        self._began = self._spans.begin(self._message)
        block: AbstractContextManager[Any] = self._block
        return block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            return bool(self._block.__exit__(kind, error, trace))
        finally:
            self._spans.end(self._began, error)

    async def __aenter__(self) -> Any:
        self._began = self._spans.begin(self._message)
        block: AbstractAsyncContextManager[Any] = self._block
        return await block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            return bool(await self._block.__aexit__(kind, error, trace))
        finally:
            self._spans.end(self._began, error)


class TracedPublisher(Publisher):
    """A publisher whose calls have spans, and whose messages their context."""

    def __init__(self, session: Session, spans: Spans) -> None:
        super().__init__(session)
        self._spans = spans

    async def publish(
        self,
        producer: int,
        queue: str,
        body: bytes,
        extras: Extras,
        number: int | None,
        timeout: Duration | None,
    ) -> Confirm:
        """See `Publisher`."""
        with self._spans.sending(self.session, queue, None) as span:
            extras = extras._replace(headers=_with_context(extras.headers))
            found = await super().publish(producer, queue, body, extras, number, timeout)
            span.set_attribute("messaging.message.id", str(found.id))
            return found

    async def publish_many(
        self, producer: int, queue: str, batch: Batch, timeout: Duration | None
    ) -> Confirms:
        """See `Publisher`."""
        with self._spans.sending(self.session, queue, len(batch)):
            batch.edit_headers(_with_context)
            return await super().publish_many(producer, queue, batch, timeout)

    async def send_many(
        self, producer: int, queue: str, batch: Batch, timeout: Duration | None
    ) -> asyncio.Task[Confirms]:
        """See `Publisher`; its span ends once all is in the window."""
        with self._spans.sending(self.session, queue, len(batch)):
            batch.edit_headers(_with_context)
            return await super().send_many(producer, queue, batch, timeout)


class TracedSettler(Settler):
    """A settler whose calls have spans: of the receipt where a program waits for it."""

    def __init__(self, session: Session, spans: Spans) -> None:
        super().__init__(session)
        self.spans = self._spans = spans
        self._inside = False
        """Whether a call of this class hands over a message at this moment."""

    def gather(self, message: LockedMessage) -> SettleResult:
        """See `Settler`."""
        if self._inside:
            return super().gather(message)
        with self._spans.settling(self.session, ACK, message.queue, [message]):
            return super().gather(message)

    def gather_many(self, messages: Sequence[LockedMessage]) -> None:
        """See `Settler`."""
        self._inside = True
        try:
            super().gather_many(messages)
        finally:
            self._inside = False
        for queue, own in _by_queue(messages):
            with self._spans.settling(self.session, ACK, queue, own):
                pass

    def send(
        self,
        message: LockedMessage,
        what: Settling,
        future: asyncio.Future[SettleResult] | None = None,
    ) -> SettleResult:
        """See `Settler`."""
        if future is not None:  # in a call that has a span
            return super().send(message, what, future)
        with self._spans.settling(self.session, what, message.queue, [message]):
            return super().send(message, what)

    async def settle(
        self, message: LockedMessage, what: Settling, *, receipt: bool
    ) -> SettleResult:
        """See `Settler`."""
        if not receipt:
            return self.send(message, what)
        with self._spans.settling(self.session, what, message.queue, [message]):
            return await super().settle(message, what, receipt=True)

    async def settle_many(
        self, messages: Sequence[LockedMessage], what: Settling = ACK
    ) -> list[SettleResult]:
        """See `Settler`."""
        queues = {message.queue for message in messages}
        queue = queues.pop() if len(queues) == 1 else "(several)"
        with self._spans.settling(self.session, what, queue, messages):
            return await super().settle_many(messages, what)


def _by_queue(messages: Sequence[LockedMessage]) -> Iterator[tuple[str, list[LockedMessage]]]:
    found: dict[str, list[LockedMessage]] = {}
    for message in messages:
        found.setdefault(message.queue, []).append(message)
    yield from found.items()


def _about(name: str, kind: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _address(session: Session) -> str:
    return "" if session.link is None else session.link.address


def _place(address: str) -> dict[str, Any]:
    """The node that a client is connected to, where it is."""
    host, _, port = address.rpartition(":")
    return {"server.address": host, "server.port": int(port)} if host else {}


def _failed(span: Any, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    if isinstance(error, Exception):
        span.record_exception(error)
        span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")


def _with_context(encoded: bytes) -> bytes:
    """The headers with the current context, where they have none and there is room."""
    headers = decode_headers(encoded) if encoded else {}
    if TRACEPARENT in headers:
        return encoded
    own: dict[str, str] = {}
    propagate.inject(own)
    if not own:
        return encoded
    try:
        return encode_headers(own | headers)
    except ValueError:
        return encoded  # a span more is not worth a message less
