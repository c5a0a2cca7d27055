"""Descriptors of the journal, reserved: it opens a file whatever else this process has open.

Owns a number of descriptors, of which each open file of the journal occupies one and the free ones
stand for the lock file; and what happens where the system has no room for another file: the caller
waits, as on a disk that hangs, for a lack of descriptors is no failure of the disk and passes. Must
not know which files these are.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from typing import TYPE_CHECKING, Final

from node.journal import limits

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_NEVER: Final = threading.Event()

NO_DESCRIPTOR_ERRNOS: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Errors that mean: no descriptor left, of this process or of the whole system."""


class Seats:
    """Reserved descriptors. Threads may use it at the same time."""

    def __init__(self, pause: Callable[[float], object] = _NEVER.wait) -> None:
        """`pause`: waits for some seconds."""
        self._pause = pause
        self._turn = threading.Lock()
        self._count = 0
        self._holder = -1
        self._free: list[int] = []
        self._occupied: set[int] = set()

    def __repr__(self) -> str:
        return f"<Seats {len(self._free)} free, {len(self._occupied)} occupied>"

    def reserve(self, holder: int, count: int) -> None:
        """Have `count` descriptors from now on: copies of `holder`, which stays open meanwhile.
        Raises OSError where this process may not have as many, and then holds none."""
        self._count, self._holder = count, holder
        try:
            self._refill()
        except OSError:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Release what is reserved; descriptors of open files are closed as they are left."""
        with self._turn:
            free, self._free, self._count = self._free, [], 0
            self._occupied.clear()
        for descriptor in free:
            os.close(descriptor)

    def take(self, opened: Callable[[], int]) -> int:
        """The descriptor that `opened` returns, on a free seat where there is one.

        Where neither a seat nor the system has one left, wait until there is. Other OSErrors pass
        through.
        """
        try:
            descriptor = self._opened(opened)
            with self._turn:
                if len(self._free) + len(self._occupied) < self._count:
                    self._occupied.add(descriptor)
        finally:
            with contextlib.suppress(OSError):
                self._refill()
        return descriptor

    def _opened(self, opened: Callable[[], int]) -> int:
        self._free_one()
        waited = False
        while True:
            try:
                descriptor = opened()
            except OSError as problem:
                if problem.errno not in NO_DESCRIPTOR_ERRNOS:
                    raise
                if self._free_one():
                    continue  # Another thread was faster, or another process.
                if not waited:
                    logger.warning("event=descriptors_exhausted error=%s", problem.strerror)
                waited = True
                self._pause(limits.DESCRIPTOR_RETRY_SECONDS)
                continue
            if waited:
                logger.warning("event=descriptors_available")
            return descriptor

    def _free_one(self) -> bool:
        with self._turn:
            if not self._free:
                return False
            os.close(self._free.pop())
            return True

    def leave(self, descriptor: int) -> None:
        """Close a descriptor that `take` gave, and keep its seat."""
        with self._turn:
            if descriptor in self._occupied:
                self._occupied.remove(descriptor)
                # In one step, so that no accepted connection comes between.
                os.dup2(self._holder, descriptor, inheritable=False)
                self._free.append(descriptor)
                return
        os.close(descriptor)

    def _refill(self) -> None:
        """Have the seats back that others took, or whose file was not opened. Raises OSError."""
        with self._turn:
            while len(self._free) + len(self._occupied) < self._count:
                self._free.append(os.dup(self._holder))
