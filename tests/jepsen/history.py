"""Histories: events as clients (and maybe the machine) saw them, in order of time.

Owns the form of an event, described in docs/history.md: `{type, f, value, process, time, index}`;
type is invoke, ok, fail or info (unknown). Knows neither who writes it nor the checks: the
simulator, the real clusters of `tests/jepsen` and the checker on Spark share this form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Event = dict[str, Any]

KINDS = ("invoke", "ok", "fail", "info")


class History:
    """Events, numbered and timed as they come."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.events: list[Event] = []

    def add(self, kind: str, f: str, process: str, **value: Any) -> None:
        """Record an event, now."""
        self.events.append(event_of(kind, f, process, self._now(), len(self.events), value))

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def lines(self) -> Iterator[str]:
        """As JSON lines."""
        return map(line_of, self.events)


def event_of(
    kind: str, f: str, process: str, time: float, index: int, value: dict[str, Any]
) -> Event:
    """An event; `time` in seconds."""
    return {
        "type": kind, "f": f, "value": value, "process": process,
        "time": round(time, 6), "index": index,
    }  # fmt: skip


def line_of(event: Event) -> str:
    """An event as a line of JSON."""
    return json.dumps(event, separators=(",", ":"))


def drops(counters: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Why and how many messages of a queue were dropped: (reason, count), by its counters.

    What expired or overflowed into a dead-letter queue was not dropped.
    """
    for reason, name in (
        ("expired", "expired"), ("overflow", "overflow_dropped"), ("purged", "purged")
    ):  # fmt: skip
        count = counters[name] - counters.get(f"dead_lettered_{reason}", 0)
        if count:
            yield reason, count


def load(path: Path) -> list[Event]:
    """The events of a file. Raises ValueError with the number of a line that is none."""
    events = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line)
                if event["type"] not in KINDS or event.keys() != _FIELDS:
                    raise ValueError
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"{path}:{number}: this is not an event") from None
            events.append(event)
    return events


_FIELDS = {"type", "f", "value", "process", "time", "index"}


def merge(parts: Iterable[Path]) -> list[Event]:
    """Histories of several processes with one clock, as one: by time, and numbered anew.

    The last line of a process that was killed may be cut; it is left out.
    """
    events: list[Event] = []
    for path in sorted(parts):
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        events += [json.loads(line) for line in whole.splitlines()]
    events.sort(key=lambda event: float(event["time"]))
    return [{**event, "index": index} for index, event in enumerate(events)]
