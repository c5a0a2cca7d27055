"""The broker of one node: what happens between its clients and the replicated log.

Owns the parts and the order in which they act: entries applied on every node, and on the leader
requests gathered, replies and effects carried out, locks looked at. What follows from leadership
begins with this node's own `lead` and is forgotten when it ends. Must not know how Raft works, how
sockets are listened on, or what the process is: `node.py` owns those.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from fifo.machine.commands import Detach, Disconnect, Lead, Tick
from fifo.machine.machine import Machine
from fifo.machine.replies import Reply, Ticked
from fifo.wire import Code, Frame, RemoteProtocolError
from fifo.wire.messages import (
    Authenticate,
    Error,
    Hello,
    Message,
    Peek,
    Ping,
    Pong,
    QueueQuery,
    Renew,
    Status,
)
from node.broker import cost, entry, limits
from node.broker.clock import ClusterClock
from node.broker.connections.authentication import Authentication
from node.broker.connections.connection import Connection
from node.broker.connections.handshake import Doorkeeper, Identity
from node.broker.connections.sessions import Farewell, Session, Sessions, beat, silent
from node.broker.counters import Counters
from node.broker.effects import Effects
from node.broker.lock_clock import LockClock
from node.broker.machine_host import MachineHost, term_of
from node.broker.permissions import Rights
from node.broker.proposals import Applied, Proposals, Waiter
from node.broker.requests.durables import Durables
from node.broker.requests.handover import Handover
from node.broker.requests.queries import Queries
from node.broker.requests.redrives import Redrives
from node.broker.requests.renewal import Renewer
from node.broker.requests.requests import Handler, Requests
from node.broker.waiting_gets import WaitingGets
from node.config import LimitSettings
from node.raft import Outcome, RaftNode

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
        wake: Callable[[], None],
        wake_within: Callable[[float], None],
        flush_soon: Callable[[], None],
        emptied: Callable[[], None],
        authentication: Authentication,
        connections_max: int = limits.CONNECTIONS_MAX,
        taken_over: Callable[[], None] = lambda: None,
    ) -> None:
        """`now`: seconds, monotonic, the clock of Raft's lease too; `wake` asks for a turn,
        `wake_within` for one within so many seconds, `flush_soon` for a call of `flush`;
        `emptied`: the last connection is gone; `taken_over`: the state is a snapshot's now."""
        self._identity = identity
        self._settings = settings
        self._now = now
        self._flush_soon = flush_soon
        self._emptied = emptied
        self._connections_max = connections_max
        self._say_taken_over = taken_over
        self._raft: RaftNode
        self._leads = False
        self._led = False
        self._in_turn = False
        self._ended = False
        self._tick_on_its_way = False
        self._tick_again = False
        self._started_at = now()
        self._disk_looked_at = now()
        self._authentication = authentication
        self._connections: dict[Connection, None] = {}
        self._unopened: dict[Connection, None] = {}
        self._sessionless: dict[Connection, None] = {}
        self._watched: dict[Connection, None] = {}
        self._to_flush: list[Connection] = []
        self._reading = True
        self.clock = ClusterClock(now)
        self.host = MachineHost(Machine(), self._read, self._taken_over)
        self.counters = Counters()
        self.proposals = Proposals(
            self.clock, now=now, wall_ms=wall_ms, wake=wake, wake_within=wake_within,
            counters=self.counters, weigh=partial(cost.weight, self.host),
        )  # fmt: skip
        self.sessions = Sessions()
        self.locks = LockClock(self.host.machine, self.counters)
        self._gets = WaitingGets(now, self.host.for_a_get)
        self._effects = Effects(
            self.sessions, self.locks, now_ms=self.clock.now_ms, read_area=self.host.read_area
        )
        self._door = Doorkeeper(
            identity,
            self.host,
            self.proposals,
            self.sessions,
            sessions_max=settings.sessions,
            authentication=authentication,
            leads=lambda: self._leads,
            led=lambda: self._led,
            leader=lambda: self._raft.leader,
            term=lambda: self._raft.term,
            known=self._known,
            gone=self._say_goodbye,
        )
        self._requests = Requests(
            self.host,
            self.proposals,
            self._gets,
            self.counters,
            body_bytes_max=settings.body_bytes,
            consumers_max=settings.consumers,
            prefetch_max=settings.prefetch,
            queues_max=settings.queues,
            end_session=_close_all,
        )
        self._renewer = Renewer(
            self.host, self.locks, self.proposals, now=now, now_ms=self.clock.now_ms,
            may_grant=self.may_answer,
        )  # fmt: skip
        self.queues = Queries(
            self.host,
            self.locks,
            self.clock,
            status=self.status,
            may_answer=self.may_answer,
        )
        self._redrives = Redrives(
            self.host, self.proposals, self._requests, now=now, now_ms=self.clock.now_ms,
            wall_ms=wall_ms, may_answer=self.may_answer,
            fetch=lambda asker: self._raft.fetch(asker),
            drop_fetch=lambda asker: self._raft.drop_fetch(asker),
        )  # fmt: skip
        self._handover = Handover(identity.node)
        durables = Durables(self.host, self._requests, consumers_max=settings.consumers)
        self._handlers: dict[type[Message], Handler] = {
            **self._requests.handlers,
            **self._redrives.handlers,
            **durables.handlers,
            **self._handover.handlers,
            Renew: self._renewer.renew,
            QueueQuery: self.queues.queue_query,
            Peek: self.queues.peek,
        }

    def attach(self, raft: RaftNode) -> None:
        """The Raft node under this broker; before anything else."""
        self._raft = raft
        self.proposals.attach(raft)
        self._handover.attach(raft)

    def _read(self, index: int) -> memoryview:
        return self._raft.at_hand(index)

    def _taken_over(self) -> None:
        """A snapshot's state took the place of this node's, which does not lead: it knew nothing
        else of the old one than the cluster's time."""
        assert not self._leads, "a leader has all that is committed"
        self.clock.follow(self.host.machine.cluster_time_ms)
        self._say_taken_over()

    def may_answer(self) -> bool:
        """Whether nobody else can lead now, and this leader's own `lead` is applied."""
        return self._led and self._raft.lease_until() > self._now()

    @property
    def led(self) -> bool:
        """Whether this node leads, and its own `lead` is applied."""
        return self._led

    @property
    def connection_count(self) -> int:
        """Client connections of any kind."""
        return len(self._connections)

    # --- Raft's calls -----------------------------------------------------------------------------

    def on_role(self, role: str, term: int) -> None:
        """This node's role or term changed. A leader's first entry is `lead(term)`."""
        logger.info("event=role role=%s term=%d", role, term)
        if self._leads:
            self._resign()
        if role == "leader":
            self._leads = True
            last = self._raft.last_entry_payload()
            stamp_ms = 0 if last is None else entry.stamp_of(last)
            # What a snapshot stands for is not in the log any more, and cluster time went on in it.
            self.clock.stand(max(stamp_ms, self.host.machine.cluster_time_ms))
            self._propose_lead(term)

    def users_replaced(self) -> None:
        """There are other users: who is gone is cut off, and the others may what they may now."""
        for connection in list(self._connections):
            if connection.rights is None:
                continue
            name = connection.rights.user.name
            rights = self._authentication.rights_of(name)
            if rights is None:
                connection.fail(Code.AUTHENTICATION_FAILED, f"there is no user {name} any more")
            else:
                connection.rights = rights

    def _propose_lead(self, term: int) -> None:
        def lost(outcome: Outcome) -> None:
            if self._leads and self._raft.is_leader and self._raft.term == term:
                self._propose_lead(term)

        self.proposals.submit_now(Lead(term), Waiter(lambda _: None, lost=lost))

    def _resign(self) -> None:
        """Unbind everybody before anything else: who has a session here must resume it elsewhere.

        What was applied while this node led is answered first, for it is committed; what was
        not is not answered: the client asks again, by number.
        """
        self.carry_out()
        self._leads = self._led = self._tick_on_its_way = self._tick_again = False
        self.clock.resign()
        leaving = [c for c in self._connections if c.said_hello and not c.observer]
        moved = {connection: connection.session is not None for connection in leaving}
        self.sessions.clear()
        self._door.clear()
        self._gets.clear()
        self._renewer.clear()
        self._requests.clear()
        self._redrives.clear()
        self.locks.clear()
        self.proposals.clear()
        for connection in leaving:
            connection.close(self._door.redirect(moved=moved[connection]))

    def apply(self, index: int, term: int, payload: memoryview) -> None:
        """Apply one committed entry, on every node; keep what came of it while leading."""
        unpacked, batch, outcome = self.host.apply(index, payload)
        if not self._leads:
            self.clock.follow(unpacked.stamp_ms)
            return
        if not self._led:
            if term_of(batch) != self._raft.term:
                return  # An earlier leader's entry: its sessions are not connected here.
            self._led = True
            self.clock.lead(self.host.machine.cluster_time_ms)
            self.locks.begin()
            self._redrives.begin()
            logger.info("event=leading term=%d index=%d", term, index)
            self._door.led()
        self.proposals.applied(index, outcome.replies, outcome.effects)

    # --- one turn ---------------------------------------------------------------------------------

    def before_turn(self) -> None:
        """What gathered since the last turn goes to Raft, where it is time for it."""
        self._in_turn = True
        self.clock.look()
        if self._leads:
            self.proposals.flush()

    def after_turn(self) -> None:
        """What is left of the turn, and everything that waits to be sent."""
        self.carry_out()
        self._in_turn = False

    def carry_out(self) -> None:
        """Answer and deliver what was applied in this turn; then one write per connection."""
        applied = self.proposals.take_applied()
        for one in applied:
            self._carry_out(one)
        if applied:
            self._gets.look()
        if self._to_flush:
            self.flush()
        if self._reading != (not self.proposals.crowded):
            self._read_or_not()

    def _carry_out(self, one: Applied) -> None:
        waiters = one.waiters or []
        late: list[tuple[Waiter, Reply]] = []
        for waiter, reply in zip(waiters, one.replies):  # noqa: B905  # no waiters: effects only
            if waiter is None:
                continue
            if waiter.late:
                late.append((waiter, reply))
            else:
                self._guarded("answer", waiter.answer, reply)
        for effect in one.effects:
            self._guarded("effect", self._effects.carry_out, effect)
        for waiter, reply in late:
            self._guarded("answer", waiter.answer, reply)

    def _guarded(self, what: str, call: Callable[[Any], None], argument: object) -> None:
        """A bug while telling one client costs that client its answer, not the node its life."""
        try:
            call(argument)
        except Exception:
            logger.exception("event=%s_failed kind=%s", what, type(argument).__name__)

    def flush(self) -> None:
        """Send what waits, one write per connection."""
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    def _read_or_not(self) -> None:
        """Stop or start reading from everybody, by how much waits to become an entry."""
        if self._reading and self.proposals.crowded:
            self._reading = False
            for connection in self._connections:
                connection.stop_reading("crowded")
        elif not self._reading and self.proposals.relaxed:
            self._reading = True
            for connection in self._connections:
                connection.start_reading("crowded")

    def wait(self) -> float | None:
        """Seconds until something gathered wants a turn; None where nothing does."""
        return self.proposals.wait() if self._leads else None

    # --- time -------------------------------------------------------------------------------------

    def look(self, gap_s: float) -> None:
        """The lock clock's look: one tick for all that is due, if anything is (or time itself)."""
        if not self._led or gap_s > limits.GAP_SECONDS_MAX:
            return  # After a pause, what has arrived meanwhile is handled first.
        self._gets.expire()
        self._renewer.look()
        self._redrives.look()
        if self._tick_on_its_way:
            return
        now_ms = self.clock.now_ms()
        expired = self.locks.look(now_ms)
        next_ms = self.host.machine.next_due_ms()
        due = next_ms is not None and next_ms <= now_ms
        waits = next_ms is not None or len(self.locks) > 0
        stale = self._now() - self.proposals.submitted_at >= limits.TICK_SECONDS
        if expired or due or self._tick_again or (waits and stale):
            self._tick(expired)

    def _tick(self, expired: tuple[tuple[int, int, int], ...]) -> None:
        self._tick_on_its_way, self._tick_again = True, False

        def decided(*, applied: bool) -> None:
            self._tick_on_its_way = False
            self.locks.decided(self.clock.now_ms(), applied=applied)
            self._renewer.look()

        def answer(reply: Reply) -> None:
            self._tick_again = isinstance(reply, Ticked) and reply.more
            decided(applied=True)
            if self._tick_again or expired:
                self.look(0.0)  # What did not fit into this one is due already.

        self.proposals.propose(Tick(expired), Waiter(answer, lost=lambda _: decided(applied=False)))

    def sweep(self) -> None:
        """Heartbeats, openings that take too long, peers that take nothing, and what all hold."""
        now = self._now()
        self.sessions.sweep(now)
        for connection in list(self._sessionless):
            if connection.session is not None:
                del self._sessionless[connection]
            elif connection.open:
                self._sweep_sessionless(connection, now)
        held_bytes = sum([self._sweep_watched(connection, now) for connection in [*self._watched]])
        if held_bytes > self._settings.memory_high_bytes:
            self._make_room(held_bytes)
        if now - self._disk_looked_at >= limits.DISK_LOOK_SECONDS:
            self._disk_looked_at = now
            self._look_at_disk()
        self.flush()

    def _make_room(self, held_bytes: int) -> None:
        """Cut whoever makes us hold most, until the rest is below the high-water mark."""
        for connection in sorted(self._connections, key=lambda c: c.held_bytes, reverse=True):
            if held_bytes <= self._settings.memory_high_bytes:
                return
            logger.warning(
                "event=peer_closed reason=memory peer=%s held_bytes=%d",
                connection.address,
                connection.held_bytes,
            )
            held_bytes -= connection.held_bytes
            connection.abort()

    def _look_at_disk(self) -> None:
        """Below the low-water mark publishing is refused, while settlements still fit."""
        free_bytes = self._raft.status().journal.free_bytes
        low = free_bytes < self._settings.disk_low_bytes
        if low != (self._requests.publishing_refused is not None):
            logger.warning("event=disk_%s free_bytes=%d", "low" if low else "ok", free_bytes)
        self._requests.publishing_refused = (
            f"the leader's disk has only {free_bytes} bytes left: publishing waits for room"
            if low
            else None
        )

    def _sweep_watched(self, connection: Connection, now: float) -> int:
        """Bytes that the peer makes us hold; one that takes nothing for long is cut."""
        closing_at = connection.closing_at
        if closing_at is not None and now - closing_at > limits.CLOSING_SECONDS:
            connection.abort()
        if connection.stalled(now):
            logger.warning("event=peer_closed reason=stalled peer=%s", connection.address)
            connection.abort()
        if not connection.holding:
            del self._watched[connection]
        return connection.held_bytes

    def _sweep_sessionless(self, connection: Connection, now: float) -> None:
        age = now - connection.made_at
        if connection.observer:
            beat(connection, now)
            if silent(connection, connection.heard_at, now):
                connection.abort()
        elif not connection.said_hello and age > limits.OPENING_SECONDS:
            connection.fail(Code.PROTOCOL, "no hello in time")
        elif age > limits.OPENING_LEADERLESS_SECONDS:
            connection.close(self._door.redirect(moved=False))

    # --- the connections' calls -------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        """A new connection; where there are too many, somebody unknown has to go."""
        self._connections[connection] = self._sessionless[connection] = None
        if self._ended:
            connection.abort()  # It was accepted while the listener closed.
            return
        if len(self._connections) > self._connections_max:
            connection.fail(Code.OVERLOADED, "this node has all the connections it takes")
            return
        self._unopened[connection] = None
        if len(self._unopened) > limits.UNOPENED_MAX:
            oldest = next(iter(self._unopened))
            del self._unopened[oldest]
            oldest.fail(Code.OVERLOADED, "too many connections that say no hello")
        if not self._reading:
            connection.stop_reading("crowded")

    def disconnected(self, connection: Connection) -> None:
        """A connection is closed."""
        for group in (self._connections, self._unopened, self._sessionless, self._watched):
            group.pop(connection, None)
        self._raft.drop_fetch(connection)
        self._door.forget(connection)
        self._say_goodbye(connection)
        if not self._connections:
            self._emptied()

    def _say_goodbye(self, connection: Connection) -> None:
        """Tell the machine what a closed connection means for its session."""
        farewell = self.sessions.unbind(connection)
        session = connection.session
        if farewell is Farewell.NOTHING or session is None or not self._led:
            return
        if farewell is Farewell.DETACH:
            self._say(Detach(session.number, connection.role, connection.epoch))
            return
        known = self.host.epochs_and_consumers(session.number)
        if known is not None:
            epochs, consumers = known
            floors = self.locks.floors(consumers)
            self._say(Disconnect(session.number, *epochs, floors))

    def _say(self, command: Detach | Disconnect) -> None:
        """Propose it, again where it does not get into the log: nobody would say it later, and the
        session would be handed messages, and never end, for as long as this term lasts."""

        def lost(outcome: Outcome) -> None:
            if self._led:
                self._say(command)

        self.proposals.propose(command, Waiter(lambda _: None, lost=lost))

    def request_lost(self, connection: Connection) -> None:
        """The client has to come back, and to ask again what it has no answer to."""
        connection.close(self._door.redirect(moved=True))

    def to_flush(self, connection: Connection) -> None:
        """Something waits to be sent on a connection."""
        if not self._to_flush and not self._in_turn:
            self._flush_soon()
        self._to_flush.append(connection)

    def to_read(self, connection: Connection) -> None:
        """A connection's next delivery lies on the disk."""
        self._raft.fetch(connection)

    def to_watch(self, connection: Connection) -> None:
        """Each sweep looks at the connection for a while."""
        self._watched[connection] = None

    def received(self, connection: Connection, frame: Frame) -> None:
        """One frame of a client, in order."""
        message = frame.message
        kind = type(message)
        session = connection.session
        handler = self._handlers.get(kind)
        if handler is not None and session is not None:
            if session.ending:
                connection.refuse(frame.correlation, Code.SESSION_ENDED, "the session is closing")
            elif connection.rights is None or self._may(connection, connection.rights, frame):
                handler(connection, session, frame)
        elif isinstance(message, Hello):
            if connection.said_hello:
                raise RemoteProtocolError(Code.PROTOCOL, "a connection says hello once")
            self._door.hello(connection, message)
        elif kind is Ping:
            connection.send_ahead(Pong(), frame.correlation)
        elif kind is Status:
            if connection.rights is None or self._may(connection, connection.rights, frame):
                self.queues.status(connection, frame)
        elif handler is not None:
            connection.refuse(
                frame.correlation, Code.PERMISSION_DENIED, "an observer may only ask for status"
            )
        elif isinstance(message, Authenticate):
            self._door.authenticate(connection, message)
        elif kind is not Pong and not isinstance(message, Error):
            text = f"{kind.__name__} is not a request that this node serves"
            connection.refuse(frame.correlation, Code.UNSUPPORTED, text)

    def _may(self, connection: Connection, rights: Rights, frame: Frame) -> bool:
        """Whether the user may ask for this; else the request is refused."""
        refusal = rights.refusal(frame.message)
        if refusal is not None:
            connection.refuse(frame.correlation, Code.PERMISSION_DENIED, refusal)
        return refusal is None

    def _known(self, connection: Connection) -> None:
        """It is clear who this is: no stranger any more."""
        self._unopened.pop(connection, None)

    def status(self) -> dict[str, Any]:
        """How this node is, for whoever asks."""
        return self.queues.node_status(
            self._raft.status(),
            uptime_s=self._now() - self._started_at,
            sessions=len(self.sessions) if self._led else self.host.session_count(),
        )

    def abort_all(self) -> None:
        """Cut every connection, and what still comes: the node ends."""
        self._ended = True
        for connection in list(self._connections):
            connection.abort()

    def close_all(self) -> None:
        """The node stops: tell everybody to go elsewhere."""
        if self._leads:
            self._resign()
        for connection in list(self._connections):
            connection.close(self._door.redirect(moved=connection.session is not None))
        self.flush()


def _close_all(session: Session) -> None:
    """The session's end is committed: its connections have nothing more to do."""
    for connection in list(session.connections):
        connection.close()
