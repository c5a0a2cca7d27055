"""The client without `await`: the same names, safe to use from any number of threads.

Owns the portal to the event loop of a thread, on which the asyncio client runs. By hand is only
what differs: batches, acks that share a crossing, contexts. Must not know what a method does.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from fifo.client import (
    BaseClient,
    ClientClosed,
    Confirms,
    ConnectKeywords,
    Consumer,
    DurableConsumer,
    Environment,
    FifoError,
    LockedMessage,
    Metrics,
    Opened,
    Options,
    PinnedView,
    Producer,
    RedriveCount,
    RedriveKeywords,
    RedriveView,
    ScanKeywords,
    ScannedMessage,
    SettleResult,
    Terminal,
    from_environment,
    from_keywords,
    from_url,
)
from fifo.client.connection.in_process import environment_of_thread
from fifo.client.connection.threads import Crossing, call_in
from fifo.client.consuming.settlement import SENT
from fifo.client.consuming.verbs import (
    ACK,
    Settling,
    chosen_delay,
    nacking,
    releasing,
    terminating,
    words_of,
)
from fifo.client.durations import Duration, patience
from fifo.client.scanning import cursor_parts

__all__ = ["connect", "BlockingClient", "BlockingConsumer", "BlockingMessage", "BlockingProducer"]

_log = logging.getLogger("fifo.client")
_A = TypeVar("_A")
_A_co = TypeVar("_A_co", covariant=True)  # methods that a client inherits are its own
_P = ParamSpec("_P")
_T = TypeVar("_T")
_W = TypeVar("_W")

_BATCH: Final = 64
"""Messages that a blocking iterator fetches at once: few enough that others get their share."""


class BlockingMessage(LockedMessage):
    """A message in a program with threads: the verbs of `fifo.Message`, without `await`."""

    __slots__ = ()

    def ack(self, receipt: bool = False) -> SettleResult:
        """Acknowledge. Returns at once; with `receipt`, after a majority has stored it."""
        if not receipt:
            return _Portal.of(self).ack(self)
        return self._settle(ACK, receipt=True)

    def nack(
        self, delay: Duration | None = None, reason: str | None = None, *, receipt: bool = True
    ) -> SettleResult:
        """Report a failure: count it; redeliver after `delay` seconds or the queue's backoff."""
        what = nacking(self.failures, self.ledger.nack_delay, delay, reason)
        return self._settle(what, receipt=receipt)

    def release(self, delay: Duration | None = None, *, receipt: bool = True) -> SettleResult:
        """Give the message back without counting a failure, after `delay` seconds if given."""
        return self._settle(releasing(delay), receipt=receipt)

    def terminate(
        self,
        reason: str,
        description: str | None = None,
        exception: BaseException | None = None,
        *,
        receipt: bool = True,
    ) -> SettleResult:
        """Reject permanently: move it to the dead-letter queue. Raises NoDeadLetterQueue."""
        return self._settle(terminating(reason, description, exception), receipt=receipt)

    def renew(self) -> datetime:
        """Renew the lock; return the new deadline. Raises LockLost."""
        _Portal.of(self).run(self.ledger.settler.renew(self))
        return self.deadline

    def process(
        self,
        *,
        on_error: Callable[[BlockingMessage, Exception], Duration | None] | None = None,
        reraise: bool = False,
    ) -> BlockingProcessing:
        """`with message.process():` settles by how the block ends, as in `fifo.Message`."""
        block = BlockingProcessing(self, on_error, reraise)
        spans = self.ledger.settler.spans
        return block if spans is None else spans.handling(self, block)

    def _settle(self, what: Settling, *, receipt: bool) -> SettleResult:
        return _Portal.of(self).run(self.ledger.settler.settle(self, what, receipt=receipt))


