"""Mutants of the rules about changes of the members: each is a core without one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.journal.passport import Known
from node.raft import configuration as steps
from node.raft.configuration import Configuration, HandOver
from node.raft.core import Core
from node.raft.roll import Roll, Standing, State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from node.journal.records import Entry
    from node.journal.snapshots.file import SnapshotMeta
    from node.peers.message import Message, PeerNode
    from node.raft.roll import Said


def _first_first(
    current: Configuration, leader: str, level: Collection[str], up: Collection[str]
) -> steps.Step | None:
    everyone = {one.name for one in current.learners} if level else level
    return steps.next_step(current, leader, everyone, up)


class PromotesTheFirst(Core):
    """A learner that is level is promoted, whatever becomes of the others."""

    next_step = staticmethod(_first_first)


def _at_once(
    current: Configuration, leader: str, level: Collection[str], up: Collection[str]
) -> steps.Step | None:
    found = steps.next_step(current, leader, level, up)
    return steps.next_step(current, "", level, up) if isinstance(found, HandOver) else found


class RemovesItself(Core):
    """A leader that is to go takes itself out like any other."""

    next_step = staticmethod(_at_once)


class CountsLearners(Core):
    """Learners vote and count like voters."""

    def follow_members(self, voters: Collection[str], learners: Collection[str]) -> None:
        super().follow_members([*voters, *learners], ())


class KeepsWhatIsCutOff(Core):
    """A configuration counts on though its entry was cut off."""

    def note_entries(self, entries: Sequence[Entry], *, truncated: bool) -> None:
        super().note_entries(entries, truncated=False)


class ForgetsConfigurations(Core):
    """A start goes by its file."""

    def adopt_configurations(self) -> None:
        pass


class SnapshotsWithoutMembers(Core):
    """A snapshot that comes says nothing of the members."""

    def note_snapshot(self, meta: SnapshotMeta) -> None:
        pass


class HearsMembersOnly(Core):
    """A leader that is no member by the own log is not heard."""

    def admitted(self, node: PeerNode, message: Message) -> Message | None:
        if self._standings.get(node) is Standing.GUEST and message["type"] != "journal":
            return None
        return super().admitted(node, message)


class LetsVotersIn(Core):
    """An empty journal that the configuration names is let in, whatever it has promised since."""

    def _may_join(self, node: PeerNode, said: Said) -> bool:
        named = self._newest is not None and self._newest.member(node.id)
        return bool(named) and said.state is State.NEW


class BarsTooEarly(Core):
    """A removal counts as one that stays from the moment that its entry is here."""

    def _is_member(self, node: PeerNode, said: Said) -> bool:
        if self._newest is not None and self._newest.was_removed(said.journal):
            self._set_standing(node, Standing.BARRED)
            return False
        return super()._is_member(node, said)


class HearsRemoved(Core):
    """A removed member is a guest like any other, and hears nothing of it."""

    def _is_member(self, node: PeerNode, said: Said) -> bool:
        removed, self._removed = self._removed, frozenset()
        try:
            return super()._is_member(node, said)
        finally:
            self._removed = removed

    def _tell_removed(self, node: PeerNode, said: Said) -> None:
        pass


class ChangesAtAnyTime(Core):
    """A change may begin though what came before is not committed."""

    @property
    def members_committed(self) -> bool:
        return True


class ChangesAtOnce(Core):
    """A new leader changes the members before an entry of its own term is committed."""

    def _leads_for_certain(self) -> bool:
        return True


class ChangesAmidRecovery(Core):
    """A change may begin while a member recovers."""

    def _recovering(self) -> set[str]:
        return set()


class _Obedient(Roll):
    def named(self, name: str, journal: bytes, *, gone: Callable[[bytes], bool]) -> bool:
        known = self.known(name)
        if not journal or journal == known.journal:
            return False
        self.others[name] = Known(journal, former=(*known.former, known.journal))
        return True


class BelievesOldConfigurations(Core):
    """A configuration overrules what was seen of a member since."""

    roll_class = _Obedient


class AsksItsFile(Core):
    """A member that lost its journal asks those that its file names."""

    def follow_members(self, voters: Collection[str], learners: Collection[str]) -> None:
        if self.rejoin is not None:
            self.rejoin.follow = _nothing  # type: ignore[method-assign]
        super().follow_members(voters, learners)


def _nothing(others: Iterable[str]) -> None:
    pass


class LearnsOfKnownMembersOnly(Core):
    """Words of others on a journal are forgotten where its member was none here at that time."""

    def _hear_again(self) -> None:
        for node, said in list(self._said.items()):
            self._judge(node, said)


class LeavesChangesOfOthers(Core):
    """A leader goes on with its own changes only."""

    def become_leader(self) -> None:
        super().become_leader()
        self.changes_due = False


CORES: dict[str, type[Core]] = {
    core.__name__: core
    for core in (
        PromotesTheFirst,
        RemovesItself,
        CountsLearners,
        KeepsWhatIsCutOff,
        ForgetsConfigurations,
        SnapshotsWithoutMembers,
        HearsMembersOnly,
        LetsVotersIn,
        HearsRemoved,
        BarsTooEarly,
        ChangesAtAnyTime,
        ChangesAtOnce,
        ChangesAmidRecovery,
        BelievesOldConfigurations,
        AsksItsFile,
        LearnsOfKnownMembersOnly,
        LeavesChangesOfOthers,
    )
}
"""Each mutant of this module, by its name."""
