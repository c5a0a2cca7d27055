"""The notebook of a node: what it knows of the other members, in a small file beside its journal.

Owns the file `members`: a line with the checksum of all after it, then JSON. It is written whole
under a temporary name and renamed, so that a crash leaves the old one or the new one. One that is
missing or damaged is an empty one: nothing that the log promises stands on it. Must not know what
is noted.
"""

from __future__ import annotations

import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from node.journal.record_files import TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from node.journal.io.storage import Storage

logger = logging.getLogger(__name__)

NOTEBOOK_NAME: Final = "members"
NAMES: Final = frozenset((NOTEBOOK_NAME, NOTEBOOK_NAME + TEMPORARY_SUFFIX))
"""Names in a node's folder that are none of the journal's."""


def read(storage: Storage) -> dict[str, Any]:
    """Read the notes; none where the file is missing or is not what was written."""
    try:
        return read_file(storage, NOTEBOOK_NAME) or {}
    except (OSError, ValueError) as error:
        logger.warning("event=notebook_unreadable folder=%s error=%s", storage.folder, error)
        return {}


def write(storage: Storage, notes: dict[str, Any]) -> None:
    """Note this instead of what was noted. Blocks until it is on the disk; raises OSError."""
    write_file(storage, NOTEBOOK_NAME, notes)


def read_file(storage: Storage, name: str) -> dict[str, Any] | None:
    """Read a file of this form; None where there is none. Raises OSError, and ValueError where it
    is not what was written."""
    try:
        file = storage.open(name)
    except FileNotFoundError:
        return None
    try:
        return _decoded(file.read(0, file.size()))
    finally:
        file.close()


def write_file(storage: Storage, name: str, notes: dict[str, Any]) -> None:
    """Replace a file of this form by another, whole. Blocks until it is on the disk; raises
    OSError."""
    content = json.dumps(notes, sort_keys=True).encode()
    temporary = name + TEMPORARY_SUFFIX
    with contextlib.suppress(FileNotFoundError):
        storage.unlink(temporary)
    file = storage.create(temporary)
    try:
        file.write(0, (b"%08x\n" % crc32c(content), content))
        file.sync()
    finally:
        file.close()
    storage.rename(temporary, name)
    storage.sync_folder()


def _decoded(content: bytes) -> dict[str, Any]:
    """The notes in the bytes of the file. Raises ValueError."""
    checksum, found, notes = content.partition(b"\n")
    if not found or checksum != b"%08x" % crc32c(notes):
        raise ValueError("its content is not what was written")
    decoded = json.loads(notes)
    if type(decoded) is not dict:
        raise ValueError("it holds no map")
    return decoded
