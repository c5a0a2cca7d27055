"""One group of records on its way to the disk, maybe on another thread.

Owns the handshake between the two threads: whoever comes first does the work, the other waits for
it. Knows neither records nor files; what the end of a flight means is the journal's.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Flight:
    """A write and a sync. `end` is the log position that it reaches, `index` the newest entry
    that is durable once it has landed: a truncation meanwhile takes it back."""

    def __init__(
        self,
        work: Callable[[], None],
        clock: Callable[[], float],
        *,
        end: int,
        index: int,
        size: int,
    ) -> None:
        self._work: Callable[[], None] | None = work
        self._clock = clock
        self._lock = threading.Lock()
        self.end = end
        self.index = index
        self.size = size
        self.seconds = 0.0
        self.error: Exception | None = None

    def run(self) -> None:
        """Returns when the work is done, once, by this thread or another; never raises."""
        with self._lock:
            work, self._work = self._work, None
            if work is None:
                return
            started = self._clock()
            try:
                work()
            except Exception as error:
                self.error = error
            self.seconds = self._clock() - started
