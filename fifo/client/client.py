"""The client that programs hold: the names of the contract, each a check and a hand-over.

Owns the public methods and the order in which the parts are made and closed. What they do is the
business of `session`, `publisher`, `consumer`, `settler`, `getting` and `control`.
`fifo.blocking` derives its methods from these.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Generic, Literal, TypeVar, Unpack, overload

from fifo.client import checks, redriving, tracing
from fifo.client.connection.control import Control
from fifo.client.connection.environment import Environment
from fifo.client.connection.in_process import arriving, environment_of
from fifo.client.connection.options import Options, from_url
from fifo.client.connection.session import Session
from fifo.client.connection.sources import from_environment, from_keywords
from fifo.client.consuming.consume_options import consume_options
from fifo.client.consuming.consumer import Consumer
from fifo.client.consuming.delivery import Delivery
from fifo.client.consuming.durable import DurableConsumer, Opened
from fifo.client.consuming.getting import Getter
from fifo.client.consuming.message import LockedMessage, Message, StoredMessage
from fifo.client.consuming.registry import Consumers
from fifo.client.consuming.settler import Settler
from fifo.client.consuming.verbs import SettleResult
from fifo.client.durations import Duration, milliseconds
from fifo.client.elsewhere import SettlesElsewhere
from fifo.client.errors import (
    ClientClosed,
    FifoError,
    InvalidArgument,
    ProtocolError,
)
from fifo.client.keywords import (
    ConnectKeywords,
    ConsumerKeywords,
    QueueChanges,
    RedriveKeywords,
)
from fifo.client.listing import ListVerbs
from fifo.client.membership import MemberVerbs
from fifo.client.messages import MessageVerbs
from fifo.client.metrics import Metrics
from fifo.client.publishing.confirms import Confirm, Confirms
from fifo.client.publishing.producer import Producer
from fifo.client.publishing.publisher import Batch, Publisher, extras_of
from fifo.client.scanning import ScanVerbs
from fifo.client.spec import QueueSpec, changes_to_wire, expiry_warning
from fifo.client.upgrading import UpgradeVerbs
from fifo.client.users import UserVerbs
from fifo.client.views import (
    AuditView,
    ConsumerView,
    DelayedView,
    LockView,
    NodeStatus,
    ProducerView,
    QueueView,
    RedriveCount,
    RedriveView,
    SessionView,
    UserView,
    View,
    view,
    views,
)
from fifo.wire import limits as wire
from fifo.wire.messages import (
    Close,
    Declare,
    EndSession,
    ForgetProducer,
    Get,
    Move,
    Ok,
    OpenProducer,
    Peek,
    Peeked,
    QueueAction,
    QueueQuery,
    Redrive,
    TransferLeadership,
    Update,
)
from fifo.wire.messages import Message as WireMessage
from fifo.wire.messages import Status as StatusRequest
from fifo.wire.operating import Audit
from fifo.words import bounds

_log = logging.getLogger("fifo.client")
_queues_log = logging.getLogger("fifo.client.queues")
"""Of warnings about queues, which the command line gives in its own way."""

M = TypeVar("M", bound=LockedMessage)
V = TypeVar("V", bound=View)

_OWN: Final = 0
"""The session's own producer, on the wire."""


