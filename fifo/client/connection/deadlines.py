"""Waits that end at a time of their own, with one timer for all of them.

Owns which futures wait, and until when. A timer of its own costs a wait as much as a tenth of a
publish, and next to none rings: most waits end with their answer. Must not know what is waited for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import compress
from typing import Any

from fifo.client import limits
from fifo.client.connection.calls import expire


class Deadlines:
    """The waits of one loop, in the order of their ends: each begun with `add`."""

    __slots__ = ("_cleared_at", "_ends", "_futures", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Side by side, not in pairs: a pair for each wait is one more thing for garbage collection.
        self._futures: deque[asyncio.Future[Any]] = deque()
        self._ends: deque[float] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._cleared_at = limits.DEADLINES_KEPT

    def __len__(self) -> int:
        return len(self._futures)

    def add(self, future: asyncio.Future[Any], deadline: float) -> None:
        """From here on the future's result is EXPIRED at the deadline, unless it has another."""
        futures, ends = self._futures, self._ends
        while futures and futures[0].done():
            futures.popleft()
            ends.popleft()
        if ends and deadline < ends[-1]:
            # Sooner than one that waits already: a timeout of its own.
            handle = self._loop.call_at(deadline, expire, future)
            future.add_done_callback(lambda _: handle.cancel())
            return
        futures.append(future)
        ends.append(deadline)
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._ring)
        if len(futures) >= self._cleared_at:
            # Behind one that waits for long, those that have ended are not kept.
            waits = [not one.done() for one in futures]
            self._futures = deque(compress(futures, waits))
            self._ends = deque(compress(ends, waits))
            self._cleared_at = max(limits.DEADLINES_KEPT, 2 * len(self._futures))

    def stop(self) -> None:
        """Cancel the timer: all waits have ended, or end elsewhere."""
        self._futures.clear()
        self._ends.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        """End the waits that are due; the timer is that of the first one left."""
        self._timer = None
        futures, ends, now = self._futures, self._ends, self._loop.time()
        while futures and (futures[0].done() or ends[0] <= now):
            ends.popleft()
            expire(futures.popleft())
        if futures:
            self._timer = self._loop.call_at(ends[0], self._ring)
