"""The ports of a node on the simulated network: only the listening sockets are others.

Owns both adapters. Must not know which machine a node runs on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from node.peers.handshake import ListenerSide
from node.peers.transport import PeerLink
from node.raft import RaftConfig, TcpTransport


class PeerPort(TcpTransport):
    """The peer port."""

    async def start(self) -> None:
        """Listen and dial as the real one does."""
        loop = asyncio.get_running_loop()
        self._port = await loop.create_server(self._accepted, *self._config.bind)
        for name, address in self._config.peers.items():
            if name < self._config.name:
                self._tasks.append(loop.create_task(self._dial(name, address)))

    def _accepted(self) -> PeerLink:
        side = ListenerSide(self._identity, self._entropy, self._dialing_members)
        return PeerLink(self, side)

    async def close(self) -> None:
        """End in order."""
        await super().close()
        self._port.close()


def peer_port(entropy: Any, config: RaftConfig, rng: random.Random) -> PeerPort:
    """Make the peer port of a node that has its secrets from `entropy`."""
    return PeerPort(config, rng=rng, entropy=entropy)


class ClientPort:
    """The client port."""

    def __init__(self, _context: object, make: Callable[[], asyncio.Protocol]) -> None:
        self._make = make
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen as the real one does."""
        self._server = await asyncio.get_running_loop().create_server(self._make, host, port)

    def close(self) -> None:
        """Stop accepting connections."""
        if self._server is not None:
            self._server.close()
