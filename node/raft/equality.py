"""Whether the members' states are equal: their marks at the same indexes, compared by the leader.

A mark is a hash of everything that was done up to an index, or, seldom, of the whole state there.
Owns a member's own marks, those that it has heard while it leads, and the outcome: which members
are equal, and which are not. Must not know what is hashed, nor what becomes of a member that
differs. Pure: no clock, no frames.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from node.raft import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE_FROM: Final = 1 << 16
"""Versions of marks from here on are those of whole states: a member of 0.1.0, which knows none of
these, compares no such mark."""


class Mark(NamedTuple):
    """The hash of what the entries before `index` did to a state, by the rules of `version`."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which a mark has no use for
    version: int
    hash: int

    @property
    def whole(self) -> bool:
        """Whether it is the digest of a whole state, and not the running hash."""
        return self.version >= WHOLE_FROM

    @classmethod
    def of_state(cls, index: int, version: int, digest: bytes) -> Mark:
        """The mark of a whole state, by its digest."""
        part = int.from_bytes(digest[:_HASH_BYTES], "little")
        return cls(index, WHOLE_FROM + version, part)


_HASH_BYTES: Final = 7
"""Of a digest, in a mark: a flipped field shows in 256 ** -7 of all cases not."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing the marks at one index. `agreed`: the majority; empty where no
    majority is equal, and then no one knows who is right."""

    index: int
    agreed: frozenset[str]
    differing: frozenset[str]
    whole: bool = False
    """Whether whole states were compared."""


@dataclass(slots=True)
class Compared:
    """The leader's knowledge of one member: up to where it is equal, and since when it is not."""

    equal_index: int = 0
    differs_index: int = 0
    """The first mark that differed; 0: none."""

    differs_whole: bool = False
    """Whether that was the digest of its whole state: an equal running hash says nothing then."""

    whole_index: int = 0
    """The newest index at which its whole state was found equal."""


class _Marks:
    """The newest marks of one member: running hashes, and the fewer digests of whole states, which
    are late."""

    def __init__(self) -> None:
        self._of_kind: tuple[dict[int, Mark], dict[int, Mark]] = ({}, {})

    def add(self, mark: Mark) -> None:
        some = self._of_kind[mark.whole]
        some[mark.index] = mark
        if len(some) > (limits.DIGESTS_KEPT if mark.whole else limits.MARKS_KEPT):
            del some[min(some)]

    def at(self, index: int, *, whole: bool) -> Mark | None:
        return self._of_kind[whole].get(index)

    def all(self) -> Iterator[Mark]:
        for some in self._of_kind:
            yield from map(some.__getitem__, sorted(some))

    def clear(self) -> None:
        for some in self._of_kind:
            some.clear()


@dataclass(slots=True)
class Equality:
    """The marks as one member knows them, among these voters."""

    name: str
    voters: frozenset[str]
    own_differs_index: int = 0
    """Since when this member differs from a majority; 0: it does not, as far as it knows."""

    compared: dict[str, Compared] = field(default_factory=dict)
    """By name, this member among them, as of its newest leadership."""

    _own: _Marks = field(default_factory=_Marks)
    _others: dict[str, _Marks] = field(default_factory=dict)
    _sent_to: tuple[str, int] = ("", 0)
    """The leader that marks were sent to last, and its term."""

    _unsent: deque[Mark] = field(
        default_factory=lambda: deque(maxlen=limits.MARKS_KEPT + limits.DIGESTS_KEPT)
    )

    def begin(self) -> None:
        """A new leadership: nothing is known of the others."""
        self._others.clear()
        self.compared.clear()

    def started_anew(self) -> None:
        """The own state was replaced by another: what it did before is no longer its history."""
        self._own.clear()
        self._unsent.clear()
        self.own_differs_index = 0

    def own_at(self, index: int, whole: bool) -> Mark | None:
        """The own mark at an index; None where it is not kept."""
        return self._own.at(index, whole=whole)

    def hashes_at(self, index: int, whole: bool) -> dict[str, int]:
        """The hashes of all members there, as far as they are known."""
        found = {name: marks.at(index, whole=whole) for name, marks in self._others.items()}
        found[self.name] = self._own.at(index, whole=whole)
        return {name: mark.hash for name, mark in found.items() if mark is not None}

    def decided(
        self,
        index: int,
        whole: bool,
        right: frozenset[str],
    ) -> Comparison:
        """The outcome where the members that are right were found out."""
        names = frozenset(self.hashes_at(index, whole))
        return self._noted(Comparison(index, right, names - right, whole))

    def replaced(self, name: str) -> None:
        """The state of another member was replaced: what it was before says nothing of it."""
        self._others.pop(name, None)
        self.compared.pop(name, None)

    def note(self, mark: Mark) -> Comparison | None:
        """Take an own mark; what it says together with those of the others, if anything."""
        self._own.add(mark)
        self._unsent.append(mark)
        return self._judge(mark)

    def of(self, name: str) -> Compared:
        """The knowledge of a member."""
        return self.compared.get(name) or Compared()

    def unsent_to(self, leader: str, term: int) -> bool:
        """Whether `unsent` may give any."""
        return bool(self._unsent) or (leader, term) != self._sent_to

    def unsent(self, leader: str, term: int) -> Iterator[Mark]:
        """The own marks that this leader has not been sent; asked once, they count as sent."""
        if (leader, term) != self._sent_to:
            self._sent_to = leader, term
            self._unsent.clear()
            yield from self._own.all()
        while self._unsent:
            yield self._unsent.popleft()

    def reported(self, name: str, mark: Mark) -> Comparison | None:
        """Take the mark of another member; what it says together with the rest, if anything."""
        self._others.setdefault(name, _Marks()).add(mark)
        return self._judge(mark)

    def _judge(self, newest: Mark) -> Comparison | None:
        index, whole = newest.index, newest.whole
        own = self._own.at(index, whole=whole)
        if own is None or not self._others:
            return None
        groups: dict[int, set[str]] = {own.hash: {self.name}}
        for name, marks in self._others.items():
            mark = marks.at(index, whole=whole)
            if mark is not None and mark.version == own.version:
                groups.setdefault(mark.hash, set()).add(name)
        known = set().union(*groups.values())
        agreed = max(groups.values(), key=lambda group: len(group & self.voters))
        if len(agreed & self.voters) <= len(self.voters) // 2:
            if len(groups) == 1 or not self.voters <= known:
                return None  # More may be heard.
            agreed = set()
        differing = frozenset(known - agreed)
        return self._noted(Comparison(index, frozenset(agreed), differing, whole))

    def _noted(self, verdict: Comparison) -> Comparison:
        for name in verdict.agreed:
            one = self.compared.setdefault(name, Compared())
            one.equal_index = max(one.equal_index, verdict.index)
            if verdict.whole:
                one.whole_index = max(one.whole_index, verdict.index)
            if one.differs_index <= verdict.index and (verdict.whole or not one.differs_whole):
                one.differs_index, one.differs_whole = 0, False
        for name in verdict.differing:
            one = self.compared.setdefault(name, Compared())
            if not one.differs_index or verdict.index < one.differs_index:
                one.differs_index = verdict.index
            one.differs_whole |= verdict.whole
        return verdict
