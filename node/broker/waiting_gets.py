"""Gets that found no message and wait: retried when their queue has some, or given up in time.

Owns the waiting and its bound. Must not know connections or the machine: the retry and the end are
passed in as two calls, and the number of ready messages as a third. That number does not tell for
which consumer they are: a get that was retried without success rests for a while, because its own
entry would otherwise cause the next retry, and so on forever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from node.broker import limits


@dataclass(slots=True)
class _Get:
    deadline: float
    again: Callable[[], bool]
    give_up: Callable[[], None]


class WaitingGets:
    """Waiting gets by queue, in the order in which they came."""

    def __init__(self, now: Callable[[], float], ready: Callable[[str], int]) -> None:
        """`ready(queue)`: number of messages that a get may find there now."""
        self._now = now
        self._ready = ready
        self.queues: dict[str, deque[_Get]] = {}
        """Those that a message may end, by queue."""
        self._resting: list[tuple[str, _Get]] = []
        self._count = 0

    def deadline(self, wait_ms: int) -> float:
        """Time until which a get that arrives now with this wait may wait."""
        return self._now() + min(wait_ms, limits.GET_WAIT_MS_MAX) / 1000

    def add(
        self,
        queue: str,
        deadline: float,
        again: Callable[[], bool],
        give_up: Callable[[], None],
        *,
        rested: bool = True,
    ) -> bool:
        """Wait; False if the deadline has passed, or too many gets wait.

        `again()` returns whether it retried: a client that is gone must not use up a message.
        `rested=False`: it has just been retried without success; it rests until `expire`.
        """
        if deadline <= self._now() or self._count >= limits.GETS_WAITING_MAX:
            return False
        one = _Get(deadline, again, give_up)
        if rested:
            self.queues.setdefault(queue, deque()).append(one)
        else:
            self._resting.append((queue, one))
        self._count += 1
        return True

    def look(self) -> None:
        """Retry as many gets as there are messages, after entries were applied."""
        for queue in list(self.queues):
            waiting = self.queues[queue]
            ready = self._ready(queue)
            while waiting and ready > 0:
                self._count -= 1
                ready -= waiting.popleft().again()
            if not waiting:
                del self.queues[queue]

    def expire(self) -> None:
        """Give up gets past their deadline, and retry those that have rested."""
        if not self._count:
            return
        resting, self._resting = self._resting, []
        for queue, one in reversed(resting):
            self.queues.setdefault(queue, deque()).appendleft(one)
        now = self._now()
        for queue, waiting in list(self.queues.items()):
            left = deque(one for one in waiting if one.deadline > now)
            expired = [one for one in waiting if one.deadline <= now]
            self._count -= len(expired)
            if left:
                self.queues[queue] = left
            else:
                del self.queues[queue]
            for one in expired:
                one.give_up()
        if resting:
            self.look()
