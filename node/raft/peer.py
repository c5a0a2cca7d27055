"""The name of a cluster member in the form that pysyncobj wants.

A stable hash makes the library's set iteration independent of PYTHONHASHSEED, which simulation
needs: the same seed has to give the same trace.
"""

from __future__ import annotations

import zlib

from pysyncobj.node import Node


class PeerNode(Node):  # type: ignore[misc]  # pysyncobj ships no types
    """A member by name. Equal names are equal nodes."""

    id: str

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # Kept, because the commit rule looks peers up once per entry.
        self._hash = zlib.crc32(name.encode())

    def __hash__(self) -> int:
        return self._hash
