"""The sending side of an app: its client, its queues, and messages for its tasks.

Owns the headers that say which task a message is for, and the declaration of queues that are
missing. Must not know handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypedDict, Unpack

from fifo.client import (
    Client,
    ClientClosed,
    Confirm,
    QueueNotFound,
    QueueSpec,
    QueueView,
)
from fifo.client.durations import Duration
from fifo.worker import bodies, limits
from fifo.worker.results import Replies

TASK: Final = "task"
"""Header: the name of the task. The body is an object of arguments then."""

CONTENT_TYPE: Final = "content-type"
"""Header: the format of the body."""


class SendOptions(TypedDict, total=False):
    """Options of `task.send`, as of `client.publish`."""

    key: str | bytes | None
    delay: Duration | None
    priority: int
    ttl: Duration | None
    dedup_id: str | bytes | None
    timeout: Duration | None


RESERVED: Final = frozenset({*SendOptions.__annotations__, "headers", "reply"})
"""Names that no parameter of a task may have: they are options of `send`."""


def with_dead_letters(spec: QueueSpec, max_deliveries: int | None = None) -> QueueSpec:
    """The queue of tasks by default: what fails too often goes to `<name>.dead`."""
    return replace(
        spec,
        dead_letter=f"{spec.name}.dead",
        max_deliveries=max_deliveries or limits.MAX_DELIVERIES,
    )


class Sender:
    """Sends messages for tasks, while its app is open."""

    def __init__(self, codec: bodies.Codec) -> None:
        self.codec = codec
        self._client: Client | None = None
        self._replies: Replies | None = None

    @property
    def client(self) -> Client:
        """The client of the app. Raises ClientClosed where the app is not open."""
        if self._client is None:
            raise ClientClosed("the app is not open: send inside of `async with app:`")
        return self._client

    def use(self, client: Client | None) -> None:
        """Send with this client from here on; None where the app is closed."""
        self._client = client
        self._replies = None

    @property
    def replies(self) -> Replies:
        """The results that callers of this app wait for."""
        if self._replies is None:
            self._replies = Replies(self.client)
        return self._replies

    async def publish(
        self,
        task: str,
        queue: QueueSpec,
        arguments: Mapping[str, Any],
        headers: Mapping[str, str] | None,
        **options: Unpack[SendOptions],
    ) -> Confirm:
        """Publish a message for a task; its queue is declared where it is missing."""
        client, codec = self.client, self.codec
        body = bodies.encode(codec, arguments, f"{task}: arguments")
        own = {**(headers or {}), TASK: task, CONTENT_TYPE: codec.content_type}
        try:
            return await client.publish(queue.name, body, headers=own, **options)
        except QueueNotFound as error:
            if error.unknown:
                raise
            await declare(client, queue)
            return await client.publish(queue.name, body, headers=own, **options)


async def declare(client: Client, spec: QueueSpec) -> QueueView:
    """Declare a queue where it is missing, its dead-letter queue first; leave one that exists."""
    if spec.dead_letter is not None and spec.dead_letter != spec.name:
        await declare(client, QueueSpec(spec.dead_letter))
    try:
        return await client.queue(spec.name)
    except QueueNotFound:
        await client.declare(spec)
        return await client.queue(spec.name)
