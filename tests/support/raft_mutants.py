"""Stock behaviours put back, one per hazard: the directed tests have to go red on each.

Owns the faulty classes only. They are made of the seams that `Core` offers to tests and of the
library's own methods; nothing in production can reach them.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from node.journal.recovery import recovery_marker
from node.raft import append_entries
from node.raft.append_entries import Verdict
from node.raft.core import LEADER, Core
from node.raft.equality import Comparison, Equality, Mark
from node.raft.lease import NEVER
from node.raft.node import RaftNode
from node.raft.pysyncobj.library import stock
from node.raft.replication import PeerProgress, Replication
from node.raft.room import Room, Rooms
from node.raft.snapshots.manager import SnapshotManager
from node.raft.snapshots.taker import SnapshotTaker
from node.raft.submissions import Submission, Submissions
from tests.support import doubt_mutants, raft_probe, repair_mutants, skip_mutants, state_mutants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.journal.io.jobs import Work
    from node.journal.journal import Journal
    from node.journal.log import DurableLog
    from node.peers.message import Message, PeerNode
    from node.raft.config import Outcome
    from node.raft.rejoin import Rejoin


def truncating(log: DurableLog, message: Message, commit_index: int, applied_index: int) -> Verdict:
    """b04: everything after the previous entry is deleted, whether it matches or not."""
    previous = message["prevLogIdx"]
    if previous <= log.last_index and log.term_at(previous) == message["prevLogTerm"]:
        log.truncate(previous + 1 - log.first_index)
    return append_entries.accept(log, message, commit_index, applied_index)


def stepping_back(
    log: DurableLog, message: Message, commit_index: int, applied_index: int
) -> Verdict:
    """b25: a gap names the log's end, a mismatch the entry before."""
    verdict = append_entries.accept(log, message, commit_index, applied_index)
    if verdict.success:
        return verdict
    previous = message["prevLogIdx"]
    return Verdict(False, min(previous, log.last_index + 1), commit_index)


class Truncates(Core):
    """b04."""

    accept_rules = staticmethod(truncating)


class StepsBack(Core):
    """b25."""

    accept_rules = staticmethod(stepping_back)


class Unguarded(Submissions):
    """b05: a callback that raises disturbs the apply loop."""

    def _settle(self, submission: Submission, outcome: Outcome) -> None:
        submission.done(outcome, submission.index)


class CallbackDisturbs(Core):
    """b05."""

    submissions_class = Unguarded


class RetriesApply(Core):
    """b06: what raised is applied again in every tick."""

    def apply_committed(self) -> None:
        with contextlib.suppress(Exception):
            super().apply_committed()


class Forgetful(Submissions):
    """b16: nothing ends without an answer of the cluster."""

    def expire(self, now: float) -> None:
        pass


class NoDeadline(Core):
    """b16."""

    submissions_class = Forgetful


class _QueuesAllTheSame(Submissions):
    def add(self, submission: Submission, *, accepted: bool) -> None:
        before = len(self.refused)
        super().add(submission, accepted=accepted)
        if accepted and len(self.refused) > before:
            again = replace(submission, done=lambda outcome, index: None)
            self._queue.append(again)
            self.queued_bytes += len(again.command)


class QueuesWhatItRefuses(Core):
    """b09: a command is refused because the queue is full, and is in it all the same."""

    submissions_class = _QueuesAllTheSame


class TakesMembershipChanges(Core):
    """b11: the library's own handling of membership, where every change is accepted at once."""

    def change_members(self, request: object) -> Any:
        return stock("changeCluster")(self, request)

    def parse_member_change(self, command: bytes) -> Any:
        return stock("parseChangeClusterRequest")(self, command)


class SkipsUnknown(Core):
    """b17: an entry of another type is passed over without advancing the applied index."""

    def apply_committed(self) -> None:
        first, last = self.last_applied + 1, self.commit_index
        if first <= last:
            for command, index, term in self.log.entries(first, 10**9, last - first + 1):
                if command[:1] == b"\x03":
                    continue
                self.apply_entry(command, index, term)
                self.last_applied += 1


