"""Cluster time on one node (semantics.md section 2).

Owns the rule by which a leader stamps its proposals and a follower estimates the leader's stamp.
Milliseconds; the monotonic clock is passed in. Must not know entries, Raft or locks.

    following --stand(last stamp)--> standing --lead(cluster time)--> leading --follow--> following

A leader anchors once, when its own `lead` command is applied. It is never re-based on its own
entries: that would lose one commit latency each time and stop the clock under load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from node.broker import limits


class ClusterClock:
    """Cluster time from a monotonic clock in seconds. Gaps of over a second count as one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._elapsed = 0.0
        self._anchor_ms = 0
        self._anchor_elapsed = 0.0
        self._stamped_ms = 0
        self._held_ms: int | None = None

    def look(self) -> float:
        """Account for the time since the last look; return it in seconds, uncapped.

        Called many times a second, so that only a pause of the node makes a gap.
        """
        now = self._monotonic()
        gap = now - self._looked_at
        self._looked_at = now
        if gap <= 0.0:
            return 0.0
        self._elapsed += gap if gap < limits.GAP_SECONDS_MAX else limits.GAP_SECONDS_MAX
        return gap

    def follow(self, stamp_ms: int) -> None:
        """Restart the estimate from the stamp of an applied entry, downwards as well."""
        self._held_ms = None
        self._anchor(stamp_ms)

    def stand(self, last_stamp_ms: int) -> int:
        """Become leader: return the single stamp of `lead` and of all proposals until it is
        applied. `last_stamp_ms` is the stamp of the last entry in the log."""
        self._held_ms = max(last_stamp_ms, self.now_ms())
        self._stamped_ms = self._held_ms
        return self._held_ms

    def lead(self, cluster_time_ms: int) -> None:
        """Anchor for this term, when the leader's own `lead` is applied."""
        self._held_ms = None
        self._anchor(cluster_time_ms)
        self._stamped_ms = cluster_time_ms

    def resign(self) -> None:
        """Stop leading: continue with an estimate from here until the node follows."""
        self.follow(self.now_ms())

    def now_ms(self) -> int:
        """Cluster time now: the leader's own, or a follower's estimate."""
        if self._held_ms is not None:
            return self._held_ms
        self.look()
        return self._anchor_ms + int((self._elapsed - self._anchor_elapsed) * 1000)

    def stamp_ms(self) -> int:
        """Stamp for a leader's proposal now: never below an earlier one."""
        self._stamped_ms = max(self._stamped_ms, self.now_ms())
        return self._stamped_ms

    def _anchor(self, at_ms: int) -> None:
        self.look()
        self._anchor_ms = at_ms
        self._anchor_elapsed = self._elapsed


@dataclass(frozen=True, slots=True)
class Clocks:
    """The times of one node: `now` in monotonic seconds, which Raft's lease counts in too;
    `wall_ms` for people; and cluster time."""

    now: Callable[[], float]
    wall_ms: Callable[[], int]
    cluster: ClusterClock
