"""The decorator of commands, effects and replies: records that no code changes.

Owns that one decorator, and the short way to make a named tuple. The type checker enforces the
freezing; at run time nothing guards the fields, because a frozen dataclass sets each of them with a
call, which is twice the price of the record, and several are made for every entry. Of a named tuple
a field is six times as dear to read, and its making by its class a half dearer: those are for what
is kept in rows, compared in order or unpacked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(kind: type[T]) -> type[T]:
    """A slotted dataclass that is compared and hashed by its fields, frozen to the type checker."""
    return dataclass(slots=True, unsafe_hash=True)(kind)


def maker(kind: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """A function that makes a named tuple of all its fields in a tuple, in half the time its class
    takes; neither a type checker nor Python looks whether it has as many."""
    new: Any = tuple.__new__
    return partial(new, kind)
