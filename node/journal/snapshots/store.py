"""The snapshots of a journal and what they keep alive.

Owns which snapshots there are and which is the base. Locations of entries are `entry_store.py`,
letting go of files is `compaction.py`, taking over another node's snapshot is `install.py`. Must
not know Raft, nor what a state means.

Three rules make every crash harmless:

1. A file appears whole (`record_files.py`), and nothing is removed before what replaces it is on
   the disk.
2. What is on the disk always serves the *oldest* snapshot that is kept, and therefore the newer
   ones too: an entry that is live in a later one was live in an earlier one, or came after it.
3. A location in a snapshot may be outdated, but only by compacted files with a number from the
   snapshot's `next_number` on, which say themselves what they hold.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.journal import limits
from node.journal.entry_store import EntryStore
from node.journal.errors import SnapshotFailed
from node.journal.io.jobs import Job
from node.journal.locations import EntryLocations
from node.journal.record_files import aborting
from node.journal.snapshots.catalog import SNAPSHOTS_KEPT, newest_to_keep
from node.journal.snapshots.compaction import Compaction
from node.journal.snapshots.file import SnapshotBuilder, SnapshotFile, SnapshotMeta

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from node.journal.record_files import Abortable
    from node.journal.snapshots.compacted_file import CompactedFile


@dataclass(frozen=True, slots=True)
class SnapshotStats:
    """Statistics of the snapshots and of what they keep.

    `index` and `state_bytes` are of the newest, 0 without one; `disk_bytes` is of all. `entries`
    and `live_bytes` are what the base keeps of the log before it, in `segments` segments and
    `compacted_files` compacted files that take `held_bytes` together.
    """

    count: int
    index: int
    state_bytes: int
    disk_bytes: int
    entries: int
    live_bytes: int
    segments: int
    compacted_files: int
    held_bytes: int
    pinned_bytes: int = 0
    """The most that would go if no reader's hold and no snapshot on its way kept it: older
    snapshots, and the log behind them."""

    @property
    def live_ratio(self) -> float:
        """Part of the bytes before the log that is still needed; 1 where there are none."""
        return self.live_bytes / self.held_bytes if self.held_bytes else 1.0


class SnapshotStore:
    """The snapshots of one journal, which keep `entries` alive.

    OSErrors pass through where they are final: reading, and syncing the folder.
    """

    def __init__(self, entries: EntryStore) -> None:
        self.entries = entries
        self.files = entries.files
        self.catalog = entries.catalog
        self._pins: Counter[str] = Counter()
        self._holds: list[BodyHold] = []
        self.sound_from = 0
        """Index of the snapshot from which on they are sound: an older one is of a wrong state."""
        self.short = False
        """Whether room is short, so that the newest snapshot is all that stays."""
        self.compaction: Compaction | None = Compaction(self.entries)
        self.writer: Abortable | None = None

    def __repr__(self) -> str:
        return f"<SnapshotStore {self.catalog.snapshots}, {len(self.catalog.locations)} kept>"

    @property
    def newest(self) -> SnapshotFile | None:
        """The newest snapshot."""
        return self.catalog.snapshots[-1] if self.catalog.snapshots else None

    def of(self, meta: SnapshotMeta) -> SnapshotFile:
        """The file of a snapshot that is still kept. `SnapshotFailed` if it is not."""
        for snapshot in self.catalog.snapshots:
            if snapshot.meta == meta:
                return snapshot
        raise SnapshotFailed(f"snapshot {meta.name} is not kept any more")

    def install(
        self, snapshot: SnapshotFile, kept: list[CompactedFile], locations: EntryLocations
    ) -> None:
        """A snapshot of another node is on the disk and the log restarts with it: whatever was
        before is unneeded."""
        catalog = self.catalog
        catalog.unneeded += [old.meta.name for old in catalog.snapshots]
        catalog.snapshots = [snapshot]
        catalog.base, catalog.locations, catalog.uses = snapshot, locations, {}
        locations.tally(0, len(locations), catalog.uses)
        for file in kept:
            self.entries.adopt_compacted_file(file)
        self.end_holds()
        self.retire()

    # --- snapshots ---

    def adopt(self, snapshot: SnapshotFile) -> None:
        """A snapshot is on the disk and counts from now on."""
        self.catalog.snapshots.append(snapshot)

    def pin(self, meta: SnapshotMeta) -> None:
        """Keep a snapshot until `unpin`."""
        self._pins[self.of(meta).meta.name] += 1

    def unpin(self, meta: SnapshotMeta) -> None:
        """End one `pin`; harmless for one that ended with the snapshot."""
        self._pins[meta.name] -= 1
        if self._pins[meta.name] <= 0:
            del self._pins[meta.name]

    def hold(self) -> BodyHold:
        """Keep what can be read now until that hold ends."""
        newest = self.newest
        hold = BodyHold(self, None if newest is None else newest.meta)
        self._holds.append(hold)
        return hold

    def end_holds(self) -> None:
        """End all holds: room is short, or another node's snapshot has replaced the log."""
        for hold in list(self._holds):
            hold.end()

    def ended(self, hold: BodyHold) -> None:
        """Forget a hold."""
        self._holds.remove(hold)

    def figures(self) -> SnapshotStats:
        """For status and metrics."""
        catalog, newest = self.catalog, self.newest
        below = self.entries.below_log()
        return SnapshotStats(
            count=len(catalog.snapshots),
            index=newest.meta.index if newest is not None else 0,
            state_bytes=newest.meta.state_bytes if newest is not None else 0,
            disk_bytes=sum(snapshot.size for snapshot in catalog.snapshots),
            entries=len(catalog.locations),
            live_bytes=sum(use.live_bytes for use in catalog.uses.values()),
            segments=len(below),
            compacted_files=len(catalog.compacted_files),
            held_bytes=sum(segment.size for segment in below) + self.compacted_bytes,
            pinned_bytes=self._pinned_bytes(),
        )

    def _pinned_bytes(self) -> int:
        entries, snapshots = self.entries, self.catalog.snapshots
        if not self._pins and not entries.whole_log_holds:
            return 0
        count = 1 if self.short else SNAPSHOTS_KEPT
        stay = newest_to_keep(snapshots, (), count)
        extra = sum(one.size for one in snapshots if one not in stay)
        if len(stay) < count:
            return extra  # The log would stay all the same.
        base = self.catalog.base
        begins = entries.segments.first.header.base if base is None else base.end.log_position
        return extra + max(0, stay[0].end.log_position - begins)

    @property
    def compacted_bytes(self) -> int:
        """Bytes of all compacted files."""
        return sum(kept.size for kept in self.catalog.compacted_files.values())

    @property
    def retires(self) -> bool:
        """Whether `retire` would let go of more where room is short."""
        catalog = self.catalog
        stay = newest_to_keep(catalog.snapshots, self._pins, 1)
        return len(stay) < len(catalog.snapshots) or bool(stay and catalog.base is None)

    def retire(self) -> None:
        """Sort out the snapshots that need not stay, and begin a compaction behind them."""
        count = 1 if self.short else SNAPSHOTS_KEPT
        stay = newest_to_keep(self.catalog.snapshots, self._pins, count)
        stay = [one for one in stay if one.meta.index >= self.sound_from]
        for snapshot in self.catalog.snapshots:
            if snapshot not in stay:
                self.catalog.unneeded.append(snapshot.meta.name)
        self.catalog.snapshots = stay
        if self.compaction is None:
            self.compaction = Compaction(self.entries)
        else:
            self.compaction.run_again()

    def close(self) -> None:
        """End the compaction; what it was writing is removed."""
        if self.compaction is not None:
            self.compaction.close()
            self.compaction = None

    def step(self, budget_bytes: int) -> bool:
        """Do a piece of the compaction; True while there is more."""
        compaction = self.compaction
        if compaction is None:
            return False
        more = False
        try:
            more = compaction.step(budget_bytes)
        finally:
            if not more and self.compaction is compaction:
                self.compaction = None
        return more


