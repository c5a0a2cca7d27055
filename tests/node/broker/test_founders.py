"""While the log names no members each node goes by its file, whose list may not change then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from node.raft.errors import RaftStopped
from node.server import Node
from tests.support.cluster import LocalCluster, loopback_config, running


@pytest.mark.parametrize("names", [("n1", "n2", "n3", "n4", "n5"), ("n1", "n2"), ("n1",)])
async def test_a_member_whose_file_has_another_list_does_not_start(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Two of three and three of five, or one of one, could both be majorities."""
    async with running(tmp_path, count=3) as cluster:
        await cluster.leader()
    config = loopback_config(tmp_path, 5)
    other = replace(config, nodes=tuple(node for node in config.nodes if node.name in names))
    with pytest.raises(RaftStopped, match=r"began with .* n1, n2, n3, and the file names"):
        await Node(other, "n1").start()


async def test_a_member_starts_with_the_same_list_in_another_order(tmp_path: Path) -> None:
    async with running(tmp_path, count=3) as cluster:
        await cluster.leader()
    again = LocalCluster(replace(cluster.config, nodes=cluster.config.nodes[::-1]))
    try:
        await again.start()
        await again.leader()
    finally:
        await again.stop()


async def test_a_list_may_be_mended_before_the_cluster_has_begun(tmp_path: Path) -> None:
    whole = loopback_config(tmp_path, 3)
    waits = Node(replace(whole, nodes=whole.nodes[:2]), "n1")
    await waits.start()
    await waits.stop()
    cluster = LocalCluster(whole)
    try:
        await cluster.start()
        await cluster.leader()
    finally:
        await cluster.stop()
