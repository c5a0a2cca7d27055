"""Queries: answered from the leader's memory, without a log entry.

Owns the conditions of an answer: the user's rights and the size of a frame. That no other leader
has taken over is for `node/broker/reads.py` to prove. Changes nothing. Must not know how views are
computed: `node/broker/views.py` and the machine do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgpack

from fifo.machine.contract import Machine
from fifo.wire import Code, Frame
from fifo.wire.limits import LISTED_OF_QUEUE_MAX
from fifo.wire.messages import Ok, Peek, QueueQuery
from node.broker import deliveries, limits, views
from node.broker.alarms import Alarms
from node.broker.clock import ClusterClock
from node.broker.connections.connection import Binding, Connection
from node.broker.connections.deferred_frames import PeekAnswer
from node.broker.lock_clock import LockClock
from node.broker.reads import WhenCurrent, at_once
from node.broker.refusals import plain
from node.broker.requests.pages import PAGES, Pages
from node.broker.requests.people import People
from node.broker.requests.proposer import message_of, refuse_no_queue


class Queries:
    """Handler of queries and peeks."""

    def __init__(
        self,
        machine: Machine,
        locks: LockClock,
        clock: ClusterClock,
        read_area: deliveries.ReadArea,
        alarms: Alarms,
        when_current: WhenCurrent,
        people: People,
        applied_index: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._locks = locks
        self._clock = clock
        self._read_area = read_area
        self._alarms = alarms
        self._when_current = when_current
        self._people = people
        self._applied_index = applied_index
        self._pages = Pages(machine, locks, clock, people)

    def query(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Answer a list of queues, sessions or users, the index of now, or a view of a queue."""
        query = message_of(frame, QueueQuery)
        if query.query == "list":
            answer = self._list(connection, frame, query)
        elif query.query in ("sessions", "users"):
            answer = self._people.listed(connection, frame)
        elif query.query in PAGES:
            answer = self._pages.answer(connection, frame)
        elif query.query == "index":
            answer = at_once(partial(self._index, connection, frame))
        else:
            answer = at_once(partial(self._about_queue, connection, frame, query))
        self._when_current(connection, frame, answer)

    def _index(self, connection: Connection, frame: Frame) -> None:
        """Answer with an index that everything confirmed so far has: for a pin on another node."""
        connection.send(Ok({"index": self._applied_index()}), frame.correlation)

    def _about_queue(self, connection: Connection, frame: Frame, query: QueueQuery) -> None:
        if query.queue is None or not self._machine.has_queue(query.queue):
            refuse_no_queue(connection, frame.correlation, query.queue)
        else:
            self._one_queue(connection, frame, query, query.queue)

    def _list(self, connection: Connection, frame: Frame, query: QueueQuery) -> Iterator[None]:
        """List the queues that the user may see, in brief if whole ones do not fit; in pieces of
        one queue, for thousands take most of a second."""
        rights, limit, prefix = connection.rights, query.limit, query.prefix

        def sees(queue: str) -> bool:
            return queue.startswith(prefix) and (rights is None or rights.sees(queue))

        for brief in (False, True):
            left_bytes = limits.LIST_BYTES_MAX
            found = []
            for view in views.overviews(self._machine, self._alarms, limit, sees=sees, brief=brief):
                shown = plain(view)
                left_bytes -= _packed_bytes(shown)
                if left_bytes < 0:
                    break
                found.append(shown)
                yield
            if left_bytes >= 0:
                connection.send(Ok(found), frame.correlation)
                return
        _too_long(connection, frame)

    def _one_queue(
        self, connection: Connection, frame: Frame, query: QueueQuery, name: str
    ) -> None:
        found: object
        if query.query != "show" and query.limit > LISTED_OF_QUEUE_MAX:
            text = f"at most {LISTED_OF_QUEUE_MAX} are shown at once: ask with a lower limit"
            connection.refuse(frame.correlation, Code.TOO_LARGE, text)
            return
        now_ms = self._clock.now_ms()
        match query.query:
            case "show":
                found = views.overview(self._machine, self._alarms, name)
            case "locks":
                found = views.locks_of(self._machine, self._locks, name, query.limit, now_ms)
            case "delayed":
                found = views.delayed_of(self._machine, name, query.limit, now_ms)
            case "consumers":
                only = query.consumer or None
                found = views.consumers_of(self._machine, name, query.limit, only)
            case "producers":
                found = views.producers_of(self._machine, name, query.limit, now_ms)
            case _:
                connection.refuse(
                    frame.correlation,
                    Code.INVALID_ARGUMENT,
                    f"unknown query {query.query!r}: use one of list, sessions, users, index, show,"
                    f" locks, delayed, consumers, producers, {', '.join(PAGES)}",
                )
                return
        answer = plain(found)
        if _packed_bytes(answer) > limits.LIST_BYTES_MAX:
            _too_long(connection, frame)
        else:
            connection.send(Ok(answer), frame.correlation)

    def peek(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Show the next messages without locking them."""
        self._when_current(connection, frame, at_once(partial(self._peek, connection, frame)))

    def _peek(self, connection: Connection, frame: Frame) -> None:
        message = message_of(frame, Peek)
        if not self._machine.has_queue(message.queue):
            refuse_no_queue(connection, frame.correlation, message.queue)
        else:
            runs = deliveries.in_one_peek(self._machine.peek(message.queue, message.count))
            read = self._read_area
            if deliveries.count_at_hand(runs, read) == len(runs):
                answer, raw = deliveries.peeked(message.queue, runs, read)
                connection.send(answer, frame.correlation, raw)
            else:
                connection.send_deferred(PeekAnswer(connection, frame, message.queue, runs, read))


def _packed_bytes(found: object) -> int:
    return len(msgpack.packb(found))


def _too_long(connection: Connection, frame: Frame) -> None:
    text = f"the answer exceeds {limits.LIST_BYTES_MAX} bytes: ask with a lower limit"
    connection.refuse(frame.correlation, Code.TOO_LARGE, text)
