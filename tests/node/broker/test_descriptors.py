"""Clients never get the last descriptors: the journal needs them."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from fifo.wire.messages import Error
from node.broker import limits
from node.broker.connections import descriptors
from tests.support.cluster import running
from tests.support.rawclient import RawClient, connected


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
    assert descriptors.fitting(given) == fits


async def test_one_connection_too_many_is_told_so_and_closed(tmp_path: Path) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        node.broker._connections_max = 3
        clients = [await connected(node.me.client) for _ in range(3)]
        late = await RawClient().connect(node.me.client)
        said = await late.closed()
        assert isinstance(said[-1], Error)
        assert said[-1].code == "overloaded"
        await clients[0].declare("q")
