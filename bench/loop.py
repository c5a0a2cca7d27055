"""Run a coroutine on the event loop of a worker: uvloop where it is installed.

A benchmark shows the library at its best, as `fifo bench` does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from fifo.loop import new_loop

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own, to its end."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)
