"""A cluster for tests: the server's own code in the process, in virtual time, without sockets.

`async with fifo.testing.cluster(nodes=3) as cluster:` and `fifo.connect(cluster.url)`, or both with
`with` and `fifo.blocking`; see docs/testing.md. Owns the face of it. The engine is `node.testing`,
which comes with the server's package: it is imported when a cluster is made, and at no other time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from fifo.client import (
    ClientClosed,
    Environment,
    FifoError,
    InvalidArgument,
    QueueView,
    StoredMessage,
    checks,
)
from fifo.client.connection import in_process
from fifo.client.connection.threads import CallerThread, SameLoop
from fifo.client.consuming.delivery import Delivery
from fifo.client.views import view

if TYPE_CHECKING:
    from node.testing.callers import Callers
    from node.testing.cluster import Cluster as Engine

__all__ = ["BlockingCluster", "Cluster", "DeadMessage", "Queue", "UnsuitableLoop", "cluster"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_DISMISS_SECONDS = 5.0
"""Longest wait for the end of a Celery connection that is open when its cluster closes: as long as
Celery itself waits for the last settlements."""

_LOOK_SECONDS = 0.01
"""Interval of looks for it."""

_NODES_MAX = 9
"""Nodes of a cluster: as many as the server's own configuration allows."""

MISSING = "fifo.testing needs the server's package: pip install 'fifo-quorum[testing]'"


class UnsuitableLoop(FifoError):
    """The running event loop cannot have a cluster: its clock cannot be virtual, or is already."""


