"""Pages of long lists: locks, delayed messages, consumers and producers of a queue, sessions.

Owns this method of the client and the form of its answer. Must not know what a view shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fifo.client import checks
from fifo.client.connection.session import Session
from fifo.client.durations import Duration
from fifo.client.errors import ProtocolError
from fifo.client.views import (
    ConsumerView,
    DelayedView,
    LockView,
    ProducerView,
    SessionView,
    View,
    views,
)
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
        behind the page that gave `after`; what comes or goes meanwhile moves no other one."""
        checks.one_of(what, "what", *_KINDS)
        if what != "sessions" or queue is not None:
            checks.name(queue, "queue")
        checks.integer(limit, "limit", 1, wire.LISTED_OF_QUEUE_MAX)
        cursor = "" if after is None else checks.name(after, "after")
        query = QueueQuery(queue, f"{what}_page", limit, prefix=cursor)
        frame = await self._session.call(query, timeout)
        found = frame.message.result if isinstance(frame.message, Ok) else None
        if not isinstance(found, dict):
            raise ProtocolError(f"expected Ok with a map, got {type(frame.message).__name__}")
        return ListedPage(tuple(views(_KINDS[what], found["items"])), found["next"])
