"""TLS on the client port: certificates, and the handshake before a connection is one.

Owns the context of a listening port, the accepting, and the connections whose handshake is under
way: they are counted and cut like connections that say no hello, for until then nobody else knows
them. Must not know frames, sessions or users.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from node.broker import limits
from node.raft.peer_tls import CertificateUnusable, load_chain
from node.table import ConfigError

if TYPE_CHECKING:
    from node.config import TlsSettings

logger = logging.getLogger(__name__)


def client_context(settings: TlsSettings, node: str) -> ssl.SSLContext:
    """What a node shows to its clients. Raises ConfigError where a file cannot be used."""
    cert, key = settings.path("client_cert", node), settings.path("client_key", node)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        load_chain(context, cert, key, kind="client")
    except CertificateUnusable as error:
        raise ConfigError(str(error)) from None
    return context


class TlsListener:
    """A port that speaks TLS and nothing else; `make` gives the protocol of a connection.

    It accepts by itself, because a server of the loop would bound neither the number nor the age of
    connections that never shake hands.
    """

    def __init__(self, context: ssl.SSLContext, make: Callable[[], asyncio.Protocol]) -> None:
        self._context = context
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._under_way: dict[asyncio.Task[None], socket.socket] = {}

    async def start(self, host: str, port: int) -> None:
        """Listen on every address of this host. Raises OSError, and then listens on none."""
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, address in dict.fromkeys((one[0], one[4]) for one in found):
                self._sockets.append(_listening(family, address))
        except OSError:
            self.close()
            raise
        self._accepting = [self._loop.create_task(self._accept(one)) for one in self._sockets]

    def close(self) -> None:
        """Accept nobody any more, and cut handshakes under way; connections go on."""
        for task in (*self._accepting, *self._under_way):
            task.cancel()
        for one in self._sockets:
            one.close()
        self._sockets.clear()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, peer = await self._loop.sock_accept(listening)
            except OSError as error:
                # As a server of the loop does where descriptors run out: wait until some are back.
                logger.error("event=accept_failed error=%s", error)
                await asyncio.sleep(limits.ACCEPT_AGAIN_SECONDS)
                continue
            if len(self._under_way) >= limits.TLS_HANDSHAKES_MAX:
                next(iter(self._under_way)).cancel()
            task = self._loop.create_task(self._shake(accepted, peer))
            self._under_way[task] = accepted
            task.add_done_callback(self._done)

    async def _shake(self, accepted: socket.socket, peer: tuple[object, ...]) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=limits.OPENING_SECONDS,
                ssl_shutdown_timeout=limits.CLOSING_SECONDS,
            )
        except OSError as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            logger.info("event=tls_failed peer=%s:%s reason=%s", *peer[:2], reason)

    def _done(self, task: asyncio.Task[None]) -> None:
        accepted = self._under_way.pop(task)
        if task.cancelled():
            accepted.close()
        elif task.exception() is not None:
            logger.error("event=tls_failed", exc_info=task.exception())


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(limits.LISTEN_BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made
