"""`fifo verify`: replicas compared at one index while they serve, and a wrong one named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import fifo
from fifo.client.copying import NodeReader
from node.cli.verify import DIFFERS, EQUAL, UNKNOWN, Member, judge
from node.server import Node
from tests.node.cli.local import Done
from tests.support.cluster import passed
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60), pytest.mark.slow]


@pytest.fixture
async def client(shared_cluster: SharedCluster) -> AsyncIterator[fifo.Client]:
    """A client of the cluster, closed in the end."""
    async with fifo.connect(shared_cluster.url) as found:
        yield found


async def verified(cli: Callable[..., Done], cluster: SharedCluster) -> tuple[int, dict[str, str]]:
    """Exit code, and verdict of each node."""
    done = await asyncio.to_thread(cli, "verify", "--url", cluster.url, "--json")
    return done.code, {one["node"]: one["verdict"] for one in done.json["nodes"]}


async def test_replicas_are_equal_at_one_index_under_load(
    cli: Callable[..., Done], client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    await client.declare(fifo.QueueSpec("orders"))

    async def load() -> None:
        while True:
            await client.publish_many("orders", [b"x" * 100] * 50)
            await client.settle_many(await client.get("orders", 30))

    loads = [asyncio.create_task(load()) for _ in range(3)]
    try:
        for _ in range(3):
            done = await asyncio.to_thread(cli, "verify", "--url", shared_cluster.url, "--json")
            assert done.code == 0, done
            nodes = done.json["nodes"]
            assert [one["verdict"] for one in nodes] == ["equal"] * 3
            assert len({(one["index"], one["digest"], one["state_bytes"]) for one in nodes}) == 1
            assert not any(one.done() for one in loads)
    finally:
        for one in loads:
            one.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
    counts = [len(node.broker._pins or ()) for node in shared_cluster.nodes.values()]
    assert counts == [0, 0, 0], "no view is left behind"


async def test_a_flipped_field_that_no_entry_touches_is_found(
    cli: Callable[..., Done], client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish_many("orders", [b"%d" % n for n in range(100)])
    await shared_cluster.leader()
    follower = shared_cluster.followers()[0]

    async def flip(node: Node) -> None:
        """Flip a bit of when a message was published."""
        state: Any = node.broker.host.machine.state
        queue = state.queues[state.queue_names["orders"]]
        next(iter(queue.blocks.values())).walls[0] ^= 1

    assert (await verified(cli, shared_cluster))[0] == 0
    await shared_cluster.there(flip(follower))
    try:
        await client.publish("orders", b"the running hash sees nothing of it")
        code, verdicts = await verified(cli, shared_cluster)
        wanted = dict.fromkeys(shared_cluster.nodes, "equal") | {follower.me.name: "differs"}
        assert (code, verdicts) == (1, wanted)
        shown = await asyncio.to_thread(cli, "verify", "--url", shared_cluster.url)
        assert f"the state of {follower.me.name} is not that of the majority" in shown.err
    finally:
        await shared_cluster.there(flip(follower))
    assert (await verified(cli, shared_cluster))[0] == 0


async def test_a_node_that_cannot_be_compared_is_named(
    cli: Callable[..., Done], shared_cluster: SharedCluster
) -> None:
    await shared_cluster.leader()
    name = shared_cluster.followers()[0].me.name
    await shared_cluster.stop(name)
    done = await asyncio.to_thread(cli, "verify", "--url", shared_cluster.url, "--json")
    assert done.code == 1
    found = {one["node"]: one for one in done.json["nodes"]}
    assert found[name]["verdict"] == "not compared"
    assert "does not answer" in found[name]["problem"]
    others = [one["verdict"] for node, one in found.items() if node != name]
    assert others == ["equal", "equal"]


async def test_an_index_that_is_past_or_not_reached_is_refused(
    client: fifo.Client, shared_cluster: SharedCluster
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    session: Any = client._session
    address = str(shared_cluster.config.nodes[0].client)
    reader = await NodeReader.open(address, session.options)
    try:
        with pytest.raises(fifo.Overloaded, match=r"has applied \d+ entries: 1 is past"):
            await reader.pin(1, exactly=True)
        view = await reader.pin(2)
        ahead = view.index + 5
        pinning = asyncio.create_task(reader.pin(ahead, exactly=True))
        await passed(0.05)
        assert not pinning.done()
        for number in range(20):
            await client.publish("orders", b"%d" % number)
        found = await pinning
        assert found.index == ahead
        await reader.unpin(found)
        await reader.unpin(view)
        with pytest.raises(fifo.Overloaded, match=r"1000000 is not reached"):
            await reader.pin(1_000_000, exactly=True)
    finally:
        reader.close()


def test_a_verdict_needs_a_majority_of_all_members() -> None:
    def verdicts(*digests: bytes) -> list[str]:
        members = [Member(f"n{at}", "", "", digest=one) for at, one in enumerate(digests)]
        judge(members)
        return [one.verdict for one in members]

    assert verdicts(b"a", b"a", b"a") == [EQUAL] * 3
    assert verdicts(b"a", b"b", b"a") == [EQUAL, DIFFERS, EQUAL]
    assert verdicts(b"a", b"a", b"") == [EQUAL, EQUAL, UNKNOWN]
    assert verdicts(b"a", b"b", b"") == [DIFFERS, DIFFERS, UNKNOWN]
    assert verdicts(b"a", b"b", b"c") == [DIFFERS] * 3
    assert verdicts(b"a", b"", b"") == [UNKNOWN] * 3
    assert verdicts(b"a") == [EQUAL]
    assert verdicts(b"", b"", b"") == [UNKNOWN] * 3
    assert verdicts(b"a", b"a", b"b", b"b", b"") == [DIFFERS] * 4 + [UNKNOWN]
