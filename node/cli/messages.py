"""Output forms of a message for people: table row, pairs of name and value.

Owns the columns. The JSON form is the client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fifo.client.json_forms import message_view
from node.cli.limits import CELL_CHARS_MAX
from node.cli.tables import Column, number
from node.cli.text import shortened

if TYPE_CHECKING:
    import fifo


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
