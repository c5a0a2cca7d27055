"""The client without `await`: the same names, safe to use from any number of threads.

Owns a thread with an asyncio loop on which the real client runs, and the crossing between it and
the program's threads. Must not know anything that `fifo.client` knows already: each method is one
call over there. Change the two together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, TypeVar

from fifo.client import (
    BaseClient,
    ClientClosed,
    Confirm,
    Confirms,
    Consumer,
    DurableMessage,
    Environment,
    FifoError,
    LockedMessage,
    Metrics,
    NotAcked,
    Opened,
    Options,
    QueueSpec,
    SettleResult,
    Status,
    StoredMessage,
    Terminal,
    from_url,
)
from fifo.client import DurableConsumer as _AsyncDurable
from fifo.client import Producer as _AsyncProducer
from fifo.client.consuming.message import OPEN
from fifo.client.consuming.verbs import ACK, Settling, nacking, releasing, terminating
from fifo.client.durations import Duration, patience

__all__ = ["connect", "BlockingClient", "BlockingConsumer", "BlockingMessage", "BlockingProducer"]

_log = logging.getLogger("fifo.client")
_T = TypeVar("_T")

_BATCH: Final = 64
"""Messages that a blocking iterator fetches at once: few enough that others get their share."""

_JOIN_S: Final = 5.0
"""Closing waits so long for the thread."""


class BlockingMessage(LockedMessage):
    """A message in a program with threads: the verbs of `fifo.Message`, without `await`."""

    __slots__ = ()

    def ack(self, receipt: bool = False) -> SettleResult:
        """Done: never deliver it again. Waits only with `receipt`: until a majority has it."""
        if not receipt:
            return _Threads.of(self).ack(self)
        return self._settle(ACK, receipt=True)

    def nack(
        self, delay: Duration | None = None, reason: str | None = None, *, receipt: bool = True
    ) -> SettleResult:
        """It failed: counts, and comes back after `delay` seconds or the backoff."""
        what = nacking(self.failures, self.ledger.nack_delay, delay, reason)
        return self._settle(what, receipt=receipt)

    def release(self, delay: Duration | None = None, *, receipt: bool = True) -> SettleResult:
        """Not its fault: goes back uncounted."""
        return self._settle(releasing(delay), receipt=receipt)

    def terminate(
        self,
        reason: str,
        description: str | None = None,
        exception: BaseException | None = None,
        *,
        receipt: bool = True,
    ) -> SettleResult:
        """It can never succeed: to the dead-letter queue. Raises NoDeadLetterQueue."""
        return self._settle(terminating(reason, description, exception), receipt=receipt)

    def renew(self) -> datetime:
        """Raise the deadline to now + lock; returns the new one. Raises LockLost."""
        _Threads.of(self).run(self.ledger.settler.renew(self))
        return self.deadline

    def process(
        self,
        *,
        on_error: Callable[[BlockingMessage, Exception], Duration | None] | None = None,
        reraise: bool = False,
    ) -> BlockingProcessing:
        """`with message.process():` settles by how the block ends, as in `fifo.Message`."""
        return BlockingProcessing(self, on_error, reraise)

    def _settle(self, what: Settling, *, receipt: bool) -> SettleResult:
        return _Threads.of(self).run(self.ledger.settler.settle(self, what, receipt=receipt))


class BlockingProcessing:
    """What `message.process()` gives: a context manager."""

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
            message.ack()
            return False
        if isinstance(error, Terminal):
            message.terminate(error.reason, error.description, error.__cause__ or error)
            return True
        if not isinstance(error, Exception):
            message.release(receipt=False)
            return False
        if message.state == OPEN:
            _log.warning("handling %r failed; nacked", message, exc_info=error)
            delay = self._on_error(message, error) if self._on_error is not None else None
            message.nack(delay, f"{type(error).__name__}: {error}", receipt=False)
        return not self._reraise


class _Threads:
    """The loop's thread, and how others reach it."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._acks: deque[LockedMessage] = deque()
        self._acks_due = False
        self._thread = threading.Thread(target=self._run, name="fifo blocking", daemon=True)
        self._thread.start()
        self._ready.wait()

    @staticmethod
    def of(message: LockedMessage) -> _Threads:
        """The thread that a message's client runs on."""
        found = _by_loop.get(message.ledger.settler.loop)
        if found is None:
            raise ClientClosed("the client that this message came from is closed")
        return found

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            loop = self.loop = runner.get_loop()
            _by_loop[loop] = self
            loop.call_soon(self._ready.set)
            loop.run_forever()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine over there and wait for it here; Ctrl-C cancels it."""
        loop = self.loop
        if loop is None or not self._thread.is_alive() or loop.is_closed():
            work.close()
            raise ClientClosed("the client is closed, or was made before a fork: connect again")
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientClosed("a blocking call from a callback of the client would wait for ever")
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def ack(self, message: LockedMessage) -> SettleResult:
        """Hand an ack over without waiting; many share one crossing."""
        if message.settled:
            return SettleResult(Status.ALREADY_SETTLED)
        loop = self.loop
        self._acks.append(message)
        # Two threads may both see it unset: one crossing too many, and no harm.
        if not self._acks_due and loop is not None and not loop.is_closed():
            self._acks_due = True
            loop.call_soon_threadsafe(self._gather)
        return SettleResult(Status.SENT)

    def _gather(self) -> None:
        # Unset before the first look: whoever comes later crosses again.
        self._acks_due = False
        while self._acks:
            message = self._acks.popleft()
            message.ledger.settler.gather(message)

    def stop(self) -> None:
        """End the thread."""
        loop = self.loop
        if loop is not None and not loop.is_closed():
            _by_loop.pop(loop, None)
            loop.call_soon_threadsafe(loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(_JOIN_S)


_by_loop: dict[asyncio.AbstractEventLoop, _Threads] = {}


class BlockingConsumer:
    """What `client.consume(...)` gives: a context manager and an iterator, for one or many threads.

    Leaving it gives back what was not handed out.
    """

    def __init__(self, consumer: Consumer[BlockingMessage], threads: _Threads) -> None:
        self._consumer = consumer
        self._threads = threads
        self._fetched: deque[BlockingMessage] = deque()
        self._fetching = threading.Lock()

    def __repr__(self) -> str:
        return f"<blocking {self._consumer!r}>"

    def __enter__(self) -> BlockingConsumer:
        self._threads.run(self._consumer.subscribe())
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
            elif not message.is_lost:
                return message

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
            return bool(self._fetched) or self._threads.run(self._fetch(timeout))
        finally:
            self._fetching.release()

    async def _fetch(self, timeout: Duration | None) -> bool:
        # Kept over there: a thread that is interrupted while it waits loses nothing.
        found = await self._consumer.next_batch(_BATCH, timeout)
        self._fetched.extend(found)
        return bool(found)

    def next_batch(self, count: int, timeout: Duration | None = None) -> list[BlockingMessage]:
        """At least one and at most `count` messages; empty when too late, or cancelled."""
        found: list[BlockingMessage] = []
        while self._fetched and len(found) < count:
            found.append(self._fetched.popleft())
        return found or self._threads.run(self._consumer.next_batch(count, timeout))

    def batches(self, count: int = 500) -> Iterator[list[BlockingMessage]]:
        """Lists of messages, each of at most `count`, until the consumer is cancelled."""
        while messages := self.next_batch(count):
            yield messages

    def ack_many(self, messages: Sequence[BlockingMessage]) -> None:
        """Ack all of these without waiting."""
        for message in messages:
            self._threads.ack(message)

    def settle_many(self, messages: Sequence[BlockingMessage]) -> list[SettleResult]:
        """Ack all of these and wait for the receipts, in the same order."""
        return self._threads.run(self._consumer.settle_many(list(messages)))

    def alive(self) -> None:
        """Say that the program behind this consumer is well."""
        self._threads.run(self._consumer.alive())

    def credit(self, count: int, *, drain: bool = False) -> None:
        """Ask for messages, where the consumer pulls; as `fifo.Consumer.credit`."""
        self._threads.run(self._consumer.credit(count, drain=drain))

    def cancel(self) -> None:
        """No more messages; what was not handed out goes back at once, uncounted."""
        self._threads.run(self._cancel())

    async def _cancel(self) -> None:
        while self._fetched:
            message = self._fetched.popleft()
            message.ledger.settler.send(message, releasing(None))
        await self._consumer.cancel()

    @property
    def active(self) -> bool:
        """Whether it is the active consumer of its queue (always, but for single-active queues)."""
        return self._consumer.active

    @property
    def queue(self) -> str:
        """The queue that it consumes."""
        return self._consumer.queue

    @property
    def number(self) -> int | None:
        """The consumer's number; None before it has one."""
        return self._consumer.number


