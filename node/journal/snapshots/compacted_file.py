"""One kept file: whole entries that outlived the segments they were in, and where each lies.

Owns the layout of the file, its making and its reading back; a single entry is read by whoever
has its place. The format is told in `docs/storage.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from node.journal import limits, records
from node.journal.errors import REMEDY, JournalDamaged
from node.journal.places import KEPT_BIT, EntryPlace, Places
from node.journal.record_reader import RecordReader, read_record
from node.journal.record_writer import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.journal.file_header import Owner
    from node.journal.io.storage import Storage
    from node.journal.open_files import OpenFiles

_KEPT_NAME: Final = re.compile(r"(\d{10})\.kept")


def kept_name(number: int) -> str:
    """The name of a kept file."""
    return f"{number:010d}.kept"


def parse_kept_name(name: str) -> int | None:
    """The number of a kept file; None for any other name."""
    match = _KEPT_NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A whole kept file on the disk. `number` counts kept files from 1; `file` is how places
    name it; its places begin at byte `places_at`, after `entry_bytes` of entries."""

    number: int
    seed: int
    size: int
    places_at: int
    count: int
    entry_bytes: int

    @property
    def name(self) -> str:
        """The file's name; names sort by number."""
        return kept_name(self.number)

    @property
    def file(self) -> int:
        """The number that places give it."""
        return self.number | KEPT_BIT

    @classmethod
    def open(cls, files: OpenFiles, name: str, owner: Owner) -> KeptFile:
        """Checks beginning and end; its entries and places are checked when they are read.

        Raises `JournalDamaged` or `JournalForeign`.
        """
        file = files.get(name)
        header, header_bytes, seed = owner.read_header(file, name, records.KEPT_MAGIC)
        number, size = header.numbers[0], file.size()
        if parse_kept_name(name) != number:
            raise JournalDamaged(name, 0, "the file was renamed from another kept file", REMEDY)
        end_at = size - records.KEPT_END_BYTES
        if end_at < header_bytes:
            raise JournalDamaged(name, size, "the file is cut off", REMEDY)
        payload_bytes = records.KEPT_END_BYTES - records.RECORD_BYTES
        found = read_record(file, end_at, payload_bytes, base=0, seed=seed)
        if isinstance(found, str):
            raise JournalDamaged(name, end_at, f"at the end of the file: {found}", REMEDY)
        end = records.decode_kept_end(found[1])
        if found[0].kind != records.KEPT_END or end is None:
            raise JournalDamaged(name, end_at, "the end of the file is missing", REMEDY)
        places_at, count = end
        return cls(number, seed, size, places_at, count, places_at - header_bytes)

    def places(self, files: OpenFiles) -> Iterator[Places]:
        """Where its entries are, in ascending order, some at a time."""
        reader = RecordReader(
            files.get(self.name),
            offset=self.places_at,
            size=self.size,
            base=0,
            seed=self.seed,
            chunk_bytes=limits.SNAPSHOT_WRITE_BYTES,
        )
        count = 0
        for offset, head, payload in reader:
            if head.kind == records.KEPT_END:
                continue
            found = Places.decode(payload) if head.kind == records.PLACES else None
            if found is None:
                raise JournalDamaged(self.name, offset, "no places where they should be", REMEDY)
            count += len(found)
            yield found
        if reader.problem is not None or count != self.count:
            problem = reader.problem or f"places of {count} entries, {self.count} were written"
            raise JournalDamaged(self.name, reader.offset, problem, REMEDY)


class KeptWriter:
    """A kept file in the making. What each method may raise: see `RecordWriter`."""

    def __init__(self, storage: Storage, owner: Owner, number: int, what: str) -> None:
        self._number = number
        self._places = Places()
        self.file = RecordWriter(
            storage, kept_name(number), owner.header(records.KEPT_MAGIC, number), what
        )
        self._header_bytes = self._places_at = self.file.size

    @property
    def number(self) -> int:
        """The number that the file will have."""
        return self._number

    @property
    def places(self) -> Places:
        """Where the entries lie that were added."""
        return self._places

    def add(self, command: bytes, index: int, term: int) -> EntryPlace:
        """Adds an entry, higher than all before, and returns where it will be."""
        offset = self.file.add(records.ENTRY, term, index, command)
        place = EntryPlace(index, term, self._number | KEPT_BIT, offset, len(command))
        self._places.append(place)
        return place

    def publish(self, files: OpenFiles) -> KeptFile:
        """Ends the file and returns when it is on the disk under its name."""
        self.seal(files)
        self.file.publish()
        return self.published()

    def seal(self, files: OpenFiles) -> None:
        """Ends the file; `file.publish` is what has to follow, on whichever thread."""
        self._places_at = places_at = self.file.size
        for payload in self._places.pieces(limits.PLACES_PER_RECORD):
            self.file.add(records.PLACES, 0, 0, payload)
        end = records.encode_kept_end(places_at, len(self._places))
        self.file.add(records.KEPT_END, 0, 0, end)
        files.drop(self.file.name)
        self.file.flush()

    def published(self) -> KeptFile:
        """The kept file, which is on the disk."""
        return KeptFile(
            self._number,
            self.file.seed,
            self.file.size,
            self._places_at,
            len(self._places),
            self._places_at - self._header_bytes,
        )
