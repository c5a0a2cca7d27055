"""The PROXY protocol: both versions read to the byte, and a node behind a balancer."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fifo
from node.broker.connections.proxy_header import (
    SIGNATURE,
    HeaderInvalid,
    Source,
    read_source,
)
from node.config import Address, Network, load_config, to_toml
from node.server import Node
from node.table import ConfigError
from node.users import User
from tests.support.cluster import loopback_config
from tests.support.users import EVERYTHING, user

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


def v2(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, family, len(body)) + body


def tcp4(host: str, port: int, more: bytes = b"") -> bytes:
    ends = ipaddress.ip_address(host).packed + ipaddress.ip_address("10.0.0.9").packed
    return v2(0x21, 0x11, ends + struct.pack("!HH", port, 7101) + more)


TCP6 = v2(0x21, 0x21, ipaddress.ip_address("2001:db8::7").packed * 2 + struct.pack("!HH", 5, 6))


class Stream:
    """Bytes that are read exactly, and the rest of them."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    async def read(self, count: int) -> bytes:
        if len(self.rest) < count:
            raise HeaderInvalid("cut")
        found, self.rest = self.rest[:count], self.rest[count:]
        return found


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.9 50000 7101\r\n", Source("192.0.2.7", 50_000)),
        (b"PROXY TCP6 2001:db8::7 ::1 1 2\r\n", Source("2001:db8::7", 1)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        (tcp4("192.0.2.7", 50_000), Source("192.0.2.7", 50_000)),
        (tcp4("192.0.2.7", 50_000, b"\x04\x00\x01x"), Source("192.0.2.7", 50_000)),
        (TCP6, Source("2001:db8::7", 5)),
        (v2(0x20, 0x00, b""), None),
        (v2(0x21, 0x31, bytes(216)), None),
    ],
)
async def test_a_header_is_read_to_its_last_byte_and_no_further(
    header: bytes, wanted: Source | None
) -> None:
    stream = Stream(header + b"\x16\x03\x01what follows")
    assert await read_source(stream.read) == wanted
    assert stream.rest == b"\x16\x03\x01what follows"


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00more", "no PROXY header"),
        (b"PROXY TCP4 192.0.2.7 10.0.0.9 50000 7101" + b" " * 100, "more than 107 bytes"),
        (b"PROXY TCP4 192.0.2.7 10.0.0.9 50000\r\n", "with two addresses"),
        (b"PROXY UDP4 192.0.2.7 10.0.0.9 1 2\r\n", "that is not TCP4, TCP6"),
        (b"PROXY TCP4 somewhere 10.0.0.9 1 2\r\n", "is no address"),
        (b"PROXY TCP4 ::1 10.0.0.9 1 2\r\n", "of another family"),
        (b"PROXY TCP4 192.0.2.7 10.0.0.9 99999 2\r\n", "port is no number"),
        (v2(0x11, 0x11, bytes(12)), "version and command 0x11"),
        (v2(0x22, 0x11, bytes(12)), "version and command 0x22"),
        (v2(0x21, 0x11, bytes(11)), "that is cut"),
        (SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 2_049), "2049 bytes, at most 2048"),
    ],
)
async def test_what_is_no_header_is_refused(header: bytes, words: str) -> None:
    with pytest.raises(HeaderInvalid, match=words):
        await read_source(Stream(header).read)


def test_balancers_are_addresses_and_networks_of_the_file(tmp_path: Path) -> None:
    config = replace(loopback_config(tmp_path, 1), balancers=LOOPBACK)
    assert config.path is not None
    config.path.parent.mkdir(parents=True, exist_ok=True)
    config.path.write_text(to_toml(config))
    assert load_config(config.path).balancers == LOOPBACK
    config.path.write_text(to_toml(config).replace("127.0.0.0/8", "127.0.0.1/8"))
    with pytest.raises(ConfigError, match=r"\[cluster\] balancers: 127.0.0.1/8 has host bits set"):
        load_config(config.path)


class Balancer:
    """A balancer in the process: each connection begins with this header."""

    def __init__(self, target: Address, header: bytes) -> None:
        self._target = target
        self._header = header
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _forward(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, there = await asyncio.open_connection(self._target.host, self._target.port)
        there.write(self._header)
        ways = [self._copy(near, there), self._copy(far, back)]
        self._tasks |= {asyncio.ensure_future(way) for way in ways}

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                target.write(data)
        except OSError:
            pass
        finally:
            target.close()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def behind(
    folder: Path, header: bytes, *users: User, balancers: tuple[Network, ...] = LOOPBACK
) -> AsyncIterator[tuple[Node, str]]:
    """A node whose clients come through a balancer on this machine, and its address."""
    config = replace(loopback_config(folder, 1), users=users, balancers=balancers)
    node = Node(config, "n1")
    await node.start()
    # A session's second connection goes to the address of the file, which is the balancer's here.
    balancer = Balancer(config.nodes[0].client, header)
    try:
        yield node, await balancer.start()
    finally:
        await balancer.close()
        await node.stop()


@pytest.mark.slow
async def test_a_client_behind_a_balancer_is_known_by_its_own_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = b"PROXY TCP4 192.0.2.7 10.0.0.9 50000 7101\r\n"
    watcher = user("watcher", **EVERYTHING, monitor=True)
    async with behind(tmp_path, header, watcher) as (node, address):
        status = await fifo.client.observe(
            address, 10, options=fifo.client.from_url(f"fifo://watcher:watcher-password@{address}")
        )
        assert dict(status)["role"] == "leader"
        hosts: list[str] = []
        check = node.authentication.check

        def noted(host: str, *more: Any) -> None:
            hosts.append(host)
            check(host, *more)

        monkeypatch.setattr(node.authentication, "check", noted)
        await fifo.client.observe(
            address, 10, options=fifo.client.from_url(f"fifo://watcher:watcher-password@{address}")
        )
        assert hosts == ["192.0.2.7"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "header", [b"PROXY TCP4 127.0.0.1 10.0.0.9 5 7101\r\n", v2(0x20, 0, b"")], ids=["v1", "local"]
)
async def test_no_client_behind_a_balancer_is_the_user_of_loopback(
    tmp_path: Path, header: bytes
) -> None:
    local = User("local", loopback=True, monitor=True)
    async with behind(tmp_path, header, local) as (_, address):
        with pytest.raises(fifo.AuthenticationFailed):
            await fifo.client.observe(address, 10)


@pytest.mark.slow
async def test_a_balancer_without_a_header_is_cut_off(tmp_path: Path) -> None:
    async with behind(tmp_path, b"") as (_, address):
        with pytest.raises((fifo.FifoError, OSError)):
            await fifo.client.observe(address, 10)


@pytest.mark.slow
async def test_a_header_of_any_other_address_is_not_believed(tmp_path: Path) -> None:
    """Such a client connects without one, and with one it speaks no protocol of this port."""
    others = (ipaddress.ip_network("192.0.2.0/24"),)
    header = b"PROXY TCP4 192.0.2.7 10.0.0.9 50000 7101\r\n"
    async with behind(tmp_path, header, balancers=others) as (node, address):
        with pytest.raises((fifo.FifoError, OSError)):
            await fifo.client.observe(address, 10)
        assert dict(await fifo.client.observe(str(node.me.client), 10))["role"] == "leader"
