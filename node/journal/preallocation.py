"""The end of the segment that is written: groups of records, and the room that is ahead of them.

An append changes a file's size and its map of blocks, which the file system has to bring to the
disk with every sync, beside the data. So a small group that would pass the end of the file takes
zeros along, in the same write, and those behind it are written into them: a sync has only data to
bring then. Owns how far the file is filled, and that it ends with its last record when the log goes
on in another one. Knows no record; what an OSError means is the journal's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.journal import limits
from node.journal.io.storage import FULL_ERRNOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from node.journal.io.storage import StorageFile


class Preallocation:
    """Of one file, for one thread at a time."""

    def __init__(
        self, file: StorageFile, size: int, *, full: int, preallocation_bytes: int
    ) -> None:
        """The file ends at `size`. A group that reaches `full` is its last, so that no room is made
        beyond that; before, it is made by `preallocation_bytes` at a time."""
        self._file = file
        self._size = size
        self._full = full
        self._zeros = bytes(preallocation_bytes)

    def write(self, offset: int, parts: Sequence[bytes], size: int) -> None:
        """Returns when a group is on the disk: `parts`, which have `size` bytes together."""
        end = offset + size
        if end > self._size:
            self._extend(offset, parts, end, size)
        else:
            self._file.write(offset, parts)
        self._file.sync()

    def _extend(self, offset: int, parts: Sequence[bytes], end: int, size: int) -> None:
        """A large group takes no zeros along: its own data is what takes the time."""
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
            # The disk has none to spare, so this file is not asked for it again. What failed took
            # no page of the cache, unlike a failed sync: the group itself may still fit.
            self._zeros = b""
            self._file.write(offset, parts)
            self.cut(end)

    def cut(self, end: int) -> bool:
        """Lets the file end at `end`, where its last record does; durable after a sync. False if it
        ends there already."""
        if self._size == end:
            return False
        self._file.truncate(end)
        self._size = end
        return True
