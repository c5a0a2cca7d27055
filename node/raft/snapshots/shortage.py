"""The judgement whether the disk is short of room, and whether a snapshot would give some back.

Owns the marks and the rests between two tries. What is dead shows in a snapshot only; from outside,
the entries on the disk less what the state still points to is the most that one could give back.
Must not know how a snapshot is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.raft import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.journal import Journal
    from node.raft.environment import StateSource


class Shortage:
    """Room of one journal: looked at now and then, by the taker of its snapshots."""

    def __init__(
        self,
        journal: Journal,
        source: StateSource,
        clock: Callable[[], float],
        *,
        low_bytes: int,
    ) -> None:
        self._journal = journal
        self._source = source
        self._clock = clock
        low = journal.low_bytes(low_bytes)
        self._enough_bytes = low + low // limits.SHORT_BACK_PARTS
        self._looked_at = clock()
        self._began_at = 0.0
        self._rest_until = 0.0
        self._left_bytes = 0
        self._hopeful_from = 0.0
        self.short = False
        """Whether room was short at the last look."""
        self.plenty = False
        """Whether that look was just now, and room was not short."""

    @property
    def dead_bytes(self) -> int:
        """The most that a snapshot and its clean-up could give back."""
        return max(0, self._journal.held_bytes - self._source.live_bytes())

    def look(self) -> bool:
        """Whether it is time to give room back. Looks once in a while, at little cost."""
        now = self._clock()
        self.plenty = False
        if now - self._looked_at < limits.SHORT_LOOK_SECONDS:
            return False
        self._looked_at = now
        self.short = self._journal.room_bytes < self._enough_bytes
        if not self.short:
            self.plenty = self._journal.making_reserve() is not None
            return False
        file_bytes = self._journal.segment_bytes
        dead_bytes = self.dead_bytes
        if dead_bytes < file_bytes:
            return False
        more = dead_bytes >= self._left_bytes + file_bytes
        return now >= (self._hopeful_from if more else self._rest_until)

    def begin(self) -> None:
        """A try begins."""
        self._began_at = self._clock()

    def end(self) -> None:
        """A try has ended, with success or without."""
        now = self._clock()
        took = limits.SHORT_REST_PARTS * (now - self._began_at)
        self._hopeful_from = now + max(limits.SHORT_REST_SECONDS_GAIN, took)
        self._rest_until = now + max(limits.SHORT_REST_SECONDS, took)
        self._left_bytes = self.dead_bytes
