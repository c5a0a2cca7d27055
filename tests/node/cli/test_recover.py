"""Real nodes, one of which lost its journal: refused with the way out, then back by that way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from node.raft import RecoverRefused
from node.server import Node
from tests.node.cli.disks import WAIT_SECONDS, Nodes, cluster, consumed, publish
from tests.support.cluster import loopback_config, passed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.node.cli.local import Done

    Cli = Callable[..., Done]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LOST = "n2"


def damage(data: Path) -> str:
    """Flip a bit in the middle of what a journal's first segment holds, and name that."""
    segment = min(data.glob("*.segment"))
    content = bytearray(segment.read_bytes())
    content[len(content.rstrip(b"\0")) // 2] ^= 1
    segment.write_bytes(content)
    return segment.name


async def until(nodes: Nodes, name: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until what a node says of itself is as wanted."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (status := await nodes.status(name)) is None or not holds(status):
            await passed(0.05)


async def test_a_damaged_member_is_refused_then_recovers_while_the_others_serve(
    tmp_path: Path, cli: Cli
) -> None:
    async with cluster(tmp_path) as (nodes, client):
        sent = await publish(client, count=100)
        nodes.kill(LOST)
        member = nodes.config.node(LOST)
        name = damage(member.data_dir)
        old = (member.data_dir / name).read_bytes()

        nodes.start(LOST)
        line = await nodes.ended(LOST)
        assert f"node {LOST} cannot start: journal damaged: {name} at byte " in line
        assert "fifo serve --recover" in line
        assert (member.data_dir / name).read_bytes() == old

        sent += await publish(client)
        nodes.kill("n3")  # So that it has to wait, and is killed in the middle.
        nodes.start(LOST, "--recover")
        await until(nodes, LOST, lambda status: "the terms of n3" in str(status["recovering"]))
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{member.http}/health/ready") as answer,
        ):
            assert answer.status == 503
            assert "has no voice yet: waits for the terms of n3" in (await answer.json())["reason"]
        shown = await asyncio.to_thread(cli, "status", "--url", nodes.config.url)
        assert "recovering" in shown.out
        assert f"{LOST} does not count yet: it waits for the terms of n3" in shown.err
        nodes.kill(LOST)

        nodes.start("n3")
        nodes.start(LOST)
        while (await nodes.status(LOST) or {"recovering": ""})["recovering"] is not None:
            sent += await publish(client, count=5)
        log = nodes.log(LOST).read_text()
        for event in ("event=recovering waits_for=the terms of", "event=recovered"):
            assert event in log
        assert len(list(member.data_dir.glob(f"{name}.lost-*"))) == 1
        await nodes.until_level()

        nodes.kill("n3")  # What follows needs its vote, and what it has.
        sent += await publish(client)
        nodes.start("n3")
        assert await consumed(client, len(sent)) == sent


@pytest.mark.parametrize(
    ("members", "words"), [(1, "it is the only member"), (2, "in a group of two")]
)
async def test_recovery_without_a_majority_of_peers_is_refused_and_changes_nothing(
    tmp_path: Path, members: int, words: str
) -> None:
    node = Node(loopback_config(tmp_path, members), "n1", recover=True)
    with pytest.raises(RecoverRefused, match=words):
        await node.start()
    assert not node.me.data_dir.exists()
