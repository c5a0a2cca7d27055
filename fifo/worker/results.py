"""Results: how the end of a task reaches a caller that waits for it.

Owns the calls that wait, and the form of a reply. A result is lost with its caller, and
nothing else is: the task itself is settled by its own rules. Must not know how a task is run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from fifo.client import (
    Client,
    FifoError,
    InvalidArgument,
    Message,
    MessageTooLarge,
    QueueNotFound,
    Timeout,
)
from fifo.worker import bodies, limits
from fifo.worker.errors import TaskError, Unfit
from fifo.worker.replies import CORRELATION, REPLY_TO, ReplyQueue

_log = logging.getLogger("fifo.worker")


class Replies:
    """The calls of one client that wait for their results."""

    def __init__(self, client: Client) -> None:
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._queue = ReplyQueue(client, self._take, self._lost)
        self._calls = 0

    async def expect(self) -> dict[str, str]:
        """Headers of a call whose result `wait` returns."""
        queue = await self._queue.open()
        self._calls += 1
        name = str(self._calls)
        self._waiting[name] = asyncio.get_running_loop().create_future()
        return {REPLY_TO: queue, CORRELATION: name}

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

    def _lost(self, error: FifoError) -> None:
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
