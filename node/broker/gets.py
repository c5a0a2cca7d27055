"""Gets that found nothing and wait: asked again when their queue has something, or given up.

Owns the waiting and its bound. Must not know connections or the machine: what to do comes in as
two calls, and whether a queue has something ready as a third.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from node.broker import limits


@dataclass(slots=True)
class _Waiting:
    deadline: float
    again: Callable[[], bool]
    give_up: Callable[[], None]


class WaitingGets:
    """Per queue, in the order in which they came."""

    def __init__(self, now: Callable[[], float], ready: Callable[[str], int]) -> None:
        """`ready(queue)`: how many messages could be handed out now."""
        self._now = now
        self._ready = ready
        self._queues: dict[str, deque[_Waiting]] = {}
        self._count = 0

    def deadline(self, wait_ms: int) -> float:
        """Until when a get that comes now with this wait may wait."""
        return self._now() + min(wait_ms, limits.GET_WAIT_MS_MAX) / 1000

    def add(
        self,
        queue: str,
        deadline: float,
        again: Callable[[], bool],
        give_up: Callable[[], None],
    ) -> bool:
        """Wait; False where it is too late for that, or too many wait.

        `again()` says whether it asked: who has gone meanwhile must not use up a message.
        """
        if deadline <= self._now() or self._count >= limits.GETS_WAITING_MAX:
            return False
        self._queues.setdefault(queue, deque()).append(_Waiting(deadline, again, give_up))
        self._count += 1
        return True

    def look(self) -> None:
        """After entries were applied: ask again for as many gets as there are messages."""
        for queue in list(self._queues):
            waiting = self._queues[queue]
            ready = self._ready(queue)
            while waiting and ready > 0:
                self._count -= 1
                ready -= waiting.popleft().again()
            if not waiting:
                del self._queues[queue]

    def expire(self) -> None:
        """Give up what has waited long enough."""
        if not self._count:
            return
        now = self._now()
        for queue, waiting in list(self._queues.items()):
            left = deque(one for one in waiting if one.deadline > now)
            expired = [one for one in waiting if one.deadline <= now]
            self._count -= len(expired)
            if left:
                self._queues[queue] = left
            else:
                del self._queues[queue]
            for one in expired:
                one.give_up()

    def clear(self) -> None:
        """Leadership is lost: nobody is answered here."""
        self._queues.clear()
        self._count = 0
