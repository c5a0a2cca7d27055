"""Long pages in pieces: the event loop turns between them.

Owns the pause. Must not know what is on a page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def in_pieces(items: Iterable[T], size: int) -> AsyncIterator[T]:
    """These items; the event loop turns after each `size` of them."""
    for place, item in enumerate(items, start=1):
        yield item
        if place % size == 0:
            await asyncio.sleep(0)
