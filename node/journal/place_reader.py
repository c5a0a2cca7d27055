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
    from node.journal.places import EntryPlace


class Holder(NamedTuple):
    """The file that entries lie in: its name, and what positions and checksums in it begin at."""

    name: str
    base: int
    seed: int


def read_places(
    storage: Storage, holder: Holder, places: list[EntryPlace]
) -> Iterator[tuple[EntryPlace, bytes]]:
    """Each of `places` of one file with its command, by ascending offset; with a descriptor of its
    own, so that nothing that is closed or removed meanwhile concerns it: on whichever thread.

    FileNotFoundError where the file is gone; otherwise as `read_neighbours`.
    """
    file = storage.open(holder.name)
    try:
        for run in neighbours(places):
            yield from zip(run, read_neighbours(file, holder, run), strict=True)
    finally:
        file.close()


def read_neighbours(
    file: StorageFile, holder: Holder, places: Sequence[EntryPlace]
) -> Iterator[bytes]:
    """The commands at `places` of one file, by ascending offset, with one read of all of it.

    `JournalDamaged` if one does not read as it was written; OSErrors pass through.
    """
    start, last = places[0].offset, places[-1]
    content = file.read(start, last.offset + records.RECORD_BYTES + last.size - start)
    view = memoryview(content)
    for index, term, _, offset, size in places:
        at = offset - start
        head = check_record(view, at, size, position=holder.base + offset, seed=holder.seed)
        wanted = (records.ENTRY, index, term)
        if isinstance(head, str) or (head.kind, head.log_index, head.term) != wanted:
            problem = f"entry {index} does not read as it was written"
            raise JournalDamaged(holder.name, offset, problem, REMEDY)
        at += records.RECORD_BYTES
        yield content[at : at + size]


def neighbours(places: list[EntryPlace]) -> Iterator[list[EntryPlace]]:
    """Places of one file, cut into what is worth one read: little lies between, and not too much
    is read at once."""
    places.sort(key=lambda place: place.offset)
    run: list[EntryPlace] = []
    start = end = 0
    for place in places:
        place_end = place.offset + records.RECORD_BYTES + place.size
        if run and (
            place.offset - end > limits.FETCH_GAP_BYTES or place_end - start > limits.RUN_BYTES
        ):
            yield run
            run = []
        if not run:
            start = place.offset
        run.append(place)
        end = place_end
    if run:
        yield run
