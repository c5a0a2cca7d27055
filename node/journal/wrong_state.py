"""The note that the state beside a journal is wrong: it survives a restart (raft.md 1.41).

Owns the file `wrong-state`: since which index the state differs, and the entry up to which it was
applied, so that every snapshot up to there counts as one of it. Written whole under a temporary
name and renamed. One that cannot be read says that any state is wrong: a sound one is replaced by
an equal one then. Must not know how it was found out.
"""

from __future__ import annotations

import contextlib
import logging
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from node.journal.record_files import TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from node.journal.io.storage import Storage

logger = logging.getLogger(__name__)

WRONG_STATE_NAME: Final = "wrong-state"
_TEMPORARY: Final = WRONG_STATE_NAME + TEMPORARY_SUFFIX
_FORM: Final = re.compile(rb"(fifo wrong (\d{1,20}) (\d{1,20})) ([0-9a-f]{8})\n")

NAMES: Final = frozenset((WRONG_STATE_NAME, _TEMPORARY))
"""Names in a node's folder that are no files of records."""


class WrongState(NamedTuple):
    """`differs_index`: the first compared index at which the state was wrong; `applied_index`: the
    last entry that was applied to it."""

    differs_index: int
    applied_index: int


UNREADABLE: Final = WrongState(1, 1 << 62)
"""A note that is damaged: every snapshot that is there counts as wrong."""


def read(storage: Storage) -> WrongState | None:
    """Read the note; None where there is none."""
    if WRONG_STATE_NAME not in storage.listdir():
        return None
    try:
        file = storage.open(WRONG_STATE_NAME)
        try:
            content = file.read(0, file.size())
        finally:
            file.close()
    except OSError as error:
        logger.warning("event=wrong_state_unreadable folder=%s error=%s", storage.folder, error)
        return UNREADABLE
    found = _FORM.fullmatch(content)
    if found is None or int(found[4], 16) != crc32c(found[1]):
        logger.warning("event=wrong_state_unreadable folder=%s error=damaged", storage.folder)
        return UNREADABLE
    return WrongState(int(found[2]), int(found[3]))


def write(storage: Storage, wrong: WrongState) -> None:
    """Note it. Blocks until it is on the disk; raises OSError."""
    said = b"fifo wrong %d %d" % wrong
    with contextlib.suppress(FileNotFoundError):
        storage.unlink(_TEMPORARY)
    file = storage.create(_TEMPORARY)
    try:
        file.write(0, (said, b" %08x\n" % crc32c(said)))
        file.sync()
    finally:
        file.close()
    storage.rename(_TEMPORARY, WRONG_STATE_NAME)
    storage.sync_folder()


def remove(storage: Storage) -> None:
    """Take the note away. Blocks until the disk has it; raises OSError."""
    storage.unlink(WRONG_STATE_NAME)
    storage.sync_folder()
