"""Confirms that wait: publishers of a queue whose consumers fall behind are slowed.

Owns which queues are behind, and the confirms that wait for them. What has no consumers, or slow
ones, is never behind: to keep messages for later is what a queue is for. Must not know what a
confirm says, nor connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from node.broker import limits

Send: TypeAlias = Callable[[], None]
"""Sends one confirm."""


class Backlogs(Protocol):
    """The query of the replicated state that this depends on."""

    def backlog(self, queue: int) -> tuple[int, int] | None:
        """(messages that are ready, messages acked so far) of a queue; None if it is gone."""


class _Backlog:
    """A queue with many ready messages: the rate of its consumers, and the confirms that wait."""

    __slots__ = ("acked", "at", "held", "rate")

    def __init__(self, now: float, acked: int) -> None:
        self.at = now
        self.acked = acked
        self.rate = 0.0
        self.held: deque[tuple[float, Send]] = deque()

    def measure(self, now: float, acked: int) -> None:
        """Measure the rate, of about the last quarter of a second."""
        passed = now - self.at
        if passed >= limits.RATE_SECONDS:
            self.rate = (acked - self.acked) / passed
            self.at, self.acked = now, acked

    def is_behind(self, ready: int) -> bool:
        """Whether its consumers take messages in quick succession, and more are ready than they
        take in a short time."""
        return self.rate >= limits.STREAM_RATE_MIN and ready > self.rate * limits.BEHIND_SECONDS

    def release(self, until: float) -> None:
        """Send what has waited until then."""
        held = self.held
        while held and held[0][0] <= until:
            held.popleft()[1]()


class Slowing:
    """The confirms of one term that wait."""

    def __init__(self, backlogs: Backlogs, now: Callable[[], float]) -> None:
        self._backlogs = backlogs
        self._now = now
        self.queues: dict[int, _Backlog] = {}
        """The queues that are watched."""

    def confirm(self, queue: int, send: Send) -> None:
        """Send a confirm of what was stored in this queue: now, or when its consumers have caught
        up, after a quarter of a second at the latest; in the order of the calls."""
        backlog = self.queues.get(queue)
        if backlog is None:
            found = self._backlogs.backlog(queue)
            if found is not None and found[0] > limits.BACKLOG_MIN:
                self.queues[queue] = _Backlog(self._now(), found[1])
            send()
            return
        if not backlog.held:
            found = self._backlogs.backlog(queue)
            if found is None or not backlog.is_behind(found[0]):
                send()
                return
        backlog.held.append((self._now() + limits.SLOWED_SECONDS_MAX, send))

    def stop(self) -> None:
        """Send all that waits: the term is over."""
        for backlog in self.queues.values():
            backlog.release(self._now() + limits.SLOWED_SECONDS_MAX)
        self.queues.clear()

    def look(self) -> None:
        """Send what may go, and forget the queues that have no backlog any more."""
        now = self._now()
        for queue, backlog in list(self.queues.items()):
            found = self._backlogs.backlog(queue)
            if found is not None:
                backlog.measure(now, found[1])
            if found is not None and backlog.is_behind(found[0]):
                backlog.release(now)
                continue
            backlog.release(now + limits.SLOWED_SECONDS_MAX)
            if found is None or found[0] <= limits.BACKLOG_MIN:
                del self.queues[queue]
