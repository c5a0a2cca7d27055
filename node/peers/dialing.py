"""Dials to a member, the socket of the next one in hand before the last connection ends.

Owns, for one member, a socket that is made while a connection to it lasts, so that a broken
connection is dialed again whatever else this process or the system has open (EMFILE, ENFILE); and
the addresses that its name last had, for a name cannot be looked up without a descriptor either.
Must not know what is spoken.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from node.peers import limits

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

Made = TypeVar("Made", bound=asyncio.BaseProtocol)


class Dialing(Protocol):
    """Dials to one member, one after the other: `DialingSockets`, or a simulated network."""

    async def connect(self, make: Callable[[], Made], tls: ssl.SSLContext | None) -> Made:
        """Connect to the member, with TLS verified by both sides, and return what `make` made for
        the connection. Raises OSError."""

    async def keep_one(self, ended: asyncio.Future[None]) -> None:
        """Wait for the end of a connection, and be ready for the next dial meanwhile."""

    def close(self) -> None:
        """Dial no more. Idempotent."""


class DialingSockets:
    """Dials with the machine's sockets."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._family: int = socket.AF_INET
        self._spare: socket.socket | None = None
        self._addresses: list[tuple[int, Any]] = []

    def close(self) -> None:
        """Close the socket in hand. Idempotent."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()

    async def connect(self, make: Callable[[], Made], tls: ssl.SSLContext | None) -> Made:
        """Connect to the first address of the member that answers. Raises OSError."""
        problem = OSError(f"{self._host} has no address")
        for family, address in await self._resolve():
            try:
                connected = await self._connected(family, address)
                break
            except OSError as error:
                problem = error
        else:
            raise problem
        try:
            _, made = await asyncio.get_running_loop().create_connection(
                make, sock=connected, ssl=tls, server_hostname=None if tls is None else self._host
            )
        except BaseException:
            self._replace(connected)
            raise
        return made

    async def keep_one(self, ended: asyncio.Future[None]) -> None:
        """Wait for the end of a connection, and have a socket for the next one meanwhile."""
        while not ended.done():
            self._make()
            pause = limits.DIALING_SOCKET_RETRY_SECONDS if self._spare is None else None
            await asyncio.wait((ended,), timeout=pause)

    async def _resolve(self) -> list[tuple[int, Any]]:
        with contextlib.suppress(socket.gaierror):
            return _addresses(self._host, self._port)
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError:
            if not self._addresses:
                raise
        else:
            self._addresses = [(family, address) for family, _, _, _, address in found]
        return self._addresses

    async def _connected(self, family: int, address: Any) -> socket.socket:
        made = self._take(family)
        try:
            await asyncio.get_running_loop().sock_connect(made, address)
        except BaseException:
            self._replace(made)
            raise
        return made

    def _replace(self, failed: socket.socket) -> None:
        """Close a socket that led to no connection, and make the next in the same step: this loop
        accepts nothing in between."""
        failed.close()
        self._make()

    def _take(self, family: int) -> socket.socket:
        """The socket in hand, or one in its place where it is of another family."""
        self._family = family
        spare, self._spare = self._spare, None
        if spare is not None:
            if spare.family == family:
                return spare
            spare.close()
        return _made(family)

    def _make(self) -> None:
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = _made(self._family)


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """The address that `host` is, without a look-up. Raises gaierror where it is a name."""
    flags = socket.AI_NUMERICHOST
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]


def _made(family: int) -> socket.socket:
    # With the protocol named, asyncio switches off the delay of small frames (TCP_NODELAY).
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setblocking(False)
    return made
