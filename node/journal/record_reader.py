"""Reading records out of a file: in sequence, or at known locations. Each is checked.

Owns what one read of the disk covers, and the checks of every record. What an invalid record means
is the caller's to decide, but for an entry at a known location: that is damage. Must not know which
entries are wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from node.journal import limits, records
from node.journal.errors import REMEDY, JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from node.journal.io.storage import Storage, StorageFile
    from node.journal.locations import EntryLocation
    from node.journal.records import Entry, RecordHead


def read_record(
    file: StorageFile, offset: int, size: int, *, base: int, seed: int
) -> tuple[RecordHead, bytes] | str:
    """The record at `offset`, whose payload has `size` bytes; what is wrong with it, in words."""
    content = file.read(offset, records.RECORD_BYTES + size)
    head = check_record(memoryview(content), 0, size, position=base + offset, seed=seed)
    return head if isinstance(head, str) else (head, content[records.RECORD_BYTES :])


def check_record(
    view: memoryview, at: int, size: int, *, position: int, seed: int
) -> RecordHead | str:
    """The head of the record at `at` of `view`, whose payload has `size` bytes and is right; what
    is wrong with it, in words."""
    if len(view) < at + records.RECORD_BYTES + size:
        return "a record is cut off"
    head = records.decode_record(view, at, position)
    if isinstance(head, str):
        return head
    if head.size != size:
        return f"a record of {head.size} bytes, {size} were written"
    if not records.record_is_whole(view, at, head, seed):
        return "the checksum of a record is wrong"
    return head


class RecordReader:
    """Reads a file's records in large sequential pieces, checking each.

    `offset` is where to begin, `size` where the file ends; a record at offset `o` belongs to
    position `base + o`. After the iteration `offset` is where it stopped and `problem` says why,
    None at a clean end.
    """

    def __init__(
        self, file: StorageFile, *, offset: int, size: int, base: int, seed: int, chunk_bytes: int
    ) -> None:
        self._file = file
        self._size = size
        self._base = base
        self._seed = seed
        self._chunk_bytes = chunk_bytes
        self._view = memoryview(b"")
        self._view_at = offset
        self.offset = offset
        self.problem: str | None = None

    def __iter__(self) -> Iterator[tuple[int, RecordHead, memoryview]]:
        """Yield (offset, head, payload); the payload is only valid until the next one."""
        while self.offset < self._size:
            at = self._need(records.RECORD_BYTES)
            if at < 0:
                self.problem = "a record is cut off"
                return
            head = records.decode_record(self._view, at, self._base + self.offset)
            if isinstance(head, str):
                self.problem = head
                return
            whole_bytes = records.RECORD_BYTES + head.size
            at = self._need(whole_bytes)
            if at < 0:
                self.problem = "a record is cut off"
                return
            if not records.record_is_whole(self._view, at, head, self._seed):
                self.problem = "the checksum of a record is wrong"
                return
            yield self.offset, head, self._view[at + records.RECORD_BYTES : at + whole_bytes]
            self.offset += whole_bytes

    def _need(self, count: int) -> int:
        """Have `count` bytes from `offset` in the view; their offset in it, or -1 at the end."""
        at = self.offset - self._view_at
        if len(self._view) - at >= count:
            return at
        rest = self._view[at:]
        more = self._file.read(self.offset + len(rest), max(self._chunk_bytes, count - len(rest)))
        self._view = memoryview(b"".join((rest, more)))
        self._view_at = self.offset
        return 0 if len(self._view) >= count else -1

    def rest(self) -> bytes:
        """The rest of the file, from where the reading stopped."""
        return self._file.read(self.offset, self._size - self.offset)


# --- entries at known locations ---


class RecordFile(NamedTuple):
    """A file with records: its name, the position of its first byte, the seed of its checksums."""

    name: str
    base: int
    seed: int


def read_entries(
    storage: Storage, source: RecordFile, locations: list[EntryLocation]
) -> Iterator[Entry]:
    """Yield the entries at `locations` of one file, by ascending offset, in few reads.

    On any thread: reads through a descriptor of its own, which nothing else closes. Raises
    FileNotFoundError where the file is gone; otherwise as `read_run`.
    """
    file = storage.open(source.name)
    try:
        for run in _runs(locations):
            for location, command in zip(run, read_run(file, source, run), strict=True):
                yield command, location.log_index, location.term
    finally:
        file.close()


def read_run(
    file: StorageFile, source: RecordFile, run: Sequence[EntryLocation]
) -> Iterator[bytes]:
    """Yield the commands at the locations of a run, by ascending offset, all of it in one read.

    Raises `JournalDamaged` if one does not read as it was written; OSErrors pass through.
    """
    start, last = run[0].offset, run[-1]
    content = file.read(start, last.offset + records.RECORD_BYTES + last.size - start)
    view = memoryview(content)
    for index, term, _, offset, size in run:
        at = offset - start
        head = check_record(view, at, size, position=source.base + offset, seed=source.seed)
        wanted = (records.ENTRY, index, term)
        if isinstance(head, str) or (head.kind, head.log_index, head.term) != wanted:
            problem = f"entry {index} does not read as it was written"
            raise JournalDamaged(source.name, offset, problem, REMEDY)
        at += records.RECORD_BYTES
        yield content[at : at + size]


def _runs(locations: list[EntryLocation]) -> Iterator[list[EntryLocation]]:
    """Cut locations of one file into groups that are worth one read each: small gaps, and a
    bounded size."""
    locations.sort(key=lambda location: location.offset)
    run: list[EntryLocation] = []
    start = end = 0
    for location in locations:
        location_end = location.offset + records.RECORD_BYTES + location.size
        gap = location.offset - end
        if run and (gap > limits.FETCH_GAP_BYTES or location_end - start > limits.RUN_BYTES):
            yield run
            run = []
        if not run:
            start = location.offset
        run.append(location)
        end = location_end
    if run:
        yield run
