"""Effects of applied entries, carried out by the leader: frames to clients connected here.

Owns the translation of each effect of the machine into frames. An effect for a session that is not
connected is dropped: its consequence is in the state, and is sent again when the session resumes.
Deliveries wait as handles: a frame is made when the socket takes it, with the remaining lock time
of that moment and the messages that are in memory then. Must not know how entries travel.
"""

from __future__ import annotations

from typing import Final, assert_never

from fifo.machine.contract import (
    Activity,
    ConsumerRemoved,
    Deliver,
    Effect,
    Fenced,
    Notify,
    Range,
    Resumed,
    SessionEnded,
)
from fifo.wire.messages import (
    NOTICE_ACTIVITY,
    NOTICE_CONSUMER_REMOVED,
    NOTICE_MESSAGE_TIMEOUT,
    NOTICE_SESSION_ENDED,
    NOTICE_TAKEN_BACK,
    Notice,
)
from node.broker import deliveries
from node.broker.bodiless import Bodiless
from node.broker.clock import ClusterClock
from node.broker.connections.deferred_frames import Delivery, ResumedMark
from node.broker.connections.sessions import Sessions
from node.broker.lock_clock import LockClock
from node.broker.machine_host import MachineHost

_KINDS: Final = {"message_timeout": NOTICE_MESSAGE_TIMEOUT, "taken_back": NOTICE_TAKEN_BACK}


class Effects:
    """Carries out effects, on the leader only."""

    def __init__(
        self,
        sessions: Sessions,
        locks: LockClock,
        clock: ClusterClock,
        host: MachineHost,
    ) -> None:
        self._sessions = sessions
        self._locks = locks
        self._now_ms = clock.now_ms
        self._read_area = host.read_area
        self._machine = host.machine
        self.bodiless = Bodiless()

    def carry_out(self, effect: Effect) -> None:
        """Carry out one effect."""
        match effect:
            case Deliver():
                self._deliver(effect)
            case Notify():
                kind = _KINDS[effect.kind]
                self._notify(effect, kind, effect.notice, effect.ranges)
            case Activity():
                self._notify(effect, NOTICE_ACTIVITY, active=effect.active)
            case Resumed():
                self._mark_resumed(effect)
            case Fenced():
                self._sessions.fence(effect.session, effect.role, effect.epoch, taken=effect.taken)
            case ConsumerRemoved():
                self._notify(effect, NOTICE_CONSUMER_REMOVED, active=False)
            case SessionEnded():
                self._end(effect.session)
            case _:
                assert_never(effect)

    def _deliver(self, effect: Deliver) -> None:
        self._locks.locked(effect.consumer, effect.deadline_ms)
        session = self._sessions.get(effect.session)
        connection = None if session is None else session.data
        if connection is None:
            return
        first_token = effect.first_token
        of_fetch = effect.repeat and self.bodiless.covers((effect.session, effect.consumer))
        wanted = tuple(map(deliveries.without_body, effect.runs)) if of_fetch else effect.runs
        keys_out = self._machine.keys_are_out(effect.consumer)
        for runs in deliveries.chunks(wanted):
            connection.send_deferred(
                Delivery(effect, runs, first_token, self._now_ms, self._read_area, keys_out)
            )
            first_token += deliveries.count_of(runs)

    def _mark_resumed(self, effect: Resumed) -> None:
        """End the repeats, on the connection that they were made for."""
        session = self._sessions.get(effect.session)
        connection = None if session is None else session.data
        if connection is not None and connection.epoch == effect.epoch:
            connection.send_deferred(ResumedMark())

    def _notify(
        self,
        effect: Notify | Activity | ConsumerRemoved,
        kind: int,
        number: int = 0,
        tokens: tuple[Range, ...] = (),
        *,
        active: bool = True,
    ) -> None:
        session = self._sessions.get(effect.session)
        connection = None if session is None else session.speaker
        if connection is not None:
            connection.send(Notice(number, kind, effect.consumer, tokens, active, effect.label))

    def _end(self, number: int) -> None:
        """End a session. A client that asked for it has its answer; any other is notified."""
        session = self._sessions.get(number)
        if session is None or session.ending:
            return
        session.ending = True
        for connection in list(session.connections):
            connection.close(Notice(0, NOTICE_SESSION_ENDED, active=False))
