"""A named producer: its numbers outlive the client that uses them (semantics.md 10).

Owns the public face of numbering. Frames and windows belong to `publisher` and `publish_stream`.
`fifo.blocking` derives its methods from these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from fifo.client import checks
from fifo.client.durations import Duration
from fifo.client.publishing.confirms import Confirm, Confirms
from fifo.client.publishing.publisher import Batch, Publisher, extras_of


class Producer:
    """A named producer (semantics.md 10): a number is stored at most once, from any client.

    Without numbers, messages get the next ones. With them (they ascend, holes are fine) what was
    stored before is confirmed as a duplicate.
    """

    def __init__(
        self,
        publisher: Publisher,
        name: str,
        number: int,
        last: Mapping[str, int],
        queues: Mapping[str, int],
    ) -> None:
        """`last`: the number last stored per queue; `queues`: the numbers of those queues."""
        self.name = name
        self.number = number
        self._publisher = publisher
        self._last = last
        self._queues = queues

    def __repr__(self) -> str:
        return f"<producer {self.name!r}, number {self.number}>"

    def last(self, queue: str) -> int:
        """The number last stored in this queue, as far as this client knows; 0 for none."""
        return self._stream_last(queue)

    def _stream_last(self, queue: str) -> int:
        stream = self._publisher.stream(
            self.number, queue, self._last.get(queue, 0), self._queues.get(queue, 0)
        )
        return stream.last_stored

    async def publish(
        self,
        queue: str,
        body: bytes,
        *,
        number: int | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        priority: int = 4,
        ttl: Duration | None = None,
        dedup_id: str | bytes | None = None,
        timeout: Duration | None = None,
    ) -> Confirm:
        """As `client.publish`, under this producer's numbers."""
        checks.name(queue, "queue")
        self._stream_last(queue)
        body = checks.body(body)
        extras = extras_of(
            key=key, headers=headers, priority=priority, delay=delay, ttl=ttl, dedup_id=dedup_id
        )
        if number is not None:
            number = checks.integer(number, "number", 1, 2**63 - 1)
        return await self._publisher.publish(self.number, queue, body, extras, number, timeout)

    async def publish_many(
        self,
        queue: str,
        bodies: Iterable[bytes],
        *,
        numbers: Sequence[int] | None = None,
        keys: Sequence[str | bytes | None] | None = None,
        headers: Sequence[Mapping[str, str] | None] | None = None,
        delays: Sequence[Duration | None] | None = None,
        priorities: Sequence[int] | None = None,
        ttls: Sequence[Duration | None] | None = None,
        dedup_ids: Sequence[str | bytes | None] | None = None,
        timeout: Duration | None = None,
    ) -> Confirms:
        """As `client.publish_many`, under this producer's numbers."""
        columns = (keys, headers, delays, priorities, ttls, dedup_ids)
        batch = self._batch(queue, bodies, numbers, *columns)
        return await self._publisher.publish_many(self.number, queue, batch, timeout)

    async def send_many(
        self,
        queue: str,
        bodies: Iterable[bytes],
        *,
        numbers: Sequence[int] | None = None,
        keys: Sequence[str | bytes | None] | None = None,
        headers: Sequence[Mapping[str, str] | None] | None = None,
        delays: Sequence[Duration | None] | None = None,
        priorities: Sequence[int] | None = None,
        ttls: Sequence[Duration | None] | None = None,
        dedup_ids: Sequence[str | bytes | None] | None = None,
        timeout: Duration | None = None,
    ) -> asyncio.Task[Confirms]:
        """As `publish_many`, but returns as soon as the window has room for all of it.

        Await the task for the confirms, or the error. What is sent next stands behind this.
        """
        columns = (keys, headers, delays, priorities, ttls, dedup_ids)
        batch = self._batch(queue, bodies, numbers, *columns)
        return await self._publisher.send_many(self.number, queue, batch, timeout)

    def _batch(
        self,
        queue: str,
        bodies: Iterable[bytes],
        numbers: Sequence[int] | None,
        keys: Sequence[str | bytes | None] | None,
        headers: Sequence[Mapping[str, str] | None] | None,
        delays: Sequence[Duration | None] | None,
        priorities: Sequence[int] | None,
        ttls: Sequence[Duration | None] | None,
        dedup_ids: Sequence[str | bytes | None] | None,
    ) -> Batch:
        checks.name(queue, "queue")
        self._stream_last(queue)
        return Batch(
            bodies,
            keys=keys,
            headers=headers,
            delays=delays,
            priorities=priorities,
            ttls=ttls,
            dedup_ids=dedup_ids,
            numbers=numbers,
        )
