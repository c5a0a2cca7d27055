"""Queues that are deleted and declared anew under the programs that use them, on real nodes.

Owns a wire between client and node that holds back what the node answers: only so is a publish
carried out and its answer lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import fifo
from tests.client.test_cluster import take
from tests.jepsen.proxy import Proxy
from tests.support.cluster import DEADLINE_SECONDS, LOOK_SECONDS, passed
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


async def again(client: fifo.Client, **spec: Any) -> None:
    """Delete the queue with all that is in it, and declare another under its name."""
    await client.delete("orders")
    await client.declare(fifo.QueueSpec("orders", **spec))


async def bodies(client: fifo.Client) -> list[bytes]:
    """Everything that is in the queue, in order."""
    return [message.body for message in await client.peek("orders", 100)]


@pytest.fixture(autouse=True)
async def _orders(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))


# --- publishing goes on ----------------------------------------------------------------------


async def publish(client: fifo.Client) -> list[str]:
    return [(await client.publish("orders", b"%d" % n)).id for n in range(3)]


async def publish_many(client: fifo.Client) -> list[str]:
    return [one.id for one in await client.publish_many("orders", [b"%d" % n for n in range(3)])]


async def publish_at_once(client: fifo.Client) -> list[str]:
    calls = [client.publish("orders", b"%d" % n) for n in range(3)]
    return [one.id for one in await asyncio.gather(*calls)]


PUBLISHES = [publish, publish_many, publish_at_once]


@pytest.mark.parametrize("publishes", PUBLISHES)
async def test_a_publisher_goes_on_with_the_queue_that_has_the_name_now(
    client: fifo.Client, publishes: Callable[[fifo.Client], Coroutine[Any, Any, list[str]]]
) -> None:
    known: set[str] = set()
    for _ in range(3):
        for _ in range(2):
            known.update(await publishes(client))
        assert await bodies(client) == [b"0", b"1", b"2"] * 2
        await again(client)
    assert len(known) == 18, "an id was given twice"


async def test_a_named_producer_goes_on_with_the_new_queue_as_well(client: fifo.Client) -> None:
    producer = await client.open_producer("loader")
    await producer.publish("orders", b"5", number=5)
    await again(client)
    assert not (await producer.publish("orders", b"6", number=6)).duplicate
    assert (await producer.publish("orders", b"6", number=6)).duplicate
    assert producer.last("orders") == 6
    await again(client)
    # What was stored in a queue that is gone is no duplicate in another one.
    assert not (await producer.publish("orders", b"6", number=6)).duplicate
    assert (await producer.publish("orders", b"7")).id.endswith(".7")
    assert await bodies(client) == [b"6", b"7"]


async def test_a_named_producer_that_was_opened_before_the_queue_was_declared_anew_goes_on(
    client: fifo.Client,
) -> None:
    first = await client.open_producer("loader")
    await first.publish("orders", b"1")
    opened = await client.open_producer("loader")
    await again(client)
    assert (await opened.publish("orders", b"2")).id.endswith(".2")


@pytest.mark.fifo_cluster(nodes=3)
async def test_publishers_survive_a_queue_that_expired_unused(client: fifo.Client) -> None:
    await again(client, expires_unused=1)
    await client.publish("orders", b"1")
    async with asyncio.timeout(DEADLINE_SECONDS):
        while await client.queues():
            await passed(LOOK_SECONDS)
    with pytest.raises(fifo.QueueNotFound) as caught:
        await client.publish("orders", b"nowhere")
    assert not caught.value.unknown
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish("orders", b"2")
    assert await bodies(client) == [b"2"]


async def test_what_is_published_while_queues_change_is_where_its_confirm_says(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    confirmed: dict[bytes, str] = {}
    unknown: list[bool] = []

    async def publishes(name: int) -> None:
        for number in range(40):
            body = b"%d-%d" % (name, number)
            try:
                confirmed[body] = (await client.publish("orders", body)).id
            except fifo.QueueNotFound as error:
                unknown.append(error.unknown)
                await passed(LOOK_SECONDS)

    async with fifo.connect(shared_cluster.url) as other:
        working = [asyncio.create_task(publishes(name)) for name in range(4)]
        for _ in range(5):
            await passed(3 * LOOK_SECONDS)
            await again(other)
        await asyncio.gather(*working)
        confirmed[b"last"] = (await other.publish("orders", b"last")).id
        stored = {message.id: message.body for message in await other.peek("orders", 1000)}
    number = confirmed[b"last"].split(".")[0]
    assert stored == {one: body for body, one in confirmed.items() if one.split(".")[0] == number}
    assert not any(unknown), "no answer was lost"


# --- what was on its way to the old queue ----------------------------------------------------


@asynccontextmanager
async def unanswered(cluster: SharedCluster) -> AsyncIterator[tuple[fifo.Client, Proxy]]:
    """A client, and the wire to its leader: `back.cut` holds the node's answers back."""
    leader = await cluster.leader()
    [name] = [name for name, node in cluster.nodes.items() if node is leader]
    address = cluster.config.node(name).client
    proxy = Proxy((address.host, address.port), random.Random(1))
    await proxy.start()
    try:
        async with fifo.connect(f"fifo://127.0.0.1:{proxy.port}", timeout=10) as client:
            yield client, proxy
    finally:
        await proxy.stop()


