"""Gets that found nothing and wait: asked again when their queue has something, or given up.

Owns the waiting and its bound. Must not know connections or the machine: what to do comes in as
two calls, and how much a queue has ready as a third. That says nothing of whom it is for: a get
that asked in vain rests a while, or it would ask again because of its own entry, and so for ever.
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
        """`ready(queue)`: how many messages a get may find there now."""
        self._now = now
        self._ready = ready
        self._queues: dict[str, deque[_Waiting]] = {}
        self._resting: list[tuple[str, _Waiting]] = []
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
        *,
        in_vain: bool = False,
    ) -> bool:
        """Wait; False where it is too late for that, or too many wait.

        `again()` says whether it asked: who has gone meanwhile must not use up a message.
        `in_vain`: it did, and got nothing of what was ready; it rests until the next `expire`.
        """
        if deadline <= self._now() or self._count >= limits.GETS_WAITING_MAX:
            return False
        one = _Waiting(deadline, again, give_up)
        if in_vain:
            self._resting.append((queue, one))
        else:
            self._queues.setdefault(queue, deque()).append(one)
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
        """Give up what has waited long enough; what has rested asks again."""
        if not self._count:
            return
        resting, self._resting = self._resting, []
        for queue, one in reversed(resting):
            self._queues.setdefault(queue, deque()).appendleft(one)
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
        if resting:
            self.look()

    def clear(self) -> None:
        """Leadership is lost: nobody is answered here."""
        self._queues.clear()
        self._resting.clear()
        self._count = 0
