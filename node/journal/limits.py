"""Every limit of node/journal: a name, a unit, a reason. Imports nothing of the project.

A limit that an operator may change is a field of `JournalLimits`, whose default is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

SEGMENT_BYTES: Final = 64 * MIB
"""A segment is closed when the next record would take it past this. Small enough that dropping
whole segments frees space in time, large enough that creating one (two syncs) is rare."""

SEGMENT_DISK_PARTS: Final = 32
"""A segment takes no more than this part of a small disk: what is dead in the one that is written,
and in the one before it, comes back only with later ones."""

SEGMENT_BYTES_ON_DISK_MIN: Final = 4 * MIB
"""Smaller ones would cost more in syncs than they give back: two large entries."""

RESERVE_BYTES: Final = 64 * MIB
"""The reserve: a snapshot of a million messages and a day of settlements."""

RESERVE_DISK_PARTS: Final = 16
"""The part of a small disk that it takes at most."""

RESERVE_ROOM_PARTS: Final = 4
"""Multiple of its size that has to be free where it is made: on a small disk the low mark."""

RESERVE_STOPPED_PARTS: Final = 16
"""A node that stops leaves none behind where this many times its size is free: the next start will
find the room."""

LOW_DISK_PARTS: Final = 4
"""The low mark is at most this part of the disk: a node on a small one has most of it to use."""

SEGMENT_BYTES_MIN: Final = 512
"""Smaller segments would hold little but their header; tests use small ones."""

SEGMENT_BYTES_MAX: Final = 1024 * MIB
"""Positions inside a segment are kept in 32 bits per entry; the log itself has 64-bit positions."""

COMMAND_BYTES_MAX: Final = 8 * MIB
"""The largest command that one record may carry: four times the largest entry (2 MiB), and a bound
on what a reader allocates for a length it finds on disk."""

PREALLOCATION_BYTES: Final = 1 * MIB
"""Zeros that a small group preallocates behind itself: one write in hundreds takes a millisecond
or two longer, and little of the disk stays unused."""

PREALLOCATION_GROUP_BYTES: Final = 32 * KIB
"""Larger groups preallocate nothing: the sync would save less than writing twice costs."""

CACHE_BYTES: Final = 64 * MIB
"""Recent commands kept in memory, so that replication and delivery seldom read the disk."""

REPLAY_CHUNK_BYTES: Final = 4 * MIB
"""Read size while opening a journal: large enough to be sequential, small enough to bound memory
at a chunk and one record."""

RUN_BYTES: Final = 1 * MIB
"""Entries that follow each other are read in pieces of this size: a thousand small ones at once,
and a piece that a disk returns in a few milliseconds."""

FETCH_BYTES: Final = 8 * MIB
"""Entries read off the event loop in one fetch, for all waiters together: what is in memory beyond
the bound of the cache."""

FETCH_ASKER_BYTES: Final = 2 * MIB
"""The share of one waiter: an entry of usual size whose messages were published in one batch."""

FETCH_AHEAD_BYTES: Final = 2 * MIB
"""Bytes read ahead in the log: a consumer that reads a deep queue in order has the next two
thousand messages of usual size in memory while it takes these."""

FETCH_GROUPS_MAX: Final = 4_096
"""Groups of one waiter that are considered for one fetch: a few milliseconds."""

FETCH_GAP_BYTES: Final = 64 * KIB
"""Two entries with a gap up to this size are read at once: that costs less than a second read."""

JOIN_BYTES: Final = 4 * KIB
"""Commands that have no more than this on average are copied end to end before a file or a socket
gets them: a buffer for each costs more than to copy it."""

WRITE_PARTS_MAX: Final = 512
"""Buffers per writev; below IOV_MAX (1024 on Linux)."""

NODE_NAME_BYTES_MAX: Final = 255
"""Node names and votes are stored with a one-byte length."""

OPEN_SEGMENTS_MAX: Final = 64
"""Descriptors kept on segments: 4 GiB of log read without opening a file anew."""

DESCRIPTORS: Final = OPEN_SEGMENTS_MAX + 16
"""Descriptors that a journal on a real folder holds from its start: those of segments, and of what
is open beside them: the mark, the next segment, a snapshot that is written and one that is read, a
compaction, reads off the event loop, the folder while it is synced."""

DESCRIPTOR_RETRY_SECONDS: Final = 0.05
"""Pause between two tries to open a file while the system has no descriptor left."""

SNAPSHOT_WRITE_BYTES: Final = 256 * KIB
"""Bytes of a snapshot or compacted file gathered before a write: few calls, and each well below a
millisecond of copying into the page cache."""

STATE_PIECE_BYTES: Final = 256 * KIB
"""The state of a snapshot is cut into records of this size: what has to be read and checked to
return any byte of it."""

LOCATIONS_PER_RECORD: Final = 4096
"""Entries whose locations go into one record of a snapshot or compacted file (112 KiB)."""

STATE_BYTES_PER_LOCATION: Final = 16
"""While the state is written, one location is written for each of these bytes. A live body has more
state than that, so that all locations are written when the state is, and none at the end."""

LIVE_FRACTION_MIN: Final = 0.25
"""A file of which less than this part is live is compacted: copying a quarter to free the rest
writes at most a third of what it frees."""

LIVE_FRACTION_MIN_SHORT: Final = 0.75
"""The same while room is short: copying three quarters to free one writes three times what it
frees, which costs less than publishers that wait."""

SHORT_COPY_PARTS: Final = 2
"""While room is short, a copy is made only where this many segments are free: the log needs the
last of them more."""

SMALL_COMPACTED_FILES_MAX: Final = 8
"""This many compacted files below a quarter of a segment are merged into one, so that their number
stays small and a body is seldom copied for that reason."""

RELEASE_BYTES: Final = 4 * MIB
"""Budget of `release`, which leaves the rest to `compact_step`: a few milliseconds."""

LOCATION_COST_BYTES: Final = 256
"""Cost of one location in a budget of bytes."""

ENTRY_COST_BYTES: Final = 2 * KIB
"""Cost of an entry beside its own bytes in a budget of bytes: the time that small ones take."""

UNLINK_COST_BYTES: Final = 1 * MIB
"""Cost of removing a file in a budget of bytes: a file system frees 64 MiB in about the time that
it takes to copy this."""

SYNC_WEIGHT: Final = 0.2
"""Share of the newest sync in the recent mean: a single slow one is forgotten after a few."""

READ_ENTRIES_MAX: Final = 1_000
"""Maximum number of entries that one reader of the log gets at once, so that no other work waits
for a peer that catches up."""


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """The settings of one journal, in bytes, but for `open_segments`, which counts files."""

    segment_bytes: int = SEGMENT_BYTES
    preallocation_bytes: int = PREALLOCATION_BYTES
    command_bytes: int = COMMAND_BYTES_MAX
    cache_bytes: int = CACHE_BYTES
    replay_chunk_bytes: int = REPLAY_CHUNK_BYTES
    open_segments: int = OPEN_SEGMENTS_MAX
    reserve_bytes: int = 0

    def __post_init__(self) -> None:
        if not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise ValueError(
                f"segment_bytes must be {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}, "
                f"not {self.segment_bytes}"
            )
        if not 1 <= self.command_bytes <= COMMAND_BYTES_MAX:
            raise ValueError(
                f"command_bytes must be 1 to {COMMAND_BYTES_MAX}, not {self.command_bytes}"
            )
        if self.preallocation_bytes < 0:
            raise ValueError(
                f"preallocation_bytes must be 0 or more, not {self.preallocation_bytes}"
            )
        if self.reserve_bytes < 0:
            raise ValueError(f"reserve_bytes must be 0 or more, not {self.reserve_bytes}")
        if self.cache_bytes < 0 or self.replay_chunk_bytes < 1:
            raise ValueError(
                "cache_bytes must be 0 or more and replay_chunk_bytes 1 or more, "
                f"not {self.cache_bytes} and {self.replay_chunk_bytes}"
            )
        if self.open_segments < 2:
            raise ValueError(
                "open_segments must be 2 or more, one to write and one to read, "
                f"not {self.open_segments}"
            )

    @classmethod
    def of_disk(cls, disk_bytes: int) -> JournalLimits:
        """Return the limits of a journal on a disk of this size."""
        part = max(disk_bytes // SEGMENT_DISK_PARTS, SEGMENT_BYTES_ON_DISK_MIN)
        return cls(
            segment_bytes=min(SEGMENT_BYTES, part),
            reserve_bytes=min(RESERVE_BYTES, disk_bytes // RESERVE_DISK_PARTS),
        )


SCRUB_BYTES: Final = 256 * KIB
"""About what one job of the scrub reads: a body that is waited for waits for no more than that."""

SCRUB_ENTRIES: Final = 1_000
"""Entries of the same, for small ones: their locations are gathered on the event loop."""

SCRUB_RECORD_COST_BYTES: Final = 1024
"""A record's cost beside its bytes in the rate of the scrub: a few microseconds each."""

AUDIT_FILES: Final = 4
"""Files of the audit log of a node: the oldest is overwritten."""

AUDIT_FILE_BYTES: Final = 8 * 1024 * 1024
"""Of one of them: with the number above some 80,000 changes, and no client can fill a disk."""
