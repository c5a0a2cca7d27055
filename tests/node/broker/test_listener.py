"""The ports of a node between accepting a socket and handing it to its protocol."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from node.http.server import HttpServer
from node.server import Node
from tests.support.cluster import loopback_config, within
from tests.support.users import certificate


@pytest.mark.process
@pytest.mark.parametrize(
    ("port", "tls"), [("client", False), ("client", True), ("peer", False), ("http", False)]
)
async def test_a_node_that_stops_just_after_accepting_leaves_no_socket_to_nobody(
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