async def stored(client: fifo.Client, count: int) -> None:
    """Wait until so many messages are in the queue."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await client.queue("orders")).messages != count:
            await passed(LOOK_SECONDS)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("many", [False, True])
async def test_what_was_on_its_way_to_the_old_queue_is_unknown_and_never_in_the_new_one(
    client: fifo.Client, shared_cluster: SharedCluster, before: int, many: bool
) -> None:
    async with unanswered(shared_cluster) as (publisher, proxy):
        for number in range(before):
            await publisher.publish("orders", b"before %d" % number)
        proxy.back.cut = True
        call = (
            publisher.publish_many("orders", [b"lost"] * 600)
            if many
            else publisher.publish("orders", b"lost")
        )
        publishing = asyncio.create_task(call)
        await stored(client, before + (600 if many else 1))
        await again(client)
        proxy.heal()
        proxy.reset()
        known = "was deleted and declared anew" if before else "is not known"
        with pytest.raises(fifo.QueueReplaced, match=known) as caught:
            await publishing
        assert caught.value.unknown
        assert await bodies(client) == []
        assert not (await publisher.publish("orders", b"next")).duplicate
        assert await bodies(client) == [b"next"]


async def test_a_publish_to_a_queue_that_is_gone_is_unknown_where_its_answer_was_lost(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    async with unanswered(shared_cluster) as (publisher, proxy):
        proxy.back.cut = True
        publishing = asyncio.create_task(publisher.publish("orders", b"lost"))
        await stored(client, 1)
        await client.delete("orders")
        proxy.heal()
        proxy.reset()
        with pytest.raises(fifo.QueueNotFound) as caught:
            await publishing
        assert caught.value.unknown


@pytest.mark.parametrize("is_younger", [False, True], ids=["queue_stays", "younger_queue"])
async def test_a_first_publish_is_stored_once_though_its_answer_is_lost(
    client: fifo.Client, shared_cluster: SharedCluster, is_younger: bool
) -> None:
    async with unanswered(shared_cluster) as (publisher, proxy):
        if is_younger:  # than the connection
            await again(client)
        proxy.back.cut = True
        publishing = asyncio.create_task(publisher.publish("orders", b"once"))
        await stored(client, 1)
        proxy.heal()
        proxy.reset()
        assert (await publishing).duplicate
        assert await bodies(client) == [b"once"]


async def test_a_first_publish_that_never_arrived_goes_into_the_queue_that_its_client_declared(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    async with unanswered(shared_cluster) as (publisher, proxy):
        await again(client)
        await publisher.declare(fifo.QueueSpec("orders"))
        proxy.there.cut = True
        publishing = asyncio.create_task(publisher.publish("orders", b"once"))
        await passed(LOOK_SECONDS)
        proxy.heal()
        proxy.reset()
        assert not (await publishing).duplicate
        assert await bodies(client) == [b"once"]


# --- consumers -------------------------------------------------------------------------------


async def test_a_waiting_consumer_goes_on_with_the_queue_that_has_the_name_now(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    async with fifo.connect(shared_cluster.url) as other, client.consume("orders") as messages:
        old = messages.number
        waiting = [asyncio.create_task(messages.next()) for _ in range(2)]
        await passed(LOOK_SECONDS)
        await again(other)
        await other.publish_many("orders", [b"1", b"2"])
        async with asyncio.timeout(DEADLINE_SECONDS):
            taken = [message for message in await asyncio.gather(*waiting) if message is not None]
        assert sorted(message.body for message in taken) == [b"1", b"2"]
        assert {message.consumer for message in taken} == {messages.number} != {old}
        for message in taken:
            assert (await message.ack(receipt=True)).status == "ok"
        assert (await client.queue("orders")).messages == 0


async def test_a_waiting_consumer_hears_once_that_no_queue_has_the_name_any_more(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    async with fifo.connect(shared_cluster.url) as other, client.consume("orders") as messages:
        waiting = [asyncio.create_task(messages.next()) for _ in range(2)]
        await passed(LOOK_SECONDS)
        await other.delete("orders")
        for task in waiting:
            with pytest.raises(fifo.QueueNotFound, match="deleted"):
                await task
        # The deletion is known: from here on it is about the queue that has the name now.
        await other.declare(fifo.QueueSpec("orders"))
        await other.publish("orders", b"new")
        [message] = await take(messages, 1)
        assert message.body == b"new"
        assert (await message.ack(receipt=True)).status == "ok"


async def test_a_consumer_at_work_loses_its_locks_and_settles_nothing_in_the_new_queue(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    async with fifo.connect(shared_cluster.url) as other, client.consume("orders") as messages:
        await client.publish_many("orders", [b"in hand", b"unopened"])
        [held] = await take(messages, 1)
        await again(other)
        await other.publish("orders", b"new")
        async with asyncio.timeout(DEADLINE_SECONDS):
            await held.lock_lost.wait()
        [message] = await take(messages, 1)
        assert (message.body, message.token) == (b"new", held.token), "the tokens begin anew"
        assert (await held.ack(receipt=True)).status in ("lock_lost", "unknown_consumer")
        [lock] = await client.locks("orders")
        assert (lock.consumer, lock.token) == (messages.number, message.token)
        assert (await message.ack(receipt=True)).status == "ok"


async def test_a_consumer_whose_queue_changed_while_it_was_away_goes_on(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    async with (
        unanswered(shared_cluster) as (worker, proxy),
        worker.consume("orders") as messages,
    ):
        await client.publish("orders", b"in hand")
        [held] = await take(messages, 1)
        waiting = asyncio.create_task(messages.next())
        proxy.back.cut = proxy.there.cut = True
        await again(client)
        await client.publish("orders", b"new")
        proxy.heal()
        proxy.reset()
        async with asyncio.timeout(DEADLINE_SECONDS):
            message = await waiting
        assert message is not None
        assert message.body == b"new"
        assert held.lock_lost.is_set()
        assert (await held.ack(receipt=True)).status in ("lock_lost", "unknown_consumer")
        assert (await message.ack(receipt=True)).status == "ok"


async def test_a_pulling_consumer_takes_what_is_left_of_its_credit_along(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    async with (
        fifo.connect(shared_cluster.url) as other,
        client.consume("orders", pull=True) as messages,
    ):
        await messages.credit(3)
        await other.publish_many("orders", [b"handed out", b"unopened"])
        assert (await take(messages, 1))[0].body == b"handed out"
        await again(other)
        await other.publish_many("orders", [b"1", b"2", b"3"])
        assert [message.body for message in await take(messages, 2)] == [b"1", b"2"]
        assert await messages.next(timeout=0.1) is None, "three were asked for, and three came"


async def test_asking_again_where_no_queue_was_declared_says_so_each_time(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    async with fifo.connect(shared_cluster.url) as other, client.consume("orders") as messages:
        await other.delete("orders")
        for _ in range(3):
            with pytest.raises(fifo.QueueNotFound):
                await messages.next(timeout=5)
        await other.declare(fifo.QueueSpec("orders"))
        assert await messages.next(timeout=0.1) is None


async def test_a_durable_consumer_of_the_old_queue_says_so_until_it_is_opened_again(
    client: fifo.Client,
) -> None:
    await client.publish_many("orders", [b"1", b"2"])
    reader = client.durable("orders", "reader")
    assert len(await reader.reserve(2)) == 2
    await again(client)
    await client.publish_many("orders", [b"3", b"4"])
    # Its tokens begin anew there, so no verb may take the old ones for them.
    for verb in (lambda: reader.reserve(1), lambda: reader.ack(2), lambda: reader.fetch(1, 2)):
        with pytest.raises(fifo.LockLost, match=r"deleted.*open"):
            await verb()
    await reader.open()
    assert [message.body for message in await reader.reserve(2)] == [b"3", b"4"]
    assert await reader.ack(2) == ()
    assert (await client.queue("orders")).messages == 0