class BaseClient(
    MessageVerbs,
    UserVerbs,
    ListVerbs,
    UpgradeVerbs,
    MemberVerbs,
    ScanVerbs,
    SettlesElsewhere,
    Generic[M],
):
    """Everything but the class of the messages; programs use `Client`."""

    def __init__(
        self,
        options: Options,
        factory: Callable[[Delivery, int], M],
        environment: Environment | None = None,
    ) -> None:
        """Must be made on the loop that it is used on."""
        self.options = options
        self.metrics = Metrics()
        self._factory = factory
        loop, addresses = asyncio.get_running_loop(), options.addresses
        found = arriving(environment, addresses) if environment else environment_of(addresses)
        self._session = Session(options, found, self.metrics, loop)
        # The order in which they resume: who consumes, what was settled, what was published.
        self._consumers = Consumers(self._session)
        spans = tracing.spans()
        kinds = (Settler, Publisher) if spans is None else (spans.settler, spans.publisher)
        self._settler, self._publisher = kinds[0](self._session), kinds[1](self._session)
        self._getter = Getter(self._session, self._settler)
        self._control = Control(self._session)
        self._session.on_identity = self._control.nudge
        self._tags = itertools.count(1)
        self._consumer_queues = {}
        self._closing = False
        _clients.add(self)

    def __repr__(self) -> str:
        return f"<fifo client, {self._session!r}>"

    # Life.

    async def open(self) -> None:
        """Connect for the first time; `connect` does it."""
        try:
            await self._session.start()
        except BaseException:
            await self._session.close()
            raise

    async def close(self, *, leave: bool = False) -> None:
        """Give back what is unopened, wait for receipts (at most `close_timeout`), say goodbye.

        What is then still unsettled is reported to `on_unsettled`. With `leave` the session is not
        ended: what it holds stays locked until the locks end, for another client to settle.
        """
        if self._closing:
            return
        self._closing = True
        try:
            if self._session.fatal is None and not leave:
                await self._say_goodbye()
        finally:
            try:
                await self._control.stop()
            except asyncio.CancelledError:
                self._session.stop()  # Cancelled twice: no time to wait, but no connection stays.
                raise
            await self._session.close()

    async def _say_goodbye(self) -> None:
        patience = self.options.close_timeout
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        try:
            async with asyncio.timeout(patience):
                await asyncio.gather(*[one.cancel() for one in self._consumers])
        except TimeoutError:
            _log.warning("consumers could not be cancelled within %g s", patience)
        left = await self._settler.drain(max(0.0, deadline - loop.time()))
        if left:
            _log.warning("%d messages are not known to be settled at close", left)
        if self._session.link is None:
            return
        self._session.closing = True
        try:
            await self._session.call(Close(), max(0.5, deadline - loop.time()))
        except FifoError as error:
            _log.info("closing the session: %s", error)

    @property
    def environment(self) -> Environment:
        """The environment that it was made with."""
        return self._session.environment

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a leader right now."""
        return self._session.link is not None

    @property
    def address(self) -> str | None:
        """The node that we are connected to."""
        return None if self._session.link is None else self._session.link.address

    @property
    def on_unsettled(self) -> Callable[[LockedMessage, FifoError], object] | None:
        """Callback for a message whose settlement, sent without waiting, failed."""
        return self._settler.on_unsettled

    @on_unsettled.setter
    def on_unsettled(self, callback: Callable[[LockedMessage, FifoError], object] | None) -> None:
        self._settler.on_unsettled = callback

    @property
    def on_connected(self) -> Callable[[str], object] | None:
        """Callback with the address after every (re)connection."""
        return self._session.on_connected

    @on_connected.setter
    def on_connected(self, callback: Callable[[str], object] | None) -> None:
        self._session.on_connected = callback

    @property
    def on_disconnected(self) -> Callable[[FifoError], object] | None:
        """Callback with the reason of a lost connection; the client reconnects automatically."""
        return self._session.on_disconnected

    @on_disconnected.setter
    def on_disconnected(self, callback: Callable[[FifoError], object] | None) -> None:
        self._session.on_disconnected = callback

    # Queues.

    async def declare(
        self, spec: QueueSpec, *, warn: bool = True, timeout: Duration | None = None
    ) -> bool:
        """Create the queue, idempotently; True if it is new. Raises QueueExists with a diff.

        With `expires_unused` a warning is logged, unless `warn` is False: it counts consumers and
        gets, not publishes.
        """
        if not isinstance(spec, QueueSpec):
            raise InvalidArgument(f"declare takes a fifo.QueueSpec, not {type(spec).__name__}")
        result = await self._ask(Declare(spec.name, spec.to_wire()), timeout)
        if warn and spec.expires_unused is not None:
            _queues_log.warning("%s", expiry_warning(spec.name))
        if not isinstance(result, dict):
            return False
        if isinstance(number := result.get("queue"), int):
            self._publisher.queue_numbers.saw(spec.name, number)
        return bool(result.get("created"))

    async def update(
        self,
        queue: str,
        *,
        version: str | None = None,
        timeout: Duration | None = None,
        **changes: Unpack[QueueChanges],
    ) -> None:
        """Change options of a live queue; None restores a default.

        With `version` of a view only where the queue is as it was seen: else InvalidArgument.

        With `expires_unused` a warning is logged: it counts consumers and gets, not publishes.
        """
        checks.name(queue, "queue")
        await self._ask(Update(queue, changes_to_wire(changes), version), timeout)
        if changes.get("expires_unused") is not None:
            _queues_log.warning("%s", expiry_warning(queue))

    async def delete(self, queue: str, *, timeout: Duration | None = None) -> None:
        """Delete the queue with its messages."""
        await self._act(queue, "delete", timeout, safe=False)

    async def purge(self, queue: str, *, timeout: Duration | None = None) -> int | None:
        """Delete all messages that are not locked; return their number once they are gone.

        None where the node does not report a number.
        """
        result = await self._act(queue, "purge", timeout, safe=False)
        count = result.get("messages") if isinstance(result, dict) else result
        return count if isinstance(count, int) else None

    async def pause(self, queue: str, *, timeout: Duration | None = None) -> None:
        """Stop deliveries; publishing and settling go on."""
        await self._act(queue, "pause", timeout, safe=True)

    async def resume(self, queue: str, *, timeout: Duration | None = None) -> None:
        """Resume deliveries."""
        await self._act(queue, "resume", timeout, safe=True)

    async def queues(self, prefix: str = "", *, timeout: Duration | None = None) -> list[QueueView]:
        """List all queues that this user may see, oldest first: specs, depths, counters.

        With `prefix` only those whose names begin so: the leader looks at no others.
        A list that does not fit one answer is refused; a cluster with very many queues sends them
        without spec and counters.
        """
        if prefix:
            checks.name(prefix, "prefix")
        query = QueueQuery(None, "list", wire.ITEMS_MAX, prefix=prefix)
        return await self._views(QueueView, query, timeout)

    async def queue(self, name: str, *, timeout: Duration | None = None) -> QueueView:
        """Show one queue: spec, depth, counters, redrive. Raises QueueNotFound."""
        return view(QueueView, await self._ask(self._query(name, "show", 1), timeout))

    async def locks(
        self, queue: str, limit: int = 1000, *, timeout: Duration | None = None
    ) -> list[LockView]:
        """List up to `limit` locked messages with their holders and the ends of their locks."""
        return await self._views(LockView, self._query(queue, "locks", limit), timeout)

    async def delayed(
        self, queue: str, limit: int = 1000, *, timeout: Duration | None = None
    ) -> list[DelayedView]:
        """List up to `limit` delayed messages with cause and due time, the first due first."""
        return await self._views(DelayedView, self._query(queue, "delayed", limit), timeout)

    async def consumers(
        self, queue: str, limit: int = 1000, *, timeout: Duration | None = None
    ) -> list[ConsumerView]:
        """List up to `limit` consumers of the queue with their states."""
        return await self._views(ConsumerView, self._query(queue, "consumers", limit), timeout)

    async def producers(
        self, queue: str, limit: int = 1000, *, timeout: Duration | None = None
    ) -> list[ProducerView]:
        """List up to `limit` named producers of the queue with their last numbers there."""
        return await self._views(ProducerView, self._query(queue, "producers", limit), timeout)

    async def sessions(
        self, limit: int = 10_000, *, timeout: Duration | None = None
    ) -> list[SessionView]:
        """List sessions: all of them for operators and monitors, otherwise those of the user."""
        checks.integer(limit, "limit", 1, wire.ITEMS_MAX)
        return await self._views(SessionView, QueueQuery(None, "sessions", limit), timeout)

    async def users(self, *, timeout: Duration | None = None) -> list[UserView]:
        """List users with what they have of each quota, and may have; empty without users."""
        return await self._views(UserView, QueueQuery(None, "users", wire.ITEMS_MAX), timeout)

    async def audit(
        self,
        queue: str | None = None,
        *,
        user: str | None = None,
        since: datetime | None = None,
        before: str | None = None,
        limit: int = 100,
        timeout: Duration | None = None,
    ) -> list[AuditView]:
        """List up to `limit` changes, the newest first; `before` is the id of the last one seen.

        Needs `operate`. A node may answer with fewer, but with none only where there are no more.
        """
        checks.integer(limit, "limit", 1, wire.ITEMS_MAX)
        since_ms = 0 if since is None else max(0, int(since.timestamp() * 1000))
        request = Audit(queue, user, since_ms, before, limit)
        return list(views(AuditView, await self._ask(request, timeout)))

    async def end_session(self, session: str, *, timeout: Duration | None = None) -> None:
        """End a session, named by the beginning of its id: what it holds is returned, uncounted.

        Its client goes on in a new one. Needs `operate`, for a session of another user. Raises
        InvalidArgument where no session, or more than one, begins so.
        """
        checks.name(session, "session")
        await self._ask(EndSession(session), timeout)

    async def peek(
        self, queue: str, count: int = 1, *, timeout: Duration | None = None
    ) -> list[StoredMessage]:
        """The next messages, without locking them."""
        checks.name(queue, "queue")
        checks.integer(count, "count", 1, wire.PEEK_MESSAGES_MAX)
        frame = await self._session.call(Peek(queue, count), timeout)
        if not isinstance(frame.message, Peeked):
            raise _unexpected(Peeked, Peek, frame.message)
        environment = self._session.environment
        delivery = Delivery(frame.message, frame.raw, environment.monotonic(), environment.wall())
        return [StoredMessage(delivery, index) for index in range(delivery.count)]

    @overload
    async def redrive(
        self,
        queue: str,
        target: str | None = None,
        *,
        dry_run: Literal[False] = False,
        timeout: Duration | None = None,
        **options: Unpack[RedriveKeywords],
    ) -> RedriveView: ...

    @overload
    async def redrive(
        self,
        queue: str,
        target: str | None = None,
        *,
        dry_run: Literal[True],
        timeout: Duration | None = None,
        **options: Unpack[RedriveKeywords],
    ) -> RedriveCount: ...

    async def redrive(
        self,
        queue: str,
        target: str | None = None,
        *,
        dry_run: bool = False,
        timeout: Duration | None = None,
        **options: Unpack[RedriveKeywords],
    ) -> RedriveView | RedriveCount:
        """Move dead letters back to where each came from, or to `target`: each once, in order.

        It moves the messages that are in the queue now and match all conditions (`reason`,
        `source`, `exception_type`, `stack_line`, `headers`, `older_than`, `min_attempts`): at most
        `limit`, and `rate` per second; counts start anew unless `reset_counts` is False. It goes on
        in the cluster: this returns its start, and `queue(name).redrive` shows its progress. A
        `dry_run` moves nothing and returns what would be moved. Raises QueueInUse while one is
        running; ConnectionLost and Timeout with `unknown` where it may have begun.
        """
        checks.name(queue, "queue")
        if target is not None:
            checks.name(target, "target")
        request = Redrive(queue, target, redriving.options(options, dry_run=dry_run))
        answer = await self._ask(request, timeout, safe=dry_run)
        return view(RedriveCount, answer) if dry_run else view(RedriveView, answer)

    async def cancel_redrive(self, queue: str, *, timeout: Duration | None = None) -> RedriveView:
        """End the redrive of this queue; what was moved stays moved. Returns how it ended."""
        request = Redrive(checks.name(queue, "queue"), None, {"cancel": True})
        return view(RedriveView, await self._ask(request, timeout, safe=False))

    async def move(
        self, queue: str, target: str, limit: int | None = None, *, timeout: Duration | None = None
    ) -> int:
        """Move ready messages from the front to another queue, counts kept; how many were moved.

        At most `limit`, else all that are ready now; fewer where the target takes no more. Raises
        ConnectionLost and Timeout with `unknown` where some may have been moved.
        """
        most = 2**63 - 1
        if limit is not None:
            checks.integer(limit, "limit", 1, most)
        request = Move(checks.name(queue, "queue"), checks.name(target, "target"), limit or most)
        result = await self._ask(request, timeout, safe=False)
        return int(result["messages"])

    async def status(self, *, timeout: Duration | None = None) -> NodeStatus:
        """Show the state of the connected node: role, term, log indexes, peers, disk."""
        return view(NodeStatus, await self._ask(StatusRequest(), timeout))

    async def transfer_leadership(self, node: str, *, timeout: Duration | None = None) -> None:
        """Transfer leadership to the named node; return once it leads, at once if it does already.

        Requests in flight are neither lost nor refused: the new leader answers them. Raises
        InvalidArgument where the node does not exist, is not connected or is far behind.
        """
        checks.name(node, "node")
        # Asked again after the leader's connections ended: then it is the new one that answers.
        await self._ask(TransferLeadership(node), timeout)

    # Publishing.

    async def publish(
        self,
        queue: str,
        body: bytes,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        priority: int = 4,
        ttl: Duration | None = None,
        dedup_id: str | bytes | None = None,
        timeout: Duration | None = None,
    ) -> Confirm:
        """Publish one message; return once it is on the disks of a majority.

        Raises QueueNotFound, QueueFull, MessageTooLarge, InvalidArgument; Timeout or ConnectionLost
        with `unknown` true where it may have been stored.
        """
        checks.name(queue, "queue")
        body = checks.body(body)
        extras = extras_of(
            key=key, headers=headers, priority=priority, delay=delay, ttl=ttl, dedup_id=dedup_id
        )
        return await self._publisher.publish(_OWN, queue, body, extras, None, timeout)

    async def publish_many(
        self,
        queue: str,
        bodies: Iterable[bytes],
        *,
        keys: Sequence[str | bytes | None] | None = None,
        headers: Sequence[Mapping[str, str] | None] | None = None,
        delays: Sequence[Duration | None] | None = None,
        priorities: Sequence[int] | None = None,
        ttls: Sequence[Duration | None] | None = None,
        dedup_ids: Sequence[str | bytes | None] | None = None,
        timeout: Duration | None = None,
    ) -> Confirms:
        """Publish many messages in as few frames as can be; one confirm per body, in order.

        Lists beside `bodies` have one entry per body. Raises the error of the first that was not
        stored, with `.confirms` (those before it) and `.index`. `timeout` bounds each frame.
        """
        checks.name(queue, "queue")
        batch = Batch(
            bodies,
            keys=keys,
            headers=headers,
            delays=delays,
            priorities=priorities,
            ttls=ttls,
            dedup_ids=dedup_ids,
            numbers=None,
        )
        return await self._publisher.publish_many(_OWN, queue, batch, timeout)

    async def open_producer(self, name: str, *, timeout: Duration | None = None) -> Producer:
        """A named producer, whose numbers outlive this client: a retry stores nothing twice."""
        checks.name(name, "producer name")
        result = await self._ask(OpenProducer(name), timeout)
        if not isinstance(result, dict) or not isinstance(result.get("producer"), int):
            raise ProtocolError(f"expected a map with a producer's number, got {result!r:.80}")
        last, queues = result.get("last") or {}, result.get("queues") or {}
        return Producer(self._publisher, name, result["producer"], dict(last), dict(queues))

    async def forget_producer(self, name: str, *, timeout: Duration | None = None) -> None:
        """Give up a named producer: opened again it is a new one, whose numbers start anew.

        A program that still publishes as this producer is refused (`unknown_producer`). Stored
        messages stay; a retry under its numbers, because an answer was lost, may be stored twice.
        Raises UnknownProducer where there is none; ConnectionLost and Timeout with `unknown`.
        """
        await self._ask(ForgetProducer(checks.name(name, "producer name")), timeout, safe=False)

    # Consuming.

    def consume(self, queue: str, **options: Unpack[ConsumerKeywords]) -> Consumer[M]:
        """A consumer: `async with client.consume(...) as messages: async for message in messages`.

        At most `prefetch` messages are held at once, each locked for `lock` seconds and renewed by
        a thread of the client (`auto_renew`): at most `renewals` times, up to `max_lock` in all,
        and no longer than `handler_timeout` after the message was handed out. The locks
        of a consumer that is not `renewable` are never renewed. With `pull` only messages that
        `consumer.credit(count)` asks for are delivered. An option that is not given here has the
        value that `connect`, the URL or the configuration file gives, in this order.
        """
        checks.name(queue, "queue")
        given: ConsumerKeywords = {**self.options.consumer, **options}
        tag = given.pop("tag", None)
        wanted = f"consumer-{next(self._tags)}" if tag is None else checks.name(tag, "tag")
        self._session.check()
        consumer = Consumer(
            self._session,
            self._settler,
            consume_options(queue, self._consumers.free_tag(queue, wanted), given),
            self._factory,
            self._start_control,
        )
        self._consumers.add(consumer)
        return consumer

    async def get(
        self,
        queue: str,
        count: int = 1,
        wait: Duration = 0,
        lock: Duration | None = None,
        auto_renew: bool = False,
        *,
        timeout: Duration | None = None,
    ) -> list[M]:
        """Up to `count` messages, waiting `wait` seconds for the first; maybe none."""
        checks.name(queue, "queue")
        request = Get(
            queue,
            checks.integer(count, "count", 1, wire.GET_MESSAGES_MAX),
            milliseconds(wait, "wait"),
            _lock_ms(lock, "lock"),
            # Whether the control thread renews is decided here; `renew()` works either way.
            renewable=True,
        )
        checks.flag(auto_renew, "auto_renew")
        patience = self._session.patience(timeout) + request.wait_ms / 1000
        found = await self._getter.get(request, timeout=patience, renew=auto_renew)
        if auto_renew and found:
            self._start_control()
        now = self._session.environment.monotonic()
        messages = [self._factory(delivery, index) for delivery, index in found]
        for message in messages:
            message.ledger.opened(message, now)
            message.ledger.watch(message.lock_ends_at)
        return messages

    async def settle_many(self, messages: Sequence[LockedMessage]) -> list[SettleResult]:
        """Ack messages of any consumers of this client and wait for their receipts, in order."""
        return await self._settler.settle_many(messages)

    def ack_many(self, messages: Sequence[LockedMessage]) -> None:
        """Ack messages of any consumers of this client without waiting."""
        self._settler.gather_many(messages)

    def durable(
        self,
        queue: str,
        name: str,
        *,
        lock: Duration | None = None,
        max_lock: Duration | None = None,
        opened: Opened | None = None,
    ) -> DurableConsumer:
        """A consumer with a name that outlives every session (semantics.md 11).

        Its first verb opens it, and takes it over from its previous holder. `lock` and `max_lock`
        default to the queue's. With `opened` of another object it is used as that one opened it,
        until it is opened again.
        """
        options: dict[str, Any] = {}
        if lock is not None:
            options["lock_ms"] = _lock_ms(lock, "lock")
        if max_lock is not None:
            options["max_lock_ms"] = milliseconds(max_lock, "max_lock")
        return DurableConsumer(
            self._session, checks.name(queue, "queue"), checks.name(name, "name"), options, opened
        )

    # Within.

    def _start_control(self) -> None:
        self._control.start()
        self._control.nudge()

    async def _ask(
        self, message: WireMessage, timeout: Duration | None, *, safe: bool = True
    ) -> Any:
        frame = await self._session.call(message, timeout, safe=safe)
        if not isinstance(frame.message, Ok):
            raise _unexpected(Ok, type(message), frame.message)
        return frame.message.result

    async def _act(self, queue: str, action: str, timeout: Duration | None, *, safe: bool) -> Any:
        return await self._ask(QueueAction(checks.name(queue, "queue"), action), timeout, safe=safe)

    def _query(self, queue: str, query: str, limit: int) -> QueueQuery:
        checks.name(queue, "queue")
        checks.integer(limit, "limit", 1, wire.LISTED_OF_QUEUE_MAX)
        return QueueQuery(queue, query, limit)

    async def _views(self, kind: type[V], query: QueueQuery, timeout: Duration | None) -> list[V]:
        return list(views(kind, await self._ask(query, timeout)))

    def forked(self) -> None:
        """Called in a forked child: let go of the parent's sockets, and refuse every use."""
        self._session.refuse(
            ClientClosed(
                "this client belongs to the process that this one was forked from;"
                " connect again here: a session is not shared"
            )
        )
        for link in (self._session.link, self._control.link):
            descriptor = -1 if link is None else link.fileno()
            if descriptor >= 0:
                # Replaced, not closed: the socket object will close this number once more.
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, descriptor)
                os.close(null)