class BlockingProducer:
    """A named producer, without `await`."""

    def __init__(self, producer: _AsyncProducer, threads: _Threads) -> None:
        self._producer = producer
        self._threads = threads

    @property
    def name(self) -> str:
        """Its name."""
        return self._producer.name

    @property
    def number(self) -> int:
        """Its number in the cluster, part of the ids of its messages."""
        return self._producer.number

    def last(self, queue: str) -> int:
        """The number last stored in this queue; 0 for none."""
        return self._producer.last(queue)

    def publish(self, queue: str, body: bytes, **options: Any) -> Confirm:
        """As `fifo.client.Producer.publish`."""
        return self._threads.run(self._producer.publish(queue, body, **options))

    def publish_many(self, queue: str, bodies: Iterable[bytes], **options: Any) -> Confirms:
        """As `fifo.client.Producer.publish_many`."""
        return self._threads.run(self._producer.publish_many(queue, bodies, **options))

    def send_many(self, queue: str, bodies: Iterable[bytes], **options: Any) -> BlockingSent:
        """As `fifo.client.Producer.send_many`."""
        task = self._threads.run(self._producer.send_many(queue, bodies, **options))
        return BlockingSent(task, self._threads)


class BlockingSent:
    """What `send_many` gives: the confirms, once they have come."""

    def __init__(self, task: asyncio.Task[Confirms], threads: _Threads) -> None:
        self._task = task
        self._threads = threads

    def done(self) -> bool:
        """Whether the confirms or the error are there."""
        return self._task.done()

    def result(self) -> Confirms:
        """Wait for the confirms; raises the error of the first message that was not stored."""

        async def wait() -> Confirms:
            return await self._task

        return self._threads.run(wait())

    def give_up(self) -> None:
        """Nobody asks for it any more; what was not sent yet is not sent."""

        async def cancel() -> None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

        self._threads.run(cancel())


