"""Long work of the node in slices between turns, and its waits for the disk beside the loop.

Owns which slice comes next and the one wait that may be under way. Knows nothing of what is done:
the work is a generator, which yields where a turn may come between, and yields a `Job` where it
has to wait for one; it lands that itself when it goes on.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.io.job import Job
    from node.journal.io.worker import Worker

Work = Generator["Job | None"]


class Slices:
    """One piece of work, or none. `wake` asks for a turn when a wait is over."""

    def __init__(self, offload: Worker, wake: Callable[[], None]) -> None:
        self._offload = offload
        self._wake = wake
        self._work: Work | None = None
        self._flight: Job | None = None

    def __repr__(self) -> str:
        return f"<Slices {'idle' if self.idle else 'waiting' if self.waiting else 'in work'}>"

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self._work is None

    @property
    def waiting(self) -> bool:
        """Whether a flight is under way: nothing that it touches may be touched."""
        return self._flight is not None

    def begin(self, work: Work) -> None:
        """What is to be done from now on, in place of nothing."""
        assert self.idle, "one piece of work after the other"
        self._work = work

    def step(self) -> bool:
        """The next slice. False where it has ended, or waits. Lets out what the work raises, which
        has ended then."""
        if self._work is None or self.waiting:
            return False
        try:
            flight = next(self._work)
        except StopIteration:
            self._work = None
            return False
        except BaseException:
            self._work = None
            raise
        if flight is not None:
            self._flight = flight
            self._offload.run(flight.run, lambda _: self._landed())
        return not self.waiting

    def _landed(self) -> None:
        self._flight = None
        self._wake()

    def stop(self) -> None:
        """Give up what is in work; a wait under way must have ended, or never be told of."""
        work, self._work = self._work, None
        self._flight = None
        if work is not None:
            work.close()
