"""The journal's bytes: file headers, records of every kind, and the synced mark.

Owns the on-disk format, its number, and the errors for a header that is damaged, another journal's
or of a newer format. Must not know folders or Raft. `docs/storage.md` describes the format to other
implementations; change both together, and raise `FORMAT` when a reader of the old one would misread
the new one.

Segments, snapshots and compacted files are built alike: a header with a checksum, then records. All
integers are little endian. A *position* is a byte of the whole log, counted over all
segments, in 64 bits: a segment's header says at which position the segment begins, and a record
at offset `o` of that segment has position `base + o`. In the other files the position is the
offset. Every record carries its own position and its checksum is seeded with its file's header,
so a record is valid in one place only: bytes of a journal that travel inside a message, or that a
disk returns from the wrong place, never pass.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from node.journal import limits
from node.journal.errors import REMEDY, JournalDamaged, JournalForeign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from node.journal.io.storage import StorageFile


FORMAT: Final = 2
"""The format that is written. Format 2 added snapshots and compacted files, and with them
folders whose oldest segments are gone; a segment's own bytes are as in format 1, which is read
too."""

FORMATS_READ: Final = frozenset((1, 2))

SEGMENT_MAGIC: Final = b"fifojrnl"
SNAPSHOT_MAGIC: Final = b"fifosnap"
COMPACTED_MAGIC: Final = b"fifokept"
BACKUP_MAGIC: Final = b"fifobkup"
_CRC: Final = struct.Struct("<I")
_HEADER: Final = struct.Struct("<8sHHIQQQQ16sB")
_HEADER_START: Final = struct.Struct("<8sHH")
HEADER_BYTES_MAX: Final = _HEADER.size + limits.NODE_NAME_BYTES_MAX + _CRC.size
_KINDS_OF_FILES: Final = {
    SEGMENT_MAGIC: "segment",
    SNAPSHOT_MAGIC: "snapshot",
    COMPACTED_MAGIC: "compacted file",
    BACKUP_MAGIC: "backup",
}


class BadHeader(ValueError):
    """A file header that is no such header: damaged, cut off, or something else."""


class NewerFormat(ValueError):
    """A whole and unharmed file header of a format that this version cannot read."""

    def __init__(self, found: int) -> None:
        super().__init__(f"format {found}, this version reads format {FORMAT}")
        self.found = found


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first bytes of every file with records: what it is, four numbers, whose it is."""

    magic: bytes
    numbers: tuple[int, int, int, int]
    cluster_id: bytes
    node: str

    def encode(self) -> bytes:
        """The header's bytes, its CRC32C last."""
        name = self.node.encode()
        size = _HEADER.size + len(name) + _CRC.size
        fields = _HEADER.pack(
            self.magic, FORMAT, size, 0, *self.numbers, self.cluster_id, len(name)
        )
        body = fields + name
        return body + _CRC.pack(crc32c(body))


def decode_header(start: bytes, magic: bytes) -> tuple[FileHeader, int, int]:
    """Read the header at the beginning of `start`: (header, its bytes, checksum seed).

    `start` is the file's first `HEADER_BYTES_MAX` bytes, or fewer where the file is shorter.
    Raises `BadHeader` or `NewerFormat`.
    """
    what = _KINDS_OF_FILES[magic]
    if len(start) < _HEADER_START.size:
        raise BadHeader(f"the {what} header is cut off")
    found_magic, found, size = _HEADER_START.unpack_from(start)
    if found_magic != magic:
        raise BadHeader(f"the file does not begin like a {what} does")
    if not _HEADER_START.size + _CRC.size <= size <= len(start):
        raise BadHeader(f"the {what} header is cut off or its size is wrong")
    (crc,) = _CRC.unpack_from(start, size - _CRC.size)
    if crc != crc32c(start[: size - _CRC.size]):
        raise BadHeader(f"the checksum of the {what} header is wrong")
    if found not in FORMATS_READ:
        raise NewerFormat(found)
    if size <= _HEADER.size + _CRC.size:
        raise BadHeader(f"the size of the {what} header is wrong")
    fields = _HEADER.unpack_from(start)
    *numbers, cluster_id, name_bytes = fields[4:]
    if size != _HEADER.size + name_bytes + _CRC.size:
        raise BadHeader(f"the size of the {what} header is wrong")
    node = start[_HEADER.size : _HEADER.size + name_bytes].decode()
    first, second, third, fourth = numbers
    header = FileHeader(magic, (first, second, third, fourth), cluster_id, node)
    return header, size, seed_of(start[:size])


