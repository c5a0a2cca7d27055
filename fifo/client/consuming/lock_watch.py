"""The end of locks that no renewal has prolonged: at its deadline a message's lock is lost.

Owns one timer of a session, on the loop of the control thread where that runs, so that a handler
that blocks the program's loop can see it. A ledger says when it has to be looked at; what is
settled or renewed before then costs nothing here. Must not know connections.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from fifo.client.connection.environment import Environment
from fifo.client.connection.threads import call_in
from fifo.client.consuming.lock_ledger import Held, LockLedger


class Loses(Protocol):
    """The session, as the watch sees it."""

    @property
    def ledgers(self) -> Mapping[int, LockLedger[Any]]:
        """The ledgers by the number of their consumer: replaced, never changed."""

    @property
    def environment(self) -> Environment:
        """The clocks of the client."""

    def flag_run_out(self, messages: Iterable[Held]) -> None:
        """Tell the program that these deadlines have passed."""


class LockWatch:
    """See the module. `watch` from any thread."""

    def __init__(self, session: Loses, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._session = session
        self._due = math.inf
        self._stopped = False

    def __repr__(self) -> str:
        return f"<lock watch, due at {self._due:.3f}>"

    def watch(self, at: float) -> None:
        """Look at all ledgers then, at the latest."""
        if at < self._due and not self._stopped:
            self._due = at
            loop = self._loop
            call_in(loop, self._arm, loop, at)

    def move(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look on this loop from here on: nothing blocks it."""
        self._loop = loop
        due, self._due = self._due, math.inf
        self.watch(due)

    def stop(self) -> None:
        """Look no more: the session is over for good."""
        self._stopped = True

    def _arm(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        loop.call_later(max(0.0, at - self._session.environment.monotonic()), self._look)

    def _look(self) -> None:
        """Flag what has ended. Asyncio reads what has arrived before it runs a timer that is due:
        a client that was stopped hears of its renewals first."""
        if self._stopped:
            return
        # Unset before the look: a ledger that is due earlier arms a timer of its own.
        self._due = math.inf
        now = self._session.environment.monotonic()
        soonest = math.inf
        for ledger in self._session.ledgers.values():
            ended, next_at = ledger.run_out(now)
            self._session.flag_run_out(ended)
            soonest = min(soonest, next_at)
        if soonest < math.inf:
            self.watch(soonest)
