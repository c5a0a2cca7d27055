"""A cluster for tests: the server's own code in the process, in virtual time, without sockets.

`async with fifo.testing.cluster(nodes=3) as cluster:` and `fifo.connect(cluster.url)`; see
docs/testing.md. Owns the face of it. The engine is `node.testing`, which comes with the server's
package: it is imported when a cluster is made, and at no other time.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fifo.client import (
    BaseClient,
    Environment,
    FifoError,
    InvalidArgument,
    QueueView,
    StoredMessage,
)
from fifo.client.connection import in_process
from fifo.client.connection.threads import SameLoop
from fifo.client.consuming.delivery import Delivery
from fifo.client.views import view

if TYPE_CHECKING:
    from node.testing.cluster import Cluster as Engine

__all__ = ["Cluster", "DeadMessage", "Queue", "UnsuitableLoop", "cluster"]

MISSING = "fifo.testing needs the server's package: pip install 'fifo-quorum[testing]'"


class UnsuitableLoop(FifoError):
    """The running event loop cannot have a cluster: its clock cannot be virtual, or is already."""


class DeadMessage(StoredMessage):
    """A dead letter, with its reason at hand."""

    __slots__ = ()

    @property
    def reason(self) -> str:
        """Why it is dead: terminated, max_deliveries, expired or overflow."""
        return "" if self.dead_letter is None else self.dead_letter.reason


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it is now: its figures, its ready messages, and what died of it."""

    view: QueueView
    messages: tuple[StoredMessage, ...]
    dead: tuple[DeadMessage, ...]
    """Messages of it that are ready in its dead-letter queue."""


class Cluster:
    """A cluster that runs on the event loop of the test."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._guests: dict[Environment, str] = {}
        self.loop = engine.loop
        self.url = engine.config.url

    def environment(self) -> Environment:
        """Make the environment of one client more: `fifo.connect` asks for it."""
        engine, guest = self._engine, self._engine.guest()
        chance = engine.chance(guest.name)

        async def dial(factory: Any, host: str, port: int, _context: object) -> None:
            await engine.dial(guest, factory, host, port)

        made = Environment(
            monotonic=guest.clock,
            wall=guest.wall,
            chance=chance.random,
            entropy=chance.randbytes,
            own_loop=SameLoop,
            dial=dial,
        )
        self._guests[made] = guest.host
        return made

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return tuple(self._engine.hosts)

    @property
    def leader(self) -> str | None:
        """The name of the node that leads; None while there is none."""
        return self._engine.leader()

    @property
    def now(self) -> float:
        """Seconds that have passed in this cluster."""
        return self._engine.world.now

    async def advance(
        self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0
    ) -> None:
        """Pass time: locks expire, backoffs end, schedules fire, all in their order.

        What is due at the end of it has happened when this returns, a moment (0.3 s) later.
        """
        total = seconds + 60 * minutes + 3600 * hours
        if total < 0:
            raise InvalidArgument(f"advance: time does not go back by {-total:g} s")
        await self._engine.advance(total)

    def kill_leader(self) -> str:
        """End the leader as SIGKILL does; its name, for `start`."""
        name = self._engine.leader()
        if name is None:
            raise InvalidArgument("kill_leader: there is no leader now; advance() until there is")
        self.kill(name)
        return name

    def kill(self, node: str) -> None:
        """End a node as SIGKILL does: what it had written stays on its disk."""
        self._host(node).kill()

    def start(self, node: str) -> None:
        """Start a node again; nothing happens where it runs."""
        self._host(node).start()

    def cut(self, client: BaseClient[Any] | str) -> None:
        """Cut a client, or a node by its name, off from all others until `heal`."""
        if isinstance(client, str):
            self._engine.cut(self._host(client).at)
            return
        machine = self._guests.get(client.environment)
        if machine is None:
            raise InvalidArgument(f"cut: {client!r} is not a client of this cluster")
        self._engine.cut(machine)

    def cut_clients(self) -> None:
        """Cut every client off from the nodes until `heal`."""
        for machine in self._guests.values():
            self._engine.cut(machine)

    def heal(self) -> None:
        """End all cuts: what was on its way arrives."""
        self._engine.network.heal()

    def queue(self, name: str) -> Queue:
        """A queue as the leader, or else the node that knows most, sees it now."""
        found = self._engine.view(name)
        if found is None:
            raise InvalidArgument(f"queue: {name!r} does not exist in this cluster")
        shown = view(QueueView, found[0])
        target = shown.spec.get("dead_letter")
        letters = self._engine.view(target) if target else None
        dead = [] if letters is None else _messages(DeadMessage, letters)
        return Queue(
            shown,
            tuple(_messages(StoredMessage, found)),
            tuple(one for one in dead if one.dead_letter and one.dead_letter.source == name),
        )

    def _host(self, node: str) -> Any:
        host = self._engine.hosts.get(node)
        if host is None:
            known = ", ".join(self._engine.hosts)
            raise InvalidArgument(f"no node is called {node!r}; there are: {known}")
        return host


def _messages(kind: Any, found: tuple[Any, Any, bytes]) -> list[Any]:
    _, answer, raw = found
    delivery = Delivery(answer, memoryview(raw), 0.0, 0.0)
    return [kind(delivery, index) for index in range(delivery.count)]


class _Opening:
    """The result of `cluster`, for `async with`."""

    def __init__(self, nodes: int, seed: int) -> None:
        self._nodes = nodes
        self._seed = seed
        self._engine: Engine | None = None

    async def __aenter__(self) -> Cluster:
        try:
            from node.testing.cluster import Cluster as Engine
            from node.testing.conductor import LoopRefused
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "node":
                raise
            raise ModuleNotFoundError(MISSING, name="node") from None
        try:
            engine = self._engine = Engine(self._nodes, self._seed, in_process.SUFFIX)
        except LoopRefused as error:
            raise UnsuitableLoop(str(error)) from None
        made = Cluster(engine)
        try:
            await engine.start()
        except BaseException:
            engine.close()
            raise
        in_process.enter(engine.name, made)
        return made

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._engine is not None, "entered before"
        in_process.leave(self._engine.name)
        self._engine.close()


def cluster(nodes: int = 1, *, seed: int = 0) -> _Opening:
    """Make a cluster of `nodes` on the running event loop: `async with cluster() as found`.

    `seed` decides elections and jitter: the same test runs the same way each time.
    """
    return _Opening(nodes, seed)
