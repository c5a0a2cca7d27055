"""A clock that jumps on a loop with real sockets: when nothing happens there, and how far it goes.

Owns this rule, for every loop that skips waiting. Must not know what runs on the loop.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

from node.testing import limits


def look(selector: Any, poll: Callable[[float], list[Any]], timeout: float) -> list[Any]:
    """Wait for a look; what became ready. Nothing happens on the loop where nothing did.

    `poll` is the wait of this selector. Its own time-outs are whole milliseconds, five looks.
    """
    wait = min(timeout, limits.LOOK_SECONDS)
    if not hasattr(selector, "fileno"):
        return poll(wait)
    select.select([selector.fileno()], (), (), wait)
    return poll(0)


def jump(timeout: float) -> float:
    """Seconds that the clock may go on by, after a look at which nothing happened."""
    return min(timeout, limits.JUMP_SECONDS)
