"""The decorator of commands, effects and replies: records that no code changes.

Owns that one decorator. The type checker enforces it; at run time nothing guards the
fields, because a frozen dataclass sets each of them with a call, which is twice the price of the
record, and several are made for every entry. Of a named tuple a field is six times as dear to read,
and its making a half dearer: those are for what is kept in rows, compared in order or unpacked.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(kind: type[T]) -> type[T]:
    """A slotted dataclass that is compared and hashed by its fields, frozen to the type checker."""
    return dataclass(slots=True, unsafe_hash=True)(kind)
