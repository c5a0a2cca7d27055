"""From a submitted command to an applied one: appended, sent, counted, committed, applied.

Owns what of the library's tick touches the log. Its commit rule stays, and is told here what
counts; its names appear here mangled, as in `syncobj.py`, which derives from this and owns messages
and connections. What a peer is sent next is for `progress.py`, who may lead for `elections.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.peers import limits as peers_limits
from node.peers.message import COMMAND_BYTE, known_command
from node.raft import limits
from node.raft.elections import LEADER, Elections
from node.raft.errors import RaftStopped, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.io.log_reader import LogReader
    from node.journal.records import Entry
    from node.raft.submissions import Submissions


class Committing(Elections):
    """The part of a core that brings entries on. `Core.__init__` sets what is declared here."""

    _SyncObj__newAppendEntriesTime: float

    submissions: Submissions
    log_bytes: int
    """What this leader has not committed yet."""
    _feed: LogReader
    _apply: Callable[[int, int, memoryview], None]
    _apply_most: int
    """How many entries the next turn applies at most, by the time that the last ones took."""
    _countable_index: int | None
    """Up to where the library may count this node: told in a leader's tick alone."""
    _counted_index: int
    """Up to where `log_bytes` was reduced by what is committed."""

    # --- the log ---

    def tick(self) -> None:
        """The library's tick, in which a leader counts itself only for what its disk has."""
        if self._SyncObj__raftState == LEADER:
            self._countable_index = self.countable_index()
            self._pass_over_committed(self._countable_index)
        try:
            self.doTick(0)
        finally:
            self._countable_index = None

    def countable_index(self) -> int:
        """How far the library, which counts this node for every index, counts rightly: up to
        what is durable here, or what a majority has without this node."""
        synced_index = self.journal.synced_index
        if synced_index == self.journal.last_index:
            return synced_index
        matches = sorted(self._SyncObj__raftMatchIndex.values(), reverse=True)
        others = (len(self.nodes) + 1) // 2
        return max(synced_index, matches[others]) if others < len(matches) else synced_index

    def _pass_over_committed(self, countable_index: int) -> None:
        """Spare the library a look at each entry: of a run that a majority has it is asked about
        the newest, if that is of the own term, for then all before are committed with it."""
        newest = min(countable_index, self._others_index())
        if (
            newest - 1 > self._SyncObj__raftCommitIndex
            and self.journal.term_at(newest) == self._SyncObj__raftCurrentTerm
        ):
            self._SyncObj__raftCommitIndex = newest - 1

    def _others_index(self) -> int:
        """Up to which index enough others have the log for a majority with this node; alone the
        end of the log."""
        matches = sorted(self._SyncObj__raftMatchIndex.values(), reverse=True)
        needed = (len(self.nodes) + 1) // 2
        return matches[needed - 1] if needed else self.journal.last_index

    def _SyncObj__getCurrentLogIndex(self) -> int:
        if self._countable_index is not None:
            return self._countable_index  # In a leader's tick only its commit rule asks.
        return self.journal.last_index

    def _SyncObj__getCurrentLogTerm(self) -> int:
        return self.journal.last_term

    def _SyncObj__getEntries(
        self, fromIDx: int | None, count: int | None = None, maxSizeBytes: int | None = None
    ) -> list[Entry]:
        """Entries from an index on, stopping at the byte limit before reading what is beyond."""
        journal = self.journal
        if fromIDx is None or not journal.first_index <= fromIDx <= journal.last_index:
            return []
        if count == 1:
            # The commit rule and the search for a previous entry look at the term alone.
            return [(b"", fromIDx, journal.term_at(fromIDx))]
        return journal.entries(fromIDx, maxSizeBytes or peers_limits.FRAME_BYTES_MAX, count)

    def _SyncObj__sendAppendEntries(self) -> None:
        """A heartbeat, with whatever each peer can take."""
        now = self.clock()
        self._SyncObj__newAppendEntriesTime = now + self.config.heartbeat_seconds
        self._send_round(now, heartbeat=True)

    def replicate(self) -> None:
        """After a tick: send what is new at once; tell a mere commit with the next frames."""
        if self._SyncObj__raftState != LEADER:
            self.replicator.end()
            return
        now = self.clock()
        if self.replicator.wanted() and self._send_round(now, heartbeat=False):
            # Nobody needs a heartbeat to hear of a commit that these frames have told.
            self._SyncObj__newAppendEntriesTime = now + self.config.heartbeat_seconds

    @property
    def sending_on(self) -> bool:
        """Whether a peer can take more than one turn may send."""
        return self._SyncObj__raftState == LEADER and self.replicator.wanted()

    def _send_round(self, now: float, *, heartbeat: bool) -> bool:
        return self.replicator.send(
            self._SyncObj__raftCurrentTerm,
            self._SyncObj__raftCommitIndex,
            self.lease.next_round(now),
            heartbeat=heartbeat,
        )

    # --- applying ---

    def _SyncObj__applyLogEntries(self) -> bool:
        """Apply what is committed, each entry once and in order (b05, b06, b17).

        The index moves before any callback runs; an apply that raises stops the node, for its
        state may be half changed. A bounded amount per turn, in entries, bytes and time: the rest
        follows in the next, or when it was read, and in between the loop sees to everything else.
        """
        commit_index = self._SyncObj__raftCommitIndex
        self._count_committed(commit_index)
        first = self._SyncObj__raftLastApplied + 1
        if first > commit_index or self.snapshots.restoring:
            return False
        most = min(self._apply_most, limits.APPLY_ENTRIES_PER_TURN)
        count = min(commit_index - first + 1, most)
        until = self.clock() + limits.APPLY_SECONDS_PER_TURN
        entries = self._feed.take(first, limits.APPLY_BYTES_PER_TURN, count)
        clock, submissions, awaited = self.clock, self.submissions, self.submissions.awaited
        for command, index, term in entries:
            if index != self._SyncObj__raftLastApplied + 1:
                raise RaftStopped(f"raft: entry {index} follows {self._SyncObj__raftLastApplied}")
            self._SyncObj__doApplyCommand(command, index, term)
            self._SyncObj__raftLastApplied = index
            self.counters.applied_total += 1
            if awaited:
                submissions.applied(index, term)
            if clock() >= until:
                # No more are read from the disk next time than there was time for now.
                self._apply_most = index - first + 1
                return False
        self._apply_most = min(2 * self._apply_most, limits.APPLY_ENTRIES_PER_TURN)
        return False

    @property
    def applying(self) -> bool:
        """Whether there is something to apply right now."""
        first = self._SyncObj__raftLastApplied + 1
        if first > self._SyncObj__raftCommitIndex or self.snapshots.restoring:
            return False
        return not self._feed.waits(first)

    def _SyncObj__doApplyCommand(self, command: bytes, index: int = 0, term: int = 0) -> None:
        """One entry: ours goes to the owner, a no-op nowhere, anything else stops the node."""
        if command.startswith(COMMAND_BYTE):
            try:
                self._apply(index, term, memoryview(command)[1:])
            except Exception as error:
                raise RaftStopped(f"raft: applying entry {index}: {describe(error)}") from error
        elif not known_command(command):
            raise RaftStopped(f"raft: entry {index} has unknown type {bytes(command[:1])!r}")

    def _count_committed(self, commit_index: int) -> None:
        """Keep `log_bytes` at the size of what this leader has not committed yet."""
        if self._SyncObj__raftState != LEADER:
            self.log_bytes = 0
            return
        if self._counted_index == commit_index:
            return
        self.log_bytes -= self.journal.command_bytes(self._counted_index + 1, commit_index)
        self._counted_index = commit_index
        # Followers learn of the commit with the next entries, or a little later without any.
        self._SyncObj__newAppendEntriesTime = min(
            self._SyncObj__newAppendEntriesTime, self.clock() + limits.COMMIT_NOTICE_SECONDS
        )

    def _checkCommandsToApply(self) -> None:
        """Append what was submitted, by count and bytes instead of by time (raft.md 3.7)."""
        submissions = self.submissions
        if self._SyncObj__raftState != LEADER:
            submissions.refuse_queued()
            return
        if self.transfer is not None or self.log_bytes >= self.config.uncommitted_bytes_max:
            return
        entries, taken_bytes = submissions.take(
            self._SyncObj__raftCurrentTerm,
            self.journal.last_index + 1,
            self.config.uncommitted_bytes_max - self.log_bytes,
        )
        self.log_bytes += taken_bytes
        self.journal.extend(entries)

    def take_late(self) -> None:
        """What was submitted since the tick is appended and sent before the turn's sync too: a turn
        for it alone would be half of all where who has an answer submits the next."""
        if self.submissions.queued_bytes and self._SyncObj__raftState == LEADER:
            self._checkCommandsToApply()
            self.replicate()
