"""Where every entry lies that can be read: in the log, in older segments, in kept files.

Owns the places of the entries that the base needs, the files those lie in, and the numbers of kept
files. Knows of snapshots only that there is a base; which one that is, is told (`snapshots.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from node.journal.errors import JournalRefused
from node.journal.index import NOWHERE
from node.journal.place_reader import Holder, read_neighbours
from node.journal.places import KEPT_BIT, EntryPlace, Places

if TYPE_CHECKING:
    from array import array

    from node.journal.file_header import Owner
    from node.journal.index import LogIndex
    from node.journal.io.storage import Storage
    from node.journal.open_files import OpenFiles
    from node.journal.segments import Segment, Segments
    from node.journal.snapshots.catalog import Retained
    from node.journal.snapshots.compacted_file import KeptFile


class EntryStore:
    """What is on the disk of one journal beside the log, as places of entries. Shares segments,
    log and open files with the journal. OSErrors pass through."""

    def __init__(
        self,
        storage: Storage,
        files: OpenFiles,
        owner: Owner,
        segments: Segments,
        log: LogIndex,
        retained: Retained,
        *,
        segment_bytes: int,
    ) -> None:
        self.storage = storage
        self.files = files
        self.owner = owner
        self.segments = segments
        self.log = log
        self.retained = retained
        self.segment_bytes = segment_bytes
        self._numbers_out: set[int] = set()

    @property
    def base_index(self) -> int:
        """The last entry that the base stands for; 0 while the log begins at entry 1."""
        return self.retained.base.meta.index if self.retained.base is not None else 0

    def locate(self, index: int) -> EntryPlace | None:
        """Where an entry lies, in the log or kept; None if only its term is left, or nothing."""
        log = self.log
        if self.base_index < index <= log.last_index:
            position, size = log.place_at(index)
            if position != NOWHERE:
                segment = self.segments.at(position)
                offset = position - segment.header.base
                term = log.term_at(index)
                return EntryPlace(index, term, segment.header.sequence, offset, size)
        slot = self.retained.places.find(index)
        return self.retained.places[slot] if slot >= 0 else None

    def locate_all(self, indexes: array[int]) -> Places:
        """Where many entries lie, by ascending index. `JournalRefused` if one is not here."""
        kept = bisect_right(indexes, self.base_index)
        places = self.retained.places.take(indexes[:kept])
        if isinstance(places, int):
            raise JournalRefused(f"entry {places} is live but not in the journal")
        if kept < len(indexes):
            logged = indexes[kept:]
            terms, positions, sizes = self.log.columns(logged)
            spots = self.segments.spots(positions)
            if not places.extend(Places.of_log(logged, terms, sizes, spots)):
                raise JournalRefused("live entries are out of order")
        return places

    def holds(self, index: int, term: int) -> bool:
        """Whether the log has that entry, and not only its term."""
        log = self.log
        return self.base_index < index <= log.last_index and log.term_at(index) == term

    def read(self, place: EntryPlace) -> bytes:
        """The command of an entry. `JournalDamaged` if it does not read as it was written."""
        holder = self.holder(place)
        return next(read_neighbours(self.files.get(holder.name), holder, (place,)))

    def holder(self, place: EntryPlace) -> Holder:
        """The file that a place is in."""
        if place.file & KEPT_BIT:
            kept = self.retained.kept_files[place.file]
            return Holder(kept.name, 0, kept.seed)
        segment = self.segments.get(place.file)
        if segment is None:
            raise JournalRefused(f"segment {place.file} with entry {place.log_index} is gone")
        return Holder(segment.name, segment.header.base, segment.seed)

    def below_log(self) -> list[Segment]:
        """The segments that hold nothing of the log any more, only entries the base needs."""
        base = self.retained.base
        if base is None:
            return []
        first_of_log = self.segments.at(base.end.log_position).header.sequence
        return [seg for seg in self.segments if seg.header.sequence < first_of_log]

    # --- numbers of kept files ---

    def take_number(self) -> int:
        """The number of a new kept file, out until `return_number`."""
        number = self.retained.next_number
        self.retained.next_number += 1
        self._numbers_out.add(number)
        return number

    def return_number(self, number: int) -> None:
        """Places in memory speak of that file now, or it was given up."""
        self._numbers_out.discard(number)

    def adopt_kept(self, kept: KeptFile) -> None:
        """A kept file is on the disk."""
        self.retained.kept_files[kept.file] = kept

    def lowest_number_out(self) -> int:
        """The `next_number` of a snapshot that begins now: places in memory know every kept
        file below it."""
        return min(self._numbers_out, default=self.retained.next_number)