class BlockingProcessing:
    """The context manager of `message.process()`."""

    __slots__ = ("_message", "_on_error", "_reraise")

    def __init__(
        self,
        message: BlockingMessage,
        on_error: Callable[[BlockingMessage, Exception], Duration | None] | None,
        reraise: bool,
    ) -> None:
        self._message = message
        self._on_error = on_error
        self._reraise = reraise

    def __enter__(self) -> BlockingMessage:
        self._message.ledger.busy.add(self._message.token)
        return self._message

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        message = self._message
        message.ledger.busy.discard(message.token)
        if error is None:
            if not message.settled:
                message.ack()
            return False
        if isinstance(error, Terminal):
            if not message.settled:
                cause = error.__cause__ or error
                result = message.terminate(error.reason, error.description, cause)
                _Portal.of(message).report(message, result)
            return True
        if not isinstance(error, Exception):
            if not message.settled:
                message.release(receipt=False)
            return False
        if not message.settled:
            _log.warning("handling %r failed; nacked", message, exc_info=error)
            on_error, delay = self._on_error, None
            if on_error is not None:
                delay = chosen_delay(lambda: on_error(message, error), "on_error")
            message.nack(delay, f"{type(error).__name__}: {words_of(error)}", receipt=False)
        return not self._reraise


class _Portal:
    """The way of threads to the loop of a client: to run coroutines, and to hand acks over."""

    def __init__(self, crossing: Crossing) -> None:
        self._crossing = crossing
        self._acks: deque[LockedMessage] = deque()
        self._acks_due = False
        self.run = crossing.run
        self._settler: object = None

    def serve(self, client: BaseClient[BlockingMessage]) -> None:
        """Take the calls of this client's messages."""
        self._settler = client._settler
        _by_settler[self._settler] = self

    @staticmethod
    def of(message: LockedMessage) -> _Portal:
        """The portal to the loop that a message's client runs on."""
        found = _by_settler.get(message.ledger.settler)
        if found is None:
            raise ClientClosed("the client that this message came from is closed")
        return found

    def ack(self, message: LockedMessage) -> SettleResult:
        """Hand an ack over without waiting; many share one crossing."""
        first = message.settlement
        if first is not None and first.ended:
            return first.at_once(message.token)
        loop = self._crossing.loop
        self._acks.append(message)
        # Two threads may both see it unset: one crossing too many, and no harm.
        if not self._acks_due and loop is not None and not loop.is_closed():
            self._acks_due = True
            loop.call_soon_threadsafe(self._gather)
        return SENT

    def report(self, message: LockedMessage, result: SettleResult) -> None:
        """Have a receipt reported that the program does not see."""
        loop = self._crossing.loop
        if loop is not None:
            loop.call_soon_threadsafe(message.ledger.settler.report, message, result)

    def _gather(self) -> None:
        # Unset before the first look: an ack that comes later crosses again.
        self._acks_due = False
        while self._acks:
            message = self._acks.popleft()
            message.ledger.settler.gather(message)

    def stop(self) -> None:
        """End the loop."""
        _by_settler.pop(self._settler, None)
        self._crossing.stop()


_by_settler: dict[object, _Portal] = {}


class _Twin(Generic[_A_co]):
    """An object of the asyncio client, with the portal to the event loop that it lives on."""

    def __init__(self, asynchronous: _A_co, portal: _Portal) -> None:
        self._async = asynchronous
        self._portal = portal

    def __repr__(self) -> str:
        return f"<blocking {self._async!r}>"


