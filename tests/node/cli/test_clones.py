"""Two processes of one journal that live, each connected to another member: real nodes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import fifo
from bench.loopback import free_ports
from node.cli.folders import adopt
from node.config import Address, ClusterConfig, to_toml
from node.server import Node
from tests.support.cluster import LocalCluster, eventually, loopback_config
from tests.support.raft_probe import core, running_raft

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(120)]


def without(config: ClusterConfig, name: str, **own: Any) -> ClusterConfig:
    """The configuration of n3 in which nothing listens where this member does; the member with the
    greater name dials. `own`: other fields of n3."""
    (port,) = free_ports(1)
    changed: dict[str, dict[str, Any]] = {name: {"peer": Address("127.0.0.1", port)}, "n3": own}
    nodes = tuple(replace(node, **changed.get(node.name, {})) for node in config.nodes)
    return replace(config, nodes=nodes)


def hears(node: Node, member: str, *, barred: bool) -> bool:
    """Whether a member is connected to a node, and is refused or counts."""
    found = core(running_raft(node))
    other = next(one for one in found.nodes if one.id == member)
    return other in found._said and (other in found._standings) == barred


async def test_a_clone_that_is_connected_to_another_member_is_refused_by_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = loopback_config(tmp_path, 3)
    cluster = LocalCluster(config)
    runs: list[Node] = []
    try:
        await cluster.start()
        async with fifo.connect(config.url) as client:
            await client.declare(fifo.QueueSpec("orders"))
            await client.publish("orders", b"before")
        await cluster.stop("n3")
        copy = tmp_path / "copy"
        shutil.copytree(config.node("n3").data_dir, copy)
        ports = [Address("127.0.0.1", port) for port in free_ports(3)]
        own = {"client": ports[0], "peer": ports[1], "http": ports[2], "data_dir": copy}
        cloned = without(config, "n1", **own)
        file = tmp_path / "clone.toml"
        file.write_text(to_toml(cloned))
        adopt(file, ["n3"])

        original, clone = Node(without(config, "n2"), "n3"), Node(cloned, "n3")
        runs.append(original)
        await original.start()
        await eventually(lambda: hears(cluster.nodes["n1"], "n3", barred=False))
        runs.append(clone)
        await clone.start()
        await eventually(lambda: "event=twice by=n2" in caplog.text)
        assert "reason=another process of n3 is connected to n1 and lives" in caplog.text
        assert "event=member_not_counted node=n3" in caplog.text
        assert hears(cluster.nodes["n2"], "n3", barred=True)
        assert hears(cluster.nodes["n1"], "n3", barred=False)
        assert not list(copy.glob("*.lost-*")), "nothing is given up while both live"
        await runs.pop().stop()
        async with fifo.connect(config.url) as client:
            await client.publish("orders", b"after")
            assert (await client.queue("orders")).ready == 2
    finally:
        for node in runs:
            await node.stop()
        await cluster.stop()
