"""A real cluster for many tests: three nodes on a thread and an event loop of their own.

Owns its start on the first use, and its state when a test begins: every node runs, one leads, and
no queue, named producer or session of an earlier test is left. A cluster that cannot be brought to
that is replaced. A test may crash and stop nodes; it runs on its own loop, and what it asks of a
node is done on the nodes' loop. Must not know any test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import fifo
from fifo.loop import new_loop
from node.config import ClusterConfig
from tests.support import raft_probe
from tests.support.cluster import (
    LOOK_SECONDS,
    LocalCluster,
    eventually,
    loopback_config,
    passed,
)

T = TypeVar("T")

READY_SECONDS = 30.0
"""Longest wait for a cluster that is whole and empty: many times an election and a restart."""

GONE_SECONDS = 0.5
"""Longest wait for the sessions of the test before: one that was not closed stays until its locks
end, and a new cluster is there before that."""


class SharedCluster(LocalCluster):
    """Nodes that run on a thread; its methods may be called from any event loop."""

    def __init__(self, config: ClusterConfig, admin_url: str | None = None) -> None:
        """`admin_url`: what to connect with where users or TLS ask for more than addresses."""
        super().__init__(config)
        self._admin_url = admin_url or config.url
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shared-nodes")
        self._thread.start()

    async def start(self, *names: str) -> None:
        """Start these nodes, or all."""
        await self.there(super().start(*names))

    async def stop(self, *names: str) -> None:
        """Stop these nodes in order, or all that run."""
        await self.there(super().stop(*names))

    async def crash(self, name: str) -> None:
        """Cut a node off without a word."""
        await self.there(super().crash(name))

    def make_ready(self) -> None:
        """Block until the cluster is whole and empty. Raises TimeoutError or AssertionError where
        that does not come about."""
        asyncio.run_coroutine_threadsafe(self._make_ready(), self._loop).result(READY_SECONDS)

    def close(self) -> None:
        """Stop the nodes and the thread."""
        try:
            asyncio.run_coroutine_threadsafe(super().stop(), self._loop).result(READY_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(READY_SECONDS)
            self._loop.close()

    async def there(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something on the nodes' loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _make_ready(self) -> None:
        missing = [node.name for node in self.config.nodes if node.name not in self.nodes]
        if missing:
            await self.start(*missing)
        await self.leader()
        await eventually(lambda: all(node.unready() is None for node in self.nodes.values()))
        await eventually(self._all_connected)
        async with fifo.connect(self._admin_url) as client:
            await _empty(client)

    def _all_connected(self) -> bool:
        """Whether each node has each other one: whichever leads next can reach all."""
        peers = [raft_probe.running_raft(node).status().peers for node in self.nodes.values()]
        return all(peer.connected for one in peers for peer in one)


async def _empty(client: fifo.Client) -> None:
    """Delete what tests leave: named producers, queues, sessions."""
    queues = await client.queues()
    # A dead-letter queue goes after those that send to it.
    for queue in sorted(queues, key=lambda queue: queue.spec.get("dead_letter") is None):
        for producer in await client.producers(queue.name):
            await client.forget_producer(producer.name)
        await client.delete(queue.name)
    async with asyncio.timeout(GONE_SECONDS):
        while (await client.status()).sessions > 1:
            await passed(LOOK_SECONDS)


class SharedClusters:
    """The shared cluster of a test run, started anew where a test has left it unusable."""

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self._cluster: SharedCluster | None = None

    def ready(self) -> SharedCluster:
        """Return the cluster, whole and empty."""
        if self._cluster is not None:
            try:
                self._cluster.make_ready()
            except (OSError, AssertionError, fifo.FifoError):  # a timeout is an OSError
                self.close()
        if self._cluster is None:
            self._cluster = SharedCluster(loopback_config(self._new_folder(), 3))
            self._cluster.make_ready()
        return self._cluster

    def close(self) -> None:
        """Stop it, if it was ever started."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
