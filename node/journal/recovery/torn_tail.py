"""Telling a torn group from damage, by the bytes behind an invalid record.

Owns that judgement and reads no file. A group goes to the disk in one write, partly into room that
was zeroed before, and a power cut may keep any of its sectors; the next group is written after the
sync of this one. So whole records behind an invalid one tell two things: a group that begins there
says that the disk once had what is missing, and a record of the same group says that a sector in
front of it was lost, which then still holds the zeros of the room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from node.journal import records
from node.journal.records import RecordHead

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECTOR_BYTES: Final = 512
"""The unit that a disk writes whole or not at all, counted from the start of a file; many disks
have a larger one."""


def proof_of_damage(rest: bytes, offset: int, base: int, seed: int) -> int | None:
    """Where a valid record follows that could not be there if an invalid one, at `offset` of a
    segment, were the beginning of a torn tail; None if it is one. `rest` is the file from there on.
    """
    # A group's head was written after the sync of the group before it, so it proves damage wherever
    # it stands. Any other record belongs to the group of the gap in front of it: a power cut can
    # lose a sector of that one write, which then still holds zeros, and a gap without such a sector
    # is damage. Only the first record is judged so, because whatever follows a torn record is cut.
    first = True
    for at, head in _whole_records(rest, base + offset, seed):
        if head.kind == records.GROUP or (first and not _lost_sector(rest, at, offset)):
            return offset + at
        first = False
    return None


def _whole_records(rest: bytes, position: int, seed: int) -> Iterator[tuple[int, RecordHead]]:
    """(offset in `rest`, head) of each valid record behind the first byte."""
    view = memoryview(rest)
    at = rest.find(records.MAGIC, 1)
    while 0 <= at <= len(rest) - records.RECORD_BYTES:
        head = records.decode_record(view, at, position + at)
        end = at + records.RECORD_BYTES
        if (
            isinstance(head, RecordHead)
            and end + head.size <= len(rest)
            and records.record_is_whole(view, at, head, seed)
        ):
            yield at, head
            at = rest.find(records.MAGIC, end + head.size)
        else:
            at = rest.find(records.MAGIC, at + 1)


def _lost_sector(rest: bytes, end: int, offset: int) -> bool:
    """Whether a sector that ends in the first `end` bytes of `rest` is all zeros there."""
    begin = 0
    for sector_end in range(_SECTOR_BYTES - offset % _SECTOR_BYTES, end + 1, _SECTOR_BYTES):
        if not any(rest[begin:sector_end]):
            return True
        begin = sector_end
    return False
