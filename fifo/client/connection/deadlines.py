"""Waits that end at a time of their own, with one timer for all of them.

Owns which futures wait, and until when. A timer of its own costs a wait as much as a tenth of a
publish, and next to none rings: most waits end with their answer. Must not know what is waited for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from fifo.client import limits
from fifo.client.connection.calls import expire


class Deadlines:
    """The waits of one loop, in the order of their ends: each begun with `add`."""

    __slots__ = ("_cleared_at", "_loop", "_timer", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._cleared_at = limits.DEADLINES_KEPT

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, future: asyncio.Future[Any], deadline: float) -> None:
        """From here on the future's result is EXPIRED at the deadline, unless it has another."""
        waiting = self._waiting
        while waiting and waiting[0][1].done():
            waiting.popleft()
        if waiting and deadline < waiting[-1][0]:
            # Sooner than one that waits already: a timeout of its own.
            handle = self._loop.call_at(deadline, expire, future)
            future.add_done_callback(lambda _: handle.cancel())
            return
        waiting.append((deadline, future))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._ring)
        if len(waiting) >= self._cleared_at:
            # Behind one that waits for long, those that have ended are not kept.
            self._waiting = deque([one for one in waiting if not one[1].done()])
            self._cleared_at = max(limits.DEADLINES_KEPT, 2 * len(self._waiting))

    def stop(self) -> None:
        """Cancel the timer: all waits have ended, or end elsewhere."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        """End the waits that are due; the timer is that of the first one left."""
        self._timer = None
        waiting, now = self._waiting, self._loop.time()
        while waiting and (waiting[0][1].done() or waiting[0][0] <= now):
            expire(waiting.popleft()[1])
        if waiting:
            self._timer = self._loop.call_at(waiting[0][0], self._ring)
