"""The spec of a queue as users write it, and its form on the wire.

Owns `QueueSpec`, whose fields are those of `fifo.words.queue_options`, written out for static
typing, and the conversion of their values by the kinds of that table. Must not know what an option
does: the machine checks what options mean together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fifo.client import checks
from fifo.client.backoff import Backoff
from fifo.client.durations import Duration
from fifo.client.option_values import to_wire, unknown
from fifo.words.queue_options import BY_NAME


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


def expiry_warning(queue: str) -> str:
    """The warning for who lets a queue expire unused: of messages that go with it."""
    return (
        f"publishing is no use of queue {queue}: without a consumer or a get it is deleted after"
        " expires_unused, with its messages"
    )


def changes_to_wire(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a spec by the names that users type, under their names on the wire.

    None restores a default. Raises InvalidArgument.
    """
    result: dict[str, Any] = {}
    for key, value in changes.items():
        option = BY_NAME.get(key)
        if option is None:
            raise unknown(key, BY_NAME, "a queue")
        result[option.wire_name] = None if value is None else to_wire(option, value, key)
    return result
