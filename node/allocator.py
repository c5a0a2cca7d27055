"""Freed memory of a node, given back to the system.

Owns when glibc's malloc has to do so. Its default moves the bound above which a buffer is a
mapping of its own up to the largest one that was ever freed (at most 32 MiB); so a node that has
once sent 16 MiB to a member cuts every later body out of the heap, where small objects pin what
lay between them, and stays tens of megabytes larger than before. Must not know what a buffer holds.
"""

from __future__ import annotations

import asyncio
import ctypes
import resource
from pathlib import Path
from typing import Final

LOOK_SECONDS: Final = 2.0
"""Between two looks at the resident memory: reading it takes some 20 us."""

GROWTH_BYTES: Final = 16 << 20
"""Growth since the last look that found less, from which freed memory is given back. Pages that
were free and are wanted again cost some 3 ms of page faults per 16 MiB: 0.2 % of a core."""

AGAIN_LOOKS: Final = 2
"""Looks after which memory is given back once more, doubled each time until it grows again: what
was in use at the growth may be free by then, without a smaller process that would show it."""

_STATM: Final = Path("/proc/self/statm")


class FreedMemory:
    """Gives freed memory back while a node runs, where the C library and /proc allow it."""

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._least = resident_bytes()
        """Resident bytes after the memory was last given back, or less since."""
        self._pause_looks = AGAIN_LOOKS
        self._looks_left: int | None = None
        """Looks until memory is given back again; None before the first growth."""

    async def run(self) -> None:
        """Look at the memory for ever; return at once where nothing can be given back."""
        while self._trim is not None and self._least is not None:
            await asyncio.sleep(LOOK_SECONDS)
            if self.is_due():
                # Off the loop: a walk of the whole heap, during which this thread has no GIL.
                await asyncio.get_running_loop().run_in_executor(None, self.give_back)

    def is_due(self) -> bool:
        """Whether the process grew enough since the least that it took, or a pause after that is
        over."""
        now, least = resident_bytes(), self._least
        if now is None or least is None:
            return False
        self._least = min(least, now)
        if now - self._least >= GROWTH_BYTES:
            self._pause_looks = AGAIN_LOOKS
            return True
        if self._looks_left is not None:
            self._looks_left -= 1
        return self._looks_left == 0

    def give_back(self) -> None:
        """Give freed memory back at once; the memory that is left is the least from here on."""
        if self._trim is not None:
            self._trim(0)
        self._least = resident_bytes()
        self._looks_left = self._pause_looks
        self._pause_looks *= 2


def resident_bytes() -> int | None:
    """Memory of this process that is in use; None where the system does not tell."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except OSError:
        return None
    return pages * resource.getpagesize()
