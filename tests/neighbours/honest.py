"""The honest client: it publishes, consumes and renews every 20 ms, and newcomers log in.

Owns what was refused to it, the locks that it lost, and the times that its publishes took. Must not
know the attack beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import fifo
from tests.neighbours.nodes import HONEST

BEAT_SECONDS: Final = 0.02
NEWCOMER_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 30.0
"""A publish, a renewal or a log-in that takes longer was refused."""

LOCK_SECONDS: Final = 5.0
QUEUE: Final = "honest"


class Honest:
    """A client at work."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._mark = os.urandom(8)
        self.refused: list[str] = []
        self.lost: list[str] = []
        self.times: list[float] = []
        self.handled = 0

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of the times of its publishes."""
        ordered = sorted(self.times)
        return 1000 * ordered[int(0.99 * (len(ordered) - 1))] if ordered else float("inf")

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Honest]:
        """Work until the block ends."""
        async with (
            fifo.connect(self._url, token=f"{HONEST}-token", timeout=PATIENCE_SECONDS) as client,
            client.consume(QUEUE, prefetch=100) as messages,
        ):
            held = await self._hold(client, messages)
            producer = await client.open_producer(QUEUE)
            over = asyncio.Event()
            tasks = [
                asyncio.ensure_future(work)
                for work in (
                    _repeated(over, lambda: self._publish(producer), BEAT_SECONDS),
                    _repeated(over, lambda: self._renew(held), BEAT_SECONDS),
                    _repeated(over, self._newcomer, NEWCOMER_SECONDS),
                )
            ]
            consuming = asyncio.ensure_future(self._noted("consume", self._consume(messages)))
            try:
                yield self
            finally:
                over.set()  # What is under way has to end, and its time counts.
                await asyncio.gather(*tasks)
                consuming.cancel()
                await asyncio.gather(consuming, return_exceptions=True)
            if not self.handled:
                self.lost.append("every message: none came")
            if held.is_lost:
                self.lost.append("the lock that was renewed every 20 ms")
            await self._noted("ack", held.ack(receipt=True))

    async def _hold(
        self, client: fifo.Client, messages: fifo.Consumer[fifo.Message]
    ) -> fifo.Message:
        """A message of our own; what an earlier run has left is acknowledged."""
        await client.publish(QUEUE, self._mark)
        while True:
            found = await messages.next(timeout=PATIENCE_SECONDS)
            assert found is not None, "it was published"
            if found.body == self._mark:
                return found
            await found.ack()

    async def _noted(self, what: str, work: Awaitable[object]) -> None:
        try:
            await work
        except fifo.FifoError as error:
            self.refused.append(f"{what}: {type(error).__name__}: {error}")

    async def _publish(self, producer: fifo.Producer) -> None:
        began = time.perf_counter()
        await self._noted("publish", producer.publish(QUEUE, self._mark))
        self.times.append(time.perf_counter() - began)

    async def _renew(self, held: fifo.Message) -> None:
        await self._noted("renew", held.renew())

    async def _newcomer(self) -> None:
        """Another program of the same user logs in, publishes, and leaves."""
        await self._noted("newcomer", self._one_publish())

    async def _one_publish(self) -> None:
        connecting = fifo.connect(self._url, token=f"{HONEST}-token", timeout=PATIENCE_SECONDS)
        async with connecting as client:
            await client.publish(QUEUE, self._mark)

    async def _consume(self, messages: fifo.Consumer[fifo.Message]) -> None:
        async for message in messages:
            if message.attempt > 1 and message.body == self._mark:
                self.lost.append(f"a message came for the {message.attempt}th time")
            await self._noted("ack", message.ack())
            self.handled += 1


async def _repeated(
    over: asyncio.Event, act: Callable[[], Awaitable[None]], seconds: float
) -> None:
    """Act again and again until it is over, and not before the last act has ended."""
    while not over.is_set():
        await act()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), seconds)
