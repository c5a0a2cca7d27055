"""The way of a message to its settlement: find the task, read the body, run, settle.

Owns the rule by which each outcome settles the message, and the one line that each failure logs.
Must not know consumers, or how many messages are at work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from fifo.client import FifoError, LockLost, Message, NoDeadLetterQueue, Status, Terminal
from fifo.client.durations import Duration, seconds
from fifo.worker import bodies, limits
from fifo.worker.dependencies import Dependencies
from fifo.worker.errors import Refused, Retry, TimeLimit, Unfit, UnknownTask
from fifo.worker.failures import line, own
from fifo.worker.middleware import Middleware, Run
from fifo.worker.replies import REPLY_TO
from fifo.worker.sending import CONTENT_TYPE, TASK
from fifo.worker.tasks import AnyTask

_log = logging.getLogger("fifo.worker")

Elsewhere = Callable[[AnyTask, dict[str, Any], Message], Awaitable[Any]]
"""Runs a handler in a process, which makes what it depends on, within its time limits; arguments
are those of its body."""

Answer = Callable[[Mapping[str, str], Mapping[str, Any]], Awaitable[None]]
"""Takes the headers of a message, and the result or error of its task."""


class Runner:
    """Runs the messages of one worker; `tasks` are those of its app."""

    def __init__(
        self,
        tasks: Mapping[str, AnyTask],
        middleware: Sequence[Middleware],
        dependencies: Dependencies,
        elsewhere: Elsewhere | None,
        answer: Answer,
    ) -> None:
        """`answer` publishes the end of a task to the caller that its message names."""
        self._tasks = tasks
        self._alone = _only_ones(tasks)
        self._before = [one.before for one in middleware if _has(one, "before")]
        self._after = [one.after for one in reversed(middleware) if _has(one, "after")]
        self._error = [one.error for one in reversed(middleware) if _has(one, "error")]
        self._dependencies = dependencies
        self._elsewhere = elsewhere
        self._answer = answer
        self._left: set[asyncio.Task[Any]] = set()
        self.at_work = 0
        self.limits: dict[str, int] = {}
        """Most deliveries of the queues that have such a limit."""

    async def run(self, message: Message) -> None:
        """Run one message and settle it. Raises nothing but CancelledError, and releases then."""
        self.at_work += 1
        try:
            async with message.process(cancel_on_lock_lost=True):
                try:
                    await self._handled(message)
                except FifoError as error:
                    _log.error("%r could not be settled: %s", message, error)
                    if not message.settled:  # else the end of this block would be an ack
                        await message.nack(reason=str(error), receipt=False)
        except LockLost as error:
            _log.warning("%s; stopped, for another worker may have it", error)
        finally:
            self.at_work -= 1

    async def _handled(self, message: Message) -> None:
        try:
            task, arguments, asks = self._read(message)
        except UnknownTask as error:
            await self._not_here(message, error)
            return
        except Refused as error:
            await self._dead(message, error.reason, error.description, None)
            return
        try:
            result = await self._called(task, message, arguments)
        except UnknownTask as error:  # of a process with other code than ours
            await self._not_here(message, error)
        except Terminal as error:
            cause = error.__cause__ or error
            await self._dead(message, error.reason, error.description, cause, task)
        except Retry as error:
            await self._failed(task, message, error, error.delay)
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise
            await self._failed(task, message, error)  # of a future that it waited for
        except (Exception, SystemExit) as error:
            await self._failed(task, message, error)
        else:
            if asks:
                await self._reply(message.headers, {"result": result})
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("task %s done", task.name, extra=_about(task, message))

    # Before the handler.

    def _read(self, message: Message) -> tuple[AnyTask, dict[str, Any], bool]:
        """The task of a message, its arguments, and whether a caller waits."""
        headers = message.headers
        name = headers.get(TASK)
        task = self._alone.get(message.queue) if name is None else self._tasks.get(name)
        if task is None:
            what = "without the header 'task'" if name is None else f"of task {name!r:.80}"
            raise UnknownTask(f"{message!r} is {what}, which this worker does not have")
        try:
            payload = bodies.decode(message.body, headers.get(CONTENT_TYPE))
            found = task.parameters
            convert = found.convert_alone if name is None else found.convert
            return task, convert(payload), REPLY_TO in headers
        except Unfit as error:
            raise Refused("arguments do not fit", f"task {task.name}: {error}") from error

    # The handler.

    async def _called(self, task: AnyTask, message: Message, arguments: dict[str, Any]) -> Any:
        if not self._before and not self._after and not self._error:
            return await self._limited(task, message, arguments)
        run = Run(task.name, message, arguments)
        try:
            for before in self._before:
                await before(run)
            result = await self._limited(task, message, arguments)
        except (Exception, SystemExit) as error:
            for look in self._error:
                await _looked(look(run, error))
            raise
        for after in self._after:
            await _looked(after(run, result))
        return result

    async def _limited(self, task: AnyTask, message: Message, arguments: dict[str, Any]) -> Any:
        if self._elsewhere is not None and task.rules.runs == "process":
            return await self._elsewhere(task, arguments, message)
        if task.rules.time_limit_s is None:
            return await self._softly(task, message, arguments)
        work = asyncio.ensure_future(self._softly(task, message, arguments))
        try:
            await asyncio.wait({work}, timeout=task.rules.time_limit_s)
            if work.done():
                return work.result()
        finally:
            if not work.done():
                self._leave(task, work)
        raise TimeLimit(f"over its time limit of {task.rules.time_limit_s:g} s")

    def _leave(self, task: AnyTask, work: asyncio.Task[Any]) -> None:
        """Cancel a handler and wait no longer for it: its message is settled without it."""
        work.cancel()
        self._left.add(work)

        def ended(_: object) -> None:
            self._left.discard(work)
            if not work.cancelled() and work.exception() is not None:
                _log.info("task %s ended after it was given up: %r", task.name, work.exception())

        work.add_done_callback(ended)

    async def _softly(self, task: AnyTask, message: Message, arguments: dict[str, Any]) -> Any:
        soft_s = task.rules.soft_time_limit_s
        if soft_s is None or task.rules.runs != "loop":
            return await self._provided(task, message, arguments)
        try:
            async with asyncio.timeout(soft_s) as limit:
                return await self._provided(task, message, arguments)
        except TimeoutError:
            if limit.expired():
                raise TimeLimit(f"over its soft time limit of {soft_s:g} s") from None
            raise

    async def _provided(self, task: AnyTask, message: Message, arguments: dict[str, Any]) -> Any:
        found = task.parameters
        for name in found.messages:
            arguments[name] = message
        if not found.dependencies:
            return await _invoked(task, arguments)
        async with AsyncExitStack() as stack:
            arguments.update(await self._dependencies.fill(stack, found.dependencies))
            return await _invoked(task, arguments)

    # After the handler.

    async def _failed(
        self, task: AnyTask, message: Message, error: BaseException, delay: Duration | None = None
    ) -> None:
        if message.settled:
            _log.warning(
                "task %s failed after it had settled its message: %r",
                task.name,
                error,
                extra=_about(task, message),
            )
            return
        failures = message.failures
        most = task.rules.max_deliveries or self.limits.get(message.queue)
        words = line(error)
        if most is not None and failures + 1 >= most:
            what = f"failed {failures + 1} of {most} times"
            await self._dead(message, "max_deliveries", what, error, task)
            return
        if delay is None:
            delay = _delay(task, failures)
        when = "by the queue's backoff" if delay is None else f"in {seconds(delay, 'delay'):g} s"
        _log.warning(
            "task %s failed, again %s (%d of %s): %s",
            task.name, when, failures + 1, most or "any", words, extra=_about(task, message),
            exc_info=own(error) if _log.isEnabledFor(logging.DEBUG) else None,
        )  # fmt: skip
        await message.nack(delay, words, receipt=False)

    async def _dead(
        self,
        message: Message,
        reason: str,
        description: str | None,
        error: BaseException | None,
        task: AnyTask | None = None,
    ) -> None:
        if message.settled:
            return
        if error is not None:
            error = own(error)
        name = message.headers.get(TASK, "-") if task is None else task.name
        try:
            result = await message.terminate(reason, description, error)
        except NoDeadLetterQueue:
            delay_s = limits.NO_DEAD_LETTER_DELAY_SECONDS
            _log.error(
                "task %s: %s: %s; queue %s has no dead-letter queue, so the message stays in it:"
                " again in %g s", name, reason, description, message.queue, delay_s,
                extra=_about(task, message), exc_info=error,
            )  # fmt: skip
            await message.release(delay_s)
            return
        headers = message.headers
        if REPLY_TO in headers:
            words = "" if error is None else f": {type(error).__name__}: {error}"
            await self._reply(headers, {"error": f"{reason}: {description}{words}"})
        if result.status is not Status.OK:
            _log.warning(
                "task %s: message %s is not terminated: %s", name, message.id, result.status
            )
            return
        _log.error(
            "task %s: message %s is dead: %s: %s",
            name,
            message.id,
            reason,
            description,
            extra=_about(task, message),
            exc_info=error,
        )

    async def _reply(self, headers: Mapping[str, str], ending: Mapping[str, Any]) -> None:
        """Answer the caller; a task is done also where that fails."""
        try:
            await self._answer(headers, ending)
        except FifoError as error:
            _log.warning("the caller of a task gets no result: %s", error)

    async def _not_here(self, message: Message, error: UnknownTask) -> None:
        """Give it back for a while: during a deployment, a worker with other code knows it."""
        if message.attempt >= limits.UNKNOWN_TASK_DELIVERIES:
            await self._dead(message, "unknown task", str(error), None)
            return
        delay_s = limits.UNKNOWN_TASK_DELAY_SECONDS
        _log.warning("%s; given back for %g s", error, delay_s, extra=_about(None, message))
        await message.release(delay_s, receipt=False)


async def _invoked(task: AnyTask, arguments: dict[str, Any]) -> Any:
    if task.rules.runs == "loop":
        return await task.handler(**arguments)
    return await asyncio.to_thread(task.handler, **arguments)


def _only_ones(tasks: Mapping[str, AnyTask]) -> dict[str, AnyTask]:
    """By queue, the task of those with one task alone."""
    found: dict[str, list[AnyTask]] = {}
    for task in tasks.values():
        found.setdefault(task.queue.name, []).append(task)
    return {queue: own[0] for queue, own in found.items() if len(own) == 1}


def _has(middleware: Middleware, name: str) -> bool:
    return getattr(type(middleware), name) is not getattr(Middleware, name)


async def _looked(look: Awaitable[None]) -> None:
    try:
        await look
    except Exception:
        _log.exception("a middleware failed")


def _delay(task: AnyTask, failures: int) -> Duration | None:
    retry = task.rules.retry
    if retry is None:
        return None
    try:
        delay = retry(failures)
        seconds(delay, "retry")
    except Exception:
        _log.exception("the retry of task %s failed; the queue's backoff is used", task.name)
        return None
    return delay


def _about(task: AnyTask | None, message: Message) -> dict[str, Any]:
    """Fields of a log record, for a formatter that shows them."""
    return {
        "fifo": {
            "task": message.headers.get(TASK) if task is None else task.name,
            "message": message.id,
            "queue": message.queue,
            "attempt": message.attempt,
        }
    }
