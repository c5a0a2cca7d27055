"""The network of a simulated cluster: connections between every two nodes, with delay and cuts.

Owns frames on their way and the life of connections; who wants one is by what each node follows. It
delivers in order per connection and loses only by breaking one, as TCP does. A test may hold, drop,
copy and deliver single frames by hand (`Network.intercept`, `deliver`), and `late` makes frames of
ended connections arrive after all, twice now and then. Must not know what a frame says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from node.peers.frames import LENGTHS, decode, encode
from node.peers.message import PeerNode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from node.peers.transport import Receiver
    from tests.support.raft_world import SimNode, World

CONNECTION_SECONDS = 4.0
RECONNECT_SECONDS = 0.25
SMALL_BYTES = 150
"""Votes, acknowledgements, heartbeats and requests; copies of these do more than of entries."""

LATE_SECONDS = (0.1, 2.0, 2.0, 8.0)
"""A copy of a frame arrives at most so much later: in the same election, or leaderships later."""


@dataclass(slots=True)
class Frame:
    """A message on its way. `epoch` names the connection it was sent on."""

    source: str
    target: str
    epoch: int
    content: bytes
    header_end: int

    def message(self) -> dict[str, Any]:
        """The message, decoded anew each time, as from a socket."""
        view = memoryview(self.content)
        return decode(view[LENGTHS.size : self.header_end], view[self.header_end :])


class SimTransport:
    """The network as one node's process sees it."""

    def __init__(self, network: Network, owner: SimNode) -> None:
        self._receiver: Receiver
        self._network = network
        self._owner = owner
        self._name = owner.name
        self.epochs: dict[str, int] = {}
        self.followed: Mapping[str, tuple[str, int]] = owner.config.peers

    def follow(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Connections to others end a little later, unless these want them."""
        self.followed = dict(addresses)
        self._network.look_at_links(self._name)

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def start(self) -> None:
        """Connections are the world's."""

    async def close(self) -> None:
        """Connections are the world's."""

    def send(self, node: PeerNode, message: dict[str, Any]) -> bool:
        epoch = self.epochs.get(node.id)
        if epoch is None:
            return False
        buffers = encode(message)
        header_end = len(buffers[0])
        content = b"".join(buffers)
        self._network.send(Frame(self._name, node.id, epoch, content, header_end))
        return True

    def connected(self, peer: str, epoch: int) -> None:
        self.disconnected(peer, replaced=True)
        self._owner.touched = True
        self.epochs[peer] = epoch
        self._receiver.connected(PeerNode(peer))

    def disconnected(self, peer: str, *, replaced: bool = False) -> None:
        if self.epochs.pop(peer, None) is not None:
            self._owner.touched = True
            self._receiver.disconnected(PeerNode(peer), replaced=replaced)

    def tells(self, node: PeerNode) -> bool:
        return node.id not in self._network.silent

    def received(self, frame: Frame) -> None:
        self._receiver.receive(PeerNode(frame.source), frame.message())


class Network:
    """Connections between every two nodes, with delay, cuts and breaks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._epoch = 0
        self._free_at: dict[tuple[str, str], float] = {}
        self._connecting: set[frozenset[str]] = set()
        self.cut: set[tuple[str, str]] = set()
        self._stalled: dict[tuple[str, str], list[Frame]] = {}
        self.held: list[Frame] = []
        self.intercept: Callable[[Frame], str] | None = None
        self.late = False
        self.silent: set[str] = set()
        """Members that say nothing of their journals, as 0.1.0."""
        self.delivered = 0
        self.late_delivered = 0

    # --- frames ---

    def send(self, frame: Frame) -> None:
        """Take one frame from a node. `intercept` may say hold or drop, anything else passes."""
        fate = self.intercept(frame) if self.intercept is not None else "pass"
        if fate == "hold":
            self.held.append(frame)
        elif fate != "drop":
            self._pass(frame)

    def _pass(self, frame: Frame) -> None:
        way = (frame.source, frame.target)
        if way in self.cut:
            self._stalled.setdefault(way, []).append(frame)
            return
        world = self._world
        at = max(world.now + world.rng.uniform(0.0005, 0.004), self._free_at.get(way, 0.0))
        self._free_at[way] = at
        world.at(at, lambda: self._arrive(frame))
        if self.late and world.rng.random() < (0.15 if len(frame.content) < SMALL_BYTES else 0.05):
            again = world.now + world.rng.uniform(0.005, world.rng.choice(LATE_SECONDS))
            world.at(again, lambda: self.deliver(frame))

    def _arrive(self, frame: Frame) -> None:
        node = self._world.nodes[frame.target]
        if node.transport is not None and node.transport.epochs.get(frame.source) == frame.epoch:
            node.receive(frame)
        elif self.late and self._world.rng.random() < 0.5:
            self.deliver(frame)

    def deliver(self, frame: Frame) -> None:
        """Hand a frame to its target now, whatever became of its connection."""
        self.late_delivered += 1
        self._world.nodes[frame.target].receive(frame)

    # --- connections ---

    def connect_all(self) -> None:
        """Dial wherever two live nodes have no connection and no cut between them."""
        names = sorted(self._world.nodes)
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                self.reconnect(first, second, 0.0)

    def wanted(self, first: str, second: str) -> bool:
        """Whether one of the two dials the other."""
        ends = ((first, second), (second, first))
        transports = ((self._world.nodes[name].transport, other) for name, other in ends)
        return any(one is not None and other in one.followed for one, other in transports)

    def look_at_links(self, name: str) -> None:
        """A node follows others than before: dial them, and let go of the rest."""
        for other in self._world.nodes:
            if other == name:
                continue
            if self.wanted(name, other):
                self.reconnect(name, other, 0.01)
            elif self.connected(name, other):
                self._world.after(0.05, partial(self._let_go, name, other))

    def _let_go(self, first: str, second: str) -> None:
        if self.connected(first, second) and not self.wanted(first, second):
            self.break_link(first, second)

    def reconnect(self, first: str, second: str, delay: float = RECONNECT_SECONDS) -> None:
        """Dial after `delay`, and again until it works."""
        pair = frozenset((first, second))
        if pair in self._connecting:
            return
        self._connecting.add(pair)
        self._world.after(delay, lambda: self._connect(first, second))

    def _connect(self, first: str, second: str) -> None:
        self._connecting.discard(frozenset((first, second)))
        ends = [self._world.nodes[first], self._world.nodes[second]]
        if not all(end.alive for end in ends):
            return  # A start dials anew.
        if not self.wanted(first, second):
            return
        if self.connected(first, second):
            return
        if self.is_cut(first, second) or any(end.paused for end in ends):
            self.reconnect(first, second)
            return
        self._epoch += 1
        for end, other in (ends, reversed(ends)):
            assert end.transport is not None
            end.transport.connected(other.name, self._epoch)

    def connected(self, first: str, second: str) -> bool:
        """Whether both ends hold the same connection."""
        one = self._world.nodes[first].transport
        two = self._world.nodes[second].transport
        if one is None or two is None or second not in one.epochs:
            return False
        return one.epochs[second] == two.epochs.get(first)

    def is_cut(self, first: str, second: str) -> bool:
        """Whether anything is lost between the two."""
        return (first, second) in self.cut or (second, first) in self.cut

    def break_link(self, first: str, second: str) -> None:
        """Both ends see the connection end; what was on its way is gone. They dial again."""
        for name, other in ((first, second), (second, first)):
            transport = self._world.nodes[name].transport
            if transport is not None:
                transport.disconnected(other)
            self._stalled.pop((name, other), None)
        self.reconnect(first, second)

    def replace_link(self, first: str, second: str) -> None:
        """A newer connection of the two is proven while the older one lasts."""
        self._epoch += 1
        for name, other in ((first, second), (second, first)):
            transport = self._world.nodes[name].transport
            if transport is not None:
                transport.connected(other, self._epoch)

    def abandon(self, name: str) -> None:
        """All others see their connections to one node end, and it sees nothing of that: what it
        sends, and their dials, are lost until the cuts end."""
        self.isolate(name)
        for other, node in self._world.nodes.items():
            if other != name and node.transport is not None:
                node.transport.disconnected(name)

    def stop(self, source: str, target: str) -> None:
        """Cut one direction: frames stall; without an end the connection breaks."""
        self.cut.add((source, target))
        self._world.after(CONNECTION_SECONDS, lambda: self._give_up(source, target))

    def _give_up(self, source: str, target: str) -> None:
        if (source, target) in self.cut:
            self.break_link(source, target)

    def isolate(self, name: str) -> None:
        """Cut every direction to and from one node."""
        for other in self._world.nodes:
            if other != name:
                self.stop(name, other)
                self.stop(other, name)

    def heal(self) -> None:
        """End every cut: what stalled arrives, on connections that still are."""
        self.cut.clear()
        stalled, self._stalled = self._stalled, {}
        for frames in stalled.values():
            for frame in frames:
                self._pass(frame)
        self.connect_all()
