"""Durations as text: `500ms`, `1.5s`, `2m`, `1h`, `1d`, and back to whole milliseconds.

Owns the units and the two conversions, in exact integers. Must not know what a duration is for or
how long it may be.
"""

from typing import Final

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds of each unit that may follow a number."""

_CHARS_MAX: Final = 20


def parse_ms(text: str, *, exact: bool = False) -> int:
    """Parse a decimal number with a unit into milliseconds.

    Fractions of a millisecond are rounded half up, or refused if `exact`. Raises `ValueError`.
    """
    stripped = text.strip()
    number = stripped.rstrip("dhms")
    factor = UNITS_MS.get(stripped[len(number) :])
    if factor is None:
        raise ValueError("a duration must be a number with a unit: ms, s, m, h or d")
    return parse_decimal(number, factor, exact=exact)


def parse_decimal(text: str, scale: int, *, exact: bool) -> int:
    """Parse a decimal number and multiply it by `scale`, in integers. Raises `ValueError`."""
    whole, point, fraction = text.partition(".")
    digits = whole + fraction
    well_formed = digits.isascii() and digits.isdigit() and whole and len(text) <= _CHARS_MAX
    if not well_formed or (point and not fraction):
        raise ValueError("not a decimal number")
    divisor: int = 10 ** len(fraction)
    scaled, rest = divmod(int(digits) * scale, divisor)
    if exact and rest:
        raise ValueError("a decimal number with too many digits")
    return scaled + (2 * rest >= divisor)


def to_text(duration_ms: int) -> str:
    """Format milliseconds as the shortest exact text: `1s`, `1500ms`, `2m`."""
    for unit, factor in reversed(UNITS_MS.items()):
        if duration_ms and duration_ms % factor == 0:
            return f"{duration_ms // factor}{unit}"
    return f"{duration_ms}ms"
