"""Results of tasks by reply queue: `broker.with_result_backend(FifoResultBackend())`.

Owns what the process that asked has heard, and how a worker answers it: a task carries the queue of
its process as the label `reply_to`, a result comes back to it and can be read there, and nowhere
else. Must not know how tasks are run.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from taskiq import AsyncBroker, AsyncResultBackend, TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq.exceptions import ResultBackendError, SendTaskError

import fifo
from fifo.taskiq import limits
from fifo.worker.limits import REPLY_TTL_SECONDS
from fifo.worker.replies import CORRELATION, ReplyQueue

_log = logging.getLogger("fifo.taskiq")

REPLY_TO = "reply_to"
"""Label of a task: the queue of the process that asked. An empty one asks for no result."""


class ResultMissing(ResultBackendError):  # type: ignore[misc]  # mypy reads nothing of taskiq
    """No result came, or not to this process."""

    __template__ = (
        "there is no result of task {task_id} here: it has not ended, or was sent by another"
        " process, or ended too long ago"
    )
    task_id: str


class ResultNotSent(Exception):
    """The task is done, and what it returned fits into no message."""


class FifoResultBackend(AsyncResultBackend[Any]):  # type: ignore[misc]  # mypy reads nothing of it
    """Results for the process that sent the task, for ten minutes, as often as it asks.

    Of a `FifoBroker` alone, whose client it uses. Progress is not kept.
    """

    def __init__(self) -> None:
        self._broker: AsyncBroker | None = None
        self._replies: ReplyQueue | None = None
        self._results: dict[str, tuple[float, bytes]] = {}
        """By task: until when it is kept, and the result as it came."""

    def attach(self, broker: AsyncBroker) -> None:
        """Belong to a broker: what it sends asks for a result."""
        self._broker = broker
        broker.add_middlewares(_Asking(self))

    async def startup(self) -> None:
        """Begin to ask. Raises InvalidArgument for a broker that is not fifo's."""
        if self._broker is None:
            raise fifo.InvalidArgument(
                "FifoResultBackend belongs to a fifo.taskiq.FifoBroker:"
                " broker.with_result_backend(FifoResultBackend())"
            )
        if self._replies is None:
            self._replies = ReplyQueue(self._broker.client, self._take, self._lost)

    async def shutdown(self) -> None:
        """Hear no more results."""
        replies, self._replies = self._replies, None
        if replies is not None:
            await replies.close()

    async def reply_to(self) -> str:
        """The queue of this process, which is read from now on. Raises FifoError."""
        if self._replies is None:
            raise fifo.ClientClosed("the broker is not started: await broker.startup() first")
        return await self._replies.open()

    # In a worker.

    async def set_result(self, task_id: str, result: TaskiqResult[Any]) -> None:
        """Send a result to the process that asked, if one did. Raises FifoError.

        One that no message can hold becomes an error there.
        """
        queue = result.labels.get(REPLY_TO)
        if not queue or self._broker is None:
            return
        try:
            try:
                await self._send(queue, task_id, self._encoded(result))
            except (fifo.InvalidArgument, fifo.MessageTooLarge, ResultNotSent) as error:
                _log.warning("a result cannot be sent, its task is done all the same: %s", error)
                text = f"the task is done, and its result cannot be sent: {error}"
                instead = TaskiqResult(
                    is_err=True,
                    return_value=None,
                    execution_time=result.execution_time,
                    error=ResultNotSent(text),
                )
                await self._send(queue, task_id, self._encoded(instead))
        except fifo.QueueNotFound:
            _log.debug("the process that sent task %s has gone: its result is dropped", task_id)

    def _encoded(self, result: TaskiqResult[Any]) -> bytes:
        assert self._broker is not None, "its caller looked"
        try:
            body: bytes = self._broker.serializer.dumpb(result.model_dump(mode="json"))
        except Exception as error:  # of whatever serializer the app has
            raise ResultNotSent(f"{type(error).__name__}: {error}") from error
        return body

    async def _send(self, queue: str, task_id: str, body: bytes) -> None:
        assert self._broker is not None, "its caller looked"
        headers = {CORRELATION: task_id}
        await self._broker.client.publish(queue, body, headers=headers, ttl=REPLY_TTL_SECONDS)

    # In the process that asks.

    async def is_result_ready(self, task_id: str) -> bool:
        """Whether the result has come."""
        return self._found(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[Any]:
        """The result, as often as it is asked for. Raises ResultMissing."""
        body = self._found(task_id)
        if body is None or self._broker is None:
            raise ResultMissing(task_id=task_id)
        result = TaskiqResult.model_validate(self._broker.serializer.loadb(body))
        if not with_logs:
            result.log = None
        return result

    def _found(self, task_id: str) -> bytes | None:
        until, body = self._results.get(task_id, (0.0, None))
        return body if asyncio.get_running_loop().time() < until else None

    def _take(self, message: fifo.Message) -> None:
        now = asyncio.get_running_loop().time()
        for task_id, (until, _) in list(self._results.items()):
            if until > now and len(self._results) < limits.RESULTS_MAX:
                break
            del self._results[task_id]
        task_id = message.headers.get(CORRELATION, "")
        self._results[task_id] = (now + limits.RESULT_S, bytes(message.body))

    def _lost(self, error: fifo.FifoError) -> None:
        if not isinstance(error, fifo.ClientClosed):
            _log.warning("results that were on their way are lost: %s", error)


class _Asking(TaskiqMiddleware):  # type: ignore[misc]  # mypy reads nothing of taskiq
    """Labels what is sent with the queue of its process; a retry keeps that of the first."""

    def __init__(self, backend: FifoResultBackend) -> None:
        super().__init__()
        self._backend = backend

    async def pre_send(self, message: TaskiqMessage) -> TaskiqMessage:
        """Ask for the result. Raises SendTaskError, as taskiq does where it cannot send."""
        if REPLY_TO not in message.labels:
            try:
                message.labels[REPLY_TO] = await self._backend.reply_to()
            except fifo.FifoError as error:
                raise SendTaskError from error
        return message
