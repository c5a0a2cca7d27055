"""What happened, as clients and the machine saw it: events in order of the world's time.

Owns the form of an event, which is the one that outside checkers read as JSON lines:
`{type, f, value, process, time, index}`; type is invoke, ok, fail or info (unknown). Knows neither
the simulator nor the checks.

    f          types              value
    publish    all                body; ok: id
    checkout   ok                 id, queue, consumer, token, at_ms, lock_ms, attempt, failures
    deliver    ok                 body, intact, id, queue, consumer, token, attempt, failures,
                                  reason
               at_ms is cluster time, by which locks are counted
    holds      ok                 id, consumer, token: the client is sure of its lock at this time
    settle     all                id, verb, consumer, token, delay_s; ok: status, late
    cancel     ok                 consumer: from here on its messages may be returned at once
    call       ok                 what, seconds, limit_s
    left       ok                 queue -> messages, when all has been drained
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

Event = dict[str, Any]


class History:
    """Events, numbered and timed as they come."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.events: list[Event] = []

    def add(self, kind: str, f: str, process: str, **value: Any) -> None:
        """One event, now."""
        index = len(self.events)
        self.events.append(
            {"type": kind, "f": f, "value": value, "process": process,
             "time": round(self._now(), 6), "index": index}
        )  # fmt: skip

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def lines(self) -> Iterator[str]:
        """As JSON lines."""
        for event in self.events:
            yield json.dumps(event, separators=(",", ":"))
