"""Alarms of a node: a resource is past its threshold, and publishes are refused for it.

Owns the thresholds, the last measurements, and the reason that publishers get. Refusing begins and
ends with an alarm: settlements and consumers go on, for they make room. Must not know how a
resource is measured, or who shows the alarms.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from node.config import LimitSettings

logger = logging.getLogger(__name__)

DISK_LOW: Final = "disk_low"
"""Less free space on the disk of the journal than `disk_low_bytes`."""

MEMORY_HIGH: Final = "memory_high"
"""More memory held for clients than `memory_high_bytes`."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A resource past its threshold, as it was measured last."""

    name: str
    measured_bytes: int
    threshold_bytes: int

    @property
    def text(self) -> str:
        """The reason as publishers read it, who were refused by the leader."""
        if self.name == DISK_LOW:
            return (
                f"the leader's disk is low: {self.measured_bytes} bytes free,"
                f" {self.threshold_bytes} required to publish; retry after space was freed"
            )
        return (
            f"the leader holds {self.measured_bytes} bytes for clients that do not read, at most"
            f" {self.threshold_bytes} while it takes publishes; retry after they have read"
        )


class Alarms:
    """The alarms of one node."""

    def __init__(self, settings: LimitSettings) -> None:
        self.disk_low_bytes = settings.disk_low_bytes
        self.memory_high_bytes = settings.memory_high_bytes
        self.disk_free_bytes: int | None = None
        self.memory_held_bytes = 0
        self._active: dict[str, Alarm] = {}

    @property
    def active(self) -> tuple[Alarm, ...]:
        """Alarms that are on now."""
        return tuple(self._active.values())

    @property
    def refusal(self) -> str | None:
        """The reason why no message may be published at the moment, or None."""
        for alarm in self._active.values():
            return alarm.text
        return None

    def measured_disk(self, free_bytes: int) -> None:
        """Note the free space of the journal's disk."""
        self.disk_free_bytes = free_bytes
        low = free_bytes < self.disk_low_bytes
        self._set(Alarm(DISK_LOW, free_bytes, self.disk_low_bytes), on=low)

    def measured_memory(self, held_bytes: int) -> None:
        """Note the memory that is held for all clients together."""
        self.memory_held_bytes = held_bytes
        high = held_bytes > self.memory_high_bytes
        self._set(Alarm(MEMORY_HIGH, held_bytes, self.memory_high_bytes), on=high)

    def _set(self, alarm: Alarm, *, on: bool) -> None:
        if on != (alarm.name in self._active):
            logger.warning(
                "event=alarm alarm=%s state=%s bytes=%d threshold_bytes=%d",
                alarm.name,
                "on" if on else "off",
                alarm.measured_bytes,
                alarm.threshold_bytes,
            )
        if on:
            self._active[alarm.name] = alarm
        else:
            self._active.pop(alarm.name, None)
