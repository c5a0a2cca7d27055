"""Whole queues as they were at one index of the log: pinned views of a node, read page by page.

Owns which node is asked (followers first, for reading costs a node something), the pages, and the
cursors with which another process goes on. Takes nothing from the queue. Must not know how a node
keeps the past.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Protocol, TypedDict, Unpack

from fifo.client import checks
from fifo.client.connection.observing import NodeLink
from fifo.client.connection.session import Session
from fifo.client.consuming.delivered import Delivered, Stretch
from fifo.client.consuming.delivery import Delivery
from fifo.client.consuming.message import StoredMessage
from fifo.client.durations import Duration, milliseconds
from fifo.client.errors import (
    ConnectionLost,
    FifoError,
    InvalidArgument,
    Overloaded,
    ProtocolError,
    Timeout,
)
from fifo.client.matching import Match, match
from fifo.client.views import ConsumerView, QueueView, View, views
from fifo.wire import limits as wire
from fifo.wire.messages import Message as WireMessage
from fifo.wire.messages import Ok, QueueQuery
from fifo.wire.pins import Page, Paged, Pin, PinQuery, Unpin

ScanState = Literal["ready", "locked", "delayed", "dead"]

_PLACES: Final = ("ready", "locked", "delayed")
_ANY: Final = Match()
_NEXT_NODE: Final = (ConnectionLost, Overloaded, Timeout)
"""Answers after which another node is asked."""


class ScanKeywords(TypedDict, total=False):
    """The conditions of a scan: only messages of which all that is given is true."""

    state: ScanState
    """`ready`, `locked`, `delayed`, or `dead`: dead letters, wherever they stand."""
    key: str | bytes
    headers: Mapping[str, str]
    reason: str
    """Of dead letters: `terminated`, `max_deliveries`, `expired`, `overflow`."""
    exception_type: str
    stack_line: str
    """Of dead letters: the line of the stack by which they are grouped."""
    older_than: Duration
    """Since it was published, by the clock of this program."""
    bodies: bool
    """False: leave bodies, keys and headers at the node; each message is empty then."""


class _Spot(NamedTuple):
    position: int
    place: str
    consumer: int
    token: int
    since_ms: int
    until_ms: int
    cause: str


class Shown(Protocol):
    """The view that a message was found in."""

    @property
    def ref(self) -> str:
        """The text that names it."""

    def time_of(self, cluster_ms: int) -> datetime:
        """A time of the cluster's log as wall time."""


class ScannedMessage(StoredMessage):
    """A message as it stood at the index of the view. Times are as the cluster's log knew them: the
    renewals of a lock that its leader has granted since are not in them."""

    __slots__ = ("_spot", "_view")

    def __init__(self, delivery: Delivery, index: int, spot: _Spot, view: Shown) -> None:
        super().__init__(delivery, index)
        self._spot = spot
        self._view = view

    @property
    def position(self) -> int:
        """Its place in the order of the queue."""
        return self._spot.position

    @property
    def cursor(self) -> str:
        """Where to go on behind it: `client.scan(queue, cursor=...)`, in the same view."""
        return f"{self._view.ref}/{self._spot.position + 1}"

    @property
    def state(self) -> str:
        """`ready`, `locked` or `delayed`."""
        return self._spot.place

    @property
    def consumer(self) -> int | None:
        """The number of the consumer that held it."""
        return self._spot.consumer or None

    @property
    def token(self) -> int | None:
        """Its token there."""
        return self._spot.token or None

    @property
    def cause(self) -> str | None:
        """Why it was delayed: `published`, `nack`, `timeout`, ..."""
        return self._spot.cause or None

    @property
    def locked_at(self) -> datetime | None:
        """When it was handed out."""
        return self._view.time_of(self._spot.since_ms) if self._spot.consumer else None

    @property
    def locked_until(self) -> datetime | None:
        """When its lock was to end, at the earliest."""
        return self._view.time_of(self._spot.until_ms) if self._spot.consumer else None

    @property
    def due_at(self) -> datetime | None:
        """When its delay was to end."""
        delayed = self._spot.place == "delayed"
        return self._view.time_of(self._spot.until_ms) if delayed else None


