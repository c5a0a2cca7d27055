"""Proves that no connection outlives its client: not a cancelled dial's, not one with unsent bytes.

A socket that is left to the garbage collector is a ResourceWarning in the program's log, and for
the node a client that still seems to be there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest

import fifo
from fifo.client.connection.dialing import connect
from fifo.client.connection.environment import Environment
from fifo.client.connection.link import Link
from fifo.wire.limits import MIB
from fifo.wire.messages import Subscribe
from tests.support.users import certificate
from tests.support.wire_peer import Line, Peer, subscribe_as, until, welcome

if TYPE_CHECKING:
    from pathlib import Path

    from fifo.wire.messages import Hello, Message


def after_turns(turns: int, cancelled: asyncio.Task[fifo.Client]) -> None:
    """Cancel a task after this many turns of the loop."""
    if turns:
        asyncio.get_running_loop().call_soon(after_turns, turns - 1, cancelled)
    else:
        cancelled.cancel()


async def connected(url: str) -> fifo.Client:
    return await fifo.connect(url)


@pytest.mark.parametrize("turns", range(10))
@pytest.mark.slow
async def test_a_dial_cancelled_around_the_welcome_leaves_no_connection(turns: int) -> None:
    """The winner's connection has no owner yet while those that lost the race are ended."""
    async with Peer() as silent, Peer() as leader:

        def opening(line: Line, hello: Hello) -> Message:
            after_turns(turns, connecting)
            return welcome(line, hello)

        silent.opening = lambda line, hello: None
        leader.opening = opening
        connecting = asyncio.create_task(connected(f"fifo://{silent.address},{leader.address}"))
        with contextlib.suppress(asyncio.CancelledError):
            await (await connecting).close()
        await until(lambda: not silent.lines and not leader.lines)


@pytest.mark.process
async def test_a_tls_connection_cancelled_when_it_is_made_waits_for_no_goodbye(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused node answers no close_notify; asyncio would wait half a minute for it."""
    made = certificate(tmp_path)
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    links: list[Link] = []
    usual = Link.connection_made

    def connection_made(link: Link, transport: asyncio.BaseTransport) -> None:
        usual(link, transport)
        links.append(link)
        connecting.cancel()

    class Paused(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            paused.append(transport)

    paused: list[asyncio.Transport] = []
    monkeypatch.setattr(Link, "connection_made", connection_made)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Paused, "127.0.0.1", 0, ssl=listening)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    context = ssl.create_default_context(cafile=str(made.ca))
    connecting = asyncio.create_task(connect(address, Environment(), 5.0, context))
    try:
        with pytest.raises(asyncio.CancelledError):
            await connecting
        [link] = links
        await until(link.closed.done)
    finally:
        for transport in paused:
            transport.abort()
        server.close()
        await server.wait_closed()


async def test_a_client_closed_before_a_node_that_reads_nothing_leaves_no_connection() -> None:
    async with Peer() as peer:
        client = await fifo.connect(peer.url, window_bytes=64 * MIB, close_timeout=0.1)
        transport = peer.line()._transport
        assert transport is not None
        transport.pause_reading()
        publishing = asyncio.create_task(client.publish_many("orders", [b"x" * 500_000] * 100))
        publishing.add_done_callback(asyncio.Task.exception)  # looked at, should the wait fail
        link = client._session.link
        assert link is not None
        await until(lambda: not link.writable)
        await client.close()
        await until(link.closed.done)
        with pytest.raises(fifo.ClientClosed):
            await publishing


@pytest.mark.parametrize("turns", range(1, 6))
async def test_a_close_that_is_cancelled_twice_leaves_no_connection(turns: int) -> None:
    """The second one may come while the close waits for the control connection's thread."""
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(1)
        client = await fifo.connect(peer.url)
        consumer = client.consume("orders")
        await consumer.subscribe()
        await until(lambda: len(peer.lines) == 2)
        closing = asyncio.create_task(client.close())
        for _ in range(2):
            for _ in range(turns):
                await asyncio.sleep(0)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await until(lambda: not peer.lines)
