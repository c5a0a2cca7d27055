"""Blocking work on its way to the disk, maybe on another thread.

Owns the handshake between the two threads: whoever comes first does the work, the other waits for
it. Knows neither records nor files; what the end of a flight means is decided by who made it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from node.journal.segments import NewSegment


class Job:
    """A piece of work that is done once. It touches nothing that others touch meanwhile."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._lock = threading.Lock()
        self.error: Exception | None = None

    def __repr__(self) -> str:
        state = "to be done" if self._work is not None else "failed" if self.error else "begun"
        return f"<{type(self).__name__} {state}>"

    def run(self) -> None:
        """Returns when the work is done, once, by this thread or another; never raises."""
        with self._lock:
            work, self._work = self._work, None
            if work is None:
                return
            try:
                work()
            except Exception as error:
                self.error = error

    def land(self) -> None:
        """Returns when the work is done, as `run` does; raises what it raised."""
        self.run()
        if self.error is not None:
            raise self.error

    def cancel(self, *, wait: bool = True) -> None:
        """Work that has not begun never will; what has begun is waited for, or with `wait` false
        left alone."""
        if self._lock.acquire(blocking=wait):
            self._work = None
            self._lock.release()


def landing(work: Callable[[], None]) -> Generator[Job]:
    """Yields work as a flight, for whichever thread, and goes on when it is done. Raises what it
    raised; ended before, it waits for what has begun."""
    flight = Job(work)
    try:
        yield flight
    except BaseException:
        flight.cancel()
        raise
    flight.land()


class GroupJob(Job):
    """A group of records: a write and a sync, which take `seconds`, and the segment that follows
    where the group fills its own. `end` is the log position that it reaches, `index` the newest
    entry that is durable once it has landed: a truncation meanwhile takes it back."""

    def __init__(
        self,
        write: Callable[[], None],
        clock: Callable[[], float],
        *,
        end: int,
        index: int,
        size: int,
    ) -> None:
        super().__init__(self._do)
        self._write = write
        self._clock = clock
        self.end = end
        self.index = index
        self.size = size
        self.following: NewSegment | None = None
        self.seconds = 0.0

    def _do(self) -> None:
        started = self._clock()
        try:
            self._write()
        finally:
            self.seconds = self._clock() - started
        # Only now: where a later segment is, an earlier one has no torn tail.
        if self.following is not None:
            self.following.make()
