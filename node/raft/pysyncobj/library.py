"""The only subclass of pysyncobj's SyncObj, and the journal in its language: all under plain names.

Owns every mangled name of the library, its settings, and the doors into it that stay shut. Must not
know queues, nor decide anything: the library keeps the election timer, the counting of votes, the
commit rule, the step-down and the no-op of a term; all else is overridden in `core.py` and the
modules it is made of. `pin.py` records the source that each override was written against, and has
to be updated with this module.

Plain names cost nothing. Each field of `STATE` is a slot of this class, and its descriptor stands
in the class under the library's mangled name too: both names read and write one place, at the
speed of a slot, where a property would cost a call on each of some sixty reads per turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, overload

import pysyncobj.journal
from pysyncobj.config import SyncObjConf
from pysyncobj.syncobj import _RAFT_STATE, SyncObj
from pysyncobj.transport import Transport

from node.peers.message import PeerNode
from node.raft.errors import RaftStopped
from node.raft.pysyncobj import pin, seams

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from node.journal.journal import Journal
    from node.journal.log import DurableLog
    from node.journal.records import Entry
    from node.peers.message import Message
    from node.raft.membership import Membership


pin.check_names()
seams.install()

FOLLOWER: int = _RAFT_STATE.FOLLOWER
CANDIDATE: int = _RAFT_STATE.CANDIDATE
LEADER: int = _RAFT_STATE.LEADER

STATE = {
    "role": "raftState",
    "term": "raftCurrentTerm",
    "voted_for": "votedForNodeId",
    "leader": "raftLeader",
    "election_deadline": "raftElectionDeadline",
    "asked_to_stand": "transferInProgress",
    "commit_index": "raftCommitIndex",
    "last_applied": "raftLastApplied",
    "leader_commit_index": "leaderCommitIndex",
    "next_index": "raftNextIndex",
    "match_index": "raftMatchIndex",
    "last_response": "lastResponseTime",
    "connected_peers": "connectedNodes",
    "next_heartbeat_at": "newAppendEntriesTime",
}
"""Our names of the library's state, with the library's own, unmangled."""


def mangled(name: str) -> str:
    """Return the attribute name of a private name of SyncObj."""
    return f"_SyncObj__{name}"


def stock(name: str) -> Callable[..., Any]:
    """Return SyncObj's own private method `name`, not an override of it."""
    method: Callable[..., Any] = getattr(SyncObj, mangled(name))
    return method


class Settings(Protocol):
    """Fields of a member's configuration that the library has a setting for."""

    @property
    def heartbeat_seconds(self) -> float: ...
    @property
    def min_timeout_seconds(self) -> float: ...
    @property
    def max_timeout_seconds(self) -> float: ...
    @property
    def connection_seconds(self) -> float: ...
    @property
    def batch_bytes(self) -> int: ...
    @property
    def queue_commands_max(self) -> int: ...


class Outbox(Protocol):
    """Where the library's messages to the peers go."""

    ready: bool
    """Always true: the library would sleep in its tick until it is."""

    def send(self, node: PeerNode, message: Message) -> bool:
        """Take one message; False when it certainly goes nowhere."""


class _NoTransport(Transport):  # type: ignore[misc]  # pysyncobj ships no types
    """Stands in during construction; `send_through` replaces it before the first tick."""

    ready = True

    def __init__(self) -> None:
        super().__init__(None, None, None)


