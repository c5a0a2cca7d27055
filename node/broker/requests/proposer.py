"""The common way of a request: checked, proposed as a command, answered from its reply.

Owns the checks before the log, the refusals, and the accounting of unanswered requests. Must not
know what any single request means.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

from fifo.machine.contract import Command, Machine, Refused, Reply, from_list, to_list
from fifo.wire import Code, Frame
from fifo.wire.messages import Message, Ok
from node.broker import cost
from node.broker.audit import AUDITED, noted
from node.broker.connections.connection import Binding, Connection
from node.broker.proposals import Proposals, Waiter
from node.broker.quotas import Quotas
from node.broker.reads import Reads
from node.broker.refusals import detail_of, wire_code
from node.raft import Outcome
from node.users import Quota

Handler: TypeAlias = Callable[[Connection, Binding, Frame], None]
"""Handles one request of a connection whose session is attached."""

M = TypeVar("M", bound=Message)

_REQUEST_BYTES = 64
"""Bytes that a request without a raw part counts while it is unanswered."""


class Proposer:
    """Proposes the commands of requests. `declaring`: declares that are in flight."""

    def __init__(self, machine: Machine, proposals: Proposals, reads: Reads) -> None:
        self._machine = machine
        self._proposals = proposals
        self._reads = reads
        self.declaring = 0

    def note(
        self,
        connection: Connection,
        message: Message,
        outcome: str = "",
        then: Callable[[], None] | None = None,
    ) -> None:
        """Put a note about a request into the log, right before its command; one with an `outcome`
        has none. `then` is called when the note is applied here."""
        session = connection.session
        found = None if session is None else self._machine.session_summary(session.number)
        client = "" if found is None else found["client"]
        plain = noted(message, user_of(connection), connection.address, client, outcome)
        waiter = None if then is None else Waiter(lambda _: then())
        self._proposals.propose(lambda _: plain, waiter, weight=cost.COMMAND)

    def lacks_queue(self, connection: Connection, correlation: int, queue: str) -> bool:
        """Refuse a request for a queue that does not exist, without a log entry; True if refused.

        While a declare is in flight the queue may exist by the time the command is applied, so the
        machine decides. Refused once it is certain that no later leader knows the queue.
        """
        missing = not self._machine.has_queue(queue) and not self.declaring
        if missing:
            connection.begin(0, 0)
            self._reads.ask(partial(self._refuse_missing, connection, correlation, queue))
        return missing

    def _refuse_missing(
        self, connection: Connection, correlation: int, queue: str, current: bool
    ) -> None:
        connection.end(0, 0)
        if current and not self._machine.has_queue(queue):
            refuse_no_queue(connection, correlation, queue)
        else:
            text = f"this node cannot be sure that there is no queue {queue!r}; retry"
            connection.refuse(correlation, Code.NOT_NOW, text)

    def ask_for(
        self,
        quotas: Quotas,
        quota: Quota,
        adds: int,
        connection: Connection,
        frame: Frame,
        command: Command,
        answer: Callable[[Reply], None],
        *,
        late: bool = False,
        decided: Callable[[], None] | None = None,
    ) -> bool:
        """The same as `ask`, for a command that adds so many items to a pool, perhaps none."""
        if not adds:
            return self.ask(connection, frame, command, answer, late=late, decided=decided)
        found = quotas.refusal(connection.rights, quota, adds)
        if found is not None:
            connection.refuse(frame.correlation, found.code, found.text, found.detail)
            return False
        counted = quotas.proposed(connection.rights, quota, adds)

        def both() -> None:
            counted()
            if decided is not None:
                decided()

        asked = self.ask(connection, frame, command, answer, late=late, decided=both)
        if not asked:
            counted()
        return asked

    def ask(
        self,
        connection: Connection,
        frame: Frame,
        command: Command,
        answer: Callable[[Reply], None],
        *,
        late: bool = False,
        checked: bool = False,
        raw: bytes = b"",
        placed: Callable[[int], Command] | None = None,
        decided: Callable[[], None] | None = None,
        continues: bool = False,
        version: int = 0,
        patient: bool = False,
    ) -> bool:
        """Check a command, propose it, and answer from its reply; False if it was refused.

        `placed` returns the command for the offset of `raw` in the entry's area; `command` is the
        one for offset 0. `late`: answer after the deliveries of the same entry. `checked`: the
        fields of the frame are bounded as those of the command are. `decided` is called when the
        command is applied, refused, or known not to be applied, before the answer. `continues`:
        it is not the first command of its request, which the audit log has already. `version`: the
        machine version that the command needs, where that is not in use yet. `patient`: see
        `Batcher.add`.
        """
        plain = to_list(command)
        try:
            if not checked:
                from_list(plain)
        except ValueError as error:
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, str(error))
            return False
        size = _REQUEST_BYTES + len(raw)
        connection.begin(size, 0)
        if type(frame.message) in AUDITED and not continues:
            self.note(connection, frame.message)

        def replied(reply: Reply) -> None:
            connection.end(size, 0)
            if decided is not None:
                decided()
            if type(reply) is Refused:
                refuse(connection, frame.correlation, reply)
            else:
                answer(reply)

        def lost(outcome: Outcome) -> None:
            if decided is not None:
                decided()
            connection.lose(outcome)

        waiter = Waiter(replied, lost=lost, late=late)
        weight = self._proposals.weigh(plain)
        if placed is None:
            self._proposals.propose(
                lambda _: plain, waiter, weight=weight, version=version, patient=patient
            )
        else:
            self._proposals.propose(lambda at: to_list(placed(at)), waiter, weight=weight, raw=raw)
        return True


def user_of(connection: Connection) -> str:
    """The name of the client's user, empty in a cluster without users."""
    return "" if connection.rights is None else connection.rights.user.name


def message_of(frame: Frame, kind: type[M]) -> M:
    """The message of a frame, which the table of handlers has dispatched by its type."""
    assert isinstance(frame.message, kind)
    return frame.message


def fence(connection: Connection) -> tuple[int, int]:
    """The role and epoch that a command is fenced by."""
    return connection.role, connection.epoch


def ok(connection: Connection, frame: Frame) -> Callable[[Reply], None]:
    """An answer that reports success without a result."""

    def answer(reply: Reply) -> None:
        connection.send(Ok(), frame.correlation)

    return answer


def refuse(connection: Connection, correlation: int, reply: Reply) -> Refused:
    """Answer with the machine's refusal, and return it."""
    assert isinstance(reply, Refused), f"unexpected reply {type(reply).__name__}"
    connection.refuse(correlation, wire_code(reply), reply.text, detail_of(reply))
    return reply


def refuse_no_queue(connection: Connection, correlation: int, queue: str | None) -> None:
    """Refuse a request for a queue that does not exist."""
    connection.refuse(
        correlation, Code.QUEUE_NOT_FOUND, f"there is no queue {queue!r}; declare it first"
    )
