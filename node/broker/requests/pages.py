"""Pages of long lists: locks, delayed messages, consumers and producers of a queue, sessions.

Owns the cursors and the size of a page. An item that comes or goes between two pages moves no other
one: a cursor names the last item that was seen, by numbers that are never used again, of a delayed
message by the time at which it is due, too. Must not know who may see a queue: `permissions.py`
does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgpack

from fifo.machine.contract import Machine
from fifo.wire import Code, Frame
from fifo.wire.limits import LISTED_OF_QUEUE_MAX
from fifo.wire.messages import Ok, QueueQuery
from node.broker import limits, views
from node.broker.clock import ClusterClock
from node.broker.connections.connection import Connection
from node.broker.lock_clock import LockClock
from node.broker.refusals import plain
from node.broker.requests.people import People
from node.broker.requests.proposer import message_of, refuse_no_queue

PAGES: Final = ("locks_page", "delayed_page", "consumers_page", "producers_page", "sessions_page")
"""The queries that are answered here; their `prefix` is the cursor."""

Cursor: TypeAlias = tuple[int, int]

_START: Final = (0, 0)
_DIGITS_MAX: Final = 19


class Pages:
    """Answers these queries, on the leader."""

    def __init__(
        self, machine: Machine, locks: LockClock, clock: ClusterClock, people: People
    ) -> None:
        self._machine = machine
        self._locks = locks
        self._clock = clock
        self._people = people

    def answer(self, connection: Connection, frame: Frame) -> Iterator[None]:
        """Answer with a page and the cursor of the next one, in pieces."""
        query = message_of(frame, QueueQuery)
        cursor = _cursor(query.prefix)
        wrong = _wrong(query, cursor)
        if wrong is not None:
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, wrong)
            return
        assert cursor is not None, "looked at before"
        if query.query != "sessions_page" and not self._machine.has_queue(query.queue or ""):
            refuse_no_queue(connection, frame.correlation, query.queue)
            return
        found: list[Any] = []
        left_bytes = limits.LIST_BYTES_MAX
        more, last = None, _START
        for place, row in self._rows(connection, query, cursor):
            left_bytes -= len(msgpack.packb(plain(row)))
            if len(found) == query.limit or (left_bytes < 0 and found):
                more = f"{last[0]}.{last[1]}"
                break
            found.append(plain(row))
            last = place
            if len(found) % limits.LIST_PIECE == 0:
                yield
        connection.send(Ok({"items": found, "next": more}), frame.correlation)

    def _rows(
        self, connection: Connection, query: QueueQuery, cursor: Cursor
    ) -> Iterator[tuple[Cursor, dict[str, Any]]]:
        """Rows of the page with their places, and one more, so that its end is known."""
        machine, now_ms, most = self._machine, self._clock.now_ms(), query.limit + 1
        name, after = query.queue or "", cursor[0]
        match query.query:
            case "locks_page":
                for row in views.locks_of(machine, self._locks, name, most, now_ms, cursor):
                    yield (row["consumer"], row["token"]), row
            case "delayed_page":
                yield from views.delayed_behind(machine, name, most, now_ms, cursor)
            case "consumers_page":
                for row in views.consumers_of(machine, name, most, after=after):
                    yield (row["consumer"], 0), row
            case "producers_page":
                for row in views.producers_of(machine, name, most, now_ms, after):
                    yield (row["producer"], 0), row
            case _:
                for row in self._people.sessions(connection.rights, after):
                    yield (row["number"], 0), row


def _cursor(text: str) -> Cursor | None:
    """The place that a cursor names; None for a text that is none."""
    if not text:
        return _START
    parts = text.split(".")
    if len(parts) != 2 or not all(
        part.isascii() and part.isdigit() and len(part) <= _DIGITS_MAX for part in parts
    ):
        return None
    return int(parts[0]), int(parts[1])


def _wrong(query: QueueQuery, cursor: Cursor | None) -> str | None:
    if cursor is None:
        return f"{query.prefix[:40]!r} is no cursor: give the `next` of the page before"
    if query.limit > LISTED_OF_QUEUE_MAX:
        return f"a page has at most {LISTED_OF_QUEUE_MAX} items, not {query.limit}"
    return None
