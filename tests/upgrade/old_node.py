"""A node of an older release in a run of the fault suite, as `tests/jepsen/node.py` is today's.

It is run by that release's own modules and takes nothing of today's tests: they may ask for what an
older release does not have. Disks and clocks of such a node are as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
from pathlib import Path
from typing import Any

from node.config import (
    ClusterConfig,
    LimitSettings,
    NodeConfig,
    RaftSettings,
    cluster_id_of,
    parse_address,
)
from node.http.server import HttpServer
from node.server import Node


def view_of(plan: dict[str, Any], name: str) -> ClusterConfig:
    """The cluster as this node sees it: its peers where their proxies listen."""
    nodes = []
    for other, node in plan["nodes"].items():
        peer = node["peer"]
        if other != name:
            peer = plan["dials"].get(f"{name}>{peer}", peer)
        nodes.append(
            NodeConfig(
                name=other,
                client=parse_address(node["door" if other != name else "client"]),
                peer=parse_address(peer),
                http=parse_address(node["http"]),
                data_dir=Path(node["data"]),
            )
        )
    return ClusterConfig(
        name="jepsen",
        cluster_id=cluster_id_of("jepsen"),
        secret=b"a secret of the fault suite",
        nodes=tuple(nodes),
        raft=RaftSettings(**plan["raft"]),
        limits=LimitSettings(**plan["limits"]),
    )


def described(node: Node) -> dict[str, Any]:
    """The state of the machine of this node, for rule S12."""
    machine = node.broker.host.machine
    status = node.raft_status()
    queues = {}
    for name in machine.queues():
        overview = machine.queue_overview(name) or {}
        kept = ("messages", "ready", "locked", "delayed", "counters")
        queues[name] = {field: overview[field] for field in kept}
    applied = -1 if status is None else status.applied_index
    return {"applied": applied, "hash": machine.digest().hex(), "queues": queues}


async def live(folder: Path, name: str, *, recover: bool) -> None:
    """Until SIGTERM, or until the node cannot go on."""
    plan = json.loads((folder / "cluster.json").read_text())
    node = Node(view_of(plan, name), name, http=HttpServer, recover=recover)
    asked = asyncio.Event()

    def tell() -> None:
        fresh = folder / f"{name}.state.fresh"
        fresh.write_text(json.dumps(described(node)))
        fresh.rename(folder / f"{name}.state")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    loop.add_signal_handler(signal.SIGUSR2, tell)
    await node.start()
    running = asyncio.ensure_future(node.run())
    stopping = asyncio.ensure_future(asked.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    await node.stop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--recover", action="store_true")
    options = parser.parse_args()
    asyncio.run(live(options.folder, options.name, recover=options.recover))