class AnyClient(Protocol):
    """A client of either kind."""

    @property
    def environment(self) -> Environment:
        """The environment that it was made with."""


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
        self._stops: list[Callable[[], None]] = []
        self.closed = False
        """Whether its block has ended: its nodes are gone, its queues are as they were."""
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
            crossing=lambda: engine.conductor.callers,
            dial=dial,
        )
        self._guests[made] = guest.host
        return made

    @contextlib.contextmanager
    def paced(self, stop: Callable[[], None]) -> Iterator[None]:
        """Pass time as it does for people, but for `advance`: for the threads of Celery.

        `stop` is called where the cluster closes before.
        """
        conductor = self._engine.conductor
        conductor.paced += 1
        self._stops.append(stop)
        try:
            yield
        finally:
            self._stops.remove(stop)
            conductor.paced -= 1

    async def dismiss(self) -> None:
        """End the programs that are paced, while there are nodes to say goodbye to."""
        for stop in self._stops:
            stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISMISS_SECONDS):
                while self._stops:  # noqa: ASYNC110 - each on a thread of its own
                    await asyncio.sleep(_LOOK_SECONDS)

    async def reach(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> None:
        """Connect a client that runs on another loop, by its own clock: uvloop's, for example."""
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
        try:
            work = self._engine.relay(far, host, port)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))
            await asyncio.get_running_loop().create_connection(factory, sock=near)
        except BaseException:
            near.close()
            raise

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

        What is due at the end of it has happened when this returns, a moment (0.3 s) later. Raises
        InvalidArgument for what is no time, ClientClosed where the cluster is closed.
        """
        total = _total({"seconds": seconds, "minutes": minutes, "hours": hours})
        if total < 0:
            raise InvalidArgument(f"advance: time does not go back by {-total:g} s")
        if self.closed:
            raise ClientClosed("advance: the cluster is closed, and time is that of people again")
        await self._engine.advance(total)

    def kill_leader(self) -> str:
        """End the leader as SIGKILL does; its name, for `start`.

        Raises InvalidArgument where no node leads now.
        """
        name = self._engine.leader()
        if name is None:
            raise InvalidArgument("kill_leader: there is no leader now; advance() until there is")
        self.kill(name)
        return name

    def kill(self, node: str) -> None:
        """End a node as SIGKILL does: what it had written stays on its disk.

        Nothing happens where it does not run. Raises InvalidArgument for a name that no node has.
        """
        self._host(node).kill()

    def start(self, node: str) -> None:
        """Start a node again; nothing happens where it runs.

        Raises InvalidArgument for a name that no node has.
        """
        self._host(node).start()

    def cut(self, client: AnyClient | str) -> None:
        """Cut a client, or a node by its name, off from all others until `heal`.

        Connections hang, as with a cable that is pulled. Raises InvalidArgument for another client.
        """
        if isinstance(client, str):
            self._engine.cut(self._host(client).at)
            return
        environment = getattr(client, "environment", None)
        machine = self._guests.get(environment) if isinstance(environment, Environment) else None
        if machine is None:
            raise InvalidArgument(
                f"cut: {client!r:.80} is not a client of this cluster, nor the name of a node"
            )
        self._engine.cut(machine)

    def cut_clients(self) -> None:
        """Cut every client off from the nodes until `heal`."""
        for machine in (*self._guests.values(), self._engine.outside.host):
            self._engine.cut(machine)

    def heal(self) -> None:
        """End all cuts: what was on its way arrives."""
        self._engine.network.heal()

    def queue(self, name: str) -> Queue:
        """A queue as the leader, or else the node that knows most, sees it now.

        Up to 1,000 of its messages, and of its dead letters. Raises InvalidArgument for a queue
        that does not exist.
        """
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


def _total(parts: dict[str, float]) -> float:
    """Seconds in all. Raises InvalidArgument for what is no number."""
    for name, value in parts.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidArgument(f"advance: {name} must be a number, not {value!r:.40}")
        if not math.isfinite(value):
            raise InvalidArgument(f"advance: {name} must be finite, not {value}")
    return parts["seconds"] + 60 * parts["minutes"] + 3600 * parts["hours"]


def _over_there(
    method: Callable[Concatenate[Cluster, _P], _T],
) -> Callable[Concatenate[BlockingCluster, _P], _T]:
    """Declare the form of a method for threads: same parameters, types and docstring."""

    @functools.wraps(method)
    def call(self: BlockingCluster, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        async def work(cluster: Cluster) -> _T:
            return method(cluster, *args, **kwargs)

        return self.run(work)

    return call


class BlockingCluster:
    """A cluster for tests without an event loop: `Cluster` without `await`, for any thread.

    Its loop is a thread's. Time passes while a thread waits for it: in a call of a blocking client,
    or in one of these.
    """

    def __init__(self, cluster: Cluster, callers: Callers) -> None:
        self._cluster = cluster
        self._callers = callers
        self.url = cluster.url
        self.nodes = cluster.nodes

    def run(self, work: Callable[[Cluster], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine function on the loop of the cluster: for what is only asynchronous.

        It gets the `Cluster`; what it returns or raises comes back. Raises ClientClosed where the
        cluster is closed.
        """
        return self._callers.run(work(self._cluster))

    @property
    def leader(self) -> str | None:
        """The name of the node that leads; None while there is none."""
        return self._cluster.leader

    @property
    def now(self) -> float:
        """Seconds that have passed in this cluster."""
        return self._cluster.now

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Pass time: see `Cluster.advance`."""
        self.run(lambda cluster: cluster.advance(seconds, minutes=minutes, hours=hours))

    kill_leader = _over_there(Cluster.kill_leader)
    kill = _over_there(Cluster.kill)
    start = _over_there(Cluster.start)
    cut = _over_there(Cluster.cut)
    cut_clients = _over_there(Cluster.cut_clients)
    heal = _over_there(Cluster.heal)
    queue = _over_there(Cluster.queue)


def _over() -> ClientClosed:
    return ClientClosed(
        "the cluster of this process is closed, or this is the thread of its event loop, which"
        " would wait for itself"
    )


class _Opening:
    """The result of `cluster`, for `async with` or `with`."""

    def __init__(self, nodes: int, seed: int) -> None:
        self._nodes = nodes
        self._seed = seed
        self._engine: Engine | None = None
        self._made: Cluster | None = None
        self._thread: CallerThread | None = None

    def __enter__(self) -> BlockingCluster:
        self._thread = CallerThread(asyncio.SelectorEventLoop)
        try:
            cluster = self._thread.run(self.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        assert self._engine is not None, "it was made"
        conductor = self._engine.conductor
        conductor.for_threads = True
        return BlockingCluster(cluster, conductor.callers)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._thread is not None, "entered before"
        assert self._engine is not None, "entered before"
        self._engine.conductor.for_threads = False  # what ends it is no thread's call
        try:
            self._thread.run(self.__aexit__(kind, error, trace))
        finally:
            self._thread.stop()

    async def __aenter__(self) -> Cluster:
        try:
            from node.testing.cluster import Cluster as Engine
            from node.testing.conductor import LoopRefused
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "node":
                raise
            raise ModuleNotFoundError(MISSING, name="node") from None
        try:
            engine = self._engine = Engine(self._nodes, self._seed, in_process.SUFFIX, _over)
        except LoopRefused as error:
            raise UnsuitableLoop(str(error)) from None
        made = Cluster(engine)
        try:
            await engine.start()
        except BaseException:
            engine.close()
            raise
        in_process.enter(engine.name, made)
        self._made = made
        return made

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._engine is not None, "entered before"
        assert self._made is not None, "it was made with the engine"
        await self._made.dismiss()
        self._made.closed = True
        in_process.leave(self._engine.name)
        self._engine.close()
        await asyncio.sleep(0)  # sockets close in the next turn


def cluster(nodes: int = 1, *, seed: int = 0) -> _Opening:
    """Make a cluster of `nodes` on the running event loop: `async with cluster() as found`.

    `with cluster() as found` makes one for a test without an event loop, on a thread.

    `seed` decides elections and jitter: the same test runs the same way each time. Raises
    InvalidArgument at once; UnsuitableLoop, and ModuleNotFoundError without the server's package,
    when it is entered.
    """
    checks.integer(nodes, "nodes", 1, _NODES_MAX)
    return _Opening(nodes, seed)
