"""The test face of a Raft node: what tests read of it, and the few things they change.

Owns every reach into a private attribute of `RaftNode`, its core and its parts, so that a new cut
of these changes one module here. Tests ask `core(node)` for the state that has a plain name there
(term, role, commit_index, election_deadline, match_index, ...), and this module for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from node.journal.records import RECORD_BYTES
from node.raft.config import Outcome
from node.raft.pysyncobj.library import STATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.journal import Journal
    from node.raft.config import RaftConfig
    from node.raft.configuration import Configuration
    from node.raft.core import Core
    from node.raft.node import RaftNode
    from node.server import Node

NEVER_APPLIED = frozenset({Outcome.NOT_LEADER, Outcome.QUEUE_FULL, Outcome.DISCARDED})
"""Outcomes after which an entry certainly was not applied and never will be."""


# --- a node of Raft ---


def raft_of(node: Node) -> RaftNode | None:
    """Return the Raft node of a server; None while the server is not started."""
    return node._raft


def running_raft(node: Node | None) -> RaftNode:
    """Return the Raft node of a server that runs. AssertionError where it does not."""
    assert node is not None
    assert node._raft is not None
    return node._raft


def core(raft: RaftNode) -> Core:
    """Return the core, whose state has plain names."""
    return raft._core


def config(raft: RaftNode) -> RaftConfig:
    """Return the configuration that the node was made with."""
    return raft._config


def journal(raft: RaftNode) -> Journal:
    """Return the journal that the node writes to."""
    return raft._journal


def syncs_off_loop(raft: RaftNode) -> bool:
    """Whether the disk is so slow that syncs run off the event loop."""
    return raft._syncs_off_loop


def rests_until(raft: RaftNode) -> float:
    """Instant until which a follower that has nothing urgent to do takes no full turn."""
    return raft._rests_until


def fetches_wait(raft: RaftNode) -> bool:
    """Whether an entry is being read for a caller of `fetch`."""
    return bool(raft._fetcher._waiting)


def on_before_sync(raft: RaftNode, hook: Callable[[], Any]) -> None:
    """Run `hook` before the last sync of each turn, instead of what the owner gave."""
    raft._before_sync = hook


def on_role(raft: RaftNode, hook: Callable[[str, int], None]) -> None:
    """Run `hook` after what the owner gave for a change of role."""
    owner = raft._on_role

    def both(role: str, term: int) -> None:
        owner(role, term)
        hook(role, term)

    raft._on_role = both


def on_wake(raft: RaftNode, hook: Callable[[], None]) -> None:
    """Run `hook` where the node or its core asks for a turn, instead of what the owner gave."""
    raft._wake = hook
    raft._core._wake = hook


# --- parts of the core ---


def abandon(raft: RaftNode) -> None:
    """Give every submission its last outcome, as the end of a process does."""
    raft._core.submissions.abandon()


def waiting_indexes(raft: RaftNode) -> list[int]:
    """Indexes at which a submission of this leadership waits for its commit."""
    return [one.index for one in raft._core.submissions._waiting]


def left_indexes(raft: RaftNode) -> list[int]:
    """Indexes at which a submission of an earlier leadership waits for an outcome."""
    return list(raft._core.submissions._left)


def received_state_bytes(raft: RaftNode) -> int:
    """Bytes received of the snapshot that is on its way to this node."""
    return raft._core.snapshots._receiver.state_bytes


def install_waits(raft: RaftNode) -> bool:
    """Whether the installation of a snapshot waits for the disk."""
    return raft._core.snapshots._installation.waiting


def fields(raft: RaftNode) -> dict[str, Any]:
    """Return every field of the core and its parts as `Class.field`, the library's included."""
    found: dict[str, Any] = {}
    member = raft._core
    log = raft._journal.log
    parts = (
        member,
        raft._journal,
        log,
        log._writer,
        member.submissions,
        member.lease,
        member.outbox,
    )
    for part in parts:
        kind = type(part).__name__
        found |= {f"{kind}.{name}": value for name, value in vars(part).items()}
    return found | {f"{type(member).__name__}.{name}": getattr(member, name) for name in STATE}


# --- for the faulty cores of `raft_mutants` ---


def replace_disk(member: Core, disk: Any) -> None:
    """Make the outbox ask `disk` for what is durable."""
    member.outbox._disk = disk


def regain_lease(member: Core) -> None:
    """Undo that a lease was given up."""
    member.lease._given_up = False


def forget_commit(journal: Journal, index: int) -> None:
    """Set the log's commit index, backwards too."""
    journal.log._commit_index = index


# --- for disks that go wrong under a node ---


def whole_entries(raft: RaftNode) -> list[int]:
    """Return the indexes of committed entries whose records this member has, before the log too."""
    store, log = raft._journal._snapshots.entries, raft._journal.log
    end = min(log.synced_index, raft.commit_index)
    old = [one.log_index for one in store.catalog.locations.after(0, len(store.catalog.locations))]
    in_log = range(max(log.first_whole_index, store.base_index + 1), end + 1)
    return [index for index in (*old, *in_log) if store.locate(index) is not None]


def record_of(raft: RaftNode, index: int) -> tuple[str, int, int]:
    """Return the file of an entry's record, where it begins there, and its size; ("", 0, 0) where
    it has none any more."""
    store = raft._journal._snapshots.entries
    location = store.locate(index)
    if location is None:
        return "", 0, 0
    return store.file_of(location).name, location.offset, RECORD_BYTES + location.size


def doubts(raft: RaftNode) -> set[str]:
    """Return the files of which something else than an entry is known to be damaged."""
    return set(raft._journal.damages.doubts)


def scrub_at(raft: RaftNode, seconds: float) -> None:
    """Have the scrub begin or go on so many seconds from now, and not rest."""
    raft._core.scrubbing.due = raft._core.clock() + seconds
    raft._wake()


# --- members, and who counts ---


def synced_end(raft: RaftNode) -> int:
    """Return the last entry that the disk has taken down, as far as the member knows."""
    return raft._journal.log.synced_index


def configuration_at(raft: RaftNode, index: int) -> Configuration:
    """Return the configuration that held when this entry was the last."""
    return raft._core.configurations.at(index)


def voters_since(raft: RaftNode, index: int) -> list[list[str]]:
    """Return the voters by the configuration that held at an entry, and by all later ones."""
    since = raft._core.configurations.since(index)
    return [[voter.name for voter in one.voters] for one in since]


def counted(raft: RaftNode) -> dict[str, tuple[bytes, bytes]]:
    """Return the journal and the open id of each process whose word counts for this leader."""
    member = raft._core
    return {
        node.id: (said.journal, said.open_id)
        for node, said in member._said.items()
        if node in member.membership.voters
        and not member.is_judged_less(node)
        and member.replication.peers[node].counted
    }


def lose_closed_segments(journal: Journal) -> None:
    """Remove every segment file of the journal but the newest."""
    for segment in list(journal._snapshots.entries.segments)[:-1]:
        journal._storage.unlink(segment.name)
    journal._storage.sync_folder()
