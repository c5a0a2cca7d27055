"""Middleware: code around every run of a handler, and what it sees of one.

Owns the two types. Must not know what a worker does with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fifo.client import InvalidArgument, Message


@dataclass(slots=True)
class Run:
    """A run of a task: its message, and its arguments once they are read."""

    task: str
    message: Message
    arguments: dict[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)
    """For middleware: what `before` leaves for `after` and `error`."""


class Middleware:
    """Around every run: override what is needed. The first one of an app is the outermost.

    What `before` raises is handled as if the handler had raised it: `fifo.Terminal` refuses the
    message. What `after` and `error` raise is logged, and changes nothing.
    """

    async def before(self, run: Run) -> None:
        """Look at a run before its handler begins."""

    async def after(self, run: Run, result: Any) -> None:
        """Look at what the handler returned."""

    async def error(self, run: Run, error: BaseException) -> None:
        """Look at what the handler raised."""


STEPS = ("before", "after", "error")


def checked(middleware: Iterable[Middleware]) -> tuple[Middleware, ...]:
    """Check what an app was given. Raises InvalidArgument."""
    found = tuple(middleware)
    for one in found:
        if not isinstance(one, Middleware):
            raise InvalidArgument(f"middleware: {one!r:.60} is no object of a fifo.Middleware")
        for step in STEPS:
            if not inspect.iscoroutinefunction(getattr(one, step)):
                raise InvalidArgument(
                    f"middleware: {type(one).__name__}.{step} must be written with `async def`"
                )
    return found
