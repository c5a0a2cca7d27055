"""Sets of tokens as ascending ranges: what a client holds, names in a renewal, or has settled.

Owns the arithmetic of ranges. Not thread-safe: `LockLedger` guards its own with a lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]


def from_tokens(tokens: Sequence[int]) -> tuple[Range, ...]:
    """The ranges that hold exactly these tokens (in any order, each once)."""
    if not tokens:
        return ()
    first, last = tokens[0], tokens[-1]
    if last - first + 1 == len(tokens) and _is_run(tokens):
        return ((first, last),)
    found: list[Range] = []
    ordered = sorted(tokens)
    start = end = ordered[0]
    for token in ordered[1:]:
        if token > end + 1:
            found.append((start, end))
            start = token
        end = token
    found.append((start, end))
    return tuple(found)


def _is_run(tokens: Sequence[int]) -> bool:
    return list(tokens) == list(range(tokens[0], tokens[-1] + 1))


def count(ranges: Iterable[Range]) -> int:
    """Count the tokens in these ranges."""
    return sum([last - first + 1 for first, last in ranges])


def tokens(ranges: Iterable[Range]) -> Iterator[int]:
    """Every token, ascending."""
    for first, last in ranges:
        yield from range(first, last + 1)


def chunks(
    ranges: Iterable[Range], ranges_max: int, tokens_max: int
) -> Iterator[tuple[Range, ...]]:
    """Pieces of at most so many ranges and tokens; a longer range is cut."""
    piece: list[Range] = []
    room = tokens_max
    for first, last in ranges:
        while first <= last:
            end = min(last, first + room - 1)
            piece.append((first, end))
            room -= end - first + 1
            first = end + 1
            if not room or len(piece) == ranges_max:
                yield tuple(piece)
                piece, room = [], tokens_max
    if piece:
        yield tuple(piece)


class Ranges:
    """A set of tokens, kept as ascending ranges that neither touch nor overlap."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __len__(self) -> int:
        """The number of ranges, not of tokens."""
        return len(self._firsts)

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._firsts, self._lasts, strict=True)))

    def __contains__(self, token: int) -> bool:
        at = bisect_right(self._firsts, token) - 1
        return at >= 0 and token <= self._lasts[at]

    @property
    def lowest(self) -> int | None:
        """The lowest token, or None."""
        return self._firsts[0] if self._firsts else None

    def add(self, first: int, last: int) -> None:
        """Take in first..last; what is there already stays."""
        firsts, lasts = self._firsts, self._lasts
        if not firsts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            return
        low = bisect_right(lasts, first - 2)
        high = bisect_right(firsts, last + 1)
        if low < high:
            first = min(first, firsts[low])
            last = max(last, lasts[high - 1])
        firsts[low:high] = [first]
        lasts[low:high] = [last]

    def remove(self, first: int, last: int) -> None:
        """Take first..last out; what is not there is no error."""
        firsts, lasts = self._firsts, self._lasts
        low = bisect_right(lasts, first - 1)
        high = bisect_right(firsts, last)
        if low >= high:
            return
        kept: list[Range] = []
        if firsts[low] < first:
            kept.append((firsts[low], first - 1))
        if lasts[high - 1] > last:
            kept.append((last + 1, lasts[high - 1]))
        firsts[low:high] = [one for one, _ in kept]
        lasts[low:high] = [one for _, one in kept]

    def intersection(self, first: int, last: int) -> list[Range]:
        """The parts of first..last that are in here."""
        low = bisect_right(self._lasts, first - 1)
        high = bisect_right(self._firsts, last)
        return [
            (max(first, self._firsts[at]), min(last, self._lasts[at])) for at in range(low, high)
        ]

    def missing(self, first: int, last: int) -> list[Range]:
        """The parts of first..last that are not in here."""
        found: list[Range] = []
        for known_first, known_last in self.intersection(first, last):
            if first < known_first:
                found.append((first, known_first - 1))
            first = known_last + 1
        if first <= last:
            found.append((first, last))
        return found

    def clear(self) -> None:
        """Forget all."""
        self._firsts.clear()
        self._lasts.clear()
