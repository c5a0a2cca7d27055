"""Renewals that a leader has granted beyond the replicated deadlines, in its memory only.

Owns token ranges with granted deadlines, per consumer: overlaid, subtracted from expired ranges,
and dropped once past. Cluster time in milliseconds. Must not know the machine, leases or sessions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from node.broker import limits

Range = tuple[int, int]


class Granted:
    """The grants of one consumer: (first token, last token, deadline, renewals), ascending."""

    __slots__ = ("_ranges", "latest_ms")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, int, int]] = []
        self.latest_ms = 0

    def __len__(self) -> int:
        return len(self._ranges)

    def grant(self, first: int, last: int, deadline_ms: int) -> bool:
        """Grant these tokens until then; a later grant replaces an earlier one.

        False, and nothing is granted, where it needs more places than are left: every grant must be
        remembered. One that only replaces others needs none.
        """
        start, stop = self._overlap(first, last)
        laid: list[tuple[int, int, int, int]] = []
        at = first
        for low, high, until_ms, times in self._ranges[start:stop]:
            if low < first:
                laid.append((low, first - 1, until_ms, times))
                low = first
            if low > at:
                _lay(laid, (at, low - 1, deadline_ms, 1))
            _lay(laid, (low, min(high, last), deadline_ms, times + 1))
            at = min(high, last) + 1
            if high > last:
                laid.append((last + 1, high, until_ms, times))
        if at <= last:
            _lay(laid, (at, last, deadline_ms, 1))
        more = len(laid) - (stop - start)
        if more > 0 and len(self._ranges) + more > limits.RENEWED_RANGES_MAX:
            return False
        self._ranges[start:stop] = laid
        self.latest_ms = max(self.latest_ms, deadline_ms)
        return True

    def of(self, token: int) -> tuple[int, int]:
        """(granted deadline, number of renewals) of one token; zeros without a grant."""
        start, stop = self._overlap(token, token)
        return self._ranges[start][2:] if start < stop else (0, 0)

    def forget_until(self, now_ms: int) -> None:
        """Drop grants that have passed."""
        self._ranges = [one for one in self._ranges if one[2] > now_ms]

    def uncovered(self, ranges: Iterable[Range], now_ms: int) -> tuple[list[Range], int | None]:
        """The parts of `ranges` without a grant, and the first deadline granted on the rest."""
        left: list[Range] = []
        next_ms: int | None = None
        for first, last in ranges:
            start, stop = self._overlap(first, last)
            at = first
            for low, high, until_ms, _ in self._ranges[start:stop]:
                if until_ms <= now_ms:
                    continue
                if low > at:
                    left.append((at, low - 1))
                at = max(at, high + 1)
                next_ms = until_ms if next_ms is None else min(next_ms, until_ms)
            if at <= last:
                left.append((at, last))
        return left, next_ms

    def _overlap(self, first: int, last: int) -> tuple[int, int]:
        """The slice of grants that share tokens with first..last."""
        start = bisect_left(self._ranges, (first, 0, 0, 0))
        if start and self._ranges[start - 1][1] >= first:
            start -= 1
        stop = bisect_left(self._ranges, (last + 1, 0, 0, 0))
        return start, stop


def _lay(laid: list[tuple[int, int, int, int]], one: tuple[int, int, int, int]) -> None:
    """Append a grant, joined to the one before it if only the tokens differ."""
    if laid and laid[-1][1] + 1 == one[0] and laid[-1][2:] == one[2:]:
        laid[-1] = (laid[-1][0], *one[1:])
    else:
        laid.append(one)


def subtract(ranges: Sequence[Range], taken: Sequence[Range]) -> list[Range]:
    """The parts of `ranges` that are not in `taken`; both ascending and disjoint."""
    left: list[Range] = []
    hole = 0
    for first, last in ranges:
        at = first
        while hole < len(taken) and taken[hole][1] < first:
            hole += 1
        ahead = hole
        while ahead < len(taken) and taken[ahead][0] <= last:
            low, high = taken[ahead]
            if low > at:
                left.append((at, low - 1))
            at = high + 1
            ahead += 1
        if at <= last:
            left.append((at, last))
        hole = max(hole, ahead - 1)
    return left


def meet(ranges: Sequence[Range], others: Sequence[Range]) -> bool:
    """Whether any token is in both; both ascending and disjoint."""
    at = 0
    for first, last in ranges:
        while at < len(others) and others[at][1] < first:
            at += 1
        if at < len(others) and others[at][0] <= last:
            return True
    return False