def seed_of(encoded_header: bytes) -> int:
    """The seed of the checksums of a file's records: the header's own checksum.

    Not a checksum over the whole header: over bytes that end with their own CRC it is the same
    number for every header.
    """
    (crc,) = _CRC.unpack_from(encoded_header, len(encoded_header) - _CRC.size)
    return int(crc)


@dataclass(frozen=True, slots=True)
class JournalIdentity:
    """The node that a folder belongs to. `folder` is how to name it to an operator."""

    folder: str
    cluster_id: bytes
    node: str

    def header(self, magic: bytes, *numbers: int) -> FileHeader:
        """The header of a new file of this node; four numbers at most, zero where none is given."""
        first, second, third, fourth = (*numbers, 0, 0, 0, 0)[:4]
        return FileHeader(magic, (first, second, third, fourth), self.cluster_id, self.node)

    def read_header(
        self, file: StorageFile, name: str, magic: bytes
    ) -> tuple[FileHeader, int, int]:
        """(header, its bytes, checksum seed). Raises `JournalDamaged` or `JournalForeign`."""
        start = file.read(0, HEADER_BYTES_MAX)
        try:
            header, header_bytes, seed = decode_header(start, magic)
        except BadHeader as problem:
            raise JournalDamaged(name, 0, str(problem), REMEDY) from None
        except NewerFormat as problem:
            raise JournalForeign(
                f"{self.folder}/{name} is of {problem}; start the newer version again"
            ) from None
        if header.cluster_id != self.cluster_id:
            raise JournalForeign(
                f"{self.folder}/{name} belongs to cluster {header.cluster_id.hex()}, "
                f"this node to {self.cluster_id.hex()}; give the node the folder it had before"
            )
        if header.node != self.node:
            raise JournalForeign(
                f"{self.folder}/{name} belongs to node {header.node!r}, this node is "
                f"{self.node!r}; give each node a folder of its own"
            )
        return header, header_bytes, seed


Entry = tuple[bytes, int, int]
"""(command, index, term), the shape that PySyncObj gives to an entry."""

MARK_FORMAT: Final = 1
"""The synced mark has not changed."""

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

NOTED_BYTE: Final = b"\x11"
"""First byte of the commands that the owner of the log wants at hand when it is opened."""

STATE: Final = 6
"""In a snapshot: a piece of the machine's state; `index` is its offset in the state."""
LOCATIONS: Final = 7
"""In a snapshot or compacted file: locations of entries, in columns (`locations.py`)."""
SNAPSHOT_END: Final = 8
"""The last record of a snapshot: sizes, the digest of the state, where the log goes on."""
COMPACTED_END: Final = 9
"""The last record of a compacted file: where its locations begin, and how many there are."""

ABOUT: Final = 10
"""The first record of a backup: where it is from, as a msgpack map."""
BACKUP_END: Final = 11
"""The last record of a backup: sizes, the digests of the state and of the file."""

MEMBERS: Final = 12
"""The first record of a snapshot behind a change of the members: who they were, as the bytes of
the owner. A snapshot without it is one as before."""

MAGIC: Final = b"\xf1\xf0"
_FIELDS: Final = struct.Struct("<2sBBIQQQ")
_RECORD: Final = struct.Struct("<2sBBIQQQI")
RECORD_BYTES: Final = _RECORD.size
"""Bytes of a record before its payload."""

MARK_MAGIC: Final = b"fifosync"
_MARK: Final = struct.Struct("<8sHHIQ")
MARK_BYTES: Final = _MARK.size + _CRC.size

_SNAPSHOT_END: Final = struct.Struct("<QQQQ32s")
_COMPACTED_END: Final = struct.Struct("<QQ")
COMPACTED_END_BYTES: Final = RECORD_BYTES + _COMPACTED_END.size

_POSITION: Final = struct.Struct("<Q")
GROUP_BYTES: Final = RECORD_BYTES + _POSITION.size

