"""The blocking client in virtual time: its callers are threads that run one at a time.

Owns the turns. The world waits while a caller runs, and a caller while the world does, so that a
run is the same each time: the threads are real, but no two of them ever run at once. `Awaited`
shows the blocking client to a program of the model with its calls as coroutines. Must not know
what a program calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from types import TracebackType
from typing import Any, TypeVar

from fifo.blocking import BlockingConsumer, BlockingDurable, BlockingMessage, BlockingProducer

_T = TypeVar("_T")

PATIENCE_S = 60.0
"""Longest real time that a caller may keep the world waiting."""


class Abandoned(BaseException):
    """The world has ended, and the caller with it."""


class Caller:
    """A thread that makes one call of the blocking client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], Any]) -> None:
        self.done: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._call = call
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._answer: tuple[Any, BaseException | None] = (None, None)
        self._work: Coroutine[Any, Any, Any] | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._abandoned = False
        context = copy_context()
        self.thread = threading.Thread(target=lambda: context.run(self._run), daemon=True)
        _callers[self.thread] = self
        self.thread.start()

    def step(self, _task: object = None) -> None:
        """Run it until it waits for the loop, or is done. On the loop's thread."""
        self._turn.release()
        assert self._back.acquire(timeout=PATIENCE_S), "a caller waits for what is no call"
        if self._work is not None:
            work, self._work = self._work, None
            self._loop.create_task(self._through(work)).add_done_callback(self.step)
            return
        self.thread.join()
        del _callers[self.thread]
        if self.done.done():
            return
        if self._error is not None:
            self.done.set_exception(self._error)
        else:
            self.done.set_result(self._result)

    def abandon(self) -> None:
        """End it where it waits: nothing runs on the loop any more."""
        self._abandoned = True
        self._turn.release()
        self.thread.join(PATIENCE_S)
        _callers.pop(self.thread, None)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Have the loop run a coroutine, and wait for it. On the caller's own thread."""
        self._work = work
        self._back.release()
        self._turn.acquire()
        if self._abandoned:
            raise Abandoned
        (found, error), self._answer = self._answer, (None, None)
        if error is not None:
            raise error
        answer: _T = found
        return answer

    async def _through(self, work: Coroutine[Any, Any, Any]) -> None:
        # The loop keeps its tasks, and so their results: a consumer has to go when it is let go.
        try:
            self._answer = await work, None
        except Exception as error:  # its caller hears it
            self._answer = None, error

    def _run(self) -> None:
        self._turn.acquire()
        if self._abandoned:
            return
        try:
            self._result = self._call()
        except Abandoned:
            return
        except BaseException as error:  # its program hears it
            self._error = error
        self._call = _nothing
        self._back.release()


class Turns:
    """`Crossing` for callers: their coroutines run on the virtual loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop | None = loop

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine over there and wait for it here."""
        return _callers[threading.current_thread()].run(work)

    def stop(self) -> None:
        """Leave the loop to the others who use it."""


async def called(call: Callable[[], Any]) -> Any:
    """Make a call on a thread of its own, as part of the running program."""
    caller = Caller(asyncio.get_running_loop(), call)
    caller.step()
    return await caller.done


def abandon_all() -> None:
    """End all callers: the world that they wait for is over."""
    for caller in list(_callers.values()):
        caller.abandon()


class Awaited:
    """An object of the blocking client whose methods are coroutines, each on a thread."""

    def __init__(self, real: Any) -> None:
        object.__setattr__(self, "real", real)

    def __repr__(self) -> str:
        return repr(self.real)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return getattr(self.real._async, name)
        found = getattr(self.real, name)
        if not callable(found) or name.startswith("on_"):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            return _shown(await called(lambda: found(*args, **options)))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.real, name, value)


class Handled:
    """The `process()` block of a blocking message, for `async with`."""

    def __init__(self, message: BlockingMessage) -> None:
        self._block = message.process()

    async def __aenter__(self) -> None:
        await called(self._block.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return bool(await called(lambda: self._block.__exit__(kind, error, trace)))


def _shown(found: Any) -> Any:
    twins = (BlockingConsumer, BlockingDurable, BlockingProducer)
    return Awaited(found) if isinstance(found, twins) else found


def _nothing() -> None:
    """Take the place of a call that is over, and of all that it keeps alive."""


_callers: dict[threading.Thread, Caller] = {}
