"""Seldom lines: what strangers cause is logged once a minute for each, and for few of them.

Owns which subjects were logged within the last period. Must not know what is logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.peers import limits

if TYPE_CHECKING:
    from collections.abc import Callable


class Seldom:
    """Decides for each event whether it is worth a line; counters count all."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds of a clock that never steps back."""
        self._now = now
        self._logged_at: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Seldom {len(self._logged_at)} subjects>"

    def may(self, subject: str) -> bool:
        """Whether to log about this subject: not twice in a period, nor about too many in one."""
        now = self._now()
        while self._logged_at:
            oldest = next(iter(self._logged_at))
            if now - self._logged_at[oldest] < limits.REFUSAL_LOG_SECONDS:
                break
            del self._logged_at[oldest]
        if subject in self._logged_at or len(self._logged_at) >= limits.REFUSAL_LINES_MAX:
            return False
        self._logged_at[subject] = now
        return True
