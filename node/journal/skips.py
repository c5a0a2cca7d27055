"""Entries of the log that are skipped, because their apply raised on every member (raft.md 1.46).

Owns the file `skips`, in the form of `members`: index, checksum and author of each. The checksum
is of the entry and its term, so that no other entry of that index is ever meant. A file that
cannot be read says nothing: the entry raises again then, and ends its node as before. Must not know
who decides, nor what follows for a state.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from node.journal import notebook
from node.journal.record_files import TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from node.journal.io.storage import Storage

logger = logging.getLogger(__name__)

SKIPS_NAME: Final = "skips"
NAMES: Final = frozenset((SKIPS_NAME, SKIPS_NAME + TEMPORARY_SUFFIX))
"""Names in a node's folder that are no files of records."""


class Skip(NamedTuple):
    """An entry that is skipped. `by`: who ordered that, in at most 64 bytes."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which a skip has no use for
    checksum: int
    by: str


def checksum_of(term: int, command: bytes) -> int:
    """The checksum of an entry with its term, as skips name it: a CRC32C."""
    found: int = crc32c(command, crc32c(term.to_bytes(8, "little")))
    return found


def read(storage: Storage) -> dict[int, Skip]:
    """Read the skips of a folder, by index."""
    try:
        notes = notebook.read_file(storage, SKIPS_NAME) or {}
        found = [
            Skip(int(index), int(checksum, 16), str(by)) for index, (checksum, by) in notes.items()
        ]
    except (OSError, ValueError, TypeError) as error:
        logger.warning("event=skips_unreadable folder=%s error=%s", storage.folder, error)
        return {}
    return {skip.index: skip for skip in found}


def write(storage: Storage, skips: Iterable[Skip]) -> None:
    """Keep these. Blocks until they are on the disk; raises OSError."""
    notes = {str(one.index): [f"{one.checksum:08x}", one.by] for one in skips}
    notebook.write_file(storage, SKIPS_NAME, notes)
