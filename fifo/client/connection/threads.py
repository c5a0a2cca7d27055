"""A daemon thread with a loop of its own that runs one coroutine.

Owns the thread and its end. Must not know what runs on it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Protocol

from fifo.client import limits

_log = logging.getLogger("fifo.client")


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
