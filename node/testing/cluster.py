"""A cluster of real nodes in the process, on the event loop of a test.

Owns its machines and links, and the faults of both. Must not know clients: they are guests on
machines of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from node.broker import deliveries
from node.broker.views import overview
from node.config import Address, ClusterConfig, cluster_config
from node.server import Node
from node.testing import limits
from node.testing.conductor import Conductor, Guest
from node.testing.hosts import Host
from node.testing.network import Network
from node.testing.relay import Relay, relay

_numbers = itertools.count(1)

FIRST_PORT = 7100


class InProcess(Address):
    """An address that only programs of this process can reach."""

    __slots__ = ()

    @property
    def is_loopback(self) -> bool:
        """True: nothing that is sent there leaves the machine."""
        return True


class Cluster:
    """Nodes in virtual time. `name` is part of their hosts; `seed` decides elections."""

    def __init__(
        self, nodes: int, seed: int, suffix: str, over: Callable[[], BaseException]
    ) -> None:
        """On the running loop, whose clock is virtual from here to `close`. `over`: as it has."""
        self.name = f"cluster{next(_numbers)}"
        self.seed = seed
        self.config = _config(nodes, f".{self.name}{suffix}")
        self.conductor = Conductor(time.time(), over)
        self.world = self.conductor.world
        self.loop: asyncio.AbstractEventLoop = self.conductor.loop
        self.network = Network(self.world, self.chance("network"))
        self.network.capacity_bytes = limits.CAPACITY_BYTES
        self.network.latency_s = limits.LATENCY_SECONDS
        self.network.cutting = 0.0
        self._guests = itertools.count(1)
        self.outside = Guest(self.conductor, "outside")
        """The machine of all programs with clocks of their own."""
        self._relays: dict[Relay, None] = {}
        self.hosts = {
            node.name: Host(self.world, self.network, self.config, node.name, self.chance)
            for node in self.config.nodes
        }

    def chance(self, name: str) -> random.Random:
        """A source of randomness of one program's own."""
        return random.Random(f"{self.seed} {name}")

    async def start(self) -> None:
        """Start all nodes, and wait for their first leader."""
        for host in self.hosts.values():
            host.start()
        async with asyncio.timeout(limits.ELECTION_SECONDS):
            while self.leader() is None:  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(limits.ELECTION_LOOK_SECONDS)

    def close(self) -> None:
        """End everything, and give the loop its clock back. Raises what ended a node by mistake."""
        for host in self.hosts.values():
            host.kill()
        for end in list(self.network.ends.values()):
            if isinstance(end.program, Guest):
                end.abort()
        for one in self._relays:
            one.abort()
        self.conductor.release()
        failure = self.world.failure
        self.world.finish()
        if failure is not None:
            raise failure

    def leader(self) -> str | None:
        """The name of the node that leads; None while there is none."""
        leading = [host for host in self.hosts.values() if host.running and host.running.leads]
        return leading[0].name if leading else None

    async def advance(self, seconds: float) -> None:
        """Pass this time, and handle what is due by then."""
        self.conductor.advancing += 1
        try:
            await asyncio.sleep(seconds)
            await asyncio.sleep(limits.SETTLE_SECONDS)
        finally:
            self.conductor.advancing -= 1

    def guest(self) -> Guest:
        """A machine for a client."""
        return Guest(self.conductor, f"client{next(self._guests)}")

    async def relay(self, far: socket.socket, host: str, port: int) -> None:
        """Connect a program with a clock of its own, which has the other end of this socket."""
        self._relaying(1)
        try:
            made = await relay(self.network, self.outside, far, host, port)
        except BaseException:
            self._relaying(-1)
            raise
        self._relays[made] = None
        made.ended.add_done_callback(lambda _: self._relayed(made))

    def _relayed(self, relay: Relay) -> None:
        del self._relays[relay]
        self._relaying(-1)

    def _relaying(self, more: int) -> None:
        self.conductor.paced += more
        self.conductor.sockets += more

    async def dial(
        self, guest: Guest, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Any, Any]:
        """Connect a guest to a node."""
        return await self.network.dial(guest, factory, host, port)

    def cut(self, machine: str) -> None:
        """Cut a machine off from all others, both ways: its connections hang."""
        for other in self._machines():
            self.network.cut(machine, other)
            self.network.cut(other, machine)

    def _machines(self) -> list[str]:
        clients = {end.program.host for end in self.network.ends.values()}
        return [*(host.at for host in self.hosts.values()), *sorted(clients)]

    def view(self, queue: str) -> tuple[dict[str, Any], Any, bytes] | None:
        """Overview of a queue, and its ready messages as a peek answers them; None without it."""
        node = self._best()
        if node is None:
            return None
        host = node.broker.host
        found = overview(host.machine, node.broker.alarms, queue)
        if found is None:
            return None
        runs = host.machine.peek(queue, limits.PEEK_MESSAGES_MAX)
        answer, raw = deliveries.peeked(queue, runs, node.read_area)
        return found, answer, b"".join(map(bytes, raw))

    def _best(self) -> Node | None:
        """The node that knows most: the leader, or the one that has applied most."""
        nodes = [host.running for host in self.hosts.values() if host.running is not None]
        return max(nodes, key=_knows, default=None)


def _knows(node: Node) -> tuple[bool, int]:
    status = node.raft_status()
    return node.leads, 0 if status is None else status.applied_index


def _config(count: int, suffix: str) -> ClusterConfig:
    config = cluster_config(count, FIRST_PORT, Path("in-process"))
    nodes = tuple(
        replace(
            node,
            client=InProcess(node.name + suffix, FIRST_PORT + 1),
            peer=InProcess(node.name + suffix, FIRST_PORT + 2),
            http=InProcess(node.name + suffix, FIRST_PORT + 3),
        )
        for node in config.nodes
    )
    return replace(config, nodes=nodes, secret=b"in one process alone")
