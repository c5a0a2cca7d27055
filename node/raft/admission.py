"""Admission: members say which journal they have, and are judged by what is known of it.

Owns the frames `journal` and `verdict` and what follows from them: whose votes and acknowledgements
count, when an empty folder is a first start, when this member gives its own journal up. `roll.py`
judges; what is known of the others is in the journal's passport and, of acknowledgements, in its
commit hints. A member counts under a journal id that is new here only once the disk has it. Without
a passport nothing is said and everyone counts. Must not know how entries are appended or applied.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from node.peers.message import MessageRefused
from node.raft import limits, rejoin
from node.raft.errors import RaftStopped
from node.raft.lease import NEVER
from node.raft.processes import Processes
from node.raft.rebuilding import Rebuilding
from node.raft.roll import (
    Judgement,
    Notice,
    Roll,
    Said,
    Standing,
    State,
    said_in,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from node.journal.passport import Passport
    from node.peers.message import Message, PeerNode
    from node.raft.config import RaftConfig
    from node.raft.configuration import Configuration
    from node.raft.environment import RaftEnvironment

logger = logging.getLogger(__name__)

ALWAYS: Final = frozenset({"journal", "verdict", "term_ask", "term_report"})
"""Messages that are taken from each member."""

SERVED: Final = ALWAYS | {"next_node_idx", "snapshot_ack", "room", "mark", "state_wanted"}
"""Messages that are taken from a member that is brought up to date."""

HEARD: Final = ALWAYS | {
    "append_entries",
    "snapshot_offer",
    "snapshot_state",
    "snapshot_entries",
    "request_vote",
    "pre_vote",
    "timeout_now",
    "entry_wanted",
}
"""Messages that are taken from one that is no member here: who was away while the members changed
has to hear a leader that it does not know, and to vote for one. None of them counts for anything
here."""

_TAKEN: Final = {
    Standing.BARRED: ALWAYS,
    Standing.SERVED: SERVED,
    Standing.GUEST: HEARD,
}


class MustRecover(RaftStopped):
    """This member's journal lacks what it has promised. It is given up: started again, the member
    recovers."""


class Admission(Rebuilding):
    """The part of a core that decides about journals."""

    roll_class = Roll
    processes_class = Processes

    def __init__(self, config: RaftConfig, environment: RaftEnvironment) -> None:
        self._standings: dict[PeerNode, Standing] = {}
        """Members whose word does not count as that of others does."""
        self._said: dict[PeerNode, Said] = {}
        """The words of the members that are connected now."""
        self._reported: dict[str, str] = {}
        self._notes = environment.workers.notes
        self._transport = environment.transport
        self._writing: Passport | None = None
        self._begins = False
        self._led_term = 0
        self._said_synced, self.say_synced_at = 0, NEVER
        """Up to which entry of its log this leader has said that its disk has it, and when it may
        say so again."""
        self._processes = self.processes_class(config.name)
        self._twice: dict[PeerNode, str] = {}
        """Members of which a process is connected here, and another one to the member named."""
        self._twice_before: set[PeerNode] = set()
        self._newest: Configuration | None = None
        self._removed: frozenset[bytes] = frozenset()
        """The journals of removed members, by the newest configuration that is committed."""
        papers = environment.journal.passport
        memory = environment.journal.log.memory
        others = {} if papers is None else papers.others
        self.roll = self.roll_class(others, memory, count=len(config.peers) + 1)
        super().__init__(config, environment)
        self._opened = self.log.term, self.log.last_index
        if papers is not None:
            self.log.remember = self._remembered
            self._explain()

    # --- what this member says ---

    def _own_state(self) -> State:
        papers = self.journal.passport
        assert papers is not None, "only a member with a passport says what it is"
        if self.journal.recovering:
            return State.RECOVERING
        if isinstance(self.rejoin, rejoin.Waiting):
            return State.COPY if papers.copied else State.NEW
        untouched = self.log.term == 0 and self.log.last_index <= 1
        return State.BEGUN if untouched else State.WHOLE

    def _introduce(self, *nodes: PeerNode) -> None:
        """Say which journal this is, to these or to all members that are connected."""
        papers = self.journal.passport
        if papers is None:
            return
        rows = {
            node.id: self.roll.others[node.id] for node in self.nodes if node.id in self.roll.others
        }
        term, index = self._opened
        said = Said(
            papers.journal,
            papers.opens,
            papers.open_id,
            self._own_state(),
            term,
            index,
            rows,
            dict(self._processes.here),
        )
        for node in nodes or sorted(self.connected_peers, key=lambda node: node.id):
            if self.peer_connected(node):
                self.outbox.send_at_once(node, said.frame)

    def _remembered(self) -> bytes:
        """The acknowledgements of the members, for the journal."""
        for node in self.nodes:
            self._note_acknowledged(node)
        self._tell_twice()
        return self.roll.packed()

    def _note_acknowledged(self, node: PeerNode) -> None:
        progress = self.replication.peers[node]
        counts = progress.counted and node not in self._standings
        if progress.match_index and counts and self._is_known(node):
            self.roll.acknowledged(node.id, self._led_term, progress.match_index)

    def _is_known(self, node: PeerNode) -> bool:
        """Whether the process of a member that is connected was judged. What another one has
        acknowledged since it said how its journal ends is no evidence that it lacks something."""
        said = self._said.get(node)
        return said is None or said.open_id == self.roll.known(node.id).open_id

    def tell_synced(self) -> None:
        """As leader, say now and then up to where this disk has the log: it counts for what is
        committed, though this member acknowledges nothing."""
        index = self.log.synced_index
        if index <= self._said_synced or self.journal.passport is None:
            return
        self._said_synced, self.say_synced_at = index, self.clock() + limits.SYNCED_SECONDS
        for node in self.nodes:
            self.outbox.send_at_once(node, {"type": "synced", "term": self.term, "index": index})

    def on_synced(self, node: PeerNode, message: Message) -> bool:
        """The leader says what its own disk has: it has promised that."""
        leads = message["term"] == self.term and node == self.leader
        if leads and node not in self._standings and self._is_known(node):
            self.roll.acknowledged(node.id, message["term"], message["index"])
        return False

    def note_leadership(self) -> None:
        """A new leadership begins: what was acknowledged to an earlier one is of its term."""
        self._remembered()
        self._led_term = self.term
        self._said_synced, self.say_synced_at = 0, NEVER

    # --- who counts ---

    def admitted(self, node: PeerNode, message: Message) -> Message | None:
        """The message as it counts, of a member that does not count as others do; None: it does
        not."""
        standing = self._standings.get(node)
        if standing is None:
            return message
        if message["type"] not in _TAKEN[standing]:
            return None
        return message | {"counted": False} if message["type"] == "next_node_idx" else message

    def on_journal(self, node: PeerNode, message: Message) -> bool:
        """A member says which journal it has."""
        if self.journal.passport is None:
            return False
        try:
            said = said_in(message)
        except ValueError as error:
            raise MessageRefused(f"{node.id} sent a state of a journal that is none") from error
        self._said[node] = said
        before = dict(self._processes.here)
        news = self._processes.said(node.id, said.connected)
        if self._judge(node, said):
            self._learn(node, said)
        if news:
            self._judge_again(node)
        self._say_connected(before)
        self._begin_together()
        self._explain()
        return True

    def _judge(self, node: PeerNode, said: Said) -> bool:
        """Judge a member that is connected. True where it is one that counts."""
        if not self._is_member(node, said):
            return False
        elsewhere = self._processes.judge(node.id, said.open_id)
        if elsewhere is not None:
            self._twice[node] = elsewhere
            self._set_standing(node, Standing.BARRED)
            return False
        self._twice.pop(node, None)
        self._note_acknowledged(node)
        found = self.roll.judge(node.id, said, self._own_state())
        known = self.roll.known(node.id)
        if found.known != known:
            self.roll.others[node.id] = found.known
            if known.journal and found.known.journal != known.journal:
                self._forget_progress(node)
            self._write()
        self._set_standing(node, self._standing(node, said, found))
        if found.verdict is not None:
            self._tell_verdict(node, said, found.verdict, found.reason)
        return found.standing is Standing.COUNTED and said.state is State.WHOLE

    def _is_member(self, node: PeerNode, said: Said) -> bool:
        """Whether this is a member by the newest configuration, whose journal is to be judged."""
        newest = self._newest
        if said.journal in self._removed:
            self._set_standing(node, Standing.BARRED)
            self._tell_removed(node, said)
            return False
        # A removal that is not committed may be taken back, by a leader that was to be removed.
        removed = newest is not None and newest.was_removed(said.journal)
        if removed or node not in self.replication.peers:
            self._set_standing(node, Standing.GUEST)
            self._tell_removed(node, said)
            return False
        if self._may_join(node, said):
            self._set_standing(node, Standing.SERVED)
            reason = "the members have it as a learner"
            self._tell_verdict(node, said, Notice.JOINED, reason)
            return False
        return True

    def _may_join(self, node: PeerNode, said: Said) -> bool:
        """Whether this is the empty journal of a learner, which has promised nothing yet. One that
        was seen with a voice, or that votes by now, has lost what it had."""
        newest = self._newest
        if newest is None or said.state is not State.NEW:
            return False
        return (
            any((one.name, one.journal) == (node.id, said.journal) for one in newest.learners)
            and self.roll.known(node.id).open_id in (b"", said.open_id)
            and self._own_state() in (State.BEGUN, State.WHOLE)
        )

    def _tell_removed(self, node: PeerNode, said: Said) -> None:
        """Have a removed member know, once that can be taken back no more."""
        newest = self._newest
        if newest is None or not self._removed:
            return
        gone = said.journal in self._removed
        if said.state is State.RECOVERING and newest.member(node.id) is None:
            gone = any(one.name == node.id for one in newest.removed)
        if gone:
            reason = "it was removed from the cluster"
            self._tell_verdict(node, said, Notice.REMOVED, reason)

    def settle_removed(self, newest: Configuration) -> None:
        """This configuration is committed."""
        self._removed = frozenset(gone.journal for gone in newest.removed)
        papers = self.journal.passport
        if papers is not None and newest.was_removed(papers.journal):
            self._note_removed("the log")
        for node, said in list(self._said.items()):
            if said.journal in self._removed:
                self._judge(node, said)
            else:
                self._tell_removed(node, said)

    def _note_removed(self, by: str) -> None:
        if not self.removed:
            self.removed = True
            logger.warning("event=removed by=%s advice=%s", by, ADVICE[Notice.REMOVED])

    def follow_members(self, voters: Collection[str], learners: Collection[str]) -> None:
        before = set(self.nodes)
        super().follow_members(voters, learners)
        for node in self.nodes:
            if node not in before and self.peer_connected(node):
                self._standings.pop(node, None)
                self.replication.connected(node, self.lease.round)
        for node in before.difference(self.nodes):
            if self.peer_connected(node):
                self._standings[node] = Standing.GUEST
        if self.rejoin is not None:
            self.rejoin.follow(node.id for node in self.membership.voters)

    def follow_journals(self, newest: Configuration) -> None:
        """Know the journals that a configuration names, and judge those that are connected."""
        self._newest = newest
        if self.journal.passport is None:
            return
        # Of two voters an empty one is let in where the other has all: not amid a change, of which
        # it may know the beginning only.
        self.roll.count = len(newest.voters)
        if newest.wanted:
            self.roll.count = max(self.roll.count, limits.RECOVER_MEMBERS_MIN)
        own = self.config.name
        gone, news = newest.was_removed, False
        for one in newest.members:
            if one.name != own:
                news |= self.roll.named(one.name, one.journal, gone=gone)
        if news:
            self._write()
        self._hear_again()
        self._explain()

    def _hear_again(self) -> None:
        """Take the words of those that are connected anew: they may have been of a member that was
        none here until now."""
        for node, said in list(self._said.items()):
            if self._judge(node, said):
                self._learn(node, said)

    def journal_of(self, name: str) -> bytes:
        """The journal of a member, this one's too, as far as it is known here."""
        papers = self.journal.passport
        if name == self.config.name:
            return b"" if papers is None else papers.journal
        return self.roll.known(name).journal

    def replaces_journal(self, node: PeerNode) -> bool:
        """Whether a member recovers under another journal, as far as it is known here."""
        return bool(self.roll.known(node.id).next)

    def is_judged_less(self, node: PeerNode) -> bool:
        """Whether the word of a member that is connected does not count."""
        return node in self._standings

    def _judge_again(self, besides: PeerNode) -> None:
        """Judge the others anew: knowledge of processes elsewhere has changed."""
        for node, said in list(self._said.items()):
            if node != besides:
                self._judge(node, said)

    def _say_connected(self, before: dict[str, bytes]) -> None:
        """Tell the others where other processes count here than before."""
        if self._processes.here != before:
            self._introduce()

    def _tell_twice(self) -> None:
        """Report, once a second, the processes that were later than another one for a second: of a
        member that starts again the old connection may end a moment later elsewhere."""
        for node in self._twice_before & self._twice.keys():
            reason = f"another process of {node.id} is connected to {self._twice[node]} and lives"
            self._tell_verdict(node, self._said[node], Notice.TWICE, reason)
        self._twice_before = set(self._twice)

    def _standing(self, node: PeerNode, said: Said, found: Judgement) -> Standing:
        """The standing that follows from a judgement, once the disk has what it stands on."""
        papers = self.journal.passport
        assert papers is not None, "judged by a member with a passport"
        written = papers.others.get(node.id)
        if found.standing is Standing.COUNTED and found.known.journal and (
            written is None or written.journal != said.journal
        ):  # fmt: skip
            return Standing.SERVED
        return found.standing

    def _set_standing(self, node: PeerNode, standing: Standing) -> None:
        if standing is Standing.COUNTED:
            self._standings.pop(node, None)
            self._reported.pop(node.id, None)
            return
        self._standings[node] = standing

    def _forget_progress(self, node: PeerNode) -> None:
        """Another journal has nothing of what was acknowledged from the one before."""
        self.replication.forget(node)
        if node in self.match_index:
            self.match_index[node] = 0

    def _tell_verdict(self, node: PeerNode, said: Said, verdict: Notice, reason: str) -> None:
        self.outbox.send_at_once(
            node,
            {
                "type": "verdict",
                "kind": int(verdict),
                "journal": said.journal,
                "open_id": said.open_id,
                "reason": reason,
            },
        )
        if verdict != Notice.JOINED:
            line = f"event=member_not_counted node={node.id} reason={reason}"
            self._report(node.id, line, verdict)

    def _report(self, subject: str, line: str, verdict: Notice) -> None:
        """Log a line for each reason, with the fix."""
        if self._reported.get(subject) != line:
            self._reported[subject] = line
            logger.warning("%s advice=%s", line, ADVICE[verdict])

    # --- what members know of each other ---

    def _learn(self, node: PeerNode, said: Said) -> None:
        """Take what a member that counts knows of the others."""
        for other in self.nodes:
            known = said.rows.get(other.id)
            if known is None or other == node:
                continue
            theirs = self._said.get(other)
            if self.roll.learn(other.id, known, connected=theirs is not None):
                self._write()
                if theirs is not None:
                    self._judge(other, theirs)

    def on_term_ask(self, node: PeerNode, message: Message) -> bool:
        """See `Elections`; the journal in which that member recovers is on the disk first, for it
        will count by that."""
        said, papers = self._said.get(node), self.journal.passport
        if papers is not None and said is not None and said.state is State.RECOVERING:
            written = papers.others.get(node.id)
            if written is None or written.next != said.journal:
                return False  # It asks again.
        return super().on_term_ask(node, message)

    def on_response_vote(self, node: PeerNode, message: Message) -> bool:
        if self._is_known(node):
            self.roll.acknowledged(node.id, message["term"], 0)
        return super().on_response_vote(node, message)

    # --- the passport ---

    @property
    def notes_pending(self) -> bool:
        return self._writing is not None

    def _write(self, *, begins: bool = False) -> None:
        """Bring what is known to the disk, off the event loop; `begins`: this journal is that of a
        member once it is there."""
        self._begins |= begins
        if self._writing is not None:
            return  # When that has ended, what is known then is written.
        papers = self.journal.passport
        assert papers is not None, "only a member with a passport learns"
        begun = papers.begun or self._begins
        papers = replace(papers, others=dict(self.roll.others), begun=begun)
        self._writing = papers
        self._notes.run(self.journal.writing_passport(papers), lambda error: self._written(error))

    def _written(self, error: BaseException | None) -> None:
        papers, self._writing = self._writing, None
        assert papers is not None, "something was written"
        self.enter()
        if error is not None:
            self.fail(RaftStopped(f"raft: the file `identity` cannot be written: {error}"))
            return
        self.journal.passport = papers
        if papers.begun and isinstance(self.rejoin, rejoin.Waiting) and not papers.copied:
            self._begun()
        if papers.others != self.roll.others or self._begins > papers.begun:
            self._write()
        self._begin_together()
        for node, said in list(self._said.items()):
            if self._standings.get(node) is Standing.SERVED:
                self._judge(node, said)
        self._introduce()
        self.ask_turn()

    # --- the first start, and what became of this journal ---

    def _begin_together(self) -> None:
        """Begin the cluster where every member is here, empty, and says so."""
        waiting = isinstance(self.rejoin, rejoin.Waiting) and self._own_state() is State.NEW
        if not waiting or self._begins or self.config.joins or not self.nodes:
            return  # A node alone has no other that could agree.
        if not all(map(self._heard_of, self.nodes)):
            return
        if all(said.state in (State.NEW, State.BEGUN) for said in self._said.values()):
            for node, said in self._said.items():
                self.roll.others[node.id] = self.roll.first_seen(said)
            self._write(begins=True)

    def _heard_of(self, node: PeerNode) -> bool:
        """Whether a member is here and has said what it is, or is of 0.1.0, which never does: among
        those an empty folder is a first start, as it was."""
        return node in self._said or (self.peer_connected(node) and not self._transport.tells(node))

    def _begun(self) -> None:
        """This journal is that of a member from now on."""
        self.rejoin = None
        self.election_deadline = self.clock() + self.election_timeout()
        logger.info("event=begun advice=this folder belongs to the cluster from now on")

    def on_verdict(self, node: PeerNode, message: Message) -> bool:
        """A member says what it has found about this journal."""
        papers = self.journal.passport
        verdict, reason = message["kind"], message["reason"]
        named = message["journal"], message["open_id"]
        if verdict == Notice.TWICE:  # About this process, whatever its journal is.
            line = f"event=twice by={node.id} reason={reason}"
            self._report(f"own {node.id}", line, Notice.TWICE)
            return False
        if papers is None or named != (papers.journal, papers.open_id):
            return False
        waits = isinstance(self.rejoin, rejoin.Waiting)
        if verdict == Notice.LOST and (self.rejoin is None or papers.copied):
            self._give_up(node, reason)
        elif verdict == Notice.BEGAN and waits and not papers.copied:
            self._recover(node, reason)
        elif self._lets_begin(verdict) and waits and not papers.copied:
            self._write(begins=True)
        elif verdict == Notice.REMOVED:
            self._note_removed(node.id)
        elif verdict == Notice.UNKNOWN:
            line = f"event=not_counted by={node.id} reason={reason}"
            self._report(f"own {node.id}", line, Notice.UNKNOWN)
        return True

    def _lets_begin(self, verdict: int) -> bool:
        admitted = verdict == Notice.ADMITTED and len(self.membership.voters) == 1
        return admitted or verdict == Notice.JOINED

    def _recover(self, node: PeerNode, reason: str) -> None:
        """The folder is empty and its member was there before: get everything back."""
        logger.warning("event=journal_lost by=%s reason=%s", node.id, reason)
        voters = [one.id for one in self.membership.voters]
        if self._newest is not None or not self.config.joins:  # Else these are some of them.
            rejoin.check_members(self.config.name, voters)
        self.journal.begin_recovery()
        self.rejoin = rejoin.Rejoin(voters, self.rng)
        self._introduce()

    def _give_up(self, node: PeerNode, reason: str) -> None:
        others = [each.id for each in self.membership.voters]
        text = f"{node.id} has found that this journal must not be used: {reason}"
        try:
            rejoin.check_members(self.config.name, others)
        except rejoin.RecoverRefused as refused:
            raise RaftStopped(f"raft: {text}; {refused}") from None
        self.journal.give_up()
        raise MustRecover(f"raft: {text}; its files are set aside, and it recovers")

    def recovered(self) -> None:
        super().recovered()
        self._introduce()

    def _explain(self) -> None:
        """Keep at hand what a member that waits with its first start waits for."""
        waiting = self.rejoin
        if not isinstance(waiting, rejoin.Waiting):
            return
        papers = self.journal.passport
        said = {node.id: one.state for node, one in self._said.items()}
        away = [node.id for node in self.nodes if node.id not in said]
        waiting.explain(said_empty=_named(said, State.NEW, State.BEGUN), away=away,
                        recovering=_named(said, State.RECOVERING, State.COPY),
                        copied=papers is not None and papers.copied,
                        joins=self.config.joins)  # fmt: skip

    # --- connections ---

    def connected(self, node: PeerNode) -> None:
        self._forget_connection(node)
        if node not in self.replication.peers:
            self._standings[node] = Standing.GUEST
        super().connected(node)
        self._said_synced = 0
        self._introduce(node)
        if self.journal.passport is not None:
            self._begin_together()

    def disconnected(self, node: PeerNode) -> None:
        if node in self.replication.peers:
            self._note_acknowledged(node)
        before = dict(self._processes.here)
        self._forget_connection(node)
        super().disconnected(node)
        self._judge_again(node)
        self._say_connected(before)
        self._explain()

    def _forget_connection(self, node: PeerNode) -> None:
        self._said.pop(node, None)
        self._standings.pop(node, None)
        self._twice.pop(node, None)
        self._processes.gone(node.id)


def _named(said: dict[str, State], *states: State) -> list[str]:
    return sorted(name for name, state in said.items() if state in states)


ADVICE: Final = {
    Notice.LOST: "it recovers, and needs all other members up for that",
    Notice.BEGAN: "it recovers, and needs all other members up for that",
    Notice.ADMITTED: "it gets everything from the other member",
    Notice.UNKNOWN: "move its files away and start that member with --recover while all others "
    "are up, if its folder is not the newest that it had",
    Notice.REMOVED: "stop it; its folder is of no use to this cluster any more",
    Notice.TWICE: "stop one of the two; if the other one is a copy, remove its folder",
}
"""Advice about a member that is not counted, or the course without any."""
