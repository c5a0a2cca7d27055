"""Pinned views of real nodes: whole queues as they were at one index, read from followers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fifo
from fifo.client.connection.observing import NodeLink
from fifo.wire.pins import Pin
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60), pytest.mark.slow]


async def scanned(messages: Any) -> list[fifo.ScannedMessage]:
    """All of a scan."""
    return [message async for message in messages]


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_queue_of_any_depth_is_read_as_it_was_and_nothing_is_taken(
    client: fifo.Client,
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    bodies = [b"%d" % n for n in range(25_000)]
    await client.publish_many("orders", bodies)
    seen: list[bytes] = []
    async with await client.pin() as view:
        assert view.address != client.address, "a follower is asked first"
        async for message in view.scan("orders", page_size=10_000):
            seen.append(bytes(message.body))
            if len(seen) == 1:
                await client.publish("orders", b"later")
                held = await client.get("orders", 500)
                await client.settle_many(held)
                await client.purge("orders")
        assert (await view.queues())[0].messages == 25_000
    assert seen == bodies
    assert [one async for one in client.scan("orders")] == []


@pytest.mark.fifo_cluster(nodes=3)
async def test_what_was_confirmed_is_in_a_view_that_is_pinned_then(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    for count in range(1, 30):
        await client.publish("orders", b"%d" % count)
        assert len(await scanned(client.scan("orders"))) == count


@pytest.mark.fifo_cluster(nodes=3)
async def test_each_message_says_where_it_stood_and_filters_choose(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders", dead_letter="orders.dlq", lock=30))
    for number in range(6):
        await client.publish(
            "orders", b"%d" % number, key=f"k{number % 2}", headers={"n": str(number)}
        )
    await client.publish("orders", b"6", delay=60)
    one, two, three = await client.get("orders", 3)
    await one.terminate("poison", exception=ValueError("no"))
    await two.terminate("poison", exception=KeyError("x"))
    now = datetime.now(UTC)
    async with await client.pin() as view:

        async def bodies(queue: str, **wanted: Any) -> list[bytes]:
            return [bytes(one.body) for one in await scanned(view.scan(queue, **wanted))]

        (held,) = await scanned(view.scan("orders", state="locked"))
        assert (held.body, held.state, held.key, held.token) == (b"2", "locked", "k0", three.token)
        assert held.consumer == three.consumer
        assert held.locked_at is not None
        assert held.locked_until is not None
        assert abs(held.locked_at - now) < timedelta(seconds=20)
        assert held.locked_until - held.locked_at == timedelta(seconds=30)
        (delayed,) = await scanned(view.scan("orders", state="delayed"))
        assert (delayed.body, delayed.cause) == (b"6", "published")
        assert delayed.due_at is not None
        assert timedelta(seconds=30) < delayed.due_at - now < timedelta(seconds=90)
        assert await bodies("orders", state="ready") == [b"3", b"4", b"5"]
        assert await bodies("orders", key="k1") == [b"3", b"5"]
        assert await bodies("orders", headers={"n": "4"}) == [b"4"]
        assert await bodies("orders", headers={"n": "4", "m": "4"}) == []
        assert await bodies("orders", bodies=False) == [b""] * 5
        assert await bodies("orders.dlq", state="dead") == [b"0", b"1"]
        assert await bodies("orders.dlq", exception_type="KeyError") == [b"1"]
        assert await bodies("orders.dlq", reason="expired") == []
        dead, _ = await scanned(view.scan("orders.dlq", reason="terminated"))
        assert dead.dead_letter is not None
        assert dead.dead_letter.exception == "ValueError: no"
        (consumer,) = await view.consumers("orders")
        assert (consumer.held, consumer.implicit) == (1, True)
        names = [queue.name for queue in await view.queues()]
        assert sorted(names) == ["orders", "orders.dlq"]
        with pytest.raises(fifo.InvalidArgument, match="unknown state 'lost'"):
            await view.page("orders", state="lost")  # type: ignore[arg-type]
        with pytest.raises(fifo.QueueNotFound):
            await view.page("nowhere")


@pytest.mark.fifo_cluster(nodes=3)
async def test_ranges_of_positions_are_the_queue_cut_in_parts(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    bodies = [b"%d" % n for n in range(10_000)]
    await client.publish_many("orders", bodies)
    async with await client.pin() as view:
        ranges = await view.ranges("orders", 4)
        assert len(ranges) == 4
        parts = [
            [bytes(one.body) async for one in view.scan("orders", after=first, before=end)]
            for first, end in ranges
        ]
    assert [body for part in parts for body in part] == bodies
    assert min(map(len, parts)) > 1_000


async def test_another_client_goes_on_where_one_stopped(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish_many("orders", [b"%d" % n for n in range(100)])
    view = await client.pin()
    messages = view.scan("orders")
    async for message in messages:
        if message.body == b"41":
            cursor = message.cursor
            break
    await client.purge("orders")
    async with fifo.connect(shared_cluster.url) as other:
        rest = [bytes(one.body) async for one in other.scan("orders", cursor=cursor)]
    assert rest == [b"%d" % n for n in range(42, 100)]
    await view.close()
    with pytest.raises(fifo.PinGone, match="pin anew"):
        await scanned(client.scan("orders", cursor=cursor))
    with pytest.raises(fifo.InvalidArgument, match="is not the cursor of a scan"):
        await scanned(client.scan("orders", cursor="nonsense"))


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_pin_that_is_not_used_ends(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    view = await client.pin(lease=1)
    deadline = asyncio.get_running_loop().time() + 20

    async def over() -> bool:
        try:
            other = await client.pinned(view.ref)
        except fifo.PinGone:
            return True
        other.leave()
        return False

    assert not await over()
    while not await over():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(1.1)  # longer than the lease, which each look begins anew
    await view.close()


async def test_a_node_that_lags_is_no_source(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    address, session = str(shared_cluster.config.nodes[0].client), client._session
    link = await NodeLink.open(address, 5, session.environment, session.options)
    with pytest.raises(fifo.Overloaded, match=r"has applied \d+ of 1000000 entries"):
        await link.ask(Pin(1_000_000), 10)
    link.close()


async def test_a_view_outlives_a_change_of_leader(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish_many("orders", [b"%d" % n for n in range(100)])
    async with await client.pin() as view:
        name = next(
            node.name for node in shared_cluster.config.nodes if str(node.client) == view.address
        )
        await client.transfer_leadership(name)
        await client.purge("orders")
        assert len(await scanned(view.scan("orders", page_size=7))) == 100


def test_the_blocking_client_scans_too(shared_cluster: SharedCluster) -> None:
    with fifo.blocking.connect(shared_cluster.url) as client:
        client.declare(fifo.QueueSpec("orders"))
        client.publish_many("orders", [b"%d" % n for n in range(2_500)])
        bodies = [bytes(one.body) for one in client.scan("orders")]
        assert bodies == [b"%d" % n for n in range(2_500)]
        with client.pin() as view:
            client.purge("orders")
            assert view.queues()[0].ready == 2_500
            first = next(view.scan("orders"))
            rest = client.scan("orders", cursor=first.cursor)
            assert [bytes(one.body) for one in rest] == bodies[1:]
