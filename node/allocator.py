"""Large buffers of a node, given back to the system as soon as they are freed.

Owns the settings of glibc's malloc for this process. Its default moves the bound above which a
buffer is a mapping of its own up to the largest one that was ever freed (at most 32 MiB), and keeps
twice as much free memory at the end of its heap; so a node that has once sent 16 MiB to a member
cuts every later body out of the heap, where small objects pin what lay between them, and stays
tens of megabytes larger than before. Must not know what a buffer holds.
"""

from __future__ import annotations

import ctypes
from typing import Final

MAPPED_BYTES: Final = 256 << 10
"""Buffers from this size on are mappings of their own: bodies, frames and entries of hundreds of
kilobytes. Fresh pages for one cost no more than copying it once; smaller ones come in thousands a
second, where that would count."""

TOP_BYTES: Final = 4 << 20
"""Free memory at the end of the heap that is kept: less would shrink and grow it at each entry."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def give_back_large_buffers() -> bool:
    """Fix both bounds for this process; False where the C library is none that has them."""
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is None:
        return False
    mapped = setting(_M_MMAP_THRESHOLD, MAPPED_BYTES)
    return bool(mapped and setting(_M_TRIM_THRESHOLD, TOP_BYTES))