class Library(SyncObj, ABC):  # type: ignore[misc]  # pysyncobj ships no types
    """State of one member as the library keeps it, and the calls between the library and us.

    The hooks are what the library calls: a subclass has to give the abstract ones, and may extend
    the others. `journal` has to answer from the
    constructor on, because SyncObj's constructor asks for the end of the log.
    """

    __slots__ = tuple(STATE)

    role: int
    """FOLLOWER, CANDIDATE or LEADER."""
    term: int
    voted_for: str | None
    leader: PeerNode | None
    """Leader as last heard; None while there is none."""
    election_deadline: float
    """Instant on the node's clock after which the next tick stands for election."""
    asked_to_stand: bool
    """Whether the leader has handed over to this member, which stands in its next tick."""
    commit_index: int
    last_applied: int
    leader_commit_index: int | None
    next_index: dict[PeerNode, int]
    match_index: dict[PeerNode, int]
    last_response: dict[PeerNode, float]
    """When each peer last acknowledged an entry or a heartbeat, on the leader's clock."""
    connected_peers: set[PeerNode]
    next_heartbeat_at: float

    def __init__(self, membership: Membership, settings: Settings, journal: Journal) -> None:
        self.membership = membership
        self.journal = journal
        self.log = journal.log
        self.next_heartbeat_at = 0.0  # SyncObj's constructor reads it before it is set.
        super().__init__(
            membership.own,
            membership.peers,
            conf=library_conf(settings),
            nodeClass=_as_peer,
            transport=_NoTransport(),
        )
        self._SyncObj__raftLog = LibraryLog(self.log)

    # --- calls into the library ---

    def send_through(self, outbox: Outbox) -> None:
        """Have the library send its messages through `outbox`."""
        self._SyncObj__transport = outbox

    def stock_tick(self) -> None:
        """Run the library's tick: timer, votes, commit rule, step-down, then our hooks."""
        self._onTick(0.0)

    def stock_receive(self, node: PeerNode, message: Message) -> None:
        """Hand a request for a vote, or a vote, to the library."""
        SyncObj._SyncObj__onMessageReceived(self, node, message)

    def use_voters(self, voters: Collection[PeerNode], now: float) -> None:
        """Have the library count these beside this member, and no others. One that was not counted
        before has answered just now: it is given the time of a timeout to do so."""
        self._SyncObj__otherNodes = set(voters)
        for table in (self.next_index, self.match_index, self.last_response):
            for node in table.keys() - voters:
                del table[node]
        for node in voters:
            self.next_index.setdefault(node, self.log.last_index + 1)
            self.match_index.setdefault(node, 0)
            self.last_response.setdefault(node, now)

    def set_term(self, term: int, voted_for: str | None) -> None:
        """Adopt `term` and a vote in it; persisted by the journal."""
        self._SyncObj__setCurrentTerm(term, voted_for)

    def set_role(self, role: int) -> None:
        """Become follower, candidate or leader in name, without the library's further steps."""
        self._SyncObj__setState(role)

    # --- hooks: what the library calls ---

    def connected(self, node: PeerNode) -> None:
        """Note a connection to `node`."""
        SyncObj._SyncObj__onNodeConnected(self, node)

    def disconnected(self, node: PeerNode) -> None:
        """Note the end of the connection to `node`."""
        SyncObj._SyncObj__onNodeDisconnected(self, node)

    def become_leader(self) -> None:
        """Lead: reset what is known of the peers and append the no-op of the term."""
        SyncObj._SyncObj__onBecomeLeader(self)

    def last_log_index(self) -> int:
        """Return the newest index that the commit rule and a candidate go by."""
        return self.log.last_index

    def last_log_term(self) -> int:
        """Return the term of the newest entry."""
        return self.log.last_term

    @abstractmethod
    def log_entries(
        self, first: int | None, count: int | None, max_bytes: int | None
    ) -> list[Entry]:
        """Return entries from `first` on."""

    @abstractmethod
    def send_heartbeat(self) -> None:
        """Send every peer what it can take, or at least a heartbeat."""

    @abstractmethod
    def acknowledge(
        self,
        node: PeerNode,
        *,
        next_index: int | None = None,
        reset: bool = False,
        success: bool = False,
    ) -> None:
        """Answer the entries or the heartbeat of a leader."""

    @abstractmethod
    def apply_committed(self) -> None:
        """Apply what is committed and not applied."""

    @abstractmethod
    def apply_entry(self, command: bytes, index: int = 0, term: int = 0) -> None:
        """Apply one entry."""

    @abstractmethod
    def append_submitted(self) -> None:
        """Append what was submitted."""

    def _SyncObj__onBecomeLeader(self) -> None:
        self.become_leader()

    def _SyncObj__getCurrentLogIndex(self) -> int:
        return self.last_log_index()

    def _SyncObj__getCurrentLogTerm(self) -> int:
        return self.last_log_term()

    def _SyncObj__getEntries(
        self, fromIDx: int | None, count: int | None = None, maxSizeBytes: int | None = None
    ) -> list[Entry]:
        return self.log_entries(fromIDx, count, maxSizeBytes)

    def _SyncObj__sendAppendEntries(self) -> None:
        self.send_heartbeat()

    def _SyncObj__sendNextNodeIdx(
        self,
        node: PeerNode,
        reset: bool = False,
        nextNodeIdx: int | None = None,
        success: bool = False,
    ) -> None:
        self.acknowledge(node, next_index=nextNodeIdx, reset=reset, success=success)

    def _SyncObj__applyLogEntries(self) -> bool:
        self.apply_committed()
        return False  # No heartbeat only because something was applied.

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:
        self.apply_entry(command)

    def _checkCommandsToApply(self) -> None:
        self.append_submitted()

    # --- doors that stay shut ---

    def change_members(self, request: object) -> bool:
        """Refuse the library's own change of the members: ours are configurations of the log."""
        self.membership.refuse_change(request)

    def parse_member_change(self, command: bytes) -> object:
        """Refuse an entry of the library's that changes the members."""
        self.membership.refuse_change(command)

    def load_dump(self) -> NoReturn:
        """Refuse the library's own snapshots, which are pickled."""
        raise RaftStopped("raft: refusing to load a PySyncObj dump; snapshots are the journal's")

    def _SyncObj__changeCluster(self, request: object) -> bool:
        return self.change_members(request)

    def _SyncObj__parseChangeClusterRequest(self, command: bytes) -> object:
        return self.parse_member_change(command)

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> NoReturn:
        self.load_dump()

    def _SyncObj__tryLogCompaction(self) -> None:
        """Do nothing: snapshots are taken between turns."""

    def _applyCommand(
        self, command: bytes, callback: object, commandType: int | None = None
    ) -> NoReturn:
        """Refuse the library's command queue, the only way in for entry types 0, 2 and 3."""
        raise RaftStopped(
            f"raft: refusing a command of type {commandType} in PySyncObj's own queue; "
            "commands enter through RaftNode.submit"
        )


