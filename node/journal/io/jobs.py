"""Blocking work off the event loop: jobs, workers that run them, and steps that wait for them.

Owns the handshake between the two threads (the first to come does the work, the other waits for
it), where work runs and on which thread its completion is reported, and the driver of generators
that yield jobs: which one is in progress, the one job that it waits for, and resuming it when that
is done. The work itself is the caller's: it touches nothing that the event loop touches meanwhile,
and its maker decides what a finished job means. Each worker does one thing after the other; work
that must not wait for other work needs a worker of its own. Must not know files, records or Raft.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


T = TypeVar("T")

Done: TypeAlias = "Callable[[BaseException | None], None]"
"""Gets the error of a call that has ended; None where it has done its work."""


class Worker(Protocol):
    """Runs blocking calls one after the other, in the order of submission."""

    def run(self, work: Callable[[], None], done: Done) -> None:
        """Do `work`, then call `done(error)` on the event loop: None, or what `work` raised.

        `done` may be called before this returns. After `close` it is not called any more.
        """

    def close(self) -> None:
        """Return when nothing runs any more; work that has not begun is dropped."""


class Inline:
    """Does the work within `run`, on the caller's thread: for tests, simulation and fast disks."""

    def run(self, work: Callable[[], None], done: Done) -> None:
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

    def run(self, work: Callable[[], None], done: Done) -> None:
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
thread, and resumes the generator when that is done (`Steps`)."""


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


Work = Generator[Job[Any] | None]
"""Work in slices: yields None where a turn may come between, and every job it waits for."""


class Steps(Generic[T]):
    """Drives one generator at a time, or none, and runs its jobs on a worker."""

    def __init__(self, worker: Worker, resume: Callable[[], None]) -> None:
        """`resume` is called when a job has ended, unless that was within `step`; `step` has to
        follow it."""
        self._worker = worker
        self._resume = resume
        self._generator: Generator[Job[Any] | T] | None = None
        self._job: Job[Any] | None = None
        self._stepping = False

    def __repr__(self) -> str:
        return f"<Steps {'idle' if self.idle else 'waiting' if self.waiting else 'runnable'}>"

    @property
    def idle(self) -> bool:
        """Whether there is no generator, or it has ended."""
        return self._generator is None

    @property
    def waiting(self) -> bool:
        """Whether a job is under way: nothing that it touches may be touched."""
        return self._job is not None

    @property
    def runnable(self) -> bool:
        """Whether `step` would resume the generator."""
        return self._generator is not None and self._job is None and not self._stepping

    def begin(self, generator: Generator[Job[Any] | T]) -> None:
        """Take a generator, which `step` then drives; there may be no other."""
        assert self.idle, "one piece of work after the other"
        self._generator = generator

    def step(self) -> T | None:
        """Resume the generator up to its next yield; the value that it hands out, None for a job.

        Does nothing unless `runnable`. Raises what the generator raises, which has ended then.
        """
        if self._generator is None or not self.runnable:
            return None
        self._stepping = True
        try:
            found = self._next(self._generator)
            if not isinstance(found, Job):
                return found
            self._job = found
            self._worker.run(found.run, lambda _: self._ended(found))
            return None
        finally:
            self._stepping = False

    def _next(self, generator: Generator[Job[Any] | T]) -> Job[Any] | T | None:
        try:
            return next(generator)
        except StopIteration:
            self._generator = None
            return None
        except BaseException:
            self._generator = None
            raise

    def _ended(self, job: Job[Any]) -> None:
        if job is not self._job:
            return  # Stopped meanwhile: nothing waits for it.
        self._job = None
        if not self._stepping:
            self._resume()

    def stop(self) -> None:
        """Close the generator; what happens to a job under way is for the generator to say."""
        generator, self._generator = self._generator, None
        self._job = None
        if generator is not None:
            generator.close()


class Prefetch(Generic[T]):
    """Reads the values of a generator ahead of a consumer that takes them in order: one value, and
    the one after it only once that has been taken."""

    def __init__(
        self, values: Generator[Job[Any] | T], worker: Worker, wake: Callable[[], None]
    ) -> None:
        """Begin to read. `wake` is called when a value has come, unless that was at once."""
        self._steps: Steps[T] = Steps(worker, self._resumed)
        self._steps.begin(values)
        self._wake = wake
        self._ready: T | None = None
        self._error: Exception | None = None
        self._advance()

    def __repr__(self) -> str:
        state = "reading" if self.waiting else "ready" if self.ready else "ended"
        return f"<Prefetch {state}>"

    @property
    def waiting(self) -> bool:
        """Whether the next value is being read."""
        return self._steps.waiting and self._ready is None

    @property
    def ready(self) -> bool:
        """Whether `take` gives a value now, or raises."""
        return self._ready is not None or self._error is not None

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return not self.ready and self._steps.idle

    def take(self) -> T | None:
        """The next value; None while it is being read, and at the end. Raises what reading raised.

        The value after it is read from now on.
        """
        if self._error is not None:
            raise self._error
        value, self._ready = self._ready, None
        if value is not None:
            self._advance()
        return value

    def stop(self) -> None:
        """Drop what was read. Does not wait for what is being read."""
        self._steps.stop()
        self._ready = None

    def _advance(self) -> None:
        """Step to the next value, the next job, or the end, whichever comes first.

        A job that the worker does at once ends within `step`, which then does not call back: this
        loop goes on instead, so that a long run of such jobs does not recurse. An error is kept
        for the consumer, whose call it is to fail, behind the value that came before it.
        """
        try:
            while self._ready is None and self._steps.runnable:
                self._ready = self._steps.step()
        except Exception as error:
            self._error = error

    def _resumed(self) -> None:
        self._advance()
        self._wake()
