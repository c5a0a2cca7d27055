"""Remains of a cluster that lost its majority: the log of a member that is stopped.

Owns the end of such a log, the choice of the member to go on from, and the state at that end as a
backup. Must not know commands, or how members that run are asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fifo.machine.contract import Machine, SnapshotError, live_entries, snapshot_chunks
from node.backup.errors import EntryRaises, RebuildRefused
from node.backup.file import About, Backup, BackupWriter
from node.broker import entry
from node.broker.machine_host import MachineHost
from node.config import to_toml
from node.journal.journal import Journal
from node.journal.recovery.open import may_begin
from node.journal.skips import checksum_of
from node.raft import command_of

if TYPE_CHECKING:
    from node.config import ClusterConfig
    from node.journal.io.storage import Storage

_COMMAND = command_of(())
"""First bytes of an entry that is the machine's."""


class End(NamedTuple):
    """The end of a log. Of two, the greater one has all that a majority can have confirmed."""

    term: int
    last: int

    def __str__(self) -> str:
        return f"{self.term}:{self.last}"


@dataclass(frozen=True, slots=True)
class Losses:
    """Bounds of what a rebuild loses: the end of the log, and the time of its last entry."""

    end: End
    confirmed: int
    """Index of the last entry that the member knew to be committed."""
    wall_ms: int


@contextlib.contextmanager
def remains(storage: Storage, config: ClusterConfig, name: str) -> Iterator[Journal]:
    """The journal of a member that is stopped. Raises `RebuildRefused` where the folder holds
    none that counts, and JournalError."""
    if may_begin(storage):
        raise RebuildRefused(f"the folder of {name} is empty")
    journal = Journal.open(storage, cluster_id=config.cluster_id, node=name)
    try:
        if journal.recovering:
            raise RebuildRefused(
                f"{name} has lost its journal, and was about to get it from the others: what its"
                " folder holds is a part of that"
            )
        if journal.wrong_state is not None:
            raise RebuildRefused(f"the state of {name} was found to differ from that of the others")
        yield journal
    finally:
        journal.close()


def end_of(journal: Journal) -> End:
    """The end of its log."""
    log = journal.log
    return End(log.last_term, log.last_index)


def has_majority(config: ClusterConfig, names: Collection[str]) -> bool:
    """Whether these are a majority of the members."""
    return 2 * len(set(names)) > len(config.nodes)


def check(
    config: ClusterConfig,
    source: str,
    ends: Mapping[str, End],
    lost: Sequence[str],
    moved: Collection[str] = (),
    running: Sequence[str] = (),
) -> None:
    """Raise `RebuildRefused` where going on from `source` loses more than it must. `ends`: of all
    members whose journal is whole; `lost`: those whose journal is gone for good; `moved`: those
    that are not at the addresses of the log any more, so that the others do not find them;
    `running`: those that were asked, and accept entries once a majority finds each other."""
    names = [node.name for node in config.nodes]
    whole = [name for name in names if name in ends]
    found = [name for name in whole if name not in moved]
    if has_majority(config, found):
        raise RebuildRefused(
            f"{_list(found)} {_are(found)} a majority of {len(names)}, so nothing is lost: start"
            f" {_them(found)}, and the others with empty folders: those get everything back"
            + ("; then move those that have moved: fifo member move" if moved else "")
        )
    if len(names) == 2 and not moved:
        raise RebuildRefused(
            f"of two members {whole[0]} has everything that was confirmed: start it, and the other"
            " one with an empty folder"
        )
    unknown = [name for name in names if name not in ends and name not in lost]
    if unknown and not has_majority(config, whole):  # Of a majority one has all of it.
        raise RebuildRefused(
            f"nothing is known of {_list(unknown)}, which may have more than {source}: let"
            f" {_them(unknown)} run, to be asked; or on {_its(unknown)} machine run this with"
            f" --from {unknown[0]}, and give here what it says, as --end {unknown[0]}=TERM:INDEX;"
            f" or, where the disk is gone for good, --lost {unknown[0]}"
        )
    # What was asked of a member that runs holds only while it can be part of no majority. Where no
    # member has moved that is so already: lost disks never come back.
    may_run = [*running, *unknown]
    if running and has_majority(config, may_run):
        raise RebuildRefused(
            f"{_list(may_run)} could still elect a leader and confirm more than they have now: stop"
            f" {_list([*running])}"
        )
    best = max(whole, key=lambda name: (ends[name], name == source))
    if best != source:
        raise RebuildRefused(
            f"{best} has more: it ends with entry {ends[best].last} of term {ends[best].term},"
            f" {source} with entry {ends[source].last} of term {ends[source].term}; go on from it:"
            f" --from {best}"
        )


def write(
    journal: Journal, config: ClusterConfig, name: str, path: Path, version: str, now_ms: int
) -> tuple[Backup, Losses]:
    """Write the state at the end of a log as a backup. Raises BackupError and JournalError, and
    leaves nothing then. `now_ms`: the time of a log that has no entry left to say one."""
    host = host_of(journal)
    wall_ms = applied(journal, host, journal.log.last_index) or now_ms
    about = About(
        cluster=config.name,
        node=name,
        version=version,
        cluster_ms=host.machine.cluster_time_ms,
        wall_ms=wall_ms,
        configuration=to_toml(config),
    )
    end = end_of(journal)
    writer = BackupWriter(path, config.cluster_id, end.last, about)
    try:
        frozen = host.machine.freeze()
        for piece in snapshot_chunks(frozen):
            writer.add_state(piece)
        for indexes in live_entries(frozen):
            for index in indexes:
                writer.add_entry(index, journal.log.read(index)[len(_COMMAND) :])
        made = writer.publish()
    finally:
        writer.abort()
    return made, Losses(end, journal.log.commit_hint(), wall_ms)


def host_of(journal: Journal) -> MachineHost:
    """A machine at the beginning, for `applied`."""
    return MachineHost(Machine(), lambda index: memoryview(journal.log.read(index))[1:])


def applied(journal: Journal, host: MachineHost, last: int) -> int:
    """Apply the newest snapshot and the entries behind it, up to `last`. The wall time of the last
    one; 0 where no entry says it."""
    meta, first, wall_ms = journal.snapshot, 1, 0
    if meta is not None:
        try:
            for _ in host.restore(journal.state_pieces(meta)):
                pass
        except SnapshotError as error:
            raise RebuildRefused(f"the snapshot {meta.name} cannot be read: {error}") from error
        first = meta.index + 1
    for index in range(first, last + 1):
        command = journal.log.read(index)
        if command.startswith(_COMMAND):
            wall_ms = _apply(journal, host, index, command)
    return wall_ms


def _apply(journal: Journal, host: MachineHost, index: int, command: bytes) -> int:
    """Apply an entry as the node would, or skip it. Its wall time."""
    payload, skip = memoryview(command)[len(_COMMAND) :], journal.skips.get(index)
    if skip is not None and skip.checksum == checksum_of(journal.log.term_at(index), command):
        host.skip(index, payload, skip)
        return entry.wall_of(payload)
    try:
        unpacked, _, _ = host.apply(index, payload)
    except Exception as error:
        raise EntryRaises(index, error) from error
    return unpacked.wall_ms


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _its(names: Sequence[str]) -> str:
    return "its" if len(names) == 1 else "each one's"
