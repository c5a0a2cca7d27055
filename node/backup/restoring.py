"""Journals made from a backup: one for each node of a new cluster, all with the same snapshot.

Owns what is refused, the state that the new cluster begins with, and the order in which a folder is
made: until it is whole it is the folder of a member that lost its journal, which neither votes nor
counts, whatever interrupts this. Must not know commands, or where the nodes' addresses are.
"""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fifo.machine.contract import (
    Machine,
    SnapshotError,
    as_new_cluster,
    live_entries,
    snapshot_chunks,
)
from node.backup.errors import BackupDamaged, RestoreRefused
from node.backup.file import DIGEST_BYTES, Backup
from node.journal.journal import Journal
from node.journal.reserve import RESERVE_NAME
from node.journal.snapshots.file import SnapshotMeta
from node.raft import command_of

if TYPE_CHECKING:
    from pathlib import Path

    from node.config import ClusterConfig, NodeConfig
    from node.journal.io.jobs import OffLoop
    from node.journal.io.storage import Storage


@dataclass(frozen=True, slots=True)
class Lost:
    """The end of what a restore does not keep: sessions, and locks of messages."""

    sessions: int
    locked: int


def state_of(backup: Backup) -> Machine:
    """The machine that the backup holds. Raises `BackupDamaged` where this version cannot read
    it."""
    machine = Machine()
    try:
        for _ in machine.restoring(backup.state()):
            pass
    except SnapshotError as error:
        raise BackupDamaged(str(backup.path), 0, str(error)) from error
    return machine


def check(
    backup: Backup,
    config: ClusterConfig,
    nodes: Sequence[NodeConfig],
    storage: Callable[[Path], Storage],
) -> None:
    """Raise `RestoreRefused` where the cluster would be taken for the one that the backup is from,
    or where a folder is not empty."""
    if config.cluster_id == backup.cluster_id:
        raise RestoreRefused(
            f"the configuration has the name of the cluster that the backup is from,"
            f" {config.name!r}: members of that cluster that went on would be taken for members of"
            " this one; give it another name in [cluster] of every node's file"
        )
    for node in nodes:
        with contextlib.suppress(FileNotFoundError):
            found = [name for name in storage(node.data_dir).listdir() if name != RESERVE_NAME]
            if found:
                raise RestoreRefused(
                    f"the data folder {node.data_dir} of {node.name} is not empty ({found[0]}): a"
                    " member that went on is never replaced; move the folder away first, if the"
                    " restore is what you want"
                )


class Restore:
    """The state that the new cluster begins with, and the folders that are made of it."""

    def __init__(self, backup: Backup) -> None:
        """Raises `BackupDamaged` where this version cannot read the state, or an entry is missing
        that it points to."""
        self._backup = backup
        machine = state_of(backup)
        sessions, locked = machine.session_count(), _total(machine, "locked")
        index = backup.index + 1
        term = as_new_cluster(machine, index, backup.about.wall_ms)
        self.queues = len(machine.queues())
        self.messages = _total(machine, "messages")
        self.lost = Lost(sessions, locked - _total(machine, "locked"))
        frozen = machine.freeze()
        self._state = b"".join(snapshot_chunks(frozen))
        self._live = array("Q")
        for indexes in live_entries(frozen):
            self._live.extend(indexes)
        missing = next((index for index in self._live if not backup.has_entry(index)), None)
        if missing is not None:
            problem = f"it lacks entry {missing}, which its state points to"
            raise BackupDamaged(str(backup.path), backup.size, problem)
        digest = hashlib.blake2b(self._state, digest_size=DIGEST_BYTES).digest()
        self.meta = SnapshotMeta(
            index, max(term, 1), max(term, 1), len(self._state), len(self._live), digest
        )

    def make(self, config: ClusterConfig, node: NodeConfig, storage: Storage, stamp: str) -> None:
        """Make the folder of one node; it is durable then. `stamp`: the time, as in names of files.

        Raises JournalError, and leaves a folder then of a member that recovers, at the most.
        """
        journal = Journal.open(storage, cluster_id=config.cluster_id, node=node.name, recover=stamp)
        try:
            journal.log.set_term(self.meta.term, None)
            writer = journal.begin_install(self.meta)
            writer.add_state(self._state)
            for index, payload in self._needed():
                writer.add_entry(command_of([payload]), index, self.meta.term)
            _at_once(writer.finishing())
            journal.end_recovery()
        finally:
            journal.close()

    def _needed(self) -> Iterator[tuple[int, bytes]]:
        """The entries that the new state points to."""
        wanted = iter(self._live)
        index = next(wanted, None)
        for found, payload in self._backup.each_entry():
            if found == index:
                yield found, payload
                index = next(wanted, None)


def _at_once(steps: OffLoop[bool]) -> None:
    """Run what a node runs off its event loop."""
    for job in steps:
        job.run()


def _total(machine: Machine, count: str) -> int:
    """A count of all queues together."""
    found = [machine.queue_overview(name, brief=True) for name in machine.queues()]
    return sum([one[count] for one in found if one is not None])