class AnswersAtOnce(Core):
    """b18: acknowledgements and votes leave before the sync."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        raft_probe.replace_disk(self, _CleanDisk())


class _CleanDisk:
    dirty = False
    gathered_end = synced_end = covered_end = 0


class CountsItself(Core):
    """A leader counts itself for what its own disk does not have yet."""

    def countable_index(self) -> int:
        return self.log.last_index


class ReleasesAll(Core):
    """Messages that wait for a sync leave with the one before it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        raft_probe.replace_disk(self, _WrongEnd(self.journal))


class _WrongEnd:
    synced_end = covered_end = gathered_end = 0

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @property
    def dirty(self) -> bool:
        return self._journal.log.dirty


class AnswersInAnyTerm(Core):
    """A heartbeat is answered at once, in a term that the disk does not have yet too."""

    def answers_at_once(self) -> bool:
        return self.log.syncing


class CountsOldAcks(Core):
    """b20: an acknowledgement counts whatever term it was made in."""

    def on_acknowledgement(self, node: PeerNode, message: Message) -> bool:
        return super().on_acknowledgement(
            node, message | {"term": self.term, "round": self.lease.round}
        )


class SendsChunks(Core):
    """b21: the library's own sending, which cuts large entries in pickled chunks."""

    def send_heartbeat(self) -> None:
        stock("sendAppendEntries")(self)

    def replicate(self) -> None:
        if self.role == LEADER:
            stock("sendAppendEntries")(self)


class TrustsCommitHint(Core):
    """b23: the stored commit index is believed past the end of the log."""

    def _adopt_journal(self) -> None:
        super()._adopt_journal()
        self.commit_index = self.log.commit_hint()


class TakesForwarded(Core):
    """b24: messages that are not ours reach the library's handler."""

    def receive(self, node: PeerNode, message: Message) -> None:
        self.stock_receive(node, message)


class Boundless(Replication):
    """b26: the peer's word is taken for where to probe."""

    def probe_start(self, hint: int) -> int:
        return hint


class ProbesAnywhere(Core):
    """b26."""

    replication_class = Boundless


class CountsVotes(Core):
    """b28: votes are counted, not voters."""

    def on_response_vote(self, node: PeerNode, message: Message) -> bool:
        self.stock_receive(node, message)
        return True


class SilentToOldLeaders(Core):
    """b12: entries of a lower term get no answer."""

    def on_append_entries(self, node: PeerNode, message: Message) -> bool:
        if message["term"] < self.term:
            return False
        return super().on_append_entries(node, message)


class BelievesInItself(Core):
    """b12: an isolated leader goes on for the library's 30 seconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conf.leaderFallbackTimeout = 30.0


class VotesForAnyone(Core):
    """No stickiness: votes however recently a leader was heard (raft.md 3.8)."""

    def sticky(self) -> bool:
        return False


class LeaseFromReceipt(Core):
    """The lease counts from when the answer came, not from when the round was sent."""

    def on_acknowledgement(self, node: PeerNode, message: Message) -> bool:
        if message["term"] == self.term:
            message = message | {"round": self.lease.next_round(self.clock())}
        return super().on_acknowledgement(node, message)


class KeepsLease(Core):
    """A leader that asked another node to stand goes on believing in its lease."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lease.give_up = lambda: None  # type: ignore[method-assign]  # the mutation


