"""The store of every entry that can be read: in the log, in older segments, in compacted files.

Owns the locations of the entries that the base needs, the files those lie in, and the numbers of
compacted files. Knows of snapshots only that there is a base; `snapshots/store.py` chooses it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from node.journal.damage import Damages
from node.journal.errors import JournalRefused
from node.journal.index import NOWHERE
from node.journal.locations import COMPACTED_BIT, EntryLocation, EntryLocations
from node.journal.record_files import RecordFile, read_run

if TYPE_CHECKING:
    from array import array

    from node.journal.index import LogIndex
    from node.journal.io.storage import OpenFiles, Storage
    from node.journal.records import JournalIdentity
    from node.journal.segments import Segment, Segments
    from node.journal.snapshots.catalog import Catalog
    from node.journal.snapshots.compacted_file import CompactedFile


class EntryStore:
    """Finds and reads the entries of one journal. Shares segments, log and open files with the
    journal. OSErrors pass through."""

    def __init__(
        self,
        storage: Storage,
        files: OpenFiles,
        identity: JournalIdentity,
        segments: Segments,
        log: LogIndex,
        catalog: Catalog,
        *,
        segment_bytes: int,
    ) -> None:
        self.storage = storage
        self.files = files
        self.identity = identity
        self.segments = segments
        self.log = log
        self.catalog = catalog
        self.segment_bytes = segment_bytes
        self.short = False
        """Whether room is short: more is compacted then."""
        self.whole_log_holds = 0
        """Holders of bodies that need the whole log: no snapshot may stand for its beginning."""
        self.damages = Damages.none()
        """The damage to these entries, and to the files that they lie in, that is known."""
        self._numbers_out: set[int] = set()

    @property
    def base_index(self) -> int:
        """The last entry that the base stands for; 0 while the log begins at entry 1."""
        return self.catalog.base.meta.index if self.catalog.base is not None else 0

    def locate(self, index: int) -> EntryLocation | None:
        """The location of an entry, in the log or retained; None if it is gone, or only its term is
        left."""
        log = self.log
        if self.base_index < index <= log.last_index:
            position, size = log.extent_at(index)
            if position != NOWHERE:
                segment = self.segments.at(position)
                offset = position - segment.header.base
                term = log.term_at(index)
                return EntryLocation(index, term, segment.header.sequence, offset, size)
        slot = self.catalog.locations.find(index)
        return self.catalog.locations[slot] if slot >= 0 else None

    def locate_all(self, indexes: array[int]) -> EntryLocations:
        """The locations of many entries, by ascending index. `JournalRefused` if one is missing."""
        kept = bisect_right(indexes, self.base_index)
        locations = self.catalog.locations.take(indexes[:kept])
        if isinstance(locations, int):
            raise JournalRefused(f"entry {locations} is live but not in the journal")
        if kept < len(indexes):
            logged = indexes[kept:]
            terms, positions, sizes = self.log.columns(logged)
            spots = self.segments.spots(positions)
            if not locations.extend(EntryLocations.of_log(logged, terms, sizes, spots)):
                raise JournalRefused("live entries are out of order")
        return locations

    def holds(self, index: int, term: int) -> bool:
        """Whether the log has that entry, and not only its term."""
        log = self.log
        return self.base_index < index <= log.last_index and log.term_at(index) == term

    def read(self, location: EntryLocation) -> bytes:
        """The command of an entry. `JournalDamaged` if its content is not what was written."""
        source = self.file_of(location)
        return next(read_run(self.files.get(source.name), source, (location,)))

    def file_of(self, location: EntryLocation) -> RecordFile:
        """The file of a location."""
        if location.file & COMPACTED_BIT:
            kept = self.catalog.compacted_files[location.file]
            return RecordFile(kept.name, 0, kept.seed)
        segment = self.segments.get(location.file)
        if segment is None:
            raise JournalRefused(f"segment {location.file} with entry {location.log_index} is gone")
        return segment.source

    def below_log(self) -> list[Segment]:
        """The segments that hold nothing of the log any more, only entries the base needs."""
        base = self.catalog.base
        if base is None:
            return []
        first_of_log = self.segments.at(base.end.log_position).header.sequence
        return [seg for seg in self.segments if seg.header.sequence < first_of_log]

    # --- numbers of compacted files ---

    def take_number(self) -> int:
        """The number of a new compacted file, out until `return_number`."""
        number = self.catalog.next_number
        self.catalog.next_number += 1
        self._numbers_out.add(number)
        return number

    def return_number(self, number: int) -> None:
        """EntryLocations in memory speak of that file now, or it was given up."""
        self._numbers_out.discard(number)

    def adopt_compacted_file(self, kept: CompactedFile) -> None:
        """A compacted file is on the disk."""
        self.catalog.compacted_files[kept.file] = kept

    def lowest_number_out(self) -> int:
        """The `next_number` of a snapshot that begins now: locations in memory know every compacted
        file below it."""
        return min(self._numbers_out, default=self.catalog.next_number)
