"""The broker of taskiq.

Owns the client of the process, the declaration of queues, publishing and consuming; its methods
have taskiq's names. Must not know how a message is settled.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any, Final, Self, Unpack

from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage

import fifo
from fifo.client.adapting import GroupNames, option_groups
from fifo.taskiq import delivery, limits
from fifo.taskiq.labels import Publication, publication
from fifo.taskiq.merging import merged
from fifo.taskiq.results import FifoResultBackend

_log = logging.getLogger("fifo.taskiq")

_GROUPS: Final = GroupNames(queue="queue_options")


class FifoBroker(AsyncBroker):  # type: ignore[misc]  # mypy reads nothing of taskiq
    """fifo as a broker of taskiq: `FifoBroker("fifo://host:port,host:port")`.

    Its workers consume `queue`, to which tasks go that name no other by their label `queue_name`,
    and each of `queues`, which holds the options of single queues by their names. `queue_options`
    holds options of all queues that are declared, `consumer` those of consumers, by the names of
    fifo's client; the other keywords are those of `fifo.connect`. Raises InvalidArgument for an
    option that cannot be; it connects in `startup`.
    """

    def __init__(
        self,
        url: str,
        queue: str = limits.QUEUE,
        *,
        queues: Mapping[str, Mapping[str, Any]] | None = None,
        queue_options: Mapping[str, Any] | None = None,
        consumer: Mapping[str, Any] | None = None,
        **connection: Unpack[fifo.ConnectKeywords],
    ) -> None:
        super().__init__()
        self._url = url
        self._connection = connection
        self._queue = queue
        self._options = option_groups(queue_options, queues, consumer, names=_GROUPS)
        self._consumed = tuple(dict.fromkeys((queue, *self._options.of_one)))
        self._client: fifo.Client | None = None
        self._there: set[str] = set()
        """Queues that this process has declared in the cluster."""
        fifo.connect(url, **connection)  # Of wrong options, here and not in a worker.
        self._spec(queue)

    @property
    def client(self) -> fifo.Client:
        """The client of this process. Raises ClientClosed before `startup` and after `shutdown`."""
        if self._client is None:
            raise fifo.ClientClosed("the broker is not started: await broker.startup() first")
        return self._client

    def with_result_backend(self, result_backend: AsyncResultBackend[Any]) -> Self:
        """Set the result backend; `FifoResultBackend` has results by reply queue."""
        if isinstance(result_backend, FifoResultBackend):
            result_backend.attach(self)
        super().with_result_backend(result_backend)
        return self

    async def startup(self) -> None:
        """Connect, and declare the queues; once, however often it is called."""
        if self._client is None:
            self._client = await fifo.connect(self._url, **self._connection)
            self._there.clear()
        for name in self._consumed:
            await self._ensure(name)
        await super().startup()

    async def shutdown(self) -> None:
        """Send the last settlements, and close the client."""
        try:
            await super().shutdown()
        finally:
            client, self._client = self._client, None
            if client is not None:
                await client.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Publish a task; returns once a majority has stored it. A label `delay` of seconds waits
        in the cluster."""
        to = publication(message.labels, self._queue)
        await self._ensure(to.queue)
        try:
            await self._publish(to, message)
        except fifo.QueueNotFound:  # deleted since: the same again, to a queue that is declared
            self._there.discard(to.queue)
            await self._ensure(to.queue)
            await self._publish(to, message)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Messages of all queues that can be run here, as they come.

        One that nothing can read is a dead letter, and one of an unknown task goes back for a
        while: taskiq would acknowledge both.
        """
        async with AsyncExitStack() as opened:
            consumers = [
                await opened.enter_async_context(
                    self.client.consume(name, **self._options.of_consumers)
                )
                for name in self._consumed
            ]
            messages = await opened.enter_async_context(aclosing(merged(consumers)))
            async for message in messages:
                body = bytes(message.body)
                try:
                    found = self.formatter.loads(message=body)
                    found.parse_labels()
                    task = found.task_name
                except Exception as error:  # of whatever formatter and serializer the app has
                    await delivery.unreadable(message, error)
                    continue
                if self.find_task(task) is None:
                    await delivery.later(message, task)
                    continue
                yield AckableMessage(data=body, ack=message.ack)

    async def _publish(self, to: Publication, message: BrokerMessage) -> None:
        await self.client.publish(
            to.queue,
            message.message,
            key=to.key,
            headers={"task": message.task_name, "id": message.task_id},
            delay=to.delay_s,
            priority=to.priority,
            ttl=to.ttl_s,
            dedup_id=to.dedup_id,
        )

    async def _ensure(self, name: str) -> None:
        """Have a queue in the cluster, with its dead-letter queue; one that exists stays as it
        is."""
        if name in self._there:
            return
        spec = self._spec(name)
        dead = [fifo.QueueSpec(spec.dead_letter)] if spec.dead_letter is not None else []
        for each in [*dead, spec]:
            try:
                await self.client.declare(each, warn=False)
            except fifo.QueueExists as error:
                _log.info("queue %s is used as it is: %s", each.name, error)
        self._there.add(name)

    def _spec(self, name: str) -> fifo.QueueSpec:
        options = {"dead_letter": f"{name}.dead", **self._options.of_queue(name)}
        return fifo.QueueSpec(name, **options)