class KeepsLeaseAlone(Core):
    """A leader believes in its lease though its connections have ended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lease.connection_ended = lambda peer: None  # type: ignore[method-assign]  # the mutation


class MissesWhoeverIsMissed(Core):
    """A follower takes the word of another for it that the leader is gone."""

    def on_pre_vote(self, node: PeerNode, message: Message) -> bool:
        if self.leader is not None and self.role != LEADER:
            self._missed = self.leader, self.term
        return super().on_pre_vote(node, message)


class MissesForEver(Core):
    """A leader whose connection ended is missed on, though it is heard again."""

    def _follow(self, leader: PeerNode, term: int) -> bool:
        missed = self._missed
        news = super()._follow(leader, term)
        self._missed = missed
        return news


class NeverRests(Core):
    """A member stands early as often as connections end."""

    def miss_leader(self, leader: PeerNode) -> None:
        self._early_at = NEVER
        super().miss_leader(leader)


class CountsReplaced(Core):
    """A connection that a newer one replaces counts as one that ended."""

    def disconnected(self, node: PeerNode, *, replaced: bool = False) -> None:
        super().disconnected(node)


class ForgetsItsGrant(Core):
    """A member that granted a pre-vote refuses the vote once the leader is heard again."""

    def on_request_vote(self, node: PeerNode, message: Message) -> bool:
        self._promised = None
        return super().on_request_vote(node, message)


class AsksAgainLate(Core):
    """A question that came too early waits until it is asked again."""

    def miss_leader(self, leader: PeerNode) -> None:
        self._put_off = None
        super().miss_leader(leader)


class StandsForAnyone(Core):
    """Any node that asks this node to stand, and in whatever term, is obeyed."""

    def on_timeout_now(self, node: PeerNode, message: Message) -> bool:
        self.leader = node
        return super().on_timeout_now(node, message | {"term": self.term})


class FlagsAndForcesForEver(StandsForAnyone):
    """The same, and the privilege of the one election is kept for those that follow."""

    def prepare_election(self) -> None:
        if self.outbox.transfer_term:
            self.outbox.transfer_term = self.term + 1
        super().prepare_election()


class LeadsOn(Core):
    """A leader whose target did not stand goes on as if it had asked no node to stand."""

    def _retire(self) -> None:
        self.transfer = None
        raft_probe.regain_lease(self)


class NoPreVote(Core):
    """Stands for election whenever the library would."""

    def prepare_election(self) -> None:
        pass


class CommitsOnSnapshotPath(Core):
    """b01: a snapshot on its way moves the commit index, up to the end of this node's own log."""

    def on_snapshot(self, node: PeerNode, message: Message) -> bool:
        news = super().on_snapshot(node, message)
        claimed = min(message["index"], self.log.last_index)
        self.commit_index = max(self.commit_index, claimed)
        return news


class ClearsTail(Core):
    """b02: at a start with a snapshot the journal is cleared."""

    def _adopt_snapshot(self) -> None:
        super()._adopt_snapshot()
        journal = self.journal
        if journal.snapshot is not None:
            self.commit_index = journal.snapshot.index
            raft_probe.forget_commit(journal, self.commit_index)
            journal.log.truncate(journal.snapshot.index + 1 - journal.log.first_index)


class _Rewriting(SnapshotTaker):
    def _take(self, index: int) -> Work:
        raft_probe.lose_closed_segments(self._journal)
        yield from super()._take(index)


class _TakesRewriting(SnapshotManager):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self._taker is not None:
            self._taker.__class__ = _Rewriting


class RewritesOnCompaction(Core):
    """b03: what the log has to let go of goes first, and what is to stay is written afterwards."""

    snapshots_class = _TakesRewriting


class IgnoresLoadError(Core):
    """b10: a snapshot that cannot be read is no reason not to start."""

    def _adopt_snapshot(self) -> None:
        with contextlib.suppress(Exception):
            super()._adopt_snapshot()


class RollsBack(Core):
    """b22: a snapshot is installed whatever this node has applied since."""

    def on_snapshot(self, node: PeerNode, message: Message) -> bool:
        meta = self.journal.snapshot
        if message["index"] <= self.last_applied and meta is not None:
            self.last_applied = meta.index
        return super().on_snapshot(node, message)


class _NeverJumps(Submissions):
    def jumped(self, index: int) -> None:
        pass


class ForgetsJumped(Core):
    """b22: no waiting caller is notified of what a snapshot jumped over."""

    submissions_class = _NeverJumps


class VotesAtOnce(Core):
    """A member that lost its journal votes as if it knew everything."""

    def on_request_vote(self, node: PeerNode, message: Message) -> bool:
        with _no_rejoin(self):
            return super().on_request_vote(node, message)

    def on_pre_vote(self, node: PeerNode, message: Message) -> bool:
        with _no_rejoin(self):
            return super().on_pre_vote(node, message)


@contextlib.contextmanager
def _no_rejoin(core: Core) -> Iterator[None]:
    rejoin, core.rejoin = core.rejoin, None
    try:
        yield
    finally:
        core.rejoin = rejoin


