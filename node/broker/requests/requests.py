"""What a client asks: one handler per message, each checks everything before the log.

Owns the way from a request to a command, and from its reply to the answer. A request that cannot be
refused here is proposed; its answer leaves after commit. Must not know how entries travel, and
changes no state by itself. `docs/protocol.md` says what each request means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, TypeVar

from fifo.machine import commands, replies
from fifo.machine import limits as machine_limits
from fifo.machine.replies import Refused, Reply
from fifo.wire import Code, Frame, columns
from fifo.wire.limits import BODY_BYTES_MAX
from fifo.wire.messages import (
    Alive,
    Cancel,
    Close,
    Credit,
    Declare,
    ForgetProducer,
    Get,
    Got,
    Message,
    NoticeAck,
    Ok,
    OpenProducer,
    Publish,
    QueueAction,
    Receipt,
    Settle,
    Subscribe,
    Subscribed,
    Update,
)
from fifo.words.settlement import Verb
from node.broker import cost
from node.broker.connections.connection import Connection
from node.broker.connections.sessions import Session
from node.broker.counters import Counters
from node.broker.machine_host import MachineHost
from node.broker.proposals import Proposals, Waiter
from node.broker.refusals import detail_of, error_item, wire_code
from node.broker.waiting_gets import WaitingGets
from node.raft import Outcome
from node.users import Permission

Handler: TypeAlias = Callable[[Connection, Session, Frame], None]
M = TypeVar("M", bound=Message)

_NO_REPLY_SIZE = 64
"""Bytes that a small request counts while it is unanswered."""

_PUBLISH = commands.code_of(commands.Publish)
_NO_COLUMNS = (None,) * 7

_QUEUE_ACTIONS: dict[str, Callable[[str], commands.Command]] = {
    "delete": commands.DeleteQueue,
    "purge": commands.Purge,
    "pause": commands.PauseQueue,
    "resume": commands.ResumeQueue,
}


class Requests:
    """Handlers of everything that goes through the log.

    `publishing_refused`: why nothing may be published at the moment, or None.
    """

    def __init__(
        self,
        host: MachineHost,
        proposals: Proposals,
        gets: WaitingGets,
        counters: Counters,
        *,
        body_bytes_max: int,
        consumers_max: int,
        prefetch_max: int,
        queues_max: int,
        end_session: Callable[[Session], None],
    ) -> None:
        self._host = host
        self._proposals = proposals
        self._gets = gets
        self._counters = counters
        self._body_bytes_max = body_bytes_max
        self._consumers_max = consumers_max
        self._prefetch_max = prefetch_max
        self._queues_max = queues_max
        self._end_session = end_session
        self._declaring = 0
        self.publishing_refused: str | None = None
        self.handlers: dict[type[Message], Handler] = {
            Publish: self.publish,
            Settle: self.settle,
            Subscribe: self.subscribe,
            Cancel: self.cancel,
            Credit: self.credit,
            Get: self.get,
            Alive: self.alive,
            NoticeAck: self.notice_ack,
            Declare: self.declare,
            Update: self.update,
            QueueAction: self.queue_action,
            OpenProducer: self.open_producer,
            ForgetProducer: self.forget_producer,
            Close: self.close,
        }

    def clear(self) -> None:
        """Leadership is lost: what was declared and not answered is nobody's business here."""
        self._declaring = 0

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Messages into the log unopened: columns are checked, bodies are not touched."""
        message, correlation, raw = frame
        assert isinstance(message, Publish)
        if self.publishing_refused is not None:
            connection.refuse(correlation, Code.OVERLOADED, self.publishing_refused)
            return
        try:
            layout = columns.lay_out(message.columns, raw, message.count, columns.PUBLISH_TAGS)
            columns.check_publish(layout)
            self._check_bodies(layout)
        except columns.ColumnError as error:
            connection.refuse(correlation, error.code, str(error))
            return
        if not self._host.has_queue(message.queue) and not self._declaring:
            self._refuse_no_queue(connection, correlation, message.queue)
            return
        size = len(raw)
        weight = cost.published(self._host, message.queue, message.count)
        at = self._proposals.place(size, weight)
        # The plain form of `commands.Publish`, laid directly: this is the one hot command.
        plain = [
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
            (connection.role, connection.epoch),
        ]
        connection.begin(size, message.count)

        def answer(reply: Reply) -> None:
            connection.end(size, message.count)
            if type(reply) is replies.Published:
                self._counters.confirmed_messages += reply.duplicates + reply.stored
                refused = reply.refused
                error = None if refused is None else error_item(refused)
                repeats = (reply.repeats,) if reply.repeats else ()
                connection.confirm(
                    (
                        correlation,
                        reply.queue,
                        reply.producer,
                        reply.duplicates,
                        reply.stored,
                        error,
                        *repeats,
                    )
                )
            else:
                _refuse(connection, correlation, reply)

        self._proposals.propose_plain(plain, Waiter(answer, lost=connection.lose), raw)

    def _check_bodies(self, layout: columns.Layout) -> None:
        """The operator's own, lower bound of a body."""
        if self._body_bytes_max < BODY_BYTES_MAX:
            sizes = layout.column(columns.SIZES)
            longest = max(columns.unpack_u32(sizes or b""), default=0)
            if longest > self._body_bytes_max:
                raise columns.ColumnError(
                    Code.TOO_LARGE,
                    f"a body of {longest} bytes; this cluster takes {self._body_bytes_max}",
                )

    def _refuse_no_queue(self, connection: Connection, correlation: int, queue: str) -> None:
        connection.refuse(
            correlation, Code.QUEUE_NOT_FOUND, f"there is no queue {queue!r}; declare it first"
        )

    def open_producer(self, connection: Connection, session: Session, frame: Frame) -> None:
        """A named producer, and what it has stored last in each queue."""
        message = _of(frame, OpenProducer)

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.ProducerOpened)
            rights = connection.rights
            last = {
                queue: number
                for queue, number in reply.last
                if rights is None or rights.may(Permission.PUBLISH, queue)
            }
            result = {"producer": reply.producer, "last": last}
            connection.send(Ok(result), frame.correlation)

        self.ask(connection, frame, commands.OpenProducer(message.name), answer)

    def forget_producer(self, connection: Connection, session: Session, frame: Frame) -> None:
        """A named producer is given up, by who may manage every queue that it has published to."""
        message = _of(frame, ForgetProducer)
        rights = connection.rights
        published_to = self._host.queues_of_producer(message.name)
        if rights is not None and not all(
            rights.may(Permission.MANAGE, queue) for queue in published_to
        ):
            why = "its producer has published to queues that this user may not manage"
            connection.refuse(frame.correlation, Code.PERMISSION_DENIED, why)
            return
        command = commands.ForgetProducer(message.name)
        self.ask(connection, frame, command, _ok(connection, frame))

    # --- consuming --------------------------------------------------------------------------------

    def subscribe(self, connection: Connection, session: Session, frame: Frame) -> None:
        """A consumer of a queue."""
        message = _of(frame, Subscribe)
        if self.no_queue(connection, frame.correlation, message.queue):
            return
        if message.prefetch > self._prefetch_max:
            text = f"a prefetch of {message.prefetch}; this cluster allows {self._prefetch_max}"
            connection.refuse(frame.correlation, Code.LIMIT, text)
            return
        if self._host.consumer_count() >= self._consumers_max:
            text = f"this cluster has its {self._consumers_max} consumers"
            connection.refuse(frame.correlation, Code.LIMIT, text)
            return
        options: dict[str, Any] = {"prefetch": message.prefetch}
        for name in ("lock_ms", "max_lock_ms", "nack_backoff", "timeout_backoff"):
            value = getattr(message, name)
            if value is not None:
                options[name] = value
        if message.priority:
            options["priority"] = message.priority
        if not message.renewable:
            options["renewable"] = False
        if message.explicit_credit:
            options["credit"] = "explicit"
        command = commands.Subscribe(
            session.number, message.tag, message.queue, options, _fence(connection)
        )

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Subscribed)
            max_lock_ms = self._host.max_lock_ms(reply.consumer)
            connection.send(
                Subscribed(
                    reply.consumer, reply.lock_ms, max_lock_ms, reply.prefetch, reply.active
                ),
                frame.correlation,
            )

        self.ask(connection, frame, command, answer)

    def cancel(self, connection: Connection, session: Session, frame: Frame) -> None:
        """No more messages for a consumer."""
        message = _of(frame, Cancel)
        command = commands.Cancel(
            session.number, message.consumer, message.unopened, _fence(connection)
        )
        self.ask(connection, frame, command, _ok(connection, frame))

    def credit(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Explicit credit."""
        message = _of(frame, Credit)

        def step(count: int) -> None:
            command = commands.Credit(
                session.number, message.consumer, count, message.drain, _fence(connection)
            )
            self.ask(connection, frame, command, answer)

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Credited)
            if not reply.more:
                connection.send(Ok({"left": reply.left}), frame.correlation)
            elif connection.open:
                step(reply.left)

        step(message.credit)

    def get(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Messages now, or within the time that the client waits."""
        message = _of(frame, Get)
        if self.no_queue(connection, frame.correlation, message.queue):
            return
        command = commands.Get(
            session.number, message.queue, message.count, message.lock_ms, _fence(connection)
        )
        deadline = self._gets.deadline(message.wait_ms)
        waited = False

        def step() -> bool:
            return self.ask(connection, frame, command, answer, late=True)

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Got)
            if reply.count == 0 and connection.open:
                # Nothing in what the machine could look at in one step says nothing of the rest.
                if reply.more:
                    step()
                    return
                if self._gets.add(message.queue, deadline, again, give_up, in_vain=waited):
                    return
            connection.send(Got(reply.consumer, reply.first_token, reply.count), frame.correlation)

        def again() -> bool:
            nonlocal waited
            waited = True
            return connection.open and step()

        def give_up() -> None:
            connection.send(Got(0, 0, 0), frame.correlation)

        step()

    def alive(self, connection: Connection, session: Session, frame: Frame) -> None:
        """The program behind a consumer speaks."""
        message = _of(frame, Alive)
        command = commands.Alive(session.number, message.consumer, _fence(connection))
        self.ask(connection, frame, command, _ok(connection, frame))

    def settle(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Ack, nack, release or terminate; answered with a receipt."""
        message, correlation, _ = frame
        assert isinstance(message, Settle)
        said = [message.reason, message.description, message.exception_text, message.stack]
        if message.verb != Verb.TERMINATE:  # no other verb's texts are kept
            said = [_cut(text, machine_limits.INLINE_TEXT_BYTES) for text in said]
        (reason, description, exception_text, stack), parts = _long_texts(said)
        raw = b"".join(parts)
        weight = cost.settled(message.verb, message.tokens)
        at = self._proposals.place(len(raw), weight) if raw else 0
        command = commands.Settle(
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
            _fence(connection),
        )

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Receipt)
            connection.send(Receipt(reply.consumer, reply.ranges), correlation)

        self.ask(connection, frame, command, answer, raw=raw)

    def notice_ack(self, connection: Connection, session: Session, frame: Frame) -> None:
        """The client has seen a notice."""
        message = _of(frame, NoticeAck)
        command = commands.NoticeAck(session.number, message.notice, _fence(connection))
        self.ask(connection, frame, command, _ok(connection, frame))

    # --- queues and sessions ----------------------------------------------------------------------

    def declare(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Create a queue, or find the same."""
        message = _of(frame, Declare)
        if not self._host.has_queue(message.queue) and (
            self._host.queue_count() >= self._queues_max
        ):
            text = f"this cluster has its {self._queues_max} queues"
            connection.refuse(frame.correlation, Code.LIMIT, text)
            return

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Declared)
            connection.send(Ok({"created": reply.created}), frame.correlation)

        def decided() -> None:
            self._declaring = max(0, self._declaring - 1)

        command = commands.Declare(message.queue, message.spec)
        if self.ask(connection, frame, command, answer, decided=decided):
            self._declaring += 1

    def update(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Change a live queue."""
        message = _of(frame, Update)
        if not self.no_queue(connection, frame.correlation, message.queue):
            command = commands.UpdateQueue(message.queue, message.changes)
            self.ask(connection, frame, command, _ok(connection, frame))

    def queue_action(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Delete, purge, pause or resume."""
        message = _of(frame, QueueAction)
        make = _QUEUE_ACTIONS.get(message.action)
        if make is None:
            text = f"a queue action must be one of {', '.join(_QUEUE_ACTIONS)}"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
            return
        if self.no_queue(connection, frame.correlation, message.queue):
            return

        before = self._purged(message.queue)

        def answer(reply: Reply) -> None:
            if isinstance(reply, replies.Purged) and reply.more:
                self._go_on_purging(connection, frame, message.queue, before)
                return
            result = None
            if isinstance(reply, (replies.Deleted, replies.Purged)):
                result = {"messages": reply.messages}
            connection.send(Ok(result), frame.correlation)

        self.ask(connection, frame, make(message.queue), answer)

    def _purged(self, name: str) -> int:
        queue = self._host.queue(name)
        return 0 if queue is None else queue.counters["purged"]

    def _go_on_purging(self, connection: Connection, frame: Frame, name: str, before: int) -> None:
        """Answer when the purge is complete: ticks carry it on, and each is asked for here."""

        def step() -> None:
            self.ask(connection, frame, commands.Tick(), answer)

        def answer(reply: Reply) -> None:
            queue = self._host.queue(name)
            if queue is not None and queue.purge_below is not None:
                if connection.open:
                    step()
                return
            # What was deleted meanwhile is gone as well, but nobody has counted it.
            purged = max(self._purged(name) - before, 0)
            connection.send(Ok({"messages": purged}), frame.correlation)

        step()

    def close(self, connection: Connection, session: Session, frame: Frame) -> None:
        """End the session; what it holds returns, uncounted, and its connections close."""
        session.ending = True

        def answer(reply: Reply) -> None:
            connection.close(Ok(), frame.correlation)
            self._end_session(session)

        command = commands.EndSession(session.number, 0, _fence(connection))
        self.ask(connection, frame, command, answer)

    # --- shared -----------------------------------------------------------------------------------

    def no_queue(self, connection: Connection, correlation: int, queue: str) -> bool:
        """Whether the queue is missing; then the request is refused, and nothing is logged."""
        missing = not self._host.has_queue(queue) and not self._declaring
        if missing:
            self._refuse_no_queue(connection, correlation, queue)
        return missing

    def ask(
        self,
        connection: Connection,
        frame: Frame,
        command: commands.Command,
        answer: Callable[[Reply], None],
        *,
        late: bool = False,
        raw: bytes = b"",
        decided: Callable[[], None] | None = None,
    ) -> bool:
        """Check a command as the log wants it, propose it, and answer from its reply.

        `decided` is told when it is applied, refused, or known not to be: before the answer.
        """
        plain = commands.to_list(command)
        try:
            commands.from_list(plain)
        except ValueError as error:
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, str(error))
            return False
        size = _NO_REPLY_SIZE + len(raw)
        connection.begin(size, 0)

        def replied(reply: Reply) -> None:
            connection.end(size, 0)
            if decided is not None:
                decided()
            if type(reply) is Refused:
                _refuse(connection, frame.correlation, reply)
            else:
                answer(reply)

        def lost(outcome: Outcome) -> None:
            if decided is not None:
                decided()
            connection.lose(outcome)

        waiter = Waiter(replied, lost=lost, late=late)
        self._proposals.propose_plain(plain, waiter, raw)
        return True


