"""All that a member needs from outside itself, in one value that is handed down.

Owns no behaviour: a journal, a transport, a clock, randomness, worker threads and the owner's
callbacks. Must not know what a core does with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from node.journal.io.worker import Inline, Worker

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from node.journal.journal import Journal
    from node.peers.message import Message
    from node.peers.peer import PeerNode
    from node.peers.transport import Receiver
    from node.raft.state_source import StateSource


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
