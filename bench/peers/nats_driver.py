"""NATS JetStream by nats-py, on the worker's own event loop.

Owns how a replicated file stream with a work queue's retention becomes `drivers.Driver`: published
asynchronously, delivered to a durable push consumer, acked one by one as JetStream's explicit acks
are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import nats
import nats.js.errors
from nats.js import api

from bench.peers.drivers import CALL_TIMEOUT_S, RECONNECT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

NODES = 3
DURABLE = "worker"
PENDING = 100_000
"""More than any window: the window is the worker's."""

RETRY_S = 0.2


class NatsDriver:
    """A connection and its JetStream context."""

    errors = (nats.errors.Error, OSError)

    def __init__(self) -> None:
        self._client: Any = None
        self._stream: Any = None
        self._queue = ""
        self._answers = False

    async def open(self, url: str, queue: str) -> None:
        """Connect; make the stream, again while the cluster has no leader for it yet."""
        self._queue = queue
        self._client = await nats.connect(
            url.split(","),
            connect_timeout=int(CALL_TIMEOUT_S),
            reconnect_time_wait=RECONNECT_S,
            max_reconnect_attempts=-1,
        )
        self._stream = self._client.jetstream(
            timeout=CALL_TIMEOUT_S, publish_async_max_pending=PENDING
        )
        config = api.StreamConfig(
            name=queue,
            subjects=[queue],
            retention=api.RetentionPolicy.WORK_QUEUE,
            storage=api.StorageType.FILE,
            num_replicas=NODES,
        )
        async with asyncio.timeout(CALL_TIMEOUT_S):
            while True:
                try:
                    await self._client.jetstream(timeout=5).add_stream(config)
                    return
                except nats.errors.Error:
                    await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def publish(self, body: bytes, count: int) -> None:
        """See `drivers.Driver`."""
        if not self._answers:
            await self._first(body)
            count -= 1
        if count == 1:
            await self._stream.publish(self._queue, body, timeout=CALL_TIMEOUT_S)
            return
        confirms = [await self._stream.publish_async(self._queue, body) for _ in range(count)]
        await asyncio.wait_for(asyncio.gather(*confirms), CALL_TIMEOUT_S)

    async def recover(self) -> None:
        """Nothing to do: the client connects to another server automatically."""

    async def _first(self, body: bytes) -> None:
        """A new stream does not answer at once, on this connection's server last of all."""
        async with asyncio.timeout(CALL_TIMEOUT_S):
            while not self._answers:
                try:
                    await self._stream.publish(self._queue, body, timeout=CALL_TIMEOUT_S)
                    self._answers = True
                except nats.errors.Error:
                    await asyncio.sleep(RETRY_S)

    async def batches(self, prefetch: int) -> AsyncIterator[Sequence[bytes]]:
        """See `drivers.Driver`."""
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        await self._subscribe(arrived, prefetch)
        while True:
            batch = [await arrived.get()]
            while not arrived.empty():
                batch.append(arrived.get_nowait())
            yield [message.data for message in batch]
            for message in batch:
                await message.ack()

    async def _subscribe(self, arrived: asyncio.Queue[Any], prefetch: int) -> None:
        """Join the durable consumer; several workers may find none, and one of them makes it."""
        config = api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, max_ack_pending=prefetch)
        async with asyncio.timeout(CALL_TIMEOUT_S):
            while True:
                try:
                    await self._stream.subscribe(
                        self._queue,
                        durable=DURABLE,
                        queue=DURABLE,
                        manual_ack=True,
                        cb=arrived.put,
                        config=config,
                    )
                    return
                except nats.js.errors.BadRequestError:
                    await asyncio.sleep(RETRY_S)
