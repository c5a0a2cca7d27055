"""The driver of everything that a node does off its event loop: generators that yield jobs.

Owns which generator is in progress, the one job that it waits for, and resuming it when that is
done. The work itself is the generator's: it yields a `Job` where it has to wait for the disk, and
any other value to hand it out or to let a turn of the node come between. Must not know files.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from node.journal.io.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.io.worker import Worker

T = TypeVar("T")

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
