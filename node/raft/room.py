"""The room that the members of a group have: on the disk, in memory, and the time of their syncs.

Owns a member's own report, when its leader hears it, and which reports a leader goes by. Must not
know who is refused because of them: that is the owner's decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.raft import limits
from node.raft.lease import NEVER

if TYPE_CHECKING:
    from node.peers.message import Message, PeerNode


@dataclass(frozen=True, slots=True)
class Room:
    """A report of one member. Below `low_bytes` free, or above `high_bytes` held, it has too little
    left; `sync_ms` is the recent mean of its syncs, or the age of the one under way."""

    free_bytes: int
    low_bytes: int
    held_bytes: int
    high_bytes: int
    sync_ms: int

    @property
    def frame(self) -> Message:
        """The fields of the frame that tells it."""
        return {
            "free_bytes": self.free_bytes,
            "low_bytes": self.low_bytes,
            "held_bytes": self.held_bytes,
            "high_bytes": self.high_bytes,
            "sync_ms": self.sync_ms,
        }


def room_in(message: Message) -> Room:
    """Return the report that a frame of a member holds."""
    return Room(
        free_bytes=message["free_bytes"],
        low_bytes=message["low_bytes"],
        held_bytes=message["held_bytes"],
        high_bytes=message["high_bytes"],
        sync_ms=message["sync_ms"],
    )


class Rooms:
    """The reports as one member knows them."""

    def __init__(self) -> None:
        self.low_bytes = self.held_bytes = self.high_bytes = 0
        """The owner's part of the own report: its marks, and the memory that it holds."""
        self.news = False
        """Whether the owner should look at the rooms; it sets this back."""
        self.grown_end = 0
        """Position of the log at which it has grown by much since the own room was measured."""
        self._told: PeerNode | None = None
        self._told_at = NEVER
        self._reports: dict[PeerNode, tuple[Room, float]] = {}

    def own(self, free_bytes: int, sync_seconds: float) -> Room:
        """Return this member's report."""
        return Room(
            free_bytes=max(0, free_bytes),
            low_bytes=max(0, self.low_bytes),
            held_bytes=max(0, self.held_bytes),
            high_bytes=max(0, self.high_bytes),
            sync_ms=int(1000 * sync_seconds),
        )

    def measured(self, end: int) -> None:
        """The own room is measured, while the log ends at position `end`."""
        self.grown_end = end + limits.ROOM_REPORT_BYTES

    def due(self, leader: PeerNode, now: float, end: int) -> bool:
        """Whether this leader is to hear the report now; asked once, it counts as sent."""
        recent = now - self._told_at < limits.ROOM_REPORT_SECONDS
        if leader is self._told and recent and end < self.grown_end:
            return False
        self._told, self._told_at = leader, now
        return True

    def begin(self) -> None:
        """A new leadership: nothing is known of the others."""
        self._reports.clear()

    def reported(self, node: PeerNode, room: Room, now: float) -> None:
        """Take the report of a member."""
        self._reports[node] = room, now
        self.news = True

    def of(self, node: PeerNode, now: float, *, counted: bool) -> Room | None:
        """Return the report of a member; None where it does not count: it is too old, so that a
        member that is gone refuses nothing for the others, or the member itself does not count."""
        room, told_at = self._reports.get(node, (None, NEVER))
        if now - told_at > limits.ROOM_REPORT_SECONDS_MAX or not counted:
            return None
        return room
