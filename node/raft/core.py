"""The library with what loses data replaced: overrides of the private methods of SyncObj.

Owns the whole of a core, its messages and connections; `elections.py` and `committing.py`, which
it derives from, own their part. `node.py` reads a mangled name here and there, nobody else any. The
library keeps the election timer, voting, the commit rule, the step-down and the no-op of a term;
everything else goes to modules that do not know it. The ids b01.. name the hazards of the stock
methods (docs of the Raft build); `pin.py` records the source that each override was written
against, and has to be updated with these modules.

Nothing here runs on its own: `node.py` owns the order of a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pysyncobj.syncobj import SyncObj

from node.journal.io.log_reader import LogReader
from node.peers.message import COMMAND_BYTE, Message, MessageRefused
from node.peers.peer import PeerNode
from node.raft import limits, rejoin
from node.raft.append_entries import accept, check
from node.raft.commit import Committing
from node.raft.config import RaftCounters, library_conf
from node.raft.durable_outbox import HeldFrames
from node.raft.elections import CANDIDATE, FOLLOWER, LEADER
from node.raft.errors import RaftError, RaftStopped, describe
from node.raft.lease import NEVER, Lease
from node.raft.prevote import PreVote
from node.raft.pysyncobj import pin, seams
from node.raft.pysyncobj.library_log import LibraryLog
from node.raft.replication import Replicator
from node.raft.snapshots.manager import Snapshotting
from node.raft.submissions import Submissions

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from node.journal.io.worker import Worker
    from node.journal.journal import Journal
    from node.raft.config import RaftConfig
    from node.raft.state_source import StateSource

__all__ = ["CANDIDATE", "FOLLOWER", "LEADER", "Core", "command_of"]

pin.check_names()
seams.install()


class Core(Committing):
    """SyncObj with our log, our append rules, our apply loop and our idea of an election."""

    _SyncObj__votedForNodeId: str | None
    _SyncObj__raftNextIndex: dict[PeerNode, int]
    _SyncObj__lastResponseTime: dict[PeerNode, float]
    _SyncObj__leaderCommitIndex: int | None

    # Class attributes, so that a test can put a stock behaviour back and see what it breaks.
    accept_rules = staticmethod(accept)
    replicator_class = Replicator
    submissions_class = Submissions
    snapshotting_class: type[Snapshotting] = Snapshotting

    def __init__(
        self,
        config: RaftConfig,
        *,
        journal: Journal,
        transport: Any,
        clock: Callable[[], float],
        rng: random.Random,
        apply: Callable[[int, int, memoryview], None],
        wake: Callable[[], None],
        background: Worker,
        reads: Worker,
        source: StateSource | None = None,
    ) -> None:
        seams.run_as(clock, rng)
        self.config = config
        self.journal = journal
        self.clock = clock
        self.rng = rng
        self.failure: RaftStopped | None = None
        self.counters = RaftCounters()
        self.nodes = [PeerNode(name) for name in sorted(config.peers)]
        self.lease = Lease(self.nodes, config.lease_seconds)
        self.prevote = PreVote(needed=(len(self.nodes) + 1) // 2)
        self.submissions = self.submissions_class(config, self.counters)
        self.log_bytes = 0
        self._feed = LogReader(journal, reads, wake, last=lambda: self._SyncObj__raftCommitIndex)
        self._apply = apply
        self._apply_most = limits.APPLY_ENTRIES_PER_TURN
        self._wake = wake
        self._round_in_hand = 0
        self._voters: set[PeerNode] = set()
        self._voters_term = 0
        self._counted_index = 0
        self._no_op_index = 0
        self._countable_index: int | None = None
        self.transfer = None
        self.rejoin = rejoin.begin(config, rng) if journal.recovering else None
        super().__init__(
            PeerNode(config.name),
            self.nodes,
            conf=library_conf(config),
            nodeClass=PeerNode,
            transport=transport,
        )
        self.held = HeldFrames(transport, journal, self.counters)
        self._SyncObj__transport = self.held
        self.replicator = self.replicator_class(
            self.nodes,
            config,
            journal,
            self.held,
            clock=clock,
            counters=self.counters,
            offload=reads,
            wake=wake,
        )
        self._adopt_journal()
        self.snapshots = self.snapshotting_class(
            config, journal, source, self.counters, clock, background, wake
        )
        self._adopt_snapshot()
        self._heard_at = clock()  # A restarted node votes for nobody for a while (raft.md 3.8).
        if not self.nodes:
            self._SyncObj__raftElectionDeadline = NEVER  # Nobody else could win.
        self._handlers: dict[str, Callable[[PeerNode, Message], bool]] = {
            "append_entries": self.on_append_entries,
            "next_node_idx": self.on_acknowledgement,
            "request_vote": self.on_request_vote,
            "response_vote": self.on_response_vote,
            "timeout_now": self.on_timeout_now,
            "pre_vote": self.on_pre_vote,
            "pre_vote_answer": self.on_pre_vote_answer,
            "snapshot_offer": self.on_snapshot,
            "snapshot_state": self.on_snapshot,
            "snapshot_entries": self.on_snapshot,
            "snapshot_ack": self.on_snapshot_ack,
            "term_ask": self.on_term_ask,
            "term_report": self.on_term_report,
        }

    # --- start ---

    def _adopt_journal(self) -> None:
        """Put our journal in place of the library's own, and start from what it holds."""
        journal = self.journal
        self._SyncObj__raftLog = LibraryLog(journal)
        if len(journal) == 0:
            journal.add(b"\x01", 1, 0)
            journal.sync()
        if journal.first_index != 1 and journal.snapshot is None:
            raise RaftStopped("raft: the log does not begin at entry 1, and there is no snapshot")
        term = journal.term
        if journal.last_term > term:
            raise RaftStopped(
                f"raft: the log ends in term {journal.last_term}, the stored term is {term}"
            )
        self._SyncObj__raftCurrentTerm = term
        self._SyncObj__votedForNodeId = journal.voted_for
        # The stored commit index is a hint that may run ahead of what survived (b23).
        commit_index = max(1, min(journal.commit_hint(), journal.last_index))
        self._SyncObj__raftCommitIndex = commit_index
        self._SyncObj__raftLastApplied = 1

    def _adopt_snapshot(self) -> None:
        """Start from the newest snapshot, if there is one: the log's tail is applied after it."""
        index = self.snapshots.restore_newest()
        if index:
            self._SyncObj__raftLastApplied = index
            self._SyncObj__raftCommitIndex = max(self._SyncObj__raftCommitIndex, index)

    # --- what others may read ---

    def enter(self) -> None:
        """Every way into this node calls this first: the library's clock is now this node's."""
        seams.run_as(self.clock, self.rng)

    def fail(self, error: Exception) -> None:
        """Remember why this node has to stop; the next turn raises it."""
        if self.failure is not None:
            return
        if isinstance(error, RaftStopped):
            self.failure = error
        else:
            # What our own package raises is written to be read by people.
            known = isinstance(error, RaftError)
            self.failure = RaftStopped(str(error) if known else f"raft: {describe(error)}")
            self.failure.__cause__ = error

    def lease_until(self) -> float:
        """End of the lease on this node's clock; 0.0 without one."""
        if self._SyncObj__raftState != LEADER:
            return 0.0
        return self.lease.until(self.clock())

    # --- messages ---

    def _SyncObj__onMessageReceived(self, node: PeerNode, message: Message) -> None:
        """One message of an authenticated peer, between turns. Never raises but `MessageRefused`,
        for the transport: a broken invariant stops the node in its next turn."""
        if self.failure is not None:
            return
        self.enter()
        handler = self._handlers.get(message["type"])
        try:
            if handler is None:
                raise MessageRefused(f"{message['type']} is not accepted")
            if handler(node, message):
                self._wake()
        except MessageRefused:
            self.counters.messages_refused_total += 1
            raise
        except Exception as error:
            self.fail(error)
            self._wake()

    def on_append_entries(self, node: PeerNode, message: Message) -> bool:
        """Entries or a heartbeat. True when the log, the commit index or the leader changed."""
        check(message)
        term = message["term"]
        self._round_in_hand = message["round"]
        if term < self._SyncObj__raftCurrentTerm:
            # Silence would let a deposed leader believe in itself (b12).
            self._SyncObj__sendNextNodeIdx(node, nextNodeIdx=1)
            return False
        news = self._follow(node, term)
        verdict = self.accept_rules(
            self.journal, message, self._SyncObj__raftCommitIndex, self._SyncObj__raftLastApplied
        )
        self.counters.truncations_total += verdict.truncated
        if verdict.success:
            self.snapshots.not_needed()
        self._SyncObj__leaderCommitIndex = message["commit_index"]
        if verdict.commit_index > self._SyncObj__raftCommitIndex:
            self._SyncObj__raftCommitIndex = verdict.commit_index
            self.journal.note_commit(verdict.commit_index)
            news = True
        if verdict.success and not message["entries"] and self.answers_at_once():
            # A slow disk must not look like a dead node: answer by what is durable.
            durable = min(verdict.next_index, self.journal.synced_index + 1)
            self.held.send_at_once(node, self._answer(durable, reset=False, success=True))
        else:
            self._SyncObj__sendNextNodeIdx(
                node,
                reset=not verdict.success,
                nextNodeIdx=verdict.next_index,
                success=verdict.success,
            )
        return news or self.journal.dirty

    def merely_follows(self) -> bool:
        """Whether this node has a leader and nothing to do that is urgent, once it has synced what
        it was sent: neither an election nor a snapshot, and nobody waits for an outcome."""
        return (
            self._SyncObj__raftState == FOLLOWER
            and self._SyncObj__raftElectionDeadline > self.clock()
            and not self._SyncObj__transferInProgress
            and self.rejoin is None
            and not self.submissions.refused
            and not self.snapshots.at_work
        )

    def answers_at_once(self) -> bool:
        """Whether a heartbeat may be answered although a sync is under way: what is in the making
        are entries only. An answer in a term that could be forgotten would promise too much."""
        return self.journal.syncing and self.journal.term_synced

    def _follow(self, leader: PeerNode, term: int) -> bool:
        """The bookkeeping of having heard the leader of `term`. True when it is a new one."""
        if term == self._SyncObj__raftCurrentTerm and self._SyncObj__raftState == LEADER:
            raise RaftStopped(f"raft: {leader.id} and this node both lead term {term}")
        now = self.clock()
        self._heard_at = now
        self.prevote.stop()
        if term > self._SyncObj__raftCurrentTerm:
            self._SyncObj__transferInProgress = False
        if not self._SyncObj__transferInProgress:
            self._SyncObj__raftElectionDeadline = now + self._SyncObj__generateRaftTimeout()
        news = leader is not self._SyncObj__raftLeader
        if term > self._SyncObj__raftCurrentTerm:
            self._SyncObj__setCurrentTerm(term, None)
            news = True
        self._SyncObj__raftLeader = leader
        self._SyncObj__setState(FOLLOWER)
        return news

    def on_acknowledgement(self, node: PeerNode, message: Message) -> bool:
        """An answer to our entries; it counts in the term it was made in, only (b20). True when
        there is something to do about it: of the answers to a round most come after its commit."""
        term = message["term"]
        if term > self._SyncObj__raftCurrentTerm:
            self._step_down(term)
            return True
        if term < self._SyncObj__raftCurrentTerm or self._SyncObj__raftState != LEADER:
            self.counters.stale_acks_dropped_total += 1
            return False
        if message["counted"]:
            self.lease.answered(node, message["round"])
            self._SyncObj__lastResponseTime[node] = self.clock()
        self.counters.resets_total += message["reset"]
        news = self.replicator.acknowledged(node, message)
        progress = self.replicator.peers[node]
        self._SyncObj__raftMatchIndex[node] = progress.counted_index
        self._SyncObj__raftNextIndex[node] = progress.next_index
        return news and (
            progress.counted_index > self._SyncObj__raftCommitIndex
            or self.transfer is not None
            or self.replicator.wanted()
        )

    def on_snapshot(self, node: PeerNode, message: Message) -> bool:
        """The leader offers a snapshot, or sends a piece of one. True when all of it is there.

        Neither log nor commit index change here (b01), and nothing is taken that this node's own
        state already holds (b22).
        """
        term = message["term"]
        if term < self._SyncObj__raftCurrentTerm:
            self._SyncObj__sendNextNodeIdx(node, nextNodeIdx=1)
            return False
        news = self._follow(node, term)
        answer = self.snapshots.received(message, self._SyncObj__raftCommitIndex)
        if answer is not None:
            self._answer_snapshot(node, message["index"], message["entry_term"], answer)
        return news or self.snapshots.busy

    def _answer_snapshot(
        self, node: PeerNode, index: int, entry_term: int, answer: Message
    ) -> None:
        head = {"type": "snapshot_ack", "term": self._SyncObj__raftCurrentTerm}
        self.held.send(node, head | {"index": index, "entry_term": entry_term} | answer)

    def on_snapshot_ack(self, node: PeerNode, message: Message) -> bool:
        """How far a peer has come with the snapshot that it is sent."""
        if message["term"] > self._SyncObj__raftCurrentTerm:
            self._step_down(message["term"])
            return True
        if message["term"] < self._SyncObj__raftCurrentTerm or self._SyncObj__raftState != LEADER:
            self.counters.stale_acks_dropped_total += 1
            return False
        if self.replicator.peers[node].counted:
            self._SyncObj__lastResponseTime[node] = self.clock()
        return self.replicator.snapshot_acknowledged(node, message)

    def work_on_snapshots(self) -> bool:
        """A slice of what there is to do about snapshots, at the end of a turn. True while there
        is more."""
        ended = self.clock() + limits.SLICE_SECONDS
        for _ in range(self.config.slice_steps):
            more = self.snapshots.step(self._SyncObj__raftLastApplied)
            if self.snapshots.installed_index:
                self._jump(self.snapshots.installed_index)
            if not more:
                return False
            if self.clock() >= ended:
                break
        return True

    def _jump(self, index: int) -> None:
        """A snapshot was installed: everything up to `index` is committed, and a little later
        applied. It never takes anything back (b22)."""
        self.snapshots.installed_index = 0
        self._SyncObj__raftCommitIndex = max(self._SyncObj__raftCommitIndex, index)
        if not self.snapshots.restoring:
            if index <= self._SyncObj__raftLastApplied:
                raise RaftStopped(
                    f"raft: snapshot {index} was installed behind {self._SyncObj__raftLastApplied}"
                )
            self._SyncObj__raftLastApplied = index
            self.submissions.jumped(index)
            leader = self._SyncObj__raftLeader
            meta = self.journal.snapshot
            if leader is not None and meta is not None:
                done = self.snapshots.done()
                self._answer_snapshot(leader, meta.index, meta.term, done)

    def _SyncObj__sendNextNodeIdx(
        self,
        node: PeerNode,
        reset: bool = False,
        nextNodeIdx: int | None = None,
        success: bool = False,
    ) -> None:
        """An answer that names its term (b20) and the round it answers (raft.md 3.8)."""
        if nextNodeIdx is None:
            nextNodeIdx = self.journal.last_index + 1
        self.held.send(node, self._answer(nextNodeIdx, reset=reset, success=success))

    def _answer(self, next_index: int, *, reset: bool, success: bool) -> Message:
        return {
            "type": "next_node_idx",
            "term": self._SyncObj__raftCurrentTerm,
            "round": self._round_in_hand,
            "next_node_idx": next_index,
            "reset": reset,
            "success": success,
            "counted": self.rejoin is None,
        }

    # --- leading ---

    def _SyncObj__onBecomeLeader(self) -> None:
        """A new leadership: nothing of an earlier one counts, and nothing is proven yet."""
        self.lease.begin()
        self.snapshots.not_needed()
        self.replicator.begin(self.lease.round)
        self._no_op_index = self.journal.last_index + 1
        self._counted_index = self._SyncObj__raftCommitIndex
        # Counted from here on: what this leader still has to get committed.
        self.log_bytes = self.journal.command_bytes(self._counted_index + 1, self._no_op_index - 1)
        SyncObj._SyncObj__onBecomeLeader(self)
        self.log_bytes += self.journal.size_at(self._no_op_index)
        if not self.nodes:
            # Alone, the tick that elects is also the tick that commits: be durable first (b18).
            self.journal.sync()

    # --- connections ---

    def _SyncObj__onNodeConnected(self, node: PeerNode) -> None:
        self.enter()
        SyncObj._SyncObj__onNodeConnected(self, node)
        self.held.forget(node)
        self.replicator.connected(node, self.lease.round)
        self._wake()

    def _SyncObj__onNodeDisconnected(self, node: PeerNode) -> None:
        self.enter()
        SyncObj._SyncObj__onNodeDisconnected(self, node)
        self.held.forget(node)
        self.replicator.disconnected(node)
        if node == self._SyncObj__raftLeader and self._SyncObj__raftState == FOLLOWER:
            self._miss_the_leader()
        self._wake()

    def _miss_the_leader(self) -> None:
        """Its connection ended, as with a killed process: no more patience than safety asks for.

        Nobody votes for a minimum timeout after hearing a leader, so nothing earlier is of use;
        one that lives is back, and heard, before that.
        """
        spread = limits.LEADER_GONE_SECONDS * (1 + self.rng.random())
        soonest = self._heard_at + self.config.min_timeout_seconds + spread
        self._SyncObj__raftElectionDeadline = min(self._SyncObj__raftElectionDeadline, soonest)

    # --- doors that stay shut ---

    def _applyCommand(
        self, command: bytes, callback: object, commandType: int | None = None
    ) -> NoReturn:
        """The library's queue: not ours, and the only way in for types 0, 2 and 3."""
        raise RaftStopped("raft: the library's own command queue was used")

    def _SyncObj__tryLogCompaction(self) -> None:
        """Snapshots are ours, and taken between turns."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> NoReturn:
        raise RaftStopped("raft: the library's dump was to be loaded")

    def _SyncObj__changeCluster(self, request: object) -> NoReturn:
        raise RaftStopped("raft: a membership change was to be made; membership is static")

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> NoReturn:
        raise RaftStopped("raft: a membership change was to be parsed; membership is static")


def command_of(parts: Sequence[Buffer]) -> bytes:
    """The type byte and the parts of one entry, in the one join that an entry costs."""
    return b"".join((COMMAND_BYTE, *parts))
