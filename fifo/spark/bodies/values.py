"""The words of all formats for a body that does not fit, and for its parts.

Owns what a misfit says, which goes into errors, columns and dead letters. Must not know a format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

SHOWN: Final = 60
"""Characters that a misfit shows of a value: a body may have a million."""

Read: TypeAlias = Callable[[bytes], Any]
"""The value of a body; raises Misfit."""

Write: TypeAlias = Callable[[Any], bytes]
"""The body of a value; raises Misfit."""


class Misfit(Exception):
    """A body, or a value that is to be one, is not of the schema; the text says where and why."""


def shown(value: Any) -> str:
    """The beginning of a value, for an error."""
    try:
        text = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} that is too deep"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def at(path: str) -> str:
    """The beginning of a misfit within a body."""
    return f"field {path}: " if path else ""


def inside(path: str, name: str) -> str:
    """The path of a field."""
    return f"{path}.{name}" if path else name
