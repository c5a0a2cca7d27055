"""States of a cluster that grow: what there is more and more of, and the clients that make it.

Owns one class for each thing that grows, all with the same calls: `open`, `grow` to a size that is
never smaller than the last one, `publish`, and `workers` who settle what is published. Knows no
figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Final

import fifo
from bench.idle import descriptors, open_idle
from bench.loopback import ClusterFailed, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence

QUEUE: Final = "growth"
BODY_BYTES: Final = 100
FILL_BATCH: Final = 2_000
LANES: Final = 4
"""A state is filled by so many calls at a time: some are confirmed while others travel."""

AT_ONCE: Final = 100
"""Declarations and subscriptions that are on their way at the same time."""

PREFETCH_MAX: Final = 65_000
"""Messages of one holder of locks: just under what a consumer may hold."""

CONSUMERS_OF_A_CLIENT: Final = 1_000
"""As many as a session may have."""

CALL_TIMEOUT_S: Final = 120.0
LOOK_S: Final = 0.1
PATIENCE_S: Final = 300.0
"""Time that the workers may take for one load, on a busy machine too."""


class Acks:
    """Count of settled messages, and a wait until it has reached a number."""

    def __init__(self) -> None:
        self._count = 0
        self._more = asyncio.Event()

    def add(self, messages: int) -> None:
        """Count so many more."""
        self._count += messages
        self._more.set()

    async def reached(self, count: int) -> None:
        """Wait until so many are settled. Raises ClusterFailed where that takes too long."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while self._count < count:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise ClusterFailed(
                f"{self._count} of {count} messages were settled within {PATIENCE_S:.0f} s"
            ) from None


class State:
    """A queue; a subclass says what is added to the cluster."""

    spec: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, url: str, stack: contextlib.AsyncExitStack) -> None:
        """`stack`: closes the clients of this state."""
        self.url = url
        self.stack = stack
        self.size = 0
        self.body = bytes(BODY_BYTES)
        self.client: fifo.Client

    async def open(self) -> None:
        """Connect, and make the queue."""
        self.client = await self.connected()
        await self.client.declare(fifo.QueueSpec(QUEUE, **self.spec))

    async def connected(self) -> fifo.Client:
        """Connect a client of the cluster."""
        connecting = fifo.connect(self.url, timeout=CALL_TIMEOUT_S)
        return await self.stack.enter_async_context(connecting)

    async def grow(self, size: int) -> None:
        """Add what is missing to `size`."""
        await self.add(size - self.size)
        self.size = size

    async def add(self, count: int) -> None:
        """Add so many more."""
        raise NotImplementedError

    def keys(self, _count: int) -> Sequence[bytes] | None:
        """The keys of the next messages, where they have one."""
        return None

    async def publish(self, count: int) -> None:
        """Publish so many in one call."""
        if count == 1:
            keys = self.keys(1)
            await self.client.publish(QUEUE, self.body, key=keys[0] if keys else None)
        else:
            await self.client.publish_many(QUEUE, [self.body] * count, keys=self.keys(count))

    async def fill(self, count: int) -> None:
        """Publish so many, with some calls on their way at a time."""
        left = count

        async def lane() -> None:
            nonlocal left
            while (batch := min(FILL_BATCH, left)) > 0:
                left -= batch
                await self.publish(batch)

        await asyncio.gather(*(lane() for _ in range(LANES)))

    @contextlib.asynccontextmanager
    async def workers(self, count: int) -> AsyncIterator[Acks]:
        """A consumer, which takes and settles `count` messages and no more."""
        acks = Acks()
        async with self.client.consume(QUEUE, prefetch=1_000, pull=True) as consumer:
            await consumer.credit(count)
            async with working([settling(self.client, consumer, acks)]):
                yield acks


class Depth(State):
    """Messages that wait in the queue."""

    async def add(self, count: int) -> None:
        """See `State`."""
        await self.fill(count)


