"""The real client with `prefetch="auto"` at real nodes: its places grow, or stay few."""

from __future__ import annotations

import asyncio

import pytest

import fifo
from tests.support.cluster import passed
from tests.support.shared import SharedCluster

pytestmark = pytest.mark.cluster


async def places(client: fifo.Client, queue: str) -> int:
    """The prefetch that the nodes know of the queue's one consumer."""
    [shown] = await client.consumers(queue)
    return shown.prefetch


@pytest.mark.fifo_cluster(nodes=3)
async def test_the_places_of_a_quick_handler_grow_and_all_is_acked(client: fifo.Client) -> None:
    bodies = [b"%d" % number for number in range(3000)]
    await client.declare(fifo.QueueSpec("q"))
    await client.publish_many("q", bodies)
    seen: list[bytes] = []
    async with client.consume("q", prefetch="auto") as messages:
        assert await places(client, "q") == 1
        async with asyncio.timeout(30):
            async for message in messages:
                seen.append(message.body)
                await message.ack()
                if len(seen) == len(bodies):
                    break
        assert await places(client, "q") >= 8
        async with asyncio.timeout(10):
            while (await client.queue("q")).locked:
                await passed(0.01)
    shown = await client.queue("q")
    assert (shown.ready, shown.locked) == (0, 0)
    assert seen == bodies


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_slow_handler_holds_one_message_and_leaves_the_others(
    client: fifo.Client,
) -> None:
    await client.declare(fifo.QueueSpec("q"))
    await client.publish_many("q", [b"%d" % number for number in range(50)])
    async with client.consume("q", prefetch="auto") as messages:
        for _ in range(3):
            message = await messages.next(timeout=10)
            assert message is not None
            async with message.process():
                await passed(0.6)
            shown = await client.queue("q")
            assert shown.locked <= 1
        assert await places(client, "q") == 1
    async with asyncio.timeout(10):
        while (await client.queue("q")).ready < 47:  # what was under way is given back
            await passed(0.01)


async def test_the_blocking_client_and_the_url_take_auto(shared_cluster: SharedCluster) -> None:
    def work() -> list[bytes]:
        with fifo.blocking.connect(f"{shared_cluster.url}?prefetch=auto") as client:
            client.declare(fifo.QueueSpec("q"))
            client.publish_many("q", [b"1", b"2", b"3"])
            seen: list[bytes] = []
            with client.consume("q") as messages:
                for message in messages:
                    seen.append(message.body)
                    message.ack()
                    if len(seen) == 3:
                        return seen
        raise AssertionError("the iteration ended")

    assert await asyncio.to_thread(work) == [b"1", b"2", b"3"]