for _plain, _private in STATE.items():
    setattr(Library, mangled(_private), vars(Library)[_plain])


def _as_peer(node: PeerNode | str) -> PeerNode:
    """Take a member as the library wants to wrap it: a PeerNode stays what it is."""
    return node if isinstance(node, PeerNode) else PeerNode(node)


def library_conf(settings: Settings) -> SyncObjConf:
    """Return the library's settings (raft.md 3.9); files, threads and forks of its own are off."""
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=True,
        appendEntriesPeriod=settings.heartbeat_seconds,
        appendEntriesBatchSizeBytes=settings.batch_bytes,
        raftMinTimeout=settings.min_timeout_seconds,
        raftMaxTimeout=settings.max_timeout_seconds,
        # An isolated leader believes in itself no longer than its followers in it (b12).
        leaderFallbackTimeout=settings.min_timeout_seconds,
        connectionTimeout=settings.connection_seconds,
        commandsQueueSize=settings.queue_commands_max,
        commandsWaitLeader=False,
        logCompactionMinEntries=10**9,
        logCompactionMinTime=10**9,
        logCompactionSplit=False,
        useFork=False,
        dynamicMembershipChange=False,
        journalFile=None,
        fullDumpFile=None,
        password=None,
        serializer=None,
    )


class LibraryLog(pysyncobj.journal.Journal):  # type: ignore[misc]  # pysyncobj ships no types
    """Adapter that the library takes for its journal."""

    def __init__(self, log: DurableLog) -> None:
        self._log = log

    def __len__(self) -> int:
        return len(self._log)

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...

    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        """Return entries by place in the log, not by index."""
        return self._log[item]

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append the no-op of a new leader."""
        self._log.add(command, index, term)

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Persist term and vote."""
        self._log.set_term(term, votedForNodeId)

    def getCurrentTerm(self) -> int:
        """Return the persisted term."""
        return self._log.term

    def getVotedForNodeId(self) -> str | None:
        """Return the vote of the persisted term."""
        return self._log.voted_for

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Note how far the log is committed."""
        self._log.note_commit(raftCommitIndex)

    def getRaftCommitIndex(self) -> int:
        """Return the newest commit index noted."""
        return self._log.commit_hint()

    def onOneSecondTimer(self) -> None:
        """Have the journal buffer its commit hint."""
        self._log.each_second()

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Keep the first `entryFrom` entries only."""
        self._log.truncate(entryFrom)

    def clear(self) -> NoReturn:
        """Refuse: entries that no snapshot holds would be lost (b02, b03)."""
        raise RaftStopped("raft: refusing to clear the log: no snapshot holds its entries")

    def deleteEntriesTo(self, entryTo: int) -> NoReturn:
        """Refuse: the head of the log is released by a snapshot only."""
        raise RaftStopped(f"raft: refusing to drop {entryTo} entries at the head of the log")

    def _destroy(self) -> None:
        """Do nothing: the owner of the journal closes it."""
