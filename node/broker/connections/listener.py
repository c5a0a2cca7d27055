"""The client port: its sockets, its TLS certificate, and the number of connections that fit.

Owns accepting, the TLS context, the handshake's time limit, and the arithmetic of file descriptors:
a journal that cannot open its next segment stops the node, so clients must never take the last
descriptors. Must not know frames, sessions or users.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from node.broker import limits
from node.broker.connections.proxy_header import HeaderInvalid, Source, read_source
from node.peers.tls import CertificateUnusable, load_chain
from node.raft import NO_DESCRIPTOR_ERRNOS, Acceptor, listening_socket
from node.table import ConfigError

if TYPE_CHECKING:
    from node.config import TlsSettings

logger = logging.getLogger(__name__)


Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class Listening(Protocol):
    """A client port."""

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError if the address is taken, and then listens on none."""

    def close(self) -> None:
        """Accept no more connections; existing ones go on."""


MakePort: TypeAlias = Callable[
    [ssl.SSLContext | None, Callable[[], asyncio.Protocol], Collection[Network]], Listening
]
"""Makes the client port of a node; with a context it accepts TLS only. The networks are those of
balancers."""


class Listener:
    """A client port on the machine's sockets."""

    def __init__(
        self,
        context: ssl.SSLContext | None,
        make: Callable[[], asyncio.Protocol],
        balancers: Collection[Network] = (),
        *,
        handshakes_max: int = limits.HANDSHAKES_MAX,
    ) -> None:
        """`make` returns the protocol of a new connection. `handshakes_max`: accepted sockets that
        are none yet, beyond which the oldest is cut. `balancers`: whose connections begin with a
        PROXY header, and no others."""
        self._make = make
        self._balancers = tuple(balancers)
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
        loop = asyncio.get_running_loop()
        make = self._make
        try:
            if self._balancers and self._is_balancer(str(peer[0])):
                source = await self._source(accepted)
                make = partial(self._make_proxied, source)
            await loop.connect_accepted_socket(make, accepted, **self._tls)
        except (OSError, HeaderInvalid) as error:
            accepted.close()
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            logger.info("event=handshake_failed peer=%s:%s reason=%s", *peer[:2], reason)

    def _is_balancer(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._balancers)

    async def _source(self, accepted: socket.socket) -> Source | None:
        """Read the header of a balancer, in the time of a handshake."""
        loop = asyncio.get_running_loop()

        async def exactly(count: int) -> bytes:
            found = b""
            while len(found) < count:
                piece = await loop.sock_recv(accepted, count - len(found))
                if not piece:
                    raise HeaderInvalid("the connection ended in its PROXY header")
                found += piece
            return found

        async with asyncio.timeout(limits.OPENING_SECONDS):
            return await read_source(exactly)

    def _make_proxied(self, source: Source | None) -> asyncio.Protocol:
        made = self._make()
        made.source = source  # type: ignore[attr-defined]  # connections that can be proxied have it
        made.proxied = True  # type: ignore[attr-defined]
        return made


# --- the certificate ------------------------------------------------------------------------------


def client_context(settings: TlsSettings, node: str, *, asks: bool = True) -> ssl.SSLContext:
    """The TLS context of a client port. `asks`: clients may show a certificate of `client_ca`.
    Raises ConfigError if a file cannot be used."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if asks and settings.client_ca is not None:
        path = settings.path("client_ca", node)
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(path)
        except OSError as error:
            problem = f"{path}: is no PEM file of authorities that can be read: {error.strerror}"
            raise ConfigError(f"[tls] client_ca: {problem}") from None
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