@dataclass(frozen=True, slots=True)
class ScannedPage:
    """Messages of one page; `after` is where the next one begins, 0 behind the last."""

    messages: Delivered[ScannedMessage]
    after: int


class PinnedView:
    """The state of a cluster at one index, pinned on one node; `client.pin()` makes it.

    It lasts while it is used: unused for its lease it ends, and then, or where its node stops, or
    has too little room, every call raises `PinGone` or ConnectionLost. To be closed after use.
    """

    def __init__(self, session: Session, link: NodeLink, address: str, name: bytes) -> None:
        self._session = session
        self._link = link
        self._name = name
        self._cluster_ms = self._wall_ms = 0
        self.address = address
        """The node that keeps it."""
        self.index = 0
        """The index of the log that it shows: all up to it, and nothing after it."""

    def __repr__(self) -> str:
        return f"<pinned view of index {self.index} at {self.address}>"

    @property
    def ref(self) -> str:
        """The text with which another client reads the same view: `client.pinned(ref)`."""
        return f"{self.address}/{self._name.hex()}/{self._cluster_ms}/{self._wall_ms}"

    async def __aenter__(self) -> PinnedView:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the view for all its readers, and the connection."""
        try:
            await self._ask(Unpin(self._name), None)
        except FifoError:
            pass  # It is over, or ends with its lease.
        finally:
            self._link.close()

    def leave(self) -> None:
        """Close the connection alone: other readers go on."""
        self._link.close()

    def time_of(self, cluster_ms: int) -> datetime:
        """A time of the cluster's log as wall time."""
        return datetime.fromtimestamp((self._wall_ms + cluster_ms - self._cluster_ms) / 1000, UTC)

    async def renew(self, *, timeout: Duration | None = None) -> None:
        """Begin its lease anew, as every other call does."""
        result = await self._ask(PinQuery(self._name, "renew"), timeout)
        self.index = int(result["index"])

    async def queues(self, *, timeout: Duration | None = None) -> list[QueueView]:
        """All queues that this user may see, oldest first, as they were."""
        return await self._listed(QueueView, "queues", None, timeout)

    async def consumers(self, queue: str, *, timeout: Duration | None = None) -> list[ConsumerView]:
        """All consumers of a queue, as they were."""
        return await self._listed(ConsumerView, "consumers", checks.name(queue, "queue"), timeout)

    async def ranges(
        self, queue: str, parts: int, *, timeout: Duration | None = None
    ) -> list[tuple[int, int]]:
        """Cut a queue into up to `parts` ranges of positions with about as many messages each."""
        checks.name(queue, "queue")
        checks.integer(parts, "parts", 1, wire.ITEMS_MAX)
        result = await self._ask(PinQuery(self._name, "ranges", queue, 0, parts), timeout)
        return [(first, end) for first, end in result["ranges"]]

    async def page(
        self,
        queue: str,
        *,
        after: int = 0,
        before: int = 2**63 - 1,
        limit: int = 1000,
        timeout: Duration | None = None,
        **wanted: Unpack[ScanKeywords],
    ) -> ScannedPage:
        """Up to `limit` messages from position `after` on; fewer, even none, is not the end."""
        checks.name(queue, "queue")
        checks.integer(after, "after", 0, 2**63 - 1)
        checks.integer(before, "before", 0, 2**63 - 1)
        checks.integer(limit, "limit", 1, wire.PAGE_MESSAGES_MAX)
        headers = wanted.get("headers") or {}
        checks.headers(headers)
        if len(headers) > wire.PAGE_HEADERS_MAX:
            raise InvalidArgument(f"headers: name {wire.PAGE_HEADERS_MAX} at most")
        wants = match(
            {name: wanted.get(name) for name in ("stack_line", "older_than")},
            self._session.environment.wall(),
        )
        request = Page(
            self._name,
            queue,
            after,
            before,
            limit,
            wanted.get("state"),
            checks.key(wanted.get("key")) or None,
            tuple(headers.items()),
            wanted.get("reason"),
            wanted.get("exception_type"),
            wanted.get("bodies", True),
            wants.stack_line,
            wants.published_by_ms,
        )
        frame = await self._link.ask(request, self._session.patience(timeout))
        message = frame.message
        if not isinstance(message, Paged):
            raise ProtocolError(f"expected Paged, got {type(message).__name__}")
        environment = self._session.environment
        delivery = Delivery(message, frame.raw, environment.monotonic(), environment.wall())
        return scanned_page(message, delivery, self, wants)

    def scan(
        self,
        queue: str,
        *,
        after: int = 0,
        before: int = 2**63 - 1,
        page_size: int = 1000,
        **wanted: Unpack[ScanKeywords],
    ) -> Scan:
        """Iterate over the messages of a queue, or over those of a range of positions."""
        return Scan(self, queue, after, before, page_size, wanted)

    async def _listed(
        self, kind: type[Any], query: str, queue: str | None, timeout: Duration | None
    ) -> list[Any]:
        found: list[View] = []
        after = 0
        while True:
            request = PinQuery(self._name, query, queue, after, wire.ITEMS_MAX)
            result = await self._ask(request, timeout)
            found += views(kind, result["rows"])
            after = result["after"]
            if not after:
                return found

    async def _ask(self, message: WireMessage, timeout: Duration | None) -> Any:
        frame = await self._link.ask(message, self._session.patience(timeout))
        if not isinstance(frame.message, Ok):
            raise ProtocolError(f"expected Ok, got {type(frame.message).__name__}")
        return frame.message.result

    def note(self, index: int, cluster_ms: int, wall_ms: int) -> None:
        """Take in which index it shows, and which wall time its cluster time is."""
        self.index, self._cluster_ms, self._wall_ms = index, cluster_ms, wall_ms


