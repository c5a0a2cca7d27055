"""A bit that flips on the disk of a real node, in a body that waits for its consumer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import fifo
from node.config import RaftSettings, cluster_config
from tests.node.cli.disks import NAMES, SICK, WAIT_SECONDS, Nodes, consumed, publish
from tests.node.cli.local import free_base_port
from tests.support.cluster import passed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]


def rot(data: Path, body: bytes) -> Path:
    """Flip a bit in the middle of a body, in the compacted file that it lies in."""
    for kept in data.glob("*.kept"):
        content = bytearray(kept.read_bytes())
        at = content.find(body)
        if at >= 0:
            content[at + len(body) // 2] ^= 1
            kept.write_bytes(content)
            return kept
    raise AssertionError("that body is in no compacted file")


async def until_compacted(nodes: Nodes, client: fifo.Client) -> None:
    """Publish and settle until what waits in other queues lies before the log on each node."""
    await client.declare(fifo.QueueSpec("churn"))
    folders = [nodes.config.node(name).data_dir for name in NAMES]
    async with asyncio.timeout(WAIT_SECONDS):
        while not all(any(folder.glob("*.kept")) for folder in folders):
            await client.publish_many("churn", [bytes(500_000)] * 20)
            while messages := await client.get("churn", 50):
                await asyncio.gather(*(message.ack() for message in messages))


async def until_back(nodes: Nodes) -> None:
    """Wait until the leader says that the node is connected and has everything."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            found = [await nodes.status(name) for name in NAMES if name != SICK]
            peers = [
                peer for one in found if one and one["role"] == "leader" for peer in one["peers"]
            ]
            if any(one["name"] == SICK and one["connected"] and not one["lag"] for one in peers):
                return
            await passed(0.05)


async def test_a_body_that_rots_before_its_delivery_is_delivered_as_it_was_published(
    tmp_path: Path,
) -> None:
    """The node leads and lives on; its disk has the body again."""
    made = cluster_config(3, free_base_port(), tmp_path)
    nodes = Nodes(replace(made, raft=RaftSettings(snapshot_bytes=8 << 20)), tmp_path)
    for name in NAMES:
        nodes.start(name)
    try:
        async with fifo.connect(
            nodes.config.url, timeout=WAIT_SECONDS, connect_timeout=WAIT_SECONDS
        ) as client:
            await client.declare(fifo.QueueSpec("orders"))
            sent = await publish(client, count=40)
            await until_compacted(nodes, client)
            await nodes.until_level()
            nodes.kill(SICK)
            kept = rot(nodes.data, sent[20])
            nodes.start(SICK)
            await until_back(nodes)
            await client.transfer_leadership(SICK)
            assert await consumed(client, len(sent)) == sent
            await nodes.said(SICK, "event=entry_repaired")
            assert nodes.processes[SICK].poll() is None
            async with asyncio.timeout(WAIT_SECONDS):
                while kept.exists() and sent[20] not in kept.read_bytes():
                    await passed(0.05)
            log = nodes.log(SICK).read_text()
            assert f"event=entry_damaged file={kept.name} byte=" in log
    finally:
        nodes.stop()
