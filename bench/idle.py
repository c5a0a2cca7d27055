"""Many connections that do nothing: what a client of the protocol costs that only stays.

Owns opening them and answering pings. Frames only: ten thousand whole clients would measure the
client. Every session has a data and a control connection, as real ones have.
"""

from __future__ import annotations

import asyncio
import os
import resource

from bench.loopback import ClusterFailed
from fifo.wire import VERSION_MAX, VERSION_MIN, BadMessage, Opening, encode
from fifo.wire.messages import ROLE_CONTROL, ROLE_DATA, Hello, Ping, Pong, Welcome

AT_ONCE = 50
"""Opened at the same time: below the backlog of a node's port."""

HEARTBEAT_MS = 30_000
OPENING_S = 30.0


class Idler(asyncio.Protocol):
    """A connection; `opened` ends with its welcome."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._opening = Opening()
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.writelines(encode(self._hello, 0, ()))

    def data_received(self, data: bytes) -> None:
        for frame in self._opening.receive_data(data):
            if isinstance(frame, BadMessage):
                continue
            if isinstance(frame.message, Ping) and self._transport is not None:
                self._transport.writelines(encode(Pong(), frame.correlation, ()))
            elif not self.opened.done():
                if isinstance(frame.message, Welcome):
                    self.opened.set_result(None)
                else:
                    self.opened.set_exception(ClusterFailed(f"no welcome: {frame.message}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ClusterFailed(f"closed while it opened: {exc}"))

    def close(self) -> None:
        """Cut it."""
        if self._transport is not None:
            self._transport.abort()


def descriptors(connections: int) -> int:
    """Raise the soft limit for so many connections; how many fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 200
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections if soft == resource.RLIM_INFINITY else min(connections, soft - 200)


async def open_idle(address: str, connections: int) -> list[Idler]:
    """So many connections to the leader, two for each session."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()

    async def session() -> list[Idler]:
        ids = os.urandom(16), os.urandom(16)
        found = []
        for role in (ROLE_DATA, ROLE_CONTROL):
            hello = Hello(VERSION_MIN, VERSION_MAX, role, *ids, heartbeat_ms=HEARTBEAT_MS)
            _, one = await loop.create_connection(
                lambda hello=hello: Idler(hello),  # type: ignore[misc]  # a default binds it
                host,
                int(port),
            )
            async with asyncio.timeout(OPENING_S):
                await one.opened
            found.append(one)
        return found

    opened: list[Idler] = []
    while len(opened) < connections:
        wanted = min(AT_ONCE, (connections - len(opened) + 1) // 2)
        for pair in await asyncio.gather(*(session() for _ in range(wanted))):
            opened += pair
    return opened
