"""All that a member needs from outside itself, in one value that is handed down.

Owns no behaviour: a journal, a transport, a clock, randomness, worker threads, the owner's
callbacks, and the protocols of the transport and of the owner of the replicated state. Here are
bytes and indexes; what a state means, which entries it points to and how it is frozen is the
owner's. Must not know what a core does with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from node.journal.io.jobs import Inline, Worker

if TYPE_CHECKING:
    import random
    from array import array
    from collections.abc import Callable, Generator, Iterator, Mapping

    from node.journal.journal import Journal
    from node.journal.skips import Skip
    from node.peers.message import Message, PeerNode
    from node.peers.transport import Receiver
    from node.raft.configuration import Configuration
    from node.raft.equality import Mark


class PeerTransport(Protocol):
    """The connections to the peers: `node.peers.TcpTransport`, or a simulated network."""

    def attach(self, receiver: Receiver) -> None:
        """Deliver messages and connection changes to `receiver` from now on."""

    def send(self, node: PeerNode, message: Message) -> bool:
        """Send one message; False when there is no connection to `node`."""

    def tells(self, node: PeerNode) -> bool:
        """Whether the member on the connection to `node` says which journal it has; 0.1.0 does
        not."""

    def follow(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Have connections with the members of these names from now on. That of another name ends
        once what is on its way has been sent, and is dialled no more; who proves to belong to the
        cluster is heard all the same, for this member may be the one that is behind."""

    async def start(self) -> None:
        """Begin to accept and to dial. Raises OSError where the address is taken."""

    async def close(self) -> None:
        """End listener, dialers and connections. Idempotent."""


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

    def live_bytes(self) -> int:
        """About the bytes of the entries that the state points to: a sum of counters."""

    def restore(self, chunks: Iterator[bytes]) -> Iterator[None]:
        """Take over the state that `chunks` hold, in steps. After the last one, and not before,
        it is this node's state, and what was known of the old one is dropped. Raises for bytes
        that it cannot read, which stops the node."""


class Replay(Protocol):
    """Another state beside that of the owner, at the beginning: what the log does to it is done
    to nothing else."""

    def restore(self, chunks: Iterator[bytes]) -> Iterator[None]:
        """Take over the state of a snapshot, as `StateSource.restore`."""

    def apply(self, index: int, payload: memoryview) -> object:
        """Apply an entry."""

    def skip(self, index: int, payload: memoryview, skip: Skip) -> None:
        """Pass over an entry."""

    def marking(self, own: Mark) -> Generator[None, None, Mark]:
        """The mark that this state has in the place of `own`, in steps."""


@dataclass(frozen=True, slots=True)
class RaftWorkers:
    """Workers for what blocks on the disk; by default all of it runs on the caller's thread.

    The node closes them.
    """

    syncs: Worker = field(default_factory=Inline)
    """Runs the syncs of the log while the disk is slow."""
    snapshots: Worker = field(default_factory=Inline)
    """Runs the syncs of snapshots and of the clean-up behind them."""
    reads: Worker = field(default_factory=Inline)
    """Reads entries that are fetched, and those for a peer that is far behind."""
    notes: Worker = field(default_factory=Inline)
    """Writes down what is known of the journals of the others."""

    def close(self) -> None:
        """Return when nothing runs any more."""
        for worker in (self.syncs, self.snapshots, self.reads, self.notes):
            worker.close()


@dataclass(frozen=True, slots=True)
class RaftEnvironment:
    """Surroundings of one member. Times of `clock` are seconds."""

    journal: Journal
    transport: PeerTransport
    clock: Callable[[], float]
    rng: random.Random
    apply: Callable[[int, int, memoryview], None]
    """Called with index, term and payload, once per submitted entry and index, in order, on every
    node; what it raises stops the node. The library's own no-ops take indexes too, but are not
    handed to it."""
    before_sync: Callable[[], None]
    """Called in each turn after replication and apply, before the last sync."""
    wake: Callable[[], None]
    """Asks the owner for a turn soon, from inside any call."""
    on_role: Callable[[str, int], None]
    """Called with role and term at every change, before anything of the new role happens; entries
    are accepted once it has reported "leader"."""
    skip: Callable[[int, int, memoryview, Skip], None] = lambda index, term, payload, skip: None
    """Called instead of `apply`, with the same and the order to skip it, for an entry whose apply
    raises: the state has to know that it was passed over."""
    source: StateSource | None = None
    """Owner of the state that is applied to: what the newest snapshot holds is handed to it at the
    start, before the first entry. None: no snapshots are taken or installed."""
    replay: Callable[[], Replay] | None = None
    """Makes a state to which the log is applied once more; None: that cannot be done."""
    workers: RaftWorkers = field(default_factory=RaftWorkers)
    on_configuration: Callable[[Configuration], None] = lambda _: None
    """Called with the newest configuration of the log where it is another one than before, within
    a turn or as a message is taken; must not call back."""
