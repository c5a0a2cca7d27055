"""Is it alive, is it ready: over real HTTP."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp

from node.config import Address
from node.raft import RaftNode
from node.server import Node, not_ready
from tests.support.cluster import LocalCluster, eventually, loopback_config, running


async def asked(address: Address, path: str) -> tuple[int, dict[str, str]]:
    """Status and body of one GET."""
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://{address}{path}") as answer,
    ):
        return answer.status, await answer.json()


async def test_a_node_that_knows_a_leader_is_ready(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.leader()
        await eventually(lambda: all(node.unready() is None for node in cluster.nodes.values()))
        for node in cluster.nodes.values():
            assert await asked(node.me.http, "/health/live") == (200, {"status": "live"})
            assert await asked(node.me.http, "/health/ready") == (200, {"status": "ready"})


async def test_a_node_alone_in_its_cluster_is_alive_and_not_ready(tmp_path: Path) -> None:
    cluster = LocalCluster(loopback_config(tmp_path, 3))
    try:
        await cluster.start("n1")
        node: Node = cluster.nodes["n1"]
        assert (await asked(node.me.http, "/health/live"))[0] == 200
        status, body = await asked(node.me.http, "/health/ready")
        assert (status, body["reason"]) == (503, "no leader known")
    finally:
        await cluster.stop()


def test_a_node_that_is_far_behind_or_recovers_is_not_ready(tmp_path: Path) -> None:
    node = Node(loopback_config(tmp_path, 1), "n1")
    assert node.unready() == "stopping"
    for behind, waits_for, reason in (
        (1_000, None, None),
        (1_001, None, "1001 entries behind"),
        (0, "the terms of n2", "recovering: waits for the terms of n2"),
    ):
        raft = SimpleNamespace(leader="n2", commit_index=5_000, applied_index=5_000 - behind)
        raft.waits_for = lambda told=waits_for: told
        assert not_ready(cast("RaftNode", raft)) == reason


async def test_an_unknown_address_is_not_found(tmp_path: Path) -> None:
    async with (
        running(tmp_path, 1) as cluster,
        aiohttp.ClientSession() as client,
        client.get(f"http://{cluster.nodes['n1'].me.http}/etc/passwd") as answer,
    ):
        assert answer.status == 404
