"""The cluster that many tests share: each finds it whole and empty, whatever the one before did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import fifo

if TYPE_CHECKING:
    from tests.support.shared import SharedCluster, SharedClusters

pytestmark = pytest.mark.cluster


async def is_whole_and_empty(cluster: SharedCluster) -> bool:
    async with fifo.connect(cluster.url) as client:
        status = await client.status()
        empty = (status.sessions, await client.queues()) == (1, [])
        return empty and all(peer.connected for peer in status.peers)


async def test_a_crashed_node_and_queues_with_all_that_is_in_them_are_put_right(
    shared_clusters: SharedClusters, shared_cluster: SharedCluster
) -> None:
    async with fifo.connect(shared_cluster.url) as client:
        await client.declare(fifo.QueueSpec("dlq"))
        await client.declare(fifo.QueueSpec("q", dead_letter="dlq"))
        producer = await client.open_producer("loader")
        await producer.publish_many("q", [b"1", b"2", b"3"])
        await client.durable("q", "reader").reserve(1)
        [message] = await client.get("q")
        await message.terminate("why")
        await client.redrive("dlq", "q", rate=1)
        await shared_cluster.crash_leader()
    assert shared_clusters.ready() is shared_cluster
    assert await is_whole_and_empty(shared_cluster)


async def test_a_client_that_was_left_open_makes_a_new_cluster(
    shared_clusters: SharedClusters, shared_cluster: SharedCluster
) -> None:
    async with fifo.connect(shared_cluster.url) as left:
        await left.declare(fifo.QueueSpec("q"))
        other = shared_clusters.ready()
        assert other is not shared_cluster
        assert await is_whole_and_empty(other)
