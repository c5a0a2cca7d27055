"""The broker of dramatiq.

Owns the client of the process, the declaration of queues, and publishing; its methods have
dramatiq's names. Must not know how a message is settled.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Unpack

from dramatiq import Message, Middleware
from dramatiq.broker import Broker
from dramatiq.common import q_name, xq_name
from dramatiq.errors import QueueJoinTimeout

import fifo
from fifo.blocking import BlockingClient, connect
from fifo.client import LockedMessage
from fifo.client.adapting import option_groups
from fifo.dramatiq import limits
from fifo.dramatiq.consumer import FifoConsumer
from fifo.dramatiq.errors import broker_errors

_log = logging.getLogger("fifo.dramatiq")

_CHOSEN: Final = {
    "prefetch": "dramatiq chooses it, by the environment variable dramatiq_queue_prefetch"
}


class FifoBroker(Broker):  # type: ignore[misc]  # mypy reads nothing of dramatiq
    """fifo as a broker of dramatiq: `FifoBroker("fifo://host:port,host:port")`.

    `queue` holds options of all queues that are declared, `queues` those of single ones by their
    names, `consumer` those of consumers, by the names of fifo's client; the other keywords are
    those of `fifo.connect`. Raises InvalidArgument for an option that cannot be; it connects when
    it is used, and anew in a forked process.
    """

    def __init__(
        self,
        url: str,
        *,
        middleware: list[Middleware] | None = None,
        queue: Mapping[str, Any] | None = None,
        queues: Mapping[str, Mapping[str, Any]] | None = None,
        consumer: Mapping[str, Any] | None = None,
        **connection: Unpack[fifo.ConnectKeywords],
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self.asks: Callable[[Message], None] | None = None
        """A call that asks for the result of a message that is about to be sent."""
        self._url = url
        self._connection = connection
        self._options = option_groups(queue, queues, consumer, chosen=_CHOSEN)
        self._there: set[str] = set()
        """Queues that this process has declared in the cluster."""
        self._client: BlockingClient | None = None
        self._pid = os.getpid()
        self._connecting = threading.Lock()
        fifo.connect(url, **connection)  # Of wrong options, here and not in a worker.

    @property
    def client(self) -> BlockingClient:
        """The client of this process, connected at its first use. Raises ConnectionClosed, and
        AuthenticationFailed for a wrong password."""
        with self._connecting:
            if self._client is None or self._pid != os.getpid():
                _refuse_greenlets()
                with broker_errors():
                    self._client = connect(self._url, **self._connection)
                self._client.on_unsettled = _unsettled
                self._pid = os.getpid()
                self._there.clear()
            return self._client

    def close(self) -> None:
        """Send the last settlements and close the client; a fork leaves its parent's alone."""
        with self._connecting:
            client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            with broker_errors():
                client.close()

    # Queues.

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue; it is made in the cluster when it is first used."""
        name = q_name(queue_name)
        if name not in self.queues:
            self.emit_before("declare_queue", name)
            self.queues.add(name)
            self.emit_after("declare_queue", name)

    def get_declared_queues(self) -> set[str]:
        """The names of the queues that are declared."""
        return self.queues.copy()

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """Messages of a queue: ready or at work, delayed, and in its dead-letter queue."""
        self._ensure(queue_name)
        with broker_errors():
            view = self.client.queue(queue_name)
            dead = self._spec(queue_name).dead_letter
            dead_letters = self.client.queue(dead).messages if dead else 0
            return view.ready + view.locked, view.delayed, dead_letters

    def flush(self, queue_name: str) -> None:
        """Drop the messages of a queue that no worker has, and its dead letters."""
        dead = self._spec(queue_name).dead_letter
        self._ensure(queue_name)
        with broker_errors():
            for name in filter(None, (queue_name, dead)):
                self.client.purge(name)

    def flush_all(self) -> None:
        """Drop the messages of all declared queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait, for tests, until a queue is empty, with nothing at work and nothing delayed.

        `timeout` is in milliseconds. Raises QueueJoinTimeout.
        """
        self._ensure(queue_name)
        deadline = None if timeout is None else time.monotonic() + timeout / 1000
        pause = threading.Event()
        while True:
            with broker_errors():
                if self.client.queue(queue_name).messages == 0:
                    return
            if deadline is not None and time.monotonic() >= deadline:
                raise QueueJoinTimeout(queue_name)
            pause.wait(limits.POLL_S)

    # Messages.

    def enqueue(self, message: Message, *, delay: int | None = None) -> Message:
        """Publish a message; returns once a majority has stored it. It waits in the cluster for
        `delay` milliseconds. Raises ConnectionClosed, and PermissionDenied where the user may
        not publish to the queue, or not declare it."""
        name = q_name(message.queue_name)
        if name != message.queue_name:
            message = message.copy(queue_name=name)
        self.declare_queue(name)
        if self.asks is not None:
            self.asks(message)
        self.emit_before("enqueue", message, delay)
        self._publish(name, message, delay)
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> FifoConsumer:
        """Consume a queue: `prefetch` messages at once, None after `timeout` idle milliseconds."""
        self.declare_queue(queue_name)
        self._ensure(queue_name)
        options = {**self._options.of_consumers, "prefetch": prefetch}
        return FifoConsumer(self.client, queue_name, timeout, options, self._there.discard)

    def _publish(self, name: str, message: Message, delay_ms: int | None) -> None:
        priority = message.options.get("broker_priority")
        for attempt in range(1, limits.ENQUEUE_ATTEMPTS + 1):
            self._ensure(name)
            try:
                with broker_errors():
                    self.client.publish(
                        name,
                        message.encode(),
                        headers={"task": message.actor_name, "id": message.message_id},
                        delay=None if delay_ms is None else max(delay_ms, 0) / 1000,
                        priority=limits.PRIORITY if priority is None else _bounded(priority),
                    )
                return
            except fifo.QueueNotFound:
                self._there.discard(name)
                if attempt == limits.ENQUEUE_ATTEMPTS:
                    raise

    def _ensure(self, name: str) -> None:
        """Have a queue in the cluster, with its dead-letter queue; one that exists stays as it
        is."""
        client = self.client
        if name in self._there:
            return
        spec = self._spec(name)
        with broker_errors():
            for each in _with_dead_letters(spec):
                try:
                    client.declare(each, warn=False)
                except fifo.QueueExists as error:
                    _log.info("queue %s is used as it is: %s", each.name, error)
        self._there.add(name)

    def _spec(self, name: str) -> fifo.QueueSpec:
        options = {"dead_letter": xq_name(name), **self._options.of_queue(name)}
        return fifo.QueueSpec(name, **options)


def _with_dead_letters(spec: fifo.QueueSpec) -> Iterable[fifo.QueueSpec]:
    """The dead-letter queue, then the queue that needs it."""
    if spec.dead_letter is not None:
        ttl_s = limits.DEAD_TTL_S if spec.dead_letter == xq_name(spec.name) else None
        yield fifo.QueueSpec(spec.dead_letter, ttl=ttl_s)
    yield spec


def _bounded(priority: object) -> int:
    if type(priority) is not int:
        raise fifo.InvalidArgument(f"broker_priority: must be a whole number, not {priority!r:.80}")
    return min(max(priority, 0), limits.PRIORITY_MAX)


def _refuse_greenlets() -> None:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        raise fifo.Unsupported(
            "fifo.dramatiq runs on threads, and gevent has replaced them: start workers with"
            " `dramatiq`, not `dramatiq-gevent`"
        )


def _unsettled(message: LockedMessage, error: fifo.FifoError) -> None:
    _log.warning("%r is not known to be settled, and may be delivered again: %s", message, error)
