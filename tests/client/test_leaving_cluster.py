"""Consumers of one client beside each other, and every way in which a program leaves one, on nodes.

The event loop that is closed under its client has a process of its own. What only a scripted node
can do stands in the other modules.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any

import pytest

import fifo
from tests.client.test_cluster import take
from tests.support.cluster import DEADLINE_SECONDS, LOOK_SECONDS, passed, within
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

LEFT = "was not left"
"""Words of the warning."""


@pytest.fixture(autouse=True)
async def _orders(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders", lock=60))


async def ready(client: fifo.Client, count: int) -> None:
    """Wait until so many messages are ready again."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await client.queue("orders")).ready != count:
            await passed(LOOK_SECONDS)


async def no_consumers(client: fifo.Client) -> None:
    """Wait until the queue has no consumer."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await client.consumers("orders"):
            await passed(LOOK_SECONDS)


def warned(words: str) -> AbstractContextManager[Any]:
    """Expect a ResourceWarning within the block, from whatever thread."""
    return pytest.warns(ResourceWarning, match=words)


# --- one tag, two consumers ------------------------------------------------------------------


@pytest.mark.fifo_cluster(nodes=3)
async def test_two_consumers_of_one_client_under_one_tag_both_work(client: fifo.Client) -> None:
    await client.publish_many("orders", [b"1", b"2"])
    async with (
        client.consume("orders", tag="worker", prefetch=1) as first,
        client.consume("orders", tag="worker", prefetch=1) as second,
    ):
        [mine], [other] = await take(first, 1), await take(second, 1)
        assert {mine.body, other.body} == {b"1", b"2"}
        listed = await client.consumers("orders")
        assert sorted(one.tag for one in listed) == ["worker", "worker-2"]
        assert (await mine.ack(receipt=True)).status == "ok"
        assert (await other.ack(receipt=True)).status == "ok"


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_consumer_keeps_its_locks_when_another_subscribes_under_its_tag(
    client: fifo.Client,
) -> None:
    await client.publish("orders", b"job")
    async with client.consume("orders", tag="worker", lock=1) as first:
        [job] = await take(first, 1)
        async with client.consume("orders", tag="worker") as second:
            # Longer than the lock: only renewals keep it.
            assert await second.next(timeout=2.5) is None
            assert not job.lock_lost.is_set()
            assert (await job.ack(receipt=True)).status == "ok"


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_tag_is_free_again_once_its_consumer_has_settled_all(client: fifo.Client) -> None:
    await client.publish_many("orders", [b"1", b"2"])
    async with client.consume("orders", tag="worker", prefetch=1) as messages:
        [held] = await take(messages, 1)
    # Left, and one message is still in hand: its lock is not another consumer's.
    async with client.consume("orders", tag="worker", prefetch=1) as messages:
        assert [one.tag for one in await client.consumers("orders")][1:] == ["worker-2"]
        [message] = await take(messages, 1)
        for one_of_both in (held, message):
            assert (await one_of_both.ack(receipt=True)).status == "ok"
    await no_consumers(client)
    async with client.consume("orders", tag="worker"):
        assert [one.tag for one in await client.consumers("orders")] == ["worker"]


# --- an iterator that its program lets go of -------------------------------------------------


async def by_break(client: fifo.Client) -> None:
    async for message in client.consume("orders", prefetch=10):
        await message.ack(receipt=True)
        break


async def by_error(client: fifo.Client) -> None:
    async for message in client.consume("orders", prefetch=10):
        await message.ack(receipt=True)
        raise KeyError("of the handler")


async def by_a_batch(client: fifo.Client) -> None:
    async for batch in client.consume("orders", prefetch=10).batches(1):
        await client.settle_many(batch)
        break


async def by_its_collection(client: fifo.Client) -> None:
    consumer = client.consume("orders", prefetch=10)
    message = await consumer.next(timeout=5)
    assert message is not None
    await message.ack(receipt=True)
    circle = [consumer]
    circle.append(circle)  # type: ignore[arg-type]  # collected as a circle, not by its count


@pytest.mark.parametrize("leave", [by_break, by_error, by_a_batch, by_its_collection])
async def test_a_dropped_iterator_returns_its_unopened_messages(
    client: fifo.Client, leave: Callable[[fifo.Client], Coroutine[Any, Any, None]]
) -> None:
    await client.publish_many("orders", [b"%d" % n for n in range(10)])
    with warned(LEFT):
        await asyncio.gather(leave(client), return_exceptions=True)
        gc.collect()
        await ready(client, 9)
    await no_consumers(client)
    again = await client.get("orders", 10)
    assert [message.failures for message in again] == [0] * 9


async def test_a_message_in_hand_stays_locked_until_the_program_lets_go_of_it(
    client: fifo.Client,
) -> None:
    await client.publish_many("orders", [b"kept", b"dropped", b"unopened"])
    in_hand: list[fifo.Message] = []
    with warned(LEFT):
        async for message in client.consume("orders", prefetch=10):
            in_hand.append(message)
            if len(in_hand) == 2:
                break
        await ready(client, 1)
    del message
    in_hand.pop()
    await ready(client, 2)
    [kept] = in_hand
    assert (await kept.ack(receipt=True)).status == "ok"
    assert [one.body for one in await client.get("orders", 10)] == [b"dropped", b"unopened"]


async def test_a_consumer_that_is_left_properly_is_no_warning(
    client: fifo.Client, recwarn: pytest.WarningsRecorder
) -> None:
    await client.publish_many("orders", [b"%d" % n for n in range(10)])
    consumer = client.consume("orders", prefetch=10)
    async for message in consumer:
        await message.ack(receipt=True)
        break
    # The same one goes on where its iteration stopped: what lives is not given back.
    message = await anext(consumer)
    await message.ack(receipt=True)
    await consumer.cancel()
    never_entered = client.consume("orders")
    del consumer, never_entered
    open_at_the_end = client.consume("orders")
    assert await open_at_the_end.next(timeout=5) is not None
    await client.close()
    del open_at_the_end
    gc.collect()
    assert not [one for one in recwarn if issubclass(one.category, ResourceWarning)]


FORGETS_TO_CLOSE = """
import asyncio, sys, fifo
async def main():
    client = await fifo.connect(sys.argv[1])
    consumer = client.consume("orders", prefetch=10)
    return client, consumer, await consumer.next(timeout=5)
