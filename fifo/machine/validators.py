"""Checkers for the plain-list form of commands: each takes a plain value and gives the field's.

Owns only shape and range: whether a queue exists is the state's business. A checker raises
`ValueError` with a text that names what was wrong, never what the value was (it may be long).
"""

from collections.abc import Callable
from typing import Any

from fifo.machine import limits
from fifo.words import bounds, names

Checker = Callable[[Any], Any]


def integer(low: int, high: int) -> Checker:
    """An int from `low` to `high`, both included; bool is not one."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"not an integer from {low} to {high}")
        return value

    return check


natural = integer(0, limits.NUMBER_MAX)
positive = integer(1, limits.NUMBER_MAX)
offset = integer(0, limits.AREA_BYTES)


def flag(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise ValueError("not true or false")
    return value


def raw(size: int) -> Checker:
    """Exactly `size` bytes."""

    def check(value: Any) -> bytes:
        if type(value) is not bytes or len(value) != size:
            raise ValueError(f"not {size} bytes")
        return value

    return check


def text(max_bytes: int, *, empty: bool = True) -> Checker:
    """Text of at most `max_bytes` in UTF-8."""

    def check(value: Any) -> str:
        if type(value) is not str:
            raise ValueError("not text")
        try:
            size = len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError:
            raise ValueError("not text that UTF-8 can write") from None
        if size > max_bytes or (not value and not empty):
            raise ValueError(f"not text of {0 if empty else 1} to {max_bytes} bytes")
        return value

    return check


label = text(bounds.QUEUE_NAME_BYTES_MAX)
name = text(bounds.QUEUE_NAME_BYTES_MAX, empty=False)


def without_controls(check: Checker) -> Checker:
    """A new name of the form of `check`, without control characters; one that is only looked up
    needs no such check, for it is not found.
    """

    def checked(value: Any) -> Any:
        found = check(value)
        character = names.refused_character(found)
        if character is not None:
            raise ValueError(f"a name with the control character {character}; leave it out")
        return found

    return checked


new_label = without_controls(label)
new_name = without_controls(name)


def optional(check: Checker) -> Checker:
    """None, or what `check` takes."""

    def checked(value: Any) -> Any:
        return None if value is None else check(value)

    return checked


def record(*checks: Checker) -> Checker:
    """A list or tuple with one value per checker, as a tuple."""

    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) != len(checks):
            raise ValueError(f"not a list of {len(checks)}")
        return tuple(c(v) for c, v in zip(checks, value, strict=True))

    return check


def sequence(check: Checker, most: int) -> Checker:
    """A list or tuple of at most `most` values, as a tuple."""

    def checked(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) > most:
            raise ValueError(f"not a list of at most {most}")
        return tuple(map(check, value))

    return checked


def ranges(most: int) -> Checker:
    """At most `most` inclusive (first, last) pairs, ascending and apart, as a tuple of tuples."""
    pairs = sequence(record(positive, positive), most)

    def check(value: Any) -> tuple[tuple[int, int], ...]:
        checked: tuple[tuple[int, int], ...] = pairs(value)
        before = 0
        for first, last in checked:
            if not before < first <= last:
                raise ValueError("ranges are not ascending and apart")
            before = last
        return checked

    return check


def mapping(most: int) -> Checker:
    """A dict from text to plain values; what they may be, the spec decides."""

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > most:
            raise ValueError(f"not a table of at most {most} entries")
        if not all(type(key) is str for key in value):
            raise ValueError("a table's names are not text")
        return dict(value)

    return check


column = optional(record(offset, offset))
fence = optional(record(integer(0, 1), positive))
