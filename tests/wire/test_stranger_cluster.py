"""The client that was written from the page alone, on three real nodes."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import LocalCluster, running
from tests.wire import stranger
from tests.wire.stranger import Refused, Stranger

pytestmark = pytest.mark.cluster


async def with_stranger(cluster: LocalCluster, script: Callable[[Stranger], None]) -> None:
    """Run a blocking script on a thread, connected by way of the nodes that do not lead."""
    leader = await cluster.leader()
    others = [node.me for node in cluster.followers()]
    addresses = [str(node.client) for node in [*others, leader.me]]

    def run() -> None:
        client = stranger.connect(addresses)
        assert client.welcome[1] == leader.me.name
        script(client)
        client.close()

    await asyncio.to_thread(run)


def everything_on_the_page(client: Stranger) -> None:
    assert client.declare("orders.dead")
    assert client.declare("orders", dead_letter="orders.dead", nack_backoff="fixed:0s")
    assert not client.declare("orders", dead_letter="orders.dead", nack_backoff="fixed:0s")

    ids = client.publish("orders", [b"one", b"", b"three"], [b"a", b"", b"c"])
    again = client.publish("orders", [b"four"], [b""])
    assert len({*ids, *again}) == 4

    consumer = client.subscribe("orders", 2)
    first, second = client.receive(), client.receive()
    assert (first.consumer, first.id, first.body, first.key) == (consumer, ids[0], b"one", b"a")
    assert (second.id, second.body, second.key, second.attempt) == (ids[1], b"", b"", 1)
    assert client.settle(first, stranger.ACK)[2:] == [0, False]
    assert client.settle(first, stranger.ACK)[2] == 1, "already settled"
    assert client.settle(second, stranger.NACK)[2:] == [0, False]

    third, returned = sorted([client.receive(), client.receive()], key=lambda one: one.attempt)
    assert (third.id, third.body, third.key) == (ids[2], b"three", b"c")
    assert (returned.id, returned.attempt) == (ids[1], 2)
    assert client.settle(returned, stranger.TERMINATE, reason="empty")[2] == 0
    assert client.settle(third, stranger.ACK)[2] == 0
    fourth = client.receive()
    assert (fourth.id, fourth.body) == (again[0], b"four")
    assert client.settle(fourth, stranger.RELEASE)[2] == 0

    client.subscribe("orders.dead", 1)
    dead = client.receive()
    while dead.id == fourth.id:
        dead = client.receive()
    assert (dead.id, dead.body) == (ids[1], b"")


def refusals_of_the_page(client: Stranger) -> None:
    client.declare("orders")
    with pytest.raises(Refused) as other_spec:
        client.declare("orders", lock_ms=5_000)
    assert other_spec.value.args[1] == "queue_exists"
    assert other_spec.value.args[4] == {"differences": {"lock_ms": [30_000, 5_000]}}

    with pytest.raises(Refused) as no_queue:
        client.publish("nowhere", [b"x"], [b""])
    assert no_queue.value.args[1] == "queue_not_found"

    ids = client.publish("orders", [b"one", b"two"], [b"", b""])
    client.numbers["orders"] = 0
    assert client.publish("orders", [b"one", b"two"], [b"", b""]) == ids, "duplicates: same ids"
    client.numbers["orders"] = 7
    with pytest.raises(Refused) as gap:
        client.publish("orders", [b"nine"], [b""])
    assert gap.value.args[0] == "gap"
    assert gap.value.args[2:] == (True, {"expected": 2})

    client.subscribe("orders", 10)
    assert [client.receive().body for _ in range(2)] == [b"one", b"two"], "nothing stands twice"


async def test_a_stranger_publishes_consumes_and_settles_on_real_nodes(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await with_stranger(cluster, everything_on_the_page)


async def test_a_stranger_is_refused_as_the_page_says(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await with_stranger(cluster, refusals_of_the_page)
