"""The last fifteen minutes of each queue, as this node has seen them in its own replica.

Owns the samples: every node takes them, so that a chart survives a page load and a change of
leader; a node that starts anew begins an empty one. Bounded in queues and in time. Must not know
the page.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from fifo.machine.contract import QueueFigures
from node.http import limits

GAUGES: Final = ("ready", "locked", "delayed")
"""Columns of a sample that are counts at its time."""

EVENTS: Final = ("published", "delivered", "acked", "redelivered", "dead")
"""Columns of a sample that count what happened since the sample before."""

COLUMNS: Final = (*GAUGES, *EVENTS)

_CELL_MAX: Final = 2**32 - 1
"""The largest number that a cell of four bytes takes; a chart cannot tell more from it."""


def events_of(figures: QueueFigures) -> tuple[int, ...]:
    """The counters of a queue that `EVENTS` are the growth of."""
    counters = figures.counters
    redelivered = dead = 0
    for name, count in counters.items():
        if name.startswith("redelivered_"):
            redelivered += count
        elif name.startswith("dead_lettered_"):
            dead += count
    return (counters["published"], counters["delivered"], counters["acked"], redelivered, dead)


class QueueSamples:
    """The samples of one queue, up to the newest of all."""

    __slots__ = ("before", "columns", "latest")

    def __init__(self) -> None:
        self.columns = tuple(array("I") for _ in COLUMNS)
        self.latest: tuple[float, tuple[int, ...]] | None = None
        """Time and counters of the newest sample."""
        self.before: tuple[float, tuple[int, ...]] | None = None
        """Those of the one before: rates are taken from here on, over five to ten seconds."""

    def add(self, at: float, gauges: Iterable[int], counters: tuple[int, ...]) -> None:
        """Add a sample, and drop the oldest where there are enough."""
        since = counters if self.latest is None else self.latest[1]
        grown = [max(0, now - then) for now, then in zip(counters, since, strict=True)]
        for column, value in zip(self.columns, (*gauges, *grown), strict=True):
            column.append(min(value, _CELL_MAX))
            if len(column) > limits.SAMPLES_MAX:
                del column[0]
        self.before, self.latest = self.latest, (at, counters)

    def rates(self, at: float, counters: tuple[int, ...]) -> tuple[float, ...] | None:
        """Events per second up to now, by `EVENTS`; None before there are two samples."""
        base = self.before or self.latest
        if base is None or at - base[0] < limits.RATE_SECONDS_MIN:
            return None
        return tuple(
            round(max(0, now - then) / (at - base[0]), 1)
            for now, then in zip(counters, base[1], strict=True)
        )


class Samples:
    """The samples of all queues, by number; those of all together are under `ALL`."""

    ALL: Final = 0
    """No queue has this number."""

    def __init__(self) -> None:
        self.times_ms: deque[int] = deque(maxlen=limits.SAMPLES_MAX)
        """The wall time of each sample."""
        self.next = 0
        """The number of the next sample."""
        self._queues: dict[int, QueueSamples] = {}

    def add(self, at: float, wall_ms: int, figures: dict[int, QueueFigures]) -> None:
        """Take a sample of these queues at `at` (seconds of a clock that never steps back); what is
        not among them is forgotten."""
        sums = [0] * len(GAUGES), [0] * len(EVENTS)
        seen = dict(list(figures.items())[: limits.QUEUES_SAMPLED_MAX])
        for number, queue in seen.items():
            gauges = queue.ready, queue.locked, queue.delayed
            counters = events_of(queue)
            self._of(number).add(at, gauges, counters)
            for total, values in zip(sums, (gauges, counters), strict=True):
                for place, value in enumerate(values):
                    total[place] += value
        self._of(self.ALL).add(at, sums[0], tuple(sums[1]))
        for number in self._queues.keys() - seen.keys() - {self.ALL}:
            del self._queues[number]
        self.times_ms.append(wall_ms)
        self.next += 1

    def _of(self, number: int) -> QueueSamples:
        found = self._queues.get(number)
        if found is None:
            found = self._queues[number] = QueueSamples()
        return found

    def rates(self, number: int, at: float, counters: tuple[int, ...]) -> tuple[float, ...] | None:
        """The rates of a queue now; None where they are not known."""
        found = self._queues.get(number)
        return None if found is None else found.rates(at, counters)

    def shown(self, number: int, after: int) -> dict[str, Any]:
        """The samples of a queue from number `after` on, as columns."""
        found = self._queues.get(number)
        oldest = self.next - len(self.times_ms)
        if found is None:
            return {"next": self.next, "first": self.next, "times_ms": [], "columns": {}}
        size = len(found.columns[0])
        begin = max(self.next - size, oldest, after if after <= self.next else 0)
        count = self.next - begin
        times = list(self.times_ms)[len(self.times_ms) - count :] if count else []
        return {
            "next": self.next,
            "first": begin,
            "times_ms": times,
            "columns": {
                name: list(column[size - count :]) if count else []
                for name, column in zip(COLUMNS, found.columns, strict=True)
            },
        }
