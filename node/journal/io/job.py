"""Blocking work as an object that an event loop can hand to a worker thread, and wait for.

Owns the handshake between the two threads: the first to come does the work, the other waits for
it. Must not know records or files; its maker decides what a finished job means.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

T = TypeVar("T")


class Job(Generic[T]):
    """Work that is done once, on any thread. It touches nothing that others touch meanwhile."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._lock = threading.Lock()
        self._result: Any = None
        self.error: Exception | None = None

    def __repr__(self) -> str:
        state = "pending" if self._work is not None else "failed" if self.error else "begun"
        return f"<{type(self).__name__} {state}>"

    def run(self) -> None:
        """Do the work once, on this thread or another, and return when it is done; never raises."""
        with self._lock:
            work, self._work = self._work, None
            if work is None:
                return
            try:
                self._result = work()
            except Exception as error:
                self.error = error

    def result(self) -> T:
        """Return what the work returned, or raise what it raised; does the work, or waits for it,
        as `run` does."""
        self.run()
        if self.error is not None:
            raise self.error
        result: T = self._result
        return result

    def cancel(self, *, wait: bool = True) -> None:
        """Drop work that has not begun. Wait for work that has, or with `wait` false leave it."""
        if self._lock.acquire(blocking=wait):
            self._work = None
            self._lock.release()


OffLoop = Generator[Job[Any], None, T]
"""A generator that yields each job it waits for, and returns a T. Its driver runs the job, on any
thread, and resumes the generator when that is done (`steps.py`)."""


def off_loop(work: Callable[[], T]) -> OffLoop[T]:
    """Run `work` off the event loop and return its result; raises what it raised.

    Closed meanwhile, it waits for work that has begun: that may be writing.
    """
    job = Job(work)
    yield from submit(job, wait=True)
    return job.result()


def read_off_loop(
    work: Callable[[], T],
    final: Callable[[], AbstractContextManager[None]],
    exists: Callable[[], bool],
) -> OffLoop[T | None]:
    """Run `work`, which reads through descriptors of its own, off the event loop; its result.

    None where a file is gone and does not have to exist any more. What else it raises is raised
    inside of `final`. Closed meanwhile, it waits for nothing.
    """
    job = Job(work)
    yield from submit(job, wait=False)
    with final():
        try:
            return job.result()
        except FileNotFoundError:
            if exists():
                raise
            return None


def submit(job: Job[Any], *, wait: bool) -> OffLoop[None]:
    """Yield `job`; closed before that is done, cancel it, see `Job.cancel` for `wait`."""
    try:
        yield job
    except BaseException:
        job.cancel(wait=wait)
        raise