_pack_fields = _FIELDS.pack
_pack_crc = _CRC.pack


def encode_record(
    kind: int, position: int, term: int, index: int, payload: bytes, seed: int
) -> bytes:
    """The bytes before `payload`; the record is these bytes followed by `payload`."""
    fields = _pack_fields(MAGIC, kind, 0, len(payload), position, term, index)
    return fields + _pack_crc(crc32c(payload, crc32c(fields, seed)))


def encode_entries(
    entries: Sequence[Entry], position: int, seed: int
) -> tuple[list[bytes], list[int], int]:
    """Records of entries one after the other, the first at `position`.

    Returns their bytes in parts, large commands uncopied, their positions, and the position after
    them. One loop for many: a call for each would cost more than its checksum.
    """
    parts: list[bytes] = []
    positions: list[int] = []
    begin = position
    for command, index, term in entries:
        fields = _pack_fields(MAGIC, ENTRY, 0, len(command), position, term, index)
        parts += (fields, _pack_crc(crc32c(command, crc32c(fields, seed))), command)
        positions.append(position)
        position += RECORD_BYTES + len(command)
    if position - begin <= limits.JOIN_BYTES * len(entries):
        parts = [b"".join(parts)]
    return parts, positions, position


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
        return f"a record of {size} bytes is larger than the maximum"
    if stated != position:
        return f"the record belongs to position {stated}"
    return RecordHead(kind, size, term, index, crc)


def record_is_whole(view: memoryview, offset: int, head: RecordHead, seed: int) -> bool:
    """True if the checksum over the record's fields and payload is right."""
    payload_at = offset + RECORD_BYTES
    crc = crc32c(view[offset : offset + _FIELDS.size], seed)
    return crc32c(view[payload_at : payload_at + head.size], crc) == head.crc


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """The last record of a snapshot.

    `log_position` is where the record of the snapshot's own index lies in this node's log;
    where `restarts` is set, the log before was given up and goes on with a segment that begins
    at that position.
    """

    state_bytes: int
    live_count: int
    log_position: int
    restarts: bool
    digest: bytes

    def encode(self) -> bytes:
        """The payload of a `SNAPSHOT_END` record."""
        return _SNAPSHOT_END.pack(
            self.state_bytes, self.live_count, self.log_position, self.restarts, self.digest
        )

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> SnapshotEnd | None:
        """None if it is no such payload."""
        if len(payload) != _SNAPSHOT_END.size:
            return None
        state_bytes, live_count, log_position, restarts, digest = _SNAPSHOT_END.unpack(payload)
        if restarts > 1:
            return None
        return cls(state_bytes, live_count, log_position, bool(restarts), digest)


def encode_compacted_end(locations_at: int, count: int) -> bytes:
    """The payload of a `COMPACTED_END` record."""
    return _COMPACTED_END.pack(locations_at, count)


def decode_compacted_end(payload: bytes | memoryview) -> tuple[int, int] | None:
    """(offset of the first record of locations, entries); None if it is no such payload."""
    if len(payload) != _COMPACTED_END.size:
        return None
    locations_at, count = _COMPACTED_END.unpack(payload)
    return locations_at, count


def encode_mark(position: int, identity_seed: int) -> bytes:
    """The synced mark: everything before `position` is on the disk. See `docs/storage.md`."""
    fields = _MARK.pack(MARK_MAGIC, MARK_FORMAT, MARK_BYTES, 0, position)
    return fields + _pack_crc(crc32c(fields, identity_seed))


def decode_mark(content: bytes, identity_seed: int) -> int | None:
    """The position of a synced mark; None if it is torn, damaged or another node's."""
    if len(content) != MARK_BYTES:
        return None
    (crc,) = _CRC.unpack_from(content, _MARK.size)
    magic, found, _, _, position = _MARK.unpack_from(content)
    if magic != MARK_MAGIC or found != MARK_FORMAT:
        return None
    return int(position) if crc == crc32c(content[: _MARK.size], identity_seed) else None


def identity_seed(cluster_id: bytes, node: str) -> int:
    """The seed of a mark's checksum, so that a mark of another journal is not believed."""
    return crc32c(node.encode(), crc32c(cluster_id))
