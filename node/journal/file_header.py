"""Whose files a journal folder holds, and reading the header that says so.

Owns the words for a file that is damaged at its beginning, someone else's or of a newer format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.journal import records
from node.journal.errors import REMEDY, JournalDamaged, JournalForeign
from node.journal.records import BadHeader, NewerFormat

if TYPE_CHECKING:
    from node.journal.io.storage import StorageFile
    from node.journal.records import FileHeader


@dataclass(frozen=True, slots=True)
class JournalIdentity:
    """The node that a folder belongs to. `folder` is how to name it to an operator."""

    folder: str
    cluster_id: bytes
    node: str

    def header(self, magic: bytes, *numbers: int) -> FileHeader:
        """The header of a new file of this node; four numbers at most, zero where none is given."""
        first, second, third, fourth = (*numbers, 0, 0, 0, 0)[:4]
        return records.FileHeader(magic, (first, second, third, fourth), self.cluster_id, self.node)

    def read_header(
        self, file: StorageFile, name: str, magic: bytes
    ) -> tuple[FileHeader, int, int]:
        """(header, its bytes, checksum seed). Raises `JournalDamaged` or `JournalForeign`."""
        start = file.read(0, records.HEADER_BYTES_MAX)
        try:
            header, header_bytes, seed = records.decode_header(start, magic)
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
