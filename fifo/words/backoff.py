"""Backoffs: how long a returned message waits before it is redelivered (semantics.md 7).

Owns the three kinds, their text forms and bounds, in whole milliseconds and thousandths. Must not
know how a delay is computed: the machine does that in exact integers, the client in seconds.
"""

from dataclasses import dataclass
from typing import Final

from fifo.words import bounds
from fifo.words.durations import parse_decimal, parse_ms, to_text

_MULTIPLIER_DEFAULT: Final = 2_000
_FORMS: Final = "a backoff is fixed:1s, exponential:1s..60s*2 or table:1s,5s,30s"


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Always the same delay: `fixed:1s`."""

    delay_ms: int

    def __str__(self) -> str:
        return f"fixed:{to_text(self.delay_ms)}"


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """min(max, floor(min x multiplier^failures)): `exponential:1s..60s*2` (PIP-106)."""

    min_ms: int
    max_ms: int
    multiplier_thousandths: int = _MULTIPLIER_DEFAULT

    def __post_init__(self) -> None:
        if self.max_ms < self.min_ms:
            raise ValueError("an exponential backoff's max is below its min")
        low, high = bounds.MULTIPLIER_THOUSANDTHS_MIN, bounds.MULTIPLIER_THOUSANDTHS_MAX
        if not low <= self.multiplier_thousandths <= high:
            raise ValueError(f"a backoff multiplier must be from 1.1 to {high // 1_000}")

    def __str__(self) -> str:
        whole, thousandths = divmod(self.multiplier_thousandths, 1_000)
        factor = f"{whole}.{thousandths:03d}".rstrip("0").rstrip(".")
        return f"exponential:{to_text(self.min_ms)}..{to_text(self.max_ms)}*{factor}"


@dataclass(frozen=True, slots=True)
class DelayTable:
    """A delay per failure, the last one from then on: `table:1s,5s,30s` (PIP-130)."""

    delays_ms: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.delays_ms) <= bounds.BACKOFF_TABLE_MAX:
            raise ValueError(f"a backoff table has 1 to {bounds.BACKOFF_TABLE_MAX} delays")

    def __str__(self) -> str:
        return "table:" + ",".join(map(to_text, self.delays_ms))


Backoff = FixedDelay | ExponentialDelay | DelayTable


def parse(text: str) -> Backoff:
    """Parse a backoff's text form. Raises `ValueError` with the reason."""
    kind, _, rest = text.partition(":")
    if len(text) > bounds.BACKOFF_CHARS_MAX:
        raise ValueError(_FORMS)
    if kind == "fixed":
        return FixedDelay(_delay_ms(rest))
    if kind == "table":
        return DelayTable(tuple(map(_delay_ms, rest.split(","))))
    if kind == "exponential":
        return _exponential(rest)
    raise ValueError(_FORMS)


def _exponential(rest: str) -> ExponentialDelay:
    span, star, factor = rest.partition("*")
    low, dots, high = span.partition("..")
    if not dots:
        raise ValueError("an exponential backoff is exponential:MIN..MAX*MULTIPLIER")
    multiplier = parse_decimal(factor, 1_000, exact=True) if star else _MULTIPLIER_DEFAULT
    return ExponentialDelay(_delay_ms(low), _delay_ms(high), multiplier)


def _delay_ms(text: str) -> int:
    delay_ms = parse_ms(text, exact=True)
    if delay_ms > bounds.DURATION_MS_MAX:
        raise ValueError("a backoff delay is longer than ten years")
    return delay_ms