class BlockingDurable:
    """A durable consumer's verbs, without `await`."""

    def __init__(self, durable: _AsyncDurable, threads: _Threads) -> None:
        self._durable = durable
        self._threads = threads

    @property
    def generation(self) -> int:
        """How often the name was opened, when this one opened it last; 0 before."""
        return self._durable.generation

    @property
    def opened(self) -> Opened:
        """What another client needs in order to fetch from it; of plain numbers."""
        return self._durable.opened

    @property
    def next_token(self) -> int:
        """The token of the next message, as it was at the opening."""
        return self._durable.next_token

    def open(self) -> tuple[tuple[int, int], ...]:
        """Find or create it, and take it over; the ranges of tokens that it holds."""
        return self._threads.run(self._durable.open())

    def reserve(self, count: int) -> list[DurableMessage]:
        """Lock up to `count` ready messages under the next tokens; maybe none."""
        return self._threads.run(self._durable.reserve(count))

    def hold(self, count: int) -> range:
        """As `reserve`, but nothing is sent: the tokens, for a `fetch` here or elsewhere."""
        return self._threads.run(self._durable.hold(count))

    def fetch(self, first: int, last: int) -> list[DurableMessage]:
        """What is still locked of tokens first..last, in order; the same each time, with holes."""
        return self._threads.run(self._durable.fetch(first, last))

    def ack(self, upto: int) -> tuple[NotAcked, ...]:
        """Settle all tokens up to this one, again without harm; what could not be settled."""
        return self._threads.run(self._durable.ack(upto))

    def renew(self) -> None:
        """Lock everything that it holds anew, from now on."""
        self._threads.run(self._durable.renew())

    def forget(self) -> None:
        """End it: what it holds goes back, uncounted."""
        self._threads.run(self._durable.forget())


