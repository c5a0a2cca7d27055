"""The journal's bytes: segment header, record, group, hard state, commit hint, synced mark.

Owns the on-disk format and nothing else: it knows no file, no folder and no Raft rule. What is
laid down here is described for strangers in `docs/storage.md`; change both together, and raise
`FORMAT` when a reader of the old kind would misread the new one.

All integers are little endian. A *position* is a byte of the whole log, counted over all
segments, in 64 bits: a segment's header says at which position the segment begins, and a record
at offset `o` of that segment has position `base + o`. Every record carries its own position and
its checksum is seeded with its segment's header, so a record is valid in one place only: bytes of
a journal that travel inside a message, or that a disk returns from the wrong place, never pass.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from node.raft import limits

FORMAT: Final = 1

GROUP: Final = 1
"""Opens each group (what one sync makes durable); payload: the position known to be synced."""
ENTRY: Final = 2
"""A Raft log entry: term, index, payload = the command."""
TRUNCATE: Final = 3
"""Entries from `index` on are no longer part of the log."""
HARD_STATE: Final = 4
"""The current term; payload = the name of the node voted for in it, empty for no vote."""
COMMIT: Final = 5
"""A hint: everything up to `index` was committed when this was written."""

KINDS: Final = frozenset((GROUP, ENTRY, TRUNCATE, HARD_STATE, COMMIT))

MAGIC: Final = b"\xf1\xf0"
_FIELDS: Final = struct.Struct("<2sBBIQQQ")
_CRC: Final = struct.Struct("<I")
_RECORD: Final = struct.Struct("<2sBBIQQQI")
RECORD_BYTES: Final = _RECORD.size
"""Bytes of a record before its payload."""

SEGMENT_MAGIC: Final = b"fifojrnl"
_SEGMENT: Final = struct.Struct("<8sHHIQQQQ16sB")
_SEGMENT_START: Final = struct.Struct("<8sHH")
SEGMENT_HEADER_BYTES_MAX: Final = _SEGMENT.size + limits.NODE_NAME_BYTES_MAX + _CRC.size

MARK_MAGIC: Final = b"fifosync"
_MARK: Final = struct.Struct("<8sHHIQ")
MARK_BYTES: Final = _MARK.size + _CRC.size

_POSITION: Final = struct.Struct("<Q")
GROUP_BYTES: Final = RECORD_BYTES + _POSITION.size

_pack_fields = _FIELDS.pack
_pack_crc = _CRC.pack


class BadHeader(ValueError):
    """A segment header that is no segment header: damaged, cut off, or something else."""


class NewerFormat(ValueError):
    """A whole and unharmed segment header of a format that this version cannot read."""

    def __init__(self, found: int) -> None:
        super().__init__(f"format {found}, this version reads format {FORMAT}")
        self.found = found


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The first bytes of a segment file.

    `sequence` counts segments from 1 without gaps; `base` is the position of the file's first
    byte; `first_index` is the index that the next entry had when the segment was made, and
    `previous_term` the term of the entry before it (0 when there is none).
    """

    sequence: int
    base: int
    first_index: int
    previous_term: int
    cluster_id: bytes
    node: str

    def encode(self) -> bytes:
        """The header's bytes, its CRC32C last."""
        name = self.node.encode()
        size = _SEGMENT.size + len(name) + _CRC.size
        fields = _SEGMENT.pack(
            SEGMENT_MAGIC,
            FORMAT,
            size,
            0,
            self.sequence,
            self.base,
            self.first_index,
            self.previous_term,
            self.cluster_id,
            len(name),
        )
        body = fields + name
        return body + _pack_crc(crc32c(body))


