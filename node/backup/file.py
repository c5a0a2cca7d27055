"""The file of a backup: written once, in order, and read back with every byte checked.

Owns the format (`docs/storage.md`, 14) and the order of write, sync, check and rename: a file under
its final name is whole. Must not know what a state means.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgpack

from node.backup.errors import BackupDamaged, BackupFailed
from node.journal import records
from node.journal.records import (
    BACKUP_MAGIC,
    BadHeader,
    FileHeader,
    NewerFormat,
    decode_header,
    seed_of,
)

FORMAT: Final = 1
"""Number of the format of backups, in each header."""

DIGEST_BYTES: Final = 32

FILE_MODE: Final = 0o600
"""Permissions of a backup: it holds all messages, and hashes of passwords and tokens."""

_BUFFER_BYTES: Final = 1 << 20
"""Read from the disk at a time."""

_END: Final = struct.Struct("<QQ32s32s")


def _unseen(done: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class About:
    """Where a backup is from. Times in milliseconds: `wall_ms` of the node's clock, at which
    `cluster_ms` was the cluster's time; `configuration` is the text of the node's file."""

    cluster: str
    node: str
    version: str
    cluster_ms: int
    wall_ms: int
    configuration: str

    def encode(self) -> bytes:
        """The payload of the first record."""
        packed: bytes = msgpack.packb(asdict(self))
        return packed

    @classmethod
    def decode(cls, payload: bytes) -> About:
        """Raises ValueError for any other payload."""
        found = msgpack.unpackb(payload)
        texts = {name: str(found[name]) for name in ("cluster", "node", "version", "configuration")}
        return cls(cluster_ms=int(found["cluster_ms"]), wall_ms=int(found["wall_ms"]), **texts)


class BackupWriter:
    """A backup in the making, under a temporary name beside its own until `publish`.

    Every method but `abort` raises `BackupFailed`, and leaves nothing then.
    """

    def __init__(self, path: Path, cluster_id: bytes, index: int, about: About) -> None:
        self.path = path
        self.index = index
        header = FileHeader(BACKUP_MAGIC, (FORMAT, index, 0, 0), cluster_id, about.node).encode()
        self._seed = seed_of(header)
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.state_bytes = self.entries = self.size = 0
        if path.exists():
            raise BackupFailed(f"{path} exists already: name another file, or remove it")
        self._file: BinaryIO | None = None
        try:
            descriptor, self._made = tempfile.mkstemp(".tmp", f".{path.name}.", path.parent)
            self._file = os.fdopen(descriptor, "w+b", buffering=_BUFFER_BYTES)
            self._write(header)
            self._add(records.ABOUT, 0, about.encode())
        except OSError as problem:
            self._give_up(problem)

    def add_state(self, data: bytes) -> None:
        """The next bytes of the state."""
        if data:
            self._checked(records.STATE, self.state_bytes, data)
            self._state.update(data)
            self.state_bytes += len(data)

    def add_entry(self, index: int, payload: bytes) -> None:
        """The next entry that the state points to."""
        self._checked(records.ENTRY, index, payload)
        self.entries += 1

    def state_digest(self) -> bytes:
        """The digest of the state so far."""
        return self._state.digest()

    def publish(self) -> Backup:
        """End the file, read all of it back, and give it its name; it is on the disk then."""
        end = _END.pack(self.state_bytes, self.entries, self.state_digest(), self._hash.digest())
        self._checked(records.BACKUP_END, 0, end)
        try:
            file = self._opened
            file.flush()
            os.fsync(file.fileno())
            read = Backup.open(Path(self._made))
            if self.path.exists():
                raise FileExistsError(errno.EEXIST, "it exists already")
            os.rename(self._made, self.path)
            file.close()
            self._file = None
            _sync_folder(self.path.parent)
        except BackupDamaged as damage:
            self.abort()
            raise BackupFailed(f"what was written does not read back: {damage}") from damage
        except OSError as problem:
            self._give_up(problem)
        read.path = self.path
        return read

    def abort(self) -> None:
        """Remove what there is; harmless after the end."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._made)
            with contextlib.suppress(OSError):
                file.close()  # It flushes, which a full disk refuses.

    @property
    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise BackupFailed(f"the backup {self.path} has already ended")
        return self._file

    def _checked(self, kind: int, index: int, payload: bytes) -> None:
        try:
            self._add(kind, index, payload)
        except OSError as problem:
            self._give_up(problem)

    def _add(self, kind: int, index: int, payload: bytes) -> None:
        self._write(records.encode_record(kind, self.size, 0, index, payload, self._seed))
        self._write(payload)

    def _write(self, data: bytes) -> None:
        self._opened.write(data)
        self._hash.update(data)
        self.size += len(data)

    def _give_up(self, problem: OSError) -> None:
        self.abort()
        reason = problem.strerror or str(problem)
        raise BackupFailed(
            f"{self.path} cannot be written: {reason}; nothing of it is left"
        ) from problem


