"""The durable Raft log: entries, term and vote, in the one order in which they were written.

Owns the log as the node sees it and when it becomes durable. Files are `segments.py`, bytes are
`records.py`, opening is `recovery.py`, snapshots and the entries that outlive the log are
`snapshots.py`, the format is told in `docs/storage.md`. Knows nothing of elections, peers or
queues.

The rules it stands on (raft.md 3.2):

1. Records gather in memory and reach the disk in `sync`: one write, one fdatasync. Nothing that
   depends on a record may leave the node before that.
2. The log on disk is append-only. A truncation is a record too, so a crash at any byte leaves
   the log as it was at some earlier moment, never a mixture.
3. Entries and hard state share one order: a durable vote implies that everything the voter
   compared against is durable.
4. A failed write or sync is final. The kernel may have dropped the pages that it could not
   write, so a second sync that succeeds would prove nothing.
5. A call that would break Raft's own rules (a gap, a falling term, a second vote, a truncation
   of committed entries) is refused with `RaftStopped`: stopping is safe, going on is not.

PySyncObj calls it through the methods named in its own style; the node uses the others.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, overload

import pysyncobj.journal

from node.raft import aside, limits, records
from node.raft.cache import CommandCache
from node.raft.errors import (
    JournalDamaged,
    JournalFailed,
    RaftStopped,
    SnapshotFailed,
)
from node.raft.folder import Folder, take
from node.raft.install import InstallWriter
from node.raft.journalstats import JournalStats
from node.raft.logwriter import LogWriter
from node.raft.owner import Owner
from node.raft.places import PLACE_BYTES
from node.raft.runs import RunReader
from node.raft.segments import Opening
from node.raft.snapshotfile import SnapshotBuilder, SnapshotMeta
from node.raft.snapshots import SnapshotWriter
from node.raft.storage import FULL_ERRNOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from node.raft.flight import Flight, GroupFlight
    from node.raft.storage import Storage

__all__ = ["Entry", "Journal", "JournalLimits", "JournalStats"]

Entry = tuple[bytes, int, int]
"""(command, index, term), the shape that PySyncObj gives to an entry."""

CLUSTER_ID_BYTES = 16

PLACEHOLDER = b"\x01"
"""What `read` gives for the two entries at the head of a log that a snapshot stands for, where
their own command is not needed any more: a no-op. It is never applied and never sent."""


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """What an operator or a test may set; the reasons stand in `limits.py`. All are bytes but
    `open_segments`, which counts files."""

    segment_bytes: int = limits.SEGMENT_BYTES
    command_bytes: int = limits.COMMAND_BYTES_MAX
    cache_bytes: int = limits.CACHE_BYTES
    replay_chunk_bytes: int = limits.REPLAY_CHUNK_BYTES
    open_segments: int = limits.OPEN_SEGMENTS_MAX

    def __post_init__(self) -> None:
        if not limits.SEGMENT_BYTES_MIN <= self.segment_bytes <= limits.SEGMENT_BYTES_MAX:
            raise ValueError(
                f"segment_bytes must be {limits.SEGMENT_BYTES_MIN} to {limits.SEGMENT_BYTES_MAX}"
            )
        if not 1 <= self.command_bytes <= limits.COMMAND_BYTES_MAX:
            raise ValueError(f"command_bytes must be 1 to {limits.COMMAND_BYTES_MAX}")
        if self.cache_bytes < 0 or self.replay_chunk_bytes < 1:
            raise ValueError("cache_bytes must be 0 or more, replay_chunk_bytes 1 or more")
        if self.open_segments < 2:
            raise ValueError("open_segments must be 2 or more: one to write, one to read")


class Journal(pysyncobj.journal.Journal):  # type: ignore[misc]  # the library has no types
    """One node's log in one folder. Made by `open`, ended by `close`; not for several threads."""

    def __init__(
        self,
        storage: Storage,
        folder: Folder,
        journal_limits: JournalLimits,
        clock: Callable[[], float],
    ) -> None:
        """Takes what `open` has recovered; everything in it is durable."""
        recovered, segments = folder.recovered, folder.segments
        self._recovering = folder.marker is not None
        self._storage = storage
        self._segments = segments
        self._snapshots = folder.snapshots
        self._limits = journal_limits
        self._log = recovered.log
        self._term = recovered.term
        self._term_end = 0
        self.votes_aside = False
        """Whether `setCurrentTerm` leaves its sync to the next one, which a slow disk does beside
        the loop: whatever promises something by the term or the vote has to wait for that."""
        self._voted_for = recovered.voted_for
        self._commit_index = min(recovered.commit_index, self._log.last_index)
        self._commit_written = self._commit_index
        self._cut_bytes = recovered.cut_bytes
        self._cache = CommandCache(journal_limits.cache_bytes)
        self._runs = RunReader(
            self._log, self._cache, segments, self._snapshots.files, self._reading
        )
        self._head: Entry | None = None
        self._tail: Entry | None = None
        self._synced_index = self._log.last_index
        self._writer = LogWriter(segments, journal_limits.segment_bytes, clock)
        self._failure: str | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        storage: Storage,
        *,
        cluster_id: bytes,
        node: str,
        limits: JournalLimits | None = None,
        clock: Callable[[], float] = time.perf_counter,
        recover: str | None = None,
    ) -> Journal:
        """Locks the folder, replays it and returns the log, all of which is durable then.

        An empty folder becomes a new journal; a torn tail is cut. `clock` (seconds) only times
        the syncs. `recover`, a time such as `20261122T043238Z`, starts over: damaged files are set
        aside under it, an empty folder counts as lost, and `recovering` holds until
        `end_recovery`; where all is whole, `JournalWhole` is raised instead. Raises
        `JournalLocked`, `JournalForeign`, `JournalDamaged`, `JournalFull` or `JournalUnusable`,
        and leaves the folder unlocked then.
        """
        if len(cluster_id) != CLUSTER_ID_BYTES:
            raise ValueError(f"a cluster id has {CLUSTER_ID_BYTES} bytes, not {len(cluster_id)}")
        _check_name(node)
        chosen = limits if limits is not None else JournalLimits()
        owner = Owner(storage.folder, cluster_id, node)
        return cls(storage, take(storage, owner, chosen, recover), chosen, clock)

    @property
    def recovering(self) -> bool:
        """Whether this is a new journal in the place of one that was lost, and the node has not
        got back what was in it: what it promised before is not known here."""
        return self._recovering

    def end_recovery(self) -> None:
        """The node has back what it had lost; returns when the disk knows."""
        self._check_usable()
        with self._final():
            aside.end(self._storage)
        self._recovering = False

    # --- the log, as the node reads it ---

    @property
    def first_index(self) -> int:
        """Index of the oldest entry: 1, or one below the index of the oldest snapshot kept."""
        return self._log.first_index

    @property
    def first_whole_index(self) -> int:
        """Index of the oldest entry that `entries` gives; of those below only terms are left."""
        return self._snapshots.base_index + 1

    @property
    def last_index(self) -> int:
        """Index of the newest entry, durable or not; `first_index - 1` while there is none."""
        return self._log.last_index

    @property
    def last_term(self) -> int:
        """Term of the newest entry; 0 while there is none."""
        return self._log.last_term

    @property
    def synced_index(self) -> int:
        """Every entry up to this one is on the disk."""
        return self._synced_index

    @property
    def cut_bytes(self) -> int:
        """Bytes of a torn tail that opening cut off; worth a line in the log of the node."""
        return self._cut_bytes

    @property
    def warnings(self) -> list[str]:
        """What opening found that an operator should know, one line each."""
        return self._snapshots.retained.warnings

    def term_at(self, index: int) -> int:
        """Term of an entry, without reading it. 0 for index 0. IndexError if not in the log."""
        return self._log.term_at(index)

    def size_at(self, index: int) -> int:
        """Bytes of an entry's command, without reading it. IndexError if not in the log."""
        return self._log.size_at(index)

    def read(self, index: int) -> bytes:
        """The command of an entry of the log, or of one that a snapshot needs, from the cache or
        the disk (checksum verified).

        IndexError if there is no such entry; `JournalDamaged` if the disk returns something else
        than was written, which the node has to take as final.
        """
        command = self._cache.get(index)
        if command is not None:
            return command
        command = self._read_from_disk(index)
        self._cache.put(index, command)
        self._cache.trim(self._synced_index)
        return command

    def entries(self, first: int, max_bytes: int, max_count: int | None = None) -> list[Entry]:
        """Entries from `first` on: at least one (if there is one), at most `max_bytes` of
        commands beyond it, at most `max_count`. Reads no more than it returns, from the cache or in
        runs from the disk, as `read` does.

        IndexError if `first` is below `first_whole_index`.
        """
        if first < self.first_whole_index:
            raise IndexError(f"entries from {first} on: the log begins at {self.first_whole_index}")
        last = self.last_index
        if max_count is not None:
            last = min(last, first + max_count - 1)
        if first > last:
            return []
        last = self._log.last_within(first, last, max_bytes)
        commands, terms = self._runs.commands(first, last), self._log.terms(first, last)
        return list(zip(commands, range(first, last + 1), terms, strict=True))

    # --- durability ---

    @property
    def dirty(self) -> bool:
        """Something has been added, truncated or changed that is not on the disk yet."""
        return self._writer.gathering or self._writer.flight is not None

    @property
    def syncing(self) -> bool:
        """Whether a sync that `begin_sync` gave is under way."""
        return self._writer.flight is not None

    @property
    def gathered_end(self) -> int:
        """Position after everything added so far: what a promise made now stands on."""
        return self._writer.end

    @property
    def synced_end(self) -> int:
        """Position up to which everything is on the disk."""
        return self._writer.synced_end

    @property
    def covered_end(self) -> int:
        """Position up to which everything is on the disk, or will be with the sync under way."""
        flight = self._writer.flight
        return self._writer.synced_end if flight is None else flight.end

    @property
    def term_synced(self) -> bool:
        """Whether term and vote, as they are now, are on the disk."""
        return self._term_end <= self._writer.synced_end

    @property
    def recent_sync_seconds(self) -> float:
        """Mean time of the newest syncs."""
        return self._writer.figures.recent_seconds

    def sync(self) -> None:
        """Makes everything gathered durable: one write and one sync; nothing if not dirty.

        A sync under way is waited for. Raises `JournalFailed`, which is final.
        """
        self._check_usable()
        if self._writer.flight is not None:
            self.land(self._writer.flight)
        if self._writer.gathering:
            self.land(self._take_off())

    def begin_sync(self) -> GroupFlight | None:
        """Everything gathered as work for another thread; `land` has to follow it on this one.

        None while one is under way, and where nothing is gathered. What is added meanwhile goes
        with the next.
        """
        self._check_usable()
        if self._writer.flight is not None or not self._writer.gathering:
            return None
        return self._take_off()

    def _take_off(self) -> GroupFlight:
        self._write_hint()
        with self._final():
            return self._writer.take_off(*self._next_segment())

    def land(self, flight: GroupFlight) -> None:
        """What `begin_sync` gave is waited for, or has run: its records are durable. Harmless
        where `sync` was first. Raises `JournalFailed`, which is final."""
        before = self._writer.synced_end
        with self._final():
            if not self._writer.land(flight):
                return
        if before < self._term_end <= flight.end:
            # With the mark, damage to this very record is seen as damage, not as a torn tail.
            self._write_mark()
        self._synced_index = flight.index
        self._cache.trim(self._synced_index)

    def stats(self) -> JournalStats:
        """Figures for status and metrics."""
        free_bytes = self._free_bytes()
        figures = self._writer.figures
        return JournalStats(
            segments=len(self._segments),
            disk_bytes=self._segments.disk_bytes,
            free_bytes=free_bytes,
            entries=len(self._log),
            cached_bytes=self._cache.held_bytes,
            written_bytes=figures.written_bytes,
            syncs=figures.syncs,
            sync_seconds=figures.total_seconds,
            last_sync_seconds=figures.last_seconds,
            sync_buckets=tuple(figures.buckets),
            bytes_since_snapshot=self.bytes_since_snapshot,
            snapshots=self._snapshots.figures(),
        )

    def close(self) -> None:
        """Syncs, notes that all is synced, and gives the folder back. Harmless when repeated.

        After a failure it only gives the folder back.
        """
        if self._closed:
            return
        try:
            if self._snapshots.writer is not None:
                self._snapshots.writer.abort()
            self._snapshots.close()
            if self._failure is None:
                self.onOneSecondTimer()
                self.sync()
                self._write_mark()
                with self._final():
                    self._segments.sync_mark()
        finally:
            self._closed = True
            self._segments.close()
            self._snapshots.files.close()
            self._storage.unlock()

    def __repr__(self) -> str:
        state = "failed" if self._failure else "closed" if self._closed else "open"
        return (
            f"<Journal {self._storage.folder} {state}, entries {self.first_index}.."
            f"{self.last_index}, synced {self._synced_index}, term {self._term}, "
            f"voted for {self._voted_for}>"
        )

    # --- snapshots ---

    @property
    def snapshot(self) -> SnapshotMeta | None:
        """The newest snapshot."""
        newest = self._snapshots.newest
        return newest.meta if newest is not None else None

    @property
    def bytes_since_snapshot(self) -> int:
        """How much the log has grown since the newest snapshot's last entry, or in all."""
        newest = self._snapshots.newest
        since = newest.end.log_position if newest is not None else self._segments.first.header.base
        return self._writer.end - since

    def begin_snapshot(
        self, index: int, term: int, live: array[int], state_bytes_hint: int = 0
    ) -> SnapshotWriter:
        """Begins a snapshot of everything up to entry `index`, which counts as committed now.

        `live` are the indexes of the entries that are still needed then, ascending, none above
        `index`; `state_bytes_hint` is about how much state will come. Nothing of the log goes
        before `release`. Raises `SnapshotFailed` if it is not possible now, `RaftStopped` if the
        log has no such entry.
        """
        self._check_usable()
        self._check_snapshot(index, term, live)
        self._check_room(state_bytes_hint + len(live) * PLACE_BYTES)
        if index > self._synced_index:
            self.sync()
        self._commit_index = max(self._commit_index, index)
        store = self._snapshots
        builder = SnapshotBuilder(
            self._storage,
            store.owner,
            index=index,
            term=term,
            previous_term=self._log.term_at(index - 1),
            next_number=store.lowest_number_out(),
            what=f"the snapshot of entry {index}",
        )
        position = self._log.place_at(index).position
        writer = SnapshotWriter(store, builder, live, position, self._fail)
        store.writer = writer
        return writer

    def _check_snapshot(self, index: int, term: int, live: array[int]) -> None:
        if self._snapshots.writer is not None:
            raise SnapshotFailed("another snapshot is being written")
        newest = self.snapshot
        if newest is not None and index <= newest.index:
            raise SnapshotFailed(f"there is a snapshot of entry {newest.index}")
        if index < 2 or not self._snapshots.holds(index, term):
            raise RaftStopped(f"a snapshot of entry {index} of term {term}, not in this log")
        if live and live[-1] > index:
            raise RaftStopped(f"entry {live[-1]} cannot be live in a snapshot of entry {index}")

    def _check_room(self, needed_bytes: int) -> None:
        """The log must not run out of room because of a snapshot."""
        free_bytes = self._free_bytes()
        if free_bytes < needed_bytes + self._limits.segment_bytes:
            raise SnapshotFailed(
                f"no room for a snapshot of {needed_bytes} bytes: {free_bytes} are free in "
                f"{self._storage.folder}; free some space"
            )

    def read_state(self, meta: SnapshotMeta, offset: int, size: int) -> bytes:
        """Up to `size` bytes of a snapshot's state from `offset` (checksum verified), fewer only
        where it ends. `SnapshotFailed` if that snapshot is not kept any more."""
        with self._reading():
            return self._snapshots.of(meta).read_state(offset, size)

    def live_entries(self, meta: SnapshotMeta) -> Iterator[int]:
        """The indexes of the entries that a snapshot needs, ascending; read from the disk a few
        thousand at a time, as they are asked for. `SnapshotFailed` if it is not kept any more."""
        pieces = self._snapshots.of(meta).places()
        while True:
            self._snapshots.of(meta)
            with self._reading():
                places = next(pieces, None)
            if places is None:
                return
            yield from places.indexes

    def kept_entry(self, index: int) -> Entry:
        """An entry that a snapshot needs, or of the log, with its term, past the cache: it is for
        a peer that catches up. IndexError if there is no such entry."""
        place = self._snapshots.locate(index)
        if place is None:
            raise IndexError(f"entry {index} is not kept")
        command = self._cache.peek(index)
        return self._read_from_disk(index) if command is None else command, index, place.term

    def pin(self, meta: SnapshotMeta) -> None:
        """Keeps a snapshot and what it needs until `unpin`, whatever newer ones come; ends with
        the process. `SnapshotFailed` if it is not kept any more."""
        self._snapshots.pin(meta)

    def unpin(self, meta: SnapshotMeta) -> None:
        """Ends one `pin`."""
        self._snapshots.unpin(meta)

    def release(self) -> None:
        """Lets go of what the two newest snapshots, and pinned ones, do not need: the log's head,
        segments, older snapshots. Does a bounded piece; `compact_step` goes on with it.

        `SnapshotFailed` if something could not be removed or copied, which harms nothing.
        """
        self._check_usable()
        self._snapshots.retire()
        self.compact_step(limits.RELEASE_BYTES)

    def compact_step(self, budget_bytes: int) -> bool:
        """Goes on cleaning up: removes files nobody needs, copies live entries out of files that
        hold little else. Does about `budget_bytes`; True while there is more.

        `SnapshotFailed` if a compaction was given up; the next `release` tries again.
        """
        with self._reading():
            return self._snapshots.step(budget_bytes)

    def blocking_work(self) -> Flight | None:
        """What comes next in cleaning up, if it blocks: it may run on another thread, and
        `compact_step`, which does it or waits for it, should not be called meanwhile."""
        upkeep = self._snapshots.upkeep
        return upkeep.flight if upkeep is not None else None

    def begin_install(self, meta: SnapshotMeta) -> InstallWriter:
        """Begins to take over another node's snapshot. A crash before its `finish` leaves the
        journal as it is.

        Raises `SnapshotFailed` if it is not possible now, or of no use: what it holds is
        committed here, or its term is above this node's.
        """
        self._check_usable()
        if self._snapshots.writer is not None:
            raise SnapshotFailed("another snapshot is being written")
        newest = self.snapshot
        known = max(self._commit_index, newest.index if newest is not None else 0)
        if meta.index <= known or meta.index < 2 or meta.term > self._term:
            raise SnapshotFailed(
                f"a snapshot of entry {meta.index} of term {meta.term} cannot be installed: "
                f"{known} is committed here, the term is {self._term}"
            )
        self._check_room(meta.state_bytes + meta.live_count * PLACE_BYTES)
        store = self._snapshots
        builder = SnapshotBuilder(
            self._storage,
            store.owner,
            index=meta.index,
            term=meta.term,
            previous_term=meta.previous_term,
            next_number=store.lowest_number_out(),
            what=f"the installation of snapshot {meta.name}",
        )
        writer = InstallWriter(
            store,
            meta,
            builder,
            sync_log=self.sync,
            restart_log=self._restart,
            commit_index=lambda: self._commit_index,
            fail=self._fail,
        )
        store.writer = writer
        return writer

    def _restart(self, meta: SnapshotMeta) -> None:
        """The log goes on behind an installed snapshot, with a segment of its own."""
        self._log.restart(meta.index + 1, meta.term)
        self._log.begin_at(meta.index, meta.term, meta.previous_term)
        self._cache.clear()
        self._head = self._tail = None
        self._commit_index = meta.index
        self._synced_index = meta.index
        with self._final():
            self._writer.begin_segment(*self._next_segment())
        self._commit_written = self._commit_index

    # --- what PySyncObj calls, by its names ---

    def __len__(self) -> int:
        return len(self._log)

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...

    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        """Entries by place in the log, not by index. The two ends are kept at hand, because
        PySyncObj asks for them several times in every tick."""
        if isinstance(item, slice):
            first = self.first_index
            return [self._entry(first + place) for place in range(*item.indices(len(self)))]
        count = len(self._log)
        place = item + count if item < 0 else item
        if not 0 <= place < count:
            raise IndexError(f"place {item} of a log of {count} entries")
        if place == count - 1:
            if self._tail is None:
                self._tail = self._entry(self.last_index)
            return self._tail
        if place == 0:
            if self._head is None or self._head[1] != self.first_index:
                self._head = self._entry(self.first_index)
            return self._head
        return self._entry(self.first_index + place)

    def add(self, command: bytes, index: int, term: int) -> None:
        """Adds the next entry; durable after the next `sync`. Keeps `command`, uncopied if it is
        a bytes object."""
        self._check_usable()
        log = self._log
        if index != log.last_index + 1 or term < log.last_term:
            raise RaftStopped(
                f"entry {index} of term {term} cannot follow entry {log.last_index} "
                f"of term {log.last_term}"
            )
        command = bytes(command)
        size = len(command)
        if size > self._limits.command_bytes:
            raise RaftStopped(
                f"entry {index} has {size} bytes, the journal takes {self._limits.command_bytes}"
            )
        position = self._writer.add(records.ENTRY, term, index, command)
        log.append(term, position, size)
        self._cache.put(index, command)
        self._tail = (command, index, term)

    def clear(self) -> NoReturn:
        """Refused: what a snapshot stands for goes with `release`, the rest stays (b02, b03)."""
        raise RaftStopped("the log cannot be cleared: it would lose what no snapshot holds")

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Truncates from a place (not an index) on; durable after the next `sync`."""
        self._check_usable()
        first_removed = self.first_index + entryFrom
        last_removed = self.last_index
        if first_removed > last_removed:
            return
        if first_removed <= max(self._commit_index, self.first_index):
            raise RaftStopped(
                f"entries from {first_removed} on cannot be removed: "
                f"everything up to {max(self._commit_index, self.first_index)} stays"
            )
        self._writer.add(records.TRUNCATE, self._term, first_removed, b"")
        self._log.truncate_from(first_removed)
        self._cache.drop_range(first_removed, last_removed)
        self._synced_index = min(self._synced_index, first_removed - 1)
        if (flight := self._writer.flight) is not None:
            flight.index = min(flight.index, first_removed - 1)
        self._tail = None

    def deleteEntriesTo(self, entryTo: int) -> NoReturn:
        """Refused: the log's head goes with `release`, which knows what a snapshot holds."""
        raise RaftStopped("the log's head cannot be dropped: only a snapshot lets go of it")

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Sets term and vote, and returns when they and all before them are on the disk; with
        `votes_aside` that may be later, see `term_synced`."""
        self._check_usable()
        if term < self._term:
            raise RaftStopped(f"term {term} cannot follow term {self._term}")
        if term == self._term and self._voted_for not in (None, votedForNodeId):
            raise RaftStopped(
                f"the vote of term {term} went to {self._voted_for!r}, "
                f"it cannot go to {votedForNodeId!r}"
            )
        if votedForNodeId is not None:
            _check_name(votedForNodeId)
        if (term, votedForNodeId) != (self._term, self._voted_for):
            self._writer.add(records.HARD_STATE, term, 0, (votedForNodeId or "").encode())
            self._term, self._voted_for = term, votedForNodeId
            self._term_end = self._writer.end
        if not self.votes_aside:
            self.sync()
            self._write_mark()

    def getCurrentTerm(self) -> int:
        """The current term; 0 before the first election."""
        return self._term

    def getVotedForNodeId(self) -> str | None:
        """Who has this node's vote in the current term."""
        return self._voted_for

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Notes how far the log is committed. A hint for the next start: it is written beside
        other records, or within about a second, and never goes back or past the log's end."""
        self._commit_index = max(self._commit_index, min(raftCommitIndex, self.last_index))

    def getRaftCommitIndex(self) -> int:
        """The newest commit index noted; never beyond the log's end. Entry 1 counts as
        committed, because it is the same no-op in every log."""
        return min(max(self._commit_index, 1), self.last_index)

    def onOneSecondTimer(self) -> None:
        """Buffers the commit hint if it moved, and writes the synced mark if that moved."""
        self._check_usable()
        self._write_hint()
        self._write_mark()

    def _destroy(self) -> None:
        """What PySyncObj calls `close`."""
        self.close()

    # --- inside ---

    def _write_hint(self) -> None:
        if self._commit_index != self._commit_written:
            self._writer.add(records.COMMIT, 0, self._commit_index, b"")
            self._commit_written = self._commit_index

    def _next_segment(self) -> tuple[int, int, Opening]:
        """What a segment that began now would begin with."""
        opening = Opening(self._term, self._voted_for, self._commit_index)
        return self._log.last_index + 1, self._log.last_term, opening

    def _entry(self, index: int) -> Entry:
        return self.read(index), index, self._log.term_at(index)

    def _free_bytes(self) -> int:
        with self._final():
            return self._storage.free_bytes()

    def _read_from_disk(self, index: int) -> bytes:
        with self._reading():
            place = self._snapshots.locate(index)
            if place is not None:
                return self._snapshots.read(place)
            # IndexError if it is not one of the two at the head.
            self._log.size_at(index)
            return PLACEHOLDER

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Reading what was not written, or not reading at all, ends the journal's work."""
        self._check_usable()
        try:
            with self._final():
                yield
        except JournalDamaged as damage:
            self._failure = str(damage)
            raise

    def _write_mark(self) -> None:
        with self._final():
            self._writer.write_mark()

    @contextlib.contextmanager
    def _final(self) -> Iterator[None]:
        """A write or sync that fails ends the journal's work."""
        try:
            yield
        except OSError as problem:
            self._fail(problem)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise JournalFailed(self._failure)
        if self._closed:
            raise JournalFailed(f"the journal in {self._storage.folder} is closed")

    def _fail(self, problem: OSError) -> NoReturn:
        """Ends the journal's work for good: see rule 4 above."""
        reason = problem.strerror or str(problem)
        what = "no room left on the disk" if problem.errno in FULL_ERRNOS else "the disk failed"
        self._failure = (
            f"the journal in {self._storage.folder} has stopped: {what} ({reason}); "
            "nothing that was acknowledged is lost; start the node again when the cause is gone"
        )
        raise JournalFailed(self._failure) from problem


def _check_name(name: str) -> None:
    """Names are stored with a one-byte length, and an empty one means no vote."""
    size = len(name.encode())
    if not 1 <= size <= limits.NODE_NAME_BYTES_MAX:
        raise ValueError(f"a node name has 1 to {limits.NODE_NAME_BYTES_MAX} bytes, not {size}")