class Keys(Depth):
    """The same, each with a key of its own, in a queue that keeps the order of each key."""

    spec: ClassVar[Mapping[str, Any]] = {"ordering": "key"}

    def __init__(self, url: str, stack: contextlib.AsyncExitStack) -> None:
        super().__init__(url, stack)
        self._next = 0
        self._known = 1

    async def grow(self, size: int) -> None:
        """See `State`: as many keys as messages wait."""
        self._known = size
        await super().grow(size)

    def keys(self, count: int) -> Sequence[bytes]:
        """See `State`: all keys in turn."""
        numbers = range(self._next, self._next + count)
        self._next += count
        return [b"key-%d" % (number % self._known) for number in numbers]


class Locks(State):
    """Messages that others hold, each with its lock, renewed as by any client."""

    async def add(self, count: int) -> None:
        """See `State`: to new holders, which take what is published until they are full."""
        left = count
        while left > 0:
            some = min(left, PREFETCH_MAX)
            left -= some
            holder = self.client.consume(QUEUE, prefetch=some, lock=300)
            await self.stack.enter_async_context(holder)
        await self.fill(count)

        async def held() -> bool:
            return (await self.client.queue(QUEUE)).locked >= self.size + count

        await until(held, PATIENCE_S, f"{count} messages were not locked by their holders", LOOK_S)


class Queues(State):
    """Queues that are declared, and empty."""

    async def add(self, count: int) -> None:
        """See `State`."""
        names = (f"other-{number}" for number in range(self.size, self.size + count))
        await by_hundreds(self.client.declare(fifo.QueueSpec(name)) for name in names)


class Consumers(State):
    """Consumers of the queue, all of which work."""

    def __init__(self, url: str, stack: contextlib.AsyncExitStack) -> None:
        super().__init__(url, stack)
        self._taking: list[tuple[fifo.Client, fifo.Consumer[fifo.Message]]] = []

    async def add(self, count: int) -> None:
        """See `State`."""
        left = count
        while left > 0:
            more = min(left, CONSUMERS_OF_A_CLIENT)
            left -= more
            client = await self.connected()
            opened = [client.consume(QUEUE, prefetch=100) for _ in range(more)]
            await by_hundreds(self.stack.enter_async_context(one) for one in opened)
            self._taking += [(client, one) for one in opened]

    @contextlib.asynccontextmanager
    async def workers(self, count: int) -> AsyncIterator[Acks]:
        """See `State`: all of them."""
        acks = Acks()
        async with working(settling(client, one, acks) for client, one in self._taking):
            yield acks


class Sessions(State):
    """Sessions of clients that do nothing, each with its two connections."""

    async def add(self, count: int) -> None:
        """See `State`."""
        connections = 2 * (self.size + count)
        if descriptors(connections) < connections:
            raise ClusterFailed(f"{connections} connections need a higher `ulimit -Hn`")
        address = self.client.address
        assert address is not None, "it has just been connected"
        opened = await open_idle(address, 2 * count)
        for one in opened:
            self.stack.callback(one.close)


class Bytes(State):
    """The size of a body, in an empty queue."""

    async def add(self, count: int) -> None:
        """See `State`."""
        self.body = bytes(self.size + count)


async def settling(client: fifo.Client, consumer: fifo.Consumer[fifo.Message], acks: Acks) -> None:
    """Take, settle, and count once the receipt is there."""
    async for batch in consumer.batches():
        await client.settle_many(batch)
        acks.add(len(batch))


@contextlib.asynccontextmanager
async def working(loads: Iterable[Any]) -> AsyncIterator[None]:
    """Run these until the end of the block."""
    tasks = [asyncio.create_task(load) for load in loads]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def by_hundreds(calls: Iterable[Awaitable[Any]]) -> None:
    """Await all, some of them at a time."""
    left = iter(calls)
    while some := list(itertools.islice(left, AT_ONCE)):
        await asyncio.gather(*some)
