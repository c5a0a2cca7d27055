"""Locations of entries that outlived the log: index, term, file, offset, size, in packed arrays.

Owns those columns and their bytes (`LOCATIONS` records), 28 bytes an entry. Must not know files.
The number of a file tells segments and compacted files apart: the latter have `COMPACTED_BIT`.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from node.journal import records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMPACTED_BIT: Final = 1 << 31
"""Set in the number of a compacted file, clear in a segment's sequence number."""

LOCATION_BYTES: Final = 28


class EntryLocation(NamedTuple):
    """A row. The entry's record begins at `offset` of the file; its command has `size` bytes."""

    log_index: int
    term: int
    file: int
    offset: int
    size: int


Spot = tuple[int, int]
"""(file, offset)"""


@dataclass(slots=True)
class FileUse:
    """The part of a file that is needed: bytes of live entries, and where the last of them ends."""

    live_bytes: int = 0
    end: int = 0


class EntryLocations:
    """Rows in ascending order of index, without repetition; gaps are usual."""

    __slots__ = ("_files", "_indexes", "_offsets", "_sizes", "_terms")

    def __init__(self) -> None:
        self._indexes = array("Q")
        self._terms = array("Q")
        self._files = array("I")
        self._offsets = array("I")
        self._sizes = array("I")

    def __len__(self) -> int:
        return len(self._indexes)

    def __iter__(self) -> Iterator[EntryLocation]:
        return map(
            EntryLocation, self._indexes, self._terms, self._files, self._offsets, self._sizes
        )

    def __getitem__(self, slot: int) -> EntryLocation:
        return EntryLocation(
            self._indexes[slot],
            self._terms[slot],
            self._files[slot],
            self._offsets[slot],
            self._sizes[slot],
        )

    def __repr__(self) -> str:
        return f"<EntryLocations of {len(self)} entries>"

    @property
    def indexes(self) -> array[int]:
        """The entries' indexes; not to be changed."""
        return self._indexes

    def append(self, location: EntryLocation) -> None:
        """Add a row, whose index is higher than all before."""
        self._indexes.append(location.log_index)
        self._terms.append(location.term)
        self._files.append(location.file)
        self._offsets.append(location.offset)
        self._sizes.append(location.size)

    def extend(self, others: EntryLocations) -> bool:
        """Add rows; False, and no change, if their indexes do not ascend from the last."""
        new = others._indexes
        ascending = all(map(int.__lt__, new, new[1:]))
        if not ascending or (self._indexes and new and new[0] <= self._indexes[-1]):
            return False
        self._indexes.extend(new)
        self._terms.extend(others._terms)
        self._files.extend(others._files)
        self._offsets.extend(others._offsets)
        self._sizes.extend(others._sizes)
        return True

    def find(self, index: int) -> int:
        """The slot of an entry; -1 if it is not here."""
        slot = bisect_left(self._indexes, index)
        return slot if slot < len(self._indexes) and self._indexes[slot] == index else -1

    def after(self, index: int, count: int) -> list[EntryLocation]:
        """Up to `count` rows of higher indexes than that, the lowest first."""
        first = bisect_right(self._indexes, index)
        return [self[slot] for slot in range(first, min(first + count, len(self)))]

    def take(self, indexes: Sequence[int]) -> EntryLocations | int:
        """The rows of the entries with these ascending indexes, or the first that is not here."""
        mine, slots = self._indexes, []
        slot = -1
        for index in indexes:
            # Most live entries follow each other here too: the next slot is tried before bisection,
            # which then begins there, because both sequences ascend.
            slot += 1
            if slot >= len(mine) or mine[slot] != index:
                slot = bisect_left(mine, index, min(slot, len(mine)))
                if slot >= len(mine) or mine[slot] != index:
                    return index
            slots.append(slot)
        taken = EntryLocations()
        for column, source in zip(taken._columns(), self._columns(), strict=True):
            column.extend(map(source.__getitem__, slots))
        return taken

    @classmethod
    def of_log(
        cls, indexes: Sequence[int], terms: array[int], sizes: array[int], spots: Sequence[Spot]
    ) -> EntryLocations:
        """Rows of entries with these indexes, terms and sizes, which lie at `spots`."""
        locations = cls()
        locations._indexes.extend(indexes)
        locations._terms.extend(terms)
        locations._files.extend([file for file, _ in spots])
        locations._offsets.extend([offset for _, offset in spots])
        locations._sizes.extend(sizes)
        return locations

    def move(self, slot: int, file: int, offset: int) -> None:
        """The entry lies somewhere else now."""
        self._files[slot] = file
        self._offsets[slot] = offset

    def slots_in(self, files: set[int], first: int, last: int) -> list[int]:
        """The slots from `first` up to `last` (excluded) whose entry lies in one of `files`."""
        return [slot for slot, file in enumerate(self._files[first:last], first) if file in files]

    def override(self, others: EntryLocations) -> bool:
        """Entries that `others` has too lie where it says. False if one differs."""
        for other in others:
            slot = self.find(other.log_index)
            if slot < 0:
                continue  # Copied for an older base: this one needs it no more.
            if (self._terms[slot], self._sizes[slot]) != (other.term, other.size):
                return False
            self.move(slot, other.file, other.offset)
        return True

    def tally(self, first: int, last: int, uses: dict[int, FileUse]) -> None:
        """Add to `uses` what the rows from `first` up to `last` (excluded) need of each file."""
        rows = zip(
            self._files[first:last], self._offsets[first:last], self._sizes[first:last], strict=True
        )
        for file, offset, size in rows:
            use = uses.get(file)
            if use is None:
                use = uses[file] = FileUse()
            whole_bytes = size + records.RECORD_BYTES
            use.live_bytes += whole_bytes
            use.end = max(use.end, offset + whole_bytes)

    def encode(self) -> bytes:
        """The payload of a `LOCATIONS` record."""
        return self._encode(0, len(self))

    def pieces(self, count: int) -> Iterator[bytes]:
        """Payloads of `LOCATIONS` records with `count` rows each, fewer in the last."""
        for first in range(0, len(self), count):
            yield self._encode(first, first + count)

    def _encode(self, first: int, last: int) -> bytes:
        return b"".join(_little_endian(column[first:last]) for column in self._columns())

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> EntryLocations | None:
        """None if it is no such payload."""
        count, rest = divmod(len(payload), LOCATION_BYTES)
        if rest:
            return None
        locations = cls()
        at = 0
        for column in locations._columns():
            end = at + count * column.itemsize
            column.frombytes(payload[at:end])
            at = end
            if sys.byteorder == "big":
                column.byteswap()
        return locations

    def _columns(self) -> tuple[array[int], ...]:
        return self._indexes, self._terms, self._files, self._offsets, self._sizes


def _little_endian(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
