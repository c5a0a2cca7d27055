"""Locks that the leader renews for a client that only reads: how long, at which leader, and shown.

The client is a connection of frames that renews nothing itself (semantics.md 5.19 to 5.22).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fifo.machine import limits as machine_limits
from fifo.wire.messages import Deliver, Error, Notice, QueueQuery, Renew, Renewed, Status, Subscribe
from node.server import Node
from tests.support.cluster import LocalCluster, running
from tests.support.rawclient import RawClient, connected

LOCK_S = 1.0


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path, count=1) as started:
        yield await started.leader()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with running(tmp_path) as started:
        await started.leader()
        yield started


async def holding(node: Node, renewals: int) -> tuple[RawClient, int, float]:
    """A client that holds one message of queue q, its consumer, and when it got it."""
    client = await connected(node.me.client)
    await client.declare("q", lock_ms=round(LOCK_S * 1000))
    subscribed = await client.subscribe("q", prefetch=1, renewals=renewals)
    assert subscribed.max_lock_ms == (renewals + 1) * 1000
    await client.confirmed(client.publish("q", 0, 1, [b"one"]))
    message, _ = await client.delivery()
    assert 0 < message.remaining_ms <= 1000, "only one lock is certain"
    return client, subscribed.consumer, asyncio.get_running_loop().time()


async def listed(client: RawClient, query: str) -> list[dict[str, Any]]:
    answer = await client.ask(QueueQuery("q", query))
    rows: list[dict[str, Any]] = answer.result  # type: ignore[attr-defined]  # an Ok
    return rows


async def log_end(client: RawClient) -> int:
    answer = await client.ask(Status())
    return int(answer.result["last"])  # type: ignore[attr-defined]  # an Ok


@pytest.mark.slow
async def test_the_leader_renews_without_a_log_entry_and_says_so(node: Node) -> None:
    client, consumer, began = await holding(node, renewals=2)
    loop = asyncio.get_running_loop()
    before = await log_end(client)
    seen = set()
    while True:
        end, locks = await log_end(client), await listed(client, "locks")
        if not locks or not locks[0]["remaining_ms"]:
            break
        assert end == before
        [lock] = locks
        seen.add(lock["renewals"])
        assert (lock["attempt"], lock["renewals_max"]) == (1, 2)
        assert lock["checkout_ms_ago"] + lock["remaining_ms"] == 3000
    assert seen == {0, 1, 2}
    notice = await client.next(Notice)
    assert (notice.consumer, notice.tokens) == (consumer, ((1, 1),))
    assert loop.time() - began + 0.05 >= 3 * LOCK_S
    [shown] = await listed(client, "consumers")
    assert (shown["renewals"], shown["lock_ms"]) == (2, 1000)


async def test_a_renewal_by_the_client_is_answered_within_what_the_leader_renews(
    node: Node,
) -> None:
    client, consumer, _ = await holding(node, renewals=1)
    answer = await client.ask(Renew(((consumer, ((1, 1),)),)))
    assert isinstance(answer, Renewed)
    [(_, [(first, last, remaining_ms)], lost)] = answer.items
    assert (first, last, lost) == (1, 1, ())
    assert 900 < remaining_ms <= 1000


async def test_a_client_that_goes_away_is_renewed_for_the_last_time(node: Node) -> None:
    client, _, _ = await holding(node, renewals=60)
    other = await connected(node.me.client)
    await other.subscribe("q", prefetch=1)
    loop = asyncio.get_running_loop()
    await client.close()
    gone = loop.time()
    message, bodies = await other.delivery()
    assert bodies == [b"one"]
    assert message.consumer
    assert 0.95 * LOCK_S < loop.time() - gone < 10 * LOCK_S


@pytest.mark.slow
async def test_the_next_leader_goes_on_renewing(cluster: LocalCluster) -> None:
    first = await cluster.leader()
    client, consumer, began = await holding(first, renewals=4)
    loop = asyncio.get_running_loop()
    await cluster.stop(first.me.name)
    second = await cluster.leader()
    again = await RawClient(client.session, client.incarnation).connect(second.me.client)
    await again.welcome(resume=True)
    repeated = await again.next(Deliver)
    assert (repeated.consumer, repeated.first_token, repeated.repeat) == (consumer, 1, True)
    # Until then the leader before may have granted it; this one is sure of no more.
    assert 900 < repeated.remaining_ms <= 1000 + machine_limits.LEASE_MS
    other = await connected(second.me.client)
    await other.subscribe("q", prefetch=1)
    message, _ = await other.delivery()
    # Cluster time may stand still during an election, so a lock may last longer, never shorter.
    assert loop.time() - began + 0.05 >= 5 * LOCK_S
    assert message.remaining_ms <= 1000
    assert (await again.next(Notice)).tokens == ((1, 1),)


async def test_renewals_of_what_is_not_renewable_are_refused(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    answer = await client.ask(Subscribe("q", "t", 1, renewable=False, renewals=1))
    assert isinstance(answer, Error)
    assert "renewals: the consumer's locks are not renewable" in answer.text
