"""Publishes to several queues in one frame: one command where that may be, else one for each queue.

Owns the split of such a frame, and its answers: an item of `Confirms` for each queue, whatever
becomes of the others. What a publish to one queue needs is `publishing`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from fifo.machine.contract import Refused, Reply, code_of, commands, replies
from fifo.wire import Code, Frame, columns
from fifo.wire.errors import RETRYABLE
from fifo.wire.messages import Publish, PublishAcross
from node.broker import cost, limits
from node.broker.connections.connection import Binding, Connection, shorten
from node.broker.context import Context
from node.broker.proposals import Proposals, Waiter
from node.broker.quotas import Quotas
from node.broker.refusals import detail_of, wire_code
from node.broker.requests.proposer import message_of
from node.broker.requests.publishing import Publishing, optional_columns
from node.users import Permission

_ACROSS = code_of(commands.PublishAcross)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A frame whose columns are sound."""

    connection: Connection
    session: Binding
    message: PublishAcross
    layout: columns.Layout
    queues: columns.QueueColumns


class PublishingAcross:
    """Handler of `PublishAcross`."""

    def __init__(
        self, context: Context, proposals: Proposals, quotas: Quotas, publishing: Publishing
    ) -> None:
        self._alarms = context.alarms
        self._machine = context.host.machine
        self._counters = context.counters
        self._proposals = proposals
        self._quotas = quotas
        self._publishing = publishing

    def publish(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Append the messages of several queues to the log unopened."""
        message = message_of(frame, PublishAcross)
        try:
            count = len(message.queues)
            layout = columns.lay_out(
                message.columns, frame.raw, message.count, columns.ACROSS_TAGS, count
            )
            queues = columns.queue_columns(layout, count)
            columns.check_publish(layout)
        except columns.ColumnError as error:
            self._counters.refused(error.code, message.count)
            connection.refuse(frame.correlation, error.code, str(error))
            return
        asked = _Asked(connection, session, message, layout, queues)
        refusal = self._alarms.refusal
        if refusal is not None:
            for place in range(count):
                self._refuse(asked, place, Code.OVERLOADED, refusal)
        elif self._may_all(asked):
            self._propose(asked)
        else:
            connection.answer_in_pieces(frame, self._one_by_one(asked))

    def _may_all(self, asked: _Asked) -> bool:
        """Whether one command can hold all of it: no check refuses any, and its apply is short."""
        layout, rights, names = asked.layout, asked.connection.rights, asked.message.queues
        headers = layout.column(columns.HEADER_BLOB)
        try:
            self._publishing.check_bodies(layout)
            if headers is not None:
                if len(headers) > limits.HEADERS_AT_ONCE_BYTES:
                    return False
                for _ in columns.check_headers(layout):
                    pass
        except columns.ColumnError:
            return False
        if not layout.places.keys() <= _PLAIN and self._weight(asked) > _MOST:
            return False
        if rights is None:
            return True
        sizes = _bytes_of(asked)
        return all(rights.may(Permission.PUBLISH, name) for name in names) and not any(
            self._quotas.stores(*one) for one in zip(names, sizes, strict=True)
        )

    def _weight(self, asked: _Asked) -> int:
        return cost.published_across(
            self._machine,
            asked.message.queues,
            asked.queues.counts,
            alone=columns.PRIORITIES in asked.layout.places,
        )

    def _propose(self, asked: _Asked) -> None:
        """Propose all of it in one command."""
        connection, message, layout = asked.connection, asked.message, asked.layout
        size = len(layout.raw)
        connection.begin(size, message.count)

        def answer(reply: Reply) -> None:
            connection.end(size, message.count)
            found = _parts_of(reply, len(message.queues))
            for place, part in enumerate(found):
                self._answer(asked, place, part)

        waiter = Waiter(answer, lost=connection.lose)
        build = partial(_build, asked)
        self._proposals.propose(build, waiter, weight=self._weight(asked), raw=layout.raw)

    def _one_by_one(self, asked: _Asked) -> Iterator[None]:
        """Check and propose what each queue gets, in pieces of one queue at most."""
        cuts = [*accumulate(asked.queues.counts, initial=0)]
        for place, layout in enumerate(columns.cut_up(asked.layout, cuts)):
            yield from self._admit(asked, place, layout)
            yield

    def _admit(self, asked: _Asked, place: int, layout: columns.Layout) -> Iterator[None]:
        """Propose what one queue gets, if it may be stored; else refuse it."""
        name, rights = asked.message.queues[place], asked.connection.rights
        lacks = None if rights is None else rights.lacks(name, Permission.PUBLISH)
        if lacks is not None:
            self._refuse(asked, place, Code.PERMISSION_DENIED, lacks)
            return
        try:
            self._publishing.check_bodies(layout)
            yield from self._publishing.header_pieces(layout)
        except columns.ColumnError as error:
            self._refuse(asked, place, error.code, str(error))
            return
        full = None if rights is None else self._quotas.stores(name, len(layout.raw))
        if full is not None:
            self._refuse(asked, place, full.code, full.text, full.detail)
            return
        queues = asked.queues
        message = Publish(
            name,
            asked.message.producer,
            queues.previous[place],
            queues.numbers[place],
            layout.count,
            (),
            queues.below[place],
        )
        answer = partial(self._answer, asked, place)
        self._publishing.propose(asked.connection, asked.session, message, layout, answer)

    def _answer(self, asked: _Asked, place: int, reply: Reply) -> None:
        if type(reply) is replies.Published:
            self._publishing.confirm(
                asked.connection,
                asked.queues.correlations[place],
                asked.queues.counts[place],
                reply,
            )
            return
        assert isinstance(reply, Refused), f"unexpected reply {type(reply).__name__}"
        self._refuse(asked, place, wire_code(reply), reply.text, detail_of(reply))

    def _refuse(
        self, asked: _Asked, place: int, code: str, text: str, detail: object = None
    ) -> None:
        """Refuse what one queue gets: nothing of it was stored."""
        self._counters.refused(code, asked.queues.counts[place])
        error = code, shorten(text), code in RETRYABLE, detail
        asked.connection.confirm(asked.queues.correlations[place], (0, 0, 0, 0, error))


_PLAIN = columns.ACROSS_TAGS - columns.PUBLISH_TAGS | {columns.SIZES}
"""The columns of messages that are alike: many of them are stored as quickly as one."""

_MOST = limits.PUBLISH_MICROSECONDS_MAX


def _bytes_of(asked: _Asked) -> list[int]:
    """The bytes of the bodies that each queue gets."""
    sizes = columns.unpack_u32(asked.layout.column(columns.SIZES) or b"")
    ends = [0, *accumulate(sizes)]
    cuts = [0, *accumulate(asked.queues.counts)]
    return [ends[high] - ends[low] for low, high in pairwise(cuts)]


def _parts_of(reply: Reply, count: int) -> Sequence[Reply]:
    """The replies of the queues; a refusal of the command is one of each."""
    return reply.parts if isinstance(reply, replies.PublishedAcross) else [reply] * count


def _build(asked: _Asked, at: int) -> Sequence[Any]:
    """The plain form of `commands.PublishAcross`: `at` is where the raw part lies in the area."""
    layout, message, connection = asked.layout, asked.message, asked.connection
    places = layout.places
    below = places.get(columns.QUEUES_BELOW)
    return [
        _ACROSS,
        asked.session.number,
        message.producer,
        message.queues,
        layout.count,
        at + places[columns.QUEUE_COUNTS][0],
        at + places[columns.QUEUE_PREVIOUS][0],
        at + places[columns.QUEUE_NUMBERS][0],
        at + places[columns.SIZES][0],
        at + layout.bodies_at,
        None if below is None else at + below[0],
        *optional_columns(layout, at)[:-1],
        (connection.role, connection.epoch),
    ]
