"""The core of a member: its start, its messages and its connections, on a boxed PySyncObj.

Owns the dispatch of messages and what each of them changes; `elections.py` and `commit.py`, which
it derives from, own their part, and `pysyncobj/library.py` every name of the library. The ids b01..
are the hazards of the stock library, listed in docs/raft.md. Must not know queues, files or
sockets, nor when it runs: `node.py` owns the order of a turn.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter, methodcaller
from typing import TYPE_CHECKING, Final

from node.peers.message import COMMAND_BYTE, CONFIGURATION_BYTE, Message, MessageRefused
from node.raft import limits
from node.raft.append_entries import accept, check
from node.raft.changing import Changing
from node.raft.errors import RaftError, RaftStopped, describe
from node.raft.lease import NEVER
from node.raft.pysyncobj import seams
from node.raft.pysyncobj.library import CANDIDATE, FOLLOWER, LEADER
from node.raft.repairs import Repairs
from node.raft.room import room_in
from node.raft.scrubbing import Scrubbing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from node.peers.message import PeerNode
    from node.raft.config import RaftConfig
    from node.raft.environment import RaftEnvironment
    from node.raft.replication import PeerProgress
    from node.raft.room import Room

_COMMAND: Final = itemgetter(0)
_SAYS_MEMBERS: Final = methodcaller("startswith", CONFIGURATION_BYTE)
"""Whether a command is a configuration: asked of each one, without a call of Python's."""

__all__ = ["CANDIDATE", "FOLLOWER", "LEADER", "Core", "command_of"]


