"""RabbitMQ by pika, on the worker's own event loop.

Owns how confirms and deliveries of a quorum queue become the calls of `drivers.Driver`. Acks go
out cumulatively per batch, which is RabbitMQ's cheapest way. pika knows one address at a time, so
going on to the next node is done here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import AMQPError

from bench.peers.drivers import CALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

PERSISTENT = 2


class RabbitDriver:
    """A channel to one node after the other."""

    errors = (AMQPError, RuntimeError, OSError)

    def __init__(self) -> None:
        self._addresses: deque[str] = deque()
        self._queue = ""
        self._channel: _Channel

    async def open(self, url: str, queue: str) -> None:
        """Connect to the first node, and declare the queue there."""
        self._addresses, self._queue = deque(url.split(",")), queue
        self._channel = _Channel()
        await self._channel.open(self._addresses[0])
        await self._channel.declare(queue)

    async def close(self) -> None:
        """See `Driver`."""
        self._channel.close()

    async def publish(self, body: bytes, count: int) -> None:
        """See `Driver`."""
        await self._channel.publish(self._queue, body, count)

    async def recover(self) -> None:
        """Go on with the next node; where that fails too the old channel goes on saying so."""
        self._channel.close()
        self._addresses.rotate(-1)
        channel = _Channel()
        try:
            await channel.open(self._addresses[0])
        except BaseException:
            channel.close()
            raise
        self._channel = channel

    async def batches(self, prefetch: int) -> AsyncIterator[Sequence[bytes]]:
        """See `Driver`."""
        async for bodies in self._channel.batches(self._queue, prefetch):
            yield bodies


class _Channel:
    """A connection with one channel in confirm mode, until it breaks."""

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

    async def open(self, address: str) -> None:
        """Connect, open the channel, ask for confirms."""
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._connection = AsyncioConnection(
            pika.URLParameters(address),
            on_open_callback=lambda connection: _tell(opened, connection),
            on_open_error_callback=lambda _, error: _fail(opened, _as_error(error)),
            on_close_callback=self._closed,
        )
        await asyncio.wait_for(opened, CALL_TIMEOUT_S)
        self._channel = await self._answer(
            lambda done: self._connection.channel(on_open_callback=done)
        )
        self._channel.add_on_close_callback(self._closed)
        await self._answer(
            lambda done: self._channel.confirm_delivery(self._on_confirm, callback=done)
        )

    async def declare(self, queue: str) -> None:
        """See that there is a quorum queue of that name."""
        await self._answer(
            lambda done: self._channel.queue_declare(
                queue, durable=True, arguments={"x-queue-type": "quorum"}, callback=done
            )
        )

    def close(self) -> None:
        """Leave, if there is anything to leave; nothing is published here any more."""
        self._failed = self._failed or RuntimeError("the channel is closed")
        connection = self._connection
        if connection is not None and not (connection.is_closing or connection.is_closed):
            connection.close()

    async def publish(self, queue: str, body: bytes, count: int) -> None:
        """See `Driver`."""
        self._check()
        properties = pika.BasicProperties(delivery_mode=PERSISTENT)
        for _ in range(count):
            self._channel.basic_publish("", queue, body, properties)
        self._published += count
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((self._published, done))
        await asyncio.wait_for(done, CALL_TIMEOUT_S)

    async def batches(self, queue: str, prefetch: int) -> AsyncIterator[Sequence[bytes]]:
        """See `Driver`."""
        await self._answer(
            lambda done: self._channel.basic_qos(prefetch_count=prefetch, callback=done)
        )
        self._channel.basic_consume(queue, self._on_message)
        while True:
            await self._arrived.wait()
            self._check()
            self._arrived.clear()
            bodies, self._bodies, tag = self._bodies, [], self._last_tag
            yield bodies
            self._channel.basic_ack(tag, multiple=True)

    async def _answer(self, ask: Any) -> Any:
        """The result of a call that answers by callback."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        ask(lambda result: _tell(answered, result))
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
            _tell(self._waiting.popleft()[1], None)

    def _closed(self, _: Any, reason: BaseException) -> None:
        self._failed = self._failed or reason
        self._arrived.set()
        for _, done in self._waiting:
            _fail(done, reason)
        self._waiting.clear()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed


def _tell(future: asyncio.Future[Any], result: Any) -> None:
    """Hand over an answer, unless its caller has gone."""
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _as_error(error: BaseException | str) -> BaseException:
    """pika says some of its failures in words only."""
    return error if isinstance(error, BaseException) else RuntimeError(error)
