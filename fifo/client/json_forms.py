"""The JSON form of a message, for the command line and the HTTP API.

Owns the names of its fields, on which scripts rely: fields are added, never renamed.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fifo.client.consuming.delivery import DeadLetter
    from fifo.client.consuming.message import StoredMessage
    from fifo.client.scanning import ScannedMessage


def message_view(message: StoredMessage) -> dict[str, Any]:
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


def scanned_view(message: ScannedMessage) -> dict[str, Any]:
    """Convert a message of a pinned view to plain data, with its place in the queue."""
    places = {
        "consumer": message.consumer,
        "token": message.token,
        "cause": message.cause,
        "locked_at": message.locked_at,
        "locked_until": message.locked_until,
        "due_at": message.due_at,
    }
    times = {
        name: value if isinstance(value, (int, str)) else value.isoformat()
        for name, value in places.items()
        if value is not None
    }
    return {"state": message.state, "position": message.position, **message_view(message), **times}


def dead_letter_view(dead: DeadLetter) -> dict[str, Any]:
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


def _bytes_field(name: str, value: str | bytes) -> dict[str, str]:
    if isinstance(value, str):
        return {name: value}
    try:
        return {name: bytes(value).decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}
