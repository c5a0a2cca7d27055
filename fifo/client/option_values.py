"""Values of options, as a program passes them or as text, by the kind of the option's row.

Owns the conversions, and the error for a name that no row has. The rows stand in `fifo.words`;
`what` is how an error names the option. Must not know which options there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Final

from fifo.client import checks
from fifo.client.backoff import to_text_form
from fifo.client.durations import milliseconds, parse_ms
from fifo.client.errors import InvalidArgument
from fifo.words.options import Kind, Option

_FALSE: Final = frozenset({"0", "false", "no", "off"})
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_NONE: Final = "none"
_FREE: Final = (Kind.QUEUE, Kind.TEXT, Kind.SECRET)
"""Kinds whose values may be any text, `none` too."""
_DIGITS_MAX: Final = 20


def to_wire(option: Option, value: Any, what: str) -> Any:
    """The value of an option on the wire; None only where that is the default.

    Raises InvalidArgument.
    """
    if value is None and option.default is None:
        return None
    match option.kind:
        case Kind.DURATION:
            return milliseconds(value, what, low_ms=option.low, high_ms=option.high)
        case Kind.COUNT | Kind.SIZE:
            if isinstance(value, str) and value in option.choices:
                return value
            return checks.integer(value, what, option.low, option.high, *option.choices)
        case Kind.FLAG:
            return checks.flag(value, what)
        case Kind.CHOICE:
            return checks.one_of(value, what, *option.choices)
        case Kind.QUEUE | Kind.TEXT:
            return checks.name(value, what)
        case Kind.SECRET:
            # A token may be asked for anew at each log-in; a password is what it is.
            is_source = option.name == "token" and callable(value)
            return value if is_source else checks.secret(value, what)
        case Kind.BACKOFF:
            return to_text_form(value, what)


def from_text(option: Option, text: str, what: str) -> Any:
    """The value that a program would pass, from its text. Raises InvalidArgument.

    `none` restores a default of None, except for names and other free text.
    """
    cleaned = text.strip().lower()
    if option.kind not in _FREE and option.default is None and cleaned == _NONE:
        return None
    match option.kind:
        case Kind.FLAG:
            if cleaned in _TRUE | _FALSE:
                return cleaned in _TRUE
            raise InvalidArgument(f"{what}: must be true or false, not {text[:40]!r}")
        case Kind.COUNT | Kind.SIZE:
            if cleaned in option.choices:
                return cleaned
            digits = cleaned.removeprefix("-")
            if digits.isascii() and digits.isdigit() and len(digits) < _DIGITS_MAX:
                return int(cleaned)
            wanted = " or ".join([*option.choices, "a whole number"])
            raise InvalidArgument(f"{what}: must be {wanted}, not {text[:40]!r}")
        case Kind.DURATION:
            try:
                return float(cleaned)
            except ValueError:
                return parse_ms(cleaned, what) / 1000
        case _:
            return text


def unknown(name: str, known: Iterable[str], owner: str, where: str = "") -> InvalidArgument:
    """The error for a name that is none of `known`, with the nearest of them.

    `owner` is what has the options: `a queue`, `the section [consumer]`; `where` begins the text.
    """
    names = list(known)
    text = f"{where}{name[:40]}: {owner} has no such option"
    close = difflib.get_close_matches(name[:40], names, 1)
    if close:
        return InvalidArgument(f"{text}; did you mean {close[0]}?")
    return InvalidArgument(f"{text}; there are {', '.join(names)}")
