"""A node alone in its cluster, with its http port in the test's hands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from node.http.server import HttpServer
from node.server import Node
from tests.support.cluster import eventually, loopback_config, within


@asynccontextmanager
async def alone(folder: Path) -> AsyncIterator[tuple[Node, HttpServer]]:
    """A node that leads, and its http port; it is stopped in the end."""
    ports: list[HttpServer] = []

    def made(node: Node) -> HttpServer:
        ports.append(HttpServer(node))
        return ports[0]

    node = Node(loopback_config(folder, 1), "n1", http=made)
    await node.start()
    try:
        await eventually(lambda: node.leads)
        yield node, ports[0]
    finally:
        await within(node.stop())
