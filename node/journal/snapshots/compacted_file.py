"""A compacted file: whole entries that outlived the segments they were in, and their locations.

Owns the layout of the file, its making and its reading back; the owner of a location reads a single
entry. `docs/storage.md` describes the format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from node.journal import limits, records
from node.journal.errors import REMEDY, JournalDamaged
from node.journal.locations import COMPACTED_BIT, EntryLocation, EntryLocations
from node.journal.record_files import RecordReader, RecordWriter, read_record
from node.journal.records import COMPACTED_MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.journal.io.storage import OpenFiles, Storage
    from node.journal.records import JournalIdentity

_COMPACTED_NAME: Final = re.compile(r"(\d{10})\.kept")


def compacted_name(number: int) -> str:
    """The name of a compacted file."""
    return f"{number:010d}.kept"


def parse_compacted_name(name: str) -> int | None:
    """The number of a compacted file; None for any other name."""
    match = _COMPACTED_NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class CompactedFile:
    """A whole compacted file on the disk. `number` counts compacted files from 1; `file` is its
    number in locations; those begin at byte `locations_at`, after `entry_bytes` of entries."""

    number: int
    seed: int
    size: int
    locations_at: int
    count: int
    entry_bytes: int

    @property
    def name(self) -> str:
        """The file's name; names sort by number."""
        return compacted_name(self.number)

    @property
    def file(self) -> int:
        """Its number in locations."""
        return self.number | COMPACTED_BIT

    @classmethod
    def open(cls, files: OpenFiles, name: str, identity: JournalIdentity) -> CompactedFile:
        """Check beginning and end; its entries and locations are checked when they are read.

        Raises `JournalDamaged` or `JournalForeign`.
        """
        file = files.get(name)
        header, header_bytes, seed = identity.read_header(file, name, COMPACTED_MAGIC)
        number, size = header.numbers[0], file.size()
        if parse_compacted_name(name) != number:
            raise JournalDamaged(
                name, 0, "the file was renamed from another compacted file", REMEDY
            )
        end_at = size - records.COMPACTED_END_BYTES
        if end_at < header_bytes:
            raise JournalDamaged(name, size, "the file is cut off", REMEDY)
        payload_bytes = records.COMPACTED_END_BYTES - records.RECORD_BYTES
        found = read_record(file, end_at, payload_bytes, base=0, seed=seed)
        if isinstance(found, str):
            raise JournalDamaged(name, end_at, f"at the end of the file: {found}", REMEDY)
        end = records.decode_compacted_end(found[1])
        if found[0].kind != records.COMPACTED_END or end is None:
            raise JournalDamaged(name, end_at, "the end of the file is missing", REMEDY)
        locations_at, count = end
        return cls(number, seed, size, locations_at, count, locations_at - header_bytes)

    def locations(self, files: OpenFiles) -> Iterator[EntryLocations]:
        """Locations of its entries, in ascending order, some at a time."""
        reader = RecordReader(
            files.get(self.name),
            offset=self.locations_at,
            size=self.size,
            base=0,
            seed=self.seed,
            chunk_bytes=limits.SNAPSHOT_WRITE_BYTES,
        )
        count = 0
        for offset, head, payload in reader:
            if head.kind == records.COMPACTED_END:
                continue
            found = EntryLocations.decode(payload) if head.kind == records.LOCATIONS else None
            if found is None:
                raise JournalDamaged(self.name, offset, "expected a record of locations", REMEDY)
            count += len(found)
            yield found
        if reader.problem is not None or count != self.count:
            problem = reader.problem or f"locations of {count} entries, expected {self.count}"
            raise JournalDamaged(self.name, reader.offset, problem, REMEDY)


class CompactedFileWriter:
    """A compacted file in the making. What each method may raise: see `RecordWriter`."""

    def __init__(self, storage: Storage, identity: JournalIdentity, number: int, what: str) -> None:
        self._number = number
        self._locations = EntryLocations()
        self.file = RecordWriter(
            storage, compacted_name(number), identity.header(COMPACTED_MAGIC, number), what
        )
        self._header_bytes = self._locations_at = self.file.size

    @property
    def number(self) -> int:
        """The number that the file will have."""
        return self._number

    @property
    def locations(self) -> EntryLocations:
        """Locations of the entries that were added."""
        return self._locations

    def add(self, command: bytes, index: int, term: int) -> EntryLocation:
        """Add an entry, higher than all before, and return where it will be."""
        offset = self.file.add(records.ENTRY, term, index, command)
        location = EntryLocation(index, term, self._number | COMPACTED_BIT, offset, len(command))
        self._locations.append(location)
        return location

    def publish(self, files: OpenFiles) -> CompactedFile:
        """End the file and return when it is on the disk under its name."""
        self.seal(files)
        self.file.publish()
        return self.published()

    def seal(self, files: OpenFiles) -> None:
        """End the file; `file.publish` has to follow, on any thread."""
        self._locations_at = locations_at = self.file.size
        for payload in self._locations.pieces(limits.LOCATIONS_PER_RECORD):
            self.file.add(records.LOCATIONS, 0, 0, payload)
        end = records.encode_compacted_end(locations_at, len(self._locations))
        self.file.add(records.COMPACTED_END, 0, 0, end)
        files.drop(self.file.name)
        self.file.flush()

    def published(self) -> CompactedFile:
        """The compacted file, which is on the disk."""
        return CompactedFile(
            self._number,
            self.file.seed,
            self.file.size,
            self._locations_at,
            len(self._locations),
            self._locations_at - self._header_bytes,
        )
