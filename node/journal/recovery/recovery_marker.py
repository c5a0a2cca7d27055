"""Setting a journal's files aside, and the marker that says that its node has lost them.

Owns the marker's file and the order of the steps. The marker is on the disk before anything else
happens, and goes when the node has its voice back: between the two every start finds it, whatever
it was asked for. It says also whether the old files have all been set aside, so that a start after
a crash in the middle goes on and never takes a file of the new journal for an old one. Knows no
records and no Raft.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from node.journal import notebook, skips
from node.journal.errors import REMEDY, JournalDamaged
from node.journal.record_files import TEMPORARY_SUFFIX
from node.journal.reserve import RESERVE_NAME

if TYPE_CHECKING:
    from node.journal.io.storage import Storage

MARKER_NAME: Final = "recovering"
_TEMPORARY: Final = MARKER_NAME + TEMPORARY_SUFFIX
_MARKER: Final = re.compile(rb"fifo (lost|empty) (\d{8}T\d{6}Z)\n")
_STAMP: Final = re.compile(r"\d{8}T\d{6}Z")
_SET_ASIDE: Final = re.compile(r".+\.lost-\d{8}T\d{6}Z")


@dataclass(frozen=True, slots=True)
class Marker:
    """Since when (UTC, as in `20261122T043238Z`), and whether the old files are out of the way."""

    stamp: str
    emptied: bool


def is_set_aside(name: str) -> bool:
    """Whether a file is none of the journal's any more."""
    return _SET_ASIDE.fullmatch(name) is not None


def read_marker(storage: Storage) -> Marker | None:
    """The marker; None where there is none. Raises `JournalDamaged` where it is unreadable, or
    was about to be written when the node died."""
    names = storage.listdir()
    if MARKER_NAME not in names:
        if _TEMPORARY in names:
            raise JournalDamaged(_TEMPORARY, 0, "a start with --recover was interrupted", REMEDY)
        return None
    file = storage.open(MARKER_NAME)
    try:
        content = file.read(0, file.size())
    finally:
        file.close()
    match = _MARKER.fullmatch(content)
    if match is None:
        raise JournalDamaged(MARKER_NAME, 0, "its content is not what was written", REMEDY)
    return Marker(match[2].decode(), emptied=match[1] == b"empty")


def begin(storage: Storage, stamp: str) -> Marker:
    """The journal counts as lost from now on; the next step is `finish`.

    Returns when the disk has it. Raises ValueError for a stamp that is none.
    """
    if not _STAMP.fullmatch(stamp):
        raise ValueError(f"{stamp!r} is no time such as 20261122T043238Z")
    return _write(storage, Marker(stamp, emptied=False))


def begin_empty(storage: Storage, stamp: str) -> Marker:
    """The journal that is here is new and empty, and stands for one that is lost. Returns when the
    disk has it."""
    return _write(storage, Marker(stamp, emptied=True))


def finish(storage: Storage, marker: Marker) -> tuple[Marker, int]:
    """Set every file of the lost journal aside. Returns, when the disk has it, the marker as it
    is now and how many files there were."""
    count = 0
    for name in storage.listdir():
        kept = name in (MARKER_NAME, _TEMPORARY, RESERVE_NAME, *notebook.NAMES, *skips.NAMES)
        if not kept and not is_set_aside(name):
            storage.rename(name, f"{name}.lost-{marker.stamp}")
            count += 1
    storage.sync_folder()
    return _write(storage, Marker(marker.stamp, emptied=True)), count


def end(storage: Storage) -> None:
    """The node has its voice back. Returns when the disk has it."""
    storage.unlink(MARKER_NAME)
    storage.sync_folder()


def _write(storage: Storage, marker: Marker) -> Marker:
    if _TEMPORARY in storage.listdir():
        storage.unlink(_TEMPORARY)
    file = storage.create(_TEMPORARY)
    try:
        file.write(0, (f"fifo {'empty' if marker.emptied else 'lost'} {marker.stamp}\n".encode(),))
        file.sync()
    finally:
        file.close()
    storage.rename(_TEMPORARY, MARKER_NAME)
    storage.sync_folder()
    return marker
