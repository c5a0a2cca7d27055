"""Real nodes of which one has no descriptor left: its connections to the others come back.

The kernel sets the limit, clients take all that it allows, and more of them wait to be accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import fifo
from tests.node.cli.disks import WAIT_SECONDS, Nodes, three
from tests.support.cluster import eventually, passed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

FULL = "n2"
"""The node that has none left: dials n1, and is dialed by n3."""

LEFT = 4
"""Descriptors that clients can take."""


def descriptors(pid: int) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{pid}/fd")]


@asynccontextmanager
async def no_descriptor_left(nodes: Nodes) -> AsyncIterator[int]:
    """Have clients take all that a node may have; as many again wait, and take what it closes.
    Yields the number that it may have."""
    pid = nodes.processes[FULL].pid
    most = max(descriptors(pid)) + 1 + LEFT
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))
    url = f"fifo://{nodes.config.node(FULL).client}"
    free = most - len(descriptors(pid))
    over = asyncio.Event()
    async with contextlib.AsyncExitStack() as opened:

        async def hold() -> None:
            async with fifo.connect(url, connect_timeout=WAIT_SECONDS):
                await over.wait()

        tasks = [asyncio.ensure_future(hold()) for _ in range(2 * free)]
        for task in tasks:
            opened.callback(task.cancel)
        yield most


async def follows(nodes: Nodes, name: str) -> None:
    """Wait until a node has heard from the leader."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            status = await nodes.status(name)
            if status is not None and status["leader"] == FULL:
                return
            await passed(0.05)


async def test_members_come_back_to_a_leader_that_has_no_descriptor_left(tmp_path: Path) -> None:
    with three(tmp_path) as nodes:
        url = f"fifo://{nodes.config.node(FULL).client}"
        async with fifo.connect(nodes.config.url, connect_timeout=WAIT_SECONDS) as any_client:
            await any_client.declare(fifo.QueueSpec("orders"))
            await any_client.transfer_leadership(FULL)
        pid = nodes.processes[FULL].pid
        async with (
            fifo.connect(url, timeout=WAIT_SECONDS, connect_timeout=WAIT_SECONDS) as client,
            no_descriptor_left(nodes) as most,
        ):

            def full() -> bool:
                return len(descriptors(pid)) == most

            await client.publish("orders", b"before")
            for cut in ("n1", "n3"):
                nodes.kill(cut)
                await eventually(full)
                nodes.start(cut)
                await follows(nodes, cut)
                await eventually(full)
                await client.publish("orders", b"x")
            status = await client.status()
        assert status.role == "leader"
        said = nodes.log(FULL).read_text()
        assert "Traceback" not in said
        assert "accept_failed" in said
