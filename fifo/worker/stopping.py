"""SIGTERM and SIGINT as two events: the first asks for a drain, the second to release everything.

Owns the signal handlers of a process. Must not know what is stopped.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stops:
    """Signals as events; made on the loop that waits for them."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._then: Callable[[int], object] | None = None

    def listen(self, then: Callable[[int], object] | None = None) -> None:
        """Take both from here on, and call `then` for each."""
        self._then = then
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop, number)

    def forget(self) -> None:
        """Leave them to Python again."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def _stop(self, number: int) -> None:
        (self.second if self.first.is_set() else self.first).set()
        if self._then is not None:
            self._then(number)
