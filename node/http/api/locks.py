"""Handles of locks in the API: one text that names a lock, on any node.

Owns the form: consumer, token, the right to settle, and the queue. Must not know sessions.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from fifo.wire import Code
from node.http.api.problems import Problem

_HEX_DIGITS = 32
_NUMBER_DIGITS = 19


class Lock(NamedTuple):
    """A lock: its queue, and what settles it there."""

    consumer: int
    token: int
    handle: str
    queue: str

    def __str__(self) -> str:
        """The text form, which is safe in a path."""
        name = base64.urlsafe_b64encode(self.queue.encode()).decode().rstrip("=")
        return f"{self.consumer}.{self.token}.{self.handle}.{name}"


def lock_of(text: str) -> Lock:
    """The lock that a text names. Raises Problem."""
    parts = text.split(".")
    try:
        if len(parts) != 4 or len(parts[2]) != _HEX_DIGITS:
            raise ValueError
        consumer, token = (int(part) for part in parts[:2] if len(part) <= _NUMBER_DIGITS)
        bytes.fromhex(parts[2])
        queue = base64.urlsafe_b64decode(parts[3] + "=" * (-len(parts[3]) % 4)).decode()
        if consumer < 1 or token < 1 or not queue:
            raise ValueError
        return Lock(consumer, token, parts[2], queue)
    except (ValueError, binascii.Error):
        said = f"handle: must be the `handle` that came with a message of a get, not {text!r:.80}"
        raise Problem(Code.INVALID_ARGUMENT, said) from None
