"""Durations: seconds in Python, milliseconds on the wire.

Owns the conversions and their range checks; the text form is that of `fifo.words.durations`. Must
not know what a duration is for: `name` is what the error calls it.
"""

from __future__ import annotations

import math
import reprlib
from datetime import timedelta
from typing import Final, TypeAlias

from fifo.client.errors import InvalidArgument
from fifo.words import bounds, durations
from fifo.words.durations import to_text

Duration: TypeAlias = float | int | timedelta
"""Seconds, or a timedelta."""

_MS_SHOWN_MAX: Final = 1e18
"""A longer duration is refused as this one: no bound is near it, and its digits fill no line."""


def seconds(value: Duration, name: str) -> float:
    """Seconds as a float; raises InvalidArgument for what is not a duration, or negative."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name}: must be seconds or a timedelta, not {reprlib.repr(value)}")
    try:
        exact = float(value)
    except OverflowError:
        exact = math.inf
    if not math.isfinite(exact) or exact < 0:
        raise InvalidArgument(f"{name}: must be zero or more seconds, not {exact}")
    return exact


def patience(timeout: Duration) -> float:
    """Seconds to wait; a time that is over already is none. Raises InvalidArgument as above."""
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    is_over = isinstance(timeout, float | int) and timeout < 0
    return 0.0 if is_over else seconds(timeout, "timeout")


def milliseconds(
    value: Duration,
    name: str,
    *,
    low_ms: int = 0,
    high_ms: int = bounds.DURATION_MS_MAX,
) -> int:
    """Whole milliseconds, rounded up so that nothing becomes shorter; raises InvalidArgument."""
    exact = seconds(value, name) * 1000
    # A tenth of a microsecond of slack: 0.07 s must not become 71 ms by binary rounding.
    result = math.ceil(min(exact - 1e-4, _MS_SHOWN_MAX))
    if not low_ms <= result <= high_ms:
        raise InvalidArgument(
            f"{name}: must be from {to_text(low_ms)} to {to_text(high_ms)}, not {to_text(result)}"
        )
    return result


def parse_ms(text: str, name: str) -> int:
    """Milliseconds from `500ms`, `1.5s`, `2m`, `1h`, `1d`; raises InvalidArgument."""
    try:
        parsed_ms = durations.parse_ms(text)
    except ValueError:
        raise InvalidArgument(
            f"{name}: {text[:40]!r} is not a duration such as 500ms, 30s or 2m"
        ) from None
    if parsed_ms > bounds.DURATION_MS_MAX:
        raise InvalidArgument(f"{name}: {text[:40]!r} is longer than ten years")
    return parsed_ms
