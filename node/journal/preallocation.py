"""Preallocation at the end of the segment that is written.

An append changes a file's size and its map of blocks, which the file system has to bring to the
disk with every sync, beside the data. So a small group that would pass the end of the file brings
zeros with it, in the same write, and the groups behind it are written into them: their syncs have
only data to bring. Owns how far the file is filled, and that it ends with its last record when the
log goes on in another file. Must not know records; the journal judges an OSError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.journal import limits
from node.journal.io.storage import FULL_ERRNOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from node.journal.io.storage import StorageFile


class Preallocation:
    """Zero-filled preallocation at the end of one segment file. Not thread-safe."""

    def __init__(
        self, file: StorageFile, size: int, *, full: int, preallocation_bytes: int
    ) -> None:
        """The file ends at `size`. Below `full`, `preallocation_bytes` of zeros are added at a
        time; a group that reaches `full` is the last of the file, and none are added beyond it."""
        self._file = file
        self._size = size
        self._full = full
        self._zeros = bytes(preallocation_bytes)

    def write(self, offset: int, parts: Sequence[bytes], size: int) -> None:
        """Write and sync a group of `parts`, `size` bytes together, at `offset`."""
        end = offset + size
        if end > self._size:
            self._extend(offset, parts, end, size)
        else:
            self._file.write(offset, parts)
        self._file.sync()

    def _extend(self, offset: int, parts: Sequence[bytes], end: int, size: int) -> None:
        """A large group brings no zeros: its own data takes the time."""
        ahead = (
            self._zeros[: max(self._full - end, 0)]
            if size <= limits.PREALLOCATION_GROUP_BYTES
            else b""
        )
        self._size = end + len(ahead)
        try:
            self._file.write(offset, [*parts, ahead] if ahead else parts)
        except OSError as problem:
            if not ahead or problem.errno not in FULL_ERRNOS:
                raise
            # The disk is nearly full: this file preallocates no more. A failed write, unlike a
            # failed sync, dropped no page of the cache, so the group itself may still fit.
            self._zeros = b""
            self._file.write(offset, parts)
            self.cut(end)

    def cut(self, end: int) -> bool:
        """Truncate the file to `end`, where its last record ends; durable after a sync. False if it
        ends there already."""
        if self._size == end:
            return False
        self._file.truncate(end)
        self._size = end
        return True
