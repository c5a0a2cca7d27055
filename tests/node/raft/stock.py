"""PySyncObj as it ships, in one thread: a clock and a wire that tests move by hand.

Owns the little that the library needs to run without sockets; its handlers, journals and
serializer are its own. Must be imported by a process that has not imported `node.raft`, which
replaces what the library's module finds under these names.
"""

from __future__ import annotations

import copy
import logging
import sys
from typing import TYPE_CHECKING, Any

import pysyncobj
from pysyncobj import syncobj
from pysyncobj.node import Node
from pysyncobj.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Message = dict[str, Any]
Frame = tuple[str, str, Message]
"""Source, target, message."""

FAR = 1e9
TURN_SECONDS = 0.11
"""Each turn is longer than the period of the library's heartbeats."""

assert "node.raft" not in sys.modules, "this process has the library as we changed it"
logging.getLogger("pysyncobj").setLevel(logging.CRITICAL + 1)


class Clock:
    """The time as the library reads it."""

    now = 1000.0


syncobj.monotonicTime = lambda: Clock.now


class Wire(Transport):  # type: ignore[misc]  # the library has no types
    """Keeps what is sent until somebody carries it."""

    ready = True

    def __init__(self) -> None:
        super().__init__(None, None, None)
        self.sent: list[tuple[str, Message]] = []

    def tryGetReady(self) -> None:
        """There is nothing to get ready."""

    def addNode(self, node: Node) -> None:
        """Everybody is connected."""

    def dropNode(self, node: Node) -> None:
        """Everybody is connected."""

    def destroy(self) -> None:
        """Nothing is open."""

    def send(self, node: Node, message: Message) -> bool:
        self.sent.append((node.id, copy.deepcopy(message)))
        return True


class Stock(pysyncobj.SyncObj):  # type: ignore[misc]  # the library has no types
    """A list of what was put, the library's own way."""

    def __init__(self, name: str, others: Iterable[str], **options: Any) -> None:
        self.wire = Wire()
        conf = pysyncobj.SyncObjConf(autoTick=False, commandsWaitLeader=False, **options)
        nodes = [Node(other) for other in others]
        super().__init__(Node(name), nodes, conf, nodeClass=Node, transport=self.wire)
        self.applied: list[object] = []
        self.tries = 0
        self._SyncObj__raftElectionDeadline = FAR
        for node in nodes:
            self.wire._onNodeConnected(node)

    @pysyncobj.replicated  # type: ignore[untyped-decorator]  # the library has no types
    def put(self, value: object) -> None:
        """Apply a command."""
        self.tries += value == "poison"
        if value == "poison":
            raise KeyError(value)
        self.applied.append(value)

    def receive(self, source: str, message: Message) -> None:
        """A frame arrives."""
        self.wire._onMessageReceived(Node(source), copy.deepcopy(message))

    @property
    def log_end(self) -> int:
        """Index of the last entry."""
        return int(self._SyncObj__raftLog[-1][1])

    @property
    def commit_index(self) -> int:
        """Index of the last committed entry."""
        return int(self._SyncObj__raftCommitIndex)


class Answers(list[int]):
    """The fail reasons that a callback received; 0 is success."""

    def __call__(self, _: object, reason: int) -> None:
        self.append(reason)


class Group:
    """Nodes and what is on its way between them. `fate` says which frames are lost."""

    def __init__(self, names: str = "abc", **options: Any) -> None:
        self._names, self._options = names, options
        self.nodes: dict[str, Stock] = {}
        self.cut: set[str] = set()
        self.lost: Callable[[str, str, Message], bool] = lambda source, target, message: False
        self.carried: list[Frame] = []
        for name in names:
            self.start(name)

    def start(self, name: str) -> Stock:
        """A node's process, for the first time or anew."""
        others = [other for other in self._names if other != name]
        self.nodes[name] = Stock(name, others, **self._options)
        return self.nodes[name]

    def carry(self) -> None:
        """Deliver until nothing is on its way."""
        while frames := self.take():
            for source, target, message in frames:
                self.carried.append((source, target, message))
                self.nodes[target].receive(source, message)

    def take(self) -> list[Frame]:
        """Return the frames on their way now, without those that are lost."""
        frames = []
        for source, node in self.nodes.items():
            sent, node.wire.sent = node.wire.sent, []
            frames += [
                (source, target, message)
                for target, message in sent
                if not self.cut & {source, target} and not self.lost(source, target, message)
            ]
        return frames

    def turn(self, times: int = 4, seconds: float = TURN_SECONDS) -> None:
        """Advance the time, tick every node, carry the frames. No node stands automatically."""
        for _ in range(times):
            Clock.now += seconds
            for node in self.nodes.values():
                node._SyncObj__raftElectionDeadline = max(FAR, node._SyncObj__raftElectionDeadline)
                node.doTick(0)
            self.carry()

    def elect(self, name: str) -> Stock:
        """Make a node stand, and see that it wins."""
        node = self.nodes[name]
        node._SyncObj__raftElectionDeadline = 0
        node.doTick(0)
        self.carry()
        assert node._isLeader(), f"{name} was not elected"
        self.turn()
        return node

    def carried_between(self, source: str, target: str, kind: str) -> list[Message]:
        """Return the messages of one type that went one way so far."""
        return [
            message
            for start, end, message in self.carried
            if (start, end) == (source, target) and message["type"] == kind
        ]
