"""From a submitted command to an applied one: appended, sent, counted, committed, applied.

Owns what of the library's tick touches the log. The library's commit rule stays, and gets from
here what counts. Must not know messages and connections, which are for `core.py`, nor choose what a
peer is sent next (`replication.py`) or which member leads (`elections.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from node.journal.io.readers import LogReader
from node.peers import limits as peers_limits
from node.peers.message import COMMAND_BYTE, known_command
from node.raft import limits
from node.raft.elections import Elections
from node.raft.errors import RaftStopped
from node.raft.pysyncobj.library import LEADER
from node.raft.skipping import Skipping, why_it_raised
from node.raft.submissions import Submissions

if TYPE_CHECKING:
    from node.journal.records import Entry
    from node.raft.config import RaftConfig
    from node.raft.environment import RaftEnvironment


class CommitPath(Elections):
    """The part of a core that moves entries forward."""

    submissions_class = Submissions
    skipping_class = Skipping

    def __init__(self, config: RaftConfig, environment: RaftEnvironment) -> None:
        self._apply = environment.apply
        self._skip = environment.skip
        self._apply_most = limits.APPLY_ENTRIES_PER_TURN
        """Upper bound of entries applied in the next turn, from the time that the last ones took.
        """
        self._countable_index: int | None = None
        """Index up to which the library may count this node; set during a leader's tick only."""
        self.log_bytes = 0
        """Bytes in the log that this leader has not committed yet."""
        self._counted_index = 0
        """Index up to which `log_bytes` was reduced by what is committed."""
        self.news = True
        """Whether something has happened since the last tick that the commit rule, or another rule
        of the tick, goes by: a peer has more, a sync has ended, a connection came or went."""
        self._ticks_at = 0.0
        """When the next tick of a leader is due without news or a heartbeat."""
        super().__init__(config, environment)
        self.submissions = self.submissions_class(config, self.counters)
        self.skipping = self.skipping_class(
            environment.journal,
            environment.workers.notes,
            send=self.outbox.send_at_once,
            fail=self.fail,
        )
        self._reader = LogReader(
            environment.journal.log,
            environment.workers.reads,
            environment.wake,
            last=lambda: self.commit_index,
        )

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Remember why this node has to stop."""

    # --- the log ---

    def tick_due(self, now: float) -> bool:
        """Whether a tick of this leader could do anything: without news nothing more is committed,
        and time alone brings a heartbeat, or the end of a leadership that no majority answers."""
        return (
            self.news
            or now > self.next_heartbeat_at
            or now >= self._ticks_at
            or self.last_applied < self.commit_index
        )

    def tick(self) -> None:
        """The library's tick, in which a leader counts itself only for what its disk has."""
        self.news = False
        if self.role == LEADER:
            countable_index = self._countable_index = self.countable_index()
            if countable_index > self.commit_index + 1:
                self.pass_over_committed(countable_index)
        try:
            self.stock_tick()
        finally:
            self._countable_index = None
        self._ticks_at = self.clock() + limits.TURN_SECONDS_BUSY

    def countable_index(self) -> int:
        """Return how far the library, which counts this node for every index, counts rightly: up to
        what is durable here, or what a majority has without this node."""
        synced_index = self.log.synced_index
        if synced_index == self.log.last_index:
            return synced_index
        others_index = self.membership.reached_without_self(self.match_index.values())
        return synced_index if others_index is None else max(synced_index, others_index)

    def pass_over_committed(self, countable_index: int) -> None:
        """Spare the library's commit rule a look at each entry of a long run.

        The rule walks one index at a time and commits the newest one that a majority has in the
        current term. Where the newest entry of the run is of the current term, everything before
        it is committed with it, of whichever term (Raft, section 5.4.2), so the walk may begin one
        entry before it. Where it is of an earlier term, nothing may be passed over: an entry of
        an earlier term is never committed by counting replicas.
        """
        others_index = self.membership.reached_with_self(self.match_index.values())
        if others_index is None:
            others_index = self.log.last_index  # Alone: the disk is the only vote.
        newest = min(countable_index, others_index)
        # One short of it: the library itself commits the newest, and persists that.
        if newest - 1 > self.commit_index and self.log.term_at(newest) == self.term:
            self.commit_index = newest - 1

    def last_log_index(self) -> int:
        if self._countable_index is not None:
            return self._countable_index  # In a leader's tick only its commit rule asks.
        return self.log.last_index

    def last_log_term(self) -> int:
        return self.log.last_term

    def log_entries(
        self, first: int | None, count: int | None, max_bytes: int | None
    ) -> list[Entry]:
        """Return entries from `first` on, stopping at the byte limit before reading beyond it."""
        log = self.log
        if first is None or not log.first_index <= first <= log.last_index:
            return []
        if count == 1:
            # The commit rule and the search for a previous entry look at the term alone.
            return [(b"", first, log.term_at(first))]
        return log.entries(first, max_bytes or peers_limits.FRAME_BYTES_MAX, count)

    def send_heartbeat(self) -> None:
        """A heartbeat, with whatever each peer can take."""
        now = self.clock()
        self.next_heartbeat_at = now + self.config.heartbeat_seconds
        self._send_round(now, heartbeat=True)

    def replicate(self) -> None:
        """After a tick: send what is new at once; tell a mere commit with the next frames."""
        if self.role != LEADER:
            self.replication.end()
            return
        replication = self.replication
        if replication.level_at == self.log.last_index or not replication.wanted():
            return
        now = self.clock()
        if self._send_round(now, heartbeat=False):
            # These frames carry the commit index, so a heartbeat would add nothing.
            self.next_heartbeat_at = now + self.config.heartbeat_seconds

    def _send_round(self, now: float, *, heartbeat: bool) -> bool:
        return self.replication.send(
            self.term,
            self.commit_index,
            self.lease.next_round(now),
            heartbeat=heartbeat,
        )

    # --- applying ---

    def apply_committed(self) -> None:
        """Apply what is committed, each entry once and in order (b05, b06, b17).

        The index moves before any callback runs; an apply that raises stops the node, for its
        state may be half changed. A bounded amount per turn, in entries, bytes and time: the rest
        follows in the next, or when it was read, and in between the loop sees to everything else.
        """
        commit_index = self.commit_index
        if self._counted_index != commit_index or self.role != LEADER:
            self._count_committed(commit_index)
        first = self.last_applied + 1
        if first > commit_index or self.snapshots.restoring:
            return
        if self.equality.own_differs_index and self.rebuilds:
            return
        most = min(self._apply_most, limits.APPLY_ENTRIES_PER_TURN)
        count = min(commit_index - first + 1, most)
        until = self.clock() + limits.APPLY_SECONDS_PER_TURN
        entries = self._reader.take(first, limits.APPLY_BYTES_PER_TURN, count)
        clock, submissions, awaited = self.clock, self.submissions, self.submissions.awaited
        for command, index, term in entries:
            if index != self.last_applied + 1:
                raise RaftStopped(
                    f"raft: entry {index} cannot be applied after entry {self.last_applied}"
                )
            self.apply_entry(command, index, term)
            self.last_applied = index
            self.counters.applied_total += 1
            if awaited:
                submissions.applied(index, term)
            if clock() >= until:
                # No more are read from the disk next time than there was time for now.
                self._apply_most = index - first + 1
                return
        self._apply_most = min(2 * self._apply_most, limits.APPLY_ENTRIES_PER_TURN)

    @property
    def applying(self) -> bool:
        """Whether there is something to apply right now."""
        first = self.last_applied + 1
        if first > self.commit_index or self.snapshots.restoring or self.rebuilds:
            return False
        return not self._reader.waits(first)

    @property
    def apply_waits_for_repair(self) -> bool:
        """Whether the next entry to apply is damaged on this disk."""
        first = self.last_applied + 1
        return first <= self.commit_index and self.log.waits_for_repair(first)

    def apply_entry(self, command: bytes, index: int = 0, term: int = 0) -> None:
        """Apply an entry: ours goes to the owner, a no-op nowhere, anything else stops the node."""
        if command.startswith(COMMAND_BYTE):
            skip = self.skipping.found(index, term, command) if self.skipping.known else None
            try:
                if skip is None:
                    self._apply(index, term, memoryview(command)[1:])
                else:
                    self._skip(index, term, memoryview(command)[1:], skip)
            except Exception as error:
                raise RaftStopped(why_it_raised(index, term, command, error)) from error
        elif not known_command(command):
            raise RaftStopped(f"raft: entry {index} has unknown type {bytes(command[:1])!r}")

    def _count_committed(self, commit_index: int) -> None:
        """Keep `log_bytes` at the size of what this leader has not committed yet."""
        if self.role != LEADER:
            self.log_bytes = 0
            return
        self.log_bytes -= self.log.command_bytes(self._counted_index + 1, commit_index)
        self._counted_index = commit_index
        # Followers learn of the commit with the next entries, or a little later without any.
        self.next_heartbeat_at = min(
            self.next_heartbeat_at, self.clock() + limits.COMMIT_NOTICE_SECONDS
        )

    def append_submitted(self) -> None:
        """Append what was submitted, by count and bytes instead of by time (raft.md 3.7)."""
        submissions = self.submissions
        if not submissions.queued_bytes:
            return
        if self.role != LEADER:
            submissions.refuse_queued()
            return
        if self.transfer is not None or self.log_bytes >= self.config.uncommitted_bytes_max:
            return
        if self.full_of_unsynced:
            return
        entries, taken_bytes = submissions.take(
            self.term,
            self.log.last_index + 1,
            self.config.uncommitted_bytes_max - self.log_bytes,
        )
        self.log_bytes += taken_bytes
        self.log.extend(entries)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of the log that wait for this node's disk, in memory."""
        return self.log.gathered_end - self.log.synced_end

    @property
    def full_of_unsynced(self) -> bool:
        """Whether as many bytes wait for this node's disk as may: neither a leader's submissions
        nor a follower's entries are added to them."""
        log = self.log
        return log.gathered_end - log.synced_end >= self.config.unsynced_bytes_max

    def take_late(self) -> None:
        """Append and send what was submitted since the tick, before the turn's last sync.

        Otherwise request/response clients, which submit on the answer to their last command,
        would need two turns per command.
        """
        if self.role == LEADER:
            self.append_submitted()
            self.replicate()
