"""Requests of publishers: publish, and named producers.

Owns the way of messages into the log: columns are checked, bodies are not touched. Must not know
how entries travel. `docs/protocol.md` specifies each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from fifo.machine.contract import Refused, Reply, code_of, commands, replies
from fifo.machine.contract import limits as machine_limits
from fifo.wire import Code, Frame, columns
from fifo.wire.limits import BODY_BYTES_MAX
from fifo.wire.messages import ForgetProducer, Ok, OpenProducer, Publish
from node.broker import cost, limits
from node.broker.connections.connection import Binding, Connection
from node.broker.context import Context
from node.broker.permissions import Rights
from node.broker.proposals import Proposals, Waiter
from node.broker.quotas import Quotas
from node.broker.refusals import error_item, wire_code
from node.broker.requests.proposer import Proposer, message_of, ok, refuse, user_of
from node.broker.requests.slowing import Slowing
from node.users import Permission, Quota

_PUBLISH = code_of(commands.Publish)
_NO_COLUMNS = (None,) * 7


class Publishing:
    """Handler of publishes and named producers."""

    def __init__(
        self,
        context: Context,
        proposals: Proposals,
        proposer: Proposer,
        quotas: Quotas,
        slowing: Slowing,
    ) -> None:
        self._slowing = slowing
        self._alarms = context.alarms
        self._machine = context.host.machine
        self._counters = context.counters
        self._body_bytes_max = context.settings.body_bytes
        self._proposals = proposals
        self._proposer = proposer
        self._quotas = quotas

    def publish(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Append messages to the log unopened."""
        message, _, raw = frame
        assert isinstance(message, Publish)
        refusal = self._alarms.refusal
        if refusal is not None:
            self._refuse(connection, frame, Code.OVERLOADED, refusal)
            return
        try:
            layout = columns.lay_out(message.columns, raw, message.count, columns.PUBLISH_TAGS)
            columns.check_publish(layout)
            if self._body_bytes_max < BODY_BYTES_MAX:
                self.check_bodies(layout)
        except columns.ColumnError as error:
            self._refuse(connection, frame, error.code, str(error))
            return
        headers = layout.column(columns.HEADER_BLOB)
        if headers is None:
            self._admit(connection, session, frame, layout)
            return
        pieces = self._with_headers(connection, session, frame, layout)
        if len(headers) > limits.HEADERS_AT_ONCE_BYTES:
            connection.answer_in_pieces(frame, pieces)
        else:
            for _ in pieces:
                pass

    def _with_headers(
        self, connection: Connection, session: Binding, frame: Frame, layout: columns.Layout
    ) -> Iterator[None]:
        """Check the headers, in pieces, before the messages are proposed."""
        try:
            yield from self.header_pieces(layout)
        except columns.ColumnError as error:
            self._refuse(connection, frame, error.code, str(error))
            return
        self._admit(connection, session, frame, layout)

    def header_pieces(self, layout: columns.Layout) -> Iterator[None]:
        """Check the headers, in pieces of a few milliseconds. Raises ColumnError."""
        unseen = limits.HEADERS_AT_ONCE_BYTES
        for size in columns.check_headers(layout):
            unseen -= size
            if unseen < 0:
                unseen = limits.HEADERS_AT_ONCE_BYTES
                yield

    def _admit(
        self, connection: Connection, session: Binding, frame: Frame, layout: columns.Layout
    ) -> None:
        """Propose messages whose columns are sound, if they may be stored; else refuse them."""
        message, correlation, raw = frame
        assert isinstance(message, Publish)
        if self._proposer.lacks_queue(connection, correlation, message.queue):
            self._counters.refused(Code.QUEUE_NOT_FOUND, message.count)
            return
        size = len(raw)
        full = None if connection.rights is None else self._quotas.stores(message.queue, size)
        if full is not None:
            self._counters.refused(full.code, message.count)
            connection.refuse(correlation, full.code, full.text, full.detail)
            return
        answer = partial(self._answer, connection, correlation, message.count)
        self.propose(connection, session, message, layout, answer)

    def propose(
        self,
        connection: Connection,
        session: Binding,
        message: Publish,
        layout: columns.Layout,
        answer: Callable[[Reply], None],
    ) -> None:
        """Propose messages that may be stored; `layout`: of the raw part that goes into the log."""
        size = len(layout.raw)
        connection.begin(size, message.count)
        alone = len(layout.places) > 1 and columns.differs(layout)
        weight = cost.stored(self._machine, message.queue, alone=alone)
        most = limits.PUBLISH_MICROSECONDS_MAX // weight
        alike = weight == cost.STORED and columns.DELAYS_MS not in layout.places

        def replied(reply: Reply) -> None:
            connection.end(size, message.count)
            answer(reply)

        if not (alike or layout.count <= most or self._too_many(message)):
            self._propose_parts(connection, session, message, layout, weight, replied)
            return
        build = _builder(connection, session, message, layout, (message.previous, message.number))
        waiter = Waiter(replied, lost=connection.lose)
        weight = cost.COMMAND + layout.count * weight
        self._proposals.propose(build, waiter, weight=weight, raw=layout.raw)

    def _propose_parts(
        self,
        connection: Connection,
        session: Binding,
        message: Publish,
        layout: columns.Layout,
        weight: int,
        replied: Callable[[Reply], None],
    ) -> None:
        """Propose the messages in as many commands as their apply may take, and answer once;
        `weight`: of one of them."""
        most = limits.PUBLISH_MICROSECONDS_MAX // weight
        count = -(-layout.count // most)
        found: list[Reply] = []

        def answer(reply: Reply) -> None:
            found.append(reply)
            if len(found) == count:
                replied(joined(found, most))

        waiter = Waiter(answer, lost=connection.lose)
        previous, place = message.previous, 0
        for part in columns.split(layout, most):
            numbers = part.column(columns.NUMBERS)
            listed = None if numbers is None else columns.unpack_u64(numbers)
            number = message.number + place if listed is None or not place else listed[0]
            build = _builder(connection, session, message, part, (previous, number))
            weighed = cost.COMMAND + part.count * weight
            self._proposals.propose(build, waiter, weight=weighed, raw=part.raw)
            place += part.count
            previous = number + part.count - 1 if listed is None else listed[-1]

    def _too_many(self, message: Publish) -> bool:
        """Whether the machine has to refuse it whole."""
        most = machine_limits.DROPPING_MESSAGES
        return self._machine.drops_oldest(message.queue) and message.count > most

    def _answer(self, connection: Connection, correlation: int, count: int, reply: Reply) -> None:
        if type(reply) is not replies.Published:
            refused = refuse(connection, correlation, reply)
            self._counters.refused(wire_code(refused), count)
            return
        self.confirm(connection, correlation, count, reply)

    def confirm(
        self, connection: Connection, correlation: int, count: int, reply: replies.Published
    ) -> None:
        """Say what of a publish of `count` messages was stored."""
        done = reply.duplicates + reply.stored
        self._counters.confirmed_messages += done
        error = None
        if reply.refused is not None:
            error = error_item(reply.refused)
            self._counters.refused(wire_code(reply.refused), count - done)
        repeats = (reply.repeats,) if reply.repeats else ()
        item = reply.queue, reply.producer, reply.duplicates, reply.stored, error, *repeats
        if count < limits.SLOWED_MESSAGES_MIN:
            connection.confirm(correlation, item)
        else:
            self._slowing.confirm(reply.queue, partial(connection.confirm, correlation, item))

    def _refuse(self, connection: Connection, frame: Frame, code: str, text: str) -> None:
        self._counters.refused(code, message_of(frame, Publish).count)
        connection.refuse(frame.correlation, code, text)

    def check_bodies(self, layout: columns.Layout) -> None:
        """Enforce the operator's bound of a body. Raises ColumnError."""
        sizes = layout.column(columns.SIZES)
        longest = max(columns.unpack_u32(sizes or b""), default=0)
        if longest > self._body_bytes_max:
            raise columns.ColumnError(
                Code.TOO_LARGE,
                f"a body of {longest} bytes exceeds this cluster's limit of {self._body_bytes_max}",
            )

    def open_producer(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Open a named producer; answer with its last stored number in each queue."""
        message = message_of(frame, OpenProducer)

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.ProducerOpened)
            rights = connection.rights
            seen = [
                one
                for one in reply.last
                if rights is None or rights.may(Permission.PUBLISH, one[0])
            ]
            result = {
                "producer": reply.producer,
                "last": {queue: last for queue, _, last in seen},
                "queues": {queue: number for queue, number, _ in seen},
            }
            connection.send(Ok(result), frame.correlation)

        command = commands.OpenProducer(message.name, user_of(connection))
        anew = self._machine.opener_of_producer(message.name) is None
        self._proposer.ask_for(
            self._quotas, Quota.PRODUCERS, int(anew), connection, frame, command, answer
        )

    def forget_producer(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Forget a named producer, if the user may manage every queue that it published to, or
        opened it while there is none.
        """
        message = message_of(frame, ForgetProducer)
        refusal = self._may_not_forget(connection.rights, message.name)
        if refusal is not None:
            connection.refuse(frame.correlation, Code.PERMISSION_DENIED, refusal)
            return
        command = commands.ForgetProducer(message.name)
        self._proposer.ask(connection, frame, command, ok(connection, frame))

    def _may_not_forget(self, rights: Rights | None, name: str) -> str | None:
        if rights is None or rights.user.operate:
            return None
        published_to = self._machine.queues_of_producer(name)
        if not all(rights.may(Permission.MANAGE, queue) for queue in published_to):
            return "this producer has published to queues that the user may not manage"
        opener = self._machine.opener_of_producer(name)
        if not published_to and opener not in (None, rights.user.name):
            return (
                f"producer {name!r} has published nowhere and was opened by another user: only"
                " that user, or one with operate = true, may forget it"
            )
        return None


def joined(found: Sequence[Reply], most: int) -> Reply:
    """The reply to a publish from those to its parts, of `most` messages each but the last.

    What is stored is a prefix: the first part that was refused ends it.
    """
    first = found[0]
    if len(found) == 1 or type(first) is not replies.Published:
        return first
    stored = duplicates = 0
    refused: Refused | None = None
    repeats: list[replies.Repeat] = []
    for part, reply in enumerate(found):
        if type(reply) is not replies.Published:
            assert isinstance(reply, Refused), f"unexpected reply {type(reply).__name__}"
            refused = reply
            break
        stored += reply.stored
        duplicates += reply.duplicates
        repeats += [one._replace(place=one.place + part * most) for one in reply.repeats]
        refused = reply.refused
        if refused is not None:
            break
    return replies.Published(
        first.queue, first.producer, stored, duplicates, refused, tuple(repeats)
    )


def _builder(
    connection: Connection,
    session: Binding,
    message: Publish,
    layout: columns.Layout,
    numbers: tuple[int, int],
) -> Callable[[int], Sequence[Any]]:
    """Makes the plain form of `commands.Publish` directly: this is the one hot command.

    `numbers`: that of the message before, and that of the first.
    """
    fence = connection.role, connection.epoch

    def build(at: int) -> Sequence[Any]:
        return [
            _PUBLISH,
            session.number,
            message.producer,
            message.queue,
            *numbers,
            layout.count,
            at + layout.places[columns.SIZES][0],
            at + layout.bodies_at,
            *optional_columns(layout, at),
            message.queue_below,
            fence,
        ]

    return build


def optional_columns(layout: columns.Layout, at: int) -> Sequence[object]:
    """Offsets of the columns beyond sizes, in the order of `commands.Publish`."""
    if len(layout.places) == 1:
        return _NO_COLUMNS

    def single(tag: int) -> int | None:
        offset = layout.at(tag)
        return None if offset is None else at + offset

    def pair(lengths_tag: int, blob_tag: int) -> tuple[int, int] | None:
        lengths_at, blob_at = layout.at(lengths_tag), layout.at(blob_tag)
        if lengths_at is None or blob_at is None:
            return None
        return at + lengths_at, at + blob_at

    return (
        pair(columns.KEY_LENGTHS, columns.KEY_BLOB),
        pair(columns.HEADER_LENGTHS, columns.HEADER_BLOB),
        single(columns.PRIORITIES),
        single(columns.DELAYS_MS),
        single(columns.TTLS_MS),
        pair(columns.DEDUP_LENGTHS, columns.DEDUP_BLOB),
        single(columns.NUMBERS),
    )
