"""A message between members in memory, and the identity of a member.

Owns the form of a message, the refusal of one that no correct peer sends, and the name of a member,
hashed alike in every process: the iteration of sets of members is then independent of
PYTHONHASHSEED, which simulation needs, for the same seed has to give the same trace. Must not know
how a message is written on the wire (`frames.py`) or what it makes a node do.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, ClassVar, Final

from node.journal.errors import NodeError
from node.journal.records import NOTED_BYTE

if TYPE_CHECKING:
    from collections.abc import Iterable


Message = dict[str, Any]
"""A message in the library's own form: `type` and the fields of that type."""

COMMAND_BYTE = b"\x10"
"""Type byte of our opaque commands."""

CONFIGURATION_BYTE: Final = NOTED_BYTE
"""Type byte of an entry that is a configuration (`node/raft/configuration.py`). Nodes of 0.1.0 stop
at it, so none is appended below version 2 of the cluster."""

NO_OP = b"\x01"
"""The library's own entry at the start of a term."""


_OURS: Final = (COMMAND_BYTE, CONFIGURATION_BYTE)

SAME_VERSION: Final = "run the same version of fifo on every node of the cluster"
"""The remedy where a member sends what no correct peer of this version sends."""


class MessageRefused(NodeError):
    """A message that no correct peer sends. Nothing was changed; its connection is to be closed."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"message refused: {problem}; {SAME_VERSION}")


def known_command(command: bytes) -> bool:
    """Whether an entry is of a type that this node can apply: ours, a configuration, or the
    library's no-op."""
    return command.startswith(_OURS) or command == NO_OP


def known_commands(commands: Iterable[bytes]) -> bool:
    """Whether all of them are."""
    for one in commands:  # noqa: SIM110 # a generator costs a lone command more than the look
        if not one.startswith(_OURS) and one != NO_OP:
            return False
    return True


class PeerNode(int):
    """A member by name. Equal names give the same object, so that looking one up in a table of
    peers compares identities and never runs Python code: it is a number for the sake of its hash.
    """

    id: str
    _made: ClassVar[dict[str, PeerNode]] = {}

    def __new__(cls, name: str) -> PeerNode:
        """Return the node of this name; made on first use."""
        found = cls._made.get(name)
        if found is None:
            found = cls._made[name] = super().__new__(cls, zlib.crc32(name.encode()))
            found.id = name
        return found

    # Two names may share a number, and are two members all the same.
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = int.__hash__

    def __repr__(self) -> str:
        return f"PeerNode({self.id!r})"
