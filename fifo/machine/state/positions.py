"""Ordered sets and maps of positions, whose copy for a frozen view is small whatever they hold.

Owns how many positions are kept in order: as one bit each, a whole number of bits per block of
`BLOCK_MESSAGES` positions. Numbers are never changed in place, so a copy shares them all, and costs
one entry per block. Knows nothing of what a position means, nor of the times of views.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from fifo.machine.limits import BLOCK_BITS, BLOCK_MESSAGES
from fifo.machine.types import Range

V = TypeVar("V")
_MASK = BLOCK_MESSAGES - 1


class Positions:
    """A set of positions in ascending order. `count` is its length, to be read: what is asked for
    every message asks that, for `len` and a truth value are calls."""

    __slots__ = ("_bits", "_order", "count", "generation")

    def __init__(self, generation: int = 0) -> None:
        self.generation = generation  # of the view that a copy was last made for, see `State.touch`
        self._bits: dict[int, int] = {}  # block -> one bit for each of its positions
        self._order: list[int] = []  # the blocks, ascending
        self.count = 0

    def copy(self, generation: int = 0) -> "Positions":
        """The same positions, to be changed apart."""
        twin = Positions(generation)
        self._share(twin)
        return twin

    def view(self) -> "Positions":
        """The same positions, to be read."""
        return self.copy() if self.count else _EMPTY

    def _share(self, twin: "Positions") -> None:
        twin._bits, twin._order, twin.count = self._bits.copy(), self._order[:], self.count

    def __len__(self) -> int:
        return self.count

    def __contains__(self, position: int) -> bool:
        return bool(self._bits.get(position >> BLOCK_BITS, 0) >> (position & _MASK) & 1)

    def __iter__(self) -> Iterator[int]:
        for block in self._order:
            yield from _places(block << BLOCK_BITS, self._bits[block])

    def between(self, low: int, end: int) -> Iterator[int]:
        """Those in [low, end), ascending; to be read before anything is changed."""
        order = self._order
        for place in range(bisect_left(order, low >> BLOCK_BITS), len(order)):
            base = order[place] << BLOCK_BITS
            if base >= end:
                return
            bits = self._bits[order[place]]
            # Only the first block can begin before `low`, and only the last can end after `end`.
            if base < low:
                bits = bits >> (low - base) << (low - base)
            if base + BLOCK_MESSAGES > end:
                bits &= (1 << (end - base)) - 1
            yield from _places(base, bits)

    def first(self) -> int:
        """The lowest; there must be one."""
        block = self._order[0]
        bits = self._bits[block]
        return (block << BLOCK_BITS) + (bits & -bits).bit_length() - 1

    def add(self, position: int) -> None:
        """Put one in; again changes nothing."""
        block, bit = position >> BLOCK_BITS, 1 << (position & _MASK)
        bits = self._bits.get(block)
        if bits is None:
            insort(self._order, block)
            bits = 0
        if not bits & bit:
            self._bits[block] = bits | bit
            self.count += 1

    def extend(self, positions: Iterable[int]) -> None:
        """Put several in; neighbours that follow each other at once."""
        for first, end in _neighbours(positions):
            if end - first == 1:
                self.add(first)
            else:
                self.add_range(first, end)

    def add_range(self, first: int, end: int) -> None:
        """Put all of [first, end) in."""
        while first < end:
            block, offset = first >> BLOCK_BITS, first & _MASK
            count = min(BLOCK_MESSAGES - offset, end - first)
            bits = self._bits.get(block)
            if bits is None:
                insort(self._order, block)
                bits = 0
            after = bits | ((1 << count) - 1) << offset
            self._bits[block] = after
            self.count += after.bit_count() - bits.bit_count()
            first += count

    def remove_all(self, positions: Iterable[int]) -> None:
        """Take several out, all of which are there; neighbours that follow each other at once."""
        for first, end in _neighbours(positions):
            self.remove_range(first, end)

    def remove_range(self, first: int, end: int) -> None:
        """Take all of [first, end) out, which are there."""
        while first < end:
            block, offset = first >> BLOCK_BITS, first & _MASK
            count = min(BLOCK_MESSAGES - offset, end - first)
            self.count -= count
            self._put(block, self._bits[block] ^ ((1 << count) - 1) << offset)
            first += count

    def discard(self, position: int) -> bool:
        """Take one out; whether it was there."""
        block, bit = position >> BLOCK_BITS, 1 << (position & _MASK)
        bits = self._bits.get(block, 0)
        if not bits & bit:
            return False
        self.count -= 1
        self._put(block, bits ^ bit)
        return True

    def pop_first(self) -> int:
        """Take out the lowest; there must be one."""
        block = self._order[0]
        bits = self._bits[block]
        self.count -= 1
        if bits.bit_count() == 1:  # as where keys order: what waits for one lies far apart
            del self._bits[block], self._order[0]
            return (block << BLOCK_BITS) + bits.bit_length() - 1
        lowest = bits & -bits
        self._bits[block] = bits ^ lowest
        return (block << BLOCK_BITS) + lowest.bit_length() - 1

    def clear(self) -> None:
        """Take all of them out."""
        self._bits, self._order, self.count = {}, [], 0

    def pass_from(self, position: int) -> int:
        """The first from `position` on that is not in here; those before it are taken out."""
        while True:
            # One round per block: ones that end within it end the walk in the next round, with a
            # count of 0; ones that fill it to its end carry the walk into the next block.
            block, offset = position >> BLOCK_BITS, position & _MASK
            bits = self._bits.get(block, 0)
            count = _ones(bits >> offset)
            if not count:
                return position
            self.count -= count
            self._put(block, bits ^ ((1 << count) - 1) << offset)
            position += count

    def _put(self, block: int, bits: int) -> None:
        if bits:
            self._bits[block] = bits
        else:
            del self._bits[block], self._order[bisect_left(self._order, block)]

    def run_length(self, position: int) -> int:
        """The length of the run of the set that begins at `position`, within its block."""
        return _ones(self._bits.get(position >> BLOCK_BITS, 0) >> (position & _MASK))

    def first_from(self, low: int, end: int) -> int:
        """The lowest in [low, end), which lie in one block; `end` where there is none."""
        bits = self._bits.get(low >> BLOCK_BITS, 0) >> (low & _MASK)
        return min(end, low + (bits & -bits).bit_length() - 1) if bits else end

    def ranges(self) -> Iterator[Range]:
        """All of them as (first, end), none of which touch."""
        start = stop = -1
        for block in self._order:
            for low, high in _runs(block << BLOCK_BITS, self._bits[block]):
                if low != stop:
                    if stop >= 0:
                        yield start, stop
                    start = low
                stop = high
        if stop >= 0:
            yield start, stop

    def count_ranges(self) -> int:
        """The number of those ranges."""
        found = 0
        for block in self._order:
            bits = self._bits[block]
            # A range begins at each one that follows a zero. At bit 0 that is not so where the
            # block before ends with a one: the range has been counted there.
            found += (bits & ~(bits << 1)).bit_count()
            found -= bits & 1 & self._bits.get(block - 1, 0) >> _MASK
        return found

    def gaps(self, low: int, end: int) -> Iterator[Range]:
        """The parts of [low, end) that are not in the set; to be read before changes."""
        order = self._order
        for place in range(bisect_left(order, low >> BLOCK_BITS), len(order)):
            base = order[place] << BLOCK_BITS
            if base >= end:
                break
            for first, after in _runs(base, self._bits[order[place]]):
                if low < min(first, end):
                    yield low, min(first, end)
                low = max(low, after)
        if low < end:
            yield low, end


_EMPTY = Positions()
"""The one view of all empty sets."""


def _neighbours(positions: Iterable[int]) -> Iterator[Range]:
    """The positions as ranges (first, end), in the order in which they come."""
    first = end = -1
    for position in positions:
        if position != end:
            if end > first:
                yield first, end
            first = position
        end = position + 1
    if end > first:
        yield first, end


def _places(base: int, bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield base + lowest.bit_length() - 1
        bits ^= lowest


def _runs(base: int, bits: int) -> Iterator[Range]:
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits >>= skipped
        count = _ones(bits)
        base += skipped
        yield base, base + count
        bits >>= count
        base += count


def _ones(bits: int) -> int:
    """The length of the run of ones that begins at bit 0."""
    # Adding 1 carries through the run and sets the zero behind it: the only bit that is new.
    return (~bits & (bits + 1)).bit_length() - 1


class Ranges:
    """The positions of a set as ranges, to be walked."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions

    def __len__(self) -> int:
        return self._positions.count_ranges()

    def __iter__(self) -> Iterator[Range]:
        return self._positions.ranges()