kept = asyncio.run(main())
print(kept[2].body, flush=True)
sys.stdin.read()
"""


async def test_a_loop_that_is_closed_under_its_client_gives_everything_back(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.publish_many("orders", [b"%d" % n for n in range(10)])
    command = [sys.executable, "-W", "default", "-c", FORGETS_TO_CLOSE, shared_cluster.url]
    program = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert program.stdout is not None
    try:
        assert await within(program.stdout.readline()) == b"b'0'\n"
        # The process lives on, and its control thread would renew for as long as it does.
        await ready(client, 10)
        assert program.returncode is None
    finally:
        _, errors = await within(program.communicate(b""))
    assert "event loop was closed" in errors.decode()


@pytest.mark.parametrize("batches", [False, True], ids=["iterator", "generator of batches"])
async def test_a_dropped_blocking_iterator_returns_its_unopened_messages(
    shared_cluster: SharedCluster, client: fifo.Client, batches: bool
) -> None:
    await client.publish_many("orders", [b"%d" % n for n in range(10)])

    def work(theirs: fifo.blocking.BlockingClient) -> None:
        if batches:
            for batch in theirs.consume("orders", prefetch=10).batches(1):
                theirs.settle_many(batch)
                break
        else:
            for message in theirs.consume("orders", prefetch=10):
                message.ack(receipt=True)
                break

    theirs = await asyncio.to_thread(fifo.blocking.connect, shared_cluster.url)
    with warned(LEFT):
        await asyncio.to_thread(work, theirs)
        await ready(client, 9)
    await asyncio.to_thread(theirs.close)
