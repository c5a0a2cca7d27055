"""Elections: pre-votes, votes, the hand-over, and the silence of a member without its journal.

Owns every answer to a member that wants to lead, and when this member itself stands (raft.md 3.8).
The library counts the votes and keeps the timer; before it stands, a pre-vote asks whether the
election could be won, so that a node that was cut off does not depose a healthy leader with a
raised term when it comes back. Must not know how entries are appended, committed or applied: that
is for `commit.py`, which derives from this. The other rules that need no library are in
`transfer.py`, `lease.py` and `rejoin.py`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from node.raft import limits, rejoin
from node.raft.config import RaftCounters
from node.raft.durable_outbox import DurableOutbox
from node.raft.equality import Equality
from node.raft.lease import NEVER, Lease
from node.raft.membership import Membership
from node.raft.pysyncobj.library import CANDIDATE, FOLLOWER, LEADER, Library
from node.raft.replication import PeerProgress, Replication
from node.raft.room import Rooms
from node.raft.snapshots.manager import SnapshotManager
from node.raft.transfer import Transfer, best_target, find_target

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from node.peers.message import Message, PeerNode
    from node.raft.config import RaftConfig
    from node.raft.environment import RaftEnvironment
    from node.raft.rejoin import Rejoin


@dataclass(slots=True)
class PreVote:
    """The question of one node. `needed` counts the grants of others that make a majority."""

    needed: int
    number: int = 0
    asking: bool = False
    granted_by: set[str] = field(default_factory=set)

    def ask(self) -> int:
        """Open a new question and return its number; answers to older ones no longer count."""
        self.number += 1
        self.asking = True
        self.granted_by = set()
        return self.number

    def stop(self) -> None:
        """Give the question up: a leader was heard, or another node should stand."""
        self.asking = False

    def grant(self, voter: str, number: int) -> bool:
        """Count a grant once per voter. True when it completes a majority."""
        if not self.asking or number != self.number:
            return False
        self.granted_by.add(voter)
        if len(self.granted_by) < self.needed:
            return False
        self.asking = False
        return True


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Term and index of a log's last entry; the order is Raft's "more up to date"."""

    term: int
    index: int

    def reaches(self, other: LogEnd) -> bool:
        """Whether this log is at least as up to date as `other`."""
        return (self.term, self.index) >= (other.term, other.index)


def would_grant(
    candidate: LogEnd, own: LogEnd, *, asking: bool, candidate_name: str, own_name: str
) -> bool:
    """Whether to tell a node that it may stand.

    While asking itself, a node gives way only to a longer log, or to an equal one under the
    greater name: else two survivors would block each other for another timeout.
    """
    if not candidate.reaches(own):
        return False
    return not asking or candidate != own or candidate_name > own_name


logger = logging.getLogger(__name__)


