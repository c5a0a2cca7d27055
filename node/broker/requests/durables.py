"""Durable consumers: a name that outlives sessions, and the verbs that a client uses under it.

Owns the way from a `Durable` request to the machine's commands and back. The wire names a durable
consumer by queue and name, the machine by number and generation: the number is looked up here, and
the machine refuses a client that was replaced meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from fifo.machine.contract import Machine, Range, Reply, commands, replies
from fifo.machine.contract import limits as machine_limits
from fifo.wire import Code, Frame
from fifo.wire.limits import RANGES_MAX
from fifo.wire.messages import Durable, Ok, Receipt
from fifo.words.versions import KEY_RUNS
from node.broker.bodiless import Bodiless
from node.broker.connections.connection import Binding, Connection
from node.broker.quotas import Quotas
from node.broker.requests.proposer import Proposer, message_of, ok, user_of
from node.users import Quota

_RECEIPT_LINES_MAX = RANGES_MAX * 4
"""Bound of a receipt: if more ranges could not be acked, only the first are named."""

NO_SESSION = 0
"""No session has this number: deliveries to it are not sent, and can be fetched."""

ANY = 0
"""No durable consumer has this number: the verb is for the one with the name."""


class DurableRequest(NamedTuple):
    """A verb of a client for the durable consumer with this number."""

    connection: Connection
    session: Binding
    frame: Frame
    message: Durable
    consumer: int


VerbHandler: TypeAlias = Callable[[DurableRequest], None]


class Durables:
    """Handler of the verbs of durable consumers."""

    def __init__(
        self, machine: Machine, proposer: Proposer, quotas: Quotas, bodiless: Bodiless
    ) -> None:
        self._bodiless = bodiless
        self._machine = machine
        self._proposer = proposer
        self._quotas = quotas
        self._verbs: dict[str, VerbHandler] = {
            "reserve": self._reserve,
            "fetch": self._fetch,
            "ack": self._ack,
            "renew": self._renew,
            "forget": self._forget,
        }

    def durable(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Dispatch one verb of one durable consumer."""
        message = message_of(frame, Durable)
        verb = self._verbs.get(message.verb)
        if verb is None and message.verb != "open":
            text = f"unknown verb {message.verb!r}: use one of open, {', '.join(self._verbs)}"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
        elif self._proposer.lacks_queue(connection, frame.correlation, message.queue):
            return
        elif verb is None:
            self._open(connection, frame, message)
        else:
            consumer = self._machine.durable(message.queue, message.name)
            if consumer is None and message.consumer == ANY:
                text = f"there is no durable consumer {message.name!r}; open it first"
                connection.refuse(frame.correlation, Code.UNKNOWN_CONSUMER, text)
            elif consumer is None:
                text = (
                    f"durable consumer {message.name!r} is gone with all that it held: its queue"
                    " was deleted, or it was forgotten or unused for 7 days; open it again"
                )
                connection.refuse(frame.correlation, Code.UNKNOWN_CONSUMER, text)
            elif message.consumer not in (ANY, consumer.number):
                # Its generations started over, so they say nothing about the one before.
                text = (
                    f"durable consumer {message.name!r} is gone with all that it held: its queue"
                    " was deleted, or it was forgotten, and another has its name now; open it again"
                )
                connection.refuse(frame.correlation, Code.UNKNOWN_CONSUMER, text)
            else:
                verb(DurableRequest(connection, session, frame, message, consumer.number))

    def _open(self, connection: Connection, frame: Frame, message: Durable) -> None:
        """Find or create it, and take it over: its former client is refused from now on."""

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.DurableOpened)
            result = {
                "consumer": reply.consumer,
                "generation": reply.generation,
                "next_token": reply.next_token,
                "held": _ends(reply.held),
                "lost": _ends(reply.lost),
            }
            connection.send(Ok(result), frame.correlation)

        command = commands.OpenDurable(
            message.queue, message.name, message.options or {}, user_of(connection)
        )
        anew = self._machine.durable(message.queue, message.name) is None
        self._proposer.ask_for(
            self._quotas, Quota.CONSUMERS, int(anew), connection, frame, command, answer
        )

    def _reserve(self, request: DurableRequest) -> None:
        """Lock the next `last` messages; deliver them before the answer, unless `first` is set. As
        many steps as the machine needs to find one, or to see that none is ready."""
        connection, session, frame, message, consumer = request
        if message.runs and self._machine.version < KEY_RUNS:
            text = (
                f"runs of a key come with version {KEY_RUNS} of the cluster, which is at"
                f" {self._machine.version}: upgrade all nodes, then `fifo upgrade finish`; or leave"
                " runs (keyRuns in Spark) out"
            )
            connection.refuse(frame.correlation, Code.UNSUPPORTED, text)
            return
        asks = NO_SESSION if message.first else session.number
        command = commands.Reserve(
            consumer, message.generation, message.last, asks, message.max_bytes, message.runs
        )

        def step() -> None:
            self._proposer.ask(connection, frame, command, answer, late=True)

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Reserved)
            if reply.count or not reply.more:
                _answer_reserved(connection, frame, reply)
            elif connection.open:
                step()

        step()

    def _fetch(self, request: DurableRequest) -> None:
        """Deliver once more what is still locked of tokens first..last, before the answer: in as
        many steps as the machine needs, or in one where `max_bytes` bounds it. Without bodies where
        the client wants none."""
        connection, session, frame, message, consumer = request
        of, bodies = (session.number, consumer), message.bodies
        sent = 0
        lost: list[Range] = []

        def over() -> None:
            # An answer that comes late has its deliveries before it.
            self._bodiless.end(of, bodies=bodies)

        def step(first: int) -> None:
            command = commands.Fetch(
                consumer,
                message.generation,
                first,
                message.last,
                session.number,
                message.max_bytes,
            )
            self._bodiless.begin(of, bodies=bodies)
            if not self._proposer.ask(connection, frame, command, answer, late=True, decided=over):
                over()

        def answer(reply: Reply) -> None:
            nonlocal sent
            assert isinstance(reply, replies.Reserved)
            sent += reply.count
            lost.extend(reply.lost)
            if reply.rest and not message.max_bytes:
                if connection.open:
                    step(reply.rest)
                return
            whole = replies.Reserved(consumer, message.first, sent, reply.rest, lost=tuple(lost))
            _answer_reserved(connection, frame, whole)

        step(message.first)

    def _ack(self, request: DurableRequest) -> None:
        """Ack everything up to `last`, in as many steps as the machine needs.

        `first`: the client has the receipts for all tokens before it.
        """
        connection, _, frame, message, consumer = request
        lines: list[tuple[int, int, int, bool]] = []
        upto = 0

        def step() -> None:
            nonlocal upto
            found = self._machine.durable(message.queue, message.name)
            known = 0 if found is None else found.resolved_below
            first = max(known, message.first, upto + 1)
            upto = min(message.last, first + machine_limits.ACK_UPTO_MESSAGES - 1)
            command = commands.AckUpto(consumer, message.generation, upto, first, message.first)
            self._proposer.ask(connection, frame, command, answer)

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Receipt)
            lines.extend(reply.ranges)
            found = self._machine.durable(message.queue, message.name)
            if upto < message.last and found is not None and upto < found.next_token - 1:
                if connection.open:
                    step()
                return
            connection.send(Receipt(consumer, tuple(lines[:_RECEIPT_LINES_MAX])), frame.correlation)

        step()

    def _renew(self, request: DurableRequest) -> None:
        """Renew the locks of everything that it holds."""
        self._ask(request, commands.RenewDurable(request.consumer, request.message.generation))

    def _forget(self, request: DurableRequest) -> None:
        """End it; its locks are released without a count."""
        self._ask(request, commands.Forget(request.consumer, request.message.generation))

    def _ask(self, request: DurableRequest, command: commands.Command) -> None:
        answer = ok(request.connection, request.frame)
        self._proposer.ask(request.connection, request.frame, command, answer)


def _answer_reserved(connection: Connection, frame: Frame, reply: replies.Reserved) -> None:
    result = {
        "consumer": reply.consumer,
        "first_token": reply.first_token,
        "count": reply.count,
        "rest": reply.rest,
        "left_bytes": reply.left_bytes,
        "lost": _ends(reply.lost),
    }
    connection.send(Ok(result), frame.correlation)


def _ends(ranges: Sequence[Range]) -> list[int]:
    """Ranges as a plain list, first and last in turn: all that one may hold fits into an answer."""
    return [end for one in ranges for end in one]
