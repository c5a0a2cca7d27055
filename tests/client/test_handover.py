"""Leadership handed over under load, by request and by stopping: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import fifo
from tests.support.shared import SharedCluster
from tests.support.wire_peer import until

GAP_SECONDS = 2.0
"""Longest time without a confirm on a busy machine; tests/node/raft/test_transfer.py measures a
transfer in virtual time, where it is below 0.06 s."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


class Load:
    """Publishers and a consumer that go on all the time, and when each confirm came."""

    def __init__(self, client: fifo.Client) -> None:
        self._client = client
        self._stop = asyncio.Event()
        self.confirmed: list[bytes] = []
        self.at: list[float] = []
        self.seen: Counter[bytes] = Counter()

    async def publish(self, name: int) -> None:
        loop = asyncio.get_running_loop()
        for n in itertools.count():
            if self._stop.is_set():
                return
            body = b"%d-%d" % (name, n)
            await self._client.publish("orders", body)
            self.confirmed.append(body)
            self.at.append(loop.time())

    async def consume(self) -> None:
        async with self._client.consume("orders", prefetch=200) as messages:
            async for message in messages:
                async with message.process():
                    self.seen[message.body] += 1

    async def more(self, count: int = 200) -> None:
        """So many more confirms."""
        before = len(self.confirmed)
        await until(lambda: len(self.confirmed) > before + count, 20)

    async def end(self, publishing: list[asyncio.Task[None]]) -> None:
        """Stop, and check that each confirmed message came once."""
        self._stop.set()
        await asyncio.gather(*publishing)
        await until(lambda: len(self.seen) >= len(self.confirmed), 20)
        assert set(self.seen) == set(self.confirmed)
        assert set(self.seen.values()) == {1}, "a message was delivered twice"

    @property
    def longest_gap_s(self) -> float:
        """The longest time without a confirm."""
        return max(later - earlier for earlier, later in itertools.pairwise(self.at))


@asynccontextmanager
async def loaded(client: fifo.Client) -> AsyncIterator[Load]:
    """A load on the cluster; its own checks come in the end."""
    await client.declare(fifo.QueueSpec("orders"))
    load = Load(client)
    consuming = asyncio.create_task(load.consume())
    publishing = [asyncio.create_task(load.publish(name)) for name in range(5)]
    await load.more()
    yield load
    await load.end(publishing)
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)


async def test_leadership_goes_round_under_load_and_nothing_is_lost_or_doubled(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    async with loaded(client) as load:
        for _ in range(2):
            for target in ("n1", "n2", "n3"):
                await client.transfer_leadership(target)
                assert (await shared_cluster.leader()).me.name == target
                assert (await client.status()).node == target
                await load.more()
    assert load.longest_gap_s < GAP_SECONDS


async def test_a_rolling_restart_costs_no_election_timeout(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    async with loaded(client) as load:
        for _ in range(3):
            leader = (await shared_cluster.leader()).me.name
            await shared_cluster.stop(leader)
            await load.more()
            await shared_cluster.start(leader)
            await load.more()
    assert load.longest_gap_s < GAP_SECONDS


async def test_an_impossible_transfer_is_one_clear_error(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    with pytest.raises(fifo.InvalidArgument, match="there is no node 'n9'; there are: n1"):
        await client.transfer_leadership("n9")
    gone = shared_cluster.followers()[0].me.name
    await shared_cluster.stop(gone)
    words = f"{gone} is not connected to the leader"
    with pytest.raises(fifo.InvalidArgument, match=words):
        await client.transfer_leadership(gone)
    await client.transfer_leadership((await client.status()).node)
