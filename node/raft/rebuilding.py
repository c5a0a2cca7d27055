"""Members whose states differ: found by their marks, kept from leading, given the right state.

Owns what follows from a comparison. Such a member's log is sound, so it votes and acknowledges on.
It applies nothing more, takes no snapshot, and asks its leader for a snapshot of a later state,
which replaces its own as an installation does. `equality.py` compares; must not know what the
marks are made of.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import TYPE_CHECKING

from node.journal.wrong_state import WrongState
from node.peers.message import NO_OP
from node.raft import limits
from node.raft.commit import CommitPath
from node.raft.doubts import Doubts
from node.raft.equality import Mark
from node.raft.lease import NEVER
from node.raft.pysyncobj.library import LEADER
from node.raft.transfer import best_target

if TYPE_CHECKING:
    from node.peers.message import Message, PeerNode
    from node.raft.config import RaftConfig
    from node.raft.doubts import Place
    from node.raft.environment import RaftEnvironment
    from node.raft.equality import Comparison

logger = logging.getLogger(__name__)


class Rebuilding(CommitPath):
    """The part of a core that looks after states that differ."""

    doubts_class = Doubts

    def __init__(self, config: RaftConfig, environment: RaftEnvironment) -> None:
        self._left_at = self._asked_at = NEVER
        self.leads_from = 1
        """Index of the no-op of this node's newest leadership."""
        self._notes = environment.workers.snapshots
        super().__init__(config, environment)
        self.undecided_index = 0
        """Since when this leader's members differ and none is known to be right; 0: not so."""
        self.doubts = self.doubts_class(
            config.name,
            environment,
            self.equality,
            self.skipping,
            send=self.outbox.send_at_once,
            decided=self._decided,
        )

    def look_at_note(self, index: int) -> None:
        """At the start, from the snapshot of entry `index`: go by what was noted of its state."""
        wrong = self.journal.wrong_state
        if wrong is None:
            return
        if not index or index > wrong.applied_index:
            # The whole log is applied again, or the right state had come before the end.
            self.journal.state_replaced(index)
            return
        self.equality.own_differs_index = wrong.differs_index
        logger.error(
            "event=state_differs index=%d snapshot=%d advice=it was found before this start, and "
            "waits for the state of the leader",
            wrong.differs_index,
            index,
        )

    def state_replaced(self, index: int) -> None:
        """The state is that of a leader's snapshot of entry `index`."""
        self.equality.started_anew()
        if self.journal.wrong_state is not None:
            self.journal.state_replaced(index)

    def _note_wrong(self, index: int) -> None:
        """Have the disk know it too, and with it every start."""
        job = self.journal.marking_wrong(WrongState(index, self.last_applied))

        def noted(_: BaseException | None) -> None:
            if job.error is not None:
                self.fail(job.error)

        self._notes.run(job.run, noted)

    def tell_marks(self, leader: PeerNode) -> None:
        """Send the marks that this leader has not been sent, behind an acknowledgement."""
        if self.equality.own_differs_index:
            self._ask_for_state(leader)
        for index, version, hash_ in self.equality.unsent(leader.id, self.term):
            message = {"type": "mark", "term": self.term, "index": index}
            self.outbox.send_at_once(leader, message | {"version": version, "hash": hash_})

    def on_mark(self, node: PeerNode, message: Message) -> bool:
        """A member tells this leader what its state was at an index."""
        if message["term"] == self.term and self.role == LEADER:
            mark = Mark(message["index"], message["version"], message["hash"])
            self._judged(self.equality.reported(node.id, mark))
        return False

    @abstractmethod
    def ask_turn(self) -> None:
        """Ask for a turn, in which there is something to tick for."""

    def note_mark(self, mark: Mark) -> None:
        """Take the mark of this node's own state."""
        verdict = self.equality.note(mark)
        if self.role == LEADER:
            self._judged(verdict)

    def _judged(self, verdict: Comparison | None) -> None:
        """Keep a member that differs, this one too, from leading, and say so."""
        if verdict is None:
            return
        for node, progress in self.replication.peers.items():
            if node.id in verdict.agreed:
                progress.differs = self.equality.of(node.id).differs_index > 0
            elif node.id in verdict.differing and verdict.agreed:
                progress.differs = True
                message = {"type": "differs", "term": self.term, "index": verdict.index}
                self.outbox.send_at_once(node, message)
        if verdict.agreed and self.config.name in verdict.differing:
            self._differs(verdict.index)
        if verdict.differing:
            self._report_differing(verdict)
        if not verdict.agreed:
            self._doubt(verdict)

    def _doubt(self, verdict: Comparison) -> None:
        """No majority is equal: each member applies its log again, unless it is known by now which
        of them are wrong."""
        known = any(one.differs for one in self.replication.peers.values())
        if not known and not self.equality.own_differs_index and not self.undecided_index:
            self.doubts.doubt((verdict.index, verdict.whole))

    def _decided(self, place: Place, right: frozenset[str]) -> None:
        """All members of this leader have applied their log again; `right`: those that are right,
        none where that cannot be known."""
        if right:
            self._judged(self.equality.decided(*place, right))
            return
        self.report_doubtful()
        self.undecided_index = place[0]
        logger.error(
            "event=replicas_undecided index=%d members=%s advice=the cluster accepts nothing: stop "
            "every node and restore the newest good backup, or recover those whose state is not "
            "trusted, and then restart the others",
            place[0],
            ",".join(sorted(self.equality.hashes_at(*place))),
        )

    def step_doubts(self) -> bool:
        """A slice of what there is to do about a doubt. True while there is more at once."""
        leads = self.role == LEADER
        if not leads and self.leader is None:
            return False
        leader = None if leads else self.leader
        return self.doubts.step(self.term, leader, list(self.replication.peers))

    def on_doubted(self, node: PeerNode, message: Message) -> bool:
        """The leader has found no majority of equal states."""
        if message["term"] == self.term and node == self.leader and self.role != LEADER:
            self.doubts.on_doubted((message["index"], message["whole"]))
            return True
        return False

    def on_rechecked(self, node: PeerNode, message: Message) -> bool:
        """A member has applied its log again."""
        if message["term"] == self.term and self.role == LEADER:
            names = [self.config.name, *(one.id for one in self.replication.peers)]
            self.doubts.on_rechecked(node, message, names)
        return False

    def _report_differing(self, verdict: Comparison) -> None:
        index, compared = verdict.index, self.equality.compared
        if all(compared[name].differs_index != index for name in verdict.differing):
            return  # That was reported at an earlier mark.
        names = ",".join(sorted(verdict.differing))
        if verdict.agreed:
            logger.error(
                "event=replica_differs members=%s index=%d advice=it takes the state of the "
                "others; look at its memory, its disk and its version",
                names,
                index,
            )
        else:
            logger.error("event=replicas_differ members=%s index=%d agreed=none", names, index)

    def on_differs(self, node: PeerNode, message: Message) -> bool:
        """The leader has found that this member's state is another one than a majority's."""
        if message["term"] == self.term and node == self.leader and self.role != LEADER:
            self._differs(message["index"])
        return False

    def _differs(self, index: int) -> None:
        """This state is not to be trusted: hold no lease, lead no more. The log is sound."""
        if self.equality.own_differs_index:
            return
        if self.role == LEADER:
            self.report_doubtful()
        self.equality.own_differs_index = index
        self.replication.keep_states()
        self._note_wrong(index)
        logger.error(
            "event=state_differs index=%d advice=it is replaced by that of the leader; look at the "
            "memory and the disk of this machine, and at the version",
            index,
        )
        self.ask_turn()

    def report_doubtful(self) -> None:
        """Say which answers of this leader may be wrong: those since it was equal last, or since it
        began to lead."""
        equal_index = self.equality.of(self.config.name).equal_index
        logger.error(
            "event=answers_doubtful first=%d last=%d advice=what this leader has answered and "
            "delivered for these entries came from a state that was wrong: a message may have been "
            "handed out twice, or a settlement confirmed that did nothing; compare what its "
            "clients did since then, and fifo audit",
            max(equal_index, self.leads_from),
            self.last_applied,
        )

    def _ask_for_state(self, leader: PeerNode) -> None:
        """Ask for a snapshot of a state that goes further than this one: it never goes back."""
        now = self.clock()
        if now >= self._asked_at + limits.STATE_ASK_SECONDS:
            self._asked_at = now
            message = {"type": "state_wanted", "term": self.term, "above": self.last_applied}
            self.outbox.send_at_once(leader, message)

    def on_state_wanted(self, node: PeerNode, message: Message) -> bool:
        """A member asks this leader for a state after the entry that its own, wrong one ends at."""
        if message["term"] != self.term or self.role != LEADER:
            return False
        self.replication.peers[node].differs = True
        if self.equality.own_differs_index:
            return False  # It is for the next leader to send a state.
        newest = self.journal.snapshot
        if newest is None or newest.index <= message["above"]:
            self.snapshots.want(message["above"])
            self.go_further_than(message["above"])
        else:
            self.replication.begin_replacing(node)
        return True

    def go_further_than(self, above: int) -> None:
        """In an idle cluster no entry comes: a snapshot goes further than the wrong state only
        behind one more, which does nothing."""
        index = self.log.last_index + 1
        if index > above + 1 or self.transfer is not None:
            return
        self.log.add(NO_OP, index, self.term)
        self.log_bytes += self.log.size_at(index)

    def leave_as_differing(self) -> None:
        """Hand over where the state of this leader differs from that of a majority."""
        if not self.equality.own_differs_index or self.role != LEADER or self.transfer is not None:
            return
        now = self.clock()
        if now < self._left_at + self.config.max_timeout_seconds:
            return
        target = best_target(self.voters_progress(), self.log.last_index)
        if target is None:
            return
        self._left_at = now
        logger.error("event=transfer target=%s reason=the state of this leader differs", target)
        self.begin_transfer(target, lambda why: logger.info("event=transfer_failed reason=%s", why))
