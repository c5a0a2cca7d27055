"""What is answered from memory: the status of a node, and the leader's views of its queues.

Owns the plain form in which clients see queues, consumers, locks and delayed messages. Nothing here
changes anything, and nothing but the status is answered without the lease: another leader may have
gone on meanwhile. Must not know how views are computed: `fifo/machine/queries.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

import msgpack

from fifo.machine.state.records import RedriveState
from fifo.wire import Code, Frame
from fifo.wire.messages import Ok, Peek, QueueQuery
from node.broker import deliveries, limits
from node.broker.clock import ClusterClock
from node.broker.connections.connection import Connection
from node.broker.connections.deferred_frames import PeekAnswer
from node.broker.connections.sessions import Session
from node.broker.lock_clock import LockClock
from node.broker.machine_host import MachineHost
from node.broker.permissions import Rights
from node.broker.refusals import plain
from node.journal.stats import SYNC_BUCKET_SECONDS
from node.raft import RaftStatus

Plain = dict[str, Any]


class Queries:
    """Answers what needs no log entry."""

    def __init__(
        self,
        host: MachineHost,
        locks: LockClock,
        clock: ClusterClock,
        *,
        status: Callable[[], Plain],
        may_answer: Callable[[], bool],
    ) -> None:
        self._host = host
        self._machine = host.machine
        self._locks = locks
        self._clock = clock
        self._status = status
        self._may_answer = may_answer

    def status(self, connection: Connection, frame: Frame) -> None:
        """How this node is, leader or not."""
        connection.send(Ok(self._status()), frame.correlation)

    def queue_query(self, connection: Connection, session: Session, frame: Frame) -> None:
        """list, show, locks, delayed or consumers."""
        query = frame.message
        assert isinstance(query, QueueQuery)
        if not self._may_answer():
            self._not_now(connection, frame)
        elif query.query == "list":
            self._list(connection, frame, query.limit)
        elif query.queue is None or not self._host.has_queue(query.queue):
            self._no_queue(connection, frame, query.queue)
        else:
            self._one_queue(connection, frame, query, query.queue)

    def _list(self, connection: Connection, frame: Frame, limit: int) -> None:
        found = _fitting(self._overviews(connection.rights, limit))
        if found is None:
            found = _fitting(self._overviews(connection.rights, limit, brief=True))
        if found is None:
            self._too_long(connection, frame)
        else:
            connection.send(Ok(found), frame.correlation)

    def overviews(self, limit: int) -> list[Plain]:
        """The first queues, oldest first."""
        return list(self._overviews(None, limit))

    def _overviews(
        self, rights: Rights | None, limit: int, *, brief: bool = False
    ) -> Iterator[Plain]:
        """The queues that somebody may know of, oldest first; of all of them without `rights`."""
        names = (one for one in self._machine.queues() if rights is None or rights.sees(one))
        for name in islice(names, limit):
            found = self._machine.queue_overview(name, brief=brief)
            assert found is not None, "nothing changes while one answer is made"
            yield found

    def _answer(self, connection: Connection, frame: Frame, found: object) -> None:
        """Answer with plain data, where a frame can hold it."""
        if _packed_bytes(found) > limits.LIST_BYTES_MAX:
            self._too_long(connection, frame)
        else:
            connection.send(Ok(found), frame.correlation)

    def _too_long(self, connection: Connection, frame: Frame) -> None:
        connection.refuse(
            frame.correlation, Code.TOO_LARGE, "the answer is too long: ask with a lower limit"
        )

    def _one_queue(
        self, connection: Connection, frame: Frame, query: QueueQuery, name: str
    ) -> None:
        found: object
        match query.query:
            case "show":
                found = self.overview(name)
            case "locks":
                found = self._locks_of(name, query.limit)
            case "delayed":
                found = [_delayed(one) for one in self._machine.delayed_of(name, query.limit)]
            case "consumers":
                found = [
                    self._consumer(one) for one in self._machine.consumers_of(name, query.limit)
                ]
            case "producers":
                found = self._machine.producers_of(name, query.limit)
            case _:
                connection.refuse(
                    frame.correlation,
                    Code.INVALID_ARGUMENT,
                    "a query must be one of list, show, locks, delayed, consumers, producers",
                )
                return
        self._answer(connection, frame, plain(found))

    def peek(self, connection: Connection, session: Session, frame: Frame) -> None:
        """The next messages, without locking them."""
        message = frame.message
        assert isinstance(message, Peek)
        if not self._may_answer():
            self._not_now(connection, frame)
        elif not self._host.has_queue(message.queue):
            self._no_queue(connection, frame, message.queue)
        else:
            runs = deliveries.in_one_peek(self._machine.peek(message.queue, message.count))
            read = self._host.read_area
            if deliveries.count_at_hand(runs, read) == len(runs):
                answer, raw = deliveries.peeked(message.queue, runs, read)
                connection.send(answer, frame.correlation, raw)
            else:
                connection.send_later(PeekAnswer(connection, frame, runs, read))

    def _not_now(self, connection: Connection, frame: Frame) -> None:
        connection.refuse(
            frame.correlation, Code.NOT_NOW, "this leader cannot be sure of its queues now"
        )

    def _no_queue(self, connection: Connection, frame: Frame, name: str | None) -> None:
        connection.refuse(
            frame.correlation, Code.QUEUE_NOT_FOUND, f"there is no queue {name!r}; declare it first"
        )

    def overview(self, name: str) -> Plain | None:
        """Everything about one queue; None without it."""
        queue = self._host.queue(name)
        if queue is None:
            return None
        found = self._machine.queue_overview(name) or {}
        return {**found, "redrive": redrive_view(queue.redrive)}

    # --- plain forms ------------------------------------------------------------------------------

    def _session_id(self, number: int) -> str:
        view = self._machine.session_view(number)
        return "" if view is None else bytes(view["session_id"]).hex()

    def _locks_of(self, name: str, limit: int) -> list[Plain]:
        now_ms = self._clock.now_ms()
        passed_ms = now_ms - self._machine.cluster_time_ms
        sessions: dict[int, str] = {}
        found = []
        for lock in self._machine.locks_of(name, limit):
            number = lock["session"]
            if number not in sessions:
                sessions[number] = self._session_id(number)
            until_ms = lock["remaining_ms"] + self._machine.cluster_time_ms
            granted_ms, renewals = self._locks.granted(lock["consumer"], lock["token"])
            found.append(
                {
                    "token": lock["token"],
                    "consumer": lock["consumer"],
                    "tag": lock["tag"],
                    "session": sessions[number],
                    "address": lock["address"],
                    "id": _id(lock["message"]),
                    "attempt": lock["attempt"],
                    "failures": lock["failures"],
                    "checkout_ms_ago": max(0, now_ms - lock["checkout_ms"]),
                    "remaining_ms": max(
                        0, lock["remaining_ms"] - passed_ms, max(until_ms, granted_ms) - now_ms
                    ),
                    "renewals": renewals,
                }
            )
        return found

    def _consumer(self, one: Plain) -> Plain:
        return {
            **one,
            "session": self._session_id(one["session"]),
            "suspected_why": None if one["suspected"] == "none" else one["suspected"],
        }

    def node_status(self, raft: RaftStatus, *, uptime_s: float, sessions: int) -> Plain:
        """The map that a status request is answered with."""
        journal = raft.journal
        return {
            "node": raft.name,
            "role": raft.role,
            "recovering": raft.recovering,
            "term": raft.term,
            "leader": raft.leader,
            "commit": raft.commit_index,
            "applied": raft.applied_index,
            "last": raft.last_index,
            "peers": [
                {
                    "name": peer.name,
                    "match": peer.match_index,
                    "lag": peer.lag_entries,
                    "connected": peer.connected,
                    "counted": peer.counted,
                    "in_flight_bytes": peer.in_flight_bytes,
                    "snapshot": None if peer.snapshot is None else asdict(peer.snapshot),
                }
                for peer in raft.peers
            ],
            "journal_bytes": journal.disk_bytes,
            "snapshot": {
                "index": journal.snapshots.index,
                "state_bytes": journal.snapshots.state_bytes,
                "disk_bytes": journal.snapshots.disk_bytes,
                "kept_bytes": journal.snapshots.held_bytes,
                "taken": raft.counters.snapshots_taken_total,
                "sent": raft.counters.snapshots_sent_total,
                "installed": raft.counters.snapshots_installed_total,
            },
            "fsync_ms": {
                "p50": _quantile_ms(journal.sync_buckets, 0.50),
                "p99": _quantile_ms(journal.sync_buckets, 0.99),
            },
            "uptime_s": round(uptime_s, 3),
            "sessions": sessions,
            "queues": self._host.queue_count(),
        }


def redrive_view(redrive: RedriveState | None) -> Plain | None:
    """How far a redrive is, or how the last one ended; None where there was none."""
    if redrive is None:
        return None
    chosen = {key: dict(value) if key == "headers" else value for key, value in redrive.filter}
    return {
        "status": redrive.status,
        "reason": redrive.reason or None,
        "moved": redrive.moved,
        "skipped": redrive.skipped,
        "target": redrive.target,
        "filter": chosen,
        "limit": redrive.limit,
        "rate_per_s": redrive.rate_per_s,
        "reset_counts": redrive.reset_counts,
    }


def _quantile_ms(buckets: Sequence[int], fraction: float) -> float:
    """A quantile of the sync times, by even spread within its bucket; 0 before the first sync."""
    wanted = fraction * sum(buckets)
    below = 0.0
    for count, upper in zip(buckets, SYNC_BUCKET_SECONDS, strict=False):
        if count and wanted <= count:
            return round(1000 * (below + (upper - below) * wanted / count), 3)
        wanted -= count
        below = upper
    return round(1000 * below, 3) if sum(buckets) else 0.0


def _fitting(views: Iterable[Plain]) -> list[Plain] | None:
    """All of them, where one answer holds them. None where it does not: no more of them are looked
    at than it would hold, for thousands of whole ones take the loop most of a second."""
    found: list[Plain] = []
    left_bytes = limits.LIST_BYTES_MAX
    for view in views:
        shown = plain(view)
        left_bytes -= _packed_bytes(shown)
        if left_bytes < 0:
            return None
        found.append(shown)
    return found


def _packed_bytes(found: object) -> int:
    return len(msgpack.packb(found))


def _id(message: tuple[int, int, int]) -> str:
    return ".".join(map(str, message))


def _delayed(one: Plain) -> Plain:
    return {
        "id": _id(one["message"]),
        "cause": one["cause"],
        "due_in_ms": one["remaining_ms"],
        "attempt": one["attempts"],
        "failures": one["failures"],
    }
