"""Two real releases in one cluster of processes: what docs/operating.md says of an upgrade."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import fifo
from fifo.words import versions
from node.config import ClusterConfig, cluster_config, to_toml
from tests.jepsen.run import Plan, run
from tests.node.cli.disks import NAMES, WAIT_SECONDS, Nodes
from tests.node.cli.local import Done, free_base_port
from tests.support.cluster import passed
from tests.upgrade import releases
from tests.upgrade.releases import OLD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


class Mixed(Nodes):
    """Three nodes, each of today's release or of an older one."""

    def __init__(self, config: ClusterConfig, folder: Path) -> None:
        super().__init__(config, folder)
        self.modules = releases.unpacked(OLD, folder / "release")

    def run_release(self, name: str, *flags: str, old: bool) -> None:
        """Start a node of a release."""
        command = releases.python("-m", "node", "serve", "--config", str(self.config.path))
        with self.log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*command, "--node", name, *flags],
                stderr=log,
                stdout=log,
                env=self.environment(old=old),
            )

    def environment(self, *, old: bool) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("FIFO_")}
        return kept | (releases.environment(self.modules) if old else {})

    async def change(self, name: str, *, old: bool) -> None:
        """End a node in order, and start a release on its data."""
        await self.end(name)
        self.run_release(name, old=old)
        await self.said(name, " ready ")

    async def end(self, name: str) -> None:
        """End a node in order."""
        process = self.processes[name]
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, WAIT_SECONDS)

    async def lose(self, name: str, *, old: bool) -> None:
        """A node loses its disk, and is started to recover."""
        await self.end(name)
        shutil.rmtree(self.config.node(name).data_dir)
        self.run_release(name, "--recover", old=old)

    @contextmanager
    def empty(self, name: str) -> Iterator[None]:
        """The folder of a node that does not run is empty meanwhile, and as it was afterwards."""
        data = self.config.node(name).data_dir
        aside = data.with_name(f"{data.name}.aside")
        data.rename(aside)
        yield
        shutil.rmtree(data)
        aside.rename(data)

    async def command(self, *arguments: str, old: bool = False) -> Done:
        """Run a command of a release at this cluster."""
        return await self._run(*arguments, "--url", self.config.url, old=old)

    async def serve(self, config: ClusterConfig, name: str, *flags: str, old: bool) -> Done:
        """Start a node with a file of its own, which has to be refused."""
        file = self.folder / f"{name}.toml"
        file.write_text(to_toml(config))
        return await self._run("serve", "--config", str(file), "--node", name, *flags, old=old)

    async def _run(self, *arguments: str, old: bool) -> Done:
        done = await asyncio.to_thread(
            subprocess.run,
            [*releases.python("-m", "node"), *arguments],
            env=self.environment(old=old),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    async def view(self, *, used: int, roles: int = 3, finish: int | None = None) -> dict[str, Any]:
        """Wait for this version in use, so many nodes that answer, and a leader that knows from
        all of them that it may finish at a version; what the command shows."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                done = await self.command("upgrade", "status", "--json")
                if done.code == 0:
                    found: dict[str, Any] = done.json
                    up = [one for one in found["nodes"] if one["role"] != "down"]
                    told = finish is None or (
                        found["finish"]["version"] == finish and not found["finish"]["obstacles"]
                    )
                    if found["leader"] and found["used"] == used and len(up) == roles and told:
                        return found
                await passed(0.1)


@asynccontextmanager
async def mixed(folder: Path, *olds: bool) -> AsyncIterator[Mixed]:
    """Three nodes of these releases, ended in the end."""
    config = cluster_config(len(NAMES), free_base_port(), folder)
    nodes = Mixed(replace(config, path=folder / "cluster.toml"), folder)
    try:
        for name, old in zip(NAMES, olds, strict=True):
            nodes.run_release(name, old=old)
        for name in NAMES:
            await nodes.said(name, " ready ")
        yield nodes
    finally:
        for process in nodes.processes.values():
            process.kill()
            process.wait(WAIT_SECONDS)


def test_a_cluster_is_upgraded_node_by_node_back_and_forward(tmp_path: Path) -> None:
    """Nodes and programs of both releases, a node after the other swapped under load, at times with
    a kill, the finish under load; what clients saw and the states of all nodes are judged."""
    plan = Plan("queue", ("swap",), 11, 9.0, release=OLD)
    result = asyncio.run(run(plan, tmp_path / "run"))
    assert result.good, result.text()
    swaps = [one["value"]["older"] for one in result.events if one["f"] == "swapped"]
    assert False in swaps
    upgraded = [one["value"]["version"] for one in result.events if one["f"] == "upgraded"]
    assert upgraded == [versions.NEWEST]


def test_a_member_is_replaced_right_behind_the_finish_under_load(tmp_path: Path) -> None:
    """The next faults are drawn, as many as there is time for: another change, the image of a disk
    from before, or the older release. `make upgrade` has more of it."""
    after = ("replace", "image", "too_late")
    result = asyncio.run(run(Plan("queue", ("swap",), 12, 4.0, release=OLD, after=after), tmp_path))
    assert result.good, result.text()
    seen = {event["f"] for event in result.events}
    assert {"upgraded", "too_early", "members"} < seen


async def test_a_finish_is_refused_with_the_name_of_the_node_in_the_way(tmp_path: Path) -> None:
    async with mixed(tmp_path, True, False, False) as nodes:
        found = await nodes.view(used=versions.FIRST)
        assert [one["can"]["peer"] for one in found["nodes"]] == [[4, 4], [4, 5], [4, 5]]
        async with fifo.connect(nodes.config.url) as client:
            await client.declare(fifo.QueueSpec("q"))
            await client.publish("q", b"one")
            if (await client.status()).node == "n1":
                refused = await nodes.command("upgrade", "finish")
                assert refused.line.endswith("the leader n1 runs 0.1.0; upgrade it first")
                await client.transfer_leadership("n2")
        refused = await nodes.command("upgrade", "finish")
        assert refused.line == (
            "fifo: the upgrade cannot be finished: n1 runs 0.1.0, which does not know version 2:"
            " install 0.2.0 or a later release on it"
        )
        await nodes.end("n1")
        assert (await nodes.command("upgrade", "finish")).line == refused.line
        nodes.run_release("n1", old=False)
        await nodes.view(used=versions.FIRST, finish=versions.NEWEST)
        await nodes.end("n1")
        refused = await nodes.command("upgrade", "finish")
        assert "n1 is down (it last ran " in refused.line
        # Back is possible at any time before: 0.1.0 reads what today's release has written.
        await nodes.change("n3", old=True)
        nodes.run_release("n1", old=True)
        await nodes.said("n1", " ready ")
        await nodes.view(used=versions.FIRST)
        assert (await nodes.command("peek", "q", old=True)).out.count("one") == 1


async def test_a_finish_waits_for_a_member_that_lost_its_disk_under_the_older_release(
    tmp_path: Path,
) -> None:
    """Its journal of today's release is known, and gone; the one that 0.1.0 made has no identity.
    The line that the others log has the remedy."""
    async with mixed(tmp_path, True, False, False) as nodes:
        await nodes.view(
            used=versions.FIRST
        )  # Without a node of 0.1.0 it would begin at the newest.
        await nodes.change("n1", old=False)
        await nodes.view(used=versions.FIRST, finish=versions.NEWEST)
        await nodes.change("n2", old=True)
        await nodes.lose("n2", old=True)
        await nodes.said("n2", "event=recovered")
        await nodes.change("n2", old=False)
        async with fifo.connect(nodes.config.url) as client:
            await client.declare(fifo.QueueSpec("q"))
            leader = (await client.status()).node
        await nodes.said(leader, "event=member_not_counted node=n2")
        refused = await nodes.command("upgrade", "finish")
        assert refused.line.startswith("fifo: the upgrade cannot be finished: n2 does not count")
        await nodes.lose("n2", old=False)
        await nodes.said("n2", "event=recovered")
        await nodes.view(used=versions.FIRST, finish=versions.NEWEST)
        assert (await nodes.command("upgrade", "finish")).code == 0


async def test_an_older_release_is_refused_by_a_clear_line_after_the_finish(
    tmp_path: Path,
) -> None:
    async with mixed(tmp_path, True, True, True) as nodes:
        await nodes.view(used=versions.FIRST)
        for name in NAMES:
            await nodes.change(name, old=False)
        await nodes.view(used=versions.FIRST, finish=versions.NEWEST)
        refused = await nodes.command("member", "remove", "n3", "--yes")
        assert refused.code == 1
        assert "finish the upgrade first (`fifo upgrade finish`)" in refused.err
        done = await nodes.command("upgrade", "finish")
        assert done.out == f"version {versions.NEWEST} is in use\n", done.err
        await nodes.view(used=versions.NEWEST)
        assert (await nodes.command("upgrade", "finish")).out == done.out
        assert (await nodes.command("queue", "declare", "q", old=True)).code == 0
        # On its data: n1 is dialed by the others, n3 dials them.
        await nodes.end("n1")
        nodes.run_release("n1", old=True)
        assert "use the newer program on every node" in await nodes.ended("n1")
        with nodes.empty("n1"):
            nodes.run_release("n1", old=True)
            await nodes.said("n1", "speaks protocol version 5, this node 4; run the same version")
            nodes.kill("n1")
        nodes.run_release("n1", old=False)
        await nodes.view(used=versions.NEWEST)
        await nodes.end("n3")
        with nodes.empty("n3"):
            nodes.run_release("n3", old=True)
            await nodes.said("n3", "sent hello, must send challenge; run the same version of fifo")
            await nodes.said("n2", "'n3' runs a release that speaks protocol version 4")
            nodes.kill("n3")
        nodes.run_release("n3", old=False)
        await nodes.view(used=versions.NEWEST)


async def test_a_joiner_of_an_older_release_is_refused_by_a_clear_line(tmp_path: Path) -> None:
    """No way to join is known to it; one whose file lists all nodes is shut out by each of them."""
    async with mixed(tmp_path, False, False, False) as nodes:
        await nodes.view(used=versions.NEWEST)
        known = nodes.config
        alone = cluster_config(4, free_base_port(), tmp_path).node("n4")
        joins = replace(known, nodes=(alone,), join=(known.node("n1").peer,))
        refused = await nodes.serve(joins, "n4", old=True)
        assert "[cluster] join: unknown key" in refused.line
        refused = await nodes.serve(replace(joins, join=()), "n4", "--join", "n1:7102", old=True)
        assert "No such option: --join" in refused.line
        file = tmp_path / "all.toml"
        nodes.config = replace(known, nodes=(*known.nodes, alone), path=file)
        file.write_text(to_toml(nodes.config))
        nodes.run_release("n4", old=True)
        await nodes.said("n1", "'n4' dialed 'n1', which is dialed by n2, n3")
        nodes.kill("n4")


async def test_runs_of_a_key_come_with_the_finish(tmp_path: Path) -> None:
    async with mixed(tmp_path, True, False, False) as nodes:
        await nodes.view(used=versions.FIRST)
        async with fifo.connect(nodes.config.url) as client:
            await client.declare(fifo.QueueSpec("q", ordering="key"))
            await client.publish_many("q", [b"one", b"two"], keys=["k", "k"])
            if (await client.status()).node == "n1":
                await client.transfer_leadership("n2")
            reader = client.durable("q", "reader")
            with pytest.raises(fifo.Unsupported, match=r"version 2 of the cluster, which is at 1"):
                await reader.hold(9, runs=True)
            assert len((await reader.hold(9)).tokens) == 1
            await reader.ack(1)
            await nodes.change("n1", old=False)
            await nodes.view(used=versions.FIRST, finish=versions.NEWEST)
            done = await nodes.command("upgrade", "finish")
            assert done.code == 0, done.err
            await client.publish("q", b"three", key="k")
            assert len((await reader.hold(9, runs=True)).tokens) == 2


async def test_a_new_cluster_uses_all_of_its_release_at_once(tmp_path: Path) -> None:
    async with mixed(tmp_path, False, False, False) as nodes:
        await nodes.view(used=versions.NEWEST)
