"""The prefetch of one subscription, tuned: what its consumer sees goes in, `Credit` frames go out.

Owns the `Places` of one ledger, and that the node hears of their number: one frame at a time, the
newest number last. They are marked as the library's own, so they clear no suspicion (semantics.md
3). Runs on the user's loop, and keeps no consumer alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

from fifo.client import limits
from fifo.client.connection.session import Session
from fifo.client.consuming.delivery import Delivery
from fifo.client.consuming.lock_ledger import LockLedger
from fifo.client.consuming.places import Places
from fifo.client.errors import FifoError
from fifo.wire.messages import Credit

_log = logging.getLogger("fifo.client")


class Tuning:
    """The tuned prefetch of one ledger, until `end`."""

    def __init__(
        self, session: Session, ledger: LockLedger[Any], waiters: Collection[asyncio.Future[Any]]
    ) -> None:
        """`waiters`: one future per task that waits; those that are done do not."""
        self._session = session
        self._ledger = ledger
        self._waiters = waiters
        self._now = session.environment.monotonic
        welcome = session.welcome
        allowed = {} if welcome is None else dict(welcome.limits)
        most = min(limits.PLACES_MAX, int(allowed.get("prefetch", limits.PLACES_MAX)))
        self._places = Places(most, ledger.lock_s, self._now())
        self._asked = 1
        self._asking = False
        self._ended = False
        self._came_at = self._now()
        self._resting: asyncio.TimerHandle | None = None

    def starved(self) -> None:
        """Tasks wait, and nothing is buffered. Looks again when a settlement is answered, for then
        all may be in the hands of the program."""
        ledger = self._ledger
        ledger.on_resolved = None
        waiting = self._waiting()
        if not waiting or ledger.suspected:
            return  # where it is suspected, more places would not help
        held, in_hand = ledger.held_count(), len(ledger.open)
        if self._places.starved(self._now(), held=held, in_hand=in_hand, waiting=waiting):
            self._ask()
        elif in_hand < held:
            ledger.on_resolved = self.starved
        if self._resting is None and self._places.count > 1:
            self._resting = self._session.loop.call_later(ledger.lock_s, self._rest)

    def delivered(self, delivery: Delivery, *, waiting: bool) -> None:
        """Messages came; `waiting`: the program waited for them."""
        now = self._came_at = self._now()
        self._ledger.on_resolved = None
        if self._places.delivered(now, delivery.count, delivery.size, waiting=waiting):
            self._ask()
        if delivery.keys_out:
            held, in_hand = self._ledger.held_count(), len(self._ledger.open)
            if self._places.keys_out(now, held=held, wanted=in_hand + self._waiting()):
                self._ask()

    def handed_out(self, delivery: Delivery) -> None:
        """The program takes the first message of a slice of a delivery."""
        in_hand = len(self._ledger.open)
        if self._places.handed_out(self._now(), delivery.received, in_hand=in_hand):
            self._ask()

    def make_room_beside(self, lost: int) -> None:
        """Keep one place beside lost messages whose handlers run."""
        if lost >= self._places.count and self._places.beside(lost):
            self._ask()

    def end(self) -> None:
        """Ask for nothing more."""
        self._ended = True
        self._ledger.on_resolved = None
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

    def _waiting(self) -> int:
        return sum([not one.done() for one in self._waiters])

    def _rest(self) -> None:
        self._resting = None
        idle_s = self._now() - self._came_at
        if idle_s < self._ledger.lock_s:
            later_s = self._ledger.lock_s - idle_s
            self._resting = self._session.loop.call_later(later_s, self._rest)
        elif not self._ledger.open and self._places.rest():
            self._ask()

    def _ask(self) -> None:
        if self._asking or self._ended or self._ledger.void or self._session.fatal is not None:
            return
        self._asking, self._asked = True, self._places.count
        credit = Credit(self._ledger.number, self._asked, automatic=True)
        self._session.begin(credit).future.add_done_callback(self._answered)

    def _answered(self, future: asyncio.Future[Any]) -> None:
        self._asking = False
        error = None if future.cancelled() else future.exception()
        if isinstance(error, FifoError):
            _log.info("a prefetch of %d was not set: %s", self._asked, error)
        elif self._asked != self._places.count:
            self._ask()
