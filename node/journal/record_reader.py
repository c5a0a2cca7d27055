"""Reading records out of a file: in a row, or one at a known place. Each is checked.

Owns the reading, not the judgement: what an invalid record means is for those who read. Knows
no names and no Raft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.journal import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.journal.io.storage import StorageFile
    from node.journal.records import RecordHead


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
        """Yields (offset, head, payload); the payload is only valid until the next one."""
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
        """Has `count` bytes from `offset` in the view; their place there, or -1 at the end."""
        at = self.offset - self._view_at
        if len(self._view) - at >= count:
            return at
        rest = self._view[at:]
        more = self._file.read(self.offset + len(rest), max(self._chunk_bytes, count - len(rest)))
        self._view = memoryview(b"".join((rest, more)))
        self._view_at = self.offset
        return 0 if len(self._view) >= count else -1

    def rest(self) -> bytes:
        """The file from the place on where the reading stopped."""
        return self._file.read(self.offset, self._size - self.offset)
