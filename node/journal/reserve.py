"""The reserve of a journal: a file that takes up room, and gives it up when the log needs it.

Owns the file and the moment at which it goes: when a write finds no room, when a snapshot lacks
it, or when a start finds less free than it holds. No sooner, for what is free on a disk goes to
whichever program takes it first. Must not know what is written in its place.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from typing import TYPE_CHECKING, Final

from node.journal import limits

if TYPE_CHECKING:
    from node.journal.io.storage import Storage

RESERVE_NAME: Final = "reserve"


class Reserve:
    """The reserve of one locked folder. It is given up on any thread, and made on any."""

    def __init__(self, storage: Storage, wanted_bytes: int) -> None:
        """`wanted_bytes`: its size; 0 for none."""
        self._storage = storage
        self._wanted_bytes = wanted_bytes
        self._turn = threading.Lock()
        self._held_bytes = self._found_bytes()
        if storage.free_bytes() < self._held_bytes or self._held_bytes < wanted_bytes:
            self.give_up()

    def _found_bytes(self) -> int:
        if RESERVE_NAME not in self._storage.listdir():
            return 0
        file = self._storage.open(RESERVE_NAME)
        try:
            return max(file.size(), 1)  # A file of no bytes has a name, which has to go.
        finally:
            file.close()

    @property
    def missing_bytes(self) -> int:
        """Bytes of the disk that are free and belong to the reserve: it will be made of them."""
        return max(0, self._wanted_bytes - self._held_bytes)

    @property
    def can_be_made(self) -> bool:
        """Whether it is missing, and there is plenty of room for it."""
        enough_bytes = limits.RESERVE_ROOM_PARTS * self._wanted_bytes
        return bool(self.missing_bytes) and self._storage.free_bytes() >= enough_bytes

    def make(self) -> None:
        """Take the room, if there is plenty. Nothing of it has to be durable: a start that finds
        less makes it anew."""
        with self._turn:
            if not self.can_be_made:
                return
            try:
                file = self._storage.create(RESERVE_NAME)
                try:
                    file.allocate(self._wanted_bytes)
                finally:
                    file.close()
            except OSError:
                # Another program was faster. It is tried again.
                with contextlib.suppress(OSError):
                    self._storage.unlink(RESERVE_NAME)
                return
            self._held_bytes = self._wanted_bytes

    def give_up(self) -> bool:
        """Give the room to the log. False where there is nothing to give."""
        with self._turn:
            if not self._held_bytes:
                return False
            try:
                self._storage.unlink(RESERVE_NAME)
            except OSError:
                return False
            self._held_bytes = 0
            return True

    def helps(self, problem: OSError) -> bool:
        """Whether a write that failed for `problem` has room now: the reserve was given up. A
        failed write, unlike a failed sync, dropped no page of the cache, so it may be repeated."""
        return problem.errno in (errno.ENOSPC, errno.EDQUOT) and self.give_up()

    def end(self) -> None:
        """The journal is closed: on a disk with much room, nothing is held back meanwhile."""
        if self._storage.free_bytes() >= limits.RESERVE_STOPPED_PARTS * self._wanted_bytes:
            self.give_up()
