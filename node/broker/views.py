"""Plain forms in which clients, operators and the status page see a node and its queues.

Owns these maps; `docs/protocol.md` lists their keys. Must not know connections, or who may see
what: `requests/queries.py` does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Final, TypeAlias

from fifo.machine.contract import Machine, RedriveState, Standing
from fifo.wire.messages import Nodes
from node.broker import limits
from node.broker.alarms import Alarms
from node.broker.lock_clock import LockClock
from node.broker.role_log import RoleLog
from node.journal.writer import SYNC_BUCKET_SECONDS
from node.raft import RaftStatus

View: TypeAlias = dict[str, Any]

_VERSION_DIGITS: Final = 16
"""Of a hash over a queue's options: 64 bits, for two that were seen by one person."""


def overviews(
    machine: Machine,
    alarms: Alarms,
    limit: int,
    *,
    sees: Callable[[str], bool] = lambda queue: True,
    brief: bool = False,
) -> Iterator[View]:
    """The first queues that `sees` accepts, oldest first; `brief`: without spec and counters.

    A queue that is deleted before it is reached is left out.
    """
    for name in islice(filter(sees, machine.queues()), limit):
        found = machine.queue_overview(name, brief=brief)
        if found is not None:
            yield {**found, "alarms": alarms_of(alarms)}


def overview(machine: Machine, alarms: Alarms, name: str) -> View | None:
    """Everything about one queue; None if it does not exist."""
    found = machine.queue_overview(name)
    if found is None:
        return None
    return {
        **found,
        "version": queue_version(machine, name),
        "alarms": alarms_of(alarms),
        "redrive": redrive_view(machine.redrive(name)),
    }


def queue_version(machine: Machine, name: str) -> str | None:
    """The version of a queue's options: another one after a change, and for another queue under
    the same name; None if it does not exist."""
    found = machine.queue_overview(name)
    if found is None:
        return None
    options = json.dumps([found["number"], found["spec"]], sort_keys=True)
    return hashlib.sha256(options.encode()).hexdigest()[:_VERSION_DIGITS]


def alarms_of(alarms: Alarms) -> list[View]:
    """The alarms of a node; while it leads, it refuses publishes for those that say so."""
    return [
        {
            "alarm": alarm.name,
            "node": alarm.node,
            "bytes": alarm.measured_bytes,
            "threshold_bytes": alarm.threshold_bytes,
            "active_ms": alarms.active_ms(alarm),
            "refuses": alarm.refuses,
        }
        for alarm in alarms.active
    ]


def redrive_view(redrive: RedriveState | None) -> View | None:
    """Progress of a redrive, or the outcome of the last one; None if there was none."""
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


