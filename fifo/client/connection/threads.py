"""Daemon threads with a loop of their own: for one coroutine, or for the calls of other threads.

Owns the threads and their ends. Must not know what runs on them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from fifo.client import limits
from fifo.client.errors import ClientClosed

_log = logging.getLogger("fifo.client")
_T = TypeVar("_T")

_JOIN_S: Final = 5.0
"""Seconds that closing waits for the thread of a blocking client to end."""


class OwnLoop(Protocol):
    """Runs one coroutine where the user's loop cannot hold it up."""

    def start(self, main: Callable[[], Coroutine[object, object, None]]) -> None:
        """Begin to run `main()`; called once."""

    async def join(self) -> None:
        """Wait until it has ended, without blocking the loop that asks."""


class LoopThread:
    """`OwnLoop` as programs have it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self, main: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=_run, args=(main,), name="fifo control", daemon=True)
        self._thread.start()

    async def join(self) -> None:
        """Wait for its end, `THREAD_JOIN_S` at most."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, limits.THREAD_JOIN_S)


class SameLoop:
    """`OwnLoop` in a test whose time is virtual: one loop for all, for it has one clock."""

    def start(self, main: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run it beside the user's tasks."""
        self._task = asyncio.get_running_loop().create_task(main())

    async def join(self) -> None:
        """Wait until it has ended."""
        await asyncio.gather(self._task, return_exceptions=True)


class Crossing(Protocol):
    """Takes calls of threads to the event loop of a blocking client, and their results back."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop; None once there is none."""

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine over there and wait for it here."""

    def stop(self) -> None:
        """End the loop: no call comes any more."""


class CallerThread:
    """`Crossing` as programs have it: a thread with an event loop."""

    def __init__(self, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        self._factory = loop_factory
        self._ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="fifo blocking", daemon=True)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._factory) as runner:
            loop = self.loop = runner.get_loop()
            loop.call_soon(self._ready.set)
            loop.run_forever()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine over there and wait for it here; Ctrl-C cancels it."""
        loop = self.loop
        if loop is None or not self._thread.is_alive() or loop.is_closed():
            work.close()
            raise ClientClosed("the client is closed, or was made before a fork: connect again")
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientClosed(
                "a blocking call from a callback of the client would never return:"
                " call it from another thread"
            )
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread."""
        loop = self.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(_JOIN_S)


def call_in(
    loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: object
) -> None:
    """Run a callback on another thread's loop, unless that has ended: it may at any moment."""
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _run(main: Callable[[], Coroutine[object, object, None]]) -> None:
    # A loop of asyncio's own, whatever the program has made the default: it does little.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        try:
            runner.run(main())
        except asyncio.CancelledError:
            _log.debug("the control thread ends")
