"""Is it alive, is it ready: over real HTTP."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

import fifo
from node.config import Address
from node.raft import RaftNode
from node.server import Node, not_ready
from tests.support.cluster import LocalCluster, eventually, loopback_config, running


async def asked(address: Address, path: str) -> tuple[int, dict[str, Any]]:
    """Status and body of one GET."""
    async with (
        aiohttp.ClientSession() as client,
        client.get(f"http://{address}{path}") as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.slow
async def test_a_node_that_knows_a_leader_is_ready(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await cluster.leader()
        await eventually(lambda: all(node.unready() is None for node in cluster.nodes.values()))
        for node in cluster.nodes.values():
            assert await asked(node.me.http, "/health/live") == (200, {"status": "live"})
            ready = {"status": "ready", "alarms": []}
            assert await asked(node.me.http, "/health/ready") == (200, ready)


@pytest.mark.slow
async def test_an_alarm_is_shown_by_every_view_of_a_node(tmp_path: Path) -> None:
    """Publishing is refused, and everything that an operator looks at says so, and why."""
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with fifo.connect(f"fifo://{node.me.client}", timeout=0.5) as client:
            await client.declare(fifo.QueueSpec("orders"))
            low_bytes = node.broker.alarms.disk_low_bytes = 1 << 60
            await eventually(lambda: node.broker.alarms.active)
            with pytest.raises(fifo.Overloaded, match="the disk of n1 is low") as refused:
                await client.publish("orders", b"x")
            assert not refused.value.unknown
            _, body = await asked(node.me.http, "/health/ready")
            (alarm,) = body["alarms"]
            assert (alarm["alarm"], alarm["threshold_bytes"]) == ("disk_low", low_bytes)
            (queue,) = await client.queues()
            status = await client.status()
            for shown in (queue, await client.queue("orders"), status):
                (view,) = shown.alarms
                assert (view.alarm, view.threshold_bytes) == ("disk_low", low_bytes)
            assert status.disk_low_bytes == low_bytes
            assert 0 < status.disk_free_bytes < low_bytes
            node.broker.alarms.disk_low_bytes = 0
            await client.publish("orders", b"x", timeout=5.0)
            assert (await client.queue("orders")).alarms == ()


@pytest.mark.slow
async def test_a_leader_that_holds_too_much_for_its_clients_refuses_publishes(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with fifo.connect(f"fifo://{node.me.client}", timeout=0.5) as client:
            await client.declare(fifo.QueueSpec("orders"))
            node.broker.alarms.memory_high_bytes = -1
            await eventually(lambda: node.broker.alarms.active)
            with pytest.raises(fifo.Overloaded, match="bytes for clients that do not read"):
                await client.publish("orders", b"x")
            (alarm,) = (await client.status()).alarms
            assert (alarm.alarm, alarm.threshold_bytes) == ("memory_high", -1)


async def test_a_node_alone_in_its_cluster_is_alive_and_not_ready(tmp_path: Path) -> None:
    cluster = LocalCluster(loopback_config(tmp_path, 3))
    try:
        await cluster.start("n1")
        node: Node = cluster.nodes["n1"]
        assert (await asked(node.me.http, "/health/live"))[0] == 200
        status, body = await asked(node.me.http, "/health/ready")
        assert status == 503
        assert body["reason"].startswith(
            "has no voice yet: waits for a member that has its journal"
        )
        assert "not reached: n2, n3" in body["reason"]
    finally:
        await cluster.stop()


def test_a_node_that_is_far_behind_or_recovers_is_not_ready(tmp_path: Path) -> None:
    node = Node(loopback_config(tmp_path, 1), "n1")
    assert node.unready() == "stopping"
    for behind, waits_for, reason in (
        (1_000, None, None),
        (1_001, None, "1001 entries behind"),
        (0, "the terms of n2", "has no voice yet: waits for the terms of n2"),
    ):
        raft = SimpleNamespace(
            removed=False, leader="n2", commit_index=5_000, applied_index=5_000 - behind
        )
        raft.waits_for, raft.differs = (lambda told=waits_for: told), False
        raft.undecided = False
        assert not_ready(cast("RaftNode", raft)) == reason
    raft.waits_for, raft.differs = (lambda: None), True
    reason = "its state is not that of the majority, and is replaced by it"
    assert not_ready(cast("RaftNode", raft)) == reason
    raft.undecided = True
    reason = "the states of the members differ, and none is known to be right: see its log"
    assert not_ready(cast("RaftNode", raft)) == reason


def test_a_restarted_node_shows_no_totals_before_it_has_replayed_its_log(
    tmp_path: Path,
) -> None:
    """Totals that fall look like those of a process that began anew, and are counted twice."""
    node = Node(loopback_config(tmp_path, 1), "n1")
    assert not node.shows_totals()
    raft = SimpleNamespace(removed=False, leader="n2", commit_index=5_000, applied_index=4_999)
    raft.undecided = False
    raft.waits_for, raft.differs = (lambda: None), False
    node._raft = cast("RaftNode", raft)
    node._last_index_at_start = 5_000
    assert not node.shows_totals()
    raft.applied_index = 5_000
    assert node.shows_totals()
    raft.leader = None
    assert not node.shows_totals(), "cut off: what it shows may stand still, and then leap"


async def test_an_unknown_address_is_not_found(tmp_path: Path) -> None:
    async with (
        running(tmp_path, 1) as cluster,
        aiohttp.ClientSession() as client,
        client.get(f"http://{cluster.nodes['n1'].me.http}/etc/passwd") as answer,
    ):
        assert answer.status == 404


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/9.9.9\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_a_malformed_request_is_refused_and_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    caplog.set_level("DEBUG")
    async with running(tmp_path, 1) as cluster:
        node = cluster.nodes["n1"]
        reader, writer = await asyncio.open_connection(node.me.http.host, node.me.http.port)
        writer.write(sent)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.split(b" ", 1)[1].startswith(b"400 Bad Request")
    told = [record for record in caplog.records if "malformed" in record.getMessage()]
    assert len(told) == 1
    line = logging.Formatter().format(told[0])
    assert line.startswith("event=http_request_malformed host=127.0.0.1 error=")
    assert "\n" not in line
    assert "Traceback" not in caplog.text


async def test_malformed_requests_get_no_line_of_the_log_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with running(tmp_path, 1) as cluster:
        node = cluster.nodes["n1"]
        for _ in range(20):
            reader, writer = await asyncio.open_connection(node.me.http.host, node.me.http.port)
            writer.write(b"GET / HTTP/9.9.9\r\n\r\n")
            assert b"400 Bad Request" in await reader.read()
            writer.close()
            await writer.wait_closed()
    assert caplog.text.count("malformed") == 1
