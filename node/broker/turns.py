"""The turns of a node on its event loop: when the next one comes, and flushes between them.

Owns the timer. Turns are requested by any part that has work, run one at a time, and come by timer
otherwise; answers that need no entry leave without a turn. Must not know what a turn does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from node.broker import limits


class Turns:
    """Schedules the turns of one node. Inert before `start` and after `stop`."""

    def __init__(
        self,
        turn: Callable[[], float | None],
        flush: Callable[[], None],
    ) -> None:
        """`turn` runs a turn and returns the seconds until the next (None: the node has failed);
        it takes `asked` back once no earlier request can be missed. `flush` sends what was answered
        between turns."""
        self._run = turn
        self._flush = flush
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = self._turn_due = 0.0
        self.asked = False
        """Whether a turn was requested; one that runs answers the requests before it took this
        back."""
        self._running = False
        self._stopped = True

    def start(self) -> None:
        """Accept requests from now on, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._stopped = False

    def stop(self) -> None:
        """Run no further turn and no further flush."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def ask(self) -> None:
        """Request a turn now; repeated requests are merged into one."""
        if not self.asked and not self._stopped:
            self.asked = True
            if not self._running:
                self._loop.call_soon(self._turn)

    def within(self, seconds: float) -> None:
        """Request a turn at most this much later; one for another reason may come first."""
        due = self._loop.time() + seconds
        if due < self._turn_due and not self._stopped:
            self._turn_due = due
            self._set_timer()

    def ask_flush(self) -> None:
        """Request a flush; the turn that runs, or has been requested, sends as well."""
        if not self._running and not self.asked and not self._stopped:
            self._loop.call_soon(self._flush_now)

    def _flush_now(self) -> None:
        if not self._stopped:
            self._flush()

    def _turn(self) -> None:
        if self._stopped:
            return
        self._running = True
        try:
            delay = self._run()
        finally:
            self._running = False
        if delay is None:
            return
        if self.asked or not delay:
            self.asked = True
            self._loop.call_soon(self._turn)
            return
        self._turn_due = self._loop.time() + delay
        if self._timer is None or self._timer_due > self._turn_due:
            self._set_timer()

    def _set_timer(self) -> None:
        """Have the timer fire no later than the next turn is due. An earlier timer stays as it is:
        most turns come long before theirs, and a new one in each would cost more."""
        if self._timer is not None:
            if self._timer_due <= self._turn_due:
                return
            self._timer.cancel()
        self._timer_due = self._turn_due
        # Timers under a millisecond fire at once on uvloop, and the loop would spin.
        delay = max(self._turn_due - self._loop.time(), limits.TIMER_SECONDS_MIN)
        self._timer = self._loop.call_later(delay, self._time_up)

    def _time_up(self) -> None:
        self._timer = None
        if self._turn_due - self._loop.time() < limits.TIMER_SECONDS_MIN:
            self.ask()
        elif not self._stopped:
            self._set_timer()