class BodyHold:
    """Every entry that the state of now points to stays readable until the `end` of this.

    The newest snapshot of now stays, and so what it needs and all entries after it; without one,
    the whole log does. `ended` without a call where room is short.
    """

    def __init__(self, store: SnapshotStore, meta: SnapshotMeta | None) -> None:
        self._store = store
        self._meta = meta
        self.ended = False
        if meta is None:
            store.entries.whole_log_holds += 1
        else:
            store.pin(meta)

    def end(self) -> None:
        """Release it. Harmless when repeated."""
        if self.ended:
            return
        self.ended = True
        self._store.ended(self)
        if self._meta is None:
            self._store.entries.whole_log_holds -= 1
        else:
            self._store.unpin(self._meta)


class SnapshotWriter:
    """A snapshot in the making. Made by `Journal.begin_snapshot`.

    All but `abort` raise `SnapshotFailed` when the snapshot had to be given up; nothing of it is
    left then.
    """

    def __init__(
        self,
        store: SnapshotStore,
        builder: SnapshotBuilder,
        live: array[int],
        log_position: int,
        fail: Callable[[OSError], NoReturn],
    ) -> None:
        self._store = store
        self._entries = store.entries
        self._builder = builder
        self._live = live
        self._placed = 0
        self._log_position = log_position
        self._fail = fail
        self._job: Job[None] | None = None

    def write(self, data: bytes) -> None:
        """Add the next bytes of the state; some of the locations are written with them."""
        self._check_open()
        with aborting(self):
            self._builder.add_state(data)
            self._add_locations(len(data) // limits.STATE_BYTES_PER_LOCATION + 1)

    def _add_locations(self, count: int) -> None:
        last = min(self._placed + count, len(self._live))
        while self._placed < last:
            some = self._live[self._placed : min(last, self._placed + limits.LOCATIONS_PER_RECORD)]
            self._builder.add_locations(self._entries.locate_all(some))
            self._placed += len(some)

    def seal(self) -> Job[None]:
        """End the snapshot; the job that brings it to the disk, for any thread. Only
        `finish` or `abort` may follow."""
        self._check_open()
        with aborting(self):
            if not self._entries.holds(self._builder.index, self._builder.term):
                raise SnapshotFailed("the snapshot was overtaken by a later one")
            self._add_locations(len(self._live))
            self._builder.seal(self._store.files, self._log_position, restarts=False)
        self._job = Job(self._builder.file.publish)
        return self._job

    def finish(self) -> SnapshotMeta:
        """Return when the snapshot is on the disk; it is the journal's newest then.

        Beside `SnapshotFailed` it may raise `JournalFailed`, which is final.
        """
        job = self.seal() if self._job is None else self._job
        self._check_open()
        store = self._store
        try:
            with aborting(self):
                job.result()
        except OSError as problem:
            self._fail(problem)
        snapshot = self._builder.published(store.files)
        store.writer = None
        store.adopt(snapshot)
        return snapshot.meta

    def _check_open(self) -> None:
        if self._store.writer is not self:
            raise SnapshotFailed("the snapshot has already ended")

    def abort(self) -> None:
        """Give the snapshot up; harmless after the end. A whole one that has come to the disk
        meanwhile stays there: it is as good as one that a crash left."""
        if self._store.writer is self:
            if self._job is not None:
                self._job.cancel()
            self._store.writer = None
            self._builder.file.abort()