class Client(BaseClient[Message]):
    """A connection to a cluster for asyncio programs; `fifo.connect` makes it."""

    def __init__(self, options: Options, environment: Environment | None = None) -> None:
        super().__init__(options, Message, environment)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Connecting:
    """The result of `connect`: `await` it for a client, or use it in `async with`."""

    def __init__(self, options: Options, environment: Environment | None = None) -> None:
        self._options = options
        self._environment = environment
        self._client: Client | None = None

    def __repr__(self) -> str:
        return f"<connecting to {', '.join(self._options.addresses)}>"

    def __await__(self) -> Generator[Any, None, Client]:
        return self._open().__await__()

    async def _open(self) -> Client:
        client = Client(self._options, self._environment)
        await client.open()
        return client

    async def __aenter__(self) -> Client:
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close()


def connect(
    url: str, *, environment: Environment | None = None, **options: Unpack[ConnectKeywords]
) -> Connecting:
    """Connect to a cluster: `fifo://[user:password@]host:port,host:port[?option=value]`.

    `async with fifo.connect(url) as client` or `client = await fifo.connect(url)`. Options are
    those of the connection, and defaults for its consumers: as keywords, in the query of the URL,
    or in the file that $FIFO_CONFIG names, in this order. Raises InvalidArgument at once for a bad
    URL, file or option; ConnectionLost, AuthenticationFailed when awaited.
    """
    return Connecting(from_url(url, from_keywords(options), from_environment()), environment)


def _lock_ms(value: Duration | None, what: str) -> int | None:
    if value is None:
        return None
    return milliseconds(value, what, low_ms=bounds.LOCK_MS_MIN, high_ms=bounds.LOCK_MS_MAX)


def _unexpected(
    expected: type[WireMessage], request: type[WireMessage], answer: WireMessage
) -> ProtocolError:
    return ProtocolError(
        f"expected {expected.__name__} in reply to {request.__name__}, got {type(answer).__name__}"
    )


_clients: weakref.WeakSet[BaseClient[Any]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
