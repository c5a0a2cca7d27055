"""A real cluster in one process and one loop: real journals, real sockets on free loopback ports.

Owns starting and stopping nodes of `node.broker`, finding who leads, and waiting for a condition
with a deadline. Nothing here is faked but the ports; several processes are `node.cli`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bench.loopback import free_ports
from node.broker.leadership import Leadership
from node.config import Address, ClusterConfig, LimitSettings, cluster_config
from node.http.server import HttpServer
from node.server import Node
from tests.support.skipping import SkippingLoop

T = TypeVar("T")

DEADLINE_SECONDS = 10.0
"""Longest wait for anything: far above an election on a busy machine."""

LOOK_SECONDS = 0.01
"""Between two looks at a condition."""


async def passed(seconds: float) -> None:
    """Wait for a time: only where no event could be waited for instead."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


async def eventually(look: Callable[[], T | None], *, within: float = DEADLINE_SECONDS) -> T:
    """The first true thing that `look` returns; fails the test when there is none in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        found = look()
        if found:
            return found
        assert loop.time() < deadline, f"not true within {within} s"
        await passed(LOOK_SECONDS)


def leadership_of(node: Node) -> Leadership:
    """The term that this node leads."""
    found = node.broker.leadership
    assert found is not None, "this node does not lead"
    return found


def loopback_config(folder: Path, count: int, limits: LimitSettings | None = None) -> ClusterConfig:
    """A cluster of `count` nodes under `folder`, on free ports."""
    config = cluster_config(count, 7100, folder)
    ports = iter(free_ports(3 * count))
    nodes = tuple(
        replace(
            node,
            client=Address("127.0.0.1", next(ports)),
            peer=Address("127.0.0.1", next(ports)),
            http=Address("127.0.0.1", next(ports)),
        )
        for node in config.nodes
    )
    return replace(config, nodes=nodes, limits=limits or config.limits)


class LocalCluster:
    """Nodes by name; those that run are in `nodes`."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self.nodes: dict[str, Node] = {}

    @property
    def url(self) -> str:
        """The addresses of all nodes, for a client."""
        return self.config.url

    async def start(self, *names: str) -> None:
        """Start these nodes, or all."""
        loop = asyncio.get_running_loop()
        environment = loop.environment() if isinstance(loop, SkippingLoop) else None
        for name in names or [node.name for node in self.config.nodes]:
            node = Node(self.config, name, environment, http=HttpServer)
            await node.start()
            self.nodes[name] = node

    async def stop(self, *names: str) -> None:
        """Stop these nodes in order, or all that run."""
        for name in names or list(self.nodes):
            await self.nodes.pop(name).stop()

    async def crash(self, name: str) -> None:
        """Cut a node off without a word: connections, then the journal's lock."""
        await self.nodes.pop(name).crash()

    async def crash_leader(self) -> None:
        """Cut off the node that leads."""
        await self.crash((await self.leader()).me.name)

    def leading(self) -> Node | None:
        """The node that leads and has applied its own `lead`."""
        led = [node for node in self.nodes.values() if node.leads]
        return led[0] if len(led) == 1 else None

    async def leader(self) -> Node:
        """The same, waited for."""
        return await eventually(self.leading)

    def followers(self) -> list[Node]:
        """Nodes that run and do not lead."""
        return [node for node in self.nodes.values() if not node.leads]


@asynccontextmanager
async def running(
    folder: Path, count: int = 3, limits: LimitSettings | None = None, **settings: Any
) -> AsyncIterator[LocalCluster]:
    """A cluster that runs, and is stopped in the end. `settings`: other fields of its config."""
    cluster = LocalCluster(replace(loopback_config(folder, count, limits), **settings))
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


async def within(what: Awaitable[T], seconds: float = DEADLINE_SECONDS) -> T:
    """The result of an awaitable, or a failed test."""
    return await asyncio.wait_for(what, seconds)
