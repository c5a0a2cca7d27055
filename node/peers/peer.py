"""The name of a cluster member in the form that pysyncobj wants.

A stable hash makes the library's set iteration independent of PYTHONHASHSEED, which simulation
needs: the same seed has to give the same trace.
"""

from __future__ import annotations

import zlib
from typing import ClassVar

from pysyncobj.node import Node


class PeerNode(Node):  # type: ignore[misc]  # pysyncobj ships no types
    """A member by name: equal names are the same object, for what is equal and not the same is
    compared in Python, at each look into a table of the peers."""

    id: str
    _made: ClassVar[dict[str, PeerNode]] = {}

    def __new__(cls, name: str) -> PeerNode:
        """The node of this name, made when it is first asked for."""
        found = cls._made.get(name)
        if found is None:
            found = cls._made[name] = super().__new__(cls)
        return found

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # Kept, because tables of the peers are looked into many times a turn.
        self._hash = zlib.crc32(name.encode())

    def __hash__(self) -> int:
        return self._hash
