"""A message between members in memory, and the types of the entries that it carries.

Owns the form of a message and the refusal of one that no correct peer sends. Must not know how a
message is written on the wire (`frames.py`) or what it makes a node do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from node.journal.errors import NodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

Message = dict[str, Any]
"""A message in the library's own form: `type` and the fields of that type."""

COMMAND_BYTE = b"\x10"
"""Type byte of our opaque commands."""

NO_OP = b"\x01"
"""The library's own entry at the start of a term."""


class MessageRefused(NodeError):
    """A message that no correct peer sends. Nothing was changed; its connection is to be closed."""


def known_command(command: bytes) -> bool:
    """Whether an entry is of a type that this node can apply: ours, or the library's no-op."""
    return command.startswith(COMMAND_BYTE) or command == NO_OP


def known_commands(commands: Iterable[bytes]) -> bool:
    """Whether all of them are."""
    return not [one for one in commands if not one.startswith(COMMAND_BYTE) and one != NO_OP]