class PositionMap(Positions, Generic[V]):
    """A map from positions, in ascending order. A block's values are copied at their first change
    after the map was, so one copy costs one entry per block."""

    __slots__ = ("_owned", "_values")

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[int, dict[int, V]] = {}  # block -> position -> value
        self._owned: dict[int, None] = {}  # blocks whose values no copy shares

    def copy(self, generation: int = 0) -> "PositionMap[V]":
        """The same map, to be changed apart."""
        twin = PositionMap[V]()
        self._share(twin)
        twin._values = self._values.copy()
        self._owned = {}
        return twin

    def view(self) -> "PositionMap[V]":
        """The same map, to be read."""
        return self.copy() if self.count else _EMPTY_MAP

    def __getitem__(self, position: int) -> V:
        return self._values[position >> BLOCK_BITS][position]

    def __setitem__(self, position: int, value: V) -> None:
        self._writable(position >> BLOCK_BITS)[position] = value
        self.add(position)

    def items(self) -> Iterator[tuple[int, V]]:
        """All pairs."""
        for block in self._order:
            values = self._values[block]
            for position in _places(block << BLOCK_BITS, self._bits[block]):
                yield position, values[position]

    def take(self, position: int) -> V | None:
        """Take one out; its value, None where it was not there."""
        if not self.discard(position):
            return None
        block = position >> BLOCK_BITS
        value = self._writable(block).pop(position)
        if block not in self._bits:
            del self._values[block], self._owned[block]
        return value

    def _writable(self, block: int) -> dict[int, V]:
        values = self._values.get(block)
        if block not in self._owned:
            self._owned[block] = None
            # Shared with a view until now. `_bits` need no such care: integers never change.
            values = {} if values is None else values.copy()
            self._values[block] = values
        assert values is not None, "a block that is owned has values"
        return values

    def parts(self) -> Iterator[dict[int, dict[int, V]]]:
        """The dicts that hold most of the map, for `garbage.py` to empty in slices."""
        yield self._values


_EMPTY_MAP: PositionMap[Any] = PositionMap()
"""The one view of all empty maps."""
