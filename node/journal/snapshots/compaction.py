"""Compaction behind a snapshot: a later base, files no longer needed, files that are nearly empty.

Owns the order of those steps and their cutting into small pieces. Nothing here is needed for
correctness: it may stop anywhere, and a later pass does what is left.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from node.journal import limits, records
from node.journal.errors import SnapshotFailed
from node.journal.io.jobs import Job, off_loop
from node.journal.io.storage import OpenFiles
from node.journal.locations import FileUse
from node.journal.record_files import read_entries
from node.journal.snapshots.catalog import Catalog, check_uses, choose_base, load_locations
from node.journal.snapshots.compacted_file import CompactedFileWriter
from node.journal.snapshots.file import parse_snapshot_name

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from node.journal.entry_store import EntryStore
    from node.journal.io.jobs import OffLoop
    from node.journal.locations import EntryLocation
    from node.journal.record_files import RecordFile


class Compaction:
    """A pass of compaction, driven by `step`. Raises what `SnapshotStore` does, and
    `SnapshotFailed` when a copy was given up or a file could not be removed."""

    def __init__(self, store: EntryStore) -> None:
        self._store = store
        self._steps = self._passes()
        self._again = False
        self._job: Job[Any] | None = None
        self._stayed: list[str] = []

    def __repr__(self) -> str:
        return f"<Compaction {'in work' if self._job is None else 'waits for the disk'}>"

    def run_again(self) -> None:
        """Begin anew when this pass is over: there is something new to let go of."""
        self._again = True

    def step(self, budget_bytes: int) -> bool:
        """Do about `budget_bytes` of work; True while there is more. Ends early where it has to
        wait for the disk; called again, it waits."""
        spent = 0
        self._job = None
        while spent < budget_bytes:
            step = next(self._steps, None)
            if step is None:
                return False
            if isinstance(step, Job):
                self._job = step
                return True
            spent += step
        return True

    @property
    def job(self) -> Job[Any] | None:
        """The work that has to be done before the next step, if it blocks: a job for any thread."""
        return self._job

    def close(self) -> None:
        """End the pass; what it was writing is removed, or left as a crash would leave it."""
        self._steps.close()

    def _passes(self) -> Generator[Job[Any] | int]:
        self._again = True
        while self._again:
            # Lowered before the work: a snapshot that comes meanwhile asks for another pass.
            self._again = False
            # The base first, for what lies before it is what is let go. What nothing needs is
            # removed before the copying, so that no dead file is taken for a nearly empty one.
            yield from self._advance()
            yield from self._remove_unneeded()
            yield from self._compact()
        if self._stayed:
            others = f" and {len(self._stayed) - 1} more" if len(self._stayed) > 1 else ""
            raise SnapshotFailed(
                f"could not remove {self._stayed[0]}{others} from {self._store.storage.folder}; "
                "the node keeps running and tries again at its next start"
            )

    # --- the base ---

    def _advance(self) -> Iterator[Job[Any] | int]:
        """Make the oldest snapshot that is kept the base."""
        store = self._store
        if store.whole_log_holds:
            return
        catalog = store.catalog
        whole_log = catalog.base is None and not store.short
        target = choose_base(catalog.snapshots, begins_at_one=whole_log)
        if target is None or target is catalog.base:
            return
        # Built beside the catalog and swapped in at once: between two steps the log is read, and an
        # installation may replace the catalog, which the last check finds.
        fresh = Catalog(compacted_files=catalog.compacted_files)
        with contextlib.closing(OpenFiles(store.storage, 1)) as files:
            yield from load_locations(fresh, target, files)
        check_uses(fresh.uses, catalog, store.segments, target)
        if target not in catalog.snapshots:
            return
        catalog.base, catalog.locations, catalog.uses = target, fresh.locations, fresh.uses
        meta = target.meta
        store.log.begin_at(meta.index, meta.term, meta.previous_term)

    # --- files that are no longer needed ---

    def _remove_unneeded(self) -> Iterator[Job[Any] | int]:
        catalog, segments = self._store.catalog, self._store.segments
        while catalog.unneeded:
            yield from self._unlink(catalog.unneeded.pop())
        if catalog.base is None:
            return
        if self._store.short and not (yield from self._older_snapshots_are_gone()):
            return
        for segment in self._store.below_log():
            if not self._live_bytes(segment.header.sequence):
                # Forgotten first: once it may be gone, no read begins that would look for it.
                segments.forget(segment)
                yield from self._unlink(segment.name)
        for kept in list(catalog.compacted_files.values()):
            if not self._live_bytes(kept.file):
                del catalog.compacted_files[kept.file]
                yield from self._unlink(kept.name)

    def _older_snapshots_are_gone(self) -> Generator[Job[Any] | int, None, bool]:
        """Where the newest snapshot alone stays, one before it that a start finds would be taken
        for the base: its name has to be gone for good before what it needs goes."""
        if any(parse_snapshot_name(name) for name in self._stayed):
            return False
        yield from off_loop(self._store.storage.sync_folder)
        return True

    def _live_bytes(self, file: int) -> int:
        return self._store.catalog.uses.get(file, FileUse()).live_bytes

    def _unlink(self, name: str) -> Iterator[Job[Any] | int]:
        """A file system may take long to free a large file. One that cannot be removed is
        harmless: the next start finds it unneeded again."""
        self._store.files.drop(name)
        try:
            yield from off_loop(partial(self._store.storage.unlink, name))
        except FileNotFoundError:
            pass
        except OSError:
            self._stayed.append(name)
        yield limits.UNLINK_COST_BYTES

    # --- files that are nearly empty ---

    def _compact(self) -> Iterator[Job[Any] | int]:
        while victims := self._victims():
            if self._store.short and not self._has_room_to_copy():
                return
            yield from self._copy(victims)
            yield from self._remove_unneeded()

    def _has_room_to_copy(self) -> bool:
        needed_bytes = limits.SHORT_COPY_PARTS * self._store.segment_bytes
        return self._store.storage.free_bytes() >= needed_bytes

    def _victims(self) -> set[int]:
        """The files to copy out of: nearly empty, or too many small ones."""
        catalog = self._store.catalog
        if catalog.base is None:
            return set()
        sizes = {segment.header.sequence: segment.size for segment in self._store.below_log()}
        sizes.update((kept.file, kept.entry_bytes) for kept in catalog.compacted_files.values())
        short = self._store.short
        fraction = limits.LIVE_FRACTION_MIN_SHORT if short else limits.LIVE_FRACTION_MIN
        victims = {file for file, size in sizes.items() if self._live_bytes(file) < size * fraction}
        small_bytes = self._store.segment_bytes * limits.LIVE_FRACTION_MIN
        small = {file for file, kept in catalog.compacted_files.items() if kept.size < small_bytes}
        return victims | small if len(small) >= limits.SMALL_COMPACTED_FILES_MAX else victims

    def _copy(self, victims: set[int]) -> Iterator[Job[Any] | int]:
        """Copy live entries of `victims` into one compacted file, at most a segment full."""
        store = self._store
        # A snapshot that begins before all entries have moved has to look into the new file.
        number = store.take_number()
        try:
            yield from self._copy_into(number, victims)
        finally:
            store.return_number(number)

    def _copy_into(self, number: int, victims: set[int]) -> Iterator[Job[Any] | int]:
        store, locations = self._store, self._store.catalog.locations
        writer = CompactedFileWriter(store.storage, store.identity, number, "the compaction")
        slots: list[int] = []
        try:
            batch = _Batch(store, writer)
            # Slots stay valid across the waits, because only an installation replaces the columns,
            # and then the copy is dropped. Entries move in memory after the file is on the disk, so
            # that a crash, or a read meanwhile, finds them where they were.
            for slot in self._slots_in(victims):
                if store.catalog.locations is not locations or batch.size >= store.segment_bytes:
                    break
                if slot is None:
                    yield limits.LOCATION_COST_BYTES
                    continue
                slots.append(slot)
                if batch.add(locations[slot]):
                    yield from batch.copying()
                    batch = _Batch(store, writer)
            yield from batch.copying()
            writer.seal(store.files)
            yield from off_loop(writer.file.publish)
            if store.catalog.locations is not locations:
                # An installation has replaced everything: the file is no longer needed.
                store.catalog.unneeded.append(writer.file.name)
                return
            store.adopt_compacted_file(writer.published())
        finally:
            writer.file.abort()
        yield from self._move(slots, writer)

    def _slots_in(self, files: set[int]) -> Iterator[int | None]:
        """The slots of the entries in `files`; None now and then, where it has searched long."""
        locations = self._store.catalog.locations
        for first in range(0, len(locations), limits.LOCATIONS_PER_RECORD):
            yield from locations.slots_in(files, first, first + limits.LOCATIONS_PER_RECORD)
            yield None

    def _move(self, slots: list[int], writer: CompactedFileWriter) -> Iterator[int]:
        """Have the copied entries read from their new locations."""
        catalog = self._store.catalog
        locations, uses = catalog.locations, catalog.uses
        for slot, location in zip(slots, writer.locations, strict=True):
            old = locations[slot]
            locations.move(slot, location.file, location.offset)
            live_bytes = location.size + records.RECORD_BYTES
            uses[old.file].live_bytes -= live_bytes
            use = uses.setdefault(location.file, FileUse())
            use.live_bytes += live_bytes
            use.end = location.offset + live_bytes
            yield limits.LOCATION_COST_BYTES


class _Batch:
    """Entries that are copied together: gathered on the event loop, read and written off it."""

    def __init__(self, store: EntryStore, writer: CompactedFileWriter) -> None:
        self._store = store
        self._writer = writer
        self._order: list[EntryLocation] = []
        self._locations: dict[RecordFile, list[EntryLocation]] = {}
        self._cost_bytes = 0
        self.damaged: list[EntryLocation] = []
        """Entries that did not read as they were written: nothing is copied then."""
        self.size = writer.file.size
        """Bytes that the compacted file will have with them."""

    def add(self, location: EntryLocation) -> bool:
        """Add an entry, higher than all before. True when that is enough for a read."""
        self._order.append(location)
        self._locations.setdefault(self._store.file_of(location), []).append(location)
        self.size += records.RECORD_BYTES + location.size
        self._cost_bytes += location.size + limits.ENTRY_COST_BYTES
        return self._cost_bytes >= limits.RUN_BYTES

    def copying(self) -> OffLoop[None]:
        """Bring them into the compacted file, off the event loop. `SnapshotFailed` where one is
        damaged: it is repaired first."""
        yield from off_loop(self._copy)
        if self.damaged:
            self._store.damages.note(self._store, self.damaged)
            index = self.damaged[0].log_index
            raise SnapshotFailed(f"the compaction was given up: entry {index} is damaged")

    def _copy(self) -> None:
        """Bring them into the compacted file, each with its checksum checked."""
        storage = self._store.storage
        commands = {
            index: command
            for source, locations in self._locations.items()
            for command, index, _ in read_entries(storage, source, locations, self.damaged)
        }
        if self.damaged:
            return
        for location in self._order:
            self._writer.add(commands[location.log_index], location.log_index, location.term)
