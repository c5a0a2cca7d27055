"""The ports of a node: accepting, and the number of connections that fit beside its own files."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import socket
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from fifo.wire.messages import Error
from node.broker import limits
from node.broker.connections.listener import fitting
from node.http.server import HttpServer
from node.server import Node
from tests.support.cluster import loopback_config, running, within
from tests.support.rawclient import RawClient, connected
from tests.support.users import certificate


@pytest.mark.process
@pytest.mark.parametrize(
    ("port", "tls"), [("client", False), ("client", True), ("peer", False), ("http", False)]
)
async def test_a_node_that_stops_just_after_accepting_leaves_no_socket_without_an_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: str, tls: bool
) -> None:
    config = loopback_config(tmp_path, 1)
    if tls:
        config = replace(config, tls=certificate(tmp_path / "certs").settings)
    node = Node(config, "n1", http=HttpServer)
    await node.start()
    loop = asyncio.get_running_loop()
    address = getattr(node.me, port)
    stopping: list[asyncio.Task[None]] = []
    accept = socket.socket.accept

    def accept_and_stop(self: socket.socket) -> object:
        accepted = accept(self)
        if not stopping:
            # It stands in the loop's queue before whatever follows the accepting.
            stopping.append(loop.create_task(node.crash()))
        return accepted

    monkeypatch.setattr(socket.socket, "accept", accept_and_stop)
    with warnings.catch_warnings(record=True) as warned, socket.socket() as peer:
        warnings.simplefilter("always")
        peer.setblocking(False)
        await loop.sock_connect(peer, (address.host, address.port))
        with contextlib.suppress(ConnectionResetError):
            assert await within(loop.sock_recv(peer, 1)) == b""
        await within(stopping[0])
        gc.collect()
    assert not [str(one.message) for one in warned]


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        (resource.RLIM_INFINITY, limits.CONNECTIONS_MAX),
        (1_000_000, limits.CONNECTIONS_MAX),
        (4_096, 4_096 - limits.DESCRIPTORS_RESERVED),
        (1_024, 512),
        (256, 64),
    ],
)
def test_connections_leave_room_for_the_nodes_own_files(given: int, fits: int) -> None:
    assert fitting(given) == fits


async def test_one_connection_too_many_gets_an_error_and_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        node.broker.connections.connections_max = 3
        clients = [await connected(node.me.client) for _ in range(3)]
        late = await RawClient().connect(node.me.client)
        said = await late.closed()
        assert isinstance(said[-1], Error)
        assert said[-1].code == "overloaded"
        await clients[0].declare("q")
