"""Whole views of one node, for backups and comparisons: pinned there, and read piece by piece.

Owns a connection to that node, and the form of the requests. Must not know what a state means, or
where the pieces go.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Final

from fifo.client.connection.environment import Environment
from fifo.client.connection.in_process import environment_of
from fifo.client.connection.observing import NodeLink
from fifo.client.connection.options import Options
from fifo.client.errors import FifoError, ProtocolError
from fifo.client.scanning import ScanVerbs, confirmed_index
from fifo.wire import limits as wire
from fifo.wire.messages import Message, Ok
from fifo.wire.pins import Pin, PinPiece, PinQuery, PinRead, Unpin

STATE: Final = "state"
ENTRIES: Final = "entries"
CONFIGURATION: Final = "configuration"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a whole view. The next piece begins at `after`; `digest` is there with the last
    piece of a state. `entries`: index and bytes of each."""

    data: bytes
    after: int
    last: bool
    digest: bytes
    entries: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class WholeView:
    """A pinned view: what its node said of it."""

    name: bytes
    node: str
    index: int
    cluster_ms: int
    wall_ms: int


async def confirmed_index_of(client: ScanVerbs) -> int:
    """An index whose state shows everything that the client's cluster confirmed so far."""
    return await confirmed_index(client._session, None)


class NodeReader:
    """A connection to one node that reads whole views. Every method raises what the node answers,
    ConnectionLost or Timeout. To be closed after use."""

    def __init__(self, link: NodeLink, address: str, timeout: float) -> None:
        self._link = link
        self._timeout = timeout
        self.address = address

    @classmethod
    async def open(
        cls,
        address: str,
        options: Options,
        environment: Environment | None = None,
    ) -> NodeReader:
        """Connect to the node at `host:port`."""
        environment = environment or environment_of([address])
        link = await NodeLink.open(address, options.connect_timeout, environment, options)
        return cls(link, address, options.timeout)

    async def pin(
        self, at_least: int, *, exactly: bool = False, lease_ms: int = wire.PIN_LEASE_MS
    ) -> WholeView:
        """Pin the state once that index is applied, or at that very one. The answer of a node that
        does not know `exactly` names another index."""
        found = await self._ask(Pin(at_least, lease_ms, exactly))
        return WholeView(
            bytes(found["pin"]),
            found["node"],
            found["index"],
            found["cluster_ms"],
            found["wall_ms"],
        )

    async def renew(self, view: WholeView) -> None:
        """Begin the view's lease anew, as every piece does."""
        await self._ask(PinQuery(view.name, "renew"))

    async def piece(
        self, view: WholeView, part: str, at: int = 0, *, content: bool = True
    ) -> Piece:
        """The next piece of a part; without `content` that of a state is only hashed."""
        frame = await self._link.ask(PinRead(view.name, part, at, content), self._timeout)
        message = frame.message
        if not isinstance(message, PinPiece):
            raise ProtocolError(f"expected PinPiece, got {type(message).__name__}")
        if not message.entries:
            return Piece(bytes(frame.raw), message.after, message.last, message.digest, ())
        raw, start, entries = frame.raw, 0, []
        for index, size in message.entries:
            entries.append((index, bytes(raw[start : start + size])))
            start += size
        if start != len(raw):
            raise ProtocolError("the sizes of a piece do not add up")
        return Piece(b"", message.after, message.last, message.digest, tuple(entries))

    async def unpin(self, view: WholeView) -> None:
        """End the view; one that is over already is none."""
        with contextlib.suppress(FifoError):  # It ends with its lease.
            await self._ask(Unpin(view.name))

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    async def _ask(self, message: Message) -> Any:
        frame = await self._link.ask(message, self._timeout)
        if not isinstance(frame.message, Ok):
            raise ProtocolError(f"expected Ok, got {type(frame.message).__name__}")
        return frame.message.result
