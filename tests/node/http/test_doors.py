"""The http port is bounded: connections, time and bytes of requests."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

import fifo
from node.config import Address
from node.http import limits
from tests.node.http.alone import alone
from tests.node.http.test_health import asked
from tests.support.cluster import eventually, running, within
from tests.support.descriptors import no_descriptor_left

GET = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"


async def opened(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(address.host, address.port)


async def test_more_idle_connections_than_the_bound_lock_no_probe_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 300.0)  # none is closed for its silence
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        idle = [await opened(node.me.http) for _ in range(limits.CONNECTIONS_MAX + 10)]
        assert (await asked(node.me.http, "/health/live"))[0] == 200
        for reader, _ in idle[:11]:
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await within(reader.readexactly(1))
        assert not any(reader.at_eof() for reader, _ in idle[11:])
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize("sent", [b"", GET[:20]], ids=["nothing", "half"])
async def test_a_request_that_does_not_come_ends_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.2)
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        reader, writer = await opened(node.me.http)
        writer.write(sent)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await within(reader.readexactly(1))
        writer.close()


async def test_a_connection_that_asks_no_more_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_SECONDS", 0.2)
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        reader, writer = await opened(node.me.http)
        for _ in range(3):
            writer.write(GET)
            assert b"200 OK" in await within(reader.readuntil(b'live"}'))
        writer.write(GET[:20])
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await within(reader.readexactly(1))
        writer.close()


@pytest.mark.slow
async def test_requests_without_end_end_their_connection(tmp_path: Path) -> None:
    """A header that never ends, and a body that no page reads."""
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        lines = b"X: " + b"y" * 2_000 + b"\r\n"
        for begun, more in (
            (GET[:-2], lines),
            (GET[:-2] + b"Content-Length: 1000000000\r\n\r\n", b"z" * 2_000),
        ):
            reader, writer = await opened(node.me.http)
            writer.write(begun)
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                await within(_goes_on(reader, writer, more))
            writer.close()
        assert (await asked(node.me.http, "/health/live"))[0] == 200


@pytest.mark.slow
async def test_an_answer_that_is_not_read_ends_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(limits, "UNANSWERED_BYTES_MAX", 1 << 20)
    async with alone(tmp_path) as (node, port):
        with socket.create_connection((node.me.http.host, node.me.http.port)) as peer:
            peer.setblocking(False)
            peer.send(GET.replace(b"/health/live", b"/metrics") * 2_000)
            await eventually(lambda: port.connections == 1)
            await eventually(lambda: port.connections == 0)


async def _goes_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, more: bytes) -> None:
    for _ in range(10_000):
        writer.write(more)
        await writer.drain()
    await reader.read()


@pytest.mark.slow
async def test_a_lack_of_descriptors_is_an_alarm_and_passes(tmp_path: Path) -> None:
    """The node goes on, connections that it has are served, and publishes are taken."""
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with fifo.connect(f"fifo://{node.me.client}") as client:
            await client.declare(fifo.QueueSpec("orders"))
            with no_descriptor_left():
                await eventually(lambda: node.broker.alarms.active)
                await client.publish("orders", b"x")
                (alarm,) = (await client.status()).alarms
                assert alarm.alarm == "descriptors_low"
            await eventually(lambda: not node.broker.alarms.active)
