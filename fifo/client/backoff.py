"""Backoffs as users write them: how long a returned message waits (semantics.md 7).

Owns the three kinds in seconds, and the callables that only a client can have. The text forms and
their bounds are those of `fifo.words.backoff`. The server computes the delays of a queue; the
client needs the numbers for its own retries and for callables only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from fifo.client.durations import Duration, milliseconds
from fifo.client.errors import InvalidArgument
from fifo.words import backoff as words


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same delay, in seconds."""

    delay: Duration

    def __post_init__(self) -> None:
        _delay_ms(self.delay)

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many earlier failures."""
        return _delay_ms(self.delay) / 1000

    def __str__(self) -> str:
        return str(words.FixedDelay(_delay_ms(self.delay)))


@dataclass(frozen=True, slots=True)
class Exponential:
    """min, then times multiplier for each further failure, up to max (PIP-106); in seconds."""

    min: Duration
    max: Duration
    multiplier: float = 2

    def __post_init__(self) -> None:
        self._words()

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many earlier failures."""
        low, high = _delay_ms(self.min) / 1000, _delay_ms(self.max) / 1000
        delay = low
        for _ in range(max(failures, 0)):
            if delay >= high or not delay:
                break
            delay *= self.multiplier
        return min(delay, high)

    def __str__(self) -> str:
        return str(self._words())

    def _words(self) -> words.ExponentialDelay:
        low_ms = milliseconds(self.min, "backoff min")
        high_ms = milliseconds(self.max, "backoff max")
        try:
            return words.ExponentialDelay(low_ms, high_ms, round(self.multiplier * 1_000))
        except ValueError as error:
            raise InvalidArgument(f"backoff: {error}") from None


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a delay in seconds per failure; the last one repeats."""

    delays: Sequence[Duration]

    def __post_init__(self) -> None:
        self._words()

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many earlier failures."""
        at = min(max(failures, 0), len(self.delays) - 1)
        return _delay_ms(self.delays[at]) / 1000

    def __str__(self) -> str:
        return str(self._words())

    def _words(self) -> words.DelayTable:
        try:
            return words.DelayTable(tuple(map(_delay_ms, self.delays)))
        except ValueError as error:
            raise InvalidArgument(f"backoff: {error}") from None


Backoff: TypeAlias = Fixed | Exponential | Table
BackoffCallable: TypeAlias = Callable[[int], Duration]
"""Failures so far to seconds; only for nack, because the client calls it."""

CALLABLE: Final = "callable:"
"""The beginning of the text form of a callable: `callable:module:name` is imported."""


def _delay_ms(delay: Duration) -> int:
    return milliseconds(delay, "backoff delay")


def parse(text: str, name: str = "backoff") -> Backoff:
    """A backoff from its text form; raises InvalidArgument that says what is wrong."""
    try:
        found = words.parse(text)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {text[:40]!r} is not a backoff: {error}") from None
    match found:
        case words.FixedDelay():
            return Fixed(found.delay_ms / 1000)
        case words.ExponentialDelay():
            factor = found.multiplier_thousandths / 1000
            return Exponential(found.min_ms / 1000, found.max_ms / 1000, factor)
        case words.DelayTable():
            return Table(tuple(delay_ms / 1000 for delay_ms in found.delays_ms))


def to_text_form(backoff: Backoff | str | None, name: str) -> str | None:
    """The text form for the wire, checked; None stays None. Raises InvalidArgument."""
    if backoff is None:
        return None
    if isinstance(backoff, str):
        return str(parse(backoff, name))
    if isinstance(backoff, Fixed | Exponential | Table):
        return str(backoff)
    raise InvalidArgument(
        f"{name}: must be Fixed, Exponential, Table or a text form, not {type(backoff).__name__};"
        " a callable is possible only as the nack_backoff of a consumer, because only there the"
        " client decides"
    )


def split_callable(
    backoff: Backoff | BackoffCallable | str | None, name: str = "nack_backoff"
) -> tuple[str | None, BackoffCallable | None]:
    """A consumer's nack backoff: the text form for the server, or the callable that we ask.

    `callable:module:name` names a callable to import.
    """
    if isinstance(backoff, str) and backoff.startswith(CALLABLE):
        return None, _imported(backoff.removeprefix(CALLABLE), name)
    if callable(backoff):
        return None, backoff
    return to_text_form(backoff, name), None


def _imported(path: str, what: str) -> BackoffCallable:
    module_name, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"{what}: cannot import {CALLABLE}{path}: {error}") from error
    if not callable(found):
        raise InvalidArgument(f"{what}: {CALLABLE}{path} is not callable")
    result: BackoffCallable = found
    return result