def decode_segment_header(start: bytes) -> tuple[SegmentHeader, int, int]:
    """Reads the header at the beginning of `start`: (header, its bytes, checksum seed).

    `start` is the file's first `SEGMENT_HEADER_BYTES_MAX` bytes, or fewer where the file is
    shorter. Raises `BadHeader` or `NewerFormat`.
    """
    if len(start) < _SEGMENT_START.size:
        raise BadHeader("the segment header is cut off")
    magic, found, size = _SEGMENT_START.unpack_from(start)
    if magic != SEGMENT_MAGIC:
        raise BadHeader("the file does not begin as a segment does")
    if not _SEGMENT_START.size + _CRC.size <= size <= len(start):
        raise BadHeader("the segment header is cut off or its size is wrong")
    (crc,) = _CRC.unpack_from(start, size - _CRC.size)
    if crc != crc32c(start[: size - _CRC.size]):
        raise BadHeader("the checksum of the segment header is wrong")
    if found != FORMAT:
        raise NewerFormat(found)
    fields = _SEGMENT.unpack_from(start)
    _, _, _, _, sequence, base, first_index, previous_term, cluster_id, name_bytes = fields
    if size != _SEGMENT.size + name_bytes + _CRC.size:
        raise BadHeader("the size of the segment header is wrong")
    node = start[_SEGMENT.size : _SEGMENT.size + name_bytes].decode()
    header = SegmentHeader(sequence, base, first_index, previous_term, cluster_id, node)
    return header, size, seed_of(start[:size])


def seed_of(encoded_header: bytes) -> int:
    """What the checksums of a segment's records start from: the header's own checksum.

    Not a checksum over the whole header: over bytes that end with their own CRC it is the same
    number for every header.
    """
    (crc,) = _CRC.unpack_from(encoded_header, len(encoded_header) - _CRC.size)
    return int(crc)


def encode_record(
    kind: int, position: int, term: int, index: int, payload: bytes, seed: int
) -> bytes:
    """The bytes before `payload`; the record is these bytes followed by `payload`."""
    fields = _pack_fields(MAGIC, kind, 0, len(payload), position, term, index)
    return fields + _pack_crc(crc32c(payload, crc32c(fields, seed)))


def encode_group(position: int, synced: int, seed: int) -> bytes:
    """A whole group record: everything before position `synced` is known to be on the disk."""
    payload = _POSITION.pack(synced)
    return encode_record(GROUP, position, 0, 0, payload, seed) + payload


def decode_group(payload: memoryview) -> int | None:
    """The position known to be synced, from a group record's payload; None if it is none."""
    if len(payload) != _POSITION.size:
        return None
    (synced,) = _POSITION.unpack(payload)
    return int(synced)


class RecordHead(NamedTuple):
    """The fields of a record before its payload, not yet proven by the checksum."""

    kind: int
    size: int
    term: int
    log_index: int
    crc: int


def decode_record(view: memoryview, offset: int, position: int) -> RecordHead | str:
    """The record head at `offset` of `view`, which must hold `RECORD_BYTES` there.

    Returns what is wrong, in words, where no record can begin. The checksum is not looked at:
    see `record_is_whole`.
    """
    magic, kind, reserved, size, stated, term, index, crc = _RECORD.unpack_from(view, offset)
    if magic != MAGIC or reserved != 0:
        return "no record begins here"
    if size > limits.COMMAND_BYTES_MAX:
        return f"a record of {size} bytes is larger than any can be"
    if stated != position:
        return f"the record belongs to position {stated}"
    return RecordHead(kind, size, term, index, crc)


def record_is_whole(view: memoryview, offset: int, head: RecordHead, seed: int) -> bool:
    """True if the checksum over the record's fields and payload is right."""
    payload_at = offset + RECORD_BYTES
    crc = crc32c(view[offset : offset + _FIELDS.size], seed)
    return crc32c(view[payload_at : payload_at + head.size], crc) == head.crc


def encode_mark(position: int, owner_seed: int) -> bytes:
    """The synced mark: everything before `position` is on the disk. See `docs/storage.md`."""
    fields = _MARK.pack(MARK_MAGIC, FORMAT, MARK_BYTES, 0, position)
    return fields + _pack_crc(crc32c(fields, owner_seed))


def decode_mark(content: bytes, owner_seed: int) -> int | None:
    """The position of a synced mark; None if it is torn, damaged or another node's."""
    if len(content) != MARK_BYTES:
        return None
    (crc,) = _CRC.unpack_from(content, _MARK.size)
    magic, found, _, _, position = _MARK.unpack_from(content)
    if magic != MARK_MAGIC or found != FORMAT:
        return None
    return int(position) if crc == crc32c(content[: _MARK.size], owner_seed) else None


def owner_seed(cluster_id: bytes, node: str) -> int:
    """What a mark's checksum starts from, so that a mark of another journal is not believed."""
    return crc32c(node.encode(), crc32c(cluster_id))
