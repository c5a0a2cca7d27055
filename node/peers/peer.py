"""The identity of a cluster member: its name, hashed alike in every process.

A stable hash makes the iteration of sets of members independent of PYTHONHASHSEED, which simulation
needs: the same seed has to give the same trace.
"""

from __future__ import annotations

import zlib
from typing import ClassVar


class PeerNode:
    """A member by name. Equal names give the same object, so that looking one up in a table of
    peers compares identities and never runs Python code."""

    __slots__ = ("_hash", "id")

    id: str
    _hash: int
    _made: ClassVar[dict[str, PeerNode]] = {}

    def __new__(cls, name: str) -> PeerNode:
        """Return the node of this name; made on first use."""
        found = cls._made.get(name)
        if found is None:
            found = cls._made[name] = super().__new__(cls)
            found.id = name
            # Kept, because tables of the peers are looked into many times a turn.
            found._hash = zlib.crc32(name.encode())
        return found

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"PeerNode({self.id!r})"
