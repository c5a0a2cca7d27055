"""`/metrics`: what a node counts, under the names of the contract.

Owns the names, the labels and where each figure comes from. Figures of queues come from the
leader alone, so that a sum over all nodes is right: depths from the replicated state, totals from
its counters, which go on under the next leader. The page is made in pieces, because ten thousand
queues would block the event loop. Must not change anything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from node.http.exposition import Page
from node.http.process import add_process
from node.journal.writer import SYNC_BUCKET_SECONDS

if TYPE_CHECKING:
    from fifo.machine.contract import Machine, QueueFigures
    from node.collector import Collected
    from node.raft import RaftStatus
    from node.server import Node

QUEUES_SHOWN_MAX: Final = 1_000
"""Queues with a label of their own, in the order of their creation; the rest is summed under one.
Each costs a monitoring system seven series or more."""

OTHERS: Final = "(others)"
"""The label of that rest."""

PIECE: Final = 500
"""Queues, or consumers, or sessions looked at in one turn: about a millisecond."""

_REDELIVERED: Final = ("nack", "timeout", "disconnect", "released")
_DEAD_LETTERED: Final = ("terminated", "max_deliveries", "expired", "overflow")

_TOTALS: Final[tuple[tuple[str, str, str], ...]] = (
    ("fifo_messages_published_total", "published", "Messages stored."),
    ("fifo_messages_delivered_total", "delivered", "Messages handed out, again ones included."),
    ("fifo_messages_acked_total", "acked", "Messages acked."),
    ("fifo_messages_expired_total", "expired", "Messages whose ttl passed while they were ready."),
    ("fifo_consumer_terms_total", "terms", "Messages that a consumer terminated."),
    ("fifo_lock_timeouts_total", "lock_timeouts", "Locks that ran out."),
)

_DEPTHS: Final[tuple[tuple[str, str], ...]] = (
    ("fifo_queue_messages_ready", "Messages that could be handed out."),
    ("fifo_queue_messages_locked", "Messages that a consumer holds."),
    ("fifo_queue_messages_delayed", "Messages that wait for a time."),
    ("fifo_queue_bytes", "Bodies in the queue, in bytes."),
)


class _Depths:
    """The samples under one value of the label `queue`."""

    def __init__(self) -> None:
        self.depths = [0] * len(_DEPTHS)
        self.consumers: Counter[str] = Counter()

    def add(self, queue: QueueFigures) -> None:
        """Add the depths of one queue."""
        for at, value in enumerate((queue.ready, queue.locked, queue.delayed, queue.bytes)):
            self.depths[at] += value


class Metrics:
    """Makes the page. Keeps what queues that are gone had counted, so that totals never fall."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._seen: dict[int, Mapping[str, int]] = {}
        self._gone: Counter[str] = Counter()
        self._making: asyncio.Task[str] | None = None

    async def page(self) -> str:
        """The page as text. Who asks while it is made gets the same one."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(lambda _: setattr(self, "_making", None))
        return await asyncio.shield(self._making)

    async def _make(self) -> str:
        page = Page()
        broker = self._node.broker
        raft = self._node.raft_status()
        if raft is not None:
            _add_raft(page, raft)
        _add_broker(page, self._node)
        if self._node.collector is not None:
            _add_collector(page, self._node.collector.collected)
        if broker.led:
            await self._add_queues(page, broker.host.machine)
            await _add_sessions(page, broker.host.machine)
        add_process(page)
        return str(page)

    async def _add_queues(self, page: Page, machine: Machine) -> None:
        shown: dict[str, _Depths] = {}
        seen: dict[int, Mapping[str, int]] = {}
        async for number in _in_pieces(machine.queue_numbers()):
            queue = machine.queue_figures(number)
            if queue is not None:
                name = queue.name if len(shown) < QUEUES_SHOWN_MAX else OTHERS
                shown.setdefault(name, _Depths()).add(queue)
                seen[number] = queue.counters
        async for number in _in_pieces(machine.consumer_numbers()):
            consumer = machine.consumer_figures(number)
            if consumer is not None:
                found = shown.get(consumer.queue) or shown.setdefault(OTHERS, _Depths())
                found.consumers.update(consumer.states)
        for number in self._seen.keys() - seen.keys():
            self._gone.update(self._seen[number])
        self._seen = seen
        _add_depths(page, shown)
        totals = self._gone.copy()
        for counters in seen.values():
            totals.update(counters)
        _add_totals(page, totals)


async def _in_pieces(numbers: Sequence[int]) -> AsyncIterator[int]:
    """These numbers; the event loop runs between pieces."""
    for at in range(0, len(numbers), PIECE):
        for number in numbers[at : at + PIECE]:
            yield number
        await asyncio.sleep(0)


def _add_depths(page: Page, shown: Mapping[str, _Depths]) -> None:
    for at, (name, text) in enumerate(_DEPTHS):
        page.samples(
            name,
            "gauge",
            text,
            [({"queue": queue}, found.depths[at]) for queue, found in shown.items()],
        )
    page.samples(
        "fifo_queue_consumers",
        "gauge",
        "Consumers by state; one that is disconnected and suspected counts under both.",
        [
            ({"queue": queue, "state": state}, count)
            for queue, found in shown.items()
            for state, count in sorted(found.consumers.items())
        ],
    )


def _add_totals(page: Page, totals: Mapping[str, int]) -> None:
    for name, counter, text in _TOTALS:
        page.counter(name, text, totals.get(counter, 0))
    page.samples(
        "fifo_messages_redelivered_total",
        "counter",
        "Messages that came back from a consumer, by cause.",
        [({"cause": cause}, totals.get(f"redelivered_{cause}", 0)) for cause in _REDELIVERED],
    )
    page.samples(
        "fifo_messages_dead_lettered_total",
        "counter",
        "Messages that went to a dead-letter queue, by reason.",
        [
            ({"reason": reason}, totals.get(f"dead_lettered_{reason}", 0))
            for reason in _DEAD_LETTERED
        ],
    )


async def _add_sessions(page: Page, machine: Machine) -> None:
    counts = dict.fromkeys(("connected", "detached", "disconnected"), 0)
    async for number in _in_pieces(machine.session_numbers()):
        status = machine.session_status(number)
        if status is not None:
            counts[status] += 1
    page.samples(
        "fifo_sessions",
        "gauge",
        "Sessions: connected; between two connections; or silent, their locks running out.",
        [({"state": name}, count) for name, count in counts.items()],
    )


def _add_broker(page: Page, node: Node) -> None:
    """Add the counters of this process since its start; they grow on a leader only."""
    counters = node.broker.counters
    page.counter(
        "fifo_messages_confirmed_total",
        "Messages confirmed to publishers, repeated ones included.",
        counters.confirmed_messages,
    )
    page.counter(
        "fifo_lock_renewals_total", "Locks that were renewed, each time.", counters.renewed_locks
    )
    page.histogram(
        "fifo_lock_expiry_lateness_seconds",
        "From the end of a lock until its expiry was committed.",
        counters.lateness.bounds,
        counters.lateness.buckets,
        counters.lateness.total,
    )
    page.histogram(
        "fifo_raft_commit_seconds",
        "From handing an entry to Raft until it was committed.",
        counters.commit.bounds,
        counters.commit.buckets,
        counters.commit.total,
    )
    page.gauge("fifo_connections", "Client connections.", len(node.broker.connections))


def _add_collector(page: Page, collected: Collected) -> None:
    """Of a process that is a node and nothing else: its collections of garbage."""
    kinds = (
        ("recent", collected.recent_total, collected.recent_seconds),
        ("full", collected.full_total, collected.full_seconds),
    )
    page.samples(
        "fifo_gc_collections_total",
        "counter",
        "Collections of garbage: of recent objects, and of all.",
        [({"kind": kind}, total) for kind, total, _ in kinds],
    )
    page.samples(
        "fifo_gc_seconds_total",
        "counter",
        "Time that they took.",
        [({"kind": kind}, seconds) for kind, _, seconds in kinds],
    )


def _add_raft(page: Page, raft: RaftStatus) -> None:
    journal, counters = raft.journal, raft.counters
    for name, text, value in (
        ("fifo_raft_term", "Term that this node is in.", raft.term),
        ("fifo_raft_commit_index", "Last entry known to be committed.", raft.commit_index),
        ("fifo_raft_last_applied", "Last entry applied.", raft.applied_index),
        ("fifo_raft_last_index", "Last entry in the log.", raft.last_index),
        ("fifo_raft_is_leader", "1 on the node that leads.", int(raft.role == "leader")),
        (
            "fifo_raft_recovering",
            "1 while it gets back a journal that it lost, without a vote.",
            int(raft.recovering is not None),
        ),
        ("fifo_journal_bytes", "Journal and snapshots on the disk.", journal.disk_bytes),
        ("fifo_disk_free_bytes", "Free on the journal's disk.", journal.free_bytes),
    ):
        page.gauge(name, text, value)
    page.samples(
        "fifo_raft_peer_lag_entries",
        "gauge",
        "Entries that a peer has not acknowledged; from the leader only.",
        [({"peer": peer.name}, peer.lag_entries) for peer in raft.peers if raft.role == "leader"],
    )
    page.counter("fifo_raft_elections_total", "Elections begun here.", counters.elections_total)
    page.counter(
        "fifo_raft_truncations_total", "Times that the log was cut.", counters.truncations_total
    )
    page.histogram(
        "fifo_journal_fsync_seconds",
        "Writing and syncing one group of entries.",
        SYNC_BUCKET_SECONDS,
        journal.sync_buckets,
        journal.sync_seconds,
    )