class Scan:
    """The messages of a queue in a pinned view: an async iterator, page after page."""

    def __init__(
        self,
        view: PinnedView,
        queue: str,
        after: int,
        before: int,
        page_size: int,
        wanted: ScanKeywords,
    ) -> None:
        self.view = view
        self._queue = checks.name(queue, "queue")
        self._after: int | None = after
        self._before = before
        self._page_size = checks.integer(page_size, "page_size", 1, wire.PAGE_MESSAGES_MAX)
        self._wanted = wanted

    async def next_page(self) -> Sequence[ScannedMessage]:
        """The next page; empty behind the last."""
        while self._after is not None:
            page = await self.view.page(
                self._queue,
                after=self._after,
                before=self._before,
                limit=self._page_size,
                **self._wanted,
            )
            self._after = page.after or None
            if page.messages:
                return page.messages
        return ()

    async def __aiter__(self) -> AsyncIterator[ScannedMessage]:
        while page := await self.next_page():
            for message in page:
                yield message


def scanned_page(
    message: Paged, delivery: Delivery, view: Shown, wants: Match = _ANY
) -> ScannedPage:
    """The messages of a page that are wanted: a node of 0.1.0 looks neither at stacks nor at ages.
    Raises ProtocolError where the page contradicts itself."""
    if sum([one[0] for one in message.spots]) != delivery.count:
        raise ProtocolError("the spots of a page do not add up")
    spots: list[_Spot] = []

    def make(one: Delivery, at: int) -> ScannedMessage:
        spots.extend(() if spots else _spots(message))
        return ScannedMessage(one, at, spots[at], view)

    stretches = [Stretch(delivery, 0, delivery.count)]
    if wants != _ANY:
        chosen = (make(delivery, at) for at in range(delivery.count))
        fits = [wants.is_old(one) and wants.fits_letter(one) for one in chosen]
        stretches = [Stretch(delivery, at, 1) for at, fit in enumerate(fits) if fit]
    return ScannedPage(Delivered(stretches, make), message.after)


def _spots(message: Paged) -> Iterator[_Spot]:
    """The spot of each message."""
    for count, position, place, consumer, token, since_ms, until_ms, cause in message.spots:
        for ahead in range(count):
            held = token + ahead if consumer else 0
            yield _Spot(position + ahead, _PLACES[place], consumer, held, since_ms, until_ms, cause)


async def confirmed_index(session: Session, timeout: Duration | None) -> int:
    """An index whose state shows everything that was confirmed so far."""
    frame = await session.call(QueueQuery(None, "index"), timeout)
    if not isinstance(frame.message, Ok):
        raise ProtocolError(f"expected Ok, got {type(frame.message).__name__}")
    return int(frame.message.result["index"])


