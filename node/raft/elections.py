"""Who may lead: votes, pre-votes, the hand-over, and the silence of a member that lost its journal.

Owns every answer to somebody who wants to lead, and when this node itself stands (raft.md 3.8).
The library counts the votes and keeps the timer; its names appear here mangled, as in
`syncobj.py`, which derives from this and owns log, commits and apply. The rules that need no
library are in `prevote.py`, `transfer.py`, `lease.py` and `rejoin.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pysyncobj.syncobj import _RAFT_STATE, SyncObj

from node.raft import limits
from node.raft.lease import NEVER
from node.raft.prevote import LogEnd, would_grant
from node.raft.transfer import Transfer, best_target, find_target

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from node.journal.journal import Journal
    from node.peers.message import Message
    from node.peers.peer import PeerNode
    from node.raft.config import RaftConfig, RaftCounters
    from node.raft.durable_outbox import HeldFrames
    from node.raft.lease import Lease
    from node.raft.prevote import PreVote
    from node.raft.rejoin import Rejoin
    from node.raft.replication import Replicator
    from node.raft.snapshots.manager import Snapshotting

logger = logging.getLogger(__name__)

FOLLOWER: int = _RAFT_STATE.FOLLOWER
CANDIDATE: int = _RAFT_STATE.CANDIDATE
LEADER: int = _RAFT_STATE.LEADER


class Elections(SyncObj):  # type: ignore[misc]  # pysyncobj ships no types
    """The part of a core that decides about leaders. `Core.__init__` sets what is declared here."""

    _SyncObj__raftState: int
    _SyncObj__raftCurrentTerm: int
    _SyncObj__raftCommitIndex: int
    _SyncObj__raftLastApplied: int
    _SyncObj__raftLeader: PeerNode | None
    _SyncObj__raftElectionDeadline: float
    _SyncObj__raftMatchIndex: dict[PeerNode, int]
    _SyncObj__connectedNodes: set[PeerNode]
    _SyncObj__transferInProgress: bool

    config: RaftConfig
    journal: Journal
    clock: Callable[[], float]
    rng: random.Random
    counters: RaftCounters
    nodes: list[PeerNode]
    lease: Lease
    prevote: PreVote
    held: HeldFrames
    replicator: Replicator
    snapshots: Snapshotting
    transfer: Transfer | None
    rejoin: Rejoin | None
    """How far a member that lost its journal is on its way back; None: it has its voice."""
    _heard_at: float
    _voters: set[PeerNode]
    _voters_term: int

    def log_end(self) -> LogEnd:
        """Where this log ends."""
        return LogEnd(self.journal.last_term, self.journal.last_index)

    def peer_connected(self, node: PeerNode) -> bool:
        """Whether there is a connection to `node` now."""
        return node in self._SyncObj__connectedNodes

    def _stock_message(self, node: PeerNode, message: Message) -> None:
        SyncObj._SyncObj__onMessageReceived(self, node, message)

    def _step_down(self, term: int) -> None:
        self._SyncObj__setCurrentTerm(term, None)
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None

    # --- elections ---

    def sticky(self) -> bool:
        """Whether this node still owes its leader, or its own lease, not to change sides."""
        now = self.clock()
        if self._SyncObj__raftState == LEADER:
            return self.lease.until(now) > now
        return bool(self.nodes) and now < self._heard_at + self.config.min_timeout_seconds

    def on_request_vote(self, node: PeerNode, message: Message) -> bool:
        """A vote for the library to give, unless a leader was heard just now (raft.md 3.8).

        A leader that asked another node to stand holds no lease in its term, so its followers owe
        it nothing; a leader goes by its own lease alone.
        """
        if self.rejoin is not None:
            return False
        asked = message["transfer"] and self._SyncObj__raftState != LEADER
        if self.sticky() and not asked:
            self.counters.votes_refused_sticky_total += 1
            return False
        self._stock_message(node, message)
        return True

    def on_response_vote(self, node: PeerNode, message: Message) -> bool:
        """A vote, counted once per voter and term (b28)."""
        term = self._SyncObj__raftCurrentTerm
        if self._SyncObj__raftState != CANDIDATE or message["term"] != term:
            return False
        if self._voters_term != term:
            self._voters, self._voters_term = set(), term
        if node in self._voters:
            return False
        self._voters.add(node)
        self._stock_message(node, message)
        return True

    def prepare_election(self) -> None:
        """Before a tick: where the library would stand for election, ask the others first."""
        if self._SyncObj__raftState == LEADER or not self.nodes:
            return
        if self.rejoin is not None:
            self._advance_rejoin(self.rejoin)
            return
        now = self.clock()
        if self.snapshots.busy or not self.journal.term_synced:
            # It could lead, but not act, before it has the state that its log begins with; and
            # while its disk takes down what it stood for or voted for, the answers are to come.
            soon = now + self.config.min_timeout_seconds
            self._SyncObj__raftElectionDeadline = max(self._SyncObj__raftElectionDeadline, soon)
            return
        if not self._SyncObj__connectedNodes:
            # An agreement is worth nothing any more once everyone is gone.
            self._SyncObj__transferInProgress = False
            self._SyncObj__raftElectionDeadline = max(self._SyncObj__raftElectionDeadline, now)
            return
        if self._SyncObj__transferInProgress:
            self._SyncObj__raftElectionDeadline = NEVER
        if self._SyncObj__raftElectionDeadline >= now:
            return
        if self._SyncObj__raftElectionDeadline == NEVER:
            return  # The others agreed, or the leader asked for it: this tick stands.
        pause = self.config.min_timeout_seconds * limits.PRE_VOTE_RETRY_FRACTION
        self._SyncObj__raftElectionDeadline = now + pause * (1 + self.rng.random())
        number = self.prevote.ask()
        self.counters.pre_votes_asked_total += 1
        end = self.log_end()
        for node in self.nodes:
            self.held.send(
                node,
                {
                    "type": "pre_vote",
                    "term": self._SyncObj__raftCurrentTerm + 1,
                    "number": number,
                    "last_log_index": end.index,
                    "last_log_term": end.term,
                },
            )

    def on_pre_vote(self, node: PeerNode, message: Message) -> bool:
        """Somebody asks whether it may stand. Nothing is adopted and nothing promised."""
        if self.sticky() or self.rejoin is not None or not self.journal.term_synced:
            # Also who has voted just now, and whose disk takes its time: were its next agreement
            # faster than its vote, an election would overtake the other for ever.
            return False
        term = self._SyncObj__raftCurrentTerm
        granted = message["term"] > term and would_grant(
            LogEnd(message["last_log_term"], message["last_log_index"]),
            self.log_end(),
            asking=self.prevote.asking,
            candidate_name=node.id,
            own_name=self.config.name,
        )
        if granted:
            self.prevote.stop()
            self._SyncObj__raftElectionDeadline = max(
                self._SyncObj__raftElectionDeadline, self.clock() + limits.PRE_VOTE_YIELD_SECONDS
            )
        elif message["term"] > term:
            return False
        # A refusal for its term tells the asker ours: else a node with the longest log and an
        # old term could neither win nor let anybody else win.
        self.held.send(
            node,
            {
                "type": "pre_vote_answer",
                "term": term,
                "number": message["number"],
                "granted": granted,
            },
        )
        return False

    def on_pre_vote_answer(self, node: PeerNode, message: Message) -> bool:
        """An answer to our question; with a majority the next tick stands for election."""
        if message["term"] > self._SyncObj__raftCurrentTerm:
            self.prevote.stop()
            self._step_down(message["term"])
            return True
        if not message["granted"] or self._SyncObj__raftState == LEADER:
            return False
        if not self.prevote.grant(node.id, message["number"]):
            return False
        self._SyncObj__raftElectionDeadline = NEVER
        self.counters.elections_total += 1
        return True

    # --- without a journal ---

    def on_term_ask(self, node: PeerNode, message: Message) -> bool:
        """A member that lost its journal asks for our term, and then for a leader of a later one:
        who leads hands over, so that the later term comes without waiting for a failure."""
        self.held.send(
            node,
            {
                "type": "term_report",
                "number": message["number"],
                "term": self._SyncObj__raftCurrentTerm,
                "recovering": self.rejoin is not None,
            },
        )
        if message["above"] < self._SyncObj__raftCurrentTerm or self.transfer is not None:
            return False
        if self._SyncObj__raftState != LEADER:
            return False
        target = best_target(self.replicator.peers, self.journal.last_index)
        if target is None:
            return False  # It asks again.
        logger.info("event=transfer target=%s reason=%s recovers", target, node.id)
        self.begin_transfer(target, lambda why: logger.info("event=transfer_failed reason=%s", why))
        return True

    def on_term_report(self, node: PeerNode, message: Message) -> bool:
        """An answer to our question for terms. True when it was the last one that was missing."""
        return self.rejoin is not None and self.rejoin.reported(node.id, message)

    def _advance_rejoin(self, rejoin: Rejoin) -> None:
        """Once a turn, while this member has no voice: ask, and look whether it has it back."""
        now = self.clock()
        self._SyncObj__raftElectionDeadline = now + self.config.max_timeout_seconds
        leads = self._leads()
        for node in self.nodes:
            if self.peer_connected(node) and rejoin.asks(node.id, leads, now):
                self.held.send(node, rejoin.question())
        if self.caught_up(rejoin):
            self.journal.end_recovery()
            self.rejoin = None
        rejoin.tell(leads, ended=self.rejoin is None)

    def _leads(self) -> tuple[str, int] | None:
        leader = self._SyncObj__raftLeader
        return None if leader is None else (leader.id, self._SyncObj__raftCurrentTerm)

    def waits_for(self) -> str | None:
        """What a member that lost its journal waits for, in words; None: it has its voice."""
        return None if self.rejoin is None else self.rejoin.waits_for(self._leads())

    def caught_up(self, rejoin: Rejoin) -> bool:
        """Whether this disk holds, committed, an entry of a leader that was elected without this
        member, later than everything it has forgotten: then it holds all that came before too."""
        if rejoin.floor is None or self.snapshots.busy:
            return False
        index = min(self._SyncObj__raftCommitIndex, self.journal.synced_index)
        return self.journal.term_at(index) > rejoin.floor

    # --- transfer ---

    def on_timeout_now(self, node: PeerNode, message: Message) -> bool:
        """The leader wants this node to lead: the next tick stands, whatever is heard till then."""
        term = self._SyncObj__raftCurrentTerm
        if (
            message["term"] != term
            or node != self._SyncObj__raftLeader
            or self._SyncObj__raftState != FOLLOWER
            or self.rejoin is not None
        ):
            return False
        self.prevote.stop()
        self.held.transfer_term = term + 1
        self._SyncObj__transferInProgress = True
        self.counters.elections_total += 1
        return True

    def begin_transfer(self, name: str, failed: Callable[[str], None]) -> None:
        """Hand leadership to the member `name`, in turns to come. Raises `TransferRefused`."""
        target = find_target(
            name,
            own_name=self.config.name,
            peers=self.replicator.peers,
            last_index=self.journal.last_index,
        )
        deadline = self.clock() + self.config.max_timeout_seconds
        self.transfer = Transfer(target, self._SyncObj__raftCurrentTerm, deadline, failed)

    def advance_transfer(self) -> None:
        """The next step of a transfer, after replication, if it is due."""
        transfer = self.transfer
        if transfer is None:
            return
        leads = self._SyncObj__raftState == LEADER
        if not leads or transfer.term != self._SyncObj__raftCurrentTerm:
            self.transfer = None
            return
        now = self.clock()
        if transfer.sent:
            if now >= transfer.deadline:
                self._retire()
        elif not self.peer_connected(transfer.target):
            self.transfer = None
            transfer.failed(f"the connection to {transfer.target.id} ended")
        elif self._drained(transfer):
            self.lease.give_up()
            transfer.sent = True
            transfer.deadline = now + self.config.max_timeout_seconds
            self.held.send(transfer.target, {"type": "timeout_now", "term": transfer.term})
        elif now >= transfer.deadline:
            self.transfer = None
            behind = self.journal.last_index - self._SyncObj__raftMatchIndex[transfer.target]
            transfer.failed(
                f"{transfer.target.id} did not catch up in time, {behind} entries are missing"
            )

    def _drained(self, transfer: Transfer) -> bool:
        """Whether everything here is committed, applied, and on the target's disk."""
        last = self.journal.last_index
        return (
            last == self._SyncObj__raftLastApplied == self._SyncObj__raftMatchIndex[transfer.target]
        )

    def _retire(self) -> None:
        """The target did not stand, or was not elected: lead no longer, for without a lease."""
        self.transfer = None
        self._SyncObj__setState(FOLLOWER)
        self._SyncObj__raftLeader = None
        self._SyncObj__raftElectionDeadline = self.clock() + self._SyncObj__generateRaftTimeout()
