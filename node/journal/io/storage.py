"""The protocol between the journal and a disk, the real disk, and the open files.

Owns every system call on the journal's folder. Must not know records, segments or Raft. The
simulated twin is `node/testing/disk.py`: a method added here needs one there, with its
behaviour at power loss.

A storage is one folder with flat names. Errors of the operating system come out as `OSError`;
what they mean is decided by the journal.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from node.journal import limits
from node.journal.errors import JournalLocked
from node.journal.io.place import Place, of_file
from node.journal.io.seats import Seats

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCK_NAME = "lock"
"""The file whose lock says that a process uses the folder; it holds that process's number."""

AUDIT_FOLDER = "audit"
"""A folder beside the journal's files, which are all that a storage has."""

FILE_MODE = 0o600
"""Permissions of every file of a journal: it holds the bodies of all messages."""

FULL_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Errors that mean: no room. EFBIG is what a file size limit of the process gives."""


class StorageFile(Protocol):
    """An open file. Reads and writes name their offset; there is no shared cursor."""

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        """Write `parts` end to end at `offset`, all of it or an OSError (some may be written)."""

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`; fewer only where the file ends."""

    def sync(self) -> None:
        """Return when content and size are on the disk (fdatasync)."""

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long, with room on the disk for all of them, or an OSError
        (some may be there)."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes; not durable before the next sync."""

    def size(self) -> int:
        """The file's size in bytes."""

    def close(self) -> None:
        """Give the descriptor back; no other call may follow."""


class Storage(Protocol):
    """A folder with flat names."""

    @property
    def folder(self) -> str:
        """The name of the folder in messages to an operator."""

    def lock(self) -> None:
        """Take the folder for this process, making it if needed; `JournalLocked` if taken."""

    def unlock(self) -> None:
        """Give the folder back; harmless if it is not held."""

    def listdir(self) -> list[str]:
        """All names in the folder, sorted, the lock file's not among them."""

    def create(self, name: str) -> StorageFile:
        """Make a new, empty file; FileExistsError if the name is taken."""

    def open(self, name: str) -> StorageFile:
        """Open an existing file to read and write; FileNotFoundError if there is none."""

    def rename(self, old: str, new: str) -> None:
        """Rename within the folder; durable after `sync_folder`."""

    def unlink(self, name: str) -> None:
        """Remove a name; durable after `sync_folder`."""

    def sync_folder(self) -> None:
        """Return when the folder's names are on the disk. Two threads may call it at a time; once
        it has failed it fails."""

    def free_bytes(self) -> int:
        """Bytes that this process can still write on the disk."""

    def disk_bytes(self) -> int:
        """Size of the disk, full or not; before the folder is made, too."""

    def place(self) -> Place:
        """Where the lock file of the locked folder is: a copy of the folder is elsewhere."""


# macOS has no fdatasync; fsync is the stronger call.
_datasync = getattr(os, "fdatasync", os.fsync)


class OsFile:
    """A `StorageFile` on a descriptor."""

    def __init__(self, descriptor: int, seats: Seats) -> None:
        """Closing it leaves the descriptor to `seats`."""
        self._descriptor = descriptor
        self._seats = seats

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        for start in range(0, len(parts), limits.WRITE_PARTS_MAX):
            some = parts[start : start + limits.WRITE_PARTS_MAX]
            end = offset + sum(map(len, some))
            written = os.pwritev(self._descriptor, some, offset)
            if offset + written < end:
                # A short write is legal (a signal, a nearly full disk): the rest goes plainly.
                self._write_rest(end, memoryview(b"".join(some))[written:])
            offset = end

    def _write_rest(self, end: int, rest: memoryview) -> None:
        while rest:
            count = os.pwrite(self._descriptor, rest, end - len(rest))
            if count == 0:
                raise OSError(
                    errno.EIO, "short write: the disk took no more bytes and reported no error"
                )
            rest = rest[count:]

    def read(self, offset: int, size: int) -> bytes:
        content = os.pread(self._descriptor, size, offset)
        if len(content) == size or not content:
            return content
        pieces = [content]
        missing = size - len(content)
        while missing:
            piece = os.pread(self._descriptor, missing, offset + size - missing)
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def sync(self) -> None:
        _datasync(self._descriptor)

    def allocate(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, size)
            return
        for offset in range(0, size, limits.RUN_BYTES):  # macOS has no such call.
            self.write(offset, (bytes(min(limits.RUN_BYTES, size - offset)),))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        self._seats.leave(self._descriptor)


