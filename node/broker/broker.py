"""The broker of one node: between its clients and the replicated log.

Owns its connections and the order in which the parts act: entries applied on every node, and on the
leader requests gathered, replies and effects carried out, time looked at. State that ends with the
leadership lives in `Leadership`. Must not know how Raft works, how sockets are listened on, or the
process: `node/server.py` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fifo.machine.contract import Machine
from fifo.wire import Code, Frame, RemoteProtocolError
from fifo.wire.messages import Authenticate, Error, Hello, Message, Ok, Ping, Pong, Status
from node.broker import entry, limits, log_users, unreached, views
from node.broker.about import About
from node.broker.alarms import Alarms
from node.broker.audit import AUDITED, Auditing, AuditLog
from node.broker.clock import Clocks, ClusterClock
from node.broker.connections import listener
from node.broker.connections.authentication import Authentication, Denied
from node.broker.connections.connection import Connection
from node.broker.connections.handshake import Handshake, Identity
from node.broker.connections.input_turns import InputTurns
from node.broker.connections.registry import Connections
from node.broker.context import Context
from node.broker.counters import Counters
from node.broker.digests import Digests
from node.broker.leadership import Leadership
from node.broker.machine_host import MachineHost
from node.broker.members import Members
from node.broker.permissions import Rights
from node.broker.pins import Pins
from node.broker.quotas import Quotas
from node.broker.replay import Replay
from node.broker.requests.pinned import PINNED, Pinned
from node.broker.requests.table import HANDLERS, VERBS
from node.broker.role_log import RoleLog
from node.broker.stretches import Stretches
from node.broker.turns import Turns
from node.broker.unreached import Complaints, Moves
from node.broker.upgrade import Upgrade
from node.broker.views import View
from node.config import LimitSettings
from node.journal.skips import Skip
from node.raft import Mark, RaftNode, Seldom, TransferRefused

logger = logging.getLogger(__name__)


class Broker:
    """Everything of a node above Raft and below its sockets; the owner of its connections."""

    def __init__(
        self,
        identity: Identity,
        settings: LimitSettings,
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        entropy: Callable[[int], bytes],
        turns: Turns,
        authentication: Authentication,
        stopwatch: Callable[[], float],
        stretches: Stretches,
        connections_max: int = limits.CONNECTIONS_MAX,
        taken_over: Callable[[], None] = lambda: None,
    ) -> None:
        """`now`: monotonic seconds, the clock of Raft's lease too; `stopwatch`: seconds, for what
        takes microseconds; `taken_over` is called when the state was replaced by that of a
        snapshot."""
        self._identity = identity
        self._settings = settings
        self.alarms = Alarms(settings, identity.node, now)
        self.roles = RoleLog()
        self._now = now
        self._entropy = entropy
        self._turns = turns
        self._authentication = authentication
        self._state_taken_over = taken_over
        self._raft: RaftNode
        self._upgrade: Upgrade
        self._members: Members
        self._handshake: Handshake
        self._context: Context
        self.leadership: Leadership | None = None
        self._started_at = self._disk_looked_at = now()
        self._refusals = Seldom(now)
        self._complaints = Complaints(self._other_leads, now)
        self._moves = Moves(now)
        self.audit: AuditLog | None = None
        self.clock = ClusterClock(now)
        self._clocks = Clocks(now, wall_ms, self.clock)
        self.counters = Counters()
        self.connections = Connections(
            turns, connections_max, settings.memory_high_bytes, self.counters.over_quota
        )
        self.about = About(wall_ms, connections_max)
        self.stretches = stretches
        self._input = InputTurns(stopwatch, stretches, lambda kind: VERBS.get(kind, "frame"))
        # What a connection asks for that others do, without a call in between: see `Owner`.
        self.arrived = self._input.arrived
        self.to_handle = self._input.queue
        self.to_flush = self.connections.to_flush
        self.to_watch = self.connections.watch
        self.host = MachineHost(Machine(), self._read, self._taken_over, self._marked)
        place = sum(name < identity.node for name, _ in identity.nodes)
        self.digests = Digests(place, lambda: self.host.machine, now, self._marked)
        self.host.name_digest = self.digests.named
        self._pins: Pins | None = None
        """None before `attach`: the newest snapshot is taken over before that."""
        self._users_revision = 0
        """Of the users that hold: 0 while those of the file do."""

    def attach(self, raft: RaftNode, upgrade: Upgrade, members: Members) -> None:
        """Connect this broker to the Raft node under it, before anything else."""
        self._raft = raft
        self._upgrade = upgrade
        self._members = members
        upgrade.follow(self.host.machine)
        self.alarms.disk_low_bytes = raft.disk_low_bytes
        self._handshake = Handshake(
            self._identity, raft, self.connections, self._authentication,
            lambda: self.leadership, self._now, self._complaints,
        )  # fmt: skip
        self._context = Context(
            self._identity.node, raft, self.host, self._clocks, self._turns, self.counters,
            self._settings, self.alarms, self._entropy, self._authentication.rights_of,
            self._authentication.users, self._authentication.people, self.connections.of_user,
            lambda: self.audit, upgrade, members,
        )  # fmt: skip

        self._pins = pins = Pins(
            self._identity.node, raft, lambda: self.host.machine, self._now, self._entropy,
            lambda: raft.own_room().free_bytes < raft.disk_low_bytes,
        )  # fmt: skip
        self._pinned = Pinned(
            self._identity.node, pins, self.host.read_area, self._read, self._now,
            self._clocks.wall_ms, lambda: self.about.configuration,
        )  # fmt: skip

    def keep_audit(self, log: AuditLog, known: tuple[int, int]) -> None:
        """Write the audit log from here on; `known`: the id of its last line."""
        self.audit = log
        self.host.auditing = Auditing(lambda: self.host.machine, log.write, known)

    def _read(self, index: int) -> memoryview:
        return self._raft.read_cached(index)

    def replay(self) -> Replay:
        """A second machine, to which Raft applies the log once more."""
        return Replay(self._read)

    def _marked(self, mark: Mark) -> None:
        self._raft.note_mark(mark)

    def _taken_over(self) -> None:
        """Follow the cluster time of a snapshot's state, which has replaced this node's."""
        assert self.leadership is None, "a leader has every committed entry"
        self.clock.follow(self.host.machine.cluster_time_ms)
        self.digests.replaced()
        if self._pins is not None:
            self._pins.replaced()
            self._upgrade.follow(self.host.machine)
        self._state_taken_over()

    @property
    def led(self) -> bool:
        """Whether this node leads, and its own `lead` is applied."""
        return self.leadership is not None and self.leadership.led

    async def current(self) -> bool:
        """Wait until answers from memory are certain to be current; False where this node does not
        lead, or may not."""
        leadership = self.leadership
        return leadership is not None and leadership.led and await leadership.reads.current()

    # --- Raft's calls -----------------------------------------------------------------------------

    def on_role(self, role: str, term: int) -> None:
        """Follow a change of this node's role or term. A leader's first entry is `lead(term)`."""
        cause = self._raft.role_cause
        logger.info("event=role role=%s term=%d cause=%s", role, term, cause)
        self.roles.note(self._clocks.wall_ms(), role, term, cause)
        if self.leadership is not None:
            self._resign(self.leadership)
        if role == "leader":
            last = self._raft.last_entry_payload()
            stamp_ms = 0 if last is None else entry.stamp_of(last)
            # Entries before a snapshot are no longer in the log, but cluster time went on in them.
            self.clock.stand(max(stamp_ms, self.host.machine.cluster_time_ms))
            # Nothing was written before: there is no older release to go back to.
            first = last is None and not self.host.machine.cluster_time_ms
            self.leadership = Leadership(self._context, self._handshake, term, first=first)
            self.leadership.propose_lead()
            self._moves.begin()

    def _resign(self, leadership: Leadership) -> None:
        """Drop the term and redirect its clients, which resume their sessions elsewhere.

        Entries that were applied while this node led are answered first, because they are
        committed. All other requests stay unanswered: the client retries, by number.
        """
        self.carry_out()
        self.leadership = None
        self.alarms.reported({})
        leadership.stop()
        self.clock.resign()
        for connection in self.connections:
            if connection.said_hello and not connection.observer:
                moved = connection.session is not None
                connection.close(self._handshake.redirect(moved=moved))

    def apply(self, index: int, term: int, payload: memoryview) -> None:
        """Apply one committed entry, on every node; a leader keeps its outcome."""
        if self._pins is not None and index > self._pins.awaits:
            self._pins.reaches(index)
        unpacked, batch, outcome = self.host.apply(index, payload)
        if unpacked.machine_version > self._upgrade.used:
            self._upgrade.follow(self.host.machine)
        if self.leadership is None:
            self.clock.follow(unpacked.stamp_ms)
        else:
            self.leadership.applied(index, batch, outcome)

    def skip(self, index: int, term: int, payload: memoryview, skip: Skip) -> None:
        """Pass over one committed entry, on every node: nothing of it is done, none is answered."""
        if self._pins is not None and index > self._pins.awaits:
            self._pins.reaches(index)
        self.host.skip(index, payload, skip)

    # --- one turn ---------------------------------------------------------------------------------

    def before_turn(self, leadership: Leadership) -> None:
        """As leader, submit requests gathered since the last turn, if they are due."""
        if self._raft.rooms.news:
            self._look_at_room()
        if leadership.proposals.batcher.gathered_bytes:
            leadership.proposals.flush()

    def after_turn(self) -> float | None:
        """Carry out the rest of the turn, send all waiting output, and read on or not, by the size
        of what is gathered; seconds until that needs a turn, or None."""
        leadership = self.leadership
        if self.connections.waiting or (leadership is not None and leadership.reads.waiting):
            self.carry_out()  # What was applied in this turn has been, before its last sync.
        if self.host.machine.users_revision != self._users_revision:
            self.follow_users()  # After the answers: the change may end its own connection.
            self.flush()
        if self._handshake.waiting:
            self._handshake.look()
        if self._pinned.waiting:
            self._pinned.look()
        proposals = None if self.leadership is None else self.leadership.proposals
        gathered_bytes = 0 if proposals is None else proposals.batcher.gathered_bytes
        if self.connections.reading:
            if gathered_bytes > limits.GATHERED_BYTES_MAX:
                self.connections.stop_reading()
        elif gathered_bytes <= limits.GATHERED_BYTES_MAX // 2:
            self.connections.start_reading()
        return proposals.wait() if proposals is not None and gathered_bytes else None

    def carry_out(self) -> None:
        """Answer and deliver what was applied in this turn; then one write per connection."""
        leadership = self.leadership
        if leadership is not None and (leadership.proposals.outcomes or leadership.reads.waiting):
            leadership.carry_out()
        if self.connections.waiting:
            self.connections.flush()

    def flush(self) -> None:
        """Send waiting output, in one write per connection."""
        self.connections.flush()

    # --- time -------------------------------------------------------------------------------------

    def look(self, gap_s: float) -> None:
        """Account for the time that has passed, and run the leader's timed work; `gap_s`: seconds
        since the last look."""
        self.clock.look()
        leadership = self.leadership
        if leadership is None or not leadership.led or gap_s > limits.GAP_SECONDS_MAX:
            return  # After a pause, requests that arrived meanwhile are handled first.
        leadership.look()

    def sweep(self) -> None:
        """Check heartbeats, handshakes, stalled peers, memory and disk."""
        now = self._now()
        self.stretches.look(now)
        if self._authentication.tokens_ended():
            self.users_replaced()
        if self.leadership is not None:
            self.leadership.sessions.sweep(now)
        self._look_for_unreached()
        held_bytes = self.connections.sweep(now, lambda: self._handshake.redirect(moved=False))
        self.alarms.measured_memory(held_bytes)
        if now - self._disk_looked_at >= limits.DISK_LOOK_SECONDS:
            self._disk_looked_at = now
            self._look_at_room()
            if self._pins is not None:
                self._pins.sweep()
        self.flush()

    def _other_leads(self) -> tuple[str, int] | None:
        """Name and term of another node that leads and is heard."""
        leader = self._raft.leader
        if leader is None or leader == self._identity.node or not self._raft.knows_leader():
            return None
        return leader, self._raft.term

    def _look_for_unreached(self) -> None:
        """Tell the leader which clients reach this node alone; as leader, hand over to a node that
        serves more."""
        leadership = self.leadership
        if leadership is None:
            if (note := self._complaints.due()) is not None:
                self._raft.tell_leader(note)
            return
        if not leadership.led or not self._moves.may() or self._raft.transferring:
            return
        notes = self._raft.notes(self._now() - 2 * limits.UNREACHED_TELL_SECONDS)
        served = [session.session_id for session in leadership.sessions] if notes else []
        found = unreached.better_node(served, notes)
        if found is not None:
            self._move(*found)

    def _move(self, target: str, clients: int) -> None:
        def failed(reason: str) -> None:
            logger.warning("event=transfer_failed target=%s reason=%s", target, reason)

        try:
            self._raft.transfer(target, failed)
        except TransferRefused:
            return  # It is not fit to lead now: another may be, or it soon is.
        self._moves.begin()
        logger.warning(
            "event=transfer target=%s reason=%d clients reach it and not this leader",
            target,
            clients,
        )

    def _look_at_room(self) -> None:
        """Measure what this node has left, and as leader go by what the other members report."""
        alarms = self.alarms
        self._raft.rooms.news = False
        self._raft.tell_room(
            low_bytes=alarms.disk_low_bytes,
            held_bytes=alarms.memory_held_bytes,
            high_bytes=alarms.memory_high_bytes,
        )
        alarms.measured_disk(self._raft.own_room().free_bytes)
        alarms.measured_descriptors(left=listener.descriptor_left())
        alarms.reported(self._raft.peer_rooms())

    # --- the connections' calls -------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        """Take a new connection, within the node's bounds."""
        self.connections.add(connection)

    def disconnected(self, connection: Connection) -> None:
        """Forget a closed connection everywhere."""
        self._raft.drop_fetch(connection)
        self._handshake.forget(connection)
        if self.leadership is not None:
            self.leadership.disconnected(connection)
        self.connections.remove(connection)

    def request_lost(self, connection: Connection) -> None:
        """Redirect the client: it has to retry requests that have no answer."""
        connection.close(self._handshake.redirect(moved=True))

    def to_read(self, connection: Connection) -> None:
        """Read the entries of the connection's next delivery from the disk."""
        self._raft.fetch(connection)

    def answered(self, kind: type[Message], seconds: float) -> None:
        """Count the time of a request, by its verb."""
        verb = VERBS.get(kind)
        if verb is not None:
            self.counters.answered(verb, seconds)

    def received(self, connection: Connection, frame: Frame) -> None:
        """Dispatch one frame of a client, in order."""
        kind = type(frame.message)
        session, leadership = connection.session, self.leadership
        if kind not in HANDLERS:
            self._sessionless(connection, frame)
        elif session is None or leadership is None:
            connection.refuse(
                frame.correlation, Code.PERMISSION_DENIED, "an observer may only ask for status"
            )
        elif session.ending:
            connection.refuse(frame.correlation, Code.SESSION_ENDED, "the session is closing")
        elif connection.rights is None or (
            self._may(leadership, connection, connection.rights, frame)
            and _within_rates(leadership.quotas, connection, connection.rights, frame)
        ):
            leadership.handlers[kind](connection, session, frame)

    def _sessionless(self, connection: Connection, frame: Frame) -> None:
        """Handle a frame that needs no session."""
        message, correlation, _ = frame
        match message:
            case Hello():
                if connection.said_hello:
                    raise RemoteProtocolError(Code.PROTOCOL, "a second hello on one connection")
                self._handshake.hello(connection, message)
            case Ping():
                connection.send_ahead(Pong(), correlation)
            case Status():
                if connection.rights is None or _may(connection, connection.rights, frame):
                    connection.send(Ok(self.status()), correlation)
            case Authenticate():
                self._handshake.authenticate(connection, message)
            case _ if isinstance(message, PINNED):
                if connection.rights is None or _may(connection, connection.rights, frame):
                    self._pinned.handle(connection, frame)
            case Pong() | Error():
                pass
            case _:
                text = f"{type(message).__name__} is not a request that this node serves"
                connection.refuse(correlation, Code.UNSUPPORTED, text)

    def _may(
        self, leadership: Leadership, connection: Connection, rights: Rights, frame: Frame
    ) -> bool:
        """Whether the user may request this; otherwise it is refused, and the audit log has what
        would have been a change: once a minute for each user and verb, so that no user fills it."""
        if _may(connection, rights, frame):
            return True
        kind = type(frame.message)
        if kind in AUDITED and self._refusals.may(f"{rights.user.name} {AUDITED[kind]}"):
            leadership.proposer.note(connection, frame.message, Code.PERMISSION_DENIED)
        return False

    def users_replaced(self) -> None:
        """Close connections of users that were removed, and update the rights of all others."""
        for connection in self.connections:
            if connection.rights is not None:
                verdict = self._authentication.renewed(connection.rights)
                if isinstance(verdict, Denied):
                    connection.fail(verdict.code, verdict.text)
                else:
                    connection.rights = verdict
            elif connection.without_user and self._authentication.required:
                text = "this cluster has users now: connect as one of them"
                connection.fail(Code.AUTHENTICATION_FAILED, text)

    def follow_users(self) -> None:
        """Replace the users of the file by those of the log, as soon as there are any."""
        machine = self.host.machine
        if machine.users_revision == self._users_revision:
            return
        if not self._users_revision and self._authentication.users():
            logger.warning(
                "event=users_in_the_log advice=remove the [[user]] sections of this node's file:"
                " the users of the log hold, and `fifo user` changes them"
            )
        self._users_revision = machine.users_revision
        self._authentication.replace(log_users.users_of(machine))
        self.users_replaced()
        logger.info("event=users revision=%d users=%d", self._users_revision, len(machine.users()))

    @property
    def users_in_log(self) -> bool:
        """Whether the users of the log hold, and those of a file do not."""
        return bool(self.host.machine.users_revision)

    def status(self) -> View:
        """The status of this node, leader or not."""
        machine, leadership = self.host.machine, self.leadership
        found = views.node_status(
            self._raft.status(),
            self._identity.nodes,
            uptime_s=self._now() - self._started_at,
            sessions=(
                len(leadership.sessions)
                if leadership is not None and leadership.led
                else machine.session_count()
            ),
            queues=machine.queue_count(),
            clients=sum([not one.observer for one in self.connections]),
            alarms=self.alarms,
            roles=self.roles,
        )
        about = self.about.view(len(self.connections))
        return {
            **found,
            **about,
            "cluster": self._identity.cluster_id.hex(),
            "versions": self._upgrade.view(),
            "membership": self._members.view(),
        }

    def tell_members(self) -> None:
        """Tell every client of this leader which nodes there are now: its own list may be of
        machines that are gone by the time this one is."""
        if self.leadership is None:
            return
        for connection in self.connections:
            if connection.session is not None and connection.open:
                correlation = connection.opening.next_correlation()
                connection.send_ahead(Ping(self._identity.nodes), correlation)

    def pinned(self) -> tuple[int, int]:
        """(pinned views, messages in the queues that they keep as they were)."""
        pins = self._pins
        return (0, 0) if pins is None else (len(pins), pins.kept_messages)

    def abort_all(self) -> None:
        """Abort every connection, and any that is still accepted: the node ends."""
        self.connections.abort_all()

    def close_all(self) -> None:
        """Redirect every client: the node stops."""
        if self.leadership is not None:
            self._resign(self.leadership)
        for connection in self.connections:
            connection.close(self._handshake.redirect(moved=connection.session is not None))
        self.flush()


def _within_rates(quotas: Quotas, connection: Connection, rights: Rights, frame: Frame) -> bool:
    """Whether the user has requests left in this second; otherwise the request is refused."""
    found = quotas.takes(rights, frame.message, len(frame.raw))
    if found is not None:
        connection.refuse(frame.correlation, found.code, found.text, found.detail)
    return found is None


def _may(connection: Connection, rights: Rights, frame: Frame) -> bool:
    """Whether the user may request this; otherwise the request is refused."""
    refusal = rights.refusal(frame.message)
    if refusal is not None:
        connection.refuse(frame.correlation, Code.PERMISSION_DENIED, refusal)
    return refusal is None
