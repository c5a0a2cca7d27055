"""The proxy: each direction is cut, slowed and healed alone, and no byte is lost or swapped."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.jepsen.network import FAR_S, Links
from tests.jepsen.proxy import CHUNK_BYTES, Direction, Proxy
from tests.support.cluster import passed, within

SHORT_S = 0.15

MANY_BYTES = 64 * CHUNK_BYTES
"""Each 50 ms for itself they would take 3.2 s."""


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[Proxy, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A proxy in front of a server that answers with what it gets, and a connection through it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    proxy = Proxy(("127.0.0.1", server.sockets[0].getsockname()[1]), random.Random(1))
    await proxy.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield proxy, reader, writer
    finally:
        writer.close()
        await proxy.stop()
        server.close()


async def test_bytes_go_through_in_order() -> None:
    async with echo() as (proxy, reader, writer):
        proxy.there = Direction(delay_s=0.001, jitter_s=0.002, loss=0.01)
        sent = bytes(range(256)) * 40
        writer.write(sent)
        assert await within(reader.readexactly(len(sent))) == sent


async def test_a_far_link_takes_its_time_and_nothing_waits_for_what_is_before_it() -> None:
    async with echo() as (proxy, reader, writer):
        proxy.there = proxy.back = Direction(delay_s=FAR_S)
        began = time.monotonic()
        sent = random.Random(1).randbytes(MANY_BYTES)
        writer.write(sent)
        assert await within(reader.readexactly(len(sent))) == sent
        took = time.monotonic() - began
        assert took >= 2 * FAR_S
        assert took < MANY_BYTES / CHUNK_BYTES * FAR_S, "chunks wait for each other"


async def test_a_cut_holds_whichever_of_two_nodes_dials() -> None:
    links, heard = Links(random.Random(1)), asyncio.Queue[bytes]()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(await reader.readexactly(1))
        writer.close()

    nodes = {name: await asyncio.start_server(hear, "127.0.0.1", 0) for name in ("n1", "n2")}
    peers = {name: f"127.0.0.1:{one.sockets[0].getsockname()[1]}" for name, one in nodes.items()}
    for name, peer in peers.items():
        await links.join(name, peer)
    try:
        for sender, receiver in (("n1", "n2"), ("n2", "n1")):
            links.cut(sender, receiver)
            host, port = links.dials()[f"{sender}>{peers[receiver]}"].split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"a")
            await passed(SHORT_S)
            assert heard.empty()
            links.heal()
            assert await within(heard.get()) == b"a"
            writer.close()
    finally:
        await links.stop()
        for one in nodes.values():
            one.close()


@pytest.mark.parametrize("way", ["there", "back"])
async def test_a_cut_direction_stalls_until_it_is_healed(way: str) -> None:
    async with echo() as (proxy, reader, writer):
        getattr(proxy, way).cut = True
        writer.write(b"hello")
        answer = asyncio.ensure_future(reader.readexactly(5))
        await passed(SHORT_S)
        assert not answer.done()
        proxy.heal()
        assert await within(answer) == b"hello"


async def test_a_reset_breaks_open_connections_and_accepts_new_ones() -> None:
    async with echo() as (proxy, reader, writer):
        writer.write(b"a")
        assert await within(reader.readexactly(1)) == b"a"
        proxy.reset()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await within(reader.readexactly(1))
        again, other = await asyncio.open_connection("127.0.0.1", proxy.port)
        other.write(b"b")
        assert await within(again.readexactly(1)) == b"b"
        other.close()