class Backup:
    """A whole backup on the disk, all of which was read and checked by `open`."""

    def __init__(self, path: Path, header: FileHeader, about: About) -> None:
        self.path = path
        self.cluster_id = header.cluster_id
        self.index = header.numbers[1]
        self.about = about
        self.state_digest = self.digest = b""
        self.size = self.state_bytes = 0
        self._state_at: list[tuple[int, int]] = []
        self._indexes = array("Q")
        self._offsets = array("Q")
        self._sizes = array("I")

    @classmethod
    def open(cls, path: Path, progress: Callable[[int], None] = _unseen) -> Backup:
        """Read and check all of it. Raises `BackupDamaged`, which says where, or OSError.

        `progress` is called with the bytes read so far, now and then.
        """
        with open(path, "rb", buffering=_BUFFER_BYTES) as file:
            return _Reading(path, file).whole(progress)

    @property
    def entries(self) -> int:
        """The number of its entries."""
        return len(self._indexes)

    def state(self) -> Iterator[bytes]:
        """The state, piece by piece."""
        with open(self.path, "rb") as file:
            for offset, size in self._state_at:
                file.seek(offset)
                yield file.read(size)

    def each_entry(self) -> Iterator[tuple[int, bytes]]:
        """Index and payload of each entry, ascending."""
        with open(self.path, "rb", buffering=_BUFFER_BYTES) as file:
            for index, offset, size in zip(self._indexes, self._offsets, self._sizes, strict=True):
                file.seek(offset)
                yield index, file.read(size)

    def has_entry(self, index: int) -> bool:
        """Whether there is this entry."""
        at = bisect_left(self._indexes, index)
        return at < len(self._indexes) and self._indexes[at] == index

    def entry(self, index: int) -> bytes:
        """The payload of one entry. IndexError where there is none."""
        if not self.has_entry(index):
            raise IndexError(f"entry {index} is not in the backup")
        at = bisect_left(self._indexes, index)
        with open(self.path, "rb") as file:
            file.seek(self._offsets[at])
            return file.read(self._sizes[at])

    # --- what `_Reading` finds ---

    def note_state(self, offset: int, size: int) -> None:
        """A piece of the state begins there."""
        self._state_at.append((offset, size))
        self.state_bytes += size

    def note_entry(self, index: int, offset: int, size: int) -> bool:
        """An entry begins there; False where it cannot follow those before it."""
        if index > self.index or (self._indexes and index <= self._indexes[-1]):
            return False
        self._indexes.append(index)
        self._offsets.append(offset)
        self._sizes.append(size)
        return True


class _Reading:
    """A pass over a file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._at = 0

    def whole(self, progress: Callable[[int], None]) -> Backup:
        """All of it. Raises `BackupDamaged`."""
        start = self._file.read(records.HEADER_BYTES_MAX)
        try:
            header, header_bytes, seed = decode_header(start, BACKUP_MAGIC)
        except BadHeader as problem:
            raise self._damaged(str(problem)) from None
        except NewerFormat as problem:
            raise self._damaged(f"{problem}; use the newer version") from None
        if header.numbers[0] != FORMAT:
            raise self._damaged(
                f"backup format {header.numbers[0]}, this version reads {FORMAT}: use the newer one"
            )
        self._file.seek(header_bytes)
        self._hash.update(start[:header_bytes])
        self._at = header_bytes
        head, payload = self._record(seed)
        if head.kind != records.ABOUT:
            raise self._damaged("the first record does not say where the backup is from")
        try:
            about = About.decode(payload)
        except (ValueError, KeyError, TypeError, msgpack.UnpackException):
            raise self._damaged("the first record cannot be read") from None
        backup = Backup(self._path, header, about)
        while not self._take(backup, seed):
            progress(self._at)
        if self._file.read(1):
            raise self._damaged("bytes follow the end record")
        backup.size = self._at
        return backup

    def _take(self, backup: Backup, seed: int) -> bool:
        """Take the next record; whether it was the last."""
        at, before = self._at, self._hash.digest()
        head, payload = self._record(seed)
        payload_at = at + records.RECORD_BYTES
        if head.kind == records.STATE and head.log_index == backup.state_bytes:
            backup.note_state(payload_at, head.size)
            self._state.update(payload)
            return False
        if head.kind == records.ENTRY:
            if not backup.note_entry(head.log_index, payload_at, head.size):
                raise self._damaged(f"entry {head.log_index} is out of order", at)
            return False
        if head.kind != records.BACKUP_END or len(payload) != _END.size:
            raise self._damaged(f"a record of kind {head.kind} does not belong here", at)
        state_bytes, entries, state_digest, digest = _END.unpack(payload)
        found = (backup.state_bytes, backup.entries, self._state.digest(), before)
        if found != (state_bytes, entries, state_digest, digest):
            raise self._damaged("sizes or digests differ from the end record", at)
        backup.state_digest, backup.digest = state_digest, digest
        return True

    def _record(self, seed: int) -> tuple[records.RecordHead, bytes]:
        head_bytes = self._file.read(records.RECORD_BYTES)
        if not head_bytes:
            raise self._damaged("the file ends here, without its end record: it is cut off")
        if len(head_bytes) < records.RECORD_BYTES:
            raise self._damaged("a record is cut off")
        head = records.decode_record(memoryview(head_bytes), 0, self._at)
        if isinstance(head, str):
            raise self._damaged(head)
        payload = self._file.read(head.size)
        if len(payload) < head.size:
            raise self._damaged("a record is cut off")
        if not records.record_is_whole(memoryview(head_bytes + payload), 0, head, seed):
            raise self._damaged("the checksum of a record is wrong")
        self._hash.update(head_bytes)
        self._hash.update(payload)
        self._at += records.RECORD_BYTES + head.size
        return head, payload

    def _damaged(self, problem: str, at: int | None = None) -> BackupDamaged:
        return BackupDamaged(str(self._path), self._at if at is None else at, problem)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
