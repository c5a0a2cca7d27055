"""A settlement by queue, consumer and token, on real nodes: it settles nothing of another queue."""

from __future__ import annotations

import pytest

import fifo
from tests.client.test_cluster import take
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


async def test_a_settlement_by_numbers_settles_nothing_of_another_queue(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.declare(fifo.QueueSpec("bills"))
    await client.publish("orders", b"one")
    async with fifo.connect(shared_cluster.url) as other, client.consume("orders") as messages:
        [message] = await take(messages, 1)
        number, token = message.consumer, message.token
        elsewhere = await other.settle("bills", number, token, handle=message.handle)
        assert elsewhere.status == "unknown_consumer"
        with pytest.raises(fifo.QueueNotFound):
            await other.settle("nowhere", number, token, handle=message.handle)
        with pytest.raises(fifo.InvalidArgument, match="is one of queue 'orders', not of 'bills'"):
            await client.settle("bills", number, token)
        assert (await client.queue("orders")).locked == 1
        settled = await other.settle("orders", number, token, handle=message.handle)
        assert settled.status == "ok"
        again = await other.settle("orders", number, token, handle=message.handle)
        assert again.status == "already_settled"
        assert (await client.queue("orders")).messages == 0
        await message.ack()
