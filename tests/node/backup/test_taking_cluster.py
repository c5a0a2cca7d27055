"""Backups of a cluster that serves: each is the state at its index, and says when it cannot be."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import fifo
from fifo.client.copying import NodeReader
from fifo.machine import Machine
from node.backup.file import Backup
from node.backup.restoring import state_of
from node.broker.machine_host import MachineHost
from node.cli import backup as command
from node.cli.main import run
from node.server import Node
from tests.node.cli.local import Done, typing
from tests.support import raft_probe
from tests.support.cluster import LocalCluster, eventually, running
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120), pytest.mark.slow]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs a command line."""
    return typing(capsys)


def replayed(node: Node, index: int) -> Machine:
    """The machine of every entry of a node's log up to an index, applied from nothing."""
    raft = raft_probe.running_raft(node)
    host = MachineHost(Machine(), raft.read)
    for at in range(1, index + 1):
        payload = raft.read(at)
        if payload:
            host.apply(at, payload)
    return host.machine


def terminated(message: fifo.Message) -> Callable[[], Awaitable[object]]:
    """The termination of a message, without its reason."""
    return lambda: message.terminate("poison")


async def load(client: fifo.Client, seed: int) -> None:
    """Publish, hold, settle and let go of messages, until cancelled."""
    rng = random.Random(seed)
    held: list[fifo.Message] = []
    while True:
        queue = rng.choice(("orders", "bills"))
        await client.publish_many(queue, [rng.randbytes(rng.randrange(200)) for _ in range(20)])
        held += await client.get(queue, rng.randrange(1, 30))
        rng.shuffle(held)
        while len(held) > 40:
            message = held.pop()
            await rng.choice((message.ack, message.nack, message.release, terminated(message)))()


async def reached(node: Node, index: int) -> None:
    """Wait until a node has applied an index."""
    await eventually(lambda: node.broker.status()["applied"] >= index)


async def test_a_backup_at_any_moment_is_the_state_at_its_index(
    tmp_path: Path, cli: Callable[..., Done]
) -> None:
    rng = random.Random(7)
    async with running(tmp_path / "nodes") as cluster:
        leader = await cluster.leader()
        async with fifo.connect(cluster.url) as client:
            for name in ("orders", "bills"):
                await client.declare(fifo.QueueSpec(name, dead_letter="dead"))
            loads = [asyncio.create_task(load(client, seed)) for seed in range(3)]
            made: list[Backup] = []
            for at in range(6):
                before = leader.broker.status()["applied"]
                goal = before + rng.randrange(20)
                await reached(leader, goal)
                path = tmp_path / f"{at}.backup"
                done = await asyncio.to_thread(
                    cli, "backup", "--to", str(path), "--url", cluster.url, "--json"
                )
                assert done.code == 0, done
                assert done.json["node"] != leader.me.name, "a follower is read"
                assert done.json["index"] >= goal, "all that was confirmed is in it"
                made.append(Backup.open(path))
            for task in loads:
                assert not task.done(), "the cluster served meanwhile"
                task.cancel()
            await asyncio.gather(*loads, return_exceptions=True)
        assert len({one.index for one in made}) == len(made)
        for one in made:
            machine = replayed(leader, one.index)
            assert one.state_digest == machine.digest()
            assert state_of(one).digest() == machine.digest()
            raft = raft_probe.running_raft(leader)
            assert one.entries > 0
            for index, payload in one.each_entry():
                assert payload == raft.read(index)


async def test_a_source_that_breaks_off_is_asked_again(
    tmp_path: Path, cli: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third answer is lost with its connection."""
    monkeypatch.setattr(command, "BACKUP_WAIT_S", 0.0)
    count = 0
    async with running(tmp_path / "nodes") as cluster:
        leader = await cluster.leader()
        async with fifo.connect(cluster.url) as client:
            await client.declare(fifo.QueueSpec("orders"))
            await client.publish_many("orders", [os.urandom(20_000) for _ in range(200)])
        ask = NodeReader.piece

        async def piece(self: NodeReader, *args: object, **named: object) -> object:
            nonlocal count
            count += 1
            found = await ask(self, *args, **named)  # type: ignore[arg-type]
            if count % 3 == 0:
                self.close()
                raise fifo.ConnectionLost("cut by the test")
            return found

        monkeypatch.setattr(NodeReader, "piece", piece)
        path = tmp_path / "a.backup"
        done = await asyncio.to_thread(cli, "backup", "--to", str(path), "--url", cluster.url)
        assert done.code == 0, done
        found = Backup.open(path)
        assert count // 3 >= 2, "two answers at least were lost"
        assert found.state_digest == replayed(leader, found.index).digest()


async def killed_while_copied(cluster: LocalCluster, path: Path, victim: str) -> int:
    """The exit code of a backup at a slow rate, while a node is cut off."""
    name = (await cluster.leader()).me.name if victim == "leader" else victim
    words = ("--rate", "2MiB", "--from", "n2" if name != "n2" else "n3")
    copying = asyncio.create_task(
        asyncio.to_thread(run, ("backup", "--to", str(path), "--url", cluster.url, *words))
    )
    await eventually(lambda: any(one.endswith(".tmp") for one in os.listdir(path.parent)))
    await cluster.crash(name)
    return await copying


async def test_the_death_of_the_leader_does_not_end_a_backup(tmp_path: Path) -> None:
    async with running(tmp_path / "nodes") as cluster:
        await cluster.leader()
        async with fifo.connect(cluster.url) as client:
            await client.declare(fifo.QueueSpec("orders"))
            await client.publish_many("orders", [os.urandom(20_000) for _ in range(150)])
        assert await killed_while_copied(cluster, tmp_path / "a.backup", "leader") == 0
        found = Backup.open(tmp_path / "a.backup")
        leader = await cluster.leader()
        assert found.state_digest == replayed(leader, found.index).digest()


async def test_the_death_of_the_source_leaves_no_file(
    tmp_path: Path, cli: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "BACKUP_WAIT_S", 0.01)
    folder = tmp_path / "backups"
    folder.mkdir()
    async with running(tmp_path / "nodes") as cluster:
        source = next(node.me.name for node in cluster.nodes.values() if not node.leads)
        async with fifo.connect(cluster.url) as client:
            await client.declare(fifo.QueueSpec("orders"))
            await client.publish_many("orders", [os.urandom(20_000) for _ in range(150)])
        words = ("--rate", "1MiB", "--from", source, "--url", cluster.url)
        copying = asyncio.create_task(
            asyncio.to_thread(cli, "backup", "--to", str(folder / "a.backup"), *words)
        )
        await eventually(lambda: os.listdir(folder))
        await cluster.crash(source)
        done = await copying
        assert done.code == 1
        assert f"no backup was taken; {source}: " in done.line
        assert os.listdir(folder) == []


async def test_a_node_that_is_no_source_says_why(
    tmp_path: Path, cli: Callable[..., Done], shared_cluster: SharedCluster
) -> None:
    url = shared_cluster.url

    async def refused(*words: str) -> str:
        done = await asyncio.to_thread(
            cli, "backup", "--to", str(tmp_path / "a.backup"), "--url", url, *words
        )
        assert done.code == 1, done
        assert os.listdir(tmp_path) == []
        return done.line

    assert "no node 'n9' in this cluster; there are: n1, n2, n3" in await refused("--from", "n9")
    await shared_cluster.leader()
    name = shared_cluster.followers()[0].me.name
    await shared_cluster.stop(name)
    assert f"{name} does not answer" in await refused("--from", name)