def _blocking(
    method: Callable[Concatenate[_A, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_Twin[_A], _P], _T]:
    """Declare the blocking form of a coroutine method: same parameters, types and docstring."""

    @functools.wraps(method)
    def call(self: _Twin[_A], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._portal.run(method(self._async, *args, **kwargs))

    return call


def _wrapping(
    wrap: Callable[[_T, _Portal], _W],
    method: Callable[Concatenate[_A, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_Twin[_A], _P], _W]:
    """Declare the blocking form of a coroutine method whose result has a blocking form, too."""

    @functools.wraps(method)
    def call(self: _Twin[_A], /, *args: _P.args, **kwargs: _P.kwargs) -> _W:
        portal = self._portal
        return wrap(portal.run(method(self._async, *args, **kwargs)), portal)

    return call


def _on_loop(
    method: Callable[Concatenate[_A, _P], _T],
) -> Callable[Concatenate[_A, _P], Coroutine[Any, Any, _T]]:
    """Make a coroutine method of a plain one that may be called on the event loop only."""

    @functools.wraps(method)
    async def call(self: _A, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return method(self, *args, **kwargs)

    return call


class BlockingConsumer(_Twin[Consumer[BlockingMessage]]):
    """A consumer of a blocking client: a context manager and an iterator, for one or many threads.

    Leaving the context gives back, uncounted, the messages that were not handed out.
    """

    def __init__(self, consumer: Consumer[BlockingMessage], portal: _Portal) -> None:
        super().__init__(consumer, portal)
        self._fetched: deque[BlockingMessage] = deque()
        self._fetching = threading.Lock()

    def __enter__(self) -> BlockingConsumer:
        self.subscribe()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[BlockingMessage]:
        return self

    def __next__(self) -> BlockingMessage:
        message = self.next()
        if message is None:
            raise StopIteration
        return message

    def next(self, timeout: Duration | None = None) -> BlockingMessage | None:
        """The next message; None when `timeout` seconds are over, or the consumer was cancelled."""
        while True:
            message = self._fetched_one()
            if message is None:
                if not self._fetch_more(timeout):
                    return None
            elif self._is_fresh(message):
                return message

    def _is_fresh(self, message: BlockingMessage) -> bool:
        """Whether a message may be handed out; one whose lock ended over here goes back."""
        settler = message.ledger.settler
        if not message.is_lost and settler.environment.monotonic() < message.lock_ends_at:
            return True
        call_in(settler.loop, settler.take_back, message)
        return False

    def _fetched_one(self) -> BlockingMessage | None:
        # One step, as another thread may take the last; and no trace of it in what a wait raises.
        try:
            return self._fetched.popleft()
        except IndexError:
            return None

    def _fetch_more(self, timeout: Duration | None) -> bool:
        """Get messages over here, one thread at a time; False when there are none (any more)."""
        if not self._fetching.acquire(timeout=-1 if timeout is None else patience(timeout)):
            return False
        try:
            # Another thread may have fetched while this one waited for its turn.
            return bool(self._fetched) or self._portal.run(self._fetch(timeout))
        finally:
            self._fetching.release()

    async def _fetch(self, timeout: Duration | None) -> bool:
        # Kept over there: a thread that is interrupted while it waits loses nothing.
        found = await self._async.next_batch(_BATCH, timeout)
        self._fetched.extend(found)
        return bool(found)

    def next_batch(self, count: int, timeout: Duration | None = None) -> list[BlockingMessage]:
        """At least one and at most `count` messages; empty when too late, or cancelled."""
        found: list[BlockingMessage] = []
        while self._fetched and len(found) < count:
            message = self._fetched.popleft()
            if self._is_fresh(message):
                found.append(message)
        return found or self._portal.run(self._async.next_batch(count, timeout))

    def batches(self, count: int = 500) -> Iterator[list[BlockingMessage]]:
        """Lists of messages, each of at most `count`, until the consumer is cancelled."""
        while messages := self.next_batch(count):
            yield messages

    def ack_many(self, messages: Sequence[BlockingMessage]) -> None:
        """Ack all of these without waiting."""
        for message in messages:
            self._portal.ack(message)

    subscribe = _blocking(Consumer.subscribe)
    settle_many = _blocking(Consumer.settle_many)
    alive = _blocking(Consumer.alive)
    credit = _blocking(Consumer.credit)

    def cancel(self) -> None:
        """End deliveries; give back, uncounted, the messages that were not handed out."""
        self._portal.run(self._cancel())

    async def _cancel(self) -> None:
        while self._fetched:
            message = self._fetched.popleft()
            message.ledger.settler.take_back(message)
        await self._async.cancel()

    @property
    def active(self) -> bool:
        """Whether it is the active consumer of its queue (always, but for single-active queues)."""
        return self._async.active

    @property
    def on_activity(self) -> Callable[[bool], object] | None:
        """Called, on the client's thread, when it becomes active (True) or waits (False)."""
        return self._async.on_activity

    @on_activity.setter
    def on_activity(self, callback: Callable[[bool], object] | None) -> None:
        self._async.on_activity = callback

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled: no more messages come."""
        return self._async.cancelled

    @property
    def buffered(self) -> int:
        """Messages delivered and not yet handed out."""
        return self._async.buffered + len(self._fetched)

    @property
    def queue(self) -> str:
        """The queue that it consumes."""
        return self._async.queue

    @property
    def tag(self) -> str:
        """The label that it has in lists."""
        return self._async.tag

    @property
    def number(self) -> int | None:
        """The consumer's number; None before it has one."""
        return self._async.number


class BlockingSent(_Twin[asyncio.Task[Confirms]]):
    """The outcome of `send_many`: the confirms, once they have come."""

    def done(self) -> bool:
        """Whether the confirms or the error are there."""
        return self._async.done()

    def result(self) -> Confirms:
        """Wait for the confirms; raises the error of the first message that was not stored."""

        async def wait() -> Confirms:
            return await self._async

        return self._portal.run(wait())

    def give_up(self) -> None:
        """Abandon the call: what was not sent yet is not sent."""

        async def cancel() -> None:
            self._async.cancel()
            await asyncio.gather(self._async, return_exceptions=True)

        self._portal.run(cancel())


class BlockingProducer(_Twin[Producer]):
    """A named producer, without `await`."""

    publish = _blocking(Producer.publish)
    publish_many = _blocking(Producer.publish_many)
    send_many = _wrapping(BlockingSent, Producer.send_many)

    @property
    def name(self) -> str:
        """Its name."""
        return self._async.name

    @property
    def number(self) -> int:
        """Its number in the cluster, part of the ids of its messages."""
        return self._async.number

    def last(self, queue: str) -> int:
        """The number last stored in this queue, as far as this client knows; 0 for none."""
        return self._async.last(queue)


class BlockingPinnedView(_Twin[PinnedView]):
    """A pinned view, without `await`: a context manager that ends it."""

    def __enter__(self) -> BlockingPinnedView:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def index(self) -> int:
        """The index of the log that it shows."""
        return self._async.index

    @property
    def address(self) -> str:
        """The node that keeps it."""
        return self._async.address

    @property
    def ref(self) -> str:
        """The text with which another client reads the same view: `client.pinned(ref)`."""
        return self._async.ref

    close = _blocking(PinnedView.close)
    leave = _blocking(_on_loop(PinnedView.leave))
    renew = _blocking(PinnedView.renew)
    queues = _blocking(PinnedView.queues)
    consumers = _blocking(PinnedView.consumers)
    ranges = _blocking(PinnedView.ranges)
    page = _blocking(PinnedView.page)

    def scan(
        self,
        queue: str,
        *,
        after: int = 0,
        before: int = 2**63 - 1,
        page_size: int = 1000,
        **wanted: Unpack[ScanKeywords],
    ) -> Iterator[ScannedMessage]:
        """Iterate over the messages of a queue, or over those of a range of positions."""
        scan = self._async.scan(queue, after=after, before=before, page_size=page_size, **wanted)
        while page := self._portal.run(scan.next_page()):
            yield from page


class BlockingDurable(_Twin[DurableConsumer]):
    """A durable consumer's verbs, without `await`."""

    open = _blocking(DurableConsumer.open)
    reserve = _blocking(DurableConsumer.reserve)
    hold = _blocking(DurableConsumer.hold)
    fetch = _blocking(DurableConsumer.fetch)
    fetch_part = _blocking(DurableConsumer.fetch_part)
    settle = _blocking(DurableConsumer.settle)
    ack = _blocking(DurableConsumer.ack)
    renew = _blocking(DurableConsumer.renew)
    forget = _blocking(DurableConsumer.forget)

    @property
    def queue(self) -> str:
        """The queue that it consumes."""
        return self._async.queue

    @property
    def name(self) -> str:
        """Its name."""
        return self._async.name

    @property
    def consumer(self) -> int:
        """Its number in the cluster; 0 before it was opened."""
        return self._async.consumer

    @property
    def held(self) -> tuple[tuple[int, int], ...]:
        """The ranges of tokens that it held at its last opening."""
        return self._async.held

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        """The ranges of tokens that it had lost at its last opening."""
        return self._async.lost

    @property
    def generation(self) -> int:
        """The number of openings of the name at this one's last opening; 0 before."""
        return self._async.generation

    @property
    def opened(self) -> Opened:
        """The numbers that another client needs to fetch from it."""
        return self._async.opened

    @property
    def next_token(self) -> int:
        """The token of the next message, as it was at the opening."""
        return self._async.next_token


class BlockingClient(_Twin[BaseClient[BlockingMessage]]):
    """A connection to a cluster for programs with threads; `fifo.blocking.connect` makes it."""

    def __init__(self, options: Options, environment: Environment | None = None) -> None:
        environment = environment or environment_of_thread(options.addresses)
        portal = _Portal(environment.crossing())
        self._closed = False
        try:
            super().__init__(portal.run(_open(options, environment)), portal)
            portal.serve(self._async)
        except BaseException:
            portal.stop()
            raise

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, *, leave: bool = False) -> None:
        """Close as `fifo.Client.close`; afterwards every call raises ClientClosed."""
        if self._closed:
            return
        self._closed = True
        try:
            self._portal.run(self._async.close(leave=leave))
        finally:
            self._portal.stop()

    @property
    def metrics(self) -> Metrics:
        """Counters of this client."""
        return self._async.metrics

    @property
    def options(self) -> Options:
        """The options of the connection."""
        return self._async.options

    @property
    def environment(self) -> Environment:
        """The environment that it was made with."""
        return self._async.environment

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a leader right now."""
        return self._async.connected

    @property
    def address(self) -> str | None:
        """The node that we are connected to."""
        return self._async.address

    @property
    def on_unsettled(self) -> Callable[[LockedMessage, FifoError], object] | None:
        """Called, on the client's thread, with a message whose settlement came to nothing."""
        return self._async.on_unsettled

    @on_unsettled.setter
    def on_unsettled(self, callback: Callable[[LockedMessage, FifoError], object] | None) -> None:
        self._async.on_unsettled = callback

    @property
    def on_connected(self) -> Callable[[str], object] | None:
        """Called, on the client's thread, with the address after every (re)connection."""
        return self._async.on_connected

    @on_connected.setter
    def on_connected(self, callback: Callable[[str], object] | None) -> None:
        self._async.on_connected = callback

    @property
    def on_disconnected(self) -> Callable[[FifoError], object] | None:
        """Called, on the client's thread, with the reason of a lost connection."""
        return self._async.on_disconnected

    @on_disconnected.setter
    def on_disconnected(self, callback: Callable[[FifoError], object] | None) -> None:
        self._async.on_disconnected = callback

    # Queues.

    declare = _blocking(BaseClient.declare)
    update = _blocking(BaseClient.update)
    delete = _blocking(BaseClient.delete)
    purge = _blocking(BaseClient.purge)
    pause = _blocking(BaseClient.pause)
    resume = _blocking(BaseClient.resume)
    queues = _blocking(BaseClient.queues)
    queue = _blocking(BaseClient.queue)
    locks = _blocking(BaseClient.locks)
    delayed = _blocking(BaseClient.delayed)
    consumers = _blocking(BaseClient.consumers)
    producers = _blocking(BaseClient.producers)
    sessions = _blocking(BaseClient.sessions)
    users = _blocking(BaseClient.users)
    end_session = _blocking(BaseClient.end_session)
    list_page = _blocking(BaseClient.list_page)
    log_users = _blocking(BaseClient.log_users)
    manage_user = _blocking(BaseClient.manage_user)
    audit = _blocking(BaseClient.audit)
    peek = _blocking(BaseClient.peek)
    find = _blocking(BaseClient.find)
    move_found = _blocking(BaseClient.move_found)
    message = _blocking(BaseClient.message)
    act = _blocking(BaseClient.act)
    dead_letters = _blocking(BaseClient.dead_letters)
    copy = _blocking(BaseClient.copy)

    def pin(self, *, lease: Duration = 60, timeout: Duration | None = None) -> BlockingPinnedView:
        """Pin the state of the cluster as it is now; as `Client.pin`."""
        view = self._portal.run(self._async.pin(lease=lease, timeout=timeout))
        return BlockingPinnedView(view, self._portal)

    def pinned(self, ref: str, *, timeout: Duration | None = None) -> BlockingPinnedView:
        """A view that another client has pinned, by its `ref`."""
        view = self._portal.run(self._async.pinned(ref, timeout=timeout))
        return BlockingPinnedView(view, self._portal)

    def scan(
        self,
        queue: str,
        *,
        cursor: str | None = None,
        lease: Duration = 60,
        page_size: int = 1000,
        timeout: Duration | None = None,
        **wanted: Unpack[ScanKeywords],
    ) -> Iterator[ScannedMessage]:
        """Iterate over a whole queue as it is at one index, taking nothing; as `Client.scan`."""
        if cursor is None:
            with self.pin(lease=lease, timeout=timeout) as view:
                yield from view.scan(queue, page_size=page_size, **wanted)
            return
        ref, position = cursor_parts(cursor)
        view = self.pinned(ref, timeout=timeout)
        try:
            yield from view.scan(queue, after=position, page_size=page_size, **wanted)
        finally:
            view.leave()

    @overload
    def redrive(
        self,
        queue: str,
        target: str | None = None,
        *,
        dry_run: Literal[False] = False,
        timeout: Duration | None = None,
        **options: Unpack[RedriveKeywords],
    ) -> RedriveView: ...

    @overload
    def redrive(
        self,
        queue: str,
        target: str | None = None,
        *,
        dry_run: Literal[True],
        timeout: Duration | None = None,
        **options: Unpack[RedriveKeywords],
    ) -> RedriveCount: ...

    @functools.wraps(BaseClient.redrive)
    def redrive(self, *args: Any, **kwargs: Any) -> RedriveView | RedriveCount:
        # By hand: a derived method would have the first of the two forms only.
        return self._portal.run(self._async.redrive(*args, **kwargs))  # type: ignore[no-any-return]

    cancel_redrive = _blocking(BaseClient.cancel_redrive)
    move = _blocking(BaseClient.move)
    status = _blocking(BaseClient.status)
    transfer_leadership = _blocking(BaseClient.transfer_leadership)
    finish_upgrade = _blocking(BaseClient.finish_upgrade)
    change_members = _blocking(BaseClient.change_members)

    # Publishing.
    publish = _blocking(BaseClient.publish)
    publish_many = _blocking(BaseClient.publish_many)
    open_producer = _wrapping(BlockingProducer, BaseClient.open_producer)
    forget_producer = _blocking(BaseClient.forget_producer)

    # Consuming.

    consume = _wrapping(BlockingConsumer, _on_loop(BaseClient.consume))
    get = _blocking(BaseClient.get)
    settle = _blocking(BaseClient.settle)
    renew_lock = _blocking(BaseClient.renew_lock)
    settle_many = _blocking(BaseClient.settle_many)
    durable = _wrapping(BlockingDurable, _on_loop(BaseClient.durable))

    def ack_many(self, messages: Sequence[BlockingMessage]) -> None:
        """Ack messages of this client without waiting."""
        for message in messages:
            self._portal.ack(message)


async def _open(options: Options, environment: Environment) -> BaseClient[BlockingMessage]:
    client = BaseClient(options, BlockingMessage, environment)
    await client.open()
    return client


def connect(
    url: str, *, environment: Environment | None = None, **options: Unpack[ConnectKeywords]
) -> BlockingClient:
    """Connect to a cluster; URL, options and file as in `fifo.connect`.

    `with fifo.blocking.connect(url) as client`, or close it yourself.
    """
    found = from_url(url, from_keywords(options), from_environment())
    return BlockingClient(found, environment)