class Elections(Library):
    """The part of a core that decides about leaders, and what it needs of the other parts."""

    # Class attributes, so that a test can put a stock behaviour back and see what it breaks.
    replication_class = Replication
    snapshots_class: type[SnapshotManager] = SnapshotManager
    rooms_class = Rooms
    equality_class = Equality

    def __init__(self, config: RaftConfig, environment: RaftEnvironment) -> None:
        journal, clock = environment.journal, environment.clock
        self.config = config
        self.clock = clock
        self.rng = environment.rng
        self.counters = RaftCounters()
        self.transfer: Transfer | None = None
        self._yields_until = NEVER
        """Until then this member lets the others stand first (raft.md 3.8)."""
        self.rejoin = rejoin.at_start(config, journal, environment.rng)
        """Progress of a member that lost its journal, or may have; None: it votes and counts."""
        self._voters: set[PeerNode] = set()
        self._voters_term = 0
        self.removed = False
        """Whether this journal is that of a removed member, for good."""
        membership = Membership(config.name, config.peers, votes=not config.joins)
        self.nodes = membership.peers
        """All other members."""
        # The library's constructor looks at every property, and `rebuilds` needs this.
        self.equality = self.equality_class(config.name, frozenset())
        super().__init__(membership, config, journal)
        self.lease = Lease(membership, config.lease_seconds)
        self.rooms = self.rooms_class()
        self.sync_began_at: float | None = None
        """When the sync of the log that runs off the event loop began; None while none does."""
        self._left_disk_at = NEVER
        self.prevote = PreVote(membership.peers_needed)
        self.outbox = DurableOutbox(environment.transport, journal.log, self.counters)
        self.send_through(self.outbox)
        self.replication = self._make_replication(environment)
        self.snapshots = self._make_snapshots(environment)
        self._heard_at = NEVER
        """When a leader was last heard; set at the end of a start, too."""
        self._missed: tuple[PeerNode, int] | None = None
        """The leader whose connection ended, and its term; None once a leader is heard."""
        self._early_at = NEVER
        """When this member last stood without waiting for a timeout."""
        self._promised: tuple[PeerNode, int] | None = None
        """The member that was granted a pre-vote last, and for which term."""
        self._put_off: tuple[PeerNode, Message, float] | None = None
        """The last question of a member that wants to stand which came too early to grant it."""
        self.role_cause = "it has started"
        """Why this node took on its role or term last, for people."""
        self._use_membership()

    def follow_members(self, voters: Collection[str], learners: Collection[str]) -> None:
        """Go by another configuration from now on: in votes, commits, the lease, and all else."""
        self.membership.follow(voters, learners)
        self.nodes = self.membership.peers
        self._use_membership()
        self.lease.follow()
        self.replication.follow(self.nodes)
        for node, progress in self.voters_progress().items():
            self.match_index[node] = progress.match_index if progress.counted else 0
            self.next_index[node] = progress.next_index
        if self.role != LEADER and not self.asked_to_stand:
            # It may have been alone, and about to stand without a question.
            soonest = self.clock() + self.config.min_timeout_seconds
            self.election_deadline = max(self.election_deadline, soonest)

    def _use_membership(self) -> None:
        membership = self.membership
        self.use_voters(membership.voters, self.clock())
        self.prevote.needed = membership.peers_needed
        names = {node.id for node in membership.voters}
        if membership.votes:
            names.add(self.config.name)
        self.equality.voters = frozenset(names)

    def voters_progress(self) -> dict[PeerNode, PeerProgress]:
        """The other voters as this leader knows them: one of them may lead next."""
        return {node: self.replication.peers[node] for node in self.membership.voters}

    def _make_replication(self, environment: RaftEnvironment) -> Replication:
        return self.replication_class(
            self.nodes,
            self.config,
            self.journal,
            environment.transport,  # Not the outbox: entries are never held.
            clock=self.clock,
            counters=self.counters,
            worker=environment.workers.reads,
            wake=environment.wake,
        )

    def _make_snapshots(self, environment: RaftEnvironment) -> SnapshotManager:
        return self.snapshots_class(
            self.config,
            self.journal,
            environment.source,
            self.counters,
            self.clock,
            environment.workers.snapshots,
            environment.wake,
        )

    def election_timeout(self) -> float:
        """Draw a random election timeout, in seconds: as the library does, but for each frame of a
        leader, and so without its detours."""
        config = self.config
        spread = config.max_timeout_seconds - config.min_timeout_seconds
        drawn = config.min_timeout_seconds + spread * self.rng.random()
        if self._yields_until != NEVER and self.yield_seconds():
            drawn += limits.YIELD_TIMEOUTS * config.max_timeout_seconds
        return drawn

    def log_end(self) -> LogEnd:
        """Where this log ends."""
        return LogEnd(self.log.last_term, self.log.last_index)

    def peer_connected(self, node: PeerNode) -> bool:
        """Whether there is a connection to `node` now."""
        return node in self.connected_peers

    def _step_down(self, node: PeerNode, term: int) -> None:
        self.role_cause = f"{node.id} is in term {term}"
        self.set_term(term, None)
        self.set_role(FOLLOWER)
        self.leader = None

    # --- elections ---

    @property
    def rebuilds(self) -> bool:
        """Whether this member's state is wrong and waits to be replaced: it applies nothing. A
        leader has to apply what it commits until it has handed over."""
        return bool(self.equality.own_differs_index) and self.role != LEADER

    def sticky(self) -> bool:
        """Whether this node still owes its leader, or its own lease, not to change sides."""
        now = self.clock()
        if self.role == LEADER:
            return self.lease.until(now) > now
        if self.misses_leader():
            return False
        return bool(self.nodes) and now < self._heard_at + self.config.min_timeout_seconds

    def misses_leader(self) -> bool:
        """Whether the connection to the leader of this term ended and it was not heard since."""
        return self._missed is not None and self._missed == (self.leader, self.term)

    def miss_leader(self, leader: PeerNode) -> None:
        """Its connection ended, as with a killed process: stand at once, once in a while.

        Any member that still hears the leader refuses. Where leaders are lost again and again, a
        member waits for its minimum timeout, in which a leader that lives is back and heard.
        """
        now = self.clock()
        self._missed = leader, self.term
        if self.yield_seconds():
            soonest = self.election_deadline
        elif now >= self._early_at + limits.EARLY_REST_SECONDS:
            self._early_at = soonest = now
        else:
            spread = limits.LEADER_GONE_SECONDS * (1 + self.rng.random())
            soonest = self._heard_at + self.config.min_timeout_seconds + spread
        self.election_deadline = min(self.election_deadline, soonest)
        put_off, self._put_off = self._put_off, None
        if put_off is not None and now < put_off[2] + limits.EARLY_RETRY_SECONDS:
            self.on_pre_vote(put_off[0], put_off[1])

    def on_request_vote(self, node: PeerNode, message: Message) -> bool:
        """A vote for the library to give, unless a leader was heard just now (raft.md 3.8).

        A leader that asked another node to stand holds no lease in its term, so its followers owe
        it nothing; a leader goes by its own lease alone. A granted pre-vote is kept though a leader
        was heard since: its asker has raised the term by now.
        """
        if self.rejoin is not None:
            return False
        asked = message["transfer"] and self.role != LEADER
        promised = self._promised == (node, message["term"])
        if self.sticky() and not asked and not promised:
            self.counters.votes_refused_sticky_total += 1
            return False
        if message["term"] > self.term:
            self.role_cause = f"{node.id} stands for election"
        self.stock_receive(node, message)
        return True

    def on_response_vote(self, node: PeerNode, message: Message) -> bool:
        """The vote of a voter, counted once in a term (b28)."""
        term = self.term
        if self.role != CANDIDATE or message["term"] != term or node not in self.match_index:
            return False
        if self._voters_term != term:
            self._voters, self._voters_term = set(), term
        if node in self._voters:
            return False
        self._voters.add(node)
        self.stock_receive(node, message)
        return True

    def prepare_election(self) -> None:
        """Before a tick: where the library would stand for election, ask the others first."""
        if self.role == LEADER:
            return
        if self.rejoin is not None:
            self._advance_rejoin(self.rejoin)
            return
        if self.membership.alone:
            return
        now = self.clock()
        if self.removed or not self.membership.votes:
            # A learner, or a member that was removed.
            self.election_deadline = now + self.config.max_timeout_seconds
            return
        if self.equality.own_differs_index:
            # Its log is sound, so it votes and counts; its state is not, so it does not lead.
            self.election_deadline = now + self.config.max_timeout_seconds
            return
        if self.snapshots.busy or not self.log.term_synced:
            # It could lead, but not act, before it has the state that its log begins with; and
            # while its disk takes down what it stood for or voted for, the answers are to come.
            soon = now + self.config.min_timeout_seconds
            self.election_deadline = max(self.election_deadline, soon)
            return
        if not self.connected_peers:
            # An agreement is worth nothing any more once everyone is gone.
            self.asked_to_stand = False
            self.election_deadline = max(self.election_deadline, now)
            return
        if self.asked_to_stand:
            self.role_cause = "the leader handed over to it"
            self.election_deadline = NEVER
        if self.election_deadline > now:
            return
        if self.election_deadline == NEVER:
            return  # The others agreed, or the leader asked for it: this tick stands.
        early = self.misses_leader() and now < self._early_at + self.config.min_timeout_seconds
        self.role_cause = self._why_stand(now)
        self.election_deadline = now + self._pre_vote_pause(early=early)
        # The same question again where answers to it may be on their way.
        number = self.prevote.number if early and self.prevote.asking else self.prevote.ask()
        self.counters.pre_votes_asked_total += 1
        end = self.log_end()
        for node in self.membership.voters:
            self.outbox.send(
                node,
                {
                    "type": "pre_vote",
                    "term": self.term + 1,
                    "number": number,
                    "last_log_index": end.index,
                    "last_log_term": end.term,
                },
            )

    def _why_stand(self, now: float) -> str:
        if self.leader is None or self._heard_at == NEVER:
            return "it knows of no leader"
        if self.misses_leader():
            return f"its connection to the leader {self.leader.id} ended"
        return f"the leader {self.leader.id} was silent for {now - self._heard_at:.2f} s"

    def _pre_vote_pause(self, *, early: bool) -> float:
        """Until the question is asked again: soon, where the others are about to notice too that
        the connections of the leader have ended."""
        spread = self.rng.random()
        if early:
            return limits.EARLY_RETRY_SECONDS * (1 + spread / 2)
        pause = self.config.min_timeout_seconds * limits.PRE_VOTE_RETRY_FRACTION
        return pause * (1 + spread)

    def on_pre_vote(self, node: PeerNode, message: Message) -> bool:
        """Answer a peer that asks whether it may stand; adopt nothing, and promise it a vote."""
        if self.sticky():
            self._put_off = node, message, self.clock()
            return False
        if self.rejoin is not None or not self.log.term_synced:
            # That includes a member that has voted just now and waits for its disk: were its next
            # agreement faster than its vote, each election would overtake the one before.
            return False
        term = self.term
        granted = message["term"] > term and would_grant(
            LogEnd(message["last_log_term"], message["last_log_index"]),
            self.log_end(),
            asking=self.prevote.asking,
            candidate_name=node.id,
            own_name=self.config.name,
        )
        if granted:
            self.prevote.stop()
            self._promised = node, message["term"]
            self.election_deadline = max(
                self.election_deadline, self.clock() + limits.PRE_VOTE_YIELD_SECONDS
            )
        elif message["term"] > term:
            return False
        # A refusal for its term tells the asker ours: else a node with the longest log and an
        # old term could neither win nor let another node win.
        self.outbox.send(
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
        if message["term"] > self.term:
            self.prevote.stop()
            self._step_down(node, message["term"])
            return True
        if not message["granted"] or self.role == LEADER or node not in self.match_index:
            return False
        if not self.prevote.grant(node.id, message["number"]):
            return False
        self.election_deadline = NEVER
        self.counters.elections_total += 1
        return True

    # --- without a journal ---

    def on_term_ask(self, node: PeerNode, message: Message) -> bool:
        """A member that lost its journal asks for our term, and then for a leader of a later one:
        who leads hands over, so that the later term comes without waiting for a failure."""
        self.outbox.send(
            node,
            {
                "type": "term_report",
                "number": message["number"],
                "term": self.term,
                "recovering": self.rejoin is not None,
            },
        )
        if message["above"] < self.term or self.transfer is not None:
            return False
        if self.role != LEADER:
            return False
        target = best_target(self.voters_progress(), self.log.last_index)
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
        self.election_deadline = now + self.config.max_timeout_seconds
        leads = self._leads()
        for node in self.nodes:
            if self.peer_connected(node) and rejoin.asks(node.id, leads, now):
                self.outbox.send(node, rejoin.question())
        if self.caught_up(rejoin) and not self.notes_pending:
            self.journal.end_recovery()
            self.rejoin = None
            self.recovered()
        rejoin.tell(leads, ended=self.rejoin is None)

    @property
    def notes_pending(self) -> bool:
        """Whether what is known of the others is on its way to the disk."""
        return False

    def recovered(self) -> None:
        """This member has its voice back."""

    def _leads(self) -> tuple[str, int] | None:
        leader = self.leader
        return None if leader is None else (leader.id, self.term)

    def waits_for(self) -> str | None:
        """Describe what a member that lost its journal waits for; None: it votes and counts."""
        return None if self.rejoin is None else self.rejoin.waits_for(self._leads())

    def caught_up(self, rejoin: Rejoin) -> bool:
        """Whether this disk holds, committed, an entry of a leader that was elected without this
        member, later than everything it has forgotten: then it holds all that came before too.

        The proof is in docs/raft.md, "A member that lost its journal"; each condition is one step.
        """
        # Without every report, a forgotten vote or acknowledgement may be of a higher term. While
        # a snapshot is installed, the log does not yet stand for what the commit index claims.
        if rejoin.floor is None or self.snapshots.busy:
            return False
        # Committed, for the leader's own log may still be cut; synced, for a power cut must not
        # take back what the end of the recovery stands on.
        index = min(self.commit_index, self.log.synced_index)
        # An entry of the leader's own term, not only its word: a new leader's commit index may
        # lag behind what is committed, but its first own entry lies behind all of that.
        return self.log.term_at(index) > rejoin.floor

    # --- transfer ---

    def on_timeout_now(self, node: PeerNode, message: Message) -> bool:
        """The leader wants this node to lead: the next tick stands, whatever is heard till then."""
        term = self.term
        if (
            message["term"] != term
            or node != self.leader
            or self.role != FOLLOWER
            or self.rejoin is not None
            or self.equality.own_differs_index
        ):
            return False
        self.prevote.stop()
        self.outbox.transfer_term = term + 1
        self.asked_to_stand = True
        self.counters.elections_total += 1
        return True

    def yield_seconds(self) -> float:
        """For how long this member still lets the others stand first, because an operator had it
        hand over. It votes and counts as ever; to be handed the leadership, or a restart, ends it.
        """
        return max(0.0, self._yields_until - self.clock())

    def begin_transfer(
        self, name: str, failed: Callable[[str], None], *, yields: bool = False
    ) -> None:
        """Hand leadership to the member `name`, in turns to come. Raises `TransferRefused`."""
        target = find_target(
            name,
            own_name=self.config.name,
            peers=self.voters_progress(),
            last_index=self.log.last_index,
        )
        deadline = self.clock() + self.config.max_timeout_seconds
        self.transfer = Transfer(target, self.term, deadline, failed, yields)

    def leave_hanging_disk(self) -> None:
        """Hand over where this leader's disk has hung for longer than an election takes, to a
        member whose syncs return. Not again for a while: it serves as it is until then."""
        began_at = self.sync_began_at
        if began_at is None or self.role != LEADER or self.transfer is not None:
            return
        now = self.clock()
        if now - began_at < self.config.max_timeout_seconds:
            return
        if now < self._left_disk_at + limits.HANG_REST_SECONDS:
            return
        target = best_target(self._quick_peers(now), self.log.last_index)
        if target is None:
            return
        self._left_disk_at = now
        logger.warning("event=transfer target=%s reason=the disk of this leader hangs", target)
        self.begin_transfer(target, lambda why: logger.info("event=transfer_failed reason=%s", why))

    def _quick_peers(self, now: float) -> dict[PeerNode, PeerProgress]:
        """The members that have reported of late that their syncs return in time."""
        bound_ms = 1000 * self.config.min_timeout_seconds
        found = {}
        for node, progress in self.voters_progress().items():
            room = self.rooms.of(node, now, counted=progress.counted)
            if room is not None and room.sync_ms < bound_ms:
                found[node] = progress
        return found

    def advance_transfer(self) -> None:
        """The next step of a transfer, after replication, if it is due."""
        transfer = self.transfer
        if transfer is None:
            return
        leads = self.role == LEADER
        now = self.clock()
        if not leads or transfer.term != self.term:
            self.transfer = None
            if transfer.yields and transfer.sent:
                self._yields_until = now + limits.YIELD_SECONDS
                self.election_deadline = now + self.election_timeout()
            return
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
            self.outbox.send(transfer.target, {"type": "timeout_now", "term": transfer.term})
        elif now >= transfer.deadline:
            self.transfer = None
            behind = self.log.last_index - self.match_index[transfer.target]
            transfer.failed(
                f"{transfer.target.id} did not catch up in time, {behind} entries are missing"
            )

    def _drained(self, transfer: Transfer) -> bool:
        """Whether everything here is committed, applied, and on the target's disk."""
        last = self.log.last_index
        return last == self.last_applied == self.match_index[transfer.target]

    def _retire(self) -> None:
        """The target did not stand, or was not elected: lead no longer, for without a lease."""
        self.transfer = None
        self.role_cause = "it handed over, and the other was not elected"
        self.set_role(FOLLOWER)
        self.leader = None
        self.election_deadline = self.clock() + self.election_timeout()
