"""The time that renewals may stay unanswered before a client looks for another leader.

Owns a stopwatch that runs only while we look: a client that was stopped itself, or starved, must
read what has arrived before it takes the node for silent. Must not know connections.
"""

from __future__ import annotations

from typing import Final

LOOKS: Final = 4
"""Looks in one patience: a longer gap between two looks counts as one of them."""


class Patience:
    """Runs from the first renewal that is not answered; `answered` stops it."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._waited_s = 0.0

    @property
    def runs(self) -> bool:
        """Whether a renewal is unanswered."""
        return self._looked_at is not None

    def asked(self, now: float) -> None:
        """Note that a renewal was sent."""
        if self._looked_at is None:
            self._looked_at = now
            self._waited_s = 0.0

    def answered(self) -> None:
        """Note that the leader has renewed: it leads, and is heard."""
        self._looked_at = None

    def is_over(self, now: float, patience_s: float) -> bool:
        """Look: whether renewals have been unanswered for `patience_s`."""
        if self._looked_at is None:
            return False
        self._waited_s += min(now - self._looked_at, patience_s / LOOKS)
        self._looked_at = now
        return self._waited_s >= patience_s
