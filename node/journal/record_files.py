"""Files of records: reading in sequence or at known locations, and writing one that appears whole.

Owns what one read of the disk covers, the checks of every record, and the order of write, sync,
rename and sync of the folder. What an invalid record means is the caller's to decide, but for an
entry at a known location: that is damage. A failure while writing means that the file is given up,
its name is gone, and the journal goes on; only a failed sync of the folder is final, because the
folder's names are the journal's too, and a second sync that succeeds would prove nothing. Must not
know which entries are wanted, nor Raft.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Protocol

from node.journal import limits, records
from node.journal.errors import REMEDY, JournalDamaged, SnapshotFailed
from node.journal.io.storage import FULL_ERRNOS
from node.journal.records import seed_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from node.journal.io.storage import Storage, StorageFile
    from node.journal.locations import EntryLocation
    from node.journal.records import Entry, FileHeader, RecordHead


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
    storage: Storage,
    source: RecordFile,
    locations: list[EntryLocation],
    damaged: list[EntryLocation] | None = None,
) -> Iterator[Entry]:
    """Yield the entries at `locations` of one file, by ascending offset, in few reads.

    On any thread: reads through a descriptor of its own, which nothing else closes. One that is
    not what was written goes into `damaged`, and is left out; without that, `JournalDamaged` is
    raised. Raises FileNotFoundError where the file is gone; other OSErrors pass through.
    """
    file = storage.open(source.name)
    try:
        for run in _runs(locations):
            for location, command in zip(run, _commands_of(file, source, run), strict=True):
                if command is not None:
                    yield command, location.log_index, location.term
                elif damaged is None:
                    raise not_as_written(source, location)
                else:
                    damaged.append(location)
    finally:
        file.close()


def read_run(
    file: StorageFile, source: RecordFile, run: Sequence[EntryLocation]
) -> Iterator[bytes]:
    """Yield the commands at the locations of a run, by ascending offset, all of it in one read.

    Raises `JournalDamaged` if one is not what was written; OSErrors pass through.
    """
    for location, command in zip(run, _commands_of(file, source, run), strict=True):
        if command is None:
            raise not_as_written(source, location)
        yield command


def not_as_written(source: RecordFile, location: EntryLocation) -> JournalDamaged:
    """The error of an entry that does not read as it was written."""
    problem = f"entry {location.log_index} is not what was written"
    return JournalDamaged(source.name, location.offset, problem, REMEDY)


def _commands_of(
    file: StorageFile, source: RecordFile, run: Sequence[EntryLocation]
) -> Iterator[bytes | None]:
    """Yield the command at each location of a run; None where that is not what was written."""
    start, last = run[0].offset, run[-1]
    content = file.read(start, last.offset + records.RECORD_BYTES + last.size - start)
    view = memoryview(content)
    for index, term, _, offset, size in run:
        at = offset - start
        head = check_record(view, at, size, position=source.base + offset, seed=source.seed)
        wanted = (records.ENTRY, index, term)
        if isinstance(head, str) or (head.kind, head.log_index, head.term) != wanted:
            yield None
            continue
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


TEMPORARY_SUFFIX: Final = ".tmp"


class Abortable(Protocol):
    """Something that is made step by step and can be given up."""

    def abort(self) -> None:
        """Remove what there is of it."""


@contextlib.contextmanager
def aborting(made: Abortable) -> Iterator[None]:
    """Whatever goes wrong inside ends what is being made."""
    try:
        yield
    except BaseException:
        made.abort()
        raise


class RecordWriter:
    """Writes one file under a temporary name, until `publish` or `abort`.

    `what` is the subject of its error messages. Each method but `abort` may raise
    `SnapshotFailed` and has cleaned up then; `publish` lets the OSError of a failed sync of the
    folder through.
    """

    def __init__(self, storage: Storage, name: str, header: FileHeader, what: str) -> None:
        self._storage = storage
        self.name = name
        self._what = what
        start = header.encode()
        self.seed = seed_of(start)
        self._parts: list[bytes] = [start]
        self._written = 0
        self.size = len(start)
        self._file: StorageFile | None = None
        try:
            self._file = self._create()
        except OSError as problem:
            self._give_up(problem)

    def __repr__(self) -> str:
        return f"<RecordWriter {self.name} {self.size} bytes>"

    def _create(self) -> StorageFile:
        try:
            return self._storage.create(self.name + TEMPORARY_SUFFIX)
        except FileExistsError:
            # Left by one that was given up and could not be removed.
            self._storage.unlink(self.name + TEMPORARY_SUFFIX)
            return self._storage.create(self.name + TEMPORARY_SUFFIX)

    def add(self, kind: int, term: int, index: int, payload: bytes) -> int:
        """Add a record and return its offset."""
        offset = self.size
        self._parts.append(records.encode_record(kind, offset, term, index, payload, self.seed))
        self._parts.append(payload)
        self.size += records.RECORD_BYTES + len(payload)
        if self.size - self._written >= limits.SNAPSHOT_WRITE_BYTES:
            self.flush()
        return offset

    def flush(self) -> None:
        """Hand what is gathered to the operating system."""
        if not self._parts:
            return
        try:
            self._opened.write(self._written, self._parts)
        except OSError as problem:
            self._give_up(problem)
        self._parts = []
        self._written = self.size

    def sync(self) -> None:
        """Return when all that was added is on the disk. Blocks, and may run on another thread
        as long as no other method is called meanwhile."""
        self.flush()
        try:
            self._opened.sync()
        except OSError as problem:
            self._give_up(problem)

    def publish(self) -> None:
        """Return when the file is on the disk under its name. Blocks, and may run on another
        thread as `sync` may."""
        self.sync()
        try:
            self._storage.rename(self.name + TEMPORARY_SUFFIX, self.name)
        except OSError as problem:
            self._give_up(problem)
        self._close()
        self._storage.sync_folder()

    def abort(self) -> None:
        """Remove what there is; what cannot be removed is removed at the next start. Harmless
        after the end."""
        if self._file is None:
            return
        self._close()
        with contextlib.suppress(OSError):
            self._storage.unlink(self.name + TEMPORARY_SUFFIX)

    @property
    def _opened(self) -> StorageFile:
        if self._file is None:
            raise SnapshotFailed(f"{self._what} has already ended")
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _give_up(self, problem: OSError) -> NoReturn:
        self.abort()
        reason = problem.strerror or str(problem)
        what = "no room left on the disk" if problem.errno in FULL_ERRNOS else "the disk failed"
        raise SnapshotFailed(
            f"{self._what} was given up: {what} ({reason}); the node keeps running without it"
        ) from problem
