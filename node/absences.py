"""When a member may be away for half a second without harm to its cluster.

Owns the moments: never while it leads, and of several members one at a time, by cluster time, which
all of them know. A leader that cannot put it off any longer hands over first. Must not know what
the time is needed for, nor Raft beyond its leader and a transfer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

SLOT_MS: Final = 1_000
"""Milliseconds in which one member may go away. Between two such slots is one of no member: one
that went at the end of its own is back before the next one goes, however busy its machine."""

HAND_OVER_REST_SECONDS: Final = 30.0
"""A leader hands over at most once in so many seconds for time of its own."""


class Absences:
    """The moments of one of these members."""

    def __init__(self, members: Collection[str], name: str) -> None:
        names = sorted(members)
        self._alone = len(names) == 1
        self._slots = 2 * len(names)
        self._slot = 2 * names.index(name)
        self._stays_until = float("-inf")

    def may_go(self, cluster_ms: int, *, leads: bool) -> bool:
        """Whether this member may be away now, by cluster time. One that is alone may always: no
        other could take its place."""
        if self._alone:
            return True
        return not leads and cluster_ms // SLOT_MS % self._slots == self._slot

    def may_hand_over(self, now: float) -> bool:
        """Whether this leader may hand over for time of its own; it has, if so. `now`: monotonic
        seconds."""
        if now < self._stays_until:
            return False
        self._stays_until = now + HAND_OVER_REST_SECONDS
        return True