class CountsAtOnce(Core):
    """The acknowledgements of a member that lost its journal count, in whatever term."""

    def _answer(self, next_index: int, *, reset: bool, success: bool) -> Message:
        with _no_rejoin(self):
            return super()._answer(next_index, reset=reset, success=success)


class _Trusting(Replication):
    def note_loss(self, progress: PeerProgress, message: Message) -> None:
        pass

    def note_forgotten(self, node: PeerNode, progress: PeerProgress, has_index: int) -> None:
        pass


class KeepsOldMatch(Core):
    """A leader goes on counting what a member had before it lost its journal."""

    replication_class = _Trusting


class DoneAtTheCurrentLeader(Core):
    """A lost journal counts as got back when it has what any leader has committed."""

    def caught_up(self, rejoin: Rejoin) -> bool:
        index = min(self.commit_index, self.log.synced_index)
        return self.log.term_at(index) > 0


class DoneWithTheFirstFrame(Core):
    """A lost journal counts as got back when a leader of a later term was heard."""

    def caught_up(self, rejoin: Rejoin) -> bool:
        leads = self._leads()
        return rejoin.floor is not None and leads is not None and leads[1] > rejoin.floor


class ForgetsItsMarker(Core):
    """That the journal was lost is known to the process, and not to the disk."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.journal.recovering:
            recovery_marker.end(self.journal._storage)
            self.journal.end_recovery = lambda: None  # type: ignore[method-assign]  # it is gone


class TellsNoRoom(Core):
    """No follower reports what it has left."""

    def _tell_room(self, leader: PeerNode) -> None:
        pass


class ReportsAfterTheSync(Core):
    """A report waits for the disk, as an acknowledgement does."""

    def _tell_room(self, leader: PeerNode) -> None:
        if not self.log.dirty:
            super()._tell_room(leader)


class _AnyReport(Rooms):
    def of(self, node: PeerNode, now: float, *, counted: bool) -> Room | None:
        return super().of(node, now, counted=True)


class CountsTheRecovering(Core):
    """A leader goes by the room of a member that recovers."""

    rooms_class = _AnyReport


class _OldReports(Rooms):
    def of(self, node: PeerNode, now: float, *, counted: bool) -> Room | None:
        told_at = self._reports[node][1] if node in self._reports else now
        return super().of(node, min(now, told_at), counted=counted)


class BelievesOldReports(Core):
    """A leader goes by the room of a member that is long gone."""

    rooms_class = _OldReports


class _BySeconds(Rooms):
    def measured(self, end: int) -> None:
        super().measured(sys.maxsize)


class ReportsBySecondsOnly(Core):
    """A follower reports its room once a second, however fast its disk fills."""

    rooms_class = _BySeconds


class ForgetsWhatIsLacking(Core):
    """A leader takes the room of a member for free that what it lacks will fill."""

    def room_of(self, node: PeerNode, progress: PeerProgress, now: float) -> Room | None:
        return self.rooms.of(node, now, counted=progress.counted)


class StaysOnItsDisk(Core):
    """A leader whose disk hangs leads on."""

    def leave_hanging_disk(self) -> None:
        pass


class LeavesForAnyDisk(Core):
    """A leader whose disk hangs hands over to a member whose disk hangs too."""

    def _quick_peers(self, now: float) -> dict[PeerNode, PeerProgress]:
        return self.replication.peers


class LeavesAgainAndAgain(Core):
    """A leader whose disk hangs hands over whenever it can."""

    def leave_hanging_disk(self) -> None:
        self._left_disk_at = NEVER
        super().leave_hanging_disk()


class HoardsUnsynced(Core):
    """A node takes whatever comes while its own disk takes nothing."""

    @property
    def full_of_unsynced(self) -> bool:
        return False


class RefusesWithoutRoom(Core):
    """A follower that takes no entries answers with a refusal, which waits for its disk."""

    def _take_nothing(self, node: PeerNode) -> None:
        self.acknowledge(node, next_index=self.commit_index + 1, reset=True)


class AcknowledgesTheUntaken(Core):
    """A follower that takes no entries acknowledges them like those that it takes."""

    def on_append_entries(self, node: PeerNode, message: Message) -> bool:
        self._end_in_hand = message["prevLogIdx"] + len(message["entries"])
        return super().on_append_entries(node, message)

    def _take_nothing(self, node: PeerNode) -> None:
        answer = self._answer(self._end_in_hand + 1, reset=False, success=True)
        self.outbox.send_at_once(node, answer)


class NeverShowsTheGap(Core):
    """A follower that took no entries once goes on with what comes after them."""

    def _take_entries(self, node: PeerNode, message: Message) -> bool:
        if message["prevLogIdx"] > self.log.last_index:
            self._take_nothing(node)
            return False
        return super()._take_entries(node, message)


class _KeptReports(Rooms):
    def begin(self) -> None:
        pass


class KeepsReports(Core):
    """A leader goes by the reports of its earlier leadership."""

    rooms_class = _KeptReports


class TellsNoMarks(Core):
    """A follower keeps to itself what its state was."""

    def tell_marks(self, leader: PeerNode) -> None:
        pass


class LeadsThoughItDiffers(Core):
    """A follower that differs stands for election, and is handed the leadership."""

    def _judged(self, verdict: Comparison | None) -> None:
        pass


class LeadsOnThoughItDiffers(Core):
    """A leader that differs leads on."""

    def leave_as_differing(self) -> None:
        pass


class _OwnIsRight(Equality):
    def _noted(self, verdict: Comparison) -> Comparison:
        agreed = verdict.agreed or frozenset({self.name})
        return super()._noted(replace(verdict, agreed=agreed, differing=verdict.differing - agreed))


class BelievesItself(Core):
    """A leader takes its own state for the right one where no majority is equal."""

    equality_class = _OwnIsRight


class _AnyVersion(Equality):
    def reported(self, name: str, mark: Mark) -> Comparison | None:
        return super().reported(name, mark._replace(version=1))


class ComparesAnyVersion(Core):
    """A leader compares hashes that were made by different rules."""

    equality_class = _AnyVersion


class _ToldOnce(Equality):
    def unsent(self, leader: str, term: int) -> Iterator[Mark]:
        return super().unsent("any", 1)


class TellsEachMarkOnce(Core):
    """A follower does not repeat its marks to the next leader."""

    equality_class = _ToldOnce


class _KeptMarks(Equality):
    def started_anew(self) -> None:
        pass


class KeepsItsMarks(Core):
    """A member that took over another state is still the one that differed."""

    equality_class = _KeptMarks


class AsksForNoState(Core):
    """A member that differs waits for another state without a word."""

    def _ask_for_state(self, leader: PeerNode) -> None:
        pass


class _NothingReplaced(Replication):
    def begin_replacing(self, node: PeerNode) -> None:
        pass


class SendsNoState(Core):
    """A leader sends nothing to a member that differs but entries."""

    replication_class = _NothingReplaced


class _ByTheLog(SnapshotManager):
    def received(
        self, message: Message, has_index: int, *, replaces: bool = False
    ) -> Message | None:
        known = max(has_index, self._journal.log.commit_hint())
        return super().received(message, known, replaces=replaces)


class OfferedStatesAreOld(Core):
    """A member that differs takes no state that its log is further than."""

    snapshots_class = _ByTheLog


class AppliesOn(Core):
    """A member that differs goes on from its wrong state."""

    rebuilds = False


class _TakesAny(SnapshotManager):
    def step(self, applied_index: int, *, takes: bool = True) -> bool:
        return super().step(applied_index)


class TakesSnapshotsOfIt(Core):
    """A member that differs takes snapshots of its wrong state."""

    rebuilds = False
    snapshots_class = _TakesAny


def node_with(core: type[Core]) -> type[RaftNode]:
    """A node made of a faulty core."""
    return type(f"{core.__name__}Node", (RaftNode,), {"core_class": core})


CORES: dict[str, type[Core]] = {
    name: found
    for name, found in [
        *globals().items(),
        *vars(state_mutants).items(),
        *vars(repair_mutants).items(),
        *vars(skip_mutants).items(),
        *vars(doubt_mutants).items(),
    ]
    if isinstance(found, type) and issubclass(found, Core) and found is not Core
}
"""Every faulty core of this module, of `state_mutants.py`, `repair_mutants.py`,
`skip_mutants.py` and `doubt_mutants.py`, by its name."""
