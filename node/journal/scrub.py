"""The scrub: everything on the disk is read once in a while, so that damage is found in time.

Owns the order of one pass (entries from before the log, the log, the snapshots), its cutting into
pieces that are read off the event loop, and what a piece that does not read as it was written
means. A damaged entry is noted as one to be repaired, anything else as a doubt of its file. Reads
through descriptors of its own, so a file may go meanwhile. Must not know when a pass begins, nor
how anything is repaired.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from node.journal import limits, records
from node.journal.damage import Doubt
from node.journal.errors import JournalDamaged, JournalForeign
from node.journal.io.jobs import Job
from node.journal.record_files import RecordReader, read_entries
from node.journal.records import SEGMENT_MAGIC, SNAPSHOT_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from node.journal.entry_store import EntryStore
    from node.journal.io.storage import Storage
    from node.journal.locations import EntryLocation
    from node.journal.log import DurableLog
    from node.journal.record_files import RecordFile
    from node.journal.segments import Segment
    from node.journal.snapshots.store import SnapshotStore


class Piece(NamedTuple):
    """A part of the disk that was read."""

    read_bytes: int
    records: int

    @property
    def cost_bytes(self) -> int:
        """The bytes that it counts for: small records take longer to check than to read."""
        return self.read_bytes + self.records * limits.SCRUB_RECORD_COST_BYTES


class _Walked(NamedTuple):
    """The offset up to which the records of a file were read, their number, and what is wrong
    there."""

    offset: int
    records: int
    problem: str | None


class Scrub:
    """A single pass over a journal."""

    def __init__(self, storage: Storage, snapshots: SnapshotStore, log: DurableLog) -> None:
        self._storage = storage
        self._snapshots = snapshots
        self._log = log

    @property
    def _store(self) -> EntryStore:
        return self._snapshots.entries

    def run(self) -> Generator[Job[Any] | Piece]:
        """Yield each job that reads a piece, and then its bytes."""
        yield from self._old_entries()
        for segment in self._log_segments():
            yield from self._segment(segment)
        for snapshot in list(self._snapshots.catalog.snapshots):
            name, size = snapshot.meta.name, snapshot.size
            yield from self._records(name, SNAPSHOT_MAGIC, 0, partial(int, size))

    # --- entries from before the log ---

    def _old_entries(self) -> Generator[Job[Any] | Piece]:
        index = 0
        while some := self._store.catalog.locations.after(index, limits.SCRUB_ENTRIES):
            some = _fitting(some)
            index = some[-1].log_index
            by_file: dict[RecordFile, list[EntryLocation]] = {}
            for location in some:
                by_file.setdefault(self._store.file_of(location), []).append(location)
            job = Job(partial(self._damaged_in, by_file))
            yield job
            self._store.damages.note(self._store, job.result())
            read_bytes = sum(location.size + records.RECORD_BYTES for location in some)
            yield Piece(read_bytes, len(some))

    def _damaged_in(self, by_file: dict[RecordFile, list[EntryLocation]]) -> list[EntryLocation]:
        damaged: list[EntryLocation] = []
        for source, locations in by_file.items():
            self._check(source, locations, damaged)
        return damaged

    def _check(
        self, source: RecordFile, locations: list[EntryLocation], damaged: list[EntryLocation]
    ) -> None:
        """Read entries of a file. A sector that does not read is damage too, of the entry in it."""
        try:
            for _ in read_entries(self._storage, source, locations, damaged):
                pass
        except FileNotFoundError:
            return  # Compacted meanwhile: what was copied was checked.
        except OSError as problem:
            if problem.errno != errno.EIO:
                raise
            if len(locations) == 1:
                damaged += [one for one in locations if one not in damaged]
                return
            for location in locations:
                if location not in damaged:
                    self._check(source, [location], damaged)

    # --- the log ---

    def _log_segments(self) -> list[Segment]:
        old = {segment.name for segment in self._store.below_log()}
        return [segment for segment in self._store.segments if segment.name not in old]

    def _segment(self, segment: Segment) -> Generator[Job[Any] | Piece]:
        base = segment.header.base

        def end() -> int:
            return min(segment.size, self._log.synced_end - base)

        def entry_from(offset: int) -> EntryLocation | None:
            index = self._store.log.index_from(base + offset)
            location = None if index is None else self._store.locate(index)
            here = location is not None and location.file == segment.header.sequence
            return location if here else None

        return self._records(segment.name, SEGMENT_MAGIC, base, end, entry_from)

    # --- files of records ---

    def _records(
        self,
        name: str,
        magic: bytes,
        base: int,
        end: Callable[[], int],
        entry_from: Callable[[int], EntryLocation | None] = lambda _: None,
    ) -> Generator[Job[Any] | Piece]:
        """Walk over the records of a file up to `end()`; `entry_from` says which entry of the log
        begins at an offset, or behind it."""
        offset: int | None = 0
        while offset is not None and offset < end():
            job = Job(partial(self._walk, name, magic, base, offset, end()))
            yield job
            try:
                walked = job.result()
            except FileNotFoundError:
                return
            before, offset = offset, walked.offset
            if walked.problem is not None:
                offset = self._behind(name, walked, entry_from(walked.offset))
            yield Piece(walked.offset - before, walked.records)

    def _behind(self, name: str, walked: _Walked, entry: EntryLocation | None) -> int | None:
        """Note what is damaged, an entry or something before the next one, and say where to go on;
        None: nowhere."""
        damages, problem = self._store.damages, walked.problem
        if entry is not None and entry.offset == walked.offset:
            damages.note(self._store, [entry])
            return entry.offset + records.RECORD_BYTES + entry.size
        damages.doubt(Doubt(name, walked.offset, problem or "damaged"))
        return None if entry is None else entry.offset

    def _walk(self, name: str, magic: bytes, base: int, offset: int, end: int) -> _Walked:
        """Read records from `offset` on, a piece or one of them at least; on any thread."""
        file = self._storage.open(name)
        count = 0
        try:
            _, header_bytes, seed = self._store.identity.read_header(file, name, magic)
            begin = offset = max(offset, header_bytes)
            reader = RecordReader(
                file,
                offset=offset,
                size=end,
                base=base,
                seed=seed,
                chunk_bytes=limits.SCRUB_BYTES,
            )
            for at, head, _ in reader:
                count += 1
                offset = at + records.RECORD_BYTES + head.size
                if offset - begin >= limits.SCRUB_BYTES or count == limits.SCRUB_ENTRIES:
                    return _Walked(offset, count, None)
            return _Walked(reader.offset, count, reader.problem)
        except (JournalDamaged, JournalForeign) as problem:
            return _Walked(end, count, str(problem))
        except OSError as problem:
            if problem.errno != errno.EIO:
                raise
            return _Walked(offset, count, f"the disk does not read it ({problem.strerror})")
        finally:
            file.close()


def _fitting(locations: list[EntryLocation]) -> list[EntryLocation]:
    """The first of these entries, about a piece."""
    size = 0
    for count, location in enumerate(locations, 1):
        size += location.size + records.RECORD_BYTES
        if size >= limits.SCRUB_BYTES:
            return locations[:count]
    return locations
