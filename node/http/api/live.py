"""Rows of all queues as they change, for pages that show them live.

Owns the table of rows and what changed in it lately: one look a second, for all listeners. It reads
the state of this node, which follows the leader's by what it has not applied yet. Must not know who
watches.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from node.http import limits
from node.http.pieces import in_pieces

if TYPE_CHECKING:
    from fifo.machine.contract import Machine, QueueFigures

_COUNTERS: Final = ("published", "delivered", "acked", "lock_timeouts", "terms", "expired")
_SUMS: Final = ("redelivered", "dead_lettered")
"""Counters by cause, which a row shows as one number each."""

_NO_CONSUMERS: Final[Counter[str]] = Counter()


class LiveRow(NamedTuple):
    """A queue: its name, and its JSON."""

    name: str
    text: str


class Change(NamedTuple):
    """The finding of one look: queues that are gone, by number and name, and queues that differ."""

    look: int
    gone: dict[int, str]
    changed: frozenset[int]


class LiveQueues:
    """The rows of one node. `looks` counts the looks at all queues."""

    def __init__(self, machine: Callable[[], Machine]) -> None:
        self._machine = machine
        self.looks = 0
        self._rows: dict[int, LiveRow] = {}
        self._seen: dict[int, tuple[QueueFigures, Counter[str]]] = {}
        self._changes: deque[Change] = deque(maxlen=limits.EVENTS_CHANGES_KEPT)
        self._next_queue = 0
        self._consumers: dict[str, Counter[str]] = {}
        self._sweeping: dict[str, Counter[str]] = {}
        self._numbers: list[int] = []
        self._next_consumer = 0

    def forget(self) -> None:
        """Forget everything: no page is open."""
        self._rows.clear()
        self._seen.clear()
        self._changes.clear()
        self._next_queue = self._next_consumer = 0

    async def look(self) -> None:
        """Look at the queues once; where there are very many, at the next part of them."""
        self._look_at_consumers()
        machine = self._machine()
        numbers = machine.queue_numbers()
        there = set(numbers)
        gone = {number: row.name for number, row in self._rows.items() if number not in there}
        for number in gone:
            del self._rows[number], self._seen[number]
        changed: set[int] = set()
        async for number in in_pieces(self._part(numbers), limits.EVENTS_PIECE):
            figures = machine.queue_figures(number)
            if figures is None:
                continue
            seen = figures, self._consumers.get(figures.name, _NO_CONSUMERS)
            if self._seen.get(number) != seen:
                self._seen[number] = seen
                self._rows[number] = LiveRow(figures.name, _row(*seen))
                changed.add(number)
        self.looks += 1
        self._changes.append(Change(self.looks, gone, frozenset(changed)))

    def _part(self, numbers: list[int]) -> list[int]:
        """All queues at the first look, later a bounded number of them in turn."""
        if not self._rows or len(numbers) <= limits.EVENTS_QUEUES_PER_LOOK:
            return numbers
        self._next_queue %= len(numbers)
        part = numbers[self._next_queue : self._next_queue + limits.EVENTS_QUEUES_PER_LOOK]
        self._next_queue += len(part)
        return part

    def _look_at_consumers(self) -> None:
        """Count the states of a bounded number of consumers; the counts are used when each
        consumer had its turn."""
        if not self._next_consumer:
            self._numbers, self._sweeping = self._machine().consumer_numbers(), {}
        stop = self._next_consumer + limits.EVENTS_CONSUMERS_PER_LOOK
        for number in self._numbers[self._next_consumer : stop]:
            self._count(number)
        self._next_consumer = stop
        if stop >= len(self._numbers):
            self._consumers, self._next_consumer = self._sweeping, 0

    def _count(self, number: int) -> None:
        figures = self._machine().consumer_figures(number)
        if figures is not None:
            self._sweeping.setdefault(figures.queue, Counter()).update(figures.states)

    def rows(self) -> list[LiveRow]:
        """All queues, in the order of their creation."""
        return [self._rows[number] for number in sorted(self._rows)]

    def since(self, look: int) -> tuple[list[str], list[LiveRow]] | None:
        """(names of queues that are gone, rows that differ) since that look; None where it is too
        long ago."""
        newer = [change for change in self._changes if change.look > look]
        if len(newer) != self.looks - look:
            return None
        gone = {number: name for change in newer for number, name in change.gone.items()}
        changed = {number for change in newer for number in change.changed}
        return list(gone.values()), [
            self._rows[number] for number in sorted(changed) if number in self._rows
        ]


def _row(figures: QueueFigures, consumers: Counter[str]) -> str:
    counters = figures.counters
    sums = {
        name: sum(count for key, count in counters.items() if key.startswith(f"{name}_"))
        for name in _SUMS
    }
    return json.dumps(
        {
            "name": figures.name,
            "ready": figures.ready,
            "locked": figures.locked,
            "delayed": figures.delayed,
            "bytes": figures.bytes,
            "paused": figures.paused,
            "oldest_ready_ms": figures.oldest_ready_ms,
            "consumers": dict(sorted(consumers.items())),
            "counters": {name: counters[name] for name in _COUNTERS} | sums,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )
