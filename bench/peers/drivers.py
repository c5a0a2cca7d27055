"""The interface of a worker to a client library, and this project's driver.

Owns the interface: publish so many bodies and return when all are confirmed; give batches of
bodies, each acked once the next is asked for. Knows no figures.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import fifo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

CALL_TIMEOUT_S = 60.0
"""For one publish, and for connecting."""

RECONNECT_S = 0.05
"""Between two tries to reach a cluster that has lost a node: short, so that a pause is the
servers' and not the client's."""


class Driver(Protocol):
    """A connection to one of the systems, for one queue."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """Errors of a publish when a connection or a leader is lost."""

    async def open(self, url: str, queue: str) -> None:
        """Connect, and make the queue if it is not there."""

    async def close(self) -> None:
        """Leave."""

    async def publish(self, body: bytes, count: int) -> None:
        """Publish a body so many times; return when the last is confirmed."""

    async def recover(self) -> None:
        """After one of `errors`: see that the next publish can reach a node that lives."""

    def batches(self, prefetch: int) -> AsyncIterator[Sequence[bytes]]:
        """Bodies as they come; those of a batch are acked when the next one is asked for."""


class FifoDriver:
    """This project's client."""

    errors = (fifo.FifoError, OSError)

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._client: fifo.Client
        self._queue = ""

    async def open(self, url: str, queue: str) -> None:
        """See `Driver`."""
        self._queue = queue
        self._client = await self._stack.enter_async_context(
            fifo.connect(url, timeout=CALL_TIMEOUT_S)
        )
        with contextlib.suppress(fifo.QueueExists):
            await self._client.declare(fifo.QueueSpec(queue))

    async def close(self) -> None:
        """See `Driver`."""
        await self._stack.aclose()

    async def publish(self, body: bytes, count: int) -> None:
        """See `Driver`."""
        if count == 1:
            await self._client.publish(self._queue, body)
        else:
            await self._client.publish_many(self._queue, [body] * count)

    async def recover(self) -> None:
        """Nothing to do: the client looks for the new leader automatically."""

    async def batches(self, _prefetch: int) -> AsyncIterator[Sequence[bytes]]:
        """See `Driver`. How much is held is the client's choice, as it is by default."""
        async with self._client.consume(self._queue) as messages:
            async for batch in messages.batches():
                yield [bytes(message.body) for message in batch]
                messages.ack_many(batch)
