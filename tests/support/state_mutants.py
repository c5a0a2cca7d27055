"""Faulty cores that take a rule about wrong states back (raft.md 1.40 to 1.42)."""

from __future__ import annotations

from node.raft.core import Core
from node.raft.replication import Replication


class ForgetsItsNote(Core):
    """A start does not look whether the state was known to be wrong."""

    def look_at_note(self, index: int) -> None:
        pass


class NotesNothing(Core):
    """That a state is wrong is known to the process alone."""

    def _note_wrong(self, index: int) -> None:
        pass


class KeepsWrongSnapshots(Core):
    """Snapshots of the wrong state stay beside the one that replaced it."""

    def state_replaced(self, index: int) -> None:
        self.equality.started_anew()


class _SendsAny(Replication):
    def keep_states(self) -> None:
        pass


class SendsItsWrongState(Core):
    """A leader whose state is wrong sends snapshots of it until it has handed over."""

    replication_class = _SendsAny


class WaitsForAnEntry(Core):
    """In an idle cluster no snapshot ever goes further than the wrong state."""

    def go_further_than(self, above: int) -> None:
        pass
