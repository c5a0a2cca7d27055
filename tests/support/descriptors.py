"""A process without a descriptor: every one that it may have is taken.

Owns the limit of this process while a test lasts. Must not know what needs descriptors.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Take every descriptor that this process may have, until the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
