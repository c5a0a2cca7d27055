"""`/metrics`: what a node counts, under the names of the contract.

Owns the page, and the metrics of the node itself; those of queues and sessions are
`queue_metrics`. The page is made in pieces, and those who ask meanwhile share it. Must not change
anything.
"""

from __future__ import annotations

import asyncio
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from node.broker.alarms import ALARMS
from node.http import queue_metrics
from node.http.exposition import Page, add_histogram
from node.http.process import add_process
from node.journal.writer import SYNC_BUCKET_SECONDS

if TYPE_CHECKING:
    from node.broker.stretches import Stretches
    from node.collector import Collected
    from node.raft import RaftStatus
    from node.server import Node

_BUILD: Final = {"version": version("fifo-quorum"), "python": platform.python_version()}


class Metrics:
    """Makes the page."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._making: asyncio.Task[str] | None = None

    async def page(self) -> str:
        """The page as text. Who asks while it is made gets the same one."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(lambda _: setattr(self, "_making", None))
        return await asyncio.shield(self._making)

    async def _make(self) -> str:
        page = Page()
        node, broker = self._node, self._node.broker
        build = {**_BUILD, "node": node.me.name}
        page.samples("fifo_build_info", "gauge", "Always 1.", [(build, 1)])
        raft = node.raft_status()
        if raft is not None:
            _add_raft(page, raft)
            _add_snapshot(page, raft, node)
        _add_broker(page, node)
        _add_alarms(page, node)
        _add_stretches(page, broker.stretches)
        if node.collector is not None:
            _add_collector(page, node.collector.collected)
        machine = broker.host.machine
        if node.shows_totals():
            await queue_metrics.add_counters(page, machine)
        if broker.led:
            await queue_metrics.Depths(page, machine, broker.clock.now_ms()).add()
            await queue_metrics.add_sessions(page, machine)
        add_process(page)
        return str(page)


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
    page.samples(
        "fifo_publishes_refused_total",
        "counter",
        "Messages whose publish was refused, each time, by the code of the refusal.",
        [({"reason": code}, count) for code, count in sorted(counters.refused_messages.items())],
    )
    requests = page.family(
        "fifo_request_seconds",
        "histogram",
        "From the receipt of a request until its answer was handed to the connection.",
    )
    for verb, times in sorted(counters.requests.items()):
        add_histogram(requests, {"verb": verb}, times.bounds, times.buckets, times.total)
    page.counter(
        "fifo_logins_failed_total",
        "Log-ins with a wrong name, password or token.",
        node.authentication.failed_total,
    )
    page.samples(
        "fifo_quota_refused_total",
        "counter",
        "Requests refused because their user has its share, by quota.",
        [({"quota": quota}, count) for quota, count in sorted(counters.over_quotas.items())],
    )
    page.gauge("fifo_connections", "Client connections.", len(node.broker.connections))
    digests = node.broker.digests
    page.samples(
        "fifo_state_digests_total",
        "counter",
        "Digests of the whole state, made to be compared, or given up.",
        [
            ({"outcome": "made"}, digests.made_total),
            ({"outcome": "given_up"}, digests.given_up_total),
        ],
    )
    pins, messages = node.broker.pinned()
    page.gauge("fifo_pins", "Pinned views that this node keeps for readers.", pins)
    page.gauge(
        "fifo_pin_messages",
        "Messages in the queues that pinned views keep as they were, where they have changed.",
        messages,
    )


def _add_alarms(page: Page, node: Node) -> None:
    alarms = node.broker.alarms
    active = {alarm.name for alarm in alarms.active}
    page.samples(
        "fifo_alarm_active",
        "gauge",
        "1 while a resource is short, on a leader that of any member: publishes are refused for"
        " disk and memory.",
        [({"alarm": name}, int(name in active)) for name in ALARMS],
    )
    for name, text, value in (
        ("fifo_disk_low_bytes", "Threshold of the alarm disk_low.", alarms.disk_low_bytes),
        ("fifo_memory_held_bytes", "Held for clients that do not read.", alarms.memory_held_bytes),
        ("fifo_memory_high_bytes", "Threshold of memory_high.", alarms.memory_high_bytes),
    ):
        page.gauge(name, text, value)


def _add_stretches(page: Page, stretches: Stretches) -> None:
    """Add the work of the event loop that nothing else could interrupt."""
    page.samples(
        "fifo_loop_longest_seconds",
        "gauge",
        "CPU time of the longest stretch of work on the event loop in the last minutes, by kind.",
        [({"kind": kind}, seconds) for kind, seconds in stretches.longest().items()],
    )
    page.samples(
        "fifo_loop_long_total",
        "counter",
        "Stretches of work on the event loop of more than 20 ms of CPU time, by kind.",
        [({"kind": kind}, count) for kind, count in sorted(stretches.over_aim.items())],
    )


def _add_snapshot(page: Page, raft: RaftStatus, node: Node) -> None:
    """Of the newest snapshot: nothing where there is none."""
    if raft.journal.snapshots.index:
        page.gauge(
            "fifo_snapshot_age_seconds",
            "Since the newest snapshot was taken or installed, or the process began with it.",
            node.seconds_since(raft.counters.snapshot_at),
        )


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
        (
            "fifo_raft_state_differs",
            "1 while its state is another one than that of a majority: it does not lead.",
            int(raft.differs_index > 0),
        ),
        (
            "fifo_journal_pinned_bytes",
            "The most that would go from the disk without pinned views and snapshots on their way.",
            journal.snapshots.pinned_bytes,
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
    page.samples(
        "fifo_raft_peer_state_differs",
        "gauge",
        "1 where a peer's state is another one than that of a majority; from the leader only.",
        [
            ({"peer": peer.name}, int(peer.differs_index > 0))
            for peer in raft.peers
            if raft.role == "leader"
        ],
    )
    reports = [(peer.name, peer.room) for peer in raft.peers if peer.room is not None]
    page.samples(
        "fifo_raft_peer_disk_free_bytes",
        "gauge",
        "Free on the disk of a peer, as it reports; from the leader only.",
        [({"peer": name}, room.free_bytes) for name, room in reports],
    )
    page.samples(
        "fifo_raft_peer_sync_seconds",
        "gauge",
        "Recent mean of a peer's syncs, or the age of the one under way; from the leader only.",
        [({"peer": name}, room.sync_ms / 1000) for name, room in reports],
    )
    page.counter("fifo_raft_elections_total", "Elections begun here.", counters.elections_total)
    page.counter(
        "fifo_raft_truncations_total", "Times that the log was cut.", counters.truncations_total
    )
    scrub = raft.scrub
    page.counter("fifo_scrub_passes_total", "Scrubs of the disk that ended.", scrub.passes_total)
    page.counter(
        "fifo_scrub_read_bytes_total", "Bytes that the scrub has read.", scrub.read_bytes_total
    )
    page.counter(
        "fifo_damages_found_total", "Damaged entries and files found in use.", scrub.found_total
    )
    page.counter(
        "fifo_damages_repaired_total",
        "Damaged entries that were written again as they were.",
        scrub.repaired_total,
    )
    page.gauge("fifo_damages", "Damaged entries and files that are not mended.", scrub.damaged)
    page.histogram(
        "fifo_journal_fsync_seconds",
        "Writing and syncing one group of entries.",
        SYNC_BUCKET_SECONDS,
        journal.sync_buckets,
        journal.sync_seconds,
    )
