"""Cluster time as one node sees it (semantics.md section 2).

Owns the rule by which a leader stamps what it proposes and a follower estimates what the leader
would stamp. Milliseconds; the monotonic clock comes in from outside. Knows nothing of entries,
Raft or locks.

    following --stand(last stamp)--> standing --lead(cluster time)--> leading --follow--> following

A leader anchors once, when its own `lead` command is applied. It is never re-based on its own
entries: that loses one commit latency each time, and stops the clock under load.
"""

from __future__ import annotations

from collections.abc import Callable

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
        """Take the time that has passed since the last look into account; seconds of it, uncapped.

        Called in every turn of the loop, so that only a pause of the node makes a gap.
        """
        now = self._monotonic()
        gap = max(0.0, now - self._looked_at)
        self._looked_at = now
        self._elapsed += min(gap, limits.GAP_SECONDS_MAX)
        return gap

    def follow(self, stamp_ms: int) -> None:
        """A follower applied an entry: its estimate starts anew there, also downwards."""
        self._held_ms = None
        self._anchor(stamp_ms)

    def stand(self, last_stamp_ms: int) -> int:
        """A node became leader: the one stamp of `lead` and of all it proposes until that is
        applied. `last_stamp_ms` is the stamp of the last entry in its log."""
        self._held_ms = max(last_stamp_ms, self.now_ms())
        self._stamped_ms = self._held_ms
        return self._held_ms

    def lead(self, cluster_time_ms: int) -> None:
        """The leader's own `lead` is applied: anchor, once for this term."""
        self._held_ms = None
        self._anchor(cluster_time_ms)
        self._stamped_ms = cluster_time_ms

    def resign(self) -> None:
        """The node does not lead any more: its estimate goes on from here until it follows."""
        self.follow(self.now_ms())

    def now_ms(self) -> int:
        """Cluster time now: a leader's own, a follower's estimate."""
        if self._held_ms is not None:
            return self._held_ms
        self.look()
        return self._anchor_ms + int((self._elapsed - self._anchor_elapsed) * 1000)

    def stamp_ms(self) -> int:
        """The stamp for what a leader proposes now: never below one it gave before."""
        self._stamped_ms = max(self._stamped_ms, self.now_ms())
        return self._stamped_ms

    def _anchor(self, at_ms: int) -> None:
        self.look()
        self._anchor_ms = at_ms
        self._anchor_elapsed = self._elapsed
