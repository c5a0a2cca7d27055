"""Faulty cores that take a rule about wrong states back (raft.md 1.40 to 1.42)."""

from __future__ import annotations

from node.raft.core import Core
from node.raft.equality import Comparison, Equality, Mark, _Marks
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


class KeepsDoubtsToItself(Core):
    """A leader whose state was wrong does not say which of its answers came from that."""

    def report_doubtful(self) -> None:
        pass


class PromisesThoughItDiffers(Core):
    """A leader whose state is wrong renews locks and answers from its memory."""

    def lease_until(self) -> float:
        return self.lease.until(self.clock())

    def led_at(self) -> float:
        return self.lease.led_at(self.clock())


class WaitsForAnEntry(Core):
    """In an idle cluster no snapshot ever goes further than the wrong state."""

    def go_further_than(self, above: int) -> None:
        pass


class _BelievesTheHash(Equality):
    def _noted(self, verdict: Comparison) -> Comparison:
        found = super()._noted(verdict)
        for name in verdict.agreed:
            self.compared[name].differs_index = 0
        return found


class BelievesTheRunningHash(Core):
    """A member whose whole state differs is equal again with its next running hash."""

    equality_class = _BelievesTheHash


class _OneStore(_Marks):
    def add(self, mark: Mark) -> None:
        self._of_kind = (self._of_kind[0], self._of_kind[0])
        super().add(mark)


class _InOneStore(Equality):
    def note(self, mark: Mark) -> Comparison | None:
        if not isinstance(self._own, _OneStore):
            self._own = _OneStore()
        return super().note(mark)


class MixesMarks(Core):
    """A digest, which is late, takes the place of a running hash, or goes with the old ones."""

    equality_class = _InOneStore


class _Remembers(Equality):
    def replaced(self, name: str) -> None:
        pass


class RemembersReplacedStates(Core):
    """The state that a member had before it was replaced still counts."""

    equality_class = _Remembers
