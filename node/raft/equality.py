"""Whether the members' states are equal: their marks at the same indexes, compared by the leader.

A mark is a hash of everything that was done up to an index. Owns a member's own marks, those that
it has heard while it leads, and the outcome: which members are equal, and which are not. Must not
know what is hashed, nor what becomes of a member that differs. Pure: no clock, no frames.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from node.raft import limits

if TYPE_CHECKING:
    from collections.abc import Iterator


class Mark(NamedTuple):
    """The hash of what the entries before `index` did to a state, by the rules of `version`."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which a mark has no use for
    version: int
    hash: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing the marks at one index. `agreed`: the majority; empty where no
    majority is equal, and then no one knows who is right."""

    index: int
    agreed: frozenset[str]
    differing: frozenset[str]


@dataclass(slots=True)
class Compared:
    """The leader's knowledge of one member: up to where it is equal, and since when it is not."""

    equal_index: int = 0
    differs_index: int = 0
    """The first mark that differed; 0: none."""


class _Marks:
    """The newest marks of one member, by index."""

    def __init__(self) -> None:
        self._by_index: dict[int, Mark] = {}

    def add(self, mark: Mark) -> None:
        self._by_index[mark.index] = mark
        if len(self._by_index) > limits.MARKS_KEPT:
            del self._by_index[min(self._by_index)]

    def at(self, index: int) -> Mark | None:
        return self._by_index.get(index)

    def after(self, index: int) -> Iterator[Mark]:
        for known in sorted(self._by_index):
            if known > index:
                yield self._by_index[known]

    def clear(self) -> None:
        self._by_index.clear()


@dataclass(slots=True)
class Equality:
    """The marks as one member of `members` knows them."""

    name: str
    members: int
    own_differs_index: int = 0
    """Since when this member differs from a majority; 0: it does not, as far as it knows."""

    compared: dict[str, Compared] = field(default_factory=dict)
    """By name, this member among them; empty where it does not lead."""

    _own: _Marks = field(default_factory=_Marks)
    _others: dict[str, _Marks] = field(default_factory=dict)
    _sent_to: tuple[str, int] = ("", 0)
    """The leader that marks were sent to last, and its term."""

    _sent_index: int = 0
    _newest: int = 0

    def begin(self) -> None:
        """A new leadership: nothing is known of the others."""
        self._others.clear()
        self.compared.clear()

    def started_anew(self) -> None:
        """The own state was replaced by another: what it did before is no longer its history."""
        self._own.clear()
        self.own_differs_index = 0

    def note(self, mark: Mark) -> Comparison | None:
        """Take an own mark; what it says together with those of the others, if anything."""
        self._own.add(mark)
        self._newest = mark.index
        return self._judge(mark.index)

    def of(self, name: str) -> Compared:
        """The knowledge of a member."""
        return self.compared.get(name) or Compared()

    def unsent(self, leader: str, term: int) -> Iterator[Mark]:
        """The own marks that this leader has not been sent; asked once, they count as sent."""
        if (leader, term) != self._sent_to:
            self._sent_to, self._sent_index = (leader, term), 0
        elif self._sent_index == self._newest:
            return
        yield from self._own.after(self._sent_index)
        self._sent_index = self._newest

    def reported(self, name: str, mark: Mark) -> Comparison | None:
        """Take the mark of another member; what it says together with the rest, if anything."""
        self._others.setdefault(name, _Marks()).add(mark)
        return self._judge(mark.index)

    def _judge(self, index: int) -> Comparison | None:
        own = self._own.at(index)
        if own is None or not self._others:
            return None
        groups: dict[int, set[str]] = {own.hash: {self.name}}
        for name, marks in self._others.items():
            mark = marks.at(index)
            if mark is not None and mark.version == own.version:
                groups.setdefault(mark.hash, set()).add(name)
        known = set().union(*groups.values())
        agreed = max(groups.values(), key=len)
        if len(agreed) <= self.members // 2:
            if len(groups) == 1 or len(known) < self.members:
                return None  # More may be heard.
            agreed = set()
        return self._noted(Comparison(index, frozenset(agreed), frozenset(known - agreed)))

    def _noted(self, verdict: Comparison) -> Comparison:
        for name in verdict.agreed:
            one = self.compared.setdefault(name, Compared())
            one.equal_index = max(one.equal_index, verdict.index)
            if one.differs_index <= verdict.index:
                one.differs_index = 0
        for name in verdict.differing:
            one = self.compared.setdefault(name, Compared())
            if not one.differs_index or verdict.index < one.differs_index:
                one.differs_index = verdict.index
        return verdict
