"""Damage found while a journal is in use: entries that wait for their repair, files in doubt.

Owns what is known to read otherwise than it was written, until it is repaired or gone. Must not
know how it was found, nor where the right bytes come from.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from node.journal import records
from node.journal.record_files import not_as_written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from node.journal.errors import JournalDamaged
    from node.journal.io.storage import Storage
    from node.journal.locations import EntryLocation
    from node.journal.record_files import RecordFile

logger = logging.getLogger(__name__)


class Places(Protocol):
    """Where entries lie."""

    def locate(self, index: int) -> EntryLocation | None:
        """The location of an entry; None if it is gone."""

    def file_of(self, location: EntryLocation) -> RecordFile:
        """The file of a location."""


class Doubt(NamedTuple):
    """A file of which something else than an entry is damaged: a later snapshot replaces it."""

    file: str
    offset: int
    problem: str


@dataclass(slots=True)
class Damages:
    """The damage to one journal that is known. Not thread-safe: what another thread found is noted
    on the loop."""

    entries: dict[int, EntryLocation]
    """By index: the entries that are not what was written."""

    doubts: dict[str, Doubt]
    """By file."""

    found: Callable[[], None] = lambda: None
    """Called when there is news."""

    found_total: int = 0
    repaired_total: int = 0

    @classmethod
    def none(cls) -> Damages:
        """Nothing is known to be damaged."""
        return cls({}, {})

    def note(self, places: Places, locations: Iterable[EntryLocation]) -> None:
        """Take entries that did not read as they were written, where they still lie there."""
        for location in locations:
            index = location.log_index
            if index in self.entries or places.locate(index) != location:
                continue
            self.entries[index] = location
            self.found_total += 1
            logger.error(
                "event=entry_damaged file=%s byte=%d index=%d advice=it is asked of the other "
                "members and written again; look at the disk and the memory of this machine",
                places.file_of(location).name,
                location.offset,
                index,
            )
            self.found()

    def doubt(self, doubt: Doubt) -> None:
        """Take damage that is not an entry's."""
        if doubt.file in self.doubts:
            return
        self.doubts[doubt.file] = doubt
        self.found_total += 1
        logger.error(
            "event=journal_damaged file=%s byte=%d problem=%s advice=the next snapshots replace "
            "that file; look at the disk and the memory of this machine",
            *doubt,
        )
        self.found()

    def waiting(self, places: Places) -> list[EntryLocation]:
        """Entries that wait for their repair; those that are gone, or lie elsewhere, are dropped:
        what was copied was whole."""
        for index, location in list(self.entries.items()):
            if places.locate(index) != location:
                del self.entries[index]
        return list(self.entries.values())

    def error(self, places: Places, location: EntryLocation) -> JournalDamaged:
        """The error that ends a node which has to have this entry, and cannot get it."""
        return not_as_written(places.file_of(location), location)


class Rewrite(NamedTuple):
    """An entry's record, to be written where it was, byte by byte as it was."""

    storage: Storage
    source: RecordFile
    location: EntryLocation
    command: bytes

    def run(self) -> bool:
        """Write it, sync, and read it back; whether it is right then. On any thread. OSErrors pass
        through: the disk does not take it. False too where the file is gone."""
        index, term, _, offset, _ = self.location
        position = self.source.base + offset
        head = records.encode_record(
            records.ENTRY, position, term, index, self.command, self.source.seed
        )
        try:
            file = self.storage.open(self.source.name)
        except FileNotFoundError:
            return False
        try:
            file.write(offset, [head, self.command])
            file.sync()
            whole_bytes = records.RECORD_BYTES + len(self.command)
            return file.read(offset, whole_bytes) == head + self.command
        finally:
            file.close()
