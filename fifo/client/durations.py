"""Durations: seconds in Python, milliseconds on the wire, and a short text form.

Owns the conversions and their range checks. Must not know what a duration is for: `name` is what
the error calls it.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final, TypeAlias

from fifo.client.errors import InvalidArgument
from fifo.wire import limits as wire

Duration: TypeAlias = float | int | timedelta
"""Seconds, or a timedelta."""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)(ms|s|m|h|d)")


def seconds(value: Duration, name: str) -> float:
    """Seconds as a float; raises InvalidArgument for what is not a duration, or negative."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name}: must be seconds or a timedelta, not {type(value).__name__}")
    if not math.isfinite(value) or value < 0:
        raise InvalidArgument(f"{name}: must be zero or more seconds, not {value}")
    return float(value)


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
    high_ms: int = wire.DURATION_MS_MAX,
) -> int:
    """Whole milliseconds, rounded up so that nothing becomes shorter; raises InvalidArgument."""
    exact = seconds(value, name) * 1000
    # A tenth of a microsecond of slack: 0.07 s must not become 71 ms by binary rounding.
    result = math.ceil(exact - 1e-4)
    if not low_ms <= result <= high_ms:
        raise InvalidArgument(
            f"{name}: must be from {to_text(low_ms)} to {to_text(high_ms)}, not {to_text(result)}"
        )
    return result


def parse_ms(text: str, name: str) -> int:
    """Milliseconds from `500ms`, `1.5s`, `2m`, `1h`, `1d`; raises InvalidArgument."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        raise InvalidArgument(f"{name}: {text[:40]!r} is not a duration such as 500ms, 30s or 2m")
    exact = float(found.group(1)) * _UNITS_MS[found.group(2)]
    if exact > wire.DURATION_MS_MAX:
        raise InvalidArgument(f"{name}: {text[:40]!r} is longer than ten years")
    return round(exact)


def to_text(duration_ms: int) -> str:
    """The shortest exact text: `1s`, `1500ms`, `2m`."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms and duration_ms % _UNITS_MS[unit] == 0:
            return f"{duration_ms // _UNITS_MS[unit]}{unit}"
    return f"{duration_ms}ms"
