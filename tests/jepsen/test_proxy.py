"""The proxy: each direction is cut, slowed and healed alone, and no byte is lost or swapped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.jepsen.proxy import Direction, Proxy
from tests.support.cluster import passed, within

SHORT_S = 0.15


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
