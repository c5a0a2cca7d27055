"""Alarms of a node: a resource is past its threshold, and publishes are refused for most of them.

Owns the thresholds, the last measurements, and the reason that publishers get. Refusing begins and
ends with an alarm: settlements and consumers go on, for they make room. A leader has the alarms of
the other members beside its own: what it takes has to fit on every disk. Must not know how a
resource is measured, or who shows the alarms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from node.broker import limits
from node.config import LimitSettings
from node.raft import Room

logger = logging.getLogger(__name__)

DISK_LOW: Final = "disk_low"
"""Less free space on the disk of the journal than `disk_low_bytes`."""

MEMORY_HIGH: Final = "memory_high"
"""More memory held for clients than `memory_high_bytes`."""

DESCRIPTORS_LOW: Final = "descriptors_low"
"""No descriptor is left for another connection; what is reserved for the journal is not counted."""

ALARMS: Final = (DISK_LOW, MEMORY_HIGH, DESCRIPTORS_LOW)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A resource of `node` past its threshold, as it was measured last; `began_at`: when it was
    first seen so, in seconds of the clock of the node that shows it."""

    name: str
    node: str
    measured_bytes: int
    threshold_bytes: int
    began_at: float = 0.0

    @property
    def refuses(self) -> bool:
        """Whether publishes are refused for it: the journal of a node has its own descriptors."""
        return self.name != DESCRIPTORS_LOW

    @property
    def text(self) -> str:
        """The reason as publishers read it, who were refused by the leader."""
        if self.name == DISK_LOW:
            return (
                f"the disk of {self.node} is low: {self.measured_bytes} bytes free,"
                f" {self.threshold_bytes} required to publish; retry after space was freed"
            )
        return (
            f"{self.node} holds {self.measured_bytes} bytes for clients that do not read, at most"
            f" {self.threshold_bytes} while publishes are taken; retry after they have read"
        )


class Alarms:
    """The alarms of one node, and on a leader those of the other members."""

    def __init__(
        self, settings: LimitSettings, node: str, now: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`now` in seconds."""
        self.disk_low_bytes = settings.disk_low_bytes
        self.memory_high_bytes = settings.memory_high_bytes
        self.memory_held_bytes = 0
        self._node = node
        self._now = now
        self._active: dict[tuple[str, str], Alarm] = {}
        self.refusal: str | None = None
        """The reason why no message may be published at the moment, or None; every publish asks."""

    @property
    def active(self) -> tuple[Alarm, ...]:
        """Alarms that are on now."""
        return tuple(self._active.values())

    def active_ms(self, alarm: Alarm) -> int:
        """Time since an alarm began."""
        return int(1000 * (self._now() - alarm.began_at))

    def measured_disk(self, free_bytes: int) -> None:
        """Note the free space of the journal's disk."""
        self._disk(self._node, free_bytes, self.disk_low_bytes)

    def measured_memory(self, held_bytes: int) -> None:
        """Note the memory that is held for all clients together."""
        self.memory_held_bytes = held_bytes
        self._memory(self._node, held_bytes, self.memory_high_bytes)

    def reported(self, rooms: Mapping[str, Room]) -> None:
        """Note the reports of the other members that count. The alarms of all others end: a
        member that is gone has no disk that could fill."""
        for node, room in rooms.items():
            self._disk(node, room.free_bytes, room.low_bytes)
            self._memory(node, room.held_bytes, room.high_bytes)
        for node, name in list(self._active):
            if node != self._node and node not in rooms:
                self._set(Alarm(name, node, 0, 0), on=False)

    def _disk(self, node: str, free_bytes: int, low_bytes: int) -> None:
        """Two marks, so that the first byte that is freed does not let publishers in for one."""
        was_on = (node, DISK_LOW) in self._active
        back_bytes = max(0, low_bytes) // limits.ALARM_BACK_PARTS if was_on else 0
        low = free_bytes < low_bytes + back_bytes
        self._set(Alarm(DISK_LOW, node, free_bytes, low_bytes), on=low)

    def _memory(self, node: str, held_bytes: int, high_bytes: int) -> None:
        was_on = (node, MEMORY_HIGH) in self._active
        back_bytes = max(0, high_bytes) // limits.ALARM_BACK_PARTS if was_on else 0
        high = held_bytes > high_bytes - back_bytes
        self._set(Alarm(MEMORY_HIGH, node, held_bytes, high_bytes), on=high)

    def measured_descriptors(self, *, left: bool) -> None:
        """Note whether this process could open another file."""
        self._set(Alarm(DESCRIPTORS_LOW, self._node, 0, 0), on=not left)

    def _set(self, alarm: Alarm, *, on: bool) -> None:
        key = (alarm.node, alarm.name)
        was = self._active.get(key)
        if on != (was is not None):
            logger.warning(
                "event=alarm alarm=%s state=%s node=%s bytes=%d threshold_bytes=%d",
                alarm.name,
                "on" if on else "off",
                alarm.node,
                alarm.measured_bytes,
                alarm.threshold_bytes,
            )
        if on:
            began_at = self._now() if was is None else was.began_at
            self._active[key] = replace(alarm, began_at=began_at)
        else:
            self._active.pop(key, None)
        refusing = (alarm.text for alarm in self._active.values() if alarm.refuses)
        self.refusal = next(refusing, None)
