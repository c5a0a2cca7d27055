"""Connections between members where this process has no descriptor left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket

import pytest

from bench.loopback import free_ports
from node.peers import limits
from node.peers.accepting import listening_socket
from node.peers.dialing import DialingSockets
from tests.node.raft.test_transport import Member, until
from tests.support.descriptors import no_descriptor_left


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def take_all(opened: contextlib.AsyncExitStack) -> None:
    """Take what became free again."""
    with contextlib.suppress(OSError):
        while True:
            opened.callback(os.close, os.dup(0))


async def test_a_broken_connection_is_dialed_again_while_no_descriptor_is_left() -> None:
    async with contextlib.AsyncExitStack() as opened:
        listener = opened.enter_context(listening_socket(socket.AF_INET, ("127.0.0.1", 0)))
        b = Member("b", {"a": listener.getsockname()[1], "b": free_ports(1)[0]})
        opened.push_async_callback(b.transport.close)
        before = open_descriptors()
        await b.transport.start()
        accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
        # Its listener, both ends of the connection, and the next socket.
        await until(lambda: open_descriptors() == before + 4)
        opened.enter_context(no_descriptor_left())
        accepted.close()
        await until(lambda: not b.transport.handshakes)
        take_all(opened)
        await until(lambda: select.select([listener], [], [], 0)[0])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_dial_that_fails_keeps_its_socket_and_what_the_name_had(host: str) -> None:
    sockets = DialingSockets(host, free_ports(1)[0])
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            await sockets.connect(asyncio.Protocol, None)
    with no_descriptor_left():
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                await sockets.connect(asyncio.Protocol, None)
    sockets.close()


async def test_the_next_socket_is_made_once_the_system_has_one_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DIALING_SOCKET_RETRY_SECONDS", 0.02)
    sockets = DialingSockets("127.0.0.1", free_ports(1)[0])
    before = open_descriptors()
    ended = asyncio.get_running_loop().create_future()
    with no_descriptor_left():
        waiting = asyncio.ensure_future(sockets.keep_one(ended))
        await asyncio.sleep(0)
    assert open_descriptors() == before
    await until(lambda: open_descriptors() == before + 1)
    ended.set_result(None)
    await waiting
    sockets.close()
    assert open_descriptors() == before


async def test_members_connect_again_while_no_descriptor_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both of them in this process: one dials with the socket that it holds, and the other accepts
    with the descriptor that it gives up."""
    monkeypatch.setattr(limits, "DIAL_RETRY_SECONDS_MIN", 0.4)  # Others are quicker.
    async with contextlib.AsyncExitStack() as opened:
        ports = dict(zip("ab", free_ports(2), strict=True))
        a, b = Member("a", ports), Member("b", ports)
        for member in (a, b):
            opened.push_async_callback(member.transport.close)
            await member.transport.start()
        await until(lambda: a.present == {"b"} and b.present == {"a"})
        opened.enter_context(no_descriptor_left())
        b.transport._links["a"].close()
        await until(lambda: not a.present and not b.present)

        def together_and_nothing_free() -> bool:
            take_all(opened)
            return a.present == {"b"} and b.present == {"a"}

        await until(together_and_nothing_free)
        assert a.events == ["+b", "-b", "+b"]


async def test_what_accepting_gave_up_is_held_again_once_the_system_has_one() -> None:
    async with contextlib.AsyncExitStack() as opened:
        a = Member("a", dict(zip("ab", free_ports(2), strict=True)))
        opened.push_async_callback(a.transport.close)
        await a.transport.start()
        strangers = [opened.enter_context(socket.socket()) for _ in range(2)]
        for stranger in strangers:
            stranger.setblocking(False)
        before = open_descriptors()
        with no_descriptor_left():
            strangers[0].connect_ex(a.transport.address)
            await until(lambda: a.transport.handshakes == 1)
            strangers[1].connect_ex(a.transport.address)  # The first leaves its descriptor.
            await until(lambda: a.transport.counters.accept_failures_total > 0)
            await until(lambda: a.transport.counters.accepted_total == 2)
        for stranger in strangers:
            stranger.close()
        await until(lambda: not a.transport.handshakes)
        await until(lambda: open_descriptors() == before - 2)
