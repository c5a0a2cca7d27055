"""An event loop that skips waiting: its clock jumps ahead while nothing happens.

Owns the clock that loop and nodes share, and that no time is skipped while a thread works for the
loop; when and how far the clock jumps is the rule of `node.testing.looks`. Sockets, disks and
threads are real, and what they take passes as ever, so that elections, deadlines and heartbeats
come in their order within milliseconds. Must not know what runs on it; a client with a thread of
its own does not belong here, for that has another clock.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from node.raft import WorkerThread
from node.server import Environment
from node.testing.looks import jump, look

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Waits for events, or moves the clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0
        self.threads = 0
        """Jobs on threads that are under way."""

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0 or self.threads:
            return super().select(timeout)
        events = look(self, super().select, timeout)
        if not events:
            self.skipped_s += jump(timeout)
        return events


class SkippingLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._skipping = _Selector()
        super().__init__(self._skipping)

    def time(self) -> float:
        """The clock: seconds that passed, and those that were skipped."""
        return time.monotonic() + self._skipping.skipped_s

    def run_in_executor(  # type: ignore[override]  # typeshed's is generic in the arguments
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """As ever, and no time is skipped until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self._skipping.threads += 1
        future.add_done_callback(self._ended)
        return future

    def environment(self) -> Environment:
        """The environment of a node on this loop."""
        return Environment(clock=self.time, worker=lambda name: _Thread(name, self._skipping))

    def _ended(self, _: asyncio.Future[Any]) -> None:
        self._skipping.threads -= 1


class IdleClockLoop(SkippingLoop):
    """A loop whose time passes only while nothing happens.

    No stall of the machine brings a deadline before an answer that is on its way.
    """

    def time(self) -> float:
        """The clock: seconds that were skipped."""
        return self._skipping.skipped_s


class _Thread(WorkerThread):
    """A worker during whose jobs no time is skipped."""

    def __init__(self, name: str, skipping: _Selector) -> None:
        super().__init__(name)
        self._skipping = skipping
        self._under_way = 0

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """See `WorkerThread.run`."""

        def ended(error: BaseException | None) -> None:
            self._count(-1)
            done(error)

        super().run(work, ended)
        self._count(1)

    def close(self) -> None:
        """See `WorkerThread.close`: no job ends after it."""
        super().close()
        self._count(-self._under_way)

    def _count(self, more: int) -> None:
        self._under_way += more
        self._skipping.threads += more
