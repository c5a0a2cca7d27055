"""The deadlines that renewals gave, by ranges of tokens.

Owns which answer is the newest for a token. A list that is read is never changed, so that any
thread may ask while another takes an answer. Must not know what is held.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Renewed: TypeAlias = tuple[int, int, float]
"""The first and the last token of a range, and the time until which it is locked."""

_SLACK: Final = 64
"""Ranges that may be over before all are looked through: that costs as much as they are many."""


class RenewedUntil:
    """Ascending ranges that do not overlap, each with its newest deadline."""

    __slots__ = ("_full_at", "_ranges")

    def __init__(self) -> None:
        self._ranges: list[Renewed] = []
        self._full_at = _SLACK

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._ranges)

    def get(self, token: int) -> float | None:
        """The newest deadline of a token; None where no renewal has named it."""
        ranges = self._ranges
        at = bisect_right(ranges, token, key=_first) - 1
        if at < 0 or ranges[at][1] < token:
            return None
        return ranges[at][2]

    def put(self, answer: Iterable[Renewed], now: float) -> None:
        """Take an answer: it replaces what was known of its tokens. What is over may go."""
        fresh = sorted(answer)
        if not fresh:
            return
        known = self._ranges
        start = bisect_left(known, fresh[0][0], key=_last)
        stop = bisect_right(known, fresh[-1][1], key=_first)
        between = sorted([*fresh, *_outside(known[start:stop], fresh)])
        found = [*known[:start], *between, *known[stop:]]
        if len(found) > self._full_at:
            found = [one for one in found if one[2] > now]
            self._full_at = 2 * len(found) + _SLACK
        self._ranges = found


def _outside(known: Sequence[Renewed], fresh: Sequence[Renewed]) -> list[Renewed]:
    """The parts of `known` that no range of `fresh` covers; both ascending."""
    found: list[Renewed] = []
    at = 0
    for first, last, until in known:
        while at < len(fresh) and fresh[at][1] < first:
            at += 1
        place = at
        while place < len(fresh) and fresh[place][0] <= last:
            if first < fresh[place][0]:
                found.append((first, fresh[place][0] - 1, until))
            first = fresh[place][1] + 1
            place += 1
        if first <= last:
            found.append((first, last, until))
    return found


def _first(one: Renewed) -> int:
    return one[0]


def _last(one: Renewed) -> int:
    return one[1]
