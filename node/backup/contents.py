"""The contents of a backup, read offline: its queues, and their messages page by page.

Owns the way from the file to pages as a node answers them. Reads, and changes nothing. Must not
know who looks, or how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from fifo.machine.contract import Past, PastQueue, Sought
from fifo.wire.pins import Paged
from node.backup.file import Backup
from node.backup.restoring import state_of
from node.broker import deliveries, entry
from node.broker.connections.page_answer import paged

T = TypeVar("T")

_END: Final = (1 << 63) - 1
"""A position behind all."""


class Contents:
    """A backup as a view of the past. Its state is in memory, its bodies stay in the file."""

    def __init__(self, backup: Backup) -> None:
        """Raises `BackupDamaged` where this version cannot read the state."""
        self._backup = backup
        machine = state_of(backup)
        self.sessions = machine.session_count()
        self.users = len(machine.users()) if machine.users_revision else 0
        self.machine_version = machine.version
        self._past = Past(machine.freeze())
        _whole(self._past.opening())

    @property
    def ref(self) -> str:
        """The text that names the view."""
        return str(self._backup.path)

    def time_of(self, cluster_ms: int) -> datetime:
        """A time of the cluster's log as wall time."""
        about = self._backup.about
        return datetime.fromtimestamp((about.wall_ms + cluster_ms - about.cluster_ms) / 1000, UTC)

    def queues(self) -> list[dict[str, Any]]:
        """All queues with their counts and options, oldest first."""
        found = [self._past.overview(name) for name in self._past.queues()]
        return [one for one in found if one is not None]

    def has_queue(self, name: str) -> bool:
        """Whether there is such a queue."""
        return self._past.has_queue(name)

    def page(self, queue: str, state: str | None, after: int, most: int) -> tuple[Paged, bytes]:
        """Up to `most` messages of a queue from position `after` on, and the raw part of the page;
        its `after` says where to go on."""
        reading: PastQueue = _whole(self._past.reading(queue))
        found, after = _whole(reading.page(Sought(state), after, _END, most))
        fitting = deliveries.in_one_peek([seen.run for seen in found])
        if len(fitting) < len(found):
            after = found[len(fitting)].position
            found = found[: len(fitting)]
        page, raw = paged(queue, found, after, self._reader())
        return page, b"".join(raw)

    def _reader(self) -> Callable[[int], memoryview]:
        areas: dict[int, memoryview] = {}

        def read(index: int) -> memoryview:
            if index not in areas:
                areas[index] = entry.area_of(memoryview(self._backup.entry(index)))
            return areas[index]

        return read


def _whole(steps: Generator[None, None, T]) -> T:
    """The result of steps that need not leave room for anything else."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
