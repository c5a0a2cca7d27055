"""Workers: threads for blocking file work, off the event loop.

Owns where such work runs and on which thread its completion is reported. Must not know files or
Raft: the work is a call, and touches nothing that the event loop touches meanwhile. Each worker
does one thing after the other; work that must not wait for other work needs a worker of its own.
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
    """Runs blocking calls one after the other, in the order of submission."""

    def run(self, work: Work, done: Done) -> None:
        """Do `work`, then call `done(error)` on the event loop: None, or what `work` raised.

        `done` may be called before this returns. After `close` it is not called any more.
        """

    def close(self) -> None:
        """Return when nothing runs any more; work that has not begun is dropped."""


class Inline:
    """Does the work within `run`, on the caller's thread: for tests, simulation and fast disks."""

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
    """A thread for the running event loop; debuggers and profilers show its `name`."""

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
