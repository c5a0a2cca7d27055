"""A consumer of a channel: its messages are bounded by the channel's prefetch, which may change.

Owns the flow from the client's consumer to the program. Runs on the bridge's loop, but for what its
docstring names. Must not know kombu's messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import fifo
from fifo.celery import limits
from fifo.celery.bridge import Bridge


class Subscription:
    """Messages of a queue, no more than `prefetch` at once that are not settled.

    `arrive` gets each batch, `fail` the error that ends the flow.
    """

    def __init__(
        self,
        bridge: Bridge,
        queue: str,
        prefetch: int,
        options: dict[str, Any],
        arrive: Callable[[Subscription, list[fifo.Message]], None],
        fail: Callable[[Subscription, fifo.FifoError], None],
    ) -> None:
        self.queue = queue
        self.cancelled = False
        self._bridge = bridge
        self._options = options
        self._arrive = arrive
        self._fail = fail
        self._prefetch = prefetch or limits.PREFETCH_UNLIMITED
        self._held = 0
        self._room = asyncio.Event()
        self._consumer: fifo.Consumer[fifo.Message]
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Subscribe. Raises QueueNotFound, PermissionDenied."""
        self._consumer = await self._subscribed()
        self._task = asyncio.ensure_future(self._flow())

    async def cancel(self) -> None:
        """End deliveries; what was not handed over goes back, uncounted."""
        if self.cancelled:
            return
        self.cancelled = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            await self._consumer.cancel()

    def settled(self) -> None:
        """A message that was handed over is settled: there is room for another."""
        self._held -= 1
        self._room.set()

    def limit(self, prefetch: int) -> None:
        """Set the most that are held at once, 0 for no limit."""
        self._prefetch = prefetch or limits.PREFETCH_UNLIMITED
        self._room.set()

    async def _subscribed(self) -> fifo.Consumer[fifo.Message]:
        self._places = self._prefetch
        consumer = self._bridge.client.consume(
            self.queue, **{**self._options, "prefetch": self._places}
        )
        await consumer.subscribe()
        return consumer

    async def _flow(self) -> None:
        try:
            while True:
                while self._held >= self._prefetch:
                    self._room.clear()
                    await self._room.wait()
                if self._prefetch > self._places:
                    await self._widen()
                found = await self._consumer.next_batch(self._prefetch - self._held)
                if not found:
                    return
                self._held += len(found)
                self._arrive(self, found)
        except fifo.FifoError as error:
            self.cancelled = True
            self._fail(self, error)

    async def _widen(self) -> None:
        """Go on with a consumer of more places; what the old one has handed out stays its own."""
        await self._consumer.cancel()
        self._consumer = await self._subscribed()
