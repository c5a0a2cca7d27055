"""When Python's garbage collector works, and on what: on little at a time, and between turns.

A full collection looks at every object there is, which takes 60 to 210 milliseconds where a node
holds a million messages with records of their own, and Python begins one in the middle of whatever
runs. So the process that is a node owns its collections. Each look of the node's loop collects what
has been made since the one before, and what is left then is put aside (`gc.freeze`), so that the
next does not see it again. Python's own collections, of young objects, come only where no look came
in time: by default they would see whatever stays twice before that, and take a fifth of the CPU in
which a million locks expire.

Nearly everything that was put aside dies by its reference count. A cycle that was put aside before
it became garbage does not: when what is put aside has grown by half, and by `GROWN_OBJECTS_MIN` at
the least, all of it is due to be looked at once more, when the owner has the time: beside busy
neighbours that may take half a second, in which no heartbeat leaves. Where it has grown by
`OVERDUE_TIMES` as much, that is overdue. So garbage is bounded, and a state that does not grow is
never walked again. Must not know what the objects are, nor when there is time: the rest of the node
says so, and when a whole state was taken over.
"""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

YOUNG_OBJECTS: Final = 25_000
"""More objects made than gone from which on Python collects the young ones, in the middle of
whatever runs: a millisecond or two."""

GROWN_OBJECTS_MIN: Final = 500_000
"""Objects that may join those put aside before all are looked at: at a hundred bytes or two each,
that much garbage is no danger, and a small node has no reason to look more often."""

OVERDUE_TIMES: Final = 4
"""Times the growth that is due to be looked at, from which on it should not wait any longer: two
million objects at the least, some 300 MB."""

NEVER: Final = sys.maxsize >> 33
"""A threshold of an older generation that no count reaches: those collections are ours."""


@dataclass(slots=True)
class Collected:
    """Collections so far, of recent objects and of all, and their time in seconds."""

    recent_total: int = 0
    recent_seconds: float = 0.0
    full_total: int = 0
    full_seconds: float = 0.0


class Collector:
    """The collections of this process, while entered: one for a process, for they are its own."""

    def __init__(self, *, grown_objects_min: int = GROWN_OBJECTS_MIN) -> None:
        self.collected = Collected()
        self._grown_min = grown_objects_min
        self._thresholds = gc.get_threshold()
        self._live = 0  # put aside when all was looked at last
        self._due = False
        self.overdue = False
        """Whether a look at all there is has waited for too long."""
        self._joined = 0  # at most so many have joined since it was last counted
        self._count_at = grown_objects_min  # and are counted when it may be so many

    def __enter__(self) -> Collector:
        """Take over: what has been loaded up to now is put aside."""
        self._thresholds = gc.get_threshold()
        gc.set_threshold(YOUNG_OBJECTS, NEVER, NEVER)
        gc.collect()
        self.adopt()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave everything to Python again."""
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def adopt(self) -> None:
        """Put aside all there is without a look at it: a state that was just read has no cycle."""
        gc.freeze()
        self._measured()

    def look(self, *, at_all: bool = True) -> None:
        """To be called often, where nothing waits: collects what was made since the last call.
        `at_all`: there is time for a look at all there is, if that is due."""
        if self._due and at_all:
            self._look_at_all()
            return
        young, collections, _ = gc.get_count()
        self._joined += young + collections * YOUNG_OBJECTS
        started = time.perf_counter()
        gc.collect()
        gc.freeze()
        self.collected.recent_total += 1
        self.collected.recent_seconds += time.perf_counter() - started
        if self._joined >= self._count_at:
            self._count()

    @property
    def _allowed(self) -> int:
        return max(self._grown_min, self._live // 2)

    def _expect(self, joining: int) -> None:
        """Count again when so many may have joined: a count walks all of them."""
        self._joined, self._count_at = 0, joining

    def _count(self) -> None:
        grown, allowed = gc.get_freeze_count() - self._live, self._allowed
        self._due = grown >= allowed
        self.overdue = grown >= OVERDUE_TIMES * allowed
        self._expect(max(allowed - grown, allowed // 2))

    def _look_at_all(self) -> None:
        started = time.perf_counter()
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.collected.full_total += 1
        self.collected.full_seconds += time.perf_counter() - started
        self._measured()

    def _measured(self) -> None:
        """Go by what is put aside now, which is no garbage."""
        self._live = gc.get_freeze_count()
        self._due = self.overdue = False
        self._expect(self._allowed)
