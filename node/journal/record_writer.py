"""Writing a file of records that appears whole or not at all.

Owns the temporary name, the order of write, sync, rename and sync of the folder, and what a
failure on the way means: the file is given up, its name is gone, the journal goes on. Only a
failed sync of the folder is final, because the folder's names are the journal's too, and a second
sync that succeeds would prove nothing. Knows no Raft.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from node.journal import limits, records
from node.journal.errors import SnapshotFailed
from node.journal.file_header import seed_of
from node.journal.io.storage import FULL_ERRNOS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.journal.file_header import FileHeader
    from node.journal.io.storage import Storage, StorageFile

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
