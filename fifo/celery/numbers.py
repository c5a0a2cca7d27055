"""Numbers as programs of AMQP give them: of any type that can be one.

Owns the error for what is none. Must not know what a number is for.
"""

from __future__ import annotations

from typing import Any

from fifo.client import InvalidArgument


def whole(value: Any, what: str) -> int:
    """A whole number, also from text: `"1500"`. Raises InvalidArgument."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{what}: must be a whole number, not {value!r:.80}") from None
