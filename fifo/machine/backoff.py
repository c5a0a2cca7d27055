"""How long a message waits before it is handed out again: PIP-106 and PIP-130, in exact integers.

Owns the three kinds and their text forms. Knows neither queues nor messages. `failures` is always
the number of failures before this one, 0 for the first.
"""

from dataclasses import dataclass
from typing import Final

from fifo.machine import limits

_UNITS: Final = (("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000))


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same delay."""

    delay_ms: int

    def delay(self, failures: int) -> int:
        """Milliseconds to wait."""
        return self.delay_ms

    def text(self) -> str:
        """The text form that `parse` takes."""
        return f"fixed:{_duration(self.delay_ms)}"


@dataclass(frozen=True, slots=True)
class Exponential:
    """min(max, floor(min x multiplier^failures)); the multiplier in thousandths."""

    min_ms: int
    max_ms: int
    multiplier_thousandths: int = 2_000

    def delay(self, failures: int) -> int:
        """Milliseconds to wait: exact, and it stops multiplying once the maximum is reached."""
        if failures <= 0 or self.min_ms == 0:
            return self.min_ms
        numerator, denominator = self.min_ms, 1
        # From a multiplier of 1.1 on this reaches any maximum in some 300 rounds: bounded.
        for _ in range(failures):
            numerator *= self.multiplier_thousandths
            denominator *= 1_000
            if numerator >= self.max_ms * denominator:
                return self.max_ms
        return numerator // denominator

    def text(self) -> str:
        """The text form that `parse` takes."""
        whole, thousandths = divmod(self.multiplier_thousandths, 1_000)
        factor = f"{whole}.{thousandths:03d}".rstrip("0").rstrip(".")
        return f"exponential:{_duration(self.min_ms)}..{_duration(self.max_ms)}*{factor}"


@dataclass(frozen=True, slots=True)
class Table:
    """One delay per failure; the last one holds from then on."""

    delays_ms: tuple[int, ...]

    def delay(self, failures: int) -> int:
        """Milliseconds to wait."""
        return self.delays_ms[min(max(failures, 0), len(self.delays_ms) - 1)]

    def text(self) -> str:
        """The text form that `parse` takes."""
        return "table:" + ",".join(_duration(delay_ms) for delay_ms in self.delays_ms)


Backoff = Fixed | Exponential | Table


def parse(text: str) -> Backoff:
    """A backoff from its text form: `fixed:1s`, `exponential:1s..60s*2`, `table:1s,5s,30s`.

    Raises `ValueError` that says what is wrong.
    """
    kind, separator, rest = text.partition(":")
    if not separator:
        raise ValueError("a backoff is fixed:..., exponential:... or table:...")
    if kind == "fixed":
        return Fixed(_milliseconds(rest))
    if kind == "table":
        parts = rest.split(",")
        if len(parts) > limits.BACKOFF_TABLE:
            raise ValueError(f"a backoff table has at most {limits.BACKOFF_TABLE} entries")
        return Table(tuple(_milliseconds(part) for part in parts))
    if kind == "exponential":
        return _exponential(rest)
    raise ValueError("a backoff is fixed:..., exponential:... or table:...")


def _exponential(rest: str) -> Exponential:
    span, star, factor = rest.partition("*")
    low, dots, high = span.partition("..")
    if not dots:
        raise ValueError("an exponential backoff is exponential:MIN..MAX*MULTIPLIER")
    min_ms, max_ms = _milliseconds(low), _milliseconds(high)
    multiplier = _decimal(factor, 1_000) if star else 2_000
    if max_ms < min_ms:
        raise ValueError("an exponential backoff's max is below its min")
    lowest, highest = limits.MULTIPLIER_THOUSANDTHS_MIN, limits.MULTIPLIER_THOUSANDTHS_MAX
    if not lowest <= multiplier <= highest:
        raise ValueError(f"a multiplier is from 1.1 to {highest // 1_000}")
    return Exponential(min_ms, max_ms, multiplier)


def _decimal(text: str, scale: int) -> int:
    """`text` times `scale` as an exact integer; digits beyond the scale are an error."""
    whole, point, fraction = text.partition(".")
    digits = whole + fraction
    if not digits.isascii() or not digits.isdigit() or not whole or len(text) > 20:
        raise ValueError("not a decimal number")
    if point and not fraction:
        raise ValueError("not a decimal number")
    tenths: int = 10 ** len(fraction)
    scaled, rest = divmod(int(digits) * scale, tenths)
    if rest:
        raise ValueError("a decimal number with too many digits")
    return scaled


def _milliseconds(text: str) -> int:
    """A duration like 1s, 250ms, 1.5m, 2h, 1d in milliseconds."""
    stripped = text.strip()
    for unit, factor in _UNITS:
        number = stripped.removesuffix(unit)
        if number != stripped and (unit == "ms" or number[-1:].isdigit()):
            value = _decimal(number, factor)
            if value > limits.DURATION_MS:
                raise ValueError("a backoff delay is longer than ten years")
            return value
    raise ValueError("a duration is a number with a unit: ms, s, m, h or d")


def _duration(milliseconds: int) -> str:
    """The shortest exact text of a duration."""
    for unit, factor in reversed(_UNITS):
        if milliseconds and milliseconds % factor == 0:
            return f"{milliseconds // factor}{unit}"
    return f"{milliseconds}ms"