class BlockingClient:
    """A connection to a cluster for programs with threads; `fifo.blocking.connect` makes it."""

    def __init__(self, options: Options, environment: Environment | None = None) -> None:
        self._threads = _Threads()
        self._closed = False
        try:
            self._client = self._threads.run(_open(options, environment))
        except BaseException:
            self._threads.stop()
            raise

    def __repr__(self) -> str:
        return f"<blocking {self._client!r}>"

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """As `fifo.Client.close`; afterwards every call raises ClientClosed."""
        if self._closed:
            return
        self._closed = True
        try:
            self._run(self._client.close())
        finally:
            self._threads.stop()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._threads.run(work)

    @property
    def metrics(self) -> Metrics:
        """Counters of this client."""
        return self._client.metrics

    @property
    def options(self) -> Options:
        """What it was connected with."""
        return self._client.options

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a leader right now."""
        return self._client.connected

    @property
    def address(self) -> str | None:
        """The node that we are connected to."""
        return self._client.address

    @property
    def on_unsettled(self) -> Callable[[LockedMessage, FifoError], object] | None:
        """Called, on the client's thread, with a message whose settlement came to nothing."""
        return self._client.on_unsettled

    @on_unsettled.setter
    def on_unsettled(self, callback: Callable[[LockedMessage, FifoError], object] | None) -> None:
        self._client.on_unsettled = callback

    # Queues.

    def declare(self, spec: QueueSpec, *, timeout: Duration | None = None) -> bool:
        """Create the queue; True if it was not there. Raises QueueExists with the difference."""
        return self._run(self._client.declare(spec, timeout=timeout))

    def update(self, queue: str, *, timeout: Duration | None = None, **changes: Any) -> None:
        """Change fields of a QueueSpec on a live queue; None restores a default."""
        self._run(self._client.update(queue, timeout=timeout, **changes))

    def delete(self, queue: str, *, timeout: Duration | None = None) -> None:
        """Delete the queue with its messages."""
        self._run(self._client.delete(queue, timeout=timeout))

    def purge(self, queue: str, *, timeout: Duration | None = None) -> int | None:
        """Delete what is not locked; how many messages that were, where the node says so.

        Returns when they are gone.
        """
        return self._run(self._client.purge(queue, timeout=timeout))

    def pause(self, queue: str, *, timeout: Duration | None = None) -> None:
        """Stop deliveries; publishing and settling go on."""
        self._run(self._client.pause(queue, timeout=timeout))

    def resume(self, queue: str, *, timeout: Duration | None = None) -> None:
        """Deliver again."""
        self._run(self._client.resume(queue, timeout=timeout))

    def queues(self, *, timeout: Duration | None = None) -> list[dict[str, Any]]:
        """An overview of every queue."""
        return self._run(self._client.queues(timeout=timeout))

    def queue(self, name: str, *, timeout: Duration | None = None) -> dict[str, Any]:
        """The overview of one queue."""
        return self._run(self._client.queue(name, timeout=timeout))

    def locks(
        self, queue: str, limit: int = 1000, *, timeout: Duration | None = None
    ) -> list[dict[str, Any]]:
        """Who holds which message, and until when."""
        return self._run(self._client.locks(queue, limit, timeout=timeout))

    def delayed(
        self, queue: str, limit: int = 1000, *, timeout: Duration | None = None
    ) -> list[dict[str, Any]]:
        """Delayed messages, with why and until when."""
        return self._run(self._client.delayed(queue, limit, timeout=timeout))

    def consumers(
        self, queue: str, limit: int = 1000, *, timeout: Duration | None = None
    ) -> list[dict[str, Any]]:
        """The queue's consumers and how they are."""
        return self._run(self._client.consumers(queue, limit, timeout=timeout))

    def producers(
        self, queue: str, limit: int = 1000, *, timeout: Duration | None = None
    ) -> list[dict[str, Any]]:
        """The named producers that have published to the queue."""
        return self._run(self._client.producers(queue, limit, timeout=timeout))

    def peek(
        self, queue: str, count: int = 1, *, timeout: Duration | None = None
    ) -> list[StoredMessage]:
        """The next messages, without locking them."""
        return self._run(self._client.peek(queue, count, timeout=timeout))

    def redrive(
        self,
        queue: str,
        target: str | None = None,
        *,
        timeout: Duration | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Move dead letters back; options as in `fifo.Client.redrive`."""
        return self._run(self._client.redrive(queue, target, timeout=timeout, **options))

    def cancel_redrive(self, queue: str, *, timeout: Duration | None = None) -> dict[str, Any]:
        """End the redrive of this queue; what was moved stays moved."""
        return self._run(self._client.cancel_redrive(queue, timeout=timeout))

    def move(
        self, queue: str, target: str, limit: int | None = None, *, timeout: Duration | None = None
    ) -> int:
        """Move ready messages from the front to another queue; how many were moved."""
        return self._run(self._client.move(queue, target, limit, timeout=timeout))

    def status(self, *, timeout: Duration | None = None) -> dict[str, Any]:
        """How the node that we are connected to is."""
        return self._run(self._client.status(timeout=timeout))

    def transfer_leadership(self, node: str, *, timeout: Duration | None = None) -> None:
        """Let the named node lead; as `fifo.Client.transfer_leadership`."""
        self._run(self._client.transfer_leadership(node, timeout=timeout))

    # Publishing.

    def publish(
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
        """Publish one message; returns once it is on the disks of a majority."""
        return self._run(
            self._client.publish(
                queue,
                body,
                key=key,
                headers=headers,
                delay=delay,
                priority=priority,
                ttl=ttl,
                dedup_id=dedup_id,
                timeout=timeout,
            )
        )

    def publish_many(self, queue: str, bodies: Iterable[bytes], **columns: Any) -> Confirms:
        """Publish many messages; one confirm per body, in order. Lists as in `fifo.Client`."""
        return self._run(self._client.publish_many(queue, bodies, **columns))

    def open_producer(self, name: str, *, timeout: Duration | None = None) -> BlockingProducer:
        """A named producer, whose numbers outlive this client."""
        producer = self._run(self._client.open_producer(name, timeout=timeout))
        return BlockingProducer(producer, self._threads)

    def forget_producer(self, name: str, *, timeout: Duration | None = None) -> None:
        """Give up a named producer: opened again it is a new one, whose numbers start anew."""
        self._run(self._client.forget_producer(name, timeout=timeout))

    # Consuming.

    def consume(self, queue: str, **options: Any) -> BlockingConsumer:
        """A consumer: `with client.consume(queue) as messages: for message in messages`.

        Options as in `fifo.Client.consume`.
        """

        async def make() -> Consumer[BlockingMessage]:
            return self._client.consume(queue, **options)

        return BlockingConsumer(self._run(make()), self._threads)

    def get(
        self,
        queue: str,
        count: int = 1,
        wait: Duration = 0,
        lock: Duration | None = None,
        auto_renew: bool = False,
        *,
        timeout: Duration | None = None,
    ) -> list[BlockingMessage]:
        """Up to `count` messages, waiting `wait` seconds for the first; maybe none."""
        return self._run(self._client.get(queue, count, wait, lock, auto_renew, timeout=timeout))

    def settle(
        self, queue: str, consumer: int, token: int, verb: str = "ack", **words: Any
    ) -> SettleResult:
        """Settle a message by its (queue, consumer, token), also one that is held elsewhere."""
        return self._run(self._client.settle(queue, consumer, token, verb, **words))

    def settle_many(self, messages: Sequence[BlockingMessage]) -> list[SettleResult]:
        """Ack messages of this client and wait for their receipts, in order."""
        return self._run(self._client.settle_many(messages))

    def ack_many(self, messages: Sequence[BlockingMessage]) -> None:
        """Ack messages of this client without waiting."""
        for message in messages:
            self._threads.ack(message)

    def durable(self, queue: str, name: str, **options: Any) -> BlockingDurable:
        """A consumer with a name that outlives every session; options as in `fifo.Client`."""

        async def make() -> _AsyncDurable:
            return self._client.durable(queue, name, **options)

        return BlockingDurable(self._run(make()), self._threads)


async def _open(options: Options, environment: Environment | None) -> BaseClient[BlockingMessage]:
    client = BaseClient(options, BlockingMessage, environment)
    await client.open()
    return client


def connect(url: str, *, environment: Environment | None = None, **options: Any) -> BlockingClient:
    """Connect to a cluster; URL and options as in `fifo.connect`.

    `with fifo.blocking.connect(url) as client`, or close it yourself.
    """
    return BlockingClient(from_url(url, options), environment)
