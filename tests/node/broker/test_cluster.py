"""Three nodes with real sockets and journals, spoken to frame by frame."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster import running
from tests.support.rawclient import connected


async def test_a_message_is_published_delivered_and_acked(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        leader = await cluster.leader()
        client = await connected(leader.me.client)
        await client.declare("orders")
        consumer = await client.subscribe("orders")
        correlation = client.publish("orders", 0, 1, [b"one", b"two", b"three"])
        item = await client.confirmed(correlation)
        assert item[3:5] == (0, 3)
        message, bodies = await client.delivery()
        assert bodies == [b"one", b"two", b"three"]
        assert message.consumer == consumer.consumer
        assert await client.settle(message.consumer, 1, 3) == ((1, 3, 0, False),)
        await client.close()
