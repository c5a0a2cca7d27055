"""Output forms of a message: JSON object, table row, pairs of name and value.

Owns the JSON form, on which scripts rely: fields are added, never renamed.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from node.cli.limits import CELL_CHARS_MAX
from node.cli.tables import Column, number
from node.cli.text import shortened

if TYPE_CHECKING:
    import fifo


def message_view(message: fifo.StoredMessage) -> dict[str, Any]:
    """Convert a message to plain data; a body that is not UTF-8 becomes ``body_base64``."""
    view: dict[str, Any] = {"id": str(message.id), "queue": message.queue}
    view.update(_bytes_field("body", message.body))
    if message.key is not None:
        view.update(_bytes_field("key", message.key))
    view.update(
        headers=dict(message.headers),
        priority=message.priority,
        attempt=message.attempt,
        failures=message.failures,
        published_at=message.published_at.isoformat(),
    )
    if message.dead_letter is not None:
        view["dead_letter"] = dead_letter_view(message.dead_letter)
    return view


def dead_letter_view(dead: fifo.DeadLetter) -> dict[str, Any]:
    """Convert the origin and reason of a dead letter to plain data."""
    return {
        "reason": dead.reason,
        "detail": dead.detail,
        "description": dead.description,
        "exception": dead.exception,
        "stack": dead.stack,
        "source": dead.source,
        "history": list(dead.history),
    }


def message_row(message: fifo.StoredMessage) -> tuple[object, ...]:
    """Cells of a message under `MESSAGE_COLUMNS`."""
    body = bytes(message.body).decode("utf-8", errors="backslashreplace")
    dead = message.dead_letter
    return (
        str(message.id),
        message.key if message.key is None or isinstance(message.key, str) else message.key.hex(),
        message.priority,
        message.failures,
        message.published_at.isoformat(sep=" ", timespec="seconds"),
        None if dead is None else dead.reason,
        shortened(body, CELL_CHARS_MAX),
    )


def message_lines(message: fifo.StoredMessage) -> list[tuple[str, object]]:
    """Names and values of all fields of a message, dead-letter details included."""
    view = message_view(message)
    dead = view.pop("dead_letter", None)
    view["headers"] = ", ".join(f"{name}={value}" for name, value in view["headers"].items())
    lines = [(name.replace("_", " "), value) for name, value in view.items() if value != ""]
    if dead is not None:
        history = [f"consumer {consumer} {outcome}" for consumer, outcome, _ in dead.pop("history")]
        lines += [(f"dead: {name}", value) for name, value in dead.items() if value is not None]
        lines.append(("dead: history", ", ".join(history) or "never delivered"))
    return lines


MESSAGE_COLUMNS = (
    Column("id"),
    Column("key", 2),
    number("priority", 4),
    number("failures", 3),
    Column("published", 5),
    Column("dead letter", 1),
    Column("body"),
)


def _bytes_field(name: str, value: str | bytes) -> dict[str, str]:
    if isinstance(value, str):
        return {name: value}
    try:
        return {name: bytes(value).decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}
