"""Reading entries at known places of one file, each checked as if it were read alone.

Owns what one read of the disk covers: places with little between them, up to a bounded size. Knows
neither which entries are wanted nor who has the file open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from node.journal import limits, records
from node.journal.errors import REMEDY, JournalDamaged
from node.journal.record_reader import check_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from node.journal.io.storage import Storage, StorageFile
    from node.journal.locations import EntryLocation


class RecordFile(NamedTuple):
    """The file that entries lie in: its name, and what positions and checksums in it begin at."""

    name: str
    base: int
    seed: int


def read_locations(
    storage: Storage, holder: RecordFile, locations: list[EntryLocation]
) -> Iterator[tuple[EntryLocation, bytes]]:
    """Yield each of `locations` of one file with its command, by ascending offset. On any thread:
    reads through a descriptor of its own, which nothing else closes.

    FileNotFoundError where the file is gone; otherwise as `read_neighbours`.
    """
    file = storage.open(holder.name)
    try:
        for run in neighbours(locations):
            yield from zip(run, read_neighbours(file, holder, run), strict=True)
    finally:
        file.close()


def read_neighbours(
    file: StorageFile, holder: RecordFile, locations: Sequence[EntryLocation]
) -> Iterator[bytes]:
    """The commands at `locations` of one file, by ascending offset, with one read of all of it.

    `JournalDamaged` if one does not read as it was written; OSErrors pass through.
    """
    start, last = locations[0].offset, locations[-1]
    content = file.read(start, last.offset + records.RECORD_BYTES + last.size - start)
    view = memoryview(content)
    for index, term, _, offset, size in locations:
        at = offset - start
        head = check_record(view, at, size, position=holder.base + offset, seed=holder.seed)
        wanted = (records.ENTRY, index, term)
        if isinstance(head, str) or (head.kind, head.log_index, head.term) != wanted:
            problem = f"entry {index} does not read as it was written"
            raise JournalDamaged(holder.name, offset, problem, REMEDY)
        at += records.RECORD_BYTES
        yield content[at : at + size]


def neighbours(locations: list[EntryLocation]) -> Iterator[list[EntryLocation]]:
    """Cut locations of one file into groups that are worth one read each: small gaps, and a
    bounded size."""
    locations.sort(key=lambda location: location.offset)
    run: list[EntryLocation] = []
    start = end = 0
    for location in locations:
        place_end = location.offset + records.RECORD_BYTES + location.size
        if run and (
            location.offset - end > limits.FETCH_GAP_BYTES or place_end - start > limits.RUN_BYTES
        ):
            yield run
            run = []
        if not run:
            start = location.offset
        run.append(location)
        end = place_end
    if run:
        yield run
