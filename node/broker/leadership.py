"""A term of this node as leader, and everything that ends with it.

Owns proposals, sessions, granted renewals, waiting gets, redrives and the handlers of requests: a
`Leadership` is made when Raft makes this node the leader and dropped when it no longer is, so no
part of a term can outlive it. Clients are admitted once the term's own `lead` is applied. Must not
know connections without a session, or the order of a turn: `broker.py` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from fifo.machine.contract import Command, Outcome, Reply, commands, replies, to_list
from fifo.wire.messages import Hello
from fifo.words.versions import STATES_COMPARED
from node.broker import cost, limits
from node.broker.connections.admission import Admission
from node.broker.connections.connection import Connection
from node.broker.connections.handshake import Handshake
from node.broker.connections.sessions import Farewell, Sessions
from node.broker.context import Context
from node.broker.effects import Effects
from node.broker.lock_clock import LockClock
from node.broker.machine_host import term_of
from node.broker.proposals import Applied, Proposals, Waiter
from node.broker.quotas import Quotas
from node.broker.reads import Reads
from node.broker.requests import table
from node.broker.requests.audit_reads import AuditReads
from node.broker.requests.changing_members import ChangingMembers
from node.broker.requests.consuming import Consuming
from node.broker.requests.control import Control
from node.broker.requests.durables import Durables
from node.broker.requests.managing_users import ManagingUsers
from node.broker.requests.notices import NoticeAcks
from node.broker.requests.one_message import OneMessage
from node.broker.requests.people import Known, People
from node.broker.requests.proposer import Proposer
from node.broker.requests.publishing import Publishing
from node.broker.requests.publishing_across import PublishingAcross
from node.broker.requests.queries import Queries
from node.broker.requests.queues import Queues
from node.broker.requests.redrives import Redrives
from node.broker.requests.renewal import Renewals
from node.broker.requests.slowing import Slowing
from node.broker.requests.upgrading import Upgrading
from node.broker.waiting_gets import WaitingGets

logger = logging.getLogger(__name__)


class Leadership:
    """The state and the actions of this node in one term that it leads."""

    def __init__(
        self, context: Context, handshake: Handshake, term: int, *, first: bool = False
    ) -> None:
        """`first`: the log has no entry of any leader yet."""
        machine, clocks = context.host.machine, context.clocks
        self.term = term
        self.led = False
        """Whether this term's own `lead` is applied: sessions, locks and answers begin with it."""
        self._context = context
        self._machine = machine
        self._clock = clocks.cluster
        self._now = clocks.now
        self._ticks = 0  # on their way
        self._tick_full = False  # the last one named as many expired locks as one may
        self._tick_again = False
        self.proposals = Proposals(
            context.raft,
            clocks,
            context.turns,
            context.counters,
            partial(cost.weight, machine),
            context.upgrade,
        )
        self.quotas = Quotas(
            machine, context.settings, context.counters, clocks.now, context.rights_of,
            lambda: context.raft.status().journal.free_bytes - context.alarms.disk_low_bytes,
        )  # fmt: skip
        self.slowing = Slowing(machine, clocks.now)
        self.reads = Reads(context.raft, clocks.now)
        self.proposer = Proposer(machine, self.proposals, self.reads)
        self.sessions = Sessions()
        self.locks = LockClock(machine, context.counters)
        self.admission = Admission(
            machine, self.proposals, self.sessions, handshake,
            quotas=self.quotas, reads=self.reads, entropy=context.entropy,
            gone=self._say_farewell,
        )  # fmt: skip
        self._gets = WaitingGets(clocks.now, machine.ready_for_get)
        self._effects = Effects(self.sessions, self.locks, clocks.cluster, context.host)
        self._upgrading = Upgrading(
            context.upgrade,
            self.proposer,
            self.proposals,
            clocks.now,
            alone=first or context.upgrade.automatic,
        )
        self._requests = self._make_handlers()
        self.handlers = table.bound(self._requests)

    def _make_handlers(self) -> table.Handlers:
        context, machine = self._context, self._machine
        proposals, locks = self.proposals, self.locks
        proposer = self.proposer
        known = Known(context.people, context.connections_of)
        publishing = Publishing(context, proposals, proposer, self.quotas, self.slowing)
        people = People(machine, proposer, self.quotas, known, self._clock.now_ms)
        return table.Handlers(
            publishing=publishing,
            publishing_across=PublishingAcross(context, proposals, self.quotas, publishing),
            consuming=Consuming(context, proposer, self._gets, self.quotas),
            notices=NoticeAcks(proposals, context.clocks.now),
            renewals=Renewals(machine, locks, proposals, context.clocks, self.may_grant),
            queues=Queues(machine, proposer, self.quotas),
            queries=Queries(
                machine,
                locks,
                self._clock,
                context.host.read_area,
                context.alarms,
                self.reads.answer,
                people,
                lambda: context.raft.applied_index,
            ),
            durables=Durables(machine, proposer, self.quotas, self._effects.bodiless),
            redrives=Redrives(context, proposals, proposer, self.reads.answer),
            one_message=OneMessage(
                machine,
                locks,
                self._clock,
                context.host.read_area,
                self.reads.answer,
                proposer,
            ),
            people=people,
            managing_users=ManagingUsers(machine, proposer, self.reads.answer, context.users),
            control=Control(
                context.raft, proposer, own_name=context.node, close_session=self.sessions.close
            ),
            audit_reads=AuditReads(context.audit),
            upgrading=self._upgrading,
            changing_members=ChangingMembers(context.members, context.upgrade, proposer),
        )

    # --- the term ---------------------------------------------------------------------------------

    def propose_lead(self) -> None:
        """Submit `lead`, the first entry of the term; again if it does not get into the log."""

        def lost(outcome: object) -> None:
            if self._may_repeat():
                self.propose_lead()

        self.proposals.submit_now(commands.Lead(self.term), Waiter(lambda _: None, lost=lost))

    def _may_repeat(self) -> bool:
        """Whether what did not get into the log still may: a failed node answers at once, and
        would be asked again for ever."""
        raft = self._context.raft
        return raft.is_leader and raft.term == self.term

    def may_grant(self) -> bool:
        """Whether this leader may renew locks: it holds a lease, and its own `lead` is applied."""
        return self.led and self._context.raft.lease_until() > self._now()

    def applied(self, index: int, batch: list[Command], outcome: Outcome) -> None:
        """Keep the outcome of an applied entry until `carry_out`."""
        if not self.led:
            if term_of(batch) != self._context.raft.term:
                return  # An earlier leader's entry: its sessions are not connected here.
            self._begin(index)
        self.proposals.applied(index, outcome.replies, outcome.effects)

    def _begin(self, index: int) -> None:
        self.led = True
        self._clock.lead(self._machine.cluster_time_ms)
        self.locks.begin()
        self._requests.redrives.begin()
        logger.info("event=leading term=%d index=%d", self.term, index)
        self.admission.begin()
        if self._upgrading.alone:
            self._upgrading.look()

    def stop(self) -> None:
        """Release what others hold of this term: outcomes to come, and reads of the log."""
        self.proposals.stop()
        self.slowing.stop()
        self.reads.stop()
        self._requests.redrives.stop()

    # --- a turn -----------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Answer and deliver the entries applied since the last call."""
        if self.proposals.outcomes:
            for one in self.proposals.take_applied():
                self._carry_out(one)
            if self._gets.queues:
                self._gets.look()
            if self.slowing.queues:
                self.slowing.look()
        if self.reads.waiting:
            self.reads.look()

    def _carry_out(self, one: Applied) -> None:
        waiters = one.waiters or []
        late: list[tuple[Waiter, Reply]] = []
        for waiter, reply in zip(waiters, one.replies):  # noqa: B905  # no waiters: effects only
            if waiter is None:
                continue
            if waiter.late:
                late.append((waiter, reply))
            else:
                _guarded("answer", waiter.answer, reply)
        for effect in one.effects:
            _guarded("effect", self._effects.carry_out, effect)
        for waiter, reply in late:
            _guarded("answer", waiter.answer, reply)

    # --- time -------------------------------------------------------------------------------------

    def look(self) -> None:
        """Act on time: give up waiting requests, and propose one tick for everything due."""
        self._gets.expire()
        self.slowing.look()
        self.reads.look()
        self._requests.renewals.look()
        self._requests.redrives.look()
        if self._upgrading.alone:
            self._upgrading.look()
        full = self._look_for_due()
        self._requests.notices.look(full=full)

    def _look_for_due(self) -> bool:
        """Propose a tick if something is due; whether one is on the way that fills its entry."""
        now_ms = self._clock.now_ms()
        if self._ticks:
            self._name_more(now_ms)
            return True
        expired = self.locks.look(now_ms)
        next_ms = self._machine.next_due_ms()
        due = next_ms is not None and next_ms <= now_ms
        waits = next_ms is not None or len(self.locks) > 0
        stale = self._now() - self.proposals.submitted_at >= limits.TICK_SECONDS
        if expired or due or self._tick_again or (waits and stale) or self._digest_late(now_ms):
            alone = next_ms is not None and next_ms <= now_ms + limits.DUE_SOON_MS
            self._tick(expired, alone=alone)
            self._name_more(now_ms)
            return alone
        return False

    def _digest_late(self, now_ms: int) -> bool:
        """Whether a digest of the states is due, and no entry has come that names it."""
        late_ms = self._context.host.digest_at_ms + limits.DIGEST_LATE_MS
        return now_ms >= late_ms and self._machine.version >= STATES_COMPARED

    def _name_more(self, now_ms: int) -> None:
        """Propose ticks for expired locks of other consumers while a full one is on its way: a
        million locks would wait for a round of the log for each 2,500 of them."""
        while self._tick_full and self._ticks < limits.TICKS_IN_FLIGHT_MAX:
            expired = self.locks.look(now_ms)
            if not expired:
                return
            next_ms = self._machine.next_due_ms()
            alone = next_ms is not None and next_ms <= now_ms + limits.DUE_SOON_MS
            self._tick(expired, alone=alone)

    def _tick(self, expired: tuple[tuple[int, int, int], ...], *, alone: bool) -> None:
        self._ticks += 1
        self._tick_again = False
        self._tick_full = sum([last - first + 1 for _, first, last in expired]) >= (
            limits.EVAL_MESSAGES_MAX
        )

        def decided(*, applied: bool) -> None:
            self._ticks -= 1
            self.locks.decided(self._clock.now_ms(), expired, applied=applied)
            self._requests.renewals.look()

        def answer(reply: Reply) -> None:
            self._tick_again = isinstance(reply, replies.Ticked) and reply.more
            decided(applied=True)
            if self._tick_again:
                self.look()  # What did not fit into this tick is due already; the rest has time.

        waiter = Waiter(answer, lost=lambda _: decided(applied=False))
        plain = to_list(commands.Tick(expired))
        known = self.proposals.weigh(plain) if alone else cost.expired(self._machine, expired)
        self.proposals.propose(lambda _: plain, waiter, weight=known)

    # --- connections ------------------------------------------------------------------------------

    def admit(self, connection: Connection, hello: Hello) -> None:
        """Attach the client's session, now or once this term's own `lead` is applied."""
        self.admission.admit(connection, hello)

    def disconnected(self, connection: Connection) -> None:
        """Forget a closed connection; let the machine know what that means for its session."""
        self.admission.forget(connection)
        self._say_farewell(connection)

    def _say_farewell(self, connection: Connection) -> None:
        farewell = self.sessions.unbind(connection)
        session = connection.session
        if farewell is Farewell.NOTHING or session is None:
            return
        if farewell is Farewell.DETACH:
            self._say(commands.Detach(session.number, connection.role, connection.epoch))
            return
        known = self._machine.epochs_and_consumers(session.number)
        if known is not None:
            epochs, consumers = known
            floors = self.locks.floors(consumers)
            self._say(commands.Disconnect(session.number, *epochs, floors))

    def _say(self, command: commands.Detach | commands.Disconnect) -> None:
        """Propose it, and again if it does not get into the log: no other part would repeat it, and
        the session would be handed messages, and never end, for the rest of this term."""

        def lost(outcome: object) -> None:
            if self._may_repeat():
                self._say(command)

        waiter = Waiter(lambda _: None, lost=lost)
        self.proposals.propose_command(command, waiter)


def _guarded(kind: str, call: Callable[[Any], None], argument: object) -> None:
    """Limit a bug in one client's answer to that answer: the node must not stop."""
    try:
        call(argument)
    except Exception:
        logger.exception("event=%s_failed kind=%s", kind, type(argument).__name__)
