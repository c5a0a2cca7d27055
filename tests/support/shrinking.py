"""Making a failing list shorter while it fails.

Owns the order in which items are left out. Knows neither what they are nor what fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def shortest(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """The items without those that it fails without: halves first, then singles."""
    size = max(1, len(items) // 2)
    while size:
        at = 0
        while at < len(items):
            shorter = items[:at] + items[at + size :]
            if fails(shorter):
                items = shorter
            else:
                at += size
        size //= 2
    return items
