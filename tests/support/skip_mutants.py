"""Faulty cores that take a rule about skipped entries back (raft.md 1.46)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.raft.core import Core
from node.raft.skipping import Skipping

if TYPE_CHECKING:
    from node.journal.skips import Skip
    from node.peers.message import Message, PeerNode


class _Deaf(Skipping):
    def found(self, index: int, term: int, command: bytes) -> Skip | None:
        return None


class SkipsNothing(Core):
    """An order to skip an entry is not followed."""

    skipping_class = _Deaf


class _ByIndex(Skipping):
    def found(self, index: int, term: int, command: bytes) -> Skip | None:
        return self.known.get(index)


class SkipsByIndex(Core):
    """Any entry of an ordered index is skipped."""

    skipping_class = _ByIndex


class _Silent(Skipping):
    def tell(self, node: PeerNode, term: int) -> None:
        pass


class TellsNoSkips(Core):
    """A leader keeps to itself which entries it has skipped."""

    skipping_class = _Silent


class TellsNoGuests(Core):
    """A leader that begins tells the members alone which entries it has skipped."""

    def become_leader(self) -> None:
        connected = self.connected_peers
        self.connected_peers = connected & set(self.nodes)
        super().become_leader()
        self.connected_peers = connected


class _Forgetful(Skipping):
    def on_skipped(self, node: PeerNode, message: Message, applied_index: int) -> None:
        self._worker = _Idle()  # type: ignore[assignment]
        super().on_skipped(node, message, applied_index)


class _Idle:
    def run(self, *_: object) -> None:
        """Do nothing."""


class NotesNoSkips(Core):
    """The words of a leader about skipped entries are known to the process alone."""

    skipping_class = _Forgetful


class _Obedient(Skipping):
    def on_skipped(self, node: PeerNode, message: Message, applied_index: int) -> None:
        super().on_skipped(node, message, 0)


class SkipsWhatItApplied(Core):
    """A member that has applied an entry takes the order to skip it."""

    skipping_class = _Obedient
