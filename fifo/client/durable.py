"""A durable consumer: it has a name, and outlives every session (semantics.md 11).

Owns its verbs. What a node cannot do yet it answers itself, with `Unsupported`.
"""

from __future__ import annotations

from typing import Any

from fifo.client import checks
from fifo.client.session import Session
from fifo.wire.messages import Durable, Ok


class DurableConsumer:
    """A durable consumer's verbs. A node that cannot do it yet answers with Unsupported."""

    def __init__(self, session: Session, queue: str, name: str) -> None:
        self.queue = queue
        self.name = name
        self.generation = 0
        self._session = session

    async def reserve(self, count: int) -> Any:
        """Check out the next messages under this consumer's own growing numbers."""
        return await self._do("reserve", 0, checks.integer(count, "count", 1, 10_000))

    async def fetch(self, first: int, last: int) -> Any:
        """The messages first..last, the same each time."""
        return await self._do("fetch", first, last)

    async def ack(self, upto: int) -> Any:
        """Settle all up to this number."""
        return await self._do("ack", 0, upto)

    async def renew(self) -> Any:
        """Renew what is reserved."""
        return await self._do("renew")

    async def forget(self) -> Any:
        """End this consumer."""
        return await self._do("forget")

    async def _do(self, verb: str, first: int = 0, last: int = 0) -> Any:
        request = Durable(self.queue, self.name, verb, self.generation, first, last)
        frame = await self._session.call(request)
        message = frame.message
        return message.result if isinstance(message, Ok) else message
