"""The longest stretches of work on the event loop, by kind: nothing else runs meanwhile.

Owns the measurement: CPU seconds of the loop's thread, so that a busy machine is not taken for a
slow request. A stretch of a client's frames has the kind of the one that took longest. Must not
know what the kinds do.
"""

from __future__ import annotations

from collections.abc import Callable

from node.broker import limits


class Stretches:
    """The longest stretch of each kind in the last minutes, and how many ever were over the aim."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        """`cpu`: seconds of CPU time of the thread that runs the loop."""
        self.cpu = cpu
        self.over_aim: dict[str, int] = {}
        self._before: dict[str, float] = {}
        self._recent: dict[str, float] = {}
        self._turned_at = 0.0

    def note(self, kind: str, started: float) -> None:
        """A stretch that began at `started` of `cpu` has ended."""
        seconds = self.cpu() - started
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
