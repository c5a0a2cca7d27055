"""Fetches under way whose client wants no bodies, keys and headers: these stay in the log.

Owns which they are. A delivery says its session and consumer, and not which fetch it answers: so
bodies are left out only where all fetches under way of both leave them out.
"""

from __future__ import annotations

from typing import Final, TypeAlias

Of: TypeAlias = tuple[int, int]
"""A session, and a durable consumer."""

_WHOLE: Final = 0
_BODILESS: Final = 1


class Bodiless:
    """Counts fetches from their proposal until they are answered, or known not to be applied."""

    def __init__(self) -> None:
        self._under_way: dict[Of, list[int]] = {}

    def begin(self, of: Of, *, bodies: bool) -> None:
        """A fetch is proposed."""
        counts = self._under_way.setdefault(of, [0, 0])
        counts[_WHOLE if bodies else _BODILESS] += 1

    def end(self, of: Of, *, bodies: bool) -> None:
        """Its deliveries are made."""
        counts = self._under_way[of]
        counts[_WHOLE if bodies else _BODILESS] -= 1
        if not any(counts):
            del self._under_way[of]

    def covers(self, of: Of) -> bool:
        """Whether what is sent again now leaves bodies out."""
        counts = self._under_way.get(of)
        return counts is not None and not counts[_WHOLE]
