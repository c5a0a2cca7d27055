"""Mutants of the rules about journals: each is a core without one of them (raft.md 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from node.journal.passport import Known
from node.raft import rejoin
from node.raft.core import Core
from node.raft.processes import Processes
from node.raft.roll import Judgement, Roll, Said, Standing, State

if TYPE_CHECKING:
    from node.peers.message import PeerNode


class BeginsAmongTheReachable(Core):
    """A first start needs no more than the members that are there."""

    def _begin_together(self) -> None:
        if not self._begins and isinstance(self.rejoin, rejoin.Waiting):
            self._write(begins=True)


class BeginsEmpty(Core):
    """An empty folder is that of a member, as with 0.1.0."""

    def connected(self, node: PeerNode) -> None:
        if isinstance(self.rejoin, rejoin.Waiting) and self._own_state() is State.NEW:
            self.rejoin = None
        super().connected(node)


class _Forgetful(Roll):
    def acknowledged(self, name: str, term: int, index: int) -> None:
        pass


class ForgetsAcknowledgements(Core):
    """No acknowledgement is remembered."""

    roll_class = _Forgetful


class KeepsItsOwnPromises(Core):
    """A leader does not say what its own disk has."""

    def tell_synced(self) -> None:
        pass


class SaysItOnce(Core):
    """A leader says once what its own disk has, and not again on a new connection."""

    def connected(self, node: PeerNode) -> None:
        said = self._said_synced
        super().connected(node)
        self._said_synced = said


class _Gapless(Roll):
    def _what_it_lacks(self, name: str, known: Known, said: Said) -> str:
        if said.opens > known.opens + 1:
            return "it was opened by processes that were not seen here"
        return super()._what_it_lacks(name, known, said)


class BelievesInNoGaps(Core):
    """Each process of a member has to be met, or learned of from others."""

    roll_class = _Gapless


class _TakesDownJournals(Roll):
    def judge(self, name: str, said: Said, own: State) -> Judgement:
        found, known = super().judge(name, said, own), self.known(name)
        voice = own in (State.BEGUN, State.WHOLE)
        return found if voice or not known.journal else found._replace(known=known)


class TakesDownNoProcess(Core):
    """A member without a voice takes down which journals there are, and not their processes."""

    roll_class = _TakesDownJournals

    def _is_known(self, node: PeerNode) -> bool:
        return True


class NotesNoAcknowledgements(Core):
    """An acknowledgement is known in memory only."""

    def _remembered(self) -> bytes:
        return b""


class _Uncounted(Roll):
    def _what_it_lacks(self, name: str, known: Known, said: Said) -> str:
        return super()._what_it_lacks(name, known, replace(said, opens=known.opens + 1))


class CountsNoOpens(Core):
    """The number of its opens says nothing."""

    roll_class = _Uncounted


class _TakesTheirWord(Roll):
    def learn(self, name: str, theirs: Known, *, connected: bool) -> bool:
        promises, self._acknowledged = self._acknowledged, {}
        try:
            return super().learn(name, theirs, connected=connected)
        finally:
            self._acknowledged = promises


class BelievesOthersOfProcesses(Core):
    """A process that another member counts needs no judgement here."""

    roll_class = _TakesTheirWord


class TrustsCopies(Core):
    """A copy of files is as good as the folder itself."""

    def connected(self, node: PeerNode) -> None:
        if isinstance(self.rejoin, rejoin.Waiting) and self._own_state() is State.COPY:
            self.rejoin = None
        super().connected(node)


class _Bold(Roll):
    def judge(self, name: str, said: Said, own: State) -> Judgement:
        return super().judge(name, said, State.WHOLE)


class CopiesJudge(Core):
    """A member without a voice judges the others all the same."""

    roll_class = _Bold


class _Credulous(Roll):
    def judge(self, name: str, said: Said, own: State) -> Judgement:
        found = super().judge(name, said, own)
        if found.standing is Standing.BARRED and said.state is State.WHOLE:
            return Judgement(Standing.COUNTED, Known(said.journal, said.opens, said.open_id))
        return found


class CountsUnknownJournals(Core):
    """Whatever journal a member has counts as that of the member."""

    roll_class = _Credulous


class _Unlearning(Roll):
    def _judge_member(self, name: str, known: Known, said: Said, own: State) -> Judgement:
        return super()._judge_member(name, replace(known, former=()), said, own)


class ForgetsFormerJournals(Core):
    """A journal that was given up may come back as one that is only unknown."""

    roll_class = _Unlearning


class AdmitsNone(Core):
    """An empty one of two waits for ever."""

    def on_verdict(self, node: PeerNode, message: dict[str, object]) -> bool:
        return False


class _Suspicious(Roll):
    def _what_it_lacks(self, name: str, known: Known, said: Said) -> str:
        return "it was started again" if said.opens > known.opens else ""


class TakesRestartsForLoss(Core):
    """A journal that was opened again is taken for another."""

    roll_class = _Suspicious


class _Unaware(Processes):
    def judge(self, member: str, open_id: bytes) -> str | None:
        return None


class CountsProcessesElsewhere(Core):
    """A process counts wherever it is connected."""

    processes_class = _Unaware


CORES: dict[str, type[Core]] = {
    name: found
    for name, found in list(globals().items())
    if isinstance(found, type) and issubclass(found, Core) and found is not Core
}
"""Every faulty core of this module, by its name."""