class ScanVerbs:
    """The methods of a client about pinned views."""

    _session: Session

    async def pin(
        self, *, lease: Duration = wire.PIN_LEASE_MS / 1000, timeout: Duration | None = None
    ) -> PinnedView:
        """Pin the state of the cluster as it is now, everything confirmed so far included.

        On a follower where one answers, else on the leader. Raises Overloaded where none can.
        """
        patience = self._session.patience(timeout)
        lease_ms = milliseconds(
            lease, "lease", low_ms=wire.PIN_LEASE_MS_MIN, high_ms=wire.PIN_LEASE_MS_MAX
        )
        session = self._session
        request = Pin(await confirmed_index(session, timeout), lease_ms)
        leader = None if session.link is None else session.link.address
        failed: FifoError | None = None
        for address in sorted(session.dialer.addresses, key=lambda one: one == leader):
            try:
                return await self._pin_at(address, request, patience)
            except _NEXT_NODE as error:
                failed = error
        raise failed or ConnectionLost("no node is known that could pin a view")

    async def _pin_at(self, address: str, request: Pin, patience: float) -> PinnedView:
        session = self._session
        link = await NodeLink.open(address, patience, session.environment, session.options)
        try:
            frame = await link.ask(request, patience)
            if not isinstance(frame.message, Ok) or not isinstance(frame.message.result, dict):
                raise ProtocolError(f"expected Ok with a map, got {type(frame.message).__name__}")
            result = frame.message.result
            view = PinnedView(session, link, address, bytes(result["pin"]))
            view.note(result["index"], result["cluster_ms"], result["wall_ms"])
        except BaseException:
            link.close()
            raise
        return view

    async def pinned(self, ref: str, *, timeout: Duration | None = None) -> PinnedView:
        """A view that another client has pinned, by its `ref`. Raises PinGone where it is over."""
        address, name, cluster_ms, wall_ms = _parts(ref, 4)
        session = self._session
        link = await NodeLink.open(
            address, session.patience(timeout), session.environment, session.options
        )
        try:
            view = PinnedView(session, link, address, bytes.fromhex(name))
            view.note(0, int(cluster_ms), int(wall_ms))
            await view.renew(timeout=timeout)
        except BaseException:
            link.close()
            raise
        return view

    async def scan(
        self,
        queue: str,
        *,
        cursor: str | None = None,
        lease: Duration = wire.PIN_LEASE_MS / 1000,
        page_size: int = 1000,
        timeout: Duration | None = None,
        **wanted: Unpack[ScanKeywords],
    ) -> AsyncIterator[ScannedMessage]:
        """Iterate over a whole queue as it is at one index, taking nothing: `async for message in
        client.scan("orders", state="ready")`.

        The view is pinned for as long as this runs. With the `cursor` of a message (`view.scan` of
        a view that `pin` gave) it goes on behind that message, in that view. Raises PinGone.
        """
        if cursor is None:
            async with await self.pin(lease=lease, timeout=timeout) as view:
                async for message in view.scan(queue, page_size=page_size, **wanted):
                    yield message
            return
        ref, position = cursor_parts(cursor)
        view = await self.pinned(ref, timeout=timeout)
        try:
            rest = view.scan(queue, after=position, page_size=page_size, **wanted)
            async for message in rest:
                yield message
        finally:
            view.leave()


def cursor_parts(cursor: object) -> tuple[str, int]:
    """The ref of the view and the position of a cursor; raises InvalidArgument."""
    *ref, position = _parts(cursor, 5)
    return "/".join(ref), int(position)


def _parts(text: object, count: int) -> list[str]:
    """The parts of a ref or a cursor; raises InvalidArgument for any other text."""
    parts = text.split("/") if isinstance(text, str) else []
    numbers = parts[2:]
    if (
        len(parts) != count
        or len(parts[1]) != 2 * wire.PIN_BYTES
        or parts[1].strip("0123456789abcdef")
        or not all(number.isascii() and number.isdigit() for number in numbers)
    ):
        what = "the ref of a pinned view" if count == 4 else "the cursor of a scan"
        raise InvalidArgument(f"{text!r:.80} is not {what}")
    return parts
