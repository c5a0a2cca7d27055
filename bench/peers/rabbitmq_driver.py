"""RabbitMQ by pika, on the worker's own event loop.

Owns how confirms and deliveries of a quorum queue become the calls of `drivers.Driver`. Acks go
out cumulatively per batch, which is RabbitMQ's cheapest way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from bench.peers.drivers import CALL_TIMEOUT_S, QUEUE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

PERSISTENT = 2


class RabbitDriver:
    """One connection with one channel in confirm mode."""

    def __init__(self) -> None:
        self._connection: Any = None
        self._channel: Any = None
        self._published = 0
        self._confirmed = 0
        self._out_of_order: set[int] = set()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._bodies: list[bytes] = []
        self._last_tag = 0
        self._arrived = asyncio.Event()
        self._failed: BaseException | None = None

    async def open(self, url: str) -> None:
        """Connect, open the channel, declare the queue, ask for confirms."""
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._connection = AsyncioConnection(
            pika.URLParameters(url),
            on_open_callback=opened.set_result,
            on_open_error_callback=lambda _, error: opened.set_exception(error),
            on_close_callback=self._closed,
        )
        await asyncio.wait_for(opened, CALL_TIMEOUT_S)
        self._channel = await self._answer(
            lambda done: self._connection.channel(on_open_callback=done)
        )
        self._channel.add_on_close_callback(self._closed)
        await self._answer(
            lambda done: self._channel.queue_declare(
                QUEUE, durable=True, arguments={"x-queue-type": "quorum"}, callback=done
            )
        )
        await self._answer(
            lambda done: self._channel.confirm_delivery(self._on_confirm, callback=done)
        )

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def publish(self, body: bytes, count: int) -> None:
        """See `drivers.Driver`."""
        self._check()
        properties = pika.BasicProperties(delivery_mode=PERSISTENT)
        for _ in range(count):
            self._channel.basic_publish("", QUEUE, body, properties)
        self._published += count
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((self._published, done))
        await asyncio.wait_for(done, CALL_TIMEOUT_S)

    async def batches(self, prefetch: int) -> AsyncIterator[Sequence[bytes]]:
        """See `drivers.Driver`."""
        await self._answer(
            lambda done: self._channel.basic_qos(prefetch_count=prefetch, callback=done)
        )
        self._channel.basic_consume(QUEUE, self._on_message)
        while True:
            await self._arrived.wait()
            self._check()
            self._arrived.clear()
            bodies, self._bodies, tag = self._bodies, [], self._last_tag
            yield bodies
            self._channel.basic_ack(tag, multiple=True)

    async def _answer(self, ask: Any) -> Any:
        """The result of a call that answers by callback."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()
        ask(answered.set_result)
        return await asyncio.wait_for(answered, CALL_TIMEOUT_S)

    def _on_message(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self._bodies.append(body)
        self._last_tag = method.delivery_tag
        self._arrived.set()

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if isinstance(method, pika.spec.Basic.Nack):
            self._closed(None, RuntimeError("RabbitMQ refused a message"))
            return
        if method.multiple:
            self._confirmed = max(self._confirmed, method.delivery_tag)
            self._out_of_order = {tag for tag in self._out_of_order if tag > self._confirmed}
        else:
            self._out_of_order.add(method.delivery_tag)
        while self._confirmed + 1 in self._out_of_order:
            self._confirmed += 1
            self._out_of_order.remove(self._confirmed)
        while self._waiting and self._waiting[0][0] <= self._confirmed:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_result(None)

    def _closed(self, _: Any, reason: BaseException) -> None:
        self._failed = self._failed or reason
        self._arrived.set()
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(reason)
        self._waiting.clear()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
