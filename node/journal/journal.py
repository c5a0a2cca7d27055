"""The journal of a node: its folder, the durable log, and the snapshots that replace its head.

Owns opening and closing, and what a snapshot, an installation and a compaction may do to the log.
The log itself is `log.py`, opening is `recovery/`, snapshots and the entries that outlive the log
are `snapshots/` and `entry_store.py`; `docs/storage.md` describes the format. Must not know Raft's
rules, peers or queues.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from node.journal import limits, passport, skips, wrong_state
from node.journal.commands import CommandCache
from node.journal.damage import Rewrite
from node.journal.errors import JournalRefused, SnapshotFailed
from node.journal.failstop import FailStop
from node.journal.io.jobs import Job, off_loop, read_off_loop, submit
from node.journal.io.readers import BodyFetch
from node.journal.io.storage import OpenFiles
from node.journal.limits import JournalLimits
from node.journal.locations import LOCATION_BYTES
from node.journal.log import DurableLog, check_name
from node.journal.records import Entry, JournalIdentity
from node.journal.recovery import recovery_marker
from node.journal.recovery.open import take
from node.journal.scrub import Scrub
from node.journal.snapshots.file import SnapshotBuilder, SnapshotFile, SnapshotMeta
from node.journal.snapshots.install import InstallWriter
from node.journal.snapshots.store import SnapshotWriter
from node.journal.wrong_state import WrongState

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from node.journal.damage import Damages
    from node.journal.errors import JournalDamaged
    from node.journal.io.jobs import OffLoop
    from node.journal.io.storage import Storage
    from node.journal.locations import EntryLocation
    from node.journal.passport import Keeper, Passport
    from node.journal.recovery.open import RecoveredJournal
    from node.journal.scrub import Piece
    from node.journal.skips import Skip
    from node.journal.snapshots.store import BodyHold, SnapshotStats

__all__ = ["Entry", "Journal", "JournalStats"]

T = TypeVar("T")

CLUSTER_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class JournalStats:
    """Statistics of one journal at one moment.

    `sync_buckets` counts syncs per upper bound of `SYNC_BUCKET_SECONDS`, with one more at the end
    for those above all; the counts are not cumulative. `sync_seconds` is the time in all of them.
    """

    segments: int
    disk_bytes: int
    free_bytes: int
    entries: int
    cached_bytes: int
    written_bytes: int
    syncs: int
    sync_seconds: float
    last_sync_seconds: float
    sync_buckets: tuple[int, ...]
    bytes_since_snapshot: int
    snapshots: SnapshotStats

    @property
    def mean_sync_seconds(self) -> float:
        """Mean time of one write and sync; 0 before the first."""
        return self.sync_seconds / self.syncs if self.syncs else 0.0


class Journal:
    """The folder of a node. Made by `open`, ended by `close`; not thread-safe."""

    def __init__(
        self,
        storage: Storage,
        found: RecoveredJournal,
        journal_limits: JournalLimits,
        clock: Callable[[], float],
        keeper: Keeper | None = None,
    ) -> None:
        """Take what `open` has recovered."""
        self._storage = storage
        self._limits = journal_limits
        self._segments = found.segments
        self._snapshots = found.snapshots
        self._recovering = found.marker is not None
        self.noted: Mapping[int, bytes] = found.recovered.noted
        """The commands of the log that begin with `NOTED_BYTE`, by index, as it was opened."""
        self._cut_bytes = found.recovered.cut_bytes
        self._cache = CommandCache(journal_limits.cache_bytes)
        self._failstop = FailStop(storage.folder)
        self._reserve = found.reserve
        self._keeper = keeper
        self.passport = found.passport
        """The identity of this journal; None where its owner keeps no passports."""
        with contextlib.suppress(OSError):  # It is tried again, and its room counts as taken.
            self._reserve.make()
        self.log = DurableLog(storage, found, journal_limits, clock, self._cache, self._failstop)
        self.wrong_state = wrong_state.read(storage)
        """The note that the state of these snapshots is wrong; None: it is not known to be."""
        self._replaced = False
        self.skips = skips.read(storage)
        """Entries that no state of this node has applied, by index."""

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
        keeper: Keeper | None = None,
    ) -> Journal:
        """Lock the folder, replay it and return the journal, all of which is durable then.

        An empty folder becomes a new journal; a torn tail is cut. `clock` (seconds) only times
        the syncs. `recover`, a time such as `20261122T043238Z`, starts over: damaged files are set
        aside under it, an empty folder counts as lost, and `recovering` holds until
        `end_recovery`; where all is whole, `JournalWhole` is raised instead. With a `keeper` the
        journal has a passport. Raises
        `JournalLocked`, `JournalForeign`, `JournalDamaged`, `JournalFull` or `JournalUnusable`,
        and leaves the folder unlocked then.
        """
        if len(cluster_id) != CLUSTER_ID_BYTES:
            raise ValueError(f"a cluster id has {CLUSTER_ID_BYTES} bytes, not {len(cluster_id)}")
        check_name(node)
        chosen = JournalLimits.of_disk(storage.disk_bytes()) if limits is None else limits
        identity = JournalIdentity(storage.folder, cluster_id, node)
        found = take(storage, identity, chosen, recover, keeper)
        return cls(storage, found, chosen, clock, keeper)

    @property
    def recovering(self) -> bool:
        """Whether this is a new journal that replaces a lost one, and the node has not
        got back what was in it: what it promised before is not known here."""
        return self._recovering

    def end_recovery(self) -> None:
        """The node has back what it had lost; returns when the disk knows."""
        self._failstop.check()
        papers = self.passport
        with self._failstop.final():
            if papers is not None and not papers.begun:
                self.passport = replace(papers, begun=True)
                passport.write(self._storage, self.passport)
            recovery_marker.end(self._storage)
        self._recovering = False

    def marking_wrong(self, wrong: WrongState) -> Job[None]:
        """The job that notes durably that the state is wrong, for any thread."""
        self._failstop.check()
        self.wrong_state, self._replaced = wrong, False
        return Job(lambda: wrong_state.write(self._storage, wrong))

    def skipping(self, skip: Skip) -> Job[None]:
        """The job that notes durably that an entry is skipped, for any thread."""
        self._failstop.check()
        self.skips[skip.index] = skip
        kept = list(self.skips.values())
        return Job(lambda: skips.write(self._storage, kept))

    def state_replaced(self, index: int) -> None:
        """The state is now that of a sound snapshot of entry `index`: the next `release` lets go
        of all that are older. 0: it was made anew from the whole log."""
        self._snapshots.sound_from = index
        self._replaced = True

    def unmarking(self) -> OffLoop[None]:
        """Take the note away where nothing of the wrong state is left on the disk."""
        if self.wrong_state is None or not self._replaced or self._snapshots.catalog.unneeded:
            return
        try:
            yield from off_loop(lambda: wrong_state.remove(self._storage))
        except OSError as problem:
            self._failstop.fail(problem)
        self.wrong_state = None

    def begin_recovery(self) -> None:
        """This journal is empty and stands for one that is lost: the node recovers from now on,
        over restarts too. Returns when the disk knows."""
        self._failstop.check()
        with self._failstop.final():
            recovery_marker.begin_empty(self._storage, self._stamp())
        self._recovering = True

    def give_up(self) -> None:
        """This journal lacks what its node has promised: the next open sets it aside and recovers.
        Returns when the disk knows; nothing may be promised by this one any more."""
        self._failstop.check()
        with self._failstop.final():
            recovery_marker.begin(self._storage, self._stamp())

    def _stamp(self) -> str:
        assert self._keeper is not None, "only a journal with a passport is judged by others"
        return self._keeper.stamp()

    def writing_passport(self, papers: Passport) -> Callable[[], None]:
        """The work that brings another passport to the disk, in the end in the room of the reserve,
        for any thread, one at a time; `passport` is to be set once it has ended."""

        def write() -> None:
            with self._failstop.final():
                try:
                    passport.write(self._storage, papers)
                except OSError as problem:
                    if not self._reserve.helps(problem):
                        raise
                    passport.write(self._storage, papers)

        return write

    @property
    def cut_bytes(self) -> int:
        """Bytes of a torn tail that opening cut off; worth a line in the log of the node."""
        return self._cut_bytes

    @property
    def warnings(self) -> list[str]:
        """Findings of the opening that an operator should know, one line each."""
        return self._snapshots.catalog.warnings

    def stats(self) -> JournalStats:
        """Figures for status and metrics."""
        free_bytes = self.free_bytes
        syncs = self.log.sync_stats
        return JournalStats(
            segments=len(self._segments),
            disk_bytes=self._segments.disk_bytes,
            free_bytes=free_bytes,
            entries=len(self.log),
            cached_bytes=self._cache.held_bytes,
            written_bytes=syncs.written_bytes,
            syncs=syncs.syncs,
            sync_seconds=syncs.total_seconds,
            last_sync_seconds=syncs.last_seconds,
            sync_buckets=tuple(syncs.buckets),
            bytes_since_snapshot=self.bytes_since_snapshot,
            snapshots=self._snapshots.figures(),
        )

    def close(self) -> None:
        """Sync, note that all is synced, and give the folder back. Harmless when repeated.

        After a failure it only gives the folder back.
        """
        if self._failstop.closed:
            return
        try:
            if self._snapshots.writer is not None:
                self._snapshots.writer.abort()
            self._snapshots.close()
            if self._failstop.failure is None:
                self.log.finish()
                with self._failstop.final():
                    self._segments.end_file()
                    self._segments.sync_mark()
        finally:
            self._failstop.close()
            self._segments.close()
            self._snapshots.files.close()
            with contextlib.suppress(OSError):
                self._reserve.end()
            self._storage.unlock()

    def __repr__(self) -> str:
        stop, log = self._failstop, self.log
        state = "failed" if stop.failure else "closed" if stop.closed else "open"
        return (
            f"<Journal {self._storage.folder} {state}, entries {log.first_index}.."
            f"{log.last_index}, synced {log.synced_index}, term {log.term}, "
            f"voted for {log.voted_for}>"
        )

    # --- reading off the event loop ---

    def read_cached(self, index: int) -> bytes | None:
        """The command of an entry of the log, or of one that a snapshot needs, from memory; None
        where it has to be fetched. IndexError if there is no such entry."""
        command = self._cache.get(index)
        if command is None and self._snapshots.entries.locate(index) is None:
            raise IndexError(f"entry {index} is in neither the log nor a snapshot")
        return command

    def begin_fetch(self) -> BodyFetch:
        """Entries to be read together, maybe on another thread; `fetched` has to follow."""
        self._failstop.check()
        return BodyFetch(self._storage, self._cache, self._snapshots.entries)

    @contextlib.contextmanager
    def fetched(self, fetch: BodyFetch) -> Iterator[None]:
        """A fetch is waited for, or has run: what it brought is at hand until the end of this,
        however small the cache. One that is damaged is not among it, and is noted. Raises
        `JournalFailed`, which is final."""
        with self._failstop.reading():
            fetch.result()
            entries = fetch.still_there()
        for command, index, _ in entries:
            self._cache.put(index, command)
        try:
            yield
        finally:
            self._cache.trim(self.log.synced_index)

    # --- damage ---

    @property
    def damages(self) -> Damages:
        """The damage that is known, and that a node can go on with."""
        return self._snapshots.entries.damages

    def damaged_entries(self) -> list[EntryLocation]:
        """The damaged entries that are still needed where they lie."""
        return self.damages.waiting(self._snapshots.entries)

    def cannot_repair(self, location: EntryLocation) -> JournalDamaged:
        """The error of a node that has to have a damaged entry, and gets it from nowhere; final."""
        error = self.damages.error(self._snapshots.entries, location)
        self._failstop.stop(str(error))
        return error

    def rewriting(self, location: EntryLocation, command: bytes) -> Job[bool] | None:
        """The job, for any thread, that writes a damaged entry again where it was; None where that
        is not its command. Its result is whether the disk has it. `rewritten` has to follow."""
        if self.damages.entries.get(location.log_index) != location:
            return None
        if len(command) != location.size:
            return None
        source = self._snapshots.entries.file_of(location)
        return Job(Rewrite(self._storage, source, location, command).run)

    def rewritten(self, location: EntryLocation) -> None:
        """A damaged entry is on the disk as it was."""
        if self.damages.entries.pop(location.log_index, None) is not None:
            self.damages.repaired_total += 1

    def scrubbing(self) -> Generator[Job[Any] | Piece]:
        """Read everything on the disk once, in pieces: yields each job that reads one, and the
        piece that it has read. What it finds is in `damages`; doubts of before are forgotten, for
        it finds those that are left."""
        self.damages.doubts.clear()
        return Scrub(self._storage, self._snapshots, self.log).run()

    # --- snapshots ---

    @property
    def snapshot(self) -> SnapshotMeta | None:
        """The newest snapshot."""
        newest = self._snapshots.newest
        return newest.meta if newest is not None else None

    @property
    def bytes_since_snapshot(self) -> int:
        """Growth of the log since the newest snapshot's last entry, or since its beginning."""
        return self.log.gathered_end - self.snapshot_end

    @property
    def snapshot_end(self) -> int:
        """Position of the log after the newest snapshot's last entry, or its beginning."""
        newest = self._snapshots.newest
        return newest.end.log_position if newest is not None else self._segments.first.header.base

    def begin_snapshot(
        self,
        index: int,
        term: int,
        live: array[int],
        state_bytes_hint: int = 0,
        *,
        members: bytes = b"",
    ) -> SnapshotWriter:
        """Begin a snapshot of everything up to entry `index`, which counts as committed now.

        `live` are the indexes of the entries that are still needed then, ascending, none above
        `index`; `state_bytes_hint` is about how much state will come; `members`: who they are then,
        in the owner's words. Nothing of the log goes before `release`. Raises `SnapshotFailed` if
        it is not possible now, `JournalRefused` if the log has no such entry.
        """
        self._failstop.check()
        self._check_snapshot(index, term, live)
        self._check_room(state_bytes_hint + len(live) * LOCATION_BYTES)
        if index > self.log.synced_index:
            self.log.sync()
        self.log.note_commit(index)
        store = self._snapshots
        builder = SnapshotBuilder(
            self._storage,
            store.entries.identity,
            index=index,
            term=term,
            previous_term=self.log.term_at(index - 1),
            next_number=store.entries.lowest_number_out(),
            what=f"the snapshot of entry {index}",
            members=members,
        )
        position = store.entries.log.extent_at(index).position
        writer = SnapshotWriter(store, builder, live, position, self._failstop.fail)
        store.writer = writer
        return writer

    @property
    def free_bytes(self) -> int:
        """Bytes that can still be written on the disk."""
        with self._failstop.final():
            return self._storage.free_bytes()

    @property
    def room_bytes(self) -> int:
        """The room that is free beyond the reserve, made or to be made."""
        return self.free_bytes - self._reserve.missing_bytes

    def making_reserve(self) -> Job[None] | None:
        """The job that makes the reserve, for any thread, if it is missing and can be made."""
        with self._failstop.final():
            return Job(self._reserve.make) if self._reserve.can_be_made else None

    def low_bytes(self, wanted_bytes: int) -> int:
        """The mark below which the disk is low, where `wanted_bytes` is the operator's: on a small
        disk it is less."""
        with self._failstop.final():
            return min(wanted_bytes, self._storage.disk_bytes() // limits.LOW_DISK_PARTS)

    @property
    def held_bytes(self) -> int:
        """Bytes of all entries on the disk, dead or alive."""
        return self._segments.disk_bytes + self._snapshots.compacted_bytes

    @property
    def segment_bytes(self) -> int:
        """Size at which a segment is full."""
        return self._limits.segment_bytes

    def _check_snapshot(self, index: int, term: int, live: array[int]) -> None:
        if self._snapshots.writer is not None:
            raise SnapshotFailed("another snapshot is being written")
        newest = self.snapshot
        if newest is not None and index <= newest.index:
            raise SnapshotFailed(f"there is a snapshot of entry {newest.index}")
        if index < 2 or not self._snapshots.entries.holds(index, term):
            raise JournalRefused(
                f"cannot take a snapshot of entry {index} of term {term}: it is not in this log"
            )
        if live and live[-1] > index:
            raise JournalRefused(f"entry {live[-1]} cannot be live in a snapshot of entry {index}")

    def _check_room(self, needed_bytes: int) -> None:
        """The log must not run out of room because of a snapshot."""
        enough_bytes = needed_bytes + self._limits.segment_bytes
        free_bytes = self.free_bytes
        if free_bytes < enough_bytes and self._reserve.give_up():
            free_bytes = self.free_bytes
        if free_bytes < enough_bytes:
            raise SnapshotFailed(
                f"no room for a snapshot of {needed_bytes} bytes: {free_bytes} bytes are free in "
                f"{self._storage.folder}; free some space"
            )

    def read_state(self, meta: SnapshotMeta, offset: int, size: int) -> bytes:
        """Up to `size` bytes of a snapshot's state from `offset` (checksum verified), fewer only
        where it ends. `SnapshotFailed` if that snapshot is not kept any more."""
        with self._failstop.reading():
            return self._snapshots.of(meta).read_state(offset, size)

    @property
    def base(self) -> SnapshotMeta | None:
        """The oldest snapshot that is kept, behind which the log is whole; None where the log
        begins with entry 1."""
        base = self._snapshots.catalog.base
        return None if base is None else base.meta

    def state_pieces(self, meta: SnapshotMeta) -> Iterator[bytes]:
        """The state of a snapshot, piece by piece, as `read_state` reads it."""
        for offset in range(0, meta.state_bytes, limits.STATE_PIECE_BYTES):
            yield self.read_state(meta, offset, limits.STATE_PIECE_BYTES)

    def reading_state(self, meta: SnapshotMeta, offset: int, size: int) -> OffLoop[bytes]:
        """The same, read off the event loop."""
        return self._read_snapshot(meta, lambda snapshot: snapshot.read_state(offset, size))

    def reading_live_indexes(self, meta: SnapshotMeta, first: int) -> OffLoop[array[int]]:
        """Some thousand indexes of the entries that a snapshot needs, ascending, from the `first`
        of them on, counted from 0, of which there has to be one. Otherwise as `reading_state`."""
        return self._read_snapshot(meta, lambda snapshot: next(snapshot.indexes(first)))

    def _read_snapshot(self, meta: SnapshotMeta, read: Callable[[SnapshotFile], T]) -> OffLoop[T]:
        snapshot = self._snapshots.of(meta)

        def work() -> T:
            with contextlib.closing(OpenFiles(self._storage, 1)) as files:
                return read(snapshot.through(files))

        kept = self._snapshots.catalog
        found = yield from read_off_loop(
            work, self._failstop.reading, lambda: snapshot in kept.snapshots
        )
        if found is None:
            raise SnapshotFailed(f"snapshot {meta.name} is not kept any more")
        return found

    def entry_bytes(self, index: int) -> int:
        """Bytes of an entry that a snapshot needs, or of the log. IndexError if there is none."""
        location = self._snapshots.entries.locate(index)
        if location is None:
            raise IndexError(f"entry {index} is in neither the log nor a snapshot")
        return location.size

    def reading_entries(self, indexes: Sequence[int]) -> OffLoop[list[Entry]]:
        """Entries that a snapshot needs, or of the log, by ascending index, past the cache: they
        are for a peer that catches up; up to the first that is damaged, and has to be repaired.
        Reads off the event loop. IndexError if one is not there."""
        damaged = self.damages.entries
        indexes = list(takewhile(lambda index: index not in damaged, indexes))
        fetch = self.begin_fetch()
        for index in indexes:
            if not fetch.want(index):
                raise IndexError(f"entry {index} is in neither the log nor a snapshot")
        yield from submit(fetch, wait=False)
        with self._failstop.reading():
            fetch.result()
            found = {entry[1]: entry for entry in fetch.still_there()}
        indexes = list(takewhile(lambda index: index not in damaged, indexes))
        # A compaction has moved some before their file was opened.
        moved = [index for index in indexes if index not in found]
        if moved:
            found |= {entry[1]: entry for entry in (yield from self.reading_entries(moved))}
        return [found[index] for index in indexes if index in found]

    def pin(self, meta: SnapshotMeta) -> None:
        """Keep a snapshot and what it needs until `unpin`, whatever newer ones come; ends with
        the process. `SnapshotFailed` if it is not kept any more."""
        self._snapshots.pin(meta)

    def unpin(self, meta: SnapshotMeta) -> None:
        """End one `pin`."""
        self._snapshots.unpin(meta)

    def hold(self) -> BodyHold:
        """Keep every entry readable that is so now, until that hold ends: by its own `end`, or
        where room is short. Holds end with the process."""
        self._failstop.check()
        return self._snapshots.hold()

    def release(self, *, short: bool = False) -> None:
        """Release what the two newest snapshots, and pinned ones, do not need: the log's head,
        segments, older snapshots. Does a bounded piece; `compact_step` goes on with it. Where room
        is `short`, the newest alone stays, and files are compacted that are less empty.

        `SnapshotFailed` if something could not be removed or copied, which harms nothing.
        """
        self._failstop.check()
        self._snapshots.short = self._snapshots.entries.short = short
        if short:
            self._snapshots.end_holds()
        self._snapshots.retire()
        self.compact_step(limits.RELEASE_BYTES)

    @property
    def releases(self) -> bool:
        """Whether `release` has more to let go of where room is short, without a new snapshot."""
        return self._snapshots.retires

    def compact_step(self, budget_bytes: int) -> bool:
        """Continue the compaction: remove files that are no longer needed, copy live entries out of
        files that hold little else. Does about `budget_bytes`; True while there is more.

        `SnapshotFailed` if a compaction was given up; the next `release` tries again.
        """
        with self._failstop.reading():
            return self._snapshots.step(budget_bytes)

    def blocking_work(self) -> Job[Any] | None:
        """The next step of the compaction if it blocks: a job for any thread. `compact_step`
        does it or waits for it, and should not be called meanwhile."""
        compaction = self._snapshots.compaction
        return compaction.job if compaction is not None else None

    def begin_install(self, meta: SnapshotMeta, *, replaces: bool = False) -> InstallWriter:
        """Begin to take over another node's snapshot. A crash before its `finish` leaves the
        journal as it is. `replaces`: the state here is wrong, so a snapshot is of use though this
        log is further.

        Raises `SnapshotFailed` if it is not possible now, or of no use: what it holds is
        committed here, or its term is above this node's.
        """
        self._failstop.check()
        if self._snapshots.writer is not None:
            raise SnapshotFailed("another snapshot is being written")
        newest = self.snapshot
        known = newest.index if newest is not None else 0
        if not replaces:
            known = max(known, self.log.commit_hint())
        if meta.index <= known or meta.index < 2 or meta.term > self.log.term:
            raise SnapshotFailed(
                f"a snapshot of entry {meta.index} of term {meta.term} cannot be installed: "
                f"{known} is committed here, the term is {self.log.term}"
            )
        self._check_room(meta.state_bytes + meta.live_count * LOCATION_BYTES)
        store = self._snapshots
        builder = SnapshotBuilder(
            self._storage,
            store.entries.identity,
            index=meta.index,
            term=meta.term,
            previous_term=meta.previous_term,
            next_number=store.entries.lowest_number_out(),
            what=f"the installation of snapshot {meta.name}",
            members=meta.members,
        )
        writer = InstallWriter(
            store,
            meta,
            builder,
            log=self.log,
            fail=self._failstop.fail,
        )
        store.writer = writer
        return writer
