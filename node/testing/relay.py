"""Clients on other event loops: their bytes come over a pair of sockets, and go on in memory.

Owns the bytes between a socket of the test's loop and a connection of the simulated network. Must
not know what they mean.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from node.testing.clockwork import Program
from node.testing.network import Network


class Half(asyncio.Protocol):
    """A side: what it receives goes out at the other one."""

    def __init__(self, relay: Relay) -> None:
        self.other: Half = self
        self.transport: Any = None
        self._relay = relay

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have a way out."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        """Do not take what cannot go out."""
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Take more."""
        self.other.transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """End the other side."""
        self._relay.end(self.other)


class Relay:
    """Both sides. `ended` has a result when one of them has ended."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inner, self.outer = Half(self), Half(self)
        self.inner.other, self.outer.other = self.outer, self.inner

    def end(self, side: Half) -> None:
        """End a side, since the other one has ended."""
        if side.transport is not None:
            side.transport.close()
        if not self.ended.done():
            self.ended.set_result(None)

    def abort(self) -> None:
        """End the side with the socket at once."""
        self.outer.transport.abort()


async def relay(
    network: Network, program: Program, far: socket.socket, host: str, port: int
) -> Relay:
    """Connect the socket `far`, for a client that is `program`, to a node. Raises OSError."""
    made = Relay()
    try:
        end, _ = await network.dial(program, lambda: made.inner, host, port)
        end.pause_reading()  # until there is a way out
        await asyncio.get_running_loop().create_connection(lambda: made.outer, sock=far)
    except BaseException:
        far.close()
        raise
    end.resume_reading()
    if made.ended.done():  # by the node, meanwhile
        made.abort()
    return made
