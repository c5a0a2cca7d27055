"""The client port: its sockets, its TLS certificate, and the number of connections that fit.

Owns accepting, the TLS context, the handshake's time limit, and the arithmetic of file descriptors:
a journal that cannot open its next segment stops the node, so clients must never take the last
descriptors. Must not know frames, sessions or users.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from node.broker import limits
from node.peers.tls import CertificateUnusable, load_chain
from node.raft import NO_DESCRIPTOR_ERRNOS, Acceptor, listening_socket
from node.table import ConfigError

if TYPE_CHECKING:
    from node.config import TlsSettings

logger = logging.getLogger(__name__)


class Listening(Protocol):
    """A client port."""

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the address is taken, and then listens on none."""

    def close(self) -> None:
        """Accept no more connections; existing ones go on."""


MakePort: TypeAlias = Callable[[ssl.SSLContext | None, Callable[[], asyncio.Protocol]], Listening]
"""Makes the client port of a node; with a context it accepts TLS only."""


class Listener:
    """A client port on the machine's sockets."""

    def __init__(
        self,
        context: ssl.SSLContext | None,
        make: Callable[[], asyncio.Protocol],
        *,
        handshakes_max: int = limits.HANDSHAKES_MAX,
    ) -> None:
        """`make` returns the protocol of a new connection. `handshakes_max`: accepted sockets that
        are none yet, beyond which the oldest is cut."""
        self._make = make
        self._tls: dict[str, Any] = {}
        if context is not None:
            self._tls = {
                "ssl": context,
                "ssl_handshake_timeout": limits.OPENING_SECONDS,
                "ssl_shutdown_timeout": limits.CLOSING_SECONDS,
            }
        self._acceptor = Acceptor(self._shake, under_way_max=handshakes_max)

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
        """Accept no more connections and abort handshakes; existing connections go on."""
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


# --- the certificate ------------------------------------------------------------------------------


def client_context(settings: TlsSettings, node: str) -> ssl.SSLContext:
    """The TLS context of a client port. Raises ConfigError if a file cannot be used."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    show_certificate(context, settings, node)
    return context


def show_certificate(context: ssl.SSLContext, settings: TlsSettings, node: str) -> None:
    """Present this certificate from the next connection on, also on a port that is open.

    Raises ConfigError if a file cannot be used; the context may be unusable then.
    """
    cert, key = settings.path("client_cert", node), settings.path("client_key", node)
    try:
        load_chain(context, cert, key, kind="client")
    except CertificateUnusable as error:
        raise ConfigError(str(error)) from None


# --- file descriptors -----------------------------------------------------------------------------


def connections_max() -> int:
    """Raise the soft limit of descriptors as far as allowed; return the connections that fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.CONNECTIONS_MAX + limits.DESCRIPTORS_RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if raised > soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    return fitting(soft)


def fitting(descriptors: int) -> int:
    """Connections that fit beside the node's own files: at least a quarter of the descriptors."""
    if descriptors == resource.RLIM_INFINITY:
        return limits.CONNECTIONS_MAX
    room = max(descriptors - limits.DESCRIPTORS_RESERVED, descriptors // 4)
    return min(room, limits.CONNECTIONS_MAX)


def descriptor_left() -> bool:
    """Whether this process can open another file now."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as problem:
        return problem.errno not in NO_DESCRIPTOR_ERRNOS
    return True