class Core(Changing):
    """A member with our log, our append rules, our apply loop and our idea of an election."""

    accept_rules = staticmethod(accept)  # Class attributes, as those of `Elections`.
    repairs_class = Repairs
    scrubbing_class = Scrubbing

    def __init__(self, config: RaftConfig, environment: RaftEnvironment) -> None:
        seams.run_as(environment.clock, environment.rng)
        self.failure: RaftStopped | None = None
        self._wake = environment.wake
        self._round_in_hand = 0
        self.notes: dict[str, tuple[bytes, float]] = {}
        """The newest note of each member's owner in this leadership, and when it came."""
        self._proof_wanted_at: float | None = None
        """When the owner last asked whether this node leads; None once that is proven."""
        super().__init__(config, environment)
        self._adopt_journal()
        self._adopt_snapshot()
        self.adopt_configurations()
        self._heard_at = self.clock()  # A restarted node does not vote for a while (raft.md 3.8).
        if self.membership.alone:
            self.election_deadline = NEVER  # Alone: stand at once, there is no other to win.
        journal, workers = environment.journal, environment.workers
        self.scrubbing = self.scrubbing_class(
            config, journal, self.clock, workers.reads, environment.wake
        )
        self.repairs = self.repairs_class(
            journal,
            self.clock,
            workers,
            environment.wake,
            send=self.outbox.send_at_once,
            fail=self.fail,
        )
        self.repairs.others_need = lambda: (
            self.role == LEADER and self.replication.unsendable_index > 0
        )
        self.repairs.on_lost = self._on_lost
        self._handlers = self._handlers_by_type()
        environment.transport.attach(self)

    def _handlers_by_type(self) -> dict[str, Callable[[PeerNode, Message], bool]]:
        return {
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
            "journal": self.on_journal,
            "verdict": self.on_verdict,
            "room": self.on_room,
            "note": self.on_note,
            "synced": self.on_synced,
            "entry_wanted": self.repairs.on_entry_wanted,
            "entry_found": self.repairs.on_entry_found,
            "mark": self.on_mark,
            "differs": self.on_differs,
            "state_wanted": self.on_state_wanted,
            "skipped": self.on_skipped,
            "doubted": self.on_doubted,
            "rechecked": self.on_rechecked,
        }

    # --- start ---

    def _adopt_journal(self) -> None:
        """Start from what the journal holds."""
        log = self.log
        if len(log) == 0:
            log.add(b"\x01", 1, 0)
            log.sync()
        if log.first_index != 1 and self.journal.snapshot is None:
            raise RaftStopped(
                f"raft: the log begins at entry {log.first_index}, and there is no snapshot of "
                "what came before; restore the missing files, or start with --recover"
            )
        term = log.term
        if log.last_term > term:
            raise RaftStopped(
                f"raft: the log ends in term {log.last_term}, above the stored term {term}"
            )
        self.term = term
        self.voted_for = log.voted_for
        # The stored commit index is a hint that may run ahead of what survived (b23).
        commit_index = max(1, min(log.commit_hint(), log.last_index))
        self.commit_index = commit_index
        self.last_applied = 1

    def _adopt_snapshot(self) -> None:
        """Start from the newest snapshot, if there is one: the log's tail is applied after it."""
        index = self.snapshots.restore_newest()
        if index:
            self.last_applied = index
            self.commit_index = max(self.commit_index, index)
            self.skipping.applied_from = index
        self.look_at_note(index)

    # --- what others may read ---

    def enter(self) -> None:
        """Every way into this node calls this first, or sees that this node was the last to do so:
        the library's clock is now this node's."""
        running = seams.running
        running.of, running.clock, running.rng = self, self.clock, self.rng

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
        if self.role != LEADER or self.equality.own_differs_index:
            return 0.0
        return self.lease.until(self.clock())

    def led_at(self) -> float:
        """The newest instant on this node's clock at which it certainly led, and answers from
        its memory may be given."""
        if self.role != LEADER or self.equality.own_differs_index:
            return NEVER
        return self.lease.led_at(self.clock())

    def ask_round(self) -> None:
        """Send a round in a turn at once; turns follow as it is answered."""
        self._proof_wanted_at = self.clock()
        self.next_heartbeat_at = NEVER
        self._wake()

    def _look_for_proof(self, wanted_at: float) -> None:
        """An answer to a round has come: what was asked last may be proven."""
        if self.led_at() >= wanted_at:
            self._proof_wanted_at = None

    # --- messages ---

    def receive(self, node: PeerNode, message: Message) -> None:
        """Take one message of an authenticated peer, between turns. Raises `MessageRefused` only,
        for the transport: a broken invariant stops the node in its next turn."""
        if self.failure is not None:
            return
        if seams.running.of is not self:
            self.enter()
        handler = self._handlers.get(message["type"])
        try:
            if handler is None:
                raise MessageRefused(f"no node accepts a message of type {message['type']}")
            if self._standings:
                counts = self.admitted(node, message)
                if counts is None:
                    return
                message = counts
            if handler(node, message):
                self.ask_turn()
        except MessageRefused:
            self.counters.messages_refused_total += 1
            raise
        except Exception as error:
            self.fail(error)
            self._wake()

    def ask_turn(self) -> None:
        """Ask for a turn, in which there is something to tick for."""
        self.news = True
        self._wake()

    def on_append_entries(self, node: PeerNode, message: Message) -> bool:
        """Entries or a heartbeat. True when the log, the commit index or the leader changed."""
        check(message)
        term = message["term"]
        self._round_in_hand = message["round"]
        if term < self.term:
            # Silence would let a deposed leader believe in itself (b12).
            self.acknowledge(node, next_index=1)
            return False
        news = self._follow(node, term)
        self.leader_commit_index = message["commit_index"]
        if self.full_of_unsynced:
            self._take_nothing(node)
        else:
            news |= self._take_entries(node, message)
        if self.rooms.due(node, self._heard_at, self.log.gathered_end):
            self._tell_room(node)
        equality = self.equality
        if equality.own_differs_index or equality.unsent_to(node.id, self.term):
            self.tell_marks(node)
        return news or self.log.dirty

    def _take_entries(self, node: PeerNode, message: Message) -> bool:
        """Bring the log in line with a frame and answer it. True when the commit index moved."""
        verdict = self.accept_rules(self.log, message, self.commit_index, self.last_applied)
        self.counters.truncations_total += verdict.truncated
        if verdict.added:
            added = message["entries"][-verdict.added :]
            if verdict.truncated or any(map(_SAYS_MEMBERS, map(_COMMAND, added))):
                self.note_entries(added, truncated=verdict.truncated)
        rebuilds = self.equality.own_differs_index
        if verdict.success and not self.snapshots.rests_below and not rebuilds:
            self.snapshots.not_needed()
        moved = verdict.commit_index > self.commit_index
        if moved:
            self.commit_index = verdict.commit_index
            self.log.note_commit(verdict.commit_index)
        if verdict.success and not message["entries"] and self.answers_at_once():
            self._acknowledge_at_once(node, verdict.next_index)
        else:
            self.acknowledge(
                node,
                reset=not verdict.success,
                next_index=verdict.next_index,
                success=verdict.success,
            )
        return moved

    def _take_nothing(self, node: PeerNode) -> None:
        """Leave a frame out, for as many bytes wait for the disk as may, and answer it like a
        heartbeat: this node lives, and what is committed and durable here agrees with every leader.

        Not with a refusal: that would wait for the disk, and the same entries would come again.
        The leader's window stays full instead; the first frame that finds room shows the gap.
        """
        agreed = min(self.commit_index, self.log.synced_index) + 1
        if self.answers_at_once():
            self._acknowledge_at_once(node, agreed)
        else:
            self.acknowledge(node, next_index=agreed, success=True)

    def _acknowledge_at_once(self, node: PeerNode, next_index: int) -> None:
        """Answer by what is durable: a slow disk must not look like a dead node."""
        durable = min(next_index, self.log.synced_index + 1)
        self.outbox.send_at_once(node, self._answer(durable, reset=False, success=True))

    def _tell_room(self, leader: PeerNode) -> None:
        """Report what this node has left, behind an acknowledgement. No disk is waited for: that
        it hangs is part of the report."""
        message = {"type": "room", "term": self.term, **self.own_room().frame}
        self.outbox.send_at_once(leader, message)

    def own_room(self) -> Room:
        """Measure what this node has left."""
        under_way = 0.0 if self.sync_began_at is None else self.clock() - self.sync_began_at
        log = self.log
        self.rooms.measured(log.gathered_end)
        # What waits for the disk has its room there already.
        free_bytes = self.journal.room_bytes - self.unsynced_bytes
        return self.rooms.own(free_bytes, max(log.recent_sync_seconds, under_way))

    def room_of(self, node: PeerNode, progress: PeerProgress, now: float) -> Room | None:
        """The room of a member by its report, where that counts. What it lacks of this leader's
        log comes to its disk whatever is refused from now on, so that room is not free."""
        room = self.rooms.of(node, now, counted=progress.counted)
        if room is None:
            return None
        lacks_bytes = self.log.span_bytes(progress.match_index + 1, self.log.last_index)
        return replace(room, free_bytes=max(0, room.free_bytes - lacks_bytes))

    def on_room(self, node: PeerNode, message: Message) -> bool:
        """A member reports to this leader what it has left."""
        if message["term"] == self.term and self.role == LEADER:
            self.rooms.reported(node, room_in(message), self.clock())
        return False

    def on_note(self, node: PeerNode, message: Message) -> bool:
        """A member's owner has something to say to that of this leader; the newest note counts."""
        if len(message["data"]) > limits.NOTE_BYTES_MAX:
            problem = f"a note of {len(message['data'])} bytes, at most {limits.NOTE_BYTES_MAX}"
            raise MessageRefused(problem)
        if message["term"] == self.term and self.role == LEADER:
            self.notes[node.id] = message["data"], self.clock()
        return False

    def merely_follows(self) -> bool:
        """Whether this node has a leader and nothing to do that is urgent, once it has synced what
        it was sent: neither an election nor a snapshot, and no submission waits for an outcome."""
        return (
            self.role == FOLLOWER
            and self.election_deadline > self.clock()
            and not self.asked_to_stand
            and self.rejoin is None
            and not self.submissions.refused
            and self.snapshots.rests_below > 0
        )

    def answers_at_once(self) -> bool:
        """Whether a heartbeat may be answered although a sync is under way: what is in the making
        are entries only. An answer in a term that could be forgotten would promise too much."""
        return self.log.syncing and self.log.term_synced

    def _follow(self, leader: PeerNode, term: int) -> bool:
        """The bookkeeping of having heard the leader of `term`. True when it is a new one."""
        if term == self.term and self.role == LEADER:
            raise RaftStopped(f"raft: {leader.id} and this node both lead term {term}")
        now = self.clock()
        self._heard_at = now
        self._missed = None
        if self.prevote.asking:
            self.prevote.stop()
        if term > self.term:
            self.asked_to_stand = False
        if not self.asked_to_stand:
            self.election_deadline = now + self.election_timeout()
        news = leader is not self.leader
        if term > self.term or self.role != FOLLOWER:
            self.role_cause = f"{leader.id} leads"
        if term > self.term:
            self.set_term(term, None)
            news = True
        self.leader = leader
        if self.role != FOLLOWER:
            self.set_role(FOLLOWER)
        return news

    def on_acknowledgement(self, node: PeerNode, message: Message) -> bool:
        """An answer to our entries; it counts in the term it was made in, only (b20). True when
        there is something to do about it: of the answers to a round most come after its commit."""
        term = message["term"]
        if term > self.term:
            self._step_down(node, term)
            return True
        if term < self.term or self.role != LEADER:
            self.counters.stale_acks_dropped_total += 1
            return False
        votes = node in self.match_index
        if message["counted"] and votes:
            self.lease.answered(node, message["round"])
            self.last_response[node] = self.clock()
        self.counters.resets_total += message["reset"]
        replication = self.replication
        news = replication.acknowledged(node, message)
        progress = replication.peers[node]
        # A member that recovers counts for no commit yet (`rejoin.py`).
        counted_index = progress.match_index if progress.counted and votes else 0
        if votes:
            self.match_index[node] = counted_index
            self.next_index[node] = progress.next_index
        if self._proof_wanted_at is not None:
            self._look_for_proof(self._proof_wanted_at)
            return True  # Each answer is news for the owner, who asked whether this node leads.
        return news and (
            counted_index > self.commit_index
            or self.transfer is not None
            or (replication.level_at != self.log.last_index and replication.wanted())
        )

    def on_snapshot(self, node: PeerNode, message: Message) -> bool:
        """The leader offers a snapshot, or sends a piece of one. True when all of it is there.

        Neither log nor commit index change here (b01), and nothing is taken that this node's own
        state already holds (b22).
        """
        term = message["term"]
        if term < self.term:
            self.acknowledge(node, next_index=1)
            return False
        news = self._follow(node, term)
        # A state that is wrong is replaced, though the log behind it goes further.
        differs = self.equality.own_differs_index
        has_index = self.last_applied if differs else self.commit_index
        answer = self.snapshots.received(message, has_index, replaces=differs > 0)
        if answer is not None:
            self._answer_snapshot(node, message["index"], message["entry_term"], answer)
        return news or self.snapshots.busy

    def _answer_snapshot(
        self, node: PeerNode, index: int, entry_term: int, answer: Message
    ) -> None:
        head = {"type": "snapshot_ack", "term": self.term}
        self.outbox.send(node, head | {"index": index, "entry_term": entry_term} | answer)

    def on_snapshot_ack(self, node: PeerNode, message: Message) -> bool:
        """Take a peer's progress with the snapshot that it is sent."""
        if message["term"] > self.term:
            self._step_down(node, message["term"])
            return True
        if message["term"] < self.term or self.role != LEADER:
            self.counters.stale_acks_dropped_total += 1
            return False
        progress = self.replication.peers[node]
        if progress.counted and node in self.match_index:
            self.last_response[node] = self.clock()
        if message["done"] and progress.replacing is not None:
            self.equality.replaced(node.id)
            progress.differs = False  # If it differs all the same, it asks again.
        return self.replication.snapshot_acknowledged(node, message)

    def on_skipped(self, node: PeerNode, message: Message) -> bool:
        """A leader tells of an entry that it has skipped."""
        if message["term"] >= self.term and self.role != LEADER:
            self.skipping.on_skipped(node, message, self.last_applied)
        return False

    def members_by_name(self) -> list[PeerNode]:
        """The other members in the order of their names."""
        return sorted(self.nodes, key=lambda node: node.id)

    def _on_lost(self) -> None:
        """No member in reach has an entry that another one needs. A snapshot stands for what is
        applied; past what is not yet only another leader gets, whose log may have none there."""
        index = self.replication.unsendable_index
        if index > self.last_applied:
            self.fail(self.journal.cannot_repair(self.journal.damages.entries[index]))
        else:
            self.snapshots.want(self.last_applied)

    def look_after_disk(self) -> None:
        """Read on in the scrub, and ask for what is damaged."""
        self.repairs.step(self.members_by_name())
        if self.scrubbing.step():
            self.snapshots.want(self.last_applied)

    def work_on_snapshots(self) -> bool:
        """A slice of what there is to do about snapshots, at the end of a turn. True while there
        is more."""
        ended = self.clock() + limits.SLICE_SECONDS
        for _ in range(self.config.slice_steps):
            takes = not self.equality.own_differs_index
            more = self.snapshots.step(self.last_applied, takes=takes)
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
        self.commit_index = max(self.commit_index, index)
        if self.journal.snapshot is not None:
            self.note_snapshot(self.journal.snapshot)
        if not self.snapshots.restoring:
            if index <= self.last_applied:
                raise RaftStopped(
                    f"raft: snapshot {index} was installed, but {self.last_applied} is applied"
                )
            self.last_applied = self.skipping.applied_from = index
            self.state_replaced(index)
            self.submissions.jumped(index)
            leader = self.leader
            meta = self.journal.snapshot
            if leader is not None and meta is not None:
                done = self.snapshots.done()
                self._answer_snapshot(leader, meta.index, meta.term, done)

    def acknowledge(
        self,
        node: PeerNode,
        *,
        next_index: int | None = None,
        reset: bool = False,
        success: bool = False,
    ) -> None:
        """Answer, naming the term (b20) and the round that is answered (raft.md 3.8)."""
        if next_index is None:
            next_index = self.log.last_index + 1
        self.outbox.send(node, self._answer(next_index, reset=reset, success=success))

    def _answer(self, next_index: int, *, reset: bool, success: bool) -> Message:
        return {
            "type": "next_node_idx",
            "term": self.term,
            "round": self._round_in_hand,
            "next_node_idx": next_index,
            "reset": reset,
            "success": success,
            "counted": self.rejoin is None,
        }

    # --- leading ---

    def become_leader(self) -> None:
        """A new leadership: nothing of an earlier one counts, and nothing is proven yet."""
        self.role_cause = f"elected, because {self.role_cause}"
        self.note_leadership()
        self.lease.begin()
        self._proof_wanted_at = None
        self._yields_until = NEVER
        self.rooms.begin()
        self.notes.clear()
        self.equality.begin()
        self.doubts.begin()
        self.undecided_index = 0
        self.snapshots.not_needed()
        self.replication.begin(self.lease.round)
        for node in sorted(self.connected_peers, key=lambda node: node.id):
            self.skipping.tell(node, self.term)  # Guests too: one of them may be a learner soon.
        no_op_index = self.log.last_index + 1
        self.leads_from = no_op_index
        self._counted_index = self.commit_index
        # Counted from here on: what this leader still has to get committed.
        self.log_bytes = self.log.command_bytes(self._counted_index + 1, no_op_index - 1)
        super().become_leader()
        self.log_bytes += self.log.size_at(no_op_index)
        if self.membership.alone:
            # Alone, the tick that elects is also the tick that commits: be durable first (b18).
            self.log.sync()

    # --- connections ---

    def connected(self, node: PeerNode) -> None:
        self.enter()
        super().connected(node)
        self.outbox.forget(node)
        if node in self.replication.peers:
            self.replication.connected(node, self.lease.round)
        if self.role == LEADER:
            self.skipping.tell(node, self.term)
        self.ask_turn()

    def disconnected(self, node: PeerNode, *, replaced: bool = False) -> None:
        self.enter()
        super().disconnected(node)
        self.outbox.forget(node)
        if node in self.replication.peers:
            self.replication.disconnected(node)
        self.lease.connection_ended(node)
        if node == self.leader and self.role == FOLLOWER and not replaced:
            self.miss_leader(node)
        self.ask_turn()


def command_of(parts: Sequence[Buffer]) -> bytes:
    """The type byte and the parts of one entry, in the one join that an entry costs."""
    return b"".join((COMMAND_BYTE, *parts))
