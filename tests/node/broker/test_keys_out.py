"""The flag of deliveries of a queue in key order: all that is left waits for its key."""

from __future__ import annotations

from pathlib import Path

from fifo.wire.columns import Publication
from fifo.wire.messages import Deliver
from tests.support.cluster import running
from tests.support.rawclient import connected


async def test_a_delivery_says_that_all_that_is_left_waits_for_its_key(tmp_path: Path) -> None:
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        await client.declare("q", ordering="key")
        keyed = Publication([b"a1", b"a2", b"b1"], keys=[b"a", b"a", b"b"])
        await client.confirmed(client.publish_across([("q", 0, keyed)])[0])
        consumer = (await client.subscribe("q", prefetch=3)).consumer
        found = await client.next(Deliver)
        assert (found.count, found.keys_out) == (2, True), "a2 waits, and a place is free"
        await client.settle(consumer, 1, 2)
        found = await client.next(Deliver)
        assert (found.count, found.keys_out) == (1, False), "nothing is left"
