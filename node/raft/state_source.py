"""The owner of the replicated state, as a node sees it: a view to write, and one to take over.

Owns the seam of snapshots, as protocols. Here are bytes and indexes; what a state means, which
entries it points to and how it is frozen is the owner's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator


class StateView(Protocol):
    """The state as it was at one applied index, while entries go on being applied.

    Each `next` on what its methods return is one step of a few milliseconds at the most.
    """

    def live(self) -> Iterator[array[int]]:
        """The indexes of entries that the state points to, ascending over all arrays."""

    def chunks(self) -> Iterator[bytes]:
        """The state in pieces, which may be empty."""

    def release(self) -> None:
        """The view is not read any more."""


class StateSource(Protocol):
    """The owner of the state."""

    def freeze(self) -> StateView:
        """The state as it is now: with everything applied that was handed over. One at a time."""

    def restore(self, chunks: Iterator[bytes]) -> Iterator[None]:
        """Take over the state that `chunks` hold, in steps. After the last one, and not before,
        it is this node's state, and what was known of the old one is dropped. Raises for bytes
        that it cannot read, which stops the node."""
