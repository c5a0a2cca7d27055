"""The messages of an answer as a sequence: an object for each is made when it is asked for.

Owns which messages of which deliveries an answer has, in order. A program that wants columns reads
the deliveries themselves, and no object is made for a message. Must not know what a message is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar, overload

from fifo.client.consuming.delivery import Delivery

M = TypeVar("M", covariant=True)


class Stretch(NamedTuple):
    """`size` neighbours of a delivery, from its `first` message on."""

    delivery: Delivery
    first: int
    size: int


class Delivered(Sequence[M], Generic[M]):
    """Messages of several deliveries, in order; `make` gives the message at a place of one."""

    __slots__ = ("_count", "_make", "stretches")

    def __init__(self, stretches: Iterable[Stretch], make: Callable[[Delivery, int], M]) -> None:
        self.stretches = tuple(stretches)
        self._make = make
        self._count = sum([one.size for one in self.stretches])

    def __repr__(self) -> str:
        return f"<{self._count} messages>"

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[M]:
        make = self._make
        for delivery, first, size in self.stretches:
            for index in range(first, first + size):
                yield make(delivery, index)

    @overload
    def __getitem__(self, place: int) -> M: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[M]: ...
    def __getitem__(self, place: int | slice) -> M | Sequence[M]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(self._count))]
        at = place + self._count if place < 0 else place
        if 0 <= at < self._count:
            for delivery, first, size in self.stretches:
                if at < size:
                    return self._make(delivery, first + at)
                at -= size
        raise IndexError(f"message {place} of {self._count}")


def by_token(deliveries: Iterable[Delivery], wanted: range) -> list[Stretch]:
    """The stretches of these tokens, ascending, each token once: after a lost connection what was
    on its way comes again."""
    found: list[Stretch] = []
    below = wanted.start
    for one in sorted(deliveries, key=_first_token):
        begin = max(one.first_token, below)
        end = min(one.first_token + one.count, wanted.stop)
        if begin < end:
            found.append(Stretch(one, begin - one.first_token, end - begin))
            below = end
    return found


def _first_token(delivery: Delivery) -> int:
    return delivery.first_token
