"""Renewals: answered from the leader's memory, without a log entry (semantics.md section 5).

Owns the decision when a renewal is answered: only while this node may grant, and never past an
evaluation in flight that names its tokens; until then it waits, for a bounded time. Must not know
how deadlines are kept (`lock_clock`) or how a lease works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fifo.machine.contract import Held, Machine, Range, commands
from fifo.wire import Code, Frame
from fifo.wire.messages import Renew, Renewed
from node.broker import limits
from node.broker.clock import Clocks
from node.broker.connections.connection import Binding, Connection
from node.broker.lock_clock import LockClock, Renewal
from node.broker.proposals import Proposals
from node.broker.requests.proposer import fence, message_of


@dataclass(slots=True)
class _Waiting:
    deadline: float
    connection: Connection
    session: Binding
    frame: Frame


class Renewals:
    """Handler of renewals: answers them at once, or as soon as it may."""

    def __init__(
        self,
        machine: Machine,
        locks: LockClock,
        proposals: Proposals,
        clocks: Clocks,
        may_grant: Callable[[], bool],
    ) -> None:
        self._machine = machine
        self._locks = locks
        self._proposals = proposals
        self._clocks = clocks
        self._may_grant = may_grant
        self._waiting: list[_Waiting] = []

    def renew(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Renew locks of the session's consumers; many in pieces, as long as this node may. Those
        of another session of the user need their handles."""
        message = message_of(frame, Renew)
        items = message.items
        if message.handles and not self._are_handles(message):
            text = (
                "these are not the handles of the tokens: name one consumer, and for each token the"
                " handle that came with its message; nothing was renewed"
            )
            connection.refuse(frame.correlation, Code.PERMISSION_DENIED, text)
            return
        if sum([max(1, len(named)) for _, named in items]) > limits.RENEWED_IN_A_PIECE:
            connection.answer_in_pieces(frame, self._pieces(connection, session, frame))
            return
        if self._answer(connection, session, frame):
            return
        if len(self._waiting) >= limits.RENEWALS_WAITING_MAX:
            _not_now(connection, frame)
            return
        connection.begin(0, 0)
        deadline = self._clocks.now() + limits.RENEWAL_WAIT_SECONDS
        self._waiting.append(_Waiting(deadline, connection, session, frame))

    def _are_handles(self, message: Renew) -> bool:
        if len(message.items) != 1:
            return False
        ((consumer, named),) = message.items
        return self._machine.are_handles(consumer, named, message.handles)

    def look(self) -> None:
        """Answer the renewals that can be granted now, and those that have waited too long."""
        if not self._waiting:
            return
        now = self._clocks.now()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.connection.open:
                continue
            if self._answer(one.connection, one.session, one.frame):
                one.connection.end(0, 0)
            elif one.deadline <= now:
                one.connection.end(0, 0)
                _not_now(one.connection, one.frame)
            else:
                self._waiting.append(one)

    def _answer(self, connection: Connection, session: Binding, frame: Frame) -> bool:
        """Grant and answer; False if the renewal has to wait."""
        items = message_of(frame, Renew).items
        if not self._may_grant() or self._locks.undecided(items):
            return False
        for _ in self._pieces(connection, session, frame):
            pass
        return True

    def _pieces(self, connection: Connection, session: Binding, frame: Frame) -> Iterator[None]:
        """Grant piece by piece, then answer; a refusal ends it. What was granted before stays.

        Tokens that were never handed out, as far as this node knows, are left out of the answer.
        """
        message = message_of(frame, Renew)
        renewals: list[Renewal] = []
        for consumer, named in message.items:
            whole = Renewal(consumer)
            for at in range(0, len(named), limits.RENEWED_IN_A_PIECE):
                piece = named[at : at + limits.RENEWED_IN_A_PIECE]
                yield
                ranges = self._machine.handed_out(consumer, piece)
                if not ranges:
                    continue
                if not self._may_grant() or self._locks.undecided(((consumer, ranges),)):
                    _not_now(connection, frame)
                    return
                if not self._grant(connection, session, frame, whole, ranges):
                    return
            if whole.renewed and self._machine.locks_end_together(consumer):
                self._locks.ends_together(whole)
            if whole.renewed or whole.lost:
                renewals.append(whole)
        if not renewals and any(named for _, named in message.items):
            # This state has never heard of them, so it cannot say that they are lost.
            _not_now(connection, frame)
            return
        now_ms = self._clocks.cluster.now_ms()
        items = tuple([_item(renewal, now_ms) for renewal in renewals])
        connection.send(Renewed(items), frame.correlation)

    def _grant(
        self,
        connection: Connection,
        session: Binding,
        frame: Frame,
        whole: Renewal,
        ranges: Sequence[Range],
    ) -> bool:
        """Renew these tokens of one consumer; False if the request was refused for them."""
        consumer = whole.consumer
        now_ms = self._clocks.cluster.now_ms()
        message = message_of(frame, Renew)
        held = self._held(session.number, consumer, ranges, now_ms, by_handle=bool(message.handles))
        if held is None:
            whole.lost += ranges
            return True
        speaks = message.explicit and held.session == session.number
        if speaks and held.clears and not (whole.renewed or whole.lost):
            # Of a lost lock too. Where it would change nothing there is nothing to write down.
            alive = commands.Alive(session.number, consumer, fence=fence(connection))
            self._proposals.propose_command(alive, None)
        if not held.renewable:
            connection.refuse(
                frame.correlation,
                Code.NOT_RENEWABLE,
                f"consumer {consumer} was subscribed without renewal",
                {"consumer": consumer},
            )
            return False
        renewal = self._locks.renew(consumer, held, ranges, now_ms)
        if renewal is None:
            _not_now(connection, frame)
            return False
        whole.renewed += renewal.renewed
        whole.lost += renewal.lost
        return True

    def _held(
        self,
        session: int,
        consumer: int,
        ranges: Sequence[Range],
        renewed_ms: int,
        *,
        by_handle: bool,
    ) -> Held | None:
        """Locks of these tokens; None if the consumer is not one of this session, nor, for one that
        has the handles, one of its user."""
        held = self._machine.held(consumer, ranges, renewed_ms)
        if held is None or held.session == session:
            return held
        return held if by_handle and self._machine.same_user(held.session, session) else None


def _not_now(connection: Connection, frame: Frame) -> None:
    connection.refuse(
        frame.correlation, Code.NOT_NOW, "this leader may not renew locks at the moment; retry"
    )


def _item(renewal: Renewal, now_ms: int) -> tuple[object, ...]:
    """The part of one consumer in the answer; neighbours with the same deadline are joined."""
    renewed: list[tuple[int, int, int]] = []
    for first, last, until_ms in renewal.renewed:
        remaining_ms = max(0, until_ms - now_ms)
        if renewed and renewed[-1][1] + 1 == first and renewed[-1][2] == remaining_ms:
            renewed[-1] = (renewed[-1][0], last, remaining_ms)
        else:
            renewed.append((first, last, remaining_ms))
    return (
        renewal.consumer,
        tuple(renewed[: limits.RENEWED_RANGES_MAX]),
        tuple(renewal.lost),
    )
