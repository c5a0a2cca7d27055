"""Durable consumers against real nodes: the same messages again, across leaders and clients."""

from __future__ import annotations

import asyncio

import pytest

import fifo
from fifo.machine import limits
from tests.support.cluster import passed
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture
async def client(client: fifo.Client) -> fifo.Client:
    """A client, and queue q."""
    await client.declare(fifo.QueueSpec("q", lock=30))
    return client


def told(messages: list[fifo.DurableMessage]) -> list[tuple[int, bytes]]:
    return [(message.token, message.body) for message in messages]


@pytest.mark.fifo_cluster(nodes=3)
async def test_reserved_messages_are_fetched_again_until_they_are_acked(
    client: fifo.Client,
) -> None:
    await client.publish_many("q", [b"%d" % n for n in range(10)], keys=["k"] * 10)
    reader = client.durable("q", "reader")
    expected = [(n + 1, b"%d" % n) for n in range(10)]
    reserved = await reader.reserve(4)
    assert told(reserved) == expected[:4]
    assert (reserved[0].key, reserved[0].attempt) == ("k", 1)
    assert told(await reader.reserve(100)) == expected[4:]
    assert await reader.reserve(1) == []
    for _ in range(2):
        assert told(await reader.fetch(3, 6)) == expected[2:6]
    assert told(await reader.fetch(1, 2**63 - 1)) == expected
    for _ in range(2):
        assert await reader.ack(4) == ()
    assert told(await reader.fetch(1, 5)) == expected[4:5]
    overview = await client.queue("q")
    assert (overview.locked, overview.counters["acked"]) == (6, 4)


