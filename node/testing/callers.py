"""Threads that call into an event loop whose time is virtual, and wait there for the answers.

Owns the turns. A thread that has its answer runs, and the loop waits for it: until it calls again,
or ends, or its patience is over, so that a run is the same each time where threads do nothing
between two calls that takes long. Must not know what is called, nor how time passes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")


class Job:
    """A function on a thread, from its request to its end."""

    def __init__(self, callers: Callers, function: Callable[..., Any]) -> None:
        self._callers = callers
        self._function = function

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Do it, on the thread."""
        _now.job = self
        try:
            return self._function(*args, **options)
        finally:
            del _now.job
            self._callers.left(self)


class Call:
    """A coroutine that a thread waits for."""

    def __init__(self, work: Coroutine[Any, Any, Any], caller: object) -> None:
        self.work = work
        self.caller = caller
        self.task: asyncio.Task[None] | None = None
        self.ended = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    async def through(self) -> None:
        """Run it. The loop may keep its tasks, and so their results: this one has none."""
        try:
            self._result = await self.work
        except BaseException as error:  # its caller hears it
            if not self.ended.is_set():
                self._error = error

    def fail(self, error: BaseException) -> None:
        """End the wait: no answer comes."""
        self._error = error
        self.ended.set()

    def cancel(self) -> None:
        """End the coroutine, on its loop: its caller does not wait any more."""
        if self.task is None:
            self.work.close()
        else:
            self.task.cancel()

    def answer(self) -> Any:
        """Return what the coroutine did; raise what it raised."""
        result, self._result = self._result, None
        error, self._error = self._error, None
        if error is None:
            return result
        try:
            raise error
        finally:
            del error


class Callers:
    """`Crossing` of the client to one loop, for any number of threads.

    `patience_s`: the longest real time for which the loop waits for a thread; then it calls `late`.
    `over` makes the error of calls that get no answer, since the loop has ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        patience_s: float,
        over: Callable[[], BaseException],
        late: Callable[[], None] = lambda: None,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop | None = loop
        self._thread = threading.current_thread()
        self._patience_s = patience_s
        self._over = over
        self._late = late
        self._changed = threading.Condition()
        self._running: dict[object, None] = {}
        """Jobs, and other threads that have called before, while they are not in a call."""
        self._calls: dict[Call, None] = {}

    @property
    def waiting(self) -> bool:
        """Whether a thread waits for an answer."""
        return bool(self._calls)

    @property
    def running(self) -> bool:
        """Whether a job, or a thread that has called before, runs and waits for no answer."""
        with self._changed:
            for one in list(self._running):
                if isinstance(one, threading.Thread) and not one.is_alive():
                    del self._running[one]
            return bool(self._running)

    def job(self, function: Callable[..., Any]) -> Job:
        """Count a function that is about to run on a thread as running: call the result there."""
        made = Job(self, function)
        with self._changed:
            self._running[made] = None
        return made

    def left(self, caller: object) -> None:
        """Count a caller as running no more: it calls, or has ended."""
        with self._changed:
            self._running.pop(caller, None)
            self._changed.notify_all()

    def wait_for(self, caller: object) -> None:
        """Block the loop's thread until a caller calls or ends."""
        with self._changed:
            in_time = self._changed.wait_for(lambda: not self._runs(caller), self._patience_s)
        if not in_time:
            self._late()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine over there and wait for it here; Ctrl-C cancels it."""
        thread = threading.current_thread()
        call = Call(work, getattr(_now, "job", thread))
        with self._changed:
            loop = self.loop
            if loop is None or thread is self._thread:
                work.close()
                raise self._over()
            self._calls[call] = None
            loop.call_soon_threadsafe(self._begin, call)
        self.left(call.caller)
        try:
            call.ended.wait()
        except BaseException:
            loop.call_soon_threadsafe(call.cancel)
            raise
        found: _T = call.answer()
        return found

    def stop(self) -> None:
        """Leave the loop to the others who use it."""

    def close(self) -> None:
        """End all calls: the loop that they wait for has ended. On the loop's thread."""
        with self._changed:
            self.loop = None
            calls, self._calls = self._calls, {}
        for call in calls:
            call.cancel()
            call.fail(self._over())

    def _runs(self, caller: object) -> bool:
        alive = not isinstance(caller, threading.Thread) or caller.is_alive()
        return caller in self._running and alive

    def _begin(self, call: Call) -> None:
        if call not in self._calls:
            return  # closed
        call.task = asyncio.get_running_loop().create_task(call.through())
        call.task.add_done_callback(partial(self._ended, call))

    def _ended(self, call: Call, _: object) -> None:
        if self._calls.pop(call, self) is self:
            return  # closed
        with self._changed:
            self._running[call.caller] = None
        call.ended.set()
        self.wait_for(call.caller)


class _Now(threading.local):
    """The job of this thread, while it has one."""

    job: Job


_now = _Now()
