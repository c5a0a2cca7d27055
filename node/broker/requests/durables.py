"""Durable consumers: a name that outlives sessions, and the verbs that a client uses under it.

Owns the way from a `Durable` request to the machine's commands and back. The wire names a durable
consumer by queue and name, the machine by number and generation: the number is looked up here, and
the machine refuses whoever was replaced meanwhile. Changes no state by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fifo.machine import commands, replies
from fifo.machine import limits as machine_limits
from fifo.machine.replies import Reply
from fifo.wire import Code, Frame
from fifo.wire.limits import RANGES_MAX
from fifo.wire.messages import Durable, Message, Ok, Receipt
from node.broker.connections.connection import Connection
from node.broker.connections.sessions import Session
from node.broker.machine_host import MachineHost
from node.broker.requests.requests import Handler, Requests

_RECEIPT_LINES_MAX = RANGES_MAX * 4
"""What a receipt holds; of more ranges that could not be acked the first are named."""

NOBODY = 0
"""No session has this number: what is delivered to it is not sent, and can be fetched."""

ANY = 0
"""No durable consumer has this number: a verb for whichever has the name."""

Verb: TypeAlias = Callable[[Connection, Session, Frame, Durable, int], None]
"""Carries out one verb for a durable consumer with this number."""


class Durables:
    """Handler of everything that durable consumers ask."""

    def __init__(self, host: MachineHost, requests: Requests, *, consumers_max: int) -> None:
        self._host = host
        self._requests = requests
        self._consumers_max = consumers_max
        self._verbs: dict[str, Verb] = {
            "reserve": self._reserve,
            "fetch": self._fetch,
            "ack": self._ack,
            "renew": self._renew,
            "forget": self._forget,
        }
        self.handlers: dict[type[Message], Handler] = {Durable: self.durable}

    def durable(self, connection: Connection, session: Session, frame: Frame) -> None:
        """One verb of one durable consumer."""
        message = frame.message
        assert isinstance(message, Durable)
        verb = self._verbs.get(message.verb)
        if verb is None and message.verb != "open":
            text = f"a durable consumer's verb must be one of open, {', '.join(self._verbs)}"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
        elif self._requests.no_queue(connection, frame.correlation, message.queue):
            return
        elif verb is None:
            self._open(connection, frame, message)
        else:
            consumer = self._host.durable(message.queue, message.name)
            if consumer is None:
                text = f"there is no durable consumer {message.name!r}; open it first"
                connection.refuse(frame.correlation, Code.UNKNOWN_CONSUMER, text)
            elif message.consumer not in (ANY, consumer.number):
                # Its generations began anew, so they tell nothing about the one before.
                text = "this durable consumer was forgotten, and another has its name now"
                connection.refuse(frame.correlation, Code.UNKNOWN_CONSUMER, text)
            else:
                verb(connection, session, frame, message, consumer.number)

    def _open(self, connection: Connection, frame: Frame, message: Durable) -> None:
        """Find or create it, and take it over: whoever had it before is refused from now on."""
        known = self._host.durable(message.queue, message.name) is not None
        if not known and self._host.consumer_count() >= self._consumers_max:
            text = f"this cluster has its {self._consumers_max} consumers"
            connection.refuse(frame.correlation, Code.LIMIT, text)
            return

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.DurableOpened)
            result = {
                "consumer": reply.consumer,
                "generation": reply.generation,
                "next_token": reply.next_token,
                "held": [list(one) for one in reply.held],
            }
            connection.send(Ok(result), frame.correlation)

        command = commands.OpenDurable(message.queue, message.name, message.options or {})
        self._requests.ask(connection, frame, command, answer)

    def _reserve(
        self,
        connection: Connection,
        session: Session,
        frame: Frame,
        message: Durable,
        consumer: int,
    ) -> None:
        """The next `last` messages; delivered before the answer, unless `first` says not to. In as
        many steps as the machine needs to find one, or to see that none is ready."""
        asks = NOBODY if message.first else session.number
        command = commands.Reserve(consumer, message.generation, message.last, asks)

        def step() -> None:
            self._requests.ask(connection, frame, command, answer, late=True)

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Reserved)
            if reply.count or not reply.more:
                _answer_reserved(connection, frame, reply)
            elif connection.open:
                step()

        step()

    def _fetch(
        self,
        connection: Connection,
        session: Session,
        frame: Frame,
        message: Durable,
        consumer: int,
    ) -> None:
        """What is still locked of tokens first..last, once more, in as many steps as the machine
        needs for it; before the answer likewise."""
        sent = 0

        def step(first: int) -> None:
            command = commands.Fetch(
                consumer, message.generation, first, message.last, session.number
            )
            self._requests.ask(connection, frame, command, answer, late=True)

        def answer(reply: Reply) -> None:
            nonlocal sent
            assert isinstance(reply, replies.Reserved)
            sent += reply.count
            if reply.rest:
                if connection.open:
                    step(reply.rest)
                return
            whole = replies.Reserved(consumer, message.first, sent)
            _answer_reserved(connection, frame, whole)

        step(message.first)

    def _ack(
        self,
        connection: Connection,
        session: Session,
        frame: Frame,
        message: Durable,
        consumer: int,
    ) -> None:
        """Everything up to `last`, in as many steps as the machine needs for it.

        `first`: the answers about what is before it have arrived.
        """
        lines: list[tuple[int, int, int, bool]] = []
        upto = 0

        def step() -> None:
            nonlocal upto
            found = self._host.durable(message.queue, message.name)
            known = 0 if found is None else found.resolved_below
            first = max(known, message.first, upto + 1)
            upto = min(message.last, first + machine_limits.ACK_UPTO_MESSAGES - 1)
            command = commands.AckUpto(consumer, message.generation, upto, first, message.first)
            self._requests.ask(connection, frame, command, answer)

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Receipt)
            lines.extend(reply.ranges)
            found = self._host.durable(message.queue, message.name)
            if upto < message.last and found is not None and upto < found.next_token - 1:
                if connection.open:
                    step()
                return
            connection.send(Receipt(consumer, tuple(lines[:_RECEIPT_LINES_MAX])), frame.correlation)

        step()

    def _renew(
        self,
        connection: Connection,
        session: Session,
        frame: Frame,
        message: Durable,
        consumer: int,
    ) -> None:
        """Everything that it holds is locked anew."""
        command = commands.RenewDurable(consumer, message.generation)
        self._requests.ask(connection, frame, command, _done(connection, frame))

    def _forget(
        self,
        connection: Connection,
        session: Session,
        frame: Frame,
        message: Durable,
        consumer: int,
    ) -> None:
        """The end of it; what it holds returns, uncounted."""
        command = commands.Forget(consumer, message.generation)
        self._requests.ask(connection, frame, command, _done(connection, frame))


def _answer_reserved(connection: Connection, frame: Frame, reply: replies.Reserved) -> None:
    result = {
        "consumer": reply.consumer,
        "first_token": reply.first_token,
        "count": reply.count,
    }
    connection.send(Ok(result), frame.correlation)


def _done(connection: Connection, frame: Frame) -> Callable[[Reply], None]:
    def answer(reply: Reply) -> None:
        connection.send(Ok(), frame.correlation)

    return answer
