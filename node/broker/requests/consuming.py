"""Requests of consumers: subscribe and cancel, credit, get, settle, and signs of life.

Owns the way from each of these messages to its command; a get without a message waits in
`WaitingGets`. Must not know how deadlines are kept or how deliveries travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from fifo.machine.contract import Reply, commands, replies
from fifo.machine.contract import limits as machine_limits
from fifo.wire import Code, Frame
from fifo.wire.messages import (
    Alive,
    Cancel,
    Credit,
    Get,
    Got,
    Ok,
    Receipt,
    Settle,
    Subscribe,
    Subscribed,
)
from fifo.words.consumer_options import REPLICATED
from fifo.words.settlement import Verb
from node.broker.connections.connection import Binding, Connection
from node.broker.context import Context
from node.broker.permissions import Rights
from node.broker.quotas import Quotas
from node.broker.requests.proposer import Proposer, fence, message_of, ok
from node.broker.waiting_gets import WaitingGets
from node.users import Permission, Quota


class Consuming:
    """Handler of everything that a session's consumers request."""

    def __init__(
        self, context: Context, proposer: Proposer, gets: WaitingGets, quotas: Quotas
    ) -> None:
        self._machine = context.host.machine
        self._proposer = proposer
        self._gets = gets
        self._quotas = quotas
        self._prefetch_max = context.settings.prefetch

    def subscribe(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Create a consumer of a queue."""
        message = message_of(frame, Subscribe)
        if self._proposer.lacks_queue(connection, frame.correlation, message.queue):
            return
        if self._exceeds(connection, frame, message.prefetch):
            return
        given = [(one, getattr(message, one.wire_name)) for one in REPLICATED]
        options = {one.wire_name: value for one, value in given if value != one.default}
        command = commands.Subscribe(
            session.number, message.tag, message.queue, options, fence(connection)
        )

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Subscribed)
            connection.send(
                Subscribed(
                    reply.consumer,
                    reply.lock_ms,
                    self._machine.max_lock_ms(reply.consumer),
                    reply.prefetch,
                    reply.active,
                    self._machine.locks_end_together(reply.consumer),
                ),
                frame.correlation,
            )

        anew = self._machine.subscribes_anew(session.number, message.queue, message.tag)
        self._proposer.ask_for(
            self._quotas, Quota.CONSUMERS, int(anew), connection, frame, command, answer
        )

    def _exceeds(self, connection: Connection, frame: Frame, prefetch: int) -> bool:
        """Refuse a prefetch above the operator's bound; True if refused."""
        if prefetch <= self._prefetch_max:
            return False
        text = f"a prefetch of {prefetch} exceeds this cluster's limit of {self._prefetch_max}"
        connection.refuse(frame.correlation, Code.LIMIT, text)
        return True

    def cancel(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Cancel a consumer: it gets no more messages."""
        message = message_of(frame, Cancel)
        command = commands.Cancel(
            session.number, message.consumer, message.unopened, fence(connection)
        )
        self._proposer.ask(connection, frame, command, ok(connection, frame), checked=True)

    def credit(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Set the credit of a consumer with explicit credit, or the prefetch of another one."""
        message = message_of(frame, Credit)
        pulls = self._machine.pulls(message.consumer)
        if not pulls and self._exceeds(connection, frame, message.credit):
            return

        def step(count: int) -> None:
            command = commands.Credit(
                session.number,
                message.consumer,
                count,
                message.drain,
                message.automatic,
                fence(connection),
            )
            self._proposer.ask(connection, frame, command, answer)

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Credited)
            if not reply.more:
                connection.send(Ok({"left": reply.left}), frame.correlation)
            elif connection.open:
                step(reply.left)

        step(message.credit)

    def get(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Lock messages now, or within the time that the client waits."""
        message = message_of(frame, Get)
        if self._proposer.lacks_queue(connection, frame.correlation, message.queue):
            return
        command = commands.Get(
            session.number, message.queue, message.count, message.lock_ms, fence(connection)
        )
        deadline = self._gets.deadline(message.wait_ms)
        waited = False
        nothing = Got(0, 0, 0)

        def step() -> bool:
            anew = self._machine.gets_anew(session.number, message.queue)
            return self._proposer.ask_for(
                self._quotas, Quota.CONSUMERS, int(anew), connection, frame, command, answer,
                late=True,
            )  # fmt: skip

        def answer(reply: Reply) -> None:
            nonlocal nothing
            assert isinstance(reply, replies.Got)
            together = self._machine.locks_end_together(reply.consumer)
            if reply.count == 0 and connection.open:
                # The client ends this consumer some time, so it has to know the number.
                nothing = Got(reply.consumer, reply.first_token, 0, together)
                # One step of the machine may have found nothing only because it is bounded.
                if reply.more:
                    step()
                    return
                if self._gets.add(message.queue, deadline, again, give_up, rested=not waited):
                    return
            got = Got(reply.consumer, reply.first_token, reply.count, together)
            connection.send(got, frame.correlation)

        def again() -> bool:
            nonlocal waited
            waited = True
            return connection.open and step()

        def give_up() -> None:
            connection.send(nothing, frame.correlation)

        step()

    def alive(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Note that the program behind a consumer is alive."""
        message = message_of(frame, Alive)
        command = commands.Alive(session.number, message.consumer, message.lost, fence(connection))
        self._proposer.ask(connection, frame, command, ok(connection, frame))

    def settle(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Ack, nack, release or terminate; answered with a receipt."""
        message, correlation, _ = frame
        assert isinstance(message, Settle)
        if message.generation:
            refusal = self._may_not_settle(connection.rights, message.consumer)
            if refusal is not None:
                connection.refuse(correlation, Code.PERMISSION_DENIED, refusal)
                return
        texts = [message.reason, message.description, message.exception_text, message.stack]
        parts: list[bytes] = []
        if any(texts):
            if message.verb != Verb.TERMINATE:  # the texts of other verbs are not kept whole
                texts = [_cut(text, machine_limits.INLINE_TEXT_BYTES) for text in texts]
            texts, parts = _long_texts(texts)
        reason, description, exception_text, stack = texts
        raw = b"".join(parts)

        def placed(at: int) -> commands.Settle:
            return commands.Settle(
                session.number,
                message.consumer,
                message.verb,
                message.tokens,
                message.delay_ms,
                reason,
                description,
                _cut(message.exception_type, machine_limits.EXCEPTION_TYPE_BYTES),
                exception_text,
                stack,
                message.resolved_below,
                _places(at, parts) if raw else None,
                message.automatic,
                fence(connection),
                message.handles,
                message.generation,
            )

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Receipt)
            connection.send(Receipt(reply.consumer, reply.ranges), correlation)

        # Nothing can be handed out for an ack where no message waits: it may share an entry.
        patient = message.verb == Verb.ACK and self._machine.is_drained(message.consumer)
        self._proposer.ask(
            connection,
            frame,
            placed(0),
            answer,
            checked=True,
            raw=raw,
            placed=placed if raw else None,
            patient=patient,
        )

    def _may_not_settle(self, rights: Rights | None, consumer: int) -> str | None:
        """Why the user may not settle what a durable consumer holds: it is no session's own."""
        found = self._machine.consumer_figures(consumer)
        if rights is None or found is None:
            return None
        return rights.lacks(found.queue, Permission.CONSUME)


def _cut(text: str | None, bytes_max: int) -> str | None:
    """Cut a text for people to the length that the state keeps."""
    if text is None or len(text) * 4 <= bytes_max:
        return text
    return text.encode()[:bytes_max].decode(errors="ignore")


def _long_texts(texts: Sequence[str | None]) -> tuple[list[str | None], list[bytes]]:
    """Split texts: (those that stand in the command, those that lie in the entry's area)."""
    inline, parts = list(texts), [b""] * len(texts)
    for place, text in enumerate(texts):
        if text is not None and len(text) * 4 > machine_limits.INLINE_TEXT_BYTES:
            raw = text.encode()
            if len(raw) > machine_limits.INLINE_TEXT_BYTES:
                inline[place], parts[place] = None, raw
    return inline, parts


def _places(at: int, parts: Sequence[bytes]) -> tuple[tuple[int, int] | None, ...]:
    """Place of each part, end to end from `at` on; None for an empty one."""
    ends = accumulate(map(len, parts), initial=at)
    return tuple([(low, high - low) if high > low else None for low, high in pairwise(ends)])
