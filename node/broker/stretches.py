"""The longest stretches of work on the event loop, by kind: nothing else runs meanwhile.

Owns the measurement: CPU seconds of the loop's thread, so that a busy machine is not taken for a
slow request. The CPU clock is a system call, and reading it makes the scheduler look for another
thread to run; so it is read once in a while, and at the end of a stretch that may be the longest. A
stretch is never shown shorter than it was, and longer by a reading's age at most. A stretch of a
client's frames has the kind of the one that took longest. Must not know what the kinds do.
"""

from __future__ import annotations

from collections.abc import Callable

from node.broker import limits


class Stretches:
    """The longest stretch of each kind in the last minutes, and how many ever were over the aim."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        """`cpu`: seconds of CPU time of the thread that runs the loop."""
        self._cpu = cpu
        self._cpu_seconds = 0.0
        self.stale_at = float("-inf")
        """When the newest reading of the CPU clock is too old for another stretch to begin by."""
        self.over_aim: dict[str, int] = {}
        self._before: dict[str, float] = {}
        self._recent: dict[str, float] = {}
        self._turned_at = 0.0

    def read(self, now: float) -> None:
        """Read the CPU clock at `now` of the stopwatch: a stretch begins, and the newest reading is
        stale."""
        self._cpu_seconds = self._cpu()
        self.stale_at = now + limits.STRETCH_READING_SECONDS

    def note(self, kind: str, began: float, ended: float) -> None:
        """The stretch that began and ended at these instants of the stopwatch is over."""
        elapsed = ended - began
        if elapsed <= self._recent.get(kind, -1.0) and elapsed <= limits.STRETCH_SECONDS_AIM:
            return  # Its CPU time is no more than that.
        before = self._cpu_seconds
        self.read(ended)
        seconds = min(elapsed, self._cpu_seconds - before)
        if seconds > self._recent.get(kind, -1.0):
            self._recent[kind] = seconds
        if seconds > limits.STRETCH_SECONDS_AIM:
            self.over_aim[kind] = self.over_aim.get(kind, 0) + 1

    def look(self, now: float) -> None:
        """Forget what is older than two windows; to be called in every sweep."""
        if now - self._turned_at >= limits.STRETCH_WINDOW_SECONDS:
            self._turned_at = now
            self._before, self._recent = self._recent, {}

    def longest(self) -> dict[str, float]:
        """Seconds of the longest stretch of each kind, in the last one to two windows."""
        kinds = sorted({*self._before, *self._recent})
        return {
            kind: max(self._before.get(kind, 0.0), self._recent.get(kind, 0.0)) for kind in kinds
        }
