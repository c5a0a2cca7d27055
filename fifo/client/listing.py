"""Pages of long lists: locks, delayed messages, consumers and producers of a queue, sessions.

Owns this method of the client and the form of its answer, also where a node of 0.1.0 leads, which
lists without pages. Must not know what a view shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fifo.client import checks
from fifo.client.connection.session import Session
from fifo.client.durations import Duration
from fifo.client.errors import (
    FifoError,
    InvalidArgument,
    ProtocolError,
    QueueNotFound,
    from_code,
)
from fifo.client.views import (
    ConsumerView,
    DelayedView,
    LockView,
    ProducerView,
    SessionView,
    View,
    views,
)
from fifo.wire import Code, Frame
from fifo.wire import limits as wire
from fifo.wire.messages import Ok, QueueQuery

Listed = Literal["locks", "delayed", "consumers", "producers", "sessions"]

_KINDS: Final[Mapping[str, type[View]]] = {
    "locks": LockView,
    "delayed": DelayedView,
    "consumers": ConsumerView,
    "producers": ProducerView,
    "sessions": SessionView,
}


@dataclass(frozen=True, slots=True)
class ListedPage:
    """Views of one page; `next` is the cursor of the page behind it, None behind the last."""

    items: tuple[Any, ...]
    next: str | None


class ListVerbs:
    """The method of a client about long lists."""

    _session: Session

    async def list_page(
        self,
        what: Listed,
        queue: str | None = None,
        *,
        after: str | None = None,
        limit: int = 1000,
        timeout: Duration | None = None,
    ) -> ListedPage:
        """Up to `limit` locks, delayed messages, consumers or producers of a queue, or sessions,
        behind the page that gave `after`; what comes or goes meanwhile moves no other one. A leader
        of release 0.1.0 has one page at most: raises Unsupported where there is more."""
        checks.one_of(what, "what", *_KINDS)
        if what != "sessions" or queue is not None:
            checks.name(queue, "queue")
        checks.integer(limit, "limit", 1, wire.LISTED_OF_QUEUE_MAX)
        cursor = "" if after is None else checks.name(after, "after")
        query = QueueQuery(queue, f"{what}_page", limit, prefix=cursor)
        try:
            frame = await self._session.call(query, timeout)
        except (InvalidArgument, QueueNotFound) as error:
            if not _lacks_pages(error, queue):
                raise
            return await self._only_page(what, queue, after, limit, timeout)
        found = _result(frame)
        if not isinstance(found, dict):
            raise ProtocolError(f"expected a page as a map, got {type(found).__name__}")
        return ListedPage(tuple(views(_KINDS[what], found["items"])), found["next"])

    async def _only_page(
        self,
        what: Listed,
        queue: str | None,
        after: str | None,
        limit: int,
        timeout: Duration | None,
    ) -> ListedPage:
        """The whole list, by the query that has no cursor. Raises Unsupported where it is longer
        than a page."""
        most = wire.LISTED_OF_QUEUE_MAX
        if after is None:
            query = QueueQuery(queue, what, min(limit + 1, most))
            found = views(_KINDS[what], _result(await self._session.call(query, timeout)))
            if len(found) <= limit and len(found) < most:
                return ListedPage(found, None)
            fix = f"ask for up to {most - 1} at once, not {limit}, or"
        else:
            fix = "begin without a cursor, or"
        text = (
            f"the leader runs release 0.1.0, which has no pages of {what} behind the first:"
            f" {fix} go on when the leader is upgraded"
        )
        raise from_code(Code.UNSUPPORTED, text)


def _result(frame: Frame) -> Any:
    if not isinstance(frame.message, Ok):
        raise ProtocolError(f"expected Ok, got {type(frame.message).__name__}")
    return frame.message.result


def _lacks_pages(error: FifoError, queue: str | None) -> bool:
    """Whether a node of 0.1.0 has refused the query for a page: it takes it for one of a queue."""
    if queue is None:
        return isinstance(error, QueueNotFound)
    return isinstance(error, InvalidArgument) and str(error).startswith("unknown query")
