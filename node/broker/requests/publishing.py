"""Requests of publishers: publish, and named producers.

Owns the way of messages into the log: columns are checked, bodies are not touched. Must not know
how entries travel. `docs/protocol.md` specifies each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fifo.machine.contract import Reply, code_of, commands, replies
from fifo.wire import Code, Frame, columns
from fifo.wire.limits import BODY_BYTES_MAX
from fifo.wire.messages import ForgetProducer, Ok, OpenProducer, Publish
from node.broker import cost
from node.broker.connections.connection import Binding, Connection
from node.broker.context import Context
from node.broker.permissions import Rights
from node.broker.proposals import Proposals, Waiter
from node.broker.quotas import Quotas
from node.broker.refusals import error_item, wire_code
from node.broker.requests.proposer import Proposer, message_of, ok, refuse, user_of
from node.users import Permission, Quota

_PUBLISH = code_of(commands.Publish)
_NO_COLUMNS = (None,) * 7


class Publishing:
    """Handler of publishes and named producers."""

    def __init__(
        self, context: Context, proposals: Proposals, proposer: Proposer, quotas: Quotas
    ) -> None:
        self._alarms = context.alarms
        self._machine = context.host.machine
        self._counters = context.counters
        self._body_bytes_max = context.settings.body_bytes
        self._proposals = proposals
        self._proposer = proposer
        self._quotas = quotas

    def publish(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Append messages to the log unopened."""
        message, correlation, raw = frame
        assert isinstance(message, Publish)
        refusal = self._alarms.refusal
        if refusal is not None:
            self._refuse(connection, frame, Code.OVERLOADED, refusal)
            return
        try:
            layout = columns.lay_out(message.columns, raw, message.count, columns.PUBLISH_TAGS)
            columns.check_publish(layout)
            self._check_bodies(layout)
        except columns.ColumnError as error:
            self._refuse(connection, frame, error.code, str(error))
            return
        if self._proposer.lacks_queue(connection, correlation, message.queue):
            self._counters.refused(Code.QUEUE_NOT_FOUND, message.count)
            return
        size = len(raw)
        full = None if connection.rights is None else self._quotas.stores(message.queue, size)
        if full is not None:
            self._counters.refused(full.code, message.count)
            connection.refuse(correlation, full.code, full.text, full.detail)
            return
        connection.begin(size, message.count)

        def build(at: int) -> Sequence[Any]:
            # The plain form of `commands.Publish`, built directly: this is the one hot command.
            return [
                _PUBLISH,
                session.number,
                message.producer,
                message.queue,
                message.previous,
                message.number,
                message.count,
                at + layout.places[columns.SIZES][0],
                at + layout.bodies_at,
                *_optional_columns(layout, at),
                message.queue_below,
                (connection.role, connection.epoch),
            ]

        def answer(reply: Reply) -> None:
            connection.end(size, message.count)
            if type(reply) is replies.Published:
                done = reply.duplicates + reply.stored
                self._counters.confirmed_messages += done
                refused = reply.refused
                error = None
                if refused is not None:
                    error = error_item(refused)
                    self._counters.refused(wire_code(refused), message.count - done)
                repeats = (reply.repeats,) if reply.repeats else ()
                connection.confirm(
                    correlation,
                    (
                        reply.queue,
                        reply.producer,
                        reply.duplicates,
                        reply.stored,
                        error,
                        *repeats,
                    ),
                )
            else:
                refused = refuse(connection, correlation, reply)
                self._counters.refused(wire_code(refused), message.count)

        weight = cost.published(self._machine, message.queue, message.count)
        waiter = Waiter(answer, lost=connection.lose)
        self._proposals.propose(build, waiter, weight=weight, raw=raw)

    def _refuse(self, connection: Connection, frame: Frame, code: str, text: str) -> None:
        self._counters.refused(code, message_of(frame, Publish).count)
        connection.refuse(frame.correlation, code, text)

    def _check_bodies(self, layout: columns.Layout) -> None:
        """Enforce the operator's bound of a body, which is below the protocol's."""
        if self._body_bytes_max < BODY_BYTES_MAX:
            sizes = layout.column(columns.SIZES)
            longest = max(columns.unpack_u32(sizes or b""), default=0)
            if longest > self._body_bytes_max:
                raise columns.ColumnError(
                    Code.TOO_LARGE,
                    f"a body of {longest} bytes exceeds this cluster's limit of"
                    f" {self._body_bytes_max}",
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


def _optional_columns(layout: columns.Layout, at: int) -> Sequence[object]:
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
