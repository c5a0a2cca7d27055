"""Following the next leader after the death of one, on simulated clusters in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import fifo
import fifo.testing
from fifo.testing import Cluster

pytestmark = pytest.mark.slow

SEEDS = range(6)


@asynccontextmanager
async def connected(seed: int, link_s: float) -> AsyncIterator[tuple[Cluster, fifo.Client]]:
    """A client of three nodes, with links of this delay between them."""
    async with (
        fifo.testing.cluster(nodes=3, seed=seed) as cluster,
        fifo.connect(cluster.url) as client,
    ):
        network = cluster._engine.network
        for one in cluster._engine.hosts.values():
            for other in cluster._engine.hosts.values():
                network.slow[one.at, other.at] = link_s
        await client.declare(fifo.QueueSpec("orders"))
        await client.publish("orders", b"one")
        yield cluster, client


async def next_leader(cluster: Cluster, killed: str) -> float:
    """The time at which another node leads, by the cluster's clock."""
    while cluster.leader in (None, killed):  # noqa: ASYNC110  # virtual time, and no event for it
        await asyncio.sleep(0.0005)
    return cluster.now


async def after_the_kill(cluster: Cluster, client: fifo.Client) -> tuple[float, float]:
    """Seconds from the death of the leader until another leads, and from then to a confirm."""
    killed_at = cluster.now
    elected = asyncio.create_task(next_leader(cluster, cluster.kill_leader()))
    await client.publish("orders", b"two")
    confirmed_at = cluster.now
    elected_at = await elected
    return elected_at - killed_at, confirmed_at - elected_at


def dials(cluster: Cluster) -> int:
    """Connections that clients have tried to open."""
    dialed = cluster._engine.network.dialed
    return sum(count for host, count in dialed.items() if host.startswith("client"))


@pytest.mark.parametrize("link_ms", [0, 5])
async def test_a_client_follows_to_the_next_leader_within_50_ms(link_ms: int) -> None:
    for seed in SEEDS:
        async with connected(seed, link_ms / 1000) as (cluster, client):
            electing_s, following_s = await after_the_kill(cluster, client)
            assert electing_s < 0.1, f"seed {seed}"
            assert following_s < 0.05, f"seed {seed}"


async def test_links_that_are_slower_than_a_question_is_repeated_delay_an_election_little() -> None:
    for seed in SEEDS:
        async with connected(seed, 0.03) as (cluster, client):
            electing_s, _ = await after_the_kill(cluster, client)
            assert electing_s < 0.3, f"seed {seed}"  # The links alone take 0.21 s.


async def test_who_asks_while_a_leader_is_elected_waits_for_its_name_and_dials_little() -> None:
    for seed in SEEDS:
        async with connected(seed, 0.02) as (cluster, client):
            before = dials(cluster)
            await after_the_kill(cluster, client)
            assert dials(cluster) - before < 12, f"seed {seed}"
