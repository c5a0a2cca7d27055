"""The blocking client in virtual time: its callers are threads that run one at a time.

The world waits while a caller runs, and a caller while the world does, so that a run is the same
each time: the threads are real, but no two of them ever run at once. Owns the threads; `Awaited`
shows the blocking client to a program of the model with its calls as coroutines. Must not know
what a program calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any

from fifo.blocking import BlockingConsumer, BlockingDurable, BlockingMessage, BlockingProducer
from node.testing.callers import Callers

PATIENCE_S = 60.0
"""Longest real time that a caller may keep the world waiting."""


class Abandoned(BaseException):
    """The world has ended, and the caller with it."""


def _late() -> None:
    raise AssertionError("a caller waits for what is no call")


def callers(loop: asyncio.AbstractEventLoop) -> Callers:
    """The callers of a loop on which `called` runs."""
    return _callers[loop]


async def called(call: Callable[[], Any]) -> Any:
    """Make a call on a thread of its own, as part of the running program."""
    loop = asyncio.get_running_loop()
    if loop not in _callers:
        _callers[loop] = Callers(loop, patience_s=PATIENCE_S, over=Abandoned, late=_late)
    turns = _callers[loop]
    done: asyncio.Future[Any] = loop.create_future()
    calls = [call]
    del call  # not kept: the world keeps its tasks, and they what the call is of

    def run() -> None:
        try:
            loop.call_soon_threadsafe(_end, done, calls.pop()(), None)
        except Abandoned:
            return
        except BaseException as error:  # its program hears it
            loop.call_soon_threadsafe(_end, done, None, error)

    job = turns.job(partial(copy_context().run, run))
    thread = threading.Thread(target=job, daemon=True)
    _threads.add(thread)
    done.add_done_callback(lambda _: _threads.discard(thread))
    thread.start()
    turns.wait_for(job)
    return await done


def _end(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)


def abandon_all() -> None:
    """End all callers: the world that they wait for is over."""
    while _callers:
        _callers.popitem()[1].close()
    while _threads:
        _threads.pop().join(PATIENCE_S)


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


_callers: dict[asyncio.AbstractEventLoop, Callers] = {}
_threads: set[threading.Thread] = set()