def _of(frame: Frame, kind: type[M]) -> M:
    """The message of a frame, which the table of handlers has chosen by its type."""
    assert isinstance(frame.message, kind)
    return frame.message


def _fence(connection: Connection) -> tuple[int, int]:
    return connection.role, connection.epoch


def _ok(connection: Connection, frame: Frame) -> Callable[[Reply], None]:
    def answer(reply: Reply) -> None:
        connection.send(Ok(), frame.correlation)

    return answer


def _refuse(connection: Connection, correlation: int, reply: Reply) -> None:
    """Answer with the machine's refusal."""
    assert isinstance(reply, Refused), f"{type(reply).__name__} is no answer to this request"
    connection.refuse(correlation, wire_code(reply), reply.text, detail_of(reply))


def _cut(text: str | None, bytes_max: int) -> str | None:
    """A text for people, cut to what the state keeps of it."""
    if text is None or len(text) * 4 <= bytes_max:
        return text
    return text.encode()[:bytes_max].decode(errors="ignore")


def _long_texts(texts: Sequence[str | None]) -> tuple[list[str | None], list[bytes]]:
    """What of each text stands in the command, and what of it lies in the entry's area instead."""
    inline, parts = list(texts), [b""] * len(texts)
    for place, text in enumerate(texts):
        if text is not None and len(text) * 4 > machine_limits.INLINE_TEXT_BYTES:
            raw = text.encode()
            if len(raw) > machine_limits.INLINE_TEXT_BYTES:
                inline[place], parts[place] = None, raw
    return inline, parts


def _places(at: int, parts: Sequence[bytes]) -> tuple[tuple[int, int] | None, ...]:
    """Where each part lies, end to end from `at` on; None where there is none."""
    ends = accumulate(map(len, parts), initial=at)
    return tuple([(low, high - low) if high > low else None for low, high in pairwise(ends)])


def _optional_columns(layout: columns.Layout, at: int) -> Sequence[object]:
    """Where the columns beyond sizes lie, in the order of `commands.Publish`."""
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
