"""What will be needed next, read beside the loop: one piece after the other, one of them ahead.

Owns the read that may be under way and the piece that is there. Knows neither entries nor peers:
the pieces are a generator's, which yields a `Job` where it has to wait for one. A slow disk is
never waited for, not even at the end: what is read has descriptors of its own, and is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from node.journal.io.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from node.journal.io.worker import Worker

T = TypeVar("T")


def reading(
    work: Callable[[], T],
    final: Callable[[], AbstractContextManager[None]],
    there: Callable[[], bool],
) -> Generator[Job, None, T | None]:
    """Yields `work`, which reads with descriptors of its own, for whichever thread; what it read.

    None where a file is gone that is not `there` any more. What else it raises is raised inside of
    `final`. Ended before, it waits for nothing.
    """
    found: list[T] = []
    flight = Job(lambda: found.append(work()))
    yield flight
    with final():
        try:
            flight.land()
        except FileNotFoundError:
            if there():
                raise
            return None
    return found[0]


class Prefetch(Generic[T]):
    """The pieces that a generator reads, for who takes them in order."""

    def __init__(
        self, pieces: Generator[Job | T], offload: Worker, wake: Callable[[], None]
    ) -> None:
        """Begins to read. `wake` is called when a piece has come, unless that was at once."""
        self._pieces = pieces
        self._offload = offload
        self._wake = wake
        self._ready: list[T] = []
        self._flight: Job | None = None
        self._error: Exception | None = None
        self._going_on = False
        self._go_on()

    def __repr__(self) -> str:
        state = "reads" if self.waiting else "has a piece" if self._ready else "has ended"
        return f"<Prefetch {state}>"

    @property
    def waiting(self) -> bool:
        """Whether the next piece is being read."""
        return self._flight is not None and not self._ready

    @property
    def ready(self) -> bool:
        """Whether `take` gives a piece now, or raises."""
        return bool(self._ready) or self._error is not None

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return not self.ready and self._flight is None

    def take(self) -> T | None:
        """The next piece, behind which the one after it is read; None while it is being read, and
        at the end. Raises what reading raised."""
        if self._error is not None:
            raise self._error
        if not self._ready:
            return None
        piece = self._ready.pop()
        self._go_on()
        return piece

    def stop(self) -> None:
        """Nobody needs it any more. Does not wait for what is being read."""
        if self._flight is not None:
            self._flight.cancel(wait=False)
            self._flight = None
        self._ready.clear()
        self._pieces.close()

    def _go_on(self) -> None:
        """To the next piece, the next wait, or the end."""
        self._going_on = True
        try:
            while not self._ready and self._flight is None:
                step = next(self._pieces)
                if isinstance(step, Job):
                    self._wait_for(step)
                else:
                    self._ready.append(step)
        except StopIteration:
            pass
        except Exception as error:
            self._error = error
        finally:
            self._going_on = False

    def _wait_for(self, flight: Job) -> None:
        self._flight = flight
        self._offload.run(flight.run, lambda _: self._landed(flight))

    def _landed(self, flight: Job) -> None:
        if flight is not self._flight:
            return  # Nobody needs it any more.
        self._flight = None
        if self._going_on:
            return  # It was done at once.
        self._go_on()
        self._wake()
