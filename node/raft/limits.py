"""Every limit of node/raft: a name, a unit, a reason. Nothing else, and it knows nobody.

The journal's limits come first, the node's and the transport's follow under their own heading.
What an operator may change is a field of a configuration class and has its default from here.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024

# --- journal -------------------------------------------------------------------------------------

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

CACHE_BYTES: Final = 64 * MIB
"""Recent commands kept in memory, so that replication and delivery seldom read the disk."""

REPLAY_CHUNK_BYTES: Final = 4 * MIB
"""Read size while opening a journal: large enough to be sequential, small enough to bound memory
at a chunk and one record."""

WRITE_PARTS_MAX: Final = 512
"""Buffers per writev; below IOV_MAX (1024 on Linux)."""

NODE_NAME_BYTES_MAX: Final = 255
"""Node names and votes are stored with a one-byte length."""
