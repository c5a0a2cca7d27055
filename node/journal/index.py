"""The index of the log: term, position and size of each entry, in packed arrays.

Owns those arrays and the arithmetic from indexes to slots, 20 bytes an entry. Must not know files
or payloads. The journal and its recovery keep it in step with the records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import le
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

NOWHERE: Final = (1 << 64) - 1
"""The position of an entry of which only index and term are left: the two at the head of a log
whose beginning a snapshot replaces."""


class Extent(NamedTuple):
    """The position of an entry's record in the log, and the bytes of its command."""

    position: int
    size: int


PLACEHOLDER_BYTES: Final = 1
"""The size of what stands for the command of such an entry: a no-op's."""


def in_order(indexes: Sequence[int], terms: Sequence[int], index: int, term: int) -> bool:
    """Whether entries of these indexes and terms may follow the one of `index` and `term`: without
    a gap, and no term falls."""
    if len(indexes) == 1:
        return indexes[0] == index + 1 and term <= terms[0]
    return tuple(indexes) == tuple(range(index + 1, index + 1 + len(indexes))) and all(
        map(le, (term, *terms), terms)
    )


class LogIndex:
    """Entries `first_index` to `last_index`, without gaps; empty when last is first - 1.

    Both are read many times for each command, and so kept instead of computed.
    """

    __slots__ = ("_positions", "_previous_term", "_sizes", "_terms", "first_index", "last_index")

    def __init__(self, first_index: int, previous_term: int) -> None:
        self.first_index = first_index
        """The index of the first entry held, or of the first to come."""
        self.last_index = first_index - 1
        """The index of the last entry; one below `first_index` when there is none."""
        self._previous_term: int | None = previous_term
        self._terms = array("Q")
        self._positions = array("Q")
        self._sizes = array("I")

    def __len__(self) -> int:
        return len(self._terms)

    def __repr__(self) -> str:
        return f"<LogIndex {self.first_index}..{self.last_index}, last term {self.last_term}>"

    @property
    def last_term(self) -> int:
        """The term of the last entry, or of the one before `first_index` when empty."""
        return self._terms[-1] if self._terms else self._previous_term or 0

    def extend(self, terms: Sequence[int], positions: Sequence[int], sizes: Sequence[int]) -> None:
        """Append entries."""
        self._terms.extend(terms)
        self._positions.extend(positions)
        self._sizes.extend(sizes)
        self.last_index += len(terms)

    def append(self, term: int, position: int, size: int) -> None:
        """Append one entry."""
        self._terms.append(term)
        self._positions.append(position)
        self._sizes.append(size)
        self.last_index += 1

    def begin_at(self, index: int, term: int, previous_term: int) -> None:
        """Begin the log at a snapshot of everything up to `index`: that entry and the one before
        become its head, without a position, and the entries behind them stay."""
        # All three columns shift by the same slots, so that slot = index - first_index holds for
        # every entry: the two new ones take the slots of `index - 1` and `index`.
        gone = max(0, index - self.first_index + 1)
        del self._terms[:gone]
        del self._positions[:gone]
        del self._sizes[:gone]
        self._terms[0:0] = array("Q", (previous_term, term))
        self._positions[0:0] = array("Q", (NOWHERE, NOWHERE))
        self._sizes[0:0] = array("I", (PLACEHOLDER_BYTES, PLACEHOLDER_BYTES))
        self.first_index = index - 1
        self.last_index = max(self.last_index, index)
        self._previous_term = None

    def restart(self, first_index: int, previous_term: int) -> None:
        """Drop every entry: the next one has `first_index`."""
        del self._terms[:]
        del self._positions[:]
        del self._sizes[:]
        self.first_index = first_index
        self.last_index = first_index - 1
        self._previous_term = previous_term

    def truncate_from(self, index: int) -> None:
        """Drop the entries from `index` on, which must be in the log."""
        slot = self._slot(index)
        del self._terms[slot:]
        del self._positions[slot:]
        del self._sizes[slot:]
        self.last_index = index - 1

    def term_at(self, index: int) -> int:
        """The term of an entry; also of the one before the first, while that is known."""
        if self.first_index <= index <= self.last_index:
            return self._terms[index - self.first_index]
        if index == self.first_index - 1 and self._previous_term is not None:
            return self._previous_term
        return self._terms[self._slot(index)]

    def size_at(self, index: int) -> int:
        """Bytes of an entry's command."""
        return self._sizes[self._slot(index)]

    def command_bytes(self, first: int, last: int) -> int:
        """Bytes of the commands of the entries from `first` to `last`; 0 where there are none."""
        if self.first_index <= first == last <= self.last_index:
            return self._sizes[first - self.first_index]
        return sum(self._sizes[self._slot(first) : self._slot(last) + 1]) if first <= last else 0

    def span_bytes(self, first: int, last: int) -> int:
        """Bytes of the log from the entry `first` to the end of `last`; 0 where there are none."""
        if first > last:
            return 0
        end = self.extent_at(last)
        return end.position + end.size - self.extent_at(first).position

    def extent_at(self, index: int) -> Extent:
        """The position and size of an entry."""
        slot = self._slot(index)
        return Extent(self._positions[slot], self._sizes[slot])

    def extents_until(self, first: int, last: int, end: int) -> list[Extent]:
        """Positions and sizes of the entries from `first` to `last`, in order, as far as they begin
        before position `end`."""
        slot = self._slot(first)
        stop = bisect_left(self._positions, end, slot, self._slot(last) + 1)
        return list(map(Extent, self._positions[slot:stop], self._sizes[slot:stop]))

    def index_from(self, position: int) -> int | None:
        """The first entry whose record begins at this position or behind it; None: none does."""
        head = bisect_left([place == NOWHERE for place in self._positions[:2]], False)
        slot = bisect_left(self._positions, position, head)
        return self.first_index + slot if slot < len(self._positions) else None

    def terms(self, first: int, last: int) -> array[int]:
        """The terms of the entries from `first` to `last`, both in the log."""
        return self._terms[self._slot(first) : self._slot(last) + 1]

    def last_within(self, first: int, last: int, max_bytes: int) -> int:
        """The last of the entries from `first` to `last` that can be taken until their commands
        have `max_bytes`; `first` in any case."""
        sizes = self._sizes[self._slot(first) : self._slot(last) + 1]
        if sum(sizes) <= max_bytes:
            return last  # The usual case, without a list of sums.
        # The sums ascend, so bisection counts the entries that fit; `first` goes in any case, or
        # an entry larger than `max_bytes` would never be read.
        return first + max(1, bisect_right(list(accumulate(sizes)), max_bytes)) - 1

    def columns(self, indexes: Sequence[int]) -> tuple[array[int], array[int], array[int]]:
        """(terms, positions, sizes) of one entry or more, ascending, all in the log."""
        first = self.first_index
        for index in (indexes[0], indexes[-1]):
            self._slot(index)
        slots = [index - first for index in indexes]
        return (
            array("Q", map(self._terms.__getitem__, slots)),
            array("Q", map(self._positions.__getitem__, slots)),
            array("I", map(self._sizes.__getitem__, slots)),
        )

    def _slot(self, index: int) -> int:
        slot = index - self.first_index
        if slot < 0 or index > self.last_index:
            raise IndexError(
                f"entry {index} is not in the log ({self.first_index}..{self.last_index})"
            )
        return slot