async def test_another_session_takes_a_durable_consumer_over_with_its_locks(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.publish_many("q", [b"one", b"two", b"three"])
    before = client.durable("q", "reader")
    await before.reserve(2)
    async with fifo.connect(shared_cluster.url) as other:
        after = other.durable("q", "reader")
        assert await after.open() == ((1, 2),)
        assert (after.generation, after.next_token) == (2, 3)
        assert told(await after.fetch(1, 2)) == [(1, b"one"), (2, b"two")]
        for refused in (before.reserve(1), before.fetch(1, 2), before.ack(1), before.renew()):
            with pytest.raises(fifo.SessionTaken):
                await refused
        with pytest.raises(fifo.SessionTaken):
            await before.forget()
        assert told(await after.reserve(1)) == [(3, b"three")]
    await before.open()
    assert told(await before.fetch(1, 3)) == [(1, b"one"), (2, b"two"), (3, b"three")]


async def test_other_clients_fetch_without_taking_the_reservation_over(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.publish_many("q", [b"one", b"two", b"three"])
    holder = client.durable("q", "reader")
    assert (await holder.hold(2)).tokens == range(1, 3)
    assert client.metrics.delivered == 0
    async with fifo.connect(shared_cluster.url) as other:
        helper = other.durable("q", "reader", opened=holder.opened)
        assert told(await helper.fetch(1, 2)) == [(1, b"one"), (2, b"two")]
        assert (await holder.hold(10)).tokens == range(3, 4)
        assert len((await holder.hold(1)).tokens) == 0
        await holder.forget()
        with pytest.raises(fifo.FifoError, match="open it again"):
            await helper.fetch(1, 2)
        await client.durable("q", "reader").reserve(3)
        with pytest.raises(fifo.LockLost, match="forgotten"):
            await helper.fetch(1, 2)


@pytest.mark.fifo_cluster(nodes=3)
async def test_bytes_bound_a_hold_and_a_part_of_a_fetch(client: fifo.Client) -> None:
    await client.publish_many("q", [b"1234567890"] * 9)
    reader = client.durable("q", "reader")
    assert await reader.hold(9, max_bytes=35) == (range(1, 5), 0)
    assert await reader.hold(2, max_bytes=35) == (range(5, 7), 15)
    part = await reader.fetch_part(1, 6, 21)
    assert ([one.token for one in part.messages], part.lost, part.rest) == ([1, 2, 3], (), 4)
    part = await reader.fetch_part(4, 6, 1_000)
    assert ([one.token for one in part.messages], part.lost, part.rest) == ([4, 5, 6], (), 0)


async def test_a_fetch_may_leave_bodies_at_the_cluster(client: fifo.Client) -> None:
    """And keys and headers; those of another fetch come whole."""
    keys, headers = ["k"] * 3, [{"h": "v"}] * 3
    await client.publish_many("q", [b"x" * 1000] * 3, keys=keys, headers=headers)
    reader = client.durable("q", "reader")
    await reader.hold(3)
    bare = await reader.fetch_part(1, 3, 10_000, bodies=False)
    assert [(one.token, one.body, one.key) for one in bare.messages] == [
        (token, b"", None) for token in (1, 2, 3)
    ]
    assert (bare.lost, bare.rest) == ((), 0)
    assert len({one.id for one in bare.messages}) == 3
    whole = await reader.fetch_part(1, 3, 10_000)
    assert [(one.body, one.headers) for one in whole.messages] == [(b"x" * 1000, {"h": "v"})] * 3


async def test_each_reserved_message_can_have_a_verdict_of_its_own(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("v", lock=30, dead_letter="v.dead"))
    await client.publish_many("v", [b"%d" % n for n in range(6)])
    reader = client.durable("v", "reader")
    await reader.reserve(6)
    ok, before = fifo.Status.OK, fifo.Status.ALREADY_SETTLED
    async with fifo.connect(shared_cluster.url) as other:
        helper = other.durable("v", "reader", opened=reader.opened)
        assert await helper.settle("terminate", [2], reason="bad row") == ((2, 2, ok),)
        assert await helper.settle("nack", [5, 4], delay=60) == ((4, 5, ok),)
        assert await helper.settle("ack", [1, 2]) == ((1, 1, ok), (2, 2, before))
        assert await helper.settle("release", []) == ()
    part = await reader.fetch_part(1, 6, 1_000)
    assert ([one.token for one in part.messages], part.lost) == ([3, 6], ())
    assert await reader.open() == ((3, 3), (6, 6))
    assert reader.lost == ()
    assert await reader.ack(6) == ()
    overview = await client.queue("v")
    assert (overview.ready, overview.locked, overview.delayed) == (0, 0, 2)
    [dead] = await client.peek("v.dead")
    assert dead.dead_letter is not None
    found = (dead.body, dead.dead_letter.reason, dead.dead_letter.detail)
    assert found == (b"1", "terminated", "bad row")


async def test_a_forgotten_holder_does_nothing_to_the_next_one(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.publish_many("q", [b"one", b"two"])
    before = client.durable("q", "reader")
    await before.reserve(2)
    async with fifo.connect(shared_cluster.url) as other:
        again = other.durable("q", "reader", opened=before.opened)
        await again.forget()
        after = other.durable("q", "reader")
        await after.reserve(2)
        assert after.generation == before.generation  # They began anew with another consumer.
        for refused in (before.ack(2), before.reserve(1), before.renew(), before.forget()):
            with pytest.raises(fifo.LockLost, match="forgotten"):
                await refused
        assert told(await after.fetch(1, 2)) == [(1, b"one"), (2, b"two")]


@pytest.mark.fifo_cluster(nodes=3)
async def test_forgetting_a_durable_consumer_returns_its_messages_uncounted(
    client: fifo.Client,
) -> None:
    await client.publish("q", b"one")
    reader = client.durable("q", "reader")
    await reader.reserve(1)
    await reader.forget()
    [message] = await client.get("q", wait=5)
    assert (message.body, message.failures) == (b"one", 0)
    assert await reader.reserve(1) == []
    assert reader.generation == 1
    with pytest.raises(fifo.InvalidArgument):
        await reader.reserve(0)
    with pytest.raises(fifo.InvalidArgument):
        await reader.fetch(2, 1)


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_lock_ends_unless_it_is_renewed_and_an_ack_names_lost_tokens(
    client: fifo.Client,
) -> None:
    await client.publish_many("q", [b"taken", b"waiting"])
    reader = client.durable("q", "reader", lock=1, max_lock=60)
    await reader.reserve(2)
    for _ in range(3):
        await passed(0.5)
        await reader.renew()
    assert len(await reader.fetch(1, 2)) == 2
    async with asyncio.timeout(10):
        while await reader.fetch(1, 2):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)
    [taken] = await client.get("q", wait=5)
    assert taken.body == b"taken"
    missing = await reader.ack(2)
    assert [(one.first, one.last, one.status) for one in missing] == [(1, 2, "lock_lost")]


@pytest.mark.fifo_cluster(nodes=3)
async def test_more_than_one_step_of_the_machine_is_fetched_and_acked(client: fifo.Client) -> None:
    count = 25_000
    await client.publish_many("q", [b"%d" % n for n in range(count)])
    reader = client.durable("q", "reader")
    for _ in range(3):
        await reader.reserve(10_000)
    fetched = await reader.fetch(1, count)
    assert [int(message.body) for message in fetched] == list(range(count))
    assert await reader.ack(count) == ()
    assert (await client.queue("q")).messages == 0


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_fetch_is_whole_though_the_machine_takes_many_steps_for_it(
    client: fifo.Client,
) -> None:
    count = 3 * limits.STEP_MESSAGES // limits.RECORD_COST
    await client.publish_many("q", [b"%d" % n for n in range(count)], keys=["k"] * count)
    reader = client.durable("q", "reader")
    expected = told(await reader.reserve(count))
    assert len(expected) == count
    assert told(await reader.fetch(1, 2 * count)) == expected
    assert told(await reader.fetch(3, count - 2)) == expected[2 : count - 2]
    await reader.ack(2)
    assert told(await reader.fetch(1, count)) == expected[2:]


async def test_a_durable_consumer_outlives_its_leader_with_the_same_tokens(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.publish_many("q", [b"%d" % n for n in range(6)])
    reader = client.durable("q", "reader")
    await reader.reserve(3)
    await reader.ack(1)
    await shared_cluster.crash_leader()
    assert told(await reader.fetch(1, 3)) == [(2, b"1"), (3, b"2")]
    assert told(await reader.reserve(10)) == [(4, b"3"), (5, b"4"), (6, b"5")]
    assert await reader.ack(6) == ()
    assert (await client.queue("q")).messages == 0


async def test_a_durable_consumer_is_listed_with_its_locks_and_goes_with_its_queue(
    client: fifo.Client,
) -> None:
    await client.publish_many("q", [b"one", b"two"])
    reader = client.durable("q", "reader")
    await reader.reserve(2)
    [view] = await client.consumers("q")
    assert (view.consumer, view.tag, view.session) == (reader.consumer, "reader", "")
    assert (view.held, view.flags) == (2, ())
    assert [lock.tag for lock in await client.locks("q")] == ["reader", "reader"]
    await client.delete("q")
    with pytest.raises(fifo.QueueNotFound):
        await reader.fetch(1, 2)
    await client.declare(fifo.QueueSpec("q"))
    with pytest.raises(fifo.FifoError, match="open it again"):
        await reader.renew()
    assert await reader.open() == ()


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_single_active_queue_has_no_durable_consumers(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("one", ordering="single_active"))
    with pytest.raises(fifo.InvalidArgument):
        await client.durable("one", "reader").open()


async def test_the_blocking_client_has_durable_consumers_too(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.publish_many("q", [b"one", b"two"])
    await asyncio.to_thread(_blocking_story, shared_cluster.url)
    assert [message.body for message in await client.get("q", wait=5)] == [b"two"]


def _blocking_story(url: str) -> None:
    with fifo.blocking.connect(url) as client:
        reader = client.durable("q", "reader", lock=30)
        assert reader.open() == ()
        assert (reader.generation, reader.next_token) == (1, 1)
        assert told(reader.reserve(5)) == [(1, b"one"), (2, b"two")]
        assert told(reader.fetch(2, 2)) == [(2, b"two")]
        reader.renew()
        assert reader.ack(1) == ()
        assert (reader.opened.generation, reader.hold(1).tokens) == (1, range(3, 3))
        reader.forget()


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_run_of_a_key_is_its_readers_until_all_of_it_is_settled(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("keyed", ordering="key"))
    await client.publish_many("keyed", [b"%d" % n for n in range(6)], keys=["a", "b"] * 3)
    reader, other = client.durable("keyed", "reader"), client.durable("keyed", "other")
    assert told(await reader.reserve(2)) == [(1, b"0"), (2, b"1")]
    assert await reader.reserve(9) == [], "one of each key is out"
    await reader.ack(2)
    assert told(await reader.reserve(3, runs=True)) == [(3, b"2"), (4, b"3"), (5, b"4")]
    await shared_cluster.crash_leader()
    assert await other.reserve(9, runs=True) == []
    assert list((await reader.hold(9, runs=True)).tokens) == [6]
    await reader.settle("release", [3])
    await client.publish("keyed", b"6", key="a")
    assert await reader.reserve(9, runs=True) == [], "the run of a has ended with the return"
    await reader.ack(6)
    assert [one.body for one in await other.reserve(9, runs=True)] == [b"2", b"6"]
