"""Blocking file work beside the loop's thread: a sync, a compaction copy, a snapshot's fsync.

Owns where such work runs and on which thread its end is told. Knows neither files nor Raft: the
work is a call, and must touch nothing that the loop's thread touches meanwhile. Work that must not
wait for other work needs an `Worker` of its own: each does one thing after the other.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[], None]
    Done = Callable[[BaseException | None], None]


class Worker(Protocol):
    """Runs blocking work, one piece after the other, in the order of asking."""

    def run(self, work: Work, done: Done) -> None:
        """Do `work`, then call `done(error)` on the loop's thread: None, or what `work` raised.

        `done` may be called before this returns. After `close` it is not called any more.
        """

    def close(self) -> None:
        """Returns when nothing runs any more; work that has not begun is dropped."""


class Inline:
    """Does the work at once, on the caller's thread: tests, simulation, and fast disks."""

    def run(self, work: Work, done: Done) -> None:
        """See `Worker.run`; `done` has been called when this returns."""
        try:
            work()
        except Exception as error:
            done(error)
        else:
            done(None)

    def close(self) -> None:
        """Nothing runs between two calls."""


class WorkerThread:
    """One thread beside the running loop; `name` is what debuggers and profilers show."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._closed = False

    def run(self, work: Work, done: Done) -> None:
        """See `Worker.run`. Raises RuntimeError after `close`."""

        def tell(error: BaseException | None) -> None:
            if not self._closed:
                done(error)

        def ended(future: Future[None]) -> None:
            if not self._closed:
                self._loop.call_soon_threadsafe(tell, future.exception())

        self._executor.submit(work).add_done_callback(ended)

    def close(self) -> None:
        """See `Worker.close`: waits for what runs, as long as the disk takes."""
        self._closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)
