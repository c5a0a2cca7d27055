"""Renewals: answered from the leader's memory, without a log entry (semantics.md section 5).

Owns the decision when a renewal is answered: only while this node may grant, and never past an
evaluation in flight that names its tokens; until then it waits, for a bounded time. Must not know
how deadlines are kept (`lock_clock`) or how a lease works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        """Renew locks of the session's consumers."""
        if self._answer(connection, session, frame):
            return
        if len(self._waiting) >= limits.RENEWALS_WAITING_MAX:
            _not_now(connection, frame)
            return
        connection.begin(0, 0)
        deadline = self._clocks.now() + limits.RENEWAL_WAIT_SECONDS
        self._waiting.append(_Waiting(deadline, connection, session, frame))

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
        """Grant and answer; False if the renewal has to wait.

        Tokens that were never handed out, as far as this node knows, are left out of the answer.
        """
        message = message_of(frame, Renew)
        if not self._may_grant() or self._locks.undecided(message.items):
            return False
        now_ms = self._clocks.cluster.now_ms()
        owned = [
            (consumer, ranges, self._held(session.number, consumer, ranges, now_ms))
            for consumer, named in message.items
            if (ranges := self._machine.handed_out(consumer, named))
        ]
        if not owned and any(named for _, named in message.items):
            # This state has never heard of them, so it cannot say that they are lost.
            _not_now(connection, frame)
            return True
        for consumer, _, held in owned:
            if message.explicit and held is not None and held.clears:
                # Of a lost lock too. Where it would change nothing there is nothing to write down.
                alive = commands.Alive(session.number, consumer, fence=fence(connection))
                self._proposals.propose_command(alive, None)
            if held is not None and not held.renewable:
                connection.refuse(
                    frame.correlation,
                    Code.NOT_RENEWABLE,
                    f"consumer {consumer} was subscribed without renewal",
                    {"consumer": consumer},
                )
                return True
        items = []
        for consumer, ranges, held in owned:
            if held is None:
                renewal: Renewal | None = Renewal(consumer, lost=list(ranges))
            else:
                renewal = self._locks.renew(consumer, held, ranges, now_ms)
            if renewal is None:
                _not_now(connection, frame)
                return True
            items.append(_item(renewal, now_ms))
        connection.send(Renewed(tuple(items)), frame.correlation)
        return True

    def _held(
        self, session: int, consumer: int, ranges: Sequence[Range], renewed_ms: int
    ) -> Held | None:
        """Locks of these tokens; None if the consumer is not one of this session."""
        held = self._machine.held(consumer, ranges, renewed_ms)
        return held if held is not None and held.session == session else None


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
