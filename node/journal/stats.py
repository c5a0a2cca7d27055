"""Statistics of a journal, for status and metrics. Must not know files or records."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

from node.journal import limits

SYNC_BUCKET_SECONDS: Final = (
    0.000_25,
    0.000_5,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    1.0,
)
"""Upper bounds of the sync histogram: from a fast NVMe disk to one that makes elections fail."""


@dataclass(frozen=True, slots=True)
class SnapshotStats:
    """Statistics of the snapshots and of what they keep.

    `index` and `state_bytes` are of the newest, 0 without one; `disk_bytes` is of all. `entries`
    and `live_bytes` are what the base keeps of the log before it, in `segments` segments and
    `compacted_files` compacted files that take `held_bytes` together.
    """

    count: int
    index: int
    state_bytes: int
    disk_bytes: int
    entries: int
    live_bytes: int
    segments: int
    compacted_files: int
    held_bytes: int

    @property
    def live_ratio(self) -> float:
        """Part of the bytes before the log that is still needed; 1 where there are none."""
        return self.live_bytes / self.held_bytes if self.held_bytes else 1.0


@dataclass(frozen=True, slots=True)
class JournalStats:
    """Statistics of one journal at one moment.

    `sync_buckets` counts syncs per upper bound of `SYNC_BUCKET_SECONDS`, with one more at the end
    for those above all; the counts are not cumulative. `sync_seconds` is the time in all of them.
    """

    segments: int
    disk_bytes: int
    free_bytes: int
    entries: int
    cached_bytes: int
    written_bytes: int
    syncs: int
    sync_seconds: float
    last_sync_seconds: float
    sync_buckets: tuple[int, ...]
    bytes_since_snapshot: int
    snapshots: SnapshotStats

    @property
    def mean_sync_seconds(self) -> float:
        """Mean time of one write and sync; 0 before the first."""
        return self.sync_seconds / self.syncs if self.syncs else 0.0


class SyncStats:
    """Counts syncs and their times."""

    __slots__ = (
        "buckets",
        "last_seconds",
        "recent_seconds",
        "syncs",
        "total_seconds",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.syncs = 0
        self.total_seconds = 0.0
        self.last_seconds = 0.0
        self.recent_seconds = 0.0
        self.written_bytes = 0
        self.buckets = [0] * (len(SYNC_BUCKET_SECONDS) + 1)

    def __repr__(self) -> str:
        return f"<SyncStats {self.syncs} syncs, {self.total_seconds:.3f} s>"

    def note(self, seconds: float, size: int) -> None:
        """Count a group of `size` bytes that was written and synced in `seconds`."""
        self.syncs += 1
        self.total_seconds += seconds
        self.last_seconds = seconds
        self.recent_seconds += (seconds - self.recent_seconds) * limits.SYNC_WEIGHT
        self.written_bytes += size
        self.buckets[bisect_left(SYNC_BUCKET_SECONDS, seconds)] += 1
