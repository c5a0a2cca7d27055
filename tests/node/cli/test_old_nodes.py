"""Nodes of 0.1.0 and the commands that came after it: each is named, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fifo.client import observe
from fifo.client.errors import FifoError
from node.config import to_toml
from tests.node.cli.local import Done
from tests.support.cluster import LOOK_SECONDS, loopback_config, passed
from tests.upgrade import releases

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60), pytest.mark.slow]


async def answering(address: str) -> None:
    """Wait until a node answers; the test's own timeout ends it."""
    while True:
        try:
            await observe(address)
        except FifoError:
            await passed(LOOK_SECONDS)
        else:
            return


def test_a_node_that_cannot_be_read_is_named_with_its_version(
    tmp_path: Path, cli: Callable[..., Done]
) -> None:
    config = loopback_config(tmp_path / "nodes", 1)
    path = tmp_path / "cluster.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    old = releases.unpacked("0.1.0", tmp_path / "old")
    words = ("-m", "node", "serve", "--config", str(path), "--node", "n1")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FIFO_")}
    node = subprocess.Popen(
        releases.python(*words),
        env=kept | releases.environment(old),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        asyncio.run(answering(str(config.nodes[0].client)))
        file = tmp_path / "a.backup"
        done = cli("backup", "--to", str(file), "--url", config.url)
        assert done.code == 1
        assert "n1 runs 0.1.0 and cannot back up: upgrade it to 0.2.0 or later" in done.line
        assert not [one for one in os.listdir(tmp_path) if "backup" in one]
        done = cli("verify", "--url", config.url, "--json")
        assert done.code == 1
        (shown,) = done.json["nodes"]
        assert shown["verdict"] == "not compared"
        assert "runs 0.1.0" in shown["problem"]
    finally:
        node.terminate()
        node.wait(20)
