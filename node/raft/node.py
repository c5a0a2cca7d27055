"""RaftNode: the whole of node/raft for its owner, and the order of one turn (raft.md 3.5).

Owns when things happen: what a node promises leaves after its disk has it; entries travel while
the leader's own disk syncs; the owner's effects leave before the turn's last sync. Names and
habits of the library end in `pysyncobj/`, queues begin in the owner: here are bytes, indexes and
terms. Update `docs` of the turn's order with `turn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.journal.io.readers import BodyFetcher, FetchWaiter, NotCached
from node.peers.message import COMMAND_BYTE
from node.raft import limits
from node.raft.config import EntryTooLarge, PeerStatus, RaftConfig, RaftStatus
from node.raft.core import CANDIDATE, FOLLOWER, LEADER, Core, command_of
from node.raft.equality import Compared
from node.raft.errors import RaftStopped
from node.raft.lease import NEVER
from node.raft.pysyncobj import seams
from node.raft.submissions import Submission
from node.raft.transfer import TransferRefused, best_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from node.journal.snapshots.store import BodyHold
    from node.journal.writer import GroupJob
    from node.raft.config import ChangeProgress, Outcome
    from node.raft.configuration import Change, Configuration
    from node.raft.environment import RaftEnvironment
    from node.raft.equality import Mark
    from node.raft.room import Room

ROLES = {FOLLOWER: "follower", LEADER: "leader", CANDIDATE: "candidate"}


class RaftNode:
    """A member of one group. Everything runs on the caller's thread, inside `turn`, but for what
    the environment's workers do. Closes journal, transport and workers with itself."""

    core_class: type[Core] = Core

    def __init__(self, config: RaftConfig, environment: RaftEnvironment) -> None:
        self._config = config
        self._journal = environment.journal
        self._log = environment.journal.log
        self._transport = environment.transport
        self._clock = environment.clock
        self._before_sync = environment.before_sync
        self._wake = environment.wake
        self._on_role = environment.on_role
        self._workers = environment.workers
        self._fetcher = BodyFetcher(self._journal, self._workers.reads, self._read_failed)
        self._core = self.core_class(config, environment)
        repairs = self._core.repairs
        repairs.is_needed = lambda: self._fetcher.parked or self._core.apply_waits_for_repair
        repairs.on_repaired = self._repaired
        self.rooms = self._core.rooms
        """The reports of the members. `rooms.news`: the owner should look at them before
        the next second, for one has come, or much was written here; it takes that back."""
        self._announced = FOLLOWER, self.term
        self._announced_leading: int | None = None
        self._closed = False
        self._syncs_off_loop = False
        self._sync_seconds_bound = limits.SLOW_SYNC_SECONDS
        """Mean time of a sync above which the loop is not made to wait for it."""
        self._gathering = False
        self._rests_until = 0.0

    # --- work ---

    def submit(self, parts: Sequence[Buffer], done: Callable[[Outcome, int], None]) -> None:
        """Ask for one entry, made of `parts` end to end.

        `done(outcome, index)` is called exactly once, from a later turn; for COMMITTED after
        `apply(index)` returned, in the same turn; `index` is 0 for what never was in the log.
        Nothing is forwarded: on any node but the leader the outcome is NOT_LEADER. Raises
        `EntryTooLarge` and `ValueError` (empty), and then never calls `done`.
        """
        command = command_of(parts)
        size = len(command)
        if size - 1 > self._config.entry_bytes_max:
            raise EntryTooLarge(
                f"entry of {size - 1} bytes, at most {self._config.entry_bytes_max} are allowed"
            )
        if size == 1:
            raise ValueError("an entry needs at least one byte")
        core = self._core
        deadline = self._clock() + self._config.submit_seconds
        submission = Submission(command, done, deadline, core.term)
        core.submissions.add(submission, accepted=self.is_leader)
        if self._closed or core.failure is not None:
            core.submissions.abandon()
            return
        if not self._gathering:
            self._wake()

    def transfer(self, target: str, failed: Callable[[str], None], *, yields: bool = False) -> None:
        """Hand leadership to another member; what is submitted meanwhile waits, or is refused.

        It has come about when `on_role` tells that this node follows; `failed(reason)` is called,
        from a turn, when it was given up and this node still leads. `yields`: from then on this
        node lets the others stand first, for a while. Raises `TransferRefused`.
        """
        core = self._core
        core.enter()
        if not self.is_leader:
            raise TransferRefused(f"{self._config.name} does not lead; ask the leader")
        if core.transfer is not None:
            raise TransferRefused(f"a transfer to {core.transfer.target.id} is under way already")
        core.begin_transfer(target, failed, yields=yields)
        self._wake()

    def change_members(self, change: Change) -> Configuration:
        """Begin a change of the members; return its first configuration, which is in the log. The
        leader takes one step after the other from now on, and so does the next one: it has ended
        where `configuration` wants no others and is committed. Raises `ChangeRefused`."""
        self._core.enter()
        return self._core.begin_change(change)

    def undo_change(self) -> Configuration:
        """Give the change under way up: the voters stay as they are by now, and learners go. Return
        that configuration. Raises `ChangeRefused`."""
        self._core.enter()
        return self._core.undo_change()

    def move_member(
        self, name: str, address: tuple[str, int], client: str, http: str
    ) -> Configuration:
        """Give a voter other addresses; return that configuration. Raises `ChangeRefused`."""
        self._core.enter()
        return self._core.move_member(name, address, client, http)

    def change_progress(self) -> ChangeProgress | None:
        """The change under way, as this node sees it; None where there is none."""
        return self._core.change_progress()

    @property
    def configuration(self) -> Configuration:
        """The newest configuration of the log, committed or not; number 0: the log has none."""
        return self._core.configurations.newest

    @property
    def configuration_committed(self) -> bool:
        """Whether that configuration stays."""
        return self._core.members_committed

    @property
    def committed_term(self) -> int:
        """Term of the newest entry that is committed: what an older one had appended beyond it is
        lost for good where it is not in this log."""
        return self._core.log.term_at(self._core.commit_index)

    @property
    def removed(self) -> bool:
        """Whether this node has learned that it is a member no more, for good."""
        return self._core.removed

    @property
    def transferring(self) -> bool:
        """Whether this leader is handing over."""
        return self._core.transfer is not None

    def successor(self) -> str | None:
        """The member that could take over soonest; None while there is none, or no leader here."""
        return (
            best_target(self._core.voters_progress(), self.last_index) if self.is_leader else None
        )

    def turn(self) -> float:
        """Run one turn of the loop, and return the seconds until the next one is due at the latest.

        Raises `RaftStopped` when the node cannot go on; every turn after that does too. A turn of
        a closed node does nothing.
        """
        if self._closed:
            return limits.TURN_SECONDS_IDLE
        core = self._core
        if seams.running.of is not core:
            core.enter()
        try:
            if core.failure is not None:
                raise core.failure
            return self._turn()
        except RaftStopped as stopped:
            self._stop(stopped)
            raise
        except Exception as error:
            core.fail(error)
            self._stop(error)
            assert core.failure is not None
            raise core.failure from error

    # Most turns find nothing to do in most steps: whether there is, is asked here, of plain
    # attributes, before a step is called.

    def _turn(self) -> float:
        core, log = self._core, self._log
        if (core.role, core.term) != self._announced:
            self._announce()
        if (log.recent_sync_seconds > self._sync_seconds_bound) != self._syncs_off_loop:
            self._judge_disk()
        if log.dirty or core.outbox.frames:
            self._sync()
        if self._rests_until and core.merely_follows():
            rest = self._rests_until - self._clock()
            if rest > 0:
                return max(rest, limits.TURN_SECONDS_MIN)
        self._gathering = True  # What is submitted before the last sync is taken by this turn.
        self._move_on()
        self._gathering = False
        if core.submissions.refused:
            self._wake()  # The next turn tells them.
        appended = log.dirty
        if appended or core.outbox.frames:
            self._sync()
        if core.failure is not None:
            raise core.failure
        # Alone, the next turn commits what this one made durable; a sync off the event loop asks
        # for that turn itself.
        again = appended and core.membership.alone and not log.dirty
        return self._end_turn(again=again)

    def _move_on(self) -> None:
        """The steps between the first sync of a turn and its last."""
        core, now = self._core, self._clock()
        submissions = core.submissions
        if submissions.refused:
            submissions.answer_refused()
        if now >= submissions.expires_at:
            submissions.expire(now)
        if core.role != LEADER:
            core.prepare_election()
        # The commit rule runs first in the tick, and counts for the leader what is durable.
        if core.role != LEADER or core.tick_due(now):
            core.tick()
            if (core.role, core.term) != self._announced:
                self._announce()
        else:
            core.append_submitted()
        if core.changes_due:
            core.advance_change()
        if core.role != LEADER or core.replication.level_at != self._log.last_index:
            core.replicate()
        if core.role == LEADER and now >= core.say_synced_at:
            core.tell_synced()
        if core.sync_began_at is not None:
            core.leave_hanging_disk()
        if core.equality.own_differs_index:
            core.leave_as_differing()
        if core.transfer is not None:
            core.advance_transfer()
        self._before_sync()
        if submissions.queued_bytes:
            core.take_late()

    def _end_turn(self, *, again: bool) -> float:
        """After the last sync: a slice for snapshots, and the seconds until the next turn."""
        core, log, now = self._core, self._log, self._clock()
        snapshots = core.snapshots
        busy = False
        if now >= snapshots.rests_until or log.gathered_end >= snapshots.rests_below:
            busy = core.work_on_snapshots()
        if now >= core.doubts.due:
            busy = core.step_doubts() or busy
        if core.undecided_index and self._announced_leading is not None:
            self._stop_serving()
        if now >= core.scrubbing.due or now >= core.repairs.due:
            core.look_after_disk()
        if core.role == LEADER:
            self._rests_until = 0.0
            busy = busy or (
                core.replication.level_at != log.last_index and core.replication.wanted()
            )
        else:
            rests = core.last_applied == core.commit_index and core.merely_follows()
            self._rests_until = now + limits.FOLLOW_SECONDS if rests else 0.0
        if again or (core.last_applied < core.commit_index and core.applying):
            return 0.0
        if busy:  # Not at once: between two slices the loop reads what has come.
            return limits.TURN_SECONDS_MIN
        if core.role == LEADER:
            due, longest = core.next_heartbeat_at, limits.TURN_SECONDS_BUSY
        else:
            due, longest = core.election_deadline, limits.TURN_SECONDS_IDLE
        return min(max(due - now, limits.TURN_SECONDS_MIN), longest)

    def _judge_disk(self) -> None:
        """Choose whether fsync runs on the loop or on a worker thread."""
        log = self._log
        slow = self._syncs_off_loop = log.recent_sync_seconds > self._sync_seconds_bound
        self._sync_seconds_bound = limits.FAST_SYNC_SECONDS if slow else limits.SLOW_SYNC_SECONDS
        # Alone, there is no peer whose answer comes after the sync.
        log.defers_vote_sync = slow and not self._core.membership.alone

    def _sync(self) -> None:
        """Make everything gathered durable, then let go what stands on it.

        A slow disk does it off the event loop: turns go on, and what stands on a sync waits for it.
        """
        core, log = self._core, self._log
        if not self._syncs_off_loop:
            log.sync()
        elif (job := log.begin_sync()) is not None:
            core.sync_began_at = self._clock()
            self._workers.syncs.run(job.run, lambda _: self._synced(job))
        core.news = True
        if core.role == LEADER and log.gathered_end >= core.rooms.grown_end:
            core.rooms.news = True
        core.outbox.release(core.term)

    def _synced(self, job: GroupJob) -> None:
        """A sync off the event loop has ended: its promises leave now, the commit in a turn."""
        if self._closed:
            return
        core = self._core
        core.enter()
        core.sync_began_at = None
        core.news = True
        try:
            self._log.finish_sync(job)
            core.outbox.release(self.term)
        except Exception as error:
            core.fail(error)
        self._wake()

    def _announce(self) -> None:
        """Tell the owner of a change of role or term before anything happens in it. Before an owner
        that is to lead, and goes by the newest entry, a damaged one is repaired."""
        core = self._core
        if core.role == LEADER and self._newest_command() is None:
            return
        state, term = self._announced = core.role, core.term
        self._announced_leading = term if state == LEADER else None
        self._on_role(self.role, term)

    def _stop_serving(self) -> None:
        """Lead the log on, with an owner that serves no client."""
        self._announced_leading = None
        self._on_role(ROLES[FOLLOWER], self.term)

    def _stop(self, error: Exception) -> None:
        """Nothing further will be known of what was submitted."""
        self._core.fail(error)
        self._core.submissions.abandon()

    # --- reading ---

    def read(self, index: int) -> memoryview:
        """Payload of an entry in the log, or of an older one that the state points to (empty for a
        no-op). IndexError if it is not there."""
        return memoryview(self._log.read(index))[1:]

    def read_cached(self, index: int) -> memoryview:
        """The same from memory alone. `NotCached` where it has to be fetched."""
        command = self._journal.read_cached(index)
        if command is None:
            raise NotCached(f"entry {index} is not cached; fetch it first")
        self._fetcher.used(index)
        return memoryview(command)[1:]

    def fetch(self, waiter: FetchWaiter) -> None:
        """Have the entries that `waiter` needs read off the event loop, and notify it once when
        they are cached; never again after `drop_fetch`. What cannot be read ends the node, as all
        that the journal cannot do."""
        if not self._closed and self._core.failure is None:
            self._fetcher.ask(waiter)

    def drop_fetch(self, waiter: FetchWaiter) -> None:
        """Forget the request of `waiter`; harmless where there is none."""
        self._fetcher.drop(waiter)

    def _repaired(self) -> None:
        self._fetcher.repaired()
        self._core.ask_turn()

    def _read_failed(self, error: Exception) -> None:
        self._core.fail(error)
        self._wake()

    def hold_bodies(self) -> BodyHold:
        """Keep every entry that the state of now points to readable, until that hold ends: by
        `let_go`, or where the disk's room is short."""
        return self._journal.hold()

    def let_go(self, hold: BodyHold) -> None:
        """End a hold, and let go of what it has kept. Harmless when repeated."""
        if not hold.ended:
            hold.end()
            self._core.snapshots.clean_up()
            self._wake()

    def last_entry_payload(self) -> memoryview | None:
        """Payload of the newest submitted entry in the log that is not applied yet, committed or
        not; None without one."""
        command = self._newest_command()
        return memoryview(command)[1:] if command else None

    def _newest_command(self) -> bytes | None:
        """The command of that entry, empty without one; None where it is damaged on this disk."""
        log = self._log
        first = max(self._core.last_applied + 1, log.first_whole_index)
        for index in range(log.last_index, first - 1, -1):
            if log.size_at(index) > 1:
                command = log.read_or_note(index)
                if command is None or command.startswith(COMMAND_BYTE):
                    return command
        return b""

    @property
    def role(self) -> str:
        """leader, follower or candidate."""
        return ROLES[self._core.role]

    @property
    def role_cause(self) -> str:
        """Why this node took on its role or term last, for people: it starts no sentence."""
        return self._core.role_cause

    @property
    def is_leader(self) -> bool:
        """Whether this node leads and its owner was notified. Another node may lead a later
        term already: `led_at` says when that was impossible. A node that is closed
        or has failed does not lead."""
        core = self._core
        return (
            core.role == LEADER
            and core.term == self._announced_leading
            and not self._closed
            and core.failure is None
        )

    @property
    def term(self) -> int:
        """The current term."""
        return self._core.term

    @property
    def leader(self) -> str | None:
        """Name of the leader as last heard; may be out of date."""
        node = self._core.leader
        return None if node is None or self.undecided else node.id

    def knows_leader(self) -> bool:
        """Whether a leader is known, and the connection to it has not ended since it was heard."""
        core = self._core
        return core.leader is not None and not core.misses_leader()

    @property
    def commit_index(self) -> int:
        """Index of the newest entry known to be committed."""
        return self._core.commit_index

    @property
    def applied_index(self) -> int:
        """Index of the newest entry applied."""
        return self._core.last_applied

    @property
    def last_index(self) -> int:
        """Index of the newest entry in the log."""
        return self._log.last_index

    @property
    def uncommitted_bytes(self) -> int:
        """Bytes submitted here, queued or in the log, that are not committed yet."""
        return self._core.log_bytes + self._core.submissions.queued_bytes

    def waits_for(self) -> str | None:
        """Describe what a member that lost its journal waits for before it votes and counts again;
        None for every other member."""
        return self._core.waits_for()

    def lease_until(self) -> float:
        """The instant on `clock` until which this leader may make promises (raft.md 3.8).

        0.0 while this node does not lead or nothing is proven; an instant that has passed means
        no lease either.
        """
        return self._core.lease_until() if self.is_leader else 0.0

    def led_at(self) -> float:
        """The newest instant on `clock` at which this node led for certain: a majority answered a
        round sent then, so no later leader had been elected (raft.md 3.8). -inf without one."""
        return self._core.led_at() if self.is_leader else NEVER

    def ask_round(self) -> None:
        """Send a round at once, so that `led_at` soon says whether this node leads now."""
        if self.is_leader:
            self._core.ask_round()

    def tell_room(self, *, low_bytes: int, held_bytes: int, high_bytes: int) -> None:
        """Set the owner's part of what this node reports: its marks, and the memory it holds."""
        rooms = self._core.rooms
        rooms.low_bytes, rooms.held_bytes, rooms.high_bytes = low_bytes, held_bytes, high_bytes

    def note_mark(self, mark: Mark) -> None:
        """Take a mark of the owner's state, for the leader to compare with those of the others."""
        self._core.note_mark(mark)

    @property
    def differs(self) -> bool:
        """Whether this node's state is known to be another one than that of a majority: it answers
        no client then, and does not lead."""
        return bool(self._core.equality.own_differs_index) or self.undecided

    @property
    def undecided(self) -> bool:
        """Whether this node leads members whose states differ, and none is known to be right."""
        return bool(self._core.undecided_index) and self._core.role == LEADER

    @property
    def disk_low_bytes(self) -> int:
        """The low mark of the journal's disk: the operator's, or a part of a small disk."""
        return self._journal.low_bytes(self._config.disk_low_bytes)

    def tell_leader(self, note: bytes) -> None:
        """Send a note to this node's counterpart on the leader, once: it may be lost, and members
        of 0.1.0 get none. At most `NOTE_BYTES_MAX`."""
        core = self._core
        leader = core.leader
        if leader is not None and self.role == "follower":
            message = {"type": "note", "term": core.term, "data": note}
            core.outbox.send_at_once(leader, message)

    def notes(self, since: float) -> dict[str, bytes]:
        """The newest note of each other member, by name, of those that came at `since` or later
        while this node leads."""
        found = self._core.notes.items() if self.is_leader else ()
        return {name: note for name, (note, at) in found if at >= since}

    def own_room(self) -> Room:
        """The room that this node has, measured now."""
        return self._core.own_room()

    def peer_rooms(self) -> dict[str, Room]:
        """The reports of the other members that count, by name; none where this node does not
        lead."""
        core = self._core
        if not self.is_leader:
            return {}
        now = self._clock()
        found = {
            node.id: core.room_of(node, progress, now)
            for node, progress in core.voters_progress().items()
        }
        return {name: room for name, room in found.items() if room is not None}

    def uncounted(self) -> list[str]:
        """The other voters whose word does not count with this leader: they recover, or have a
        journal that is not theirs (raft.md 1.43)."""
        core = self._core
        return [
            node.id
            for node, progress in core.voters_progress().items()
            if not progress.counted or core.is_judged_less(node)
        ]

    def status(self) -> RaftStatus:
        """A snapshot for operators and metrics."""
        core = self._core
        now = self._clock()
        leads = self.role == "leader"
        snapshot = self._journal.snapshot
        rooms = self.peer_rooms()
        peers = []
        for node, progress in core.replication.peers.items():
            match_index = progress.match_index if leads else 0
            compared = core.equality.of(node.id) if leads else Compared()
            peers.append(
                PeerStatus(
                    name=node.id,
                    connected=core.peer_connected(node),
                    match_index=match_index,
                    lag_entries=self.last_index - match_index if leads else 0,
                    in_flight_bytes=progress.in_flight_bytes if leads else 0,
                    probing=leads and progress.probing,
                    snapshot=progress.sending.how_far() if leads and progress.sending else None,
                    counted=progress.counted or not leads,
                    room=rooms.get(node.id),
                    equal_index=compared.equal_index,
                    differs_index=compared.differs_index,
                    whole_index=compared.whole_index,
                    learner=node not in core.match_index,
                )
            )
        return RaftStatus(
            name=self._config.name,
            role=self.role,
            term=self.term,
            leader=self.leader,
            commit_index=self.commit_index,
            applied_index=self.applied_index,
            last_index=self.last_index,
            durable_end=self._durable_end(),
            snapshot_index=0 if snapshot is None else snapshot.index,
            uncommitted_bytes=self.uncommitted_bytes,
            lease_seconds=max(0.0, self.lease_until() - now),
            journal=self._journal.stats(),
            peers=tuple(peers),
            recovering=self.waits_for(),
            differs_index=core.equality.own_differs_index
            or (core.undecided_index if self.undecided else 0),
            undecided=self.undecided,
            yield_seconds=core.yield_seconds(),
            scrub=core.scrubbing.stats(),
            counters=core.counters,
        )

    def _durable_end(self) -> tuple[int, int] | None:
        log = self._log
        return (log.last_term, log.last_index) if log.synced_index >= log.last_index else None

    # --- life ---

    async def start(self) -> None:
        """Open the listener and begin to dial. Raises OSError where the address is taken."""
        await self._transport.start()

    async def close(self) -> None:
        """End in order: connections, outstanding submits (UNKNOWN), journal and its lock."""
        if self._closed:
            return
        self._closed = True
        await self._transport.close()
        self._core.enter()
        self._core.submissions.abandon()
        self._workers.close()
        self._core.snapshots.close()
        self._core.scrubbing.close()
        self._core.repairs.close()
        self._core.doubts.close()
        self._journal.close()
