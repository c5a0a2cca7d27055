"""Tasks: a handler with its queue and its rules, and the way to send to it.

Owns the options of a task and their checks. Must not know how a message is run or settled.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypedDict, TypeVar, overload

from fifo.client import Backoff, Confirm, InvalidArgument, QueueSpec
from fifo.client.backoff import BackoffCallable, parse
from fifo.client.durations import Duration, patience, seconds
from fifo.words import bounds
from fifo.worker import limits
from fifo.worker.arguments import Parameters, parameters_of
from fifo.worker.errors import BadTask, TaskError, Unfit
from fifo.worker.sending import RESERVED, Sender, SendOptions

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Place: TypeAlias = Literal["loop", "thread", "process"]
"""Where a handler runs: on the event loop, in a thread, in a process of its own."""


class TaskOptions(TypedDict, total=False):
    """Options of `app.task`."""

    name: str
    retry: Backoff | BackoffCallable | str | None
    max_deliveries: int | None
    time_limit: Duration | None
    soft_time_limit: Duration | None
    runs: Place


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of a task, checked; times in seconds."""

    retry: BackoffCallable | None
    max_deliveries: int | None
    time_limit_s: float | None
    soft_time_limit_s: float | None
    runs: Place


class Task(Generic[P, R]):
    """A handler and its queue. Calling it calls the handler; `send` sends to it."""

    def __init__(
        self,
        name: str,
        handler: Callable[P, R],
        queue: QueueSpec,
        rules: Rules,
        sender: Sender,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        """`names` are those that the handler's annotations may use beside its module's."""
        self.name = name
        self.handler = handler
        self.queue = queue
        self.rules = rules
        self._sender = sender
        self._names = names
        functools.update_wrapper(self, handler)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} of {self.queue.name}>"

    @functools.cached_property
    def parameters(self) -> Parameters:
        """The parameters of the handler. Raises BadTask."""
        found = parameters_of(self.handler, self.name, self._names)
        taken = sorted(RESERVED & {*found.converters})
        if taken:
            raise BadTask(
                f"task {self.name}: parameter {taken[0]!r} is an option of send: give it another"
                " name"
            )
        if found.messages and self.rules.runs == "process":
            raise BadTask(
                f"task {self.name}: runs in a process of its own, where there is no message:"
                f" leave {found.messages[0]!r} out, or use runs='thread'"
            )
        return found

    async def send(
        self,
        *args: Any,
        headers: Mapping[str, str] | None = None,
        key: str | bytes | None = None,
        delay: Duration | None = None,
        priority: int = bounds.PRIORITY_DEFAULT,
        ttl: Duration | None = None,
        dedup_id: str | bytes | None = None,
        timeout: Duration | None = None,
        **kwargs: Any,
    ) -> Confirm:
        """Send a message for this task; return once it is on the disks of a majority.

        Arguments as the handler takes them, without what the worker gives; the options are those
        of `client.publish`. Raises InvalidArgument for arguments that do not fit.
        """
        options: SendOptions = {
            "key": key,
            "delay": delay,
            "priority": priority,
            "ttl": ttl,
            "dedup_id": dedup_id,
            "timeout": timeout,
        }
        bound = self.parameters.bind(self.name, args, kwargs)
        return await self._sender.publish(self.name, self.queue, bound, headers, **options)

    @overload
    async def call(
        self: Task[P, Coroutine[Any, Any, T]],
        *args: Any,
        headers: Mapping[str, str] | None = None,
        timeout: Duration = limits.CALL_SECONDS,
        **kwargs: Any,
    ) -> T: ...

    @overload
    async def call(
        self,
        *args: Any,
        headers: Mapping[str, str] | None = None,
        timeout: Duration = limits.CALL_SECONDS,
        **kwargs: Any,
    ) -> R: ...

    async def call(
        self,
        *args: Any,
        headers: Mapping[str, str] | None = None,
        timeout: Duration = limits.CALL_SECONDS,
        **kwargs: Any,
    ) -> Any:
        """Send a message for this task, and wait for what the handler returns.

        Raises TaskError where it ended as a dead letter, or its result cannot be sent; Timeout
        where there is no result in time: the task may still be run.
        """
        patience_s = patience(timeout)
        replies = self._sender.replies
        own = await replies.expect()
        try:
            bound = self.parameters.bind(self.name, args, kwargs)
            both = {**(headers or {}), **own}
            await self._sender.publish(self.name, self.queue, bound, both, timeout=timeout)
        except BaseException:
            replies.forget(own)
            raise
        result = await replies.wait(own, patience_s)
        try:
            return self.parameters.result(result)
        except Unfit as error:
            raise TaskError(f"task {self.name}: its result does not fit: {error}") from error


def rules(handler: Callable[..., Any], options: TaskOptions, task: str) -> Rules:
    """Check the options of a task. Raises BadTask or InvalidArgument."""
    unknown = sorted(options.keys() - TaskOptions.__annotations__.keys())
    if unknown:
        known = ", ".join(TaskOptions.__annotations__)
        raise BadTask(f"task {task}: there is no option {unknown[0]!r}; there are: {known}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise BadTask(f"task {task}: a handler returns, and does not yield")
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - of an object with an async __call__
    )
    place = options.get("runs", "loop" if is_async else "process")
    if (place == "loop") != is_async or place not in ("loop", "thread", "process"):
        fitting = "'loop'" if is_async else "'thread' or 'process'"
        kind = "async def" if is_async else "def"
        raise BadTask(
            f"task {task}: runs={place!r:.40} does not fit a handler with `{kind}`, which"
            f" runs in {fitting}"
        )
    most = options.get("max_deliveries")
    if most is not None and (type(most) is not int or not 1 <= most <= bounds.MAX_DELIVERIES_MAX):
        raise BadTask(
            f"task {task}: max_deliveries must be from 1 to {bounds.MAX_DELIVERIES_MAX}, not"
            f" {most!r:.40}"
        )
    hard = _limit(options.get("time_limit"), f"task {task}: time_limit")
    soft = _limit(options.get("soft_time_limit"), f"task {task}: soft_time_limit")
    if soft is not None and place == "thread":
        raise BadTask(
            f"task {task}: nothing interrupts a thread: soft_time_limit is for runs='process'"
        )
    if hard is not None and soft is not None and soft >= hard:
        raise BadTask(
            f"task {task}: soft_time_limit ({soft:g} s) must be below time_limit ({hard:g} s)"
        )
    return Rules(_retry(options.get("retry"), task), most, hard, soft, place)


def _limit(value: Duration | None, what: str) -> float | None:
    if value is None:
        return None
    found = seconds(value, what)
    if not found:
        raise BadTask(f"{what}: must be above 0")
    return found


def _retry(retry: Any, task: str) -> BackoffCallable | None:
    if retry is None:
        return None
    if isinstance(retry, str):
        retry = parse(retry, f"task {task}: retry")
    if isinstance(retry, Backoff):
        return retry.delay_s
    if not callable(retry):
        raise InvalidArgument(
            f"task {task}: retry must be Fixed, Exponential, Table, a text form or a callable of"
            f" the failures so far, not {type(retry).__name__}"
        )
    chosen: BackoffCallable = retry
    return chosen


AnyTask: TypeAlias = Task[..., Any]
