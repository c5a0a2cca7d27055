"""Events on a message that any thread may set and anybody may look at or wait for.

Owns the crossing from the control thread to the loop of the waiting task. Must not know messages.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("fifo.client")


class Signal:
    """Set once, for ever. `is_set()` and `wait_blocking()` from any thread, `wait()` on a loop."""

    __slots__ = ("_callbacks", "_flag")

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._callbacks: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return self._flag.is_set()

    def __repr__(self) -> str:
        return f"<signal {'set' if self else 'not set'}>"

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._flag.is_set()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback()` when it happens, on the thread that finds out; at once if it has."""
        self._callbacks.append(callback)
        if self._flag.is_set():
            self._run()

    def remove_callback(self, callback: Callable[[], object]) -> None:
        """Forget a callback; one that has run is gone already."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def set(self) -> None:
        """Set it, and run the callbacks."""
        self._flag.set()
        self._run()

    def _run(self) -> None:
        while self._callbacks:
            try:
                # Two threads may get here together: each callback goes to one of them.
                callback = self._callbacks.pop()
            except IndexError:
                return
            try:
                callback()
            except Exception:
                _log.exception("a callback of a message's event failed")

    async def wait(self) -> bool:
        """Wait until it happens."""
        if self._flag.is_set():
            return True
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        self.add_callback(wake)
        try:
            await woken.wait()
        finally:
            self.remove_callback(wake)
        return True

    def wait_blocking(self, timeout: float | None = None) -> bool:
        """Wait on this thread, at most `timeout` seconds; whether it has happened."""
        return self._flag.wait(timeout)
