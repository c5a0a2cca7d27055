"""Log-ins by password beside an attack: what guessing at it costs those who know theirs.

Owns the times of log-ins of users that no node remembers yet, in peace and beside the attack. Each
visitor logs in once, so that each costs a hash. Must not know the attack.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Final

import fifo

VISITORS: Final = [f"visitor{number}" for number in range(60)]
"""Users who log in by password, more than two attacks need."""

PASSWORD: Final = "visitor-password"
"""Of all visitors, so that one hash is made for them: a node hashes for each name anew."""

COST_SECONDS_MAX: Final = 1.0
"""Time that guessing may add to an honest log-in."""

PEACEFUL: Final = 6
"""Log-ins before the attack: their slowest is the measure, for a busy machine makes some slow."""

PAUSE_SECONDS: Final = 0.3
PATIENCE_SECONDS: Final = 30.0


class Visits:
    """Log-ins of visitors, one after the other."""

    def __init__(self, url: str, names: Iterator[str]) -> None:
        self._url = url
        self._names = names
        self._peaceful: list[float] = []
        self._beside: list[float] = []
        self._refused: list[str] = []

    async def in_peace(self) -> None:
        """Log in a few times, as the measure of the others."""
        for name in itertools.islice(self._names, PEACEFUL):
            await self._one(name, self._peaceful)

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Log in again and again until the block ends; the log-in that is under way then has to end
        as well, and its time counts."""
        over = asyncio.Event()
        task = asyncio.ensure_future(self._many(over))
        try:
            yield
        finally:
            over.set()
            await task

    async def _many(self, over: asyncio.Event) -> None:
        for name in self._names:
            await self._one(name, self._beside)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), PAUSE_SECONDS)
            if over.is_set():
                return

    async def _one(self, name: str, times: list[float]) -> None:
        began = time.perf_counter()
        try:
            async with fifo.connect(
                self._url, user=name, password=PASSWORD, timeout=PATIENCE_SECONDS
            ):
                times.append(time.perf_counter() - began)
        except fifo.FifoError as error:
            self._refused.append(f"log-in by password: {type(error).__name__}: {error}")

    @property
    def cost_seconds(self) -> float:
        """Time that the slowest log-in beside the attack took beyond the slowest in peace."""
        return max(self._beside) - max(self._peaceful)

    def broken(self) -> list[str]:
        """Broken facts about the log-ins."""
        if not self._peaceful or not self._beside:
            return [*self._refused[:3], "no visitor logged in"]
        broken = self._refused[:3]
        if self.cost_seconds > COST_SECONDS_MAX:
            broken.append(f"a log-in by password took {self.cost_seconds:.1f} s longer than before")
        return broken

    def says(self) -> str:
        """The times, for the page."""
        if not self._peaceful or not self._beside:
            return "no log-ins by password"
        return (
            f"{len(self._beside)} users logged in by password, in {_times(self._beside)}; before"
            f" the attack in {_times(self._peaceful)}"
        )


def _times(seconds: list[float]) -> str:
    return f"{1000 * median(seconds):.0f} ms (median) and at most {1000 * max(seconds):.0f} ms"