class OsStorage:
    """A `Storage` on a real folder, which is made when it is locked for the first time.

    From then on it holds `limits.DESCRIPTORS` descriptors, those of its open files among them: no
    connection of this process can take the one that the next segment needs.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._seats = Seats()
        self._lock: int | None = None
        self._folder_turn = threading.Lock()
        self._folder_problem: OSError | None = None

    def __repr__(self) -> str:
        return f"<OsStorage {self._directory}{' locked' if self._lock is not None else ''}>"

    @property
    def folder(self) -> str:
        return str(self._directory)

    def lock(self) -> None:
        self._make_folder()
        path = self._directory / LOCK_NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise JournalLocked(
                f"the journal folder {self.folder} is in use by process {holder or 'unknown'}; "
                "stop that node first, or give this one a folder of its own"
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        self._lock = descriptor
        self._seats.reserve(descriptor, limits.DESCRIPTORS)
        # The number is for the message above only, so a full disk must not keep a node down.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def _make_folder(self) -> None:
        """Make the folder and whatever lies above it, each durable in its parent."""
        missing = []
        folder = self._directory
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for made in reversed(missing):
            made.mkdir(exist_ok=True)
            _sync_folder(made.parent, self._seats)

    def unlock(self) -> None:
        if self._lock is not None:
            self._seats.give_up()
            os.close(self._lock)
            self._lock = None

    def listdir(self) -> list[str]:
        names = os.listdir(self._directory)
        return sorted(name for name in names if name not in (LOCK_NAME, AUDIT_FOLDER))

    def create(self, name: str) -> OsFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return self._file(name, flags)

    def open(self, name: str) -> OsFile:
        return self._file(name, os.O_RDWR | os.O_CLOEXEC)

    def _file(self, name: str, flags: int) -> OsFile:
        path = self._directory / name
        return OsFile(self._seats.take(lambda: os.open(path, flags, FILE_MODE)), self._seats)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._directory / old, self._directory / new)

    def unlink(self, name: str) -> None:
        os.unlink(self._directory / name)

    def sync_folder(self) -> None:
        # The kernel reports a failed sync to one caller only, and another thread must not take
        # its own call for a success: one at a time, and none after a failed one.
        with self._folder_turn:
            if self._folder_problem is not None:
                raise self._folder_problem
            try:
                _sync_folder(self._directory, self._seats)
            except OSError as problem:
                self._folder_problem = problem
                raise

    def free_bytes(self) -> int:
        figures = os.statvfs(self._directory)
        return figures.f_bavail * figures.f_frsize

    def disk_bytes(self) -> int:
        folder = self._directory.absolute()
        while not folder.exists():
            folder = folder.parent
        figures = os.statvfs(folder)
        return figures.f_blocks * figures.f_frsize

    def place(self) -> Place:
        assert self._lock is not None, "the folder is locked"
        return of_file(self._lock)


def _sync_folder(path: Path, seats: Seats) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = seats.take(lambda: os.open(path, flags))
    try:
        os.fsync(descriptor)
    finally:
        seats.leave(descriptor)


class OpenFiles:
    """At most `open_max` open files, the least recently used closed first, `written` never."""

    def __init__(self, storage: Storage, open_max: int) -> None:
        self._storage = storage
        self._open_max = open_max
        self._files: dict[str, StorageFile] = {}
        self.written: str | None = None
        """The file that is being written stays open: a failed sync is only reported to
        descriptors that were open when it failed."""

    def __len__(self) -> int:
        return len(self._files)

    def get(self, name: str) -> StorageFile:
        """The open file, opened again if its descriptor was given back."""
        file = self._files.pop(name, None) or self._storage.open(name)
        self.keep(name, file)
        return file

    def keep(self, name: str, file: StorageFile) -> None:
        """Note an open file as the most recently used."""
        self._files[name] = file
        while len(self._files) > self._open_max:
            oldest = next(iter(self._files))
            if oldest == self.written:
                self._files[oldest] = self._files.pop(oldest)
                continue
            self._files.pop(oldest).close()

    def drop(self, name: str) -> None:
        """Close a file that is about to go, if it is open."""
        file = self._files.pop(name, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close every descriptor."""
        for file in self._files.values():
            file.close()
        self._files.clear()
