"""The same on both event loops: uvloop, and plain asyncio where it does not install."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from bench.loopback import free_ports
from node.broker.connections.listener import Listener
from tests.support import rawclient
from tests.support.cluster import eventually, leadership_of, running, within
from tests.support.rawclient import connected


async def many_megabytes_to_a_slow_reader(folder: Path) -> None:
    """64 MiB through a consumer that stops reading for a while."""
    async with running(folder, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        await client.declare("q")
        body = os.urandom(1 << 18)
        for number in range(1, 65):
            last = client.publish("q", number - 1, number, [body])
        await client.confirmed(last)
        consumer = await connected(node.me.client)
        number = (await consumer.subscribe("q", prefetch=64)).consumer
        (connection,) = [
            session.data for session in leadership_of(node).sessions if session.epochs == [1, 0]
            and session.session_id == consumer.session
        ]  # fmt: skip
        assert connection is not None
        await eventually(lambda: connection.output.blocked)
        assert connection.output.waiting_bytes == 0, "what waits, waits as handles"
        received: list[bytes] = []
        while len(received) < 64:
            received += (await consumer.delivery())[1]
        assert received == [body] * 64
        assert (await consumer.settle(number, 1, 64))[0][2] == 0
        await rawclient.close_all()


async def is_sent_at_once() -> bool:
    """Whether a connection that the client port has accepted sends each small frame at once."""
    accepted: asyncio.Future[asyncio.BaseTransport] = asyncio.get_running_loop().create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(transport)

    (port,) = free_ports(1)
    listener = Listener(None, Accepted)
    await listener.start("127.0.0.1", port)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    transport = await within(accepted)
    raw: socket.socket = transport.get_extra_info("socket")
    option = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    transport.close()
    writer.close()
    await writer.wait_closed()
    listener.close()
    return bool(option)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_no_frame_waits_until_the_one_before_it_is_acknowledged(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(is_sent_at_once())


@pytest.mark.slow
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_slow_reader_gets_everything(
    factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(many_megabytes_to_a_slow_reader(tmp_path))
