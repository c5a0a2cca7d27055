"""Signals to a run: the first cancels it, a second hurries what is left to do.

Owns the handlers of the signals by which people and systems end programs. Knows nothing of the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from types import FrameType

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

EXIT_CODE = 130
"""Exit code that shells expect of a program ended by Ctrl-C."""


class Interrupts:
    """Counts signals from `caught` on. Children must not share the terminal's process group."""

    def __init__(self) -> None:
        self.count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Inside, a signal is counted, and cancels what `run` runs; it raises nothing elsewhere."""
        # A user who started this with nohup wants it to survive the terminal.
        heard = [n for n in SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._count) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on a loop of its own; CancelledError where a signal, past or to come, ends it."""
        return asyncio.run(self._watched(work))

    def hurry(self) -> bool:
        """True once somebody has asked twice."""
        return self.count > 1

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._task, self._loop = task, asyncio.get_running_loop()
        if self.count:
            task.cancel()
        return await task

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 1 and self._loop is not None and not self._loop.is_closed():
            assert self._task is not None
            self._loop.call_soon_threadsafe(self._task.cancel)
