"""The message that ends an upgrade: the cluster uses what all of its members can from then on.

Owns its part of the catalogue (`messages`). Must not know what a version turns on.
When a message changes, change `docs/protocol.md` in the same commit; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from fifo.wire.messages import Message, on_wire


@on_wire(70)
@dataclass(frozen=True, slots=True)
class FinishUpgrade(Message):
    """Raise the version of the cluster to the newest that all members know; `Ok` answers a map."""
