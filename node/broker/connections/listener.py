"""The client port: plain, or with a TLS handshake before a connection is one.

Owns the port's sockets, and how long a handshake may take. Must not know frames, sessions or users.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from node.broker import limits
from node.raft import Acceptor, listening_socket

logger = logging.getLogger(__name__)


class Listening(Protocol):
    """A client port."""

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError where the address is taken, and then listens on none."""

    def close(self) -> None:
        """Accept nobody any more; connections go on."""


MakePort: TypeAlias = Callable[[ssl.SSLContext | None, Callable[[], asyncio.Protocol]], Listening]
"""Makes the client port of a node, which speaks TLS and nothing else where it gets a context."""


class Listener:
    """A client port on the machine's sockets."""

    def __init__(
        self, context: ssl.SSLContext | None, make: Callable[[], asyncio.Protocol]
    ) -> None:
        """`make` gives the protocol of a connection."""
        self._make = make
        self._tls: dict[str, Any] = {}
        if context is not None:
            self._tls = {
                "ssl": context,
                "ssl_handshake_timeout": limits.OPENING_SECONDS,
                "ssl_shutdown_timeout": limits.CLOSING_SECONDS,
            }
        self._acceptor = Acceptor(self._shake, under_way_max=limits.HANDSHAKES_MAX)

    async def start(self, host: str, port: int) -> None:
        """Listen on every address of this host. Raises OSError, and then listens on none."""
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, address in dict.fromkeys((one[0], one[4]) for one in found):
                self._acceptor.watch(listening_socket(family, address))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Accept nobody any more, and cut handshakes under way; connections go on."""
        self._acceptor.close()

    async def _shake(self, accepted: socket.socket, peer: tuple[object, ...]) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, accepted, **self._tls
            )
        except OSError as error:
            accepted.close()
            reason = getattr(error, "reason", None) or type(error).__name__
            logger.info("event=handshake_failed peer=%s:%s reason=%s", *peer[:2], reason)
