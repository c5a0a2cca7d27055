"""The options of a redrive, in their form for the wire.

Owns the checks of a redrive's filter and bounds. Must not know connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fifo.client import checks
from fifo.client.durations import milliseconds
from fifo.client.errors import InvalidArgument
from fifo.client.keywords import RedriveKeywords
from fifo.client.option_values import unknown
from fifo.words.settlement import REASONS

_MOST: Final = 2**63 - 1


def options(given: RedriveKeywords, *, dry_run: bool) -> dict[str, Any]:
    """The options of a `Redrive` frame; raises InvalidArgument with the name of what is wrong."""
    for name in given:
        if name not in RedriveKeywords.__annotations__:
            raise unknown(name, RedriveKeywords.__annotations__, "a redrive")
    chosen = _checked(given, _CONDITIONS)
    found: dict[str, Any] = {"filter": chosen} if chosen else {}
    found |= _checked(given, _BOUNDS)
    if not checks.flag(given.get("reset_counts", True), "reset_counts"):
        found["reset_counts"] = False
    if checks.flag(dry_run, "dry_run"):
        found["dry_run"] = True
    return found


def _checked(
    given: RedriveKeywords, known: Mapping[str, tuple[str, Callable[[Any, str], Any]]]
) -> dict[str, Any]:
    """The given ones of `known`, under their names on the wire; None is as good as not given."""
    return {
        wire_name: check(value, name)
        for name, (wire_name, check) in known.items()
        if (value := given.get(name)) is not None
    }


def _reason(value: Any, what: str) -> str:
    return checks.one_of(value, what, *REASONS)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{what}: must be text, not {type(value).__name__}")
    return value


def _headers(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{what}: must be a mapping, not {type(value).__name__}")
    checks.headers(value)
    return dict(value)


def _count(value: Any, what: str) -> int:
    return checks.integer(value, what, 1, _MOST)


def _attempts(value: Any, what: str) -> int:
    return checks.integer(value, what, 0, _MOST)


_CONDITIONS: Final[Mapping[str, tuple[str, Callable[[Any, str], Any]]]] = {
    "reason": ("reason", _reason),
    "source": ("source", checks.name),
    "exception_type": ("exception_type", _text),
    "stack_line": ("stack_line", _text),
    "headers": ("headers", _headers),
    "older_than": ("older_than_ms", milliseconds),
    "min_attempts": ("min_attempts", _attempts),
}
_BOUNDS: Final[Mapping[str, tuple[str, Callable[[Any, str], Any]]]] = {
    "limit": ("limit", _count),
    "rate": ("rate_per_s", _count),
}
