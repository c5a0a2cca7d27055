"""Every limit of node/journal: a name, a unit, a reason. Nothing else, and it knows nobody.

What an operator may change is a field of a configuration class and has its default from here.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

SEGMENT_BYTES: Final = 64 * MIB
"""A segment is closed when the next record would take it past this. Small enough that dropping
whole segments frees space in time, large enough that creating one (two syncs) is rare."""

SEGMENT_BYTES_MIN: Final = 512
"""Smaller segments would hold little but their header; tests use small ones."""

SEGMENT_BYTES_MAX: Final = 1024 * MIB
"""Positions inside a segment are kept in 32 bits per entry; the log itself has 64-bit positions."""

COMMAND_BYTES_MAX: Final = 8 * MIB
"""The largest command that one record may carry: four times the largest entry (2 MiB), and a bound
on what a reader allocates for a length it finds on disk."""

PREALLOCATION_BYTES: Final = 1 * MIB
"""Zeros that a small group takes along: one write in hundreds is longer by a millisecond or two,
and little of the disk waits unused."""

PREALLOCATION_GROUP_BYTES: Final = 32 * KIB
"""Larger groups take no zeros along: what a sync saves then is less than writing twice costs."""

CACHE_BYTES: Final = 64 * MIB
"""Recent commands kept in memory, so that replication and delivery seldom read the disk."""

REPLAY_CHUNK_BYTES: Final = 4 * MIB
"""Read size while opening a journal: large enough to be sequential, small enough to bound memory
at a chunk and one record."""

RUN_BYTES: Final = 1 * MIB
"""Entries that follow each other are read in pieces of this size: a thousand small ones at once,
and a piece that a disk returns in a few milliseconds."""

FETCH_BYTES: Final = 8 * MIB
"""Entries read beside the loop in one flight, for all who wait for some: that much is in memory at
once beyond the cache's bound."""

FETCH_ASKER_BYTES: Final = 2 * MIB
"""Of those for one of them: an entry of usual size whose messages were published in one batch."""

FETCH_AHEAD_BYTES: Final = 2 * MIB
"""What follows in the log and is read along: who reads a deep queue in order has the next two
thousand messages of usual size in memory while it takes these."""

FETCH_GROUPS_MAX: Final = 4_096
"""Messages that are looked through for what to read ahead for one of them: a few milliseconds."""

FETCH_GAP_BYTES: Final = 64 * KIB
"""What lies between two entries is read along up to this size: it costs less than a second read."""

JOIN_BYTES: Final = 4 * KIB
"""Commands that have no more than this on average are copied end to end before a file or a socket
gets them: a buffer for each costs more than to copy it."""

WRITE_PARTS_MAX: Final = 512
"""Buffers per writev; below IOV_MAX (1024 on Linux)."""

NODE_NAME_BYTES_MAX: Final = 255
"""Node names and votes are stored with a one-byte length."""

OPEN_SEGMENTS_MAX: Final = 64
"""Descriptors kept on segments: 4 GiB of log read without opening a file anew."""

SNAPSHOT_WRITE_BYTES: Final = 256 * KIB
"""Bytes of a snapshot or compacted file gathered before a write: few calls, and each well below a
millisecond of copying into the page cache."""

STATE_PIECE_BYTES: Final = 256 * KIB
"""The state of a snapshot is cut into records of this size: what has to be read and checked to
return any byte of it."""

LOCATIONS_PER_RECORD: Final = 4096
"""Entries whose places go into one record of a snapshot or compacted file (112 KiB)."""

STATE_BYTES_PER_LOCATION: Final = 16
"""While the state is written, one place is written for each of these bytes. A live body has more
state than that, so that all places are written when the state is, and none at the end."""

LIVE_FRACTION_MIN: Final = 0.25
"""A file of which less than this part is live is compacted: copying a quarter to free the rest
writes at most a third of what it frees."""

SMALL_COMPACTED_FILES_MAX: Final = 8
"""That many compacted files below a quarter of a segment are joined into one, so that their number
stays small and a body is copied for that reason seldom."""

RELEASE_BYTES: Final = 4 * MIB
"""What `release` does at once before it leaves the rest to `compact_step`: a few milliseconds."""

LOCATION_COST_BYTES: Final = 256
"""What the place of an entry counts for in a budget of bytes, where many are gone through."""

ENTRY_COST_BYTES: Final = 2 * KIB
"""What an entry counts for beside its own bytes where many are read at once: the time of small
ones."""

UNLINK_COST_BYTES: Final = 1 * MIB
"""What removing a file counts for in a budget of bytes: a file system frees 64 MiB in about the
time that it takes to copy this."""

SYNC_WEIGHT: Final = 0.2
"""Share of the newest sync in the recent mean: a single slow one is forgotten after a few."""

READ_ENTRIES_MAX: Final = 1_000
"""Entries that one reader of the log is given at once, so that nobody else waits for a peer that
catches up."""
