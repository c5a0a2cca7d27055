"""A channel, as kombu's entities use it: declare, bind, publish, consume, settle.

Owns what a channel has open: its consumers and the messages that it has not settled. Its methods
run on the program's threads and have kombu's names and arguments. Must not know threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from amqp.exceptions import ConsumerCancelled, NotFound, PreconditionFailed
from amqp.protocol import queue_declare_ok_t
from kombu.transport.base import StdChannel, to_rabbitmq_queue_arguments

import fifo
from fifo.celery import limits, messages, queues
from fifo.celery.bridge import Arrival
from fifo.celery.connected import Connected
from fifo.celery.reception import Received
from fifo.celery.subscription import Subscription
from fifo.client import adapting

_log = logging.getLogger("fifo.celery")
_T = TypeVar("_T")

_NO_QUEUE: Final = (50, 10)
_NO_CONSUMER: Final = (60, 20)
"""Class and method of AMQP, in kombu's errors."""


class Channel(StdChannel):  # type: ignore[misc]  # kombu has no types
    """A channel of a connection."""

    def __init__(self, connection: Connected) -> None:
        self.connection: Connected | None = connection
        self._connected = connection
        self.no_ack_consumers: set[str] = set()
        self._bridge = connection.bridge
        self._exchanges = connection.exchanges
        self._options = connection.options
        self._subscriptions: dict[str, Subscription] = {}
        self._open: dict[str, tuple[fifo.Message, Subscription | None]] = {}
        self._requeued: dict[str, float] = {}
        """Queues of messages that were requeued, until when those avoid this session."""
        self._prefetch = 0
        self._tags = count(1)

    # Exchanges and queues.

    def exchange_declare(
        self, exchange: str, type: str = "direct", passive: bool = False, **_: Any
    ) -> None:
        """Declare an exchange, in this process: the bindings of its queues are in the cluster."""
        self._exchanges.declare(exchange, type, passive=passive)

    def exchange_delete(self, exchange: str, **_: Any) -> None:
        """Delete an exchange and its bindings."""
        self._delete_marks([binding.mark for binding in self._exchanges.forget(exchange)])

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        """Declare a queue; one that exists is used as it is. Raises NotFound if `passive`."""
        name = queue or f"amq.gen-{uuid.uuid4()}"
        if not passive:
            spec = queues.spec(
                name,
                arguments or {},
                self._options.of_queue(name),
                is_transient=exclusive or auto_delete or not durable,
            )
            for dead in queues.dead_letters(spec):
                self._declare(dead)
            self._declare(spec)
            if spec.expires_unused is not None:
                self._connected.transient.add(name)
        view = self._call(name, self._bridge.client.queue(name))
        return queue_declare_ok_t(name, view.ready, view.consumers)

    def queue_bind(self, queue: str, exchange: str = "", routing_key: str = "", **_: Any) -> None:
        """Bind a queue to an exchange."""
        if not exchange:
            return  # Every queue is bound to the exchange without a name.
        mark = self._exchanges.bind(queue, exchange, routing_key).mark
        if mark is None:
            return
        if queue in self._connected.transient:
            self._declare(fifo.QueueSpec(mark, expires_unused=limits.TRANSIENT_EXPIRES_S))
            self._connected.hold(mark)
        else:
            self._declare(fifo.QueueSpec(mark))

    def queue_unbind(self, queue: str, exchange: str = "", routing_key: str = "", **_: Any) -> None:
        """Undo a binding."""
        self._delete_marks([self._exchanges.unbound(queue, exchange, routing_key).mark])

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> int:
        """Delete a queue with its bindings. Raises PreconditionFailed where it is used, or full."""
        try:
            view = self._call(queue, self._bridge.client.queue(queue))
        except NotFound:
            return 0
        if if_unused and view.consumers:
            raise PreconditionFailed(f"queue {queue!r} has {view.consumers} consumers", (50, 40))
        if if_empty and view.messages:
            raise PreconditionFailed(f"queue {queue!r} has {view.messages} messages", (50, 40))
        self._call(queue, self._bridge.client.delete(queue))
        if view.spec.get("dead_letter") == queues.made_for(queue):
            self._bridge.call(self._delete_empty(queues.made_for(queue)))
        bindings = [self._exchanges.unbind(one) for one in self._exchanges.of_queue(queue)]
        self._delete_marks([binding.mark for binding in bindings])
        return view.messages

    def queue_purge(self, queue: str, **_: Any) -> int:
        """Delete the messages that no consumer holds; how many there were."""
        return self._call(queue, self._bridge.client.purge(queue)) or 0

    def prepare_queue_arguments(
        self, arguments: Mapping[str, Any], **options: Any
    ) -> Mapping[str, Any]:
        """The options of kombu's `Queue` as arguments by the names of RabbitMQ."""
        found: Mapping[str, Any] = to_rabbitmq_queue_arguments(arguments, **options)
        return found

    # Publishing.

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The message in the form in which `basic_publish` gets it."""
        return messages.prepared(
            body, priority, content_type, content_encoding, headers, properties
        )

    def basic_publish(
        self,
        message: dict[str, Any],
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = False,
        **_: Any,
    ) -> None:
        """Publish; returns once a majority has stored it, for transient messages at once.

        Raises NotFound where the queue is gone, or, if `mandatory`, no queue is bound.
        """
        publication = messages.publication(message, exchange, routing_key)
        transient = messages.is_transient(message)
        bindings = self._exchanges.route(exchange, routing_key)
        if not bindings and mandatory:
            text = f"no queue is bound to exchange {exchange!r} by {routing_key!r}"
            raise NotFound(text, (60, 40))
        if not bindings and not transient:
            _log.warning("no queue is bound to exchange %r by %r", exchange, routing_key)
        for binding in bindings:
            stale = binding.mark if binding.exchange else None
            work = self._publish(binding.queue, publication)
            if transient:
                self._bridge.begin(self._published(work, stale))
            else:
                self._call(binding.queue, self._published(work, stale, is_loud=not exchange))

    async def _publish(self, queue: str, publication: messages.Publication) -> None:
        await self._bridge.client.publish(
            queue,
            publication.body,
            headers=publication.headers,
            delay=publication.delay_s,
            ttl=publication.ttl_s,
            priority=publication.priority,
        )

    async def _published(
        self, work: Coroutine[Any, Any, None], stale_mark: str | None, *, is_loud: bool = False
    ) -> None:
        """Publish to a queue that may be gone: then its binding goes too."""
        try:
            await work
        except fifo.QueueNotFound:
            if stale_mark is not None:
                await self._delete_mark(stale_mark)
            if is_loud:
                raise

    # Consuming.

    def basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False
    ) -> None:
        """Set the most messages that each consumer of this channel may hold, 0 for no limit."""
        self._prefetch = prefetch_count
        for subscription in self._subscriptions.values():
            self._bridge.soon(subscription.limit, prefetch_count)

    def basic_consume(
        self,
        queue: str,
        no_ack: bool = False,
        consumer_tag: str = "",
        callback: Callable[[Received], object] | None = None,
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> str:
        """Begin to consume: `callback` gets each message, from `drain_events`."""
        tag = consumer_tag or f"amq.ctag-{uuid.uuid4()}"
        options = self._options.of_consumer(arguments or {})
        if no_ack:
            self.no_ack_consumers.add(tag)
        hand_over = partial(self._hand_over, tag, callback or _ignored, no_ack=no_ack)

        def arrive(source: Subscription, found: list[fifo.Message]) -> None:
            if no_ack:
                self._bridge.client.ack_many(found)
            self._bridge.arrive([partial(hand_over, source, message) for message in found])

        def fail(source: Subscription, error: fifo.FifoError) -> None:
            self._bridge.arrive([partial(_raise, queue, error)])

        prefetch = self._prefetch
        subscription = Subscription(self._bridge, queue, prefetch, options, arrive, fail)
        self._call(queue, subscription.start())
        self._subscriptions[tag] = subscription
        return tag

    def basic_cancel(self, consumer_tag: str, **_: Any) -> None:
        """End a consumer; messages in hand may still be settled."""
        subscription = self._subscriptions.pop(consumer_tag, None)
        self.no_ack_consumers.discard(consumer_tag)
        if subscription is None:
            return
        self._bridge.call(subscription.cancel())
        self._give_back(_is_of(subscription))

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Received | None:
        """The next message that can be read, None where there is none."""
        while (message := self._got(queue, no_ack=no_ack)) is not None:
            found = self._received(message, None, "", no_ack=no_ack)
            if found is not None:
                return found
        return None

    def _got(self, queue: str, *, no_ack: bool) -> fifo.Message | None:
        wait_s = max(self._requeued.get(queue, 0.0) - time.monotonic(), 0.0)
        work = self._bridge.client.get(queue, wait=wait_s, auto_renew=not no_ack)
        found = self._call(queue, work)
        if wait_s:
            self._requeued.pop(queue, None)
        if no_ack:
            self._bridge.soon(self._bridge.client.ack_many, found)
        return found[0] if found else None

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge, without waiting: the client sends it again until it is answered."""
        for tag in self._up_to(delivery_tag) if multiple else [delivery_tag]:
            message = self._settled(tag)
            if message is not None:
                self._bridge.soon(self._bridge.client.ack_many, [message])

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give the message back, or have done with it: to the dead-letter queue, if there is one.

        Waits for the receipt: a `basic_get` that follows finds the message.
        """
        message = self._settled(delivery_tag)
        if message is None:
            return
        if requeue:
            self._requeued[message.queue] = time.monotonic() + limits.RELEASED_AVOIDS_S
        self._bridge.call(message.release() if requeue else _rejected(message))

    def refuse(self, delivery_tag: str, error: Exception) -> None:
        """Have done with a message that cannot be read, with the reason in its dead letter.

        Without a dead-letter queue it stays in its queue, and is offered again in a minute.
        """
        message = self._settled(delivery_tag)
        if message is not None:
            what = f"{type(error).__name__}: {error}"
            self._bridge.call(adapting.dead(message, "cannot be decoded", what, error, _log))

    def basic_recover(self, requeue: bool = False) -> None:
        """Give back all that is not settled."""
        self._release([message for message, _ in self._open.values()])
        for tag in list(self._open):
            self._settled(tag)

    # The end.

    def close(self) -> None:
        """Cancel the consumers and give back what is not settled."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if self._bridge.alive:
            for tag in list(self._subscriptions):
                self.basic_cancel(tag)
            self.basic_recover(requeue=True)
        connection.channels.discard(self)

    # Within.

    def _hand_over(
        self,
        tag: str,
        callback: Callable[[Received], object],
        source: Subscription,
        message: fifo.Message,
        *,
        no_ack: bool,
    ) -> None:
        """On the program's thread: make kombu's message, and call."""
        if no_ack:
            self._bridge.soon(source.settled)
        if message.is_lost and not no_ack:
            self._bridge.soon(source.settled)
            return
        found = self._received(message, source, tag, no_ack=no_ack)
        if found is not None:
            callback(found)

    def _received(
        self, message: fifo.Message, source: Subscription | None, consumer: str, *, no_ack: bool
    ) -> Received | None:
        """kombu's message; None for one that nothing can be made of: it is refused."""
        tag = str(next(self._tags))
        if not no_ack:
            self._open[tag] = (message, source)
        try:
            return Received(channel=self, **messages.received(message, tag, consumer))
        except messages.Unreadable as error:
            if no_ack:
                _log.error("message %s of queue %s is lost: %s", message.id, message.queue, error)
            else:
                self.refuse(tag, error)
            return None

    def _settled(self, tag: str) -> fifo.Message | None:
        """Take a message that is to be settled; its consumer gets another."""
        message, source = self._open.pop(tag, (None, None))
        if source is not None:
            self._bridge.soon(source.settled)
        return message

    def _up_to(self, tag: str) -> list[str]:
        return [one for one in self._open if int(one) <= int(tag)]

    def _give_back(self, wanted: Callable[[Arrival], bool]) -> None:
        """Release what a cancelled consumer has brought and the program has not seen."""
        arrivals = self._bridge.take_back(wanted)
        self._release([one.args[-1] for one in arrivals if isinstance(one, partial)])

    def _release(self, found: Iterable[fifo.Message]) -> None:
        left = [message for message in found if not message.settled]
        if left:
            self._bridge.call(_released(left))

    def _declare(self, spec: fifo.QueueSpec) -> None:
        try:
            self._call(spec.name, self._bridge.client.declare(spec, warn=False))
        except fifo.QueueExists as error:
            _log.info("queue %s is used as it is: %s", spec.name, error)

    def _delete_marks(self, marks: Iterable[str | None]) -> None:
        for mark in marks:
            if mark is not None:
                self._bridge.call(self._delete_mark(mark))

    async def _delete_empty(self, queue: str) -> None:
        """Delete the dead-letter queue of a queue that is gone, if nothing is in it."""
        with contextlib.suppress(fifo.QueueNotFound, fifo.QueueInUse):
            if (await self._bridge.client.queue(queue)).messages == 0:
                await self._bridge.client.delete(queue)

    async def _delete_mark(self, mark: str) -> None:
        await self._connected.let_go(mark)
        try:
            await self._bridge.client.delete(mark)
        except fifo.QueueNotFound:
            _log.debug("binding %s is gone already", mark)

    def _call(self, queue: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a call about a queue; that it does not exist is an error of the channel."""
        try:
            return self._bridge.call(work)
        except fifo.QueueNotFound as error:
            raise NotFound(f"no queue {queue!r}", _NO_QUEUE) from error


def _ignored(message: Received) -> None:
    """Do nothing with a message: without a callback it stays locked."""


def _is_of(subscription: Subscription) -> Callable[[Arrival], bool]:
    return lambda arrival: subscription in getattr(arrival, "args", ())


def _raise(queue: str, error: fifo.FifoError) -> None:
    """On the program's thread: a consumer has ended, so that kombu connects and declares anew."""
    if isinstance(error, fifo.QueueNotFound):
        raise ConsumerCancelled(f"queue {queue!r} was deleted", _NO_CONSUMER) from error
    raise error


async def _released(left: Iterable[fifo.Message]) -> None:
    """Give messages back; one whose lock is lost is back already."""
    await asyncio.gather(*[message.release() for message in left], return_exceptions=True)


async def _rejected(message: fifo.Message) -> None:
    try:
        await message.terminate("rejected")
    except fifo.NoDeadLetterQueue:
        await message.ack()
