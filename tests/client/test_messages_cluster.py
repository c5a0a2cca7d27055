"""Messages found by their id wherever they stand, and acted on, against real nodes."""

from __future__ import annotations

import asyncio

import pytest

import fifo
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_message_is_found_by_its_id_wherever_it_stands(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders", dead_letter="orders.dlq"))
    one, two, three = [
        (await client.publish("orders", body, key="k", headers={"n": "1"}, delay=delay)).id
        for body, delay in ((b"one", None), (b"two", None), (b"three", 60))
    ]
    (held,) = await client.get("orders")
    found = await client.message("orders", one)
    assert (found.body, found.key, found.headers) == (b"one", "k", {"n": "1"})
    assert (found.place.place, found.place.token) == ("locked", held.token)
    assert (found.place.client, found.place.attempts) == ("fifo-python", 1)
    assert 25 < found.place.remaining_s <= 30
    assert (await client.message("orders", two)).place.place == "ready"
    delayed = (await client.message("orders", three)).place
    assert (delayed.place, delayed.cause) == ("delayed", "published")
    assert 50 < delayed.due_in_s <= 60
    await held.terminate("poison", exception=ValueError("no"))
    dead = await client.message("orders.dlq", one)
    assert dead.dead_letter is not None
    assert dead.dead_letter.exception == "ValueError: no"
    with pytest.raises(fifo.MessageNotFound, match="has no message"):
        await client.message("orders", one)


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_queue_is_looked_through_in_pages_by_key_and_by_place(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    bodies = [b"%d" % n for n in range(2500)]
    keys = [f"k{n % 1000}" for n in range(2500)]
    await client.publish_many("orders", bodies, keys=keys)
    await client.get("orders", 5)
    seen: list[bytes] = []
    after = 0
    while True:
        page = await client.find("orders", limit=100, after=after)
        seen += [bytes(one.body) for one in page.messages]
        after = page.after
        if not after:
            break
    assert seen == bodies
    found = await client.find("orders", key="k3", limit=100)
    assert [one.body for one in found.messages] == [b"3", b"1003", b"2003"]
    assert [one.place.place for one in found.messages] == ["locked", "ready", "ready"]
    locked = await client.find("orders", place="locked", limit=100)
    assert [one.body for one in locked.messages] == bodies[:5]


async def test_a_lock_that_is_taken_back_is_lost_to_its_holder_at_once(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    confirm = await client.publish("orders", b"4711")
    async with (
        fifo.connect(shared_cluster.url) as worker,
        worker.consume("orders", prefetch=1) as held,
    ):
        message = await asyncio.wait_for(anext(held), 10)
        found = await client.message("orders", confirm.id)
        was = await client.act(
            "orders", confirm.id, "unlock", delay=60, version=found.place.version
        )
        assert was == "locked"
        await asyncio.wait_for(message.lock_lost.wait(), 10)
        assert (await message.ack(receipt=True)).status == fifo.Status.OK  # late: no other had it
        (consumer,) = await client.consumers("orders")
        assert consumer.flags == ()
    with pytest.raises(fifo.MessageNotFound):
        await client.act("orders", confirm.id, "unlock", version=found.place.version)


@pytest.mark.fifo_cluster(nodes=3)
async def test_each_action_does_what_it_says(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders", dead_letter="orders.dlq"))
    await client.declare(fifo.QueueSpec("aside"))
    ids = [(await client.publish("orders", b"%d" % n, key="k")).id for n in range(6)]
    assert await client.act("orders", ids[0], "delay", delay=60) == "ready"
    assert await client.act("orders", ids[0], "retry") == "delayed"
    assert await client.act("orders", ids[0], "cancel") == "ready"
    assert await client.act("orders", ids[1], "delete") == "ready"
    assert await client.act("orders", ids[2], "terminate", reason="poison") == "ready"
    dead = await client.message("orders.dlq", ids[2])
    assert dead.dead_letter is not None
    assert (dead.dead_letter.detail, dead.dead_letter.source) == ("poison", "orders")
    assert await client.act("orders.dlq", ids[2], "resend", body=b"two", headers={"by": "me"})
    back = await client.message("orders", ids[2])
    assert (back.body, back.key, back.headers) == (b"two", "k", {"by": "me"})
    assert back.dead_letter is None
    assert await client.act("orders", ids[3], "move", target="aside") == "ready"
    copy = await client.copy("orders", ids[4], "aside", body=b"copy", key=None)
    shown = [(one.id, one.body, one.key) for one in await client.peek("aside", 9)]
    assert shown == [(ids[3], b"3", "k"), (copy.id, b"copy", None)]
    left = {one.id for one in await client.peek("orders", 9)}
    assert left == {ids[2], ids[4], ids[5]}


@pytest.mark.fifo_cluster(nodes=3)
async def test_what_is_wrong_is_refused_with_the_reason(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    confirm = await client.publish("orders", b"one")
    for bad in ("1", "a.b.c", "1.2.3.4", "", "-1.2.3"):
        with pytest.raises(fifo.InvalidArgument, match="three numbers"):
            await client.message("orders", bad)
    with pytest.raises(fifo.InvalidArgument, match="retry, unlock"):
        await client.act("orders", confirm.id, "explode")  # type: ignore[arg-type]
    with pytest.raises(fifo.InvalidArgument, match="only a resend changes"):
        await client.act("orders", confirm.id, "move", target="orders", body=b"x")
    with pytest.raises(fifo.InvalidArgument, match="no lock to take"):
        await client.act("orders", confirm.id, "unlock")
    with pytest.raises(fifo.InvalidArgument, match="needs a target"):
        await client.act("orders", confirm.id, "move")
    with pytest.raises(fifo.NoDeadLetterQueue, match="declare one"):
        await client.act("orders", confirm.id, "terminate")
    with pytest.raises(fifo.QueueNotFound):
        await client.act("nope", confirm.id, "delete")
    with pytest.raises(fifo.MessageNotFound, match="is not as it was found"):
        await client.act("orders", confirm.id, "delete", version="1-2-3-4")
    with pytest.raises(fifo.InvalidArgument, match="place"):
        await client.find("orders", place="gone")  # type: ignore[arg-type]
    assert (await client.queue("orders")).ready == 1
