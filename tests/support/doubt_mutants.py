"""Faulty cores that take a rule about doubts back (raft.md 1.47)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from node.raft.core import Core
from node.raft.doubts import Again, Doubts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from node.peers.message import PeerNode
    from node.raft.doubts import Place


class _Sure(Doubts):
    def doubt(self, place: Place) -> None:
        pass


class AppliesNothingAgain(Core):
    """Where no majority is equal, nothing follows."""

    doubts_class = _Sure


class _OfTheLeader(Doubts):
    def _decide(self, members: Sequence[str]) -> None:
        if self._name in self._verdicts:
            self._verdicts[self._name] = Again.SAME
        super()._decide(members)


class BelievesTheLeader(Core):
    """A leader does not doubt itself."""

    doubts_class = _OfTheLeader


class GoesOnInDoubt(Core):
    """A cluster of which no member can be believed goes on."""

    def _decided(self, place: Place, right: frozenset[str]) -> None:
        if right:
            super()._decided(place, right)


class _Once(Doubts):
    def _ask(self, term: int, peers: Sequence[PeerNode], now: float) -> None:
        if self._asked_at == -math.inf:
            super()._ask(term, peers, now)


class AsksOnce(Core):
    """A member whose answer was lost is not asked again."""

    doubts_class = _Once


class _WithEachWord(Doubts):
    def _decide(self, members: Sequence[str]) -> None:
        place = self._doubted
        if place is None or self._settled or not self._verdicts.keys() >= set(members):
            return
        hashes = self._equality.hashes_at(*place)
        right = {name for name, one in self._verdicts.items() if one is not Again.OTHER}
        self._settled = True
        alike = len({hashes.get(name) for name in right}) == 1
        self._decided(place, frozenset(right) if alike else frozenset())


class CountsEachWord(Core):
    """A member that has no mark is waited for, and what it says of it counts."""

    doubts_class = _WithEachWord