def locks_of(
    machine: Machine,
    locks: LockClock,
    name: str,
    limit: int,
    now_ms: int,
    after: tuple[int, int] | None = None,
) -> list[View]:
    """The locks of a queue, or those behind a consumer and its token; their deadlines include
    renewals. `now_ms` is cluster time."""
    passed_ms = now_ms - machine.cluster_time_ms
    sessions: dict[int, str] = {}
    found = []
    for lock in machine.locks_of(name, limit, after):
        number = lock["session"]
        if number not in sessions:
            sessions[number] = _session_id(machine, number)
        until_ms = lock["remaining_ms"] + machine.cluster_time_ms
        held_ms = max(0, now_ms - lock["checkout_ms"])
        granted_ms, renewals = locks.granted(lock["consumer"], lock["token"])
        by_leader = lock["renewals_max"]
        found.append(
            {
                "token": lock["token"],
                "consumer": lock["consumer"],
                "tag": lock["tag"],
                "label": lock["label"],
                "session": sessions[number],
                "user": lock["user"],
                "client": lock["client"],
                "address": lock["address"],
                "id": _id(lock["message"]),
                "attempt": lock["attempt"],
                "failures": lock["failures"],
                "checkout_ms_ago": held_ms,
                "remaining_ms": max(
                    0, lock["remaining_ms"] - passed_ms, max(until_ms, granted_ms) - now_ms
                ),
                "renewals": min(held_ms // lock["lock_ms"], by_leader) if by_leader else renewals,
                "renewals_max": by_leader or None,
            }
        )
    return found


def version_of(one: Standing) -> str:
    """The version of a place: it changes when the message moves on, or its lock does."""
    return f"{one.position}-{one.consumer}-{one.token}-{one.due_ms}"


def standing_view(
    machine: Machine, locks: LockClock, queue: str, one: Standing, now_ms: int
) -> View:
    """Where a message stands, and who holds it or until when it waits. `now_ms` is cluster time."""
    shown: View = {"place": one.place, "version": version_of(one), "attempts": one.attempts}
    if one.due_ms:
        shown |= {"cause": one.cause, "due_in_ms": max(0, one.due_ms - now_ms)}
    if not one.consumer:
        return shown
    (holder,) = machine.consumers_of(queue, None, one.consumer)
    granted_ms, renewals = locks.granted(one.consumer, one.token)
    return {
        **shown,
        "consumer": one.consumer,
        "token": one.token,
        **{key: holder[key] for key in ("tag", "label", "user", "client", "address")},
        "session": _session_id(machine, holder["session"]),
        "checkout_ms_ago": max(0, now_ms - one.checkout_ms),
        "remaining_ms": max(0, one.deadline_ms - now_ms, granted_ms - now_ms),
        "renewals": renewals,
    }


def delayed_of(machine: Machine, name: str, limit: int, now_ms: int) -> list[View]:
    """The delayed messages of a queue, the first to be due first. `now_ms` is cluster time."""
    return [_delayed(one, now_ms) for one in machine.delayed_of(name, limit)]


def delayed_behind(
    machine: Machine, name: str, limit: int, now_ms: int, after: tuple[int, int]
) -> Iterator[tuple[tuple[int, int], View]]:
    """The delayed messages behind a due time and position, each with its own."""
    for one in machine.delayed_of(name, limit, after):
        yield (one["due_ms"], one["position"]), _delayed(one, now_ms)


def _delayed(one: View, now_ms: int) -> View:
    return {
        "id": _id(one["message"]),
        "cause": one["cause"],
        "due_in_ms": max(0, one["due_ms"] - now_ms),
        "attempt": one["attempts"],
        "failures": one["failures"],
    }


def producers_of(
    machine: Machine, name: str, limit: int, now_ms: int, after: int | None = None
) -> list[View]:
    """The named producers of a queue, or those above a number. `now_ms` is cluster time."""
    return [
        {
            "name": one["name"],
            "producer": one["producer"],
            "last": one["last"],
            "queues": one["queues"],
            "unused_ms": max(0, now_ms - one["used_ms"]),
        }
        for one in machine.producers_of(name, limit, after)
    ]


def consumers_of(
    machine: Machine,
    name: str,
    limit: int,
    only: int | None = None,
    after: int | None = None,
) -> list[View]:
    """The consumers of a queue; `only` the one with this number, or those above `after`."""
    return [
        {
            **one,
            "session": _session_id(machine, one["session"]),
            "suspected_why": _suspected_why(one),
        }
        for one in machine.consumers_of(name, limit, only, after)
    ]


def past_consumer(consumer: View, session: str) -> View:
    """A consumer of the past; `session`: the beginning of its session's id."""
    return {**consumer, "session": session, "suspected_why": _suspected_why(consumer)}


def _suspected_why(consumer: View) -> str | None:
    if consumer["lost_running"] and consumer["lost_running"] >= consumer["prefetch"]:
        return "all_places_lost"
    return None if consumer["suspected"] == "none" else str(consumer["suspected"])


def node_status(
    raft: RaftStatus,
    members: Nodes,
    *,
    uptime_s: float,
    sessions: int,
    queues: int,
    clients: int,
    alarms: Alarms,
    roles: RoleLog,
) -> View:
    """The answer to a status request. `members`: name and client address of every node."""
    journal = raft.journal
    return {
        "node": raft.name,
        "role": raft.role,
        "recovering": raft.recovering,
        "differs_index": raft.differs_index,
        "undecided": raft.undecided,
        "term": raft.term,
        "leader": raft.leader,
        "members": dict(members),
        "commit": raft.commit_index,
        "applied": raft.applied_index,
        "last": raft.last_index,
        "durable_end": raft.durable_end,
        "peers": [
            {
                "name": peer.name,
                "match": peer.match_index,
                "lag": peer.lag_entries,
                "connected": peer.connected,
                "counted": peer.counted,
                "learner": peer.learner,
                "equal_index": peer.equal_index,
                "differs_index": peer.differs_index,
                "whole_index": peer.whole_index,
                "in_flight_bytes": peer.in_flight_bytes,
                "snapshot": None if peer.snapshot is None else asdict(peer.snapshot),
                "room": None if peer.room is None else asdict(peer.room),
            }
            for peer in raft.peers
        ],
        "journal_bytes": journal.disk_bytes,
        "disk_free_bytes": journal.free_bytes,
        "disk_low_bytes": alarms.disk_low_bytes,
        "memory_held_bytes": alarms.memory_held_bytes,
        "memory_high_bytes": alarms.memory_high_bytes,
        "alarms": alarms_of(alarms),
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
        "queues": queues,
        "clients": clients,
        "elections": raft.counters.elections_total,
        "uncommitted_bytes": raft.uncommitted_bytes,
        "yields_ms": int(1000 * raft.yield_seconds),
        "roles": roles.listed(),
    }


def _quantile_ms(buckets: Sequence[int], fraction: float) -> float:
    """A quantile of the sync times, interpolated within its bucket; 0 before the first sync."""
    wanted = fraction * sum(buckets)
    below = 0.0
    for count, upper in zip(buckets, SYNC_BUCKET_SECONDS, strict=False):
        if count and wanted <= count:
            return round(1000 * (below + (upper - below) * wanted / count), 3)
        wanted -= count
        below = upper
    return round(1000 * below, 3) if sum(buckets) else 0.0


def _session_id(machine: Machine, number: int) -> str:
    """The beginning of a session's id: the whole of it is what takes the session over."""
    view = machine.session_view(number)
    return "" if view is None else bytes(view["session_id"])[: limits.SESSION_SHOWN_BYTES].hex()


def _id(message: tuple[int, int, int]) -> str:
    return ".".join(map(str, message))
