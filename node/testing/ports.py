"""The ports of a node on the simulated network: only the sockets are others.

Owns the adapters. Must not know which machine a node runs on.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any

from node.peers.dialing import Made
from node.peers.transport import PeerLink
from node.raft import RaftConfig, TcpTransport


class Dials:
    """Dials of the loop, which has no descriptors."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port

    async def connect(self, make: Callable[[], Made], tls: ssl.SSLContext | None) -> Made:
        """Connect through the loop."""
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(make, self._host, self._port, ssl=tls)
        return made

    async def keep_one(self, ended: asyncio.Future[None]) -> None:
        """Wait for the end of a connection."""
        await asyncio.shield(ended)

    def close(self) -> None:
        """Hold nothing."""


class PeerPort(TcpTransport):
    """The peer port."""

    async def start(self) -> None:
        """Listen and dial as the real one does."""
        loop = asyncio.get_running_loop()
        self._port = await loop.create_server(self._accepted, *self._config.bind)
        self._started = True
        self._dial_members()

    def _accepted(self) -> PeerLink:
        return PeerLink(self, self.listener_side())

    async def close(self) -> None:
        """End in order."""
        await super().close()
        self._port.close()


def peer_port(entropy: Any, config: RaftConfig, rng: random.Random) -> PeerPort:
    """Make the peer port of a node that has its secrets from `entropy`."""
    return PeerPort(config, rng=rng, entropy=entropy, dialing=Dials)


class ClientPort:
    """The client port."""

    def __init__(
        self, _context: object, make: Callable[[], asyncio.Protocol], _balancers: object = ()
    ) -> None:
        self._make = make
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen as the real one does."""
        self._server = await asyncio.get_running_loop().create_server(self._make, host, port)

    def close(self) -> None:
        """Stop accepting connections."""
        if self._server is not None:
            self._server.close()
