"""Backoffs as users write them: how long a returned message waits (semantics.md 7).

Owns the three kinds, their text forms, and the callables that only a client can have. The server
computes; the client needs the numbers for its own retries and for callables only.
The text forms are the machine's: change them together.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from fifo.client.durations import Duration, milliseconds, parse_ms, to_text
from fifo.client.errors import InvalidArgument
from fifo.client.limits import BACKOFF_TABLE_MAX

_MULTIPLIER_MIN: Final = 1.1
_MULTIPLIER_MAX: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same delay, in seconds."""

    delay: Duration

    def __post_init__(self) -> None:
        milliseconds(self.delay, "backoff delay")

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many earlier failures."""
        return milliseconds(self.delay, "backoff delay") / 1000

    def __str__(self) -> str:
        return f"fixed:{to_text(milliseconds(self.delay, 'backoff delay'))}"


@dataclass(frozen=True, slots=True)
class Exponential:
    """min, then times multiplier for each further failure, up to max (PIP-106); in seconds."""

    min: Duration
    max: Duration
    multiplier: float = 2

    def __post_init__(self) -> None:
        if milliseconds(self.max, "backoff max") < milliseconds(self.min, "backoff min"):
            raise InvalidArgument("backoff max: must not be below min")
        if not _MULTIPLIER_MIN <= self.multiplier <= _MULTIPLIER_MAX:
            raise InvalidArgument(
                f"backoff multiplier: must be from {_MULTIPLIER_MIN} to {_MULTIPLIER_MAX:g}"
            )

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many earlier failures."""
        low = milliseconds(self.min, "backoff min") / 1000
        high = milliseconds(self.max, "backoff max") / 1000
        delay = low
        for _ in range(max(failures, 0)):
            if delay >= high or not delay:
                break
            delay *= self.multiplier
        return min(delay, high)

    def __str__(self) -> str:
        low = to_text(milliseconds(self.min, "backoff min"))
        high = to_text(milliseconds(self.max, "backoff max"))
        factor = f"{self.multiplier:.3f}".rstrip("0").rstrip(".")
        return f"exponential:{low}..{high}*{factor}"


@dataclass(frozen=True, slots=True)
class Table:
    """One delay in seconds per failure; the last one holds from then on."""

    delays: Sequence[Duration]

    def __post_init__(self) -> None:
        if not 1 <= len(self.delays) <= BACKOFF_TABLE_MAX:
            raise InvalidArgument(f"backoff table: must have 1 to {BACKOFF_TABLE_MAX} delays")
        for delay in self.delays:
            milliseconds(delay, "backoff delay")

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many earlier failures."""
        at = min(max(failures, 0), len(self.delays) - 1)
        return milliseconds(self.delays[at], "backoff delay") / 1000

    def __str__(self) -> str:
        parts = [to_text(milliseconds(delay, "backoff delay")) for delay in self.delays]
        return "table:" + ",".join(parts)


Backoff: TypeAlias = Fixed | Exponential | Table
BackoffCallable: TypeAlias = Callable[[int], Duration]
"""Failures so far to seconds; only for nack, because the client calls it."""


def parse(text: str) -> Backoff:
    """A backoff from its text form; raises InvalidArgument that says what is wrong."""
    kind, _, rest = text.partition(":")
    if kind == "fixed":
        return Fixed(_part(rest))
    if kind == "table":
        return Table(tuple(_part(part) for part in rest.split(",")))
    if kind == "exponential":
        span, star, factor = rest.partition("*")
        low, dots, high = span.partition("..")
        if dots:
            return Exponential(_part(low), _part(high), _factor(factor) if star else 2)
    raise InvalidArgument(
        f"backoff: {text[:40]!r} is not fixed:1s, exponential:1s..60s*2 or table:1s,5s,30s"
    )


def _part(text: str) -> float:
    return parse_ms(text, "backoff") / 1000


def _factor(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"backoff multiplier: {text[:40]!r} is not a number") from None


def to_text_form(backoff: Backoff | str | None, name: str) -> str | None:
    """The text form for the wire, checked; None stays None. Raises InvalidArgument."""
    if backoff is None:
        return None
    if isinstance(backoff, str):
        return str(parse(backoff))
    if isinstance(backoff, Fixed | Exponential | Table):
        return str(backoff)
    raise InvalidArgument(
        f"{name}: must be Fixed, Exponential, Table or a text form; a callable is possible only as"
        " the nack_backoff of a consumer, because only there the client decides"
    )


def split_callable(
    backoff: Backoff | BackoffCallable | str | None,
) -> tuple[str | None, BackoffCallable | None]:
    """A consumer's nack backoff: the text form for the server, or the callable that we ask.

    `callable:module:name` names a callable to import.
    """
    if isinstance(backoff, str) and backoff.startswith("callable:"):
        return None, _imported(backoff.removeprefix("callable:"))
    if callable(backoff):
        return None, backoff
    return to_text_form(backoff, "nack_backoff"), None


def _imported(path: str) -> BackoffCallable:
    module_name, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"nack_backoff: cannot import callable:{path}: {error}") from error
    if not callable(found):
        raise InvalidArgument(f"nack_backoff: callable:{path} is not callable")
    result: BackoffCallable = found
    return result
