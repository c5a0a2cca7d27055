"""Upper bound of a delivery's time in transit, as its consumer can prove it.

Owns the bound: a node answers and delivers on one connection, in one order. So a delivery that came
after an answer was sent after that answer's question was asked. No clock but the program's own is
in it, and no guess about machines or networks.
"""

from __future__ import annotations

from bisect import bisect_right

ANSWERS = 8192
"""Answers that are remembered; of a delivery that came before all of them nothing is known."""


class Transit:
    """The answers of one connection. Times are monotonic seconds."""

    def __init__(self, connected_at: float) -> None:
        """No delivery comes before the client begins to connect."""
        self._seen = [connected_at]
        self._asked = [connected_at]

    def answered(self, asked_at: float, now: float) -> None:
        """Note that the question asked then has its answer now."""
        self._seen.append(now)
        self._asked.append(max(asked_at, self._asked[-1]))
        if len(self._seen) > 2 * ANSWERS:
            del self._seen[:ANSWERS], self._asked[:ANSWERS]

    def at_most(self, received_at: float) -> float | None:
        """Seconds from its sending to its receipt at most; None where that is forgotten."""
        place = bisect_right(self._seen, received_at)
        return received_at - self._asked[place - 1] if place else None
