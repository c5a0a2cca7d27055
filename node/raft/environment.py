"""All that a member needs from outside itself, in one value that is handed down.

Owns no behaviour: a journal, a transport, a clock, randomness, worker threads, the owner's
callbacks, and the protocols of the transport and of the owner of the replicated state. Here are
bytes and indexes; what a state means, which entries it points to and how it is frozen is the
owner's. Must not know what a core does with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from node.journal.io.jobs import Inline, Worker

if TYPE_CHECKING:
    import random
    from array import array
    from collections.abc import Callable, Iterator

    from node.journal.journal import Journal
    from node.peers.message import Message, PeerNode
    from node.peers.transport import Receiver


class PeerTransport(Protocol):
    """The connections to the peers: `node.peers.TcpTransport`, or a simulated network."""

    def attach(self, receiver: Receiver) -> None:
        """Deliver messages and connection changes to `receiver` from now on."""

    def send(self, node: PeerNode, message: Message) -> bool:
        """Send one message; False when there is no connection to `node`."""

    async def start(self) -> None:
        """Begin to accept and to dial. Raises OSError where the address is taken."""

    async def close(self) -> None:
        """End listener, dialers and connections. Idempotent."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Surroundings of one member. Times of `clock` are seconds."""

    journal: Journal
    transport: PeerTransport
    clock: Callable[[], float]
    rng: random.Random
    apply: Callable[[int, int, memoryview], None]
    """Called once per committed entry with index, term and payload, in order."""
    wake: Callable[[], None]
    """Asks the owner for a turn soon."""
    source: StateSource | None
    """Owner of the replicated state; None: no snapshots are taken or installed."""
    background: Worker
    """Takes the syncs of snapshots and of the clean-up behind them."""
    reads: Worker
    """Takes reads from the disk: fetched entries, and entries for a peer that is far behind."""


def worker(offload: Worker | None) -> Worker:
    """Return `offload`, or one that runs its work at once on the caller's thread."""
    return Inline() if offload is None else offload


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
