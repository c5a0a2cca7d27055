"""Confirms: one per message, made lazily.

Owns `Confirm` and the sequence of them. Must not know how they came about.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple, overload


class Confirm(NamedTuple):
    """This message is committed, and on the disk of a majority. `duplicate`: it was before.

    `id` is that of the message that is stored: where a `dedup_id` was known, the earlier one.
    """

    id: str
    duplicate: bool = False


class Confirmed(NamedTuple):
    """The answer to one publish frame: which messages of it are stored.

    The first `duplicates` were recognized by their numbers; each of `repeats` is (place, count,
    producer, number): messages recognized by a dedup id, and those stored instead.
    """

    queue: int
    producer: int
    numbers: Sequence[int]
    duplicates: int
    stored: int
    repeats: Sequence[tuple[int, int, int, int]] = ()

    def confirm(self, index: int) -> Confirm:
        """The confirm of one message of the frame."""
        if self.repeats:
            at = bisect_right(self.repeats, index, key=itemgetter(0)) - 1
            if at >= 0:
                place, count, producer, number = self.repeats[at]
                if index < place + count:
                    number += index - place
                    return Confirm(f"{self.queue}.{producer}.{number}", duplicate=True)
        return Confirm(
            f"{self.queue}.{self.producer}.{self.numbers[index]}", index < self.duplicates
        )

    def each(self) -> list[Confirm]:
        """The confirms of the frame's messages that are stored."""
        if self.duplicates or self.repeats:
            return [self.confirm(index) for index in range(self.total)]
        head = f"{self.queue}.{self.producer}."
        return [Confirm(f"{head}{number}") for number in self.numbers[: self.stored]]

    @property
    def before(self) -> int:
        """The number of confirmed messages that were stored before."""
        known = self.duplicates
        for place, count, _, _ in self.repeats:
            known += max(0, place + count - max(place, self.duplicates))
        return known

    @property
    def total(self) -> int:
        """The number of confirmed messages of the frame: the first ones."""
        return self.duplicates + self.stored


class Confirms(Sequence[Confirm]):
    """A read-only list with a `Confirm` per body, in order; free until it is read."""

    __slots__ = ("_ends", "_frames")

    def __init__(self, frames: Sequence[Confirmed]) -> None:
        self._frames = [frame for frame in frames if frame.total]
        self._ends = list(accumulate([frame.total for frame in self._frames]))

    def __repr__(self) -> str:
        return f"<{len(self)} confirms, {self.duplicates} of them duplicates>"

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def duplicates(self) -> int:
        """The number of messages that were stored before."""
        return sum([frame.before for frame in self._frames])

    def __iter__(self) -> Iterator[Confirm]:
        for frame in self._frames:
            for index in range(frame.total):
                yield frame.confirm(index)

    @overload
    def __getitem__(self, index: int) -> Confirm: ...

    @overload
    def __getitem__(self, index: slice) -> list[Confirm]: ...

    def __getitem__(self, index: int | slice) -> Confirm | list[Confirm]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError("confirm index out of range")
        at = bisect_right(self._ends, index)
        return self._frames[at].confirm(index - (self._ends[at - 1] if at else 0))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str | bytes):
            return list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment] # as a list: compared by content
