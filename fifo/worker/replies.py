"""The reply queue of a caller: declared when it is first needed, read for as long as its client.

Owns the queue and its reader. Adapters use it too. Must not know what a reply says, nor tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from fifo.client import Client, Consumer, FifoError, Message, QueueSpec
from fifo.worker import limits

REPLY_TO: Final = "reply-to"
"""Header: the queue of the caller that waits."""

CORRELATION: Final = "correlation-id"
"""Header: which of its calls."""

LABEL: Final = "fifo results"
"""The name of a reader in lists of consumers."""


def reply_queue(entropy: Callable[[int], bytes]) -> QueueSpec:
    """A queue of one caller, which goes when the caller has gone."""
    return QueueSpec(f"replies.{entropy(8).hex()}", expires_unused=limits.REPLY_UNUSED_SECONDS)


class ReplyQueue:
    """The replies to one client. `take` gets each, `lost` the error that ended the reading.

    A queue that is gone, since the client was away for too long, is declared anew by `open`.
    """

    def __init__(
        self, client: Client, take: Callable[[Message], None], lost: Callable[[FifoError], None]
    ) -> None:
        self._client = client
        self._take = take
        self._lost = lost
        self._spec = reply_queue(client.environment.entropy)
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> str:
        """Have the queue, and its reader; its name."""
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.create_task(self._open())
        try:
            await asyncio.shield(opening)
        except FifoError:
            if self._opening is opening:
                self._opening = None  # The next call tries again.
            raise
        return self._spec.name

    async def close(self) -> None:
        """End the reader; the queue goes when it was unused for a while."""
        reading, self._reading, self._opening = self._reading, None, None
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _open(self) -> None:
        await self._client.declare(self._spec, warn=False)  # It is to expire.
        consumer = self._client.consume(self._spec.name, label=LABEL)
        await consumer.subscribe()
        self._reading = asyncio.create_task(self._read(consumer))

    async def _read(self, consumer: Consumer[Message]) -> None:
        try:
            async for message in consumer:
                await message.ack()
                self._take(message)
        except FifoError as error:
            self._opening = None
            self._lost(error)
