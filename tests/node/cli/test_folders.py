"""Folders that are lost, copied or begun: real nodes, by the commands of docs/operating.md."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from node.cli.errors import CliError
from node.cli.folders import adopt, init
from node.config import cluster_config, to_toml
from node.raft import RaftStopped
from node.server import Node
from tests.node.cli.disks import WAIT_SECONDS, Nodes, cluster, consumed, publish
from tests.support.cluster import loopback_config, passed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


async def until(nodes: Nodes, name: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until what a node says of itself is as wanted."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (status := await nodes.status(name)) is None or not holds(status):
            await passed(0.05)


async def test_a_member_whose_folder_was_removed_comes_back_by_an_ordinary_start(
    tmp_path: Path,
) -> None:
    """And one whose folder was copied meanwhile: it gives the copy up, or adopts it."""
    async with cluster(tmp_path) as (nodes, client):
        sent = await publish(client, count=50)
        folder = nodes.config.node("n2").data_dir
        nodes.kill("n2")
        shutil.rmtree(folder)
        nodes.start("n2")
        await until(nodes, "n2", lambda status: status["recovering"] is None)
        log = nodes.log("n2").read_text()
        assert "event=journal_lost by=" in log
        assert "event=recovered" in log
        await nodes.until_level()

        sent += await publish(client)
        nodes.kill("n2")
        folder.rename(tmp_path / "original")
        shutil.copytree(tmp_path / "original", folder)
        nodes.start("n2")
        await nodes.said("n2", "event=starting_again")
        await until(nodes, "n2", lambda status: status["recovering"] is None)
        assert list(folder.glob("*.segment.lost-*"))
        await nodes.until_level()

        nodes.kill("n2")
        shutil.rmtree(tmp_path / "original")
        folder.rename(tmp_path / "original")
        shutil.copytree(tmp_path / "original", folder)
        config = tmp_path / "adopted.toml"
        config.write_text(to_toml(nodes.config))
        adopt(config, ["n2"])
        given_up = len(list(folder.glob("*.segment.lost-*")))
        nodes.start("n2")
        await nodes.until_level()
        assert len(list(folder.glob("*.segment.lost-*"))) == given_up
        assert await consumed(client, len(sent)) == sent


async def test_a_node_alone_begins_in_an_empty_folder_only_where_it_was_initialized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = loopback_config(tmp_path, 1)
    with pytest.raises(RaftStopped, match="fifo cluster init"):
        await Node(config, "n1", asks_first=True).start()
    path = tmp_path / "cluster.toml"
    path.write_text(to_toml(config))
    init(path)
    node = Node(config, "n1", asks_first=True)
    await node.start()
    await node.stop()
    capsys.readouterr()
    init(path)
    assert "holds a journal already" in capsys.readouterr().out
    again = Node(config, "n1", asks_first=True)
    await again.start()
    await again.stop()


def test_a_folder_with_other_files_begins_nothing(tmp_path: Path) -> None:
    config = cluster_config(1, 7100, tmp_path)
    path = tmp_path / "cluster.toml"
    path.write_text(to_toml(config))
    folder = config.node("n1").data_dir
    folder.mkdir(parents=True)
    (folder / "thesis.txt").touch()
    with pytest.raises(CliError, match="holds other files, and no journal"):
        init(path)
    assert [one.name for one in folder.iterdir() if one.name != "lock"] == ["thesis.txt"]


def test_an_order_for_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(to_toml(cluster_config(3, 7100, tmp_path)))
    with pytest.raises(CliError, match="has no folder"):
        adopt(path, ["n2"])
    init(path, ["n2"])
    with pytest.raises(CliError, match="holds no journal"):
        adopt(path, ["n2"])


def test_the_commands_say_what_happens_next(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(to_toml(cluster_config(1, 7100, tmp_path)))
    words = ["cluster", "init", "--config", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "node", *words], capture_output=True, check=True, text=True
    )
    assert "begins a new cluster with its next start" in done.stdout
