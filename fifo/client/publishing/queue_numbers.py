"""The numbers of the queues that answers have named: what a publish was sent for.

A queue that is deleted and declared anew has a higher number. Owns the highest that was seen for
each name. Must not know what was published.
"""

from __future__ import annotations

from fifo.client import limits


class QueueNumbers:
    """The number last seen for each queue name; those of the names seen last are kept."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def saw(self, queue: str, number: int) -> None:
        """Note the number of a queue; a lower one comes from an earlier answer."""
        number = max(number, self._seen.pop(queue, 0))
        self._seen[queue] = number
        if len(self._seen) > limits.QUEUE_NUMBERS_MAX:
            del self._seen[next(iter(self._seen))]

    def of(self, queue: str) -> int:
        """Return the number that was seen for this name, 0 for none."""
        return self._seen.get(queue, 0)
