"""Redrive and move against real nodes, also while their leader goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import fifo
from fifo.client.errors import QueueInUse
from node.broker import limits
from tests.support.cluster import passed
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


async def bury(client: fifo.Client, queue: str, count: int, reason: str = "broken") -> None:
    """Publish and terminate so many messages, each with its number as body and header."""
    await client.declare(fifo.QueueSpec(queue, dead_letter="dlq"))
    await client.publish_many(
        queue,
        [b"%d" % n for n in range(count)],
        headers=[{"n": str(n), "half": str(n % 2)} for n in range(count)],
    )
    async with asyncio.timeout(30), client.consume(queue, prefetch=1000) as messages:
        for _ in range(count):
            await (await anext(messages)).terminate(reason, receipt=False)
        await shown(client, lambda view: view["ready"] == count)


async def shown(
    client: fifo.Client, wanted: Callable[[dict[str, Any]], bool], within: float = 20
) -> dict[str, Any]:
    """The dead-letter queue once it looks as wanted."""
    async with asyncio.timeout(within):
        while not wanted(view := (await client.queue("dlq")).as_dict()):
            await passed(0.02)
        return view


async def ended(client: fifo.Client) -> dict[str, Any]:
    """The redrive once it is not running."""
    view = await shown(client, lambda view: view["redrive"]["status"] != "running")
    found: dict[str, Any] = view["redrive"]
    return found


async def bodies(client: fifo.Client, queue: str) -> list[int]:
    """The numbers of everything ready, in order."""
    found: list[int] = []
    while messages := await client.get(queue, 1000):
        found += [int(message.body) for message in messages]
    return found


@pytest.mark.fifo_cluster(nodes=3)
async def test_dead_letters_go_back_to_their_source_once_and_in_order(client: fifo.Client) -> None:
    count = 2 * limits.REDRIVE_MESSAGES + 7
    await bury(client, "q", count)
    dry = await client.redrive("dlq", dry_run=True)
    assert (dry.messages, dry.sources) == (count, {"q": count})
    assert (await client.queue("dlq")).redrive is None
    begun = await client.redrive("dlq")
    assert begun.status in ("running", "done")
    view = await ended(client)
    assert (view["status"], view["moved"], view["reason"]) == ("done", count, None)
    [first] = await client.get("q")
    assert (first.body, first.attempt, first.failures, first.dead_letter) == (b"0", 1, 0, None)
    assert await bodies(client, "q") == list(range(1, count))
    assert (await client.queue("dlq")).messages == 0


@pytest.mark.fifo_cluster(nodes=3)
async def test_filters_choose_and_the_rest_stays(client: fifo.Client) -> None:
    await bury(client, "q", 40)
    await client.declare(fifo.QueueSpec("other", dead_letter="dlq"))
    await client.publish("other", b"100")
    await (await client.get("other"))[0].terminate("broken")
    for nothing in (
        {"reason": "expired"},
        {"older_than": 3600},
        {"min_attempts": 2},
        {"headers": {"n": "no such"}},
        {"headers": {"n": "1", "half": "0"}},
        {"source": "nowhere"},
    ):
        options: dict[str, Any] = nothing
        assert (await client.redrive("dlq", dry_run=True, **options)).messages == 0, nothing
        await client.redrive("dlq", **options)
        assert (await ended(client))["moved"] == 0, nothing
    await client.redrive("dlq", source="other", min_attempts=1, reason="terminated", older_than=0)
    assert (await ended(client))["moved"] == 1
    assert await bodies(client, "other") == [100]
    dry = await client.redrive("dlq", headers={"half": "1"}, limit=5, dry_run=True)
    assert dry.messages == 5
    await client.declare(fifo.QueueSpec("target"))
    await client.redrive("dlq", "target", headers={"half": "1"}, limit=5, reset_counts=False)
    view = await ended(client)
    assert (view["moved"], view["target"], view["limit"]) == (5, "target", 5)
    kept = await client.get("target", 10)
    assert [int(message.body) for message in kept] == [1, 3, 5, 7, 9]
    assert {message.attempt for message in kept} == {2}
    assert (await client.queue("dlq")).ready == 35


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_full_target_pauses_until_there_is_room_and_a_cancel_ends_it(
    client: fifo.Client,
) -> None:
    await bury(client, "q", 10)
    await client.declare(fifo.QueueSpec("small", max_length=4))
    await client.redrive("dlq", "small")
    view = await ended(client)
    assert (view["status"], view["moved"]) == ("paused", 4)
    assert "'small' is full" in view["reason"]
    with pytest.raises(QueueInUse):
        await client.redrive("dlq")
    assert await client.purge("small") == 4
    await shown(client, lambda view: view["redrive"]["moved"] == 8)
    cancelled = await client.cancel_redrive("dlq")
    assert (cancelled.status, cancelled.moved) == ("cancelled", 8)
    await client.redrive("dlq")
    assert (await ended(client))["moved"] == 2


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_rate_is_kept(client: fifo.Client) -> None:
    await bury(client, "q", 60)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await client.redrive("dlq", rate=40)
    assert (await ended(client))["moved"] == 60
    # 20 in each half second: the third lot goes after one second, and nothing before its time.
    assert 0.95 < loop.time() - started < 5


async def test_a_redrive_goes_on_at_the_next_leader_and_moves_each_message_once(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await bury(client, "q", 150)
    await client.redrive("dlq", rate=100)
    await shown(client, lambda view: view["redrive"]["moved"] >= 50)
    await shared_cluster.crash_leader()
    view = (await client.queue("dlq")).as_dict()["redrive"]
    assert view["status"] == "running"
    assert 50 <= view["moved"] < 150
    assert (await ended(client))["moved"] == 150
    assert await bodies(client, "q") == list(range(150))
    counters = (await client.queue("dlq")).counters
    assert counters["moved_out"] == 150


@pytest.mark.fifo_cluster(nodes=3)
async def test_move_takes_ready_messages_from_the_front(client: fifo.Client) -> None:
    count = 2 * limits.MOVE_MESSAGES + 3
    await client.declare(fifo.QueueSpec("q"))
    await client.declare(fifo.QueueSpec("other"))
    await client.declare(fifo.QueueSpec("small", max_length=2))
    assert await client.move("q", "other") == 0
    confirms = await client.publish_many("q", [b"%d" % n for n in range(count)])
    assert await client.move("q", "small") == 2
    with pytest.raises(fifo.QueueFull):
        await client.move("q", "small")
    assert await client.move("q", "other", limit=3) == 3
    assert await client.move("q", "other") == count - 5
    [message] = await client.peek("other")
    assert message.id == confirms[2].id
    assert await bodies(client, "other") == list(range(2, count))
    with pytest.raises(fifo.InvalidArgument):
        await client.move("q", "other", limit=0)


async def test_the_blocking_client_redrives_and_moves_too(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await bury(client, "q", 3)
    await asyncio.to_thread(_blocking_story, shared_cluster.url)
    await ended(client)
    assert await bodies(client, "q") == [0, 1, 2]


def _blocking_story(url: str) -> None:
    with fifo.blocking.connect(url) as client:
        client.declare(fifo.QueueSpec("aside"))
        assert client.move("dlq", "aside") == 3
        assert client.move("aside", "dlq", limit=3) == 3
        assert client.redrive("dlq", dry_run=True).messages == 3
        assert client.redrive("dlq").target is None
