"""Results: how the end of a task reaches a caller that waits for it.

Owns the reply queue of a caller, and the form of a reply. A result is lost with its caller, and
nothing else is: the task itself is settled by its own rules. Must not know how a task is run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from fifo.client import (
    Client,
    Consumer,
    FifoError,
    InvalidArgument,
    Message,
    MessageTooLarge,
    QueueNotFound,
    QueueSpec,
    Timeout,
)
from fifo.worker import bodies, limits
from fifo.worker.errors import TaskError, Unfit

_log = logging.getLogger("fifo.worker")

REPLY_TO: Final = "reply-to"
"""Header: the queue of the caller that waits."""

CORRELATION: Final = "correlation-id"
"""Header: which of its calls."""


class Replies:
    """The calls of one client that wait for their results."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._queue = f"replies.{client.environment.entropy(8).hex()}"
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._calls = 0

    async def expect(self) -> dict[str, str]:
        """Headers of a call whose result `wait` returns."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        try:
            await asyncio.shield(self._opening)
        except FifoError:
            self._opening = None  # The next call tries again.
            raise
        self._calls += 1
        name = str(self._calls)
        self._waiting[name] = asyncio.get_running_loop().create_future()
        return {REPLY_TO: self._queue, CORRELATION: name}

    async def wait(self, headers: Mapping[str, str], timeout: float) -> Any:
        """Wait for a result. Raises TaskError where the task failed, and Timeout."""
        try:
            async with asyncio.timeout(timeout):
                return await self._waiting[headers[CORRELATION]]
        except TimeoutError:
            raise Timeout(f"no result within {timeout:g} s", unknown=True) from None
        finally:
            self.forget(headers)

    def forget(self, headers: Mapping[str, str]) -> None:
        """Give up a call: its result is dropped."""
        self._waiting.pop(headers[CORRELATION], None)

    async def _open(self) -> None:
        queue = self._queue
        queues_log = logging.getLogger("fifo.client.queues")

        def of_another(record: logging.LogRecord) -> bool:
            return queue not in record.getMessage()

        # It warns of queues that expire; this one is to.
        queues_log.addFilter(of_another)
        try:
            await self._client.declare(QueueSpec(queue, expires_unused=limits.REPLY_UNUSED_SECONDS))
        finally:
            queues_log.removeFilter(of_another)
        consumer = self._client.consume(queue, label="fifo results")
        await consumer.subscribe()
        self._reading = asyncio.create_task(self._read(consumer))

    async def _read(self, consumer: Consumer[Message]) -> None:
        try:
            async for message in consumer:
                await message.ack()
                self._take(message)
        except FifoError as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(type(error)(str(error)))

    def _take(self, message: Message) -> None:
        headers = message.headers
        future = self._waiting.get(headers.get(CORRELATION, ""))
        if future is None or future.done():
            return
        try:
            reply = bodies.decode(message.body, headers.get("content-type"))
            if "error" in reply:
                future.set_exception(TaskError(str(reply["error"])))
            else:
                future.set_result(reply["result"])
        except (Unfit, TypeError, KeyError) as error:
            future.set_exception(TaskError(f"the reply {message!r} has no result: {error}"))


async def reply(
    client: Client, codec: bodies.Codec, headers: Mapping[str, str], ending: Mapping[str, Any]
) -> None:
    """Publish the end of a task, `{"result": ...}` or `{"error": text}`, to its caller.

    A result that no message can hold becomes an error for the caller. Raises FifoError.
    """
    try:
        try:
            body = bodies.encode(codec, ending, "result")
            await _publish(client, codec, headers, body)
        except (InvalidArgument, MessageTooLarge) as error:
            _log.warning("a result cannot be sent, and its task is done all the same: %s", error)
            text = f"the task is done, and its result cannot be sent: {error}"
            await _publish(client, codec, headers, bodies.encode(codec, {"error": text}, "error"))
    except QueueNotFound:
        _log.debug("the caller of a task has gone: its result is dropped")


async def _publish(
    client: Client, codec: bodies.Codec, headers: Mapping[str, str], body: bytes
) -> None:
    own = {CORRELATION: headers.get(CORRELATION, ""), "content-type": codec.content_type}
    await client.publish(headers[REPLY_TO], body, headers=own, ttl=limits.REPLY_TTL_SECONDS)
