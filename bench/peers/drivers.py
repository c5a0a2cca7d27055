"""What a worker asks of a client library, and this project's answer to it.

Owns the interface: publish so many bodies and return when all are confirmed; give batches of
bodies, each acked once the next is asked for. Knows no figures.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import fifo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

QUEUE = "peers"

CALL_TIMEOUT_S = 60.0
"""For one publish, and for connecting."""


class Driver(Protocol):
    """One connection to one of the systems."""

    async def open(self, url: str) -> None:
        """Connect, and make the queue if it is not there."""

    async def close(self) -> None:
        """Leave."""

    async def publish(self, body: bytes, count: int) -> None:
        """Publish a body so many times; return when the last is confirmed."""

    def batches(self, prefetch: int) -> AsyncIterator[Sequence[bytes]]:
        """Bodies as they come; those of a batch are acked when the next one is asked for."""


class FifoDriver:
    """This project's client."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._client: fifo.Client

    async def open(self, url: str) -> None:
        """See `Driver`."""
        self._client = await self._stack.enter_async_context(
            fifo.connect(url, timeout=CALL_TIMEOUT_S)
        )
        with contextlib.suppress(fifo.QueueExists):
            await self._client.declare(fifo.QueueSpec(QUEUE))

    async def close(self) -> None:
        """See `Driver`."""
        await self._stack.aclose()

    async def publish(self, body: bytes, count: int) -> None:
        """See `Driver`."""
        if count == 1:
            await self._client.publish(QUEUE, body)
        else:
            await self._client.publish_many(QUEUE, [body] * count)

    async def batches(self, prefetch: int) -> AsyncIterator[Sequence[bytes]]:
        """See `Driver`."""
        async with self._client.consume(QUEUE, prefetch=prefetch) as messages:
            async for batch in messages.batches():
                yield [bytes(message.body) for message in batch]
                messages.ack_many(batch)
