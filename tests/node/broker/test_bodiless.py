"""Which deliveries leave bodies out: those of which every fetch under way wants none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fifo.wire.messages import Durable, Ok
from node.broker.bodiless import Bodiless
from node.server import Node
from tests.support.cluster import running
from tests.support.rawclient import RawClient, connected

ONE, OTHER = (7, 1), (7, 2)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node that leads alone."""
    async with running(tmp_path, count=1) as cluster:
        yield await cluster.leader()


def test_bodies_are_left_out_only_where_all_fetches_under_way_leave_them_out() -> None:
    bodiless = Bodiless()
    assert not bodiless.covers(ONE)
    bodiless.begin(ONE, bodies=False)
    assert (bodiless.covers(ONE), bodiless.covers(OTHER)) == (True, False)
    bodiless.begin(ONE, bodies=True)
    assert not bodiless.covers(ONE), "one that wants bodies would miss them"
    bodiless.begin(ONE, bodies=False)
    bodiless.end(ONE, bodies=True)
    assert bodiless.covers(ONE)
    bodiless.end(ONE, bodies=False)
    bodiless.end(ONE, bodies=False)
    assert not bodiless.covers(ONE)


@pytest.mark.slow
async def test_each_fetch_of_a_consumer_gets_the_bodies_that_it_wants(node: Node) -> None:
    """Over the wire, in turn: none, all, none."""
    client = await connected(node.me.client)
    await client.declare("q")
    await client.confirmed(client.publish("q", 0, 1, [b"x" * 100] * 2))
    opened = await client.ask(Durable("q", "d", "open"))
    assert isinstance(opened, Ok)
    consumer, generation = opened.result["consumer"], opened.result["generation"]

    async def ask(verb: str, first: int, last: int, *, bodies: bool = True) -> None:
        asked = Durable("q", "d", verb, generation, first, last, consumer=consumer, bodies=bodies)
        answer = await client.ask(asked)
        assert isinstance(answer, Ok), answer

    await ask("reserve", 1, 2)  # delivered by the fetches alone
    for wanted in (False, True, False):
        await ask("fetch", 1, 2, bodies=wanted)
        assert await _delivered(client) == [b"x" * 100 if wanted else b""] * 2


async def _delivered(client: RawClient) -> list[bytes]:
    """The bodies of tokens 1 and 2."""
    found: list[bytes] = []
    while len(found) < 2:
        found += (await client.delivery())[1]
    return found
