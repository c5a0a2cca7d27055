"""The message that changes the members of a cluster while it runs.

Owns its part of the catalogue (`messages`). Must not know how a change is made.
When a message changes, change `docs/protocol.md` in the same commit; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fifo.wire import limits
from fifo.wire.fields import maybe, text
from fifo.wire.messages import Message, on_wire

_MaybeName = Annotated[str | None, maybe(text(limits.TEXT_BYTES_MAX, 1))]


@on_wire(68)
@dataclass(frozen=True, slots=True)
class ChangeMembers(Message):
    """Add, remove, replace or move a member, or undo the change under way; `Ok` answers a map."""

    action: Annotated[str, text(32, 1)]
    member: _MaybeName = None
    replaces: _MaybeName = None
    peer: _MaybeName = None
    client: _MaybeName = None
    http: _MaybeName = None
