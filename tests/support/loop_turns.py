"""A spy on calls of a method, by the turn of the event loop in which they come."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest


class Spy:
    """Counts calls of a method, and keeps their arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        self.turn = 0
        self.calls: Counter[int] = Counter()
        self.arguments: list[tuple[object, ...]] = []
        original = getattr(owner, name)

        def counted(*values: object, **named: object) -> object:
            self.calls[self.turn] += 1
            self.arguments.append(values)
            return original(*values, **named)

        monkeypatch.setattr(owner, name, counted)
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self.turn += 1
        self._next = self._loop.call_soon(self._tick)

    def stop(self) -> None:
        """Count no more turns: the loop may rest."""
        self._next.cancel()
