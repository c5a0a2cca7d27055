"""Renewals: answered from the leader's memory, without a log entry (semantics.md section 5).

Owns the decision when a renewal is answered: only while this node may grant, and never past an
evaluation under way that names its tokens; until then it waits, for one election timeout at most.
Must not know how deadlines are kept (`lock_clock`) or what a lease is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fifo.machine.commands import Alive
from fifo.wire import Code, Frame
from fifo.wire.messages import Renew, Renewed
from node.broker import limits
from node.broker.connections.connection import Connection
from node.broker.connections.sessions import Session
from node.broker.lock_clock import LockClock, Renewal
from node.broker.machine_host import MachineHost
from node.broker.proposals import Proposals


@dataclass(slots=True)
class _Waiting:
    deadline: float
    connection: Connection
    session: Session
    frame: Frame


class Renewer:
    """Answers renewals, at once or as soon as it may."""

    def __init__(
        self,
        host: MachineHost,
        locks: LockClock,
        proposals: Proposals,
        *,
        now: Callable[[], float],
        now_ms: Callable[[], int],
        may_grant: Callable[[], bool],
    ) -> None:
        self._host = host
        self._locks = locks
        self._proposals = proposals
        self._now = now
        self._now_ms = now_ms
        self._may_grant = may_grant
        self._waiting: list[_Waiting] = []

    def renew(self, connection: Connection, session: Session, frame: Frame) -> None:
        """One renewal of a client."""
        if self._answer(connection, session, frame):
            return
        if len(self._waiting) >= limits.RENEWALS_WAITING_MAX:
            self._not_now(connection, frame)
            return
        connection.begin(0, 0)
        deadline = self._now() + limits.RENEWAL_WAIT_SECONDS
        self._waiting.append(_Waiting(deadline, connection, session, frame))

    def look(self) -> None:
        """Answer what can be answered now, and what has waited long enough."""
        if not self._waiting:
            return
        now = self._now()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.connection.open:
                continue
            if self._answer(one.connection, one.session, one.frame):
                one.connection.end(0, 0)
            elif one.deadline <= now:
                one.connection.end(0, 0)
                self._not_now(one.connection, one.frame)
            else:
                self._waiting.append(one)

    def clear(self) -> None:
        """Leadership is lost: whoever waits is told to move by then."""
        self._waiting.clear()

    def _not_now(self, connection: Connection, frame: Frame) -> None:
        connection.refuse(
            frame.correlation, Code.NOT_NOW, "this leader may not renew at the moment; ask again"
        )

    def _answer(self, connection: Connection, session: Session, frame: Frame) -> bool:
        """Grant and answer, where that may be done now."""
        message = frame.message
        assert isinstance(message, Renew)
        if not self._may_grant() or self._locks.undecided(message.items):
            return False
        now_ms = self._now_ms()
        owned = [
            (consumer, ranges, self._host.held(session.number, consumer, ranges, now_ms))
            for consumer, ranges in message.items
        ]
        for consumer, _, held in owned:
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
                self._not_now(connection, frame)
                return True
            items.append(_item(renewal, now_ms))
            if message.explicit and renewal.renewed:
                fence = (connection.role, connection.epoch)
                self._proposals.propose(Alive(session.number, consumer, fence), None)
        connection.send(Renewed(tuple(items)), frame.correlation)
        return True


def _item(renewal: Renewal, now_ms: int) -> tuple[object, ...]:
    """One consumer's part of the answer, neighbours with one deadline joined."""
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
