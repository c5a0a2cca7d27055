"""The first bytes of every file with records: what the file is, and to which journal it belongs.

Owns the bytes of a header, the format number in it, and the errors for a header that is damaged,
another journal's or of a newer format. Must not know records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from node.journal import limits
from node.journal.errors import REMEDY, JournalDamaged, JournalForeign

if TYPE_CHECKING:
    from node.journal.io.storage import StorageFile

FORMAT: Final = 2
"""The format that is written. Format 2 added snapshots and compacted files, and with them
folders whose oldest segments are gone; a segment's own bytes are as in format 1, which is read
too."""

FORMATS_READ: Final = frozenset((1, 2))

SEGMENT_MAGIC: Final = b"fifojrnl"
SNAPSHOT_MAGIC: Final = b"fifosnap"
COMPACTED_MAGIC: Final = b"fifokept"
_CRC: Final = struct.Struct("<I")
_HEADER: Final = struct.Struct("<8sHHIQQQQ16sB")
_HEADER_START: Final = struct.Struct("<8sHH")
HEADER_BYTES_MAX: Final = _HEADER.size + limits.NODE_NAME_BYTES_MAX + _CRC.size
_KINDS_OF_FILES: Final = {
    SEGMENT_MAGIC: "segment",
    SNAPSHOT_MAGIC: "snapshot",
    COMPACTED_MAGIC: "compacted file",
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
        raise BadHeader(f"the file does not begin as a {what} does")
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
