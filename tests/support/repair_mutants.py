"""Faulty cores that take a rule about damaged disks back (raft.md 1.45)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from node.journal.damage import Rewrite
from node.journal.io.jobs import Job
from node.raft.core import Core
from node.raft.repairs import Repairs
from node.raft.scrubbing import Scrubbing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from node.journal.locations import EntryLocation
    from node.peers.message import PeerNode


class _Idle(Scrubbing):
    def step(self) -> bool:
        self.due = math.inf
        return False


class ReadsNothing(Core):
    """Damage is found by a delivery, or by the next start, alone."""

    scrubbing_class = _Idle


class _Silent(Repairs):
    def _ask(self, location: EntryLocation, peers: Sequence[PeerNode], now: float) -> None:
        pass


class AsksNobody(Core):
    """A damaged entry is not asked of the other members."""

    repairs_class = _Silent


class _Stubborn(Repairs):
    @staticmethod
    def _in_turn(peers: Sequence[PeerNode], count: int) -> Sequence[PeerNode]:
        return peers


class AsksTheSameAgain(Core):
    """Each time the same member is asked, whether it has the entry or not."""

    repairs_class = _Stubborn


class _InOrder(Repairs):
    def _in_line(self, damaged: list[EntryLocation]) -> list[EntryLocation]:
        return damaged


class AsksForTheFirst(Core):
    """The first damaged entries are asked for again and again, whether a member has them or not."""

    repairs_class = _InOrder


class _Patient(Repairs):
    def _give_up(self, damaged: list[EntryLocation], now: float, *, alone: bool) -> None:
        pass


class WaitsForEver(Core):
    """A body that no member has is waited for without end."""

    repairs_class = _Patient


class _Credulous(Repairs):
    def _rewriting_job(self, location: EntryLocation, command: bytes) -> Job[bool] | None:
        journal: Any = self._journal
        source = journal._snapshots.entries.file_of(location)
        return Job(Rewrite(journal._storage, source, location, command).run)


class WritesWhatComes(Core):
    """An answer of any size is written where the entry was."""

    repairs_class = _Credulous


class _Final(Repairs):
    def _found(self) -> None:
        super()._found()
        damaged = self._journal.damaged_entries()
        if damaged:
            self._fail(self._journal.cannot_repair(damaged[0]))


class EndsAtDamage(Core):
    """A damaged entry ends the node, as it did in 0.1.0."""

    repairs_class = _Final


class _Unmoved(Repairs):
    def _give_up_for_others(self, damaged: list[EntryLocation], now: float) -> None:
        pass


class LeavesThemBehind(Core):
    """A member that lacks an entry which no member has any more waits for it without end."""

    repairs_class = _Unmoved


class StaysInOffice(Core):
    """A leader that can send an entry no more, which it has not applied, leads on."""

    def _on_lost(self) -> None:
        self.snapshots.want(self.last_applied)


class KeepsDamagedSnapshots(Core):
    """Where something else than an entry is damaged, nothing follows from it."""

    def look_after_disk(self) -> None:
        self.repairs.step(self.members_by_name())
        self.scrubbing.step()
