"""Proves that work in bounded steps is whole for a client: no answer ends where a step did."""

from __future__ import annotations

import pytest

import fifo
from fifo.machine import limits
from node.broker.broker import Broker
from tests.support.cluster import passed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

WAITING = 2 * limits.STEP_MESSAGES // limits.RECORD_COST + 7
"""Messages that wait for their key: two steps do no more than to look at them."""

EXPIRED = 2 * limits.STEP_MESSAGES // limits.LEAVE_COST + 7
"""Messages whose ttl is over, likewise."""

TTL_S = 0.1


async def crowd(client: fifo.Client, queue: str) -> None:
    """Publish a message that is available, many that wait for its key, and one behind them."""
    await client.declare(fifo.QueueSpec(queue, ordering="key"))
    await client.publish_many(queue, [b"one"] * (WAITING + 1), keys=["k"] * (WAITING + 1))
    await client.publish(queue, b"other", key="l")


async def test_a_get_finds_a_message_behind_many_that_wait(client: fifo.Client) -> None:
    await crowd(client, "reserved")
    reader = client.durable("reserved", "reader")
    for expected in ([b"one"], [b"other"], []):
        assert [message.body for message in await reader.reserve(1)] == expected
    await crowd(client, "got")
    for expected in ([b"one"], [b"other"], []):
        assert [message.body for message in await client.get("got", 1)] == expected
    await crowd(client, "pulled")
    async with client.consume("pulled", pull=True) as messages:
        await messages.credit(1, drain=True)
        assert (await anext(messages)).body == b"one"
        await messages.credit(1, drain=True)
        assert (await anext(messages)).body == b"other"
        await messages.credit(1, drain=True)
        assert (await client.queue("pulled")).locked == 2, "no consumer gets a message that waits"


async def test_a_get_finds_a_message_behind_many_that_expired(
    client: fifo.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No leader looks for what is due, so that who takes has to meet it.
    monkeypatch.setattr(Broker, "look", lambda self, gap_s: None)
    for queue in ("reserved", "got"):
        await client.declare(fifo.QueueSpec(queue))
        await client.publish_many(queue, [b"late"] * EXPIRED, ttls=[TTL_S] * EXPIRED)
        await client.publish(queue, b"live")
    await passed(2 * TTL_S)
    reader = client.durable("reserved", "reader")
    for expected in ([b"live"], []):
        assert [message.body for message in await reader.reserve(1)] == expected
        assert [message.body for message in await client.get("got", 1)] == expected
    for queue in ("reserved", "got"):
        assert (await client.queue(queue)).counters["expired"] == EXPIRED


async def test_a_purge_says_how_many_it_removed_when_all_are_gone(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("q"))
    count = 2 * limits.STEP_MESSAGES + 5
    await client.publish_many("q", [b""] * count)
    assert await client.purge("q") == count
    assert (await client.queue("q")).messages == 0
    await client.publish("q", b"later")
    assert await client.purge("q") == 1
