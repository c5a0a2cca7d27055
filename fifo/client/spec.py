"""What a queue is declared with: the names that users type, and their form on the wire.

Owns `QueueSpec`, the ranges that can be checked without the server, and the translation of its
fields. The machine has the last word (and the same names): change `fifo.machine.spec` together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from fifo.client import checks
from fifo.client.backoff import Backoff, to_text_form
from fifo.client.durations import Duration, milliseconds
from fifo.client.errors import InvalidArgument

_LOCK_MS: Final = (1_000, 300_000)
_COUNT_MAX: Final = 2**50


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue and its rules; what is None has the server's default (semantics.md 3, 7, 9, 11).

    Durations in seconds. Raises InvalidArgument for what can be seen to be wrong here.
    """

    name: str
    lock: Duration | None = None
    max_lock: Duration | None = None
    max_deliveries: int | None = None
    dead_letter: str | None = None
    dead_letter_expired: bool | None = None
    dead_letter_overflow: bool | None = None
    on_exhausted: str | None = None
    nack_backoff: Backoff | str | None = None
    timeout_backoff: Backoff | str | None = None
    count_timeouts: bool | None = None
    ttl: Duration | None = None
    expires_unused: Duration | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str | None = None
    ordering: str | None = None
    priorities: bool | None = None
    on_delay: str | None = None
    disconnect_grace: Duration | None = None
    dedup_window: Duration | None = None
    dedup_max: int | None = None

    def __post_init__(self) -> None:
        checks.name(self.name, "queue name")
        self.to_wire()

    def to_wire(self) -> dict[str, Any]:
        """The fields that were given, under their names on the wire."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        del given["name"]
        return changes_to_wire({key: value for key, value in given.items() if value is not None})


def changes_to_wire(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a spec by the names that users type, under their names on the wire.

    None restores a default. Raises InvalidArgument.
    """
    result: dict[str, Any] = {}
    for key, value in changes.items():
        found = _FIELDS.get(key)
        if found is None:
            raise InvalidArgument(f"{key}: a queue has no such field")
        name, convert = found
        result[name] = None if value is None else convert(value, key)
    return result


def _duration(low_ms: int = 0, high_ms: int | None = None) -> Callable[[Any, str], int]:
    def convert(value: Any, what: str) -> int:
        if high_ms is None:
            return milliseconds(value, what, low_ms=low_ms)
        return milliseconds(value, what, low_ms=low_ms, high_ms=high_ms)

    return convert


def _count(value: Any, what: str) -> int:
    return checks.integer(value, what, 1, _COUNT_MAX)


def _word(*allowed: str) -> Callable[[Any, str], str]:
    def convert(value: Any, what: str) -> str:
        return checks.one_of(value, what, *allowed)

    return convert


_FIELDS: Final[dict[str, tuple[str, Callable[[Any, str], Any]]]] = {
    "lock": ("lock_ms", _duration(*_LOCK_MS)),
    "max_lock": ("max_lock_ms", _duration(_LOCK_MS[0])),
    "max_deliveries": ("max_deliveries", _count),
    "dead_letter": ("dead_letter", checks.name),
    "dead_letter_expired": ("dead_letter_expired", checks.flag),
    "dead_letter_overflow": ("dead_letter_overflow", checks.flag),
    "on_exhausted": ("on_exhausted", _word("dead_letter", "drop")),
    "nack_backoff": ("nack_backoff", to_text_form),
    "timeout_backoff": ("timeout_backoff", to_text_form),
    "count_timeouts": ("count_timeouts", checks.flag),
    "ttl": ("ttl_ms", _duration(1)),
    "expires_unused": ("expires_unused_ms", _duration(1_000)),
    "max_length": ("max_length", _count),
    "max_bytes": ("max_bytes", _count),
    "overflow": ("overflow", _word("reject", "drop_oldest")),
    "ordering": ("ordering", _word("none", "key", "single_active")),
    "priorities": ("priorities", checks.flag),
    "on_delay": ("on_delay", _word("block", "skip")),
    "disconnect_grace": ("disconnect_grace_ms", _duration()),
    "dedup_window": ("dedup_window_ms", _duration(1)),
    "dedup_max": ("dedup_max", _count),
}
