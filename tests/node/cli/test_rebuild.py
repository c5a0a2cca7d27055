"""`fifo cluster rebuild` beside members that run: five processes, three without disks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fifo
from node.backup.file import Backup
from node.backup.remains import End
from node.backup.restoring import state_of
from node.cli.errors import CliError
from node.cli.running import end_said
from node.config import cluster_config
from tests.node.cli.disks import WAIT_SECONDS, Nodes, publish
from tests.node.cli.local import Done, free_base_port
from tests.support.cluster import passed
from tests.support.users import EVERYTHING, user

pytestmark = pytest.mark.slow

GONE = ("n3", "n4", "n5")


@asynccontextmanager
async def five(folder: Path) -> AsyncIterator[tuple[Nodes, str]]:
    """Five processes with a user, and a URL with the token of that one."""
    ann = user("ann", **EVERYTHING, monitor=True)
    config = replace(cluster_config(5, free_base_port(), folder), users=(ann,))
    nodes = Nodes(config, folder)
    for one in config.nodes:
        nodes.start(one.name)
    try:
        yield nodes, config.url + "?token=ann-token"
    finally:
        nodes.stop()


async def until(
    url: str, nodes: Nodes, name: str, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """The status of a node, once it is as wanted."""
    options = fifo.client.from_url(url)
    address = str(nodes.config.node(name).client)
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                found = await fifo.client.observe(address, 5.0, options=options)
            except fifo.FifoError:
                found = {}
            if found and holds(found):
                return found
            await passed(0.05)


@pytest.mark.cluster
@pytest.mark.timeout(300)
async def test_members_that_run_are_asked_for_the_ends_of_their_logs(
    tmp_path: Path, cli: Callable[..., Done]
) -> None:
    """n1 was away at the end, so n2 has more; neither is typed."""
    async with five(tmp_path) as (nodes, url):
        to = tmp_path / "going-on"

        async def rebuild(source: str, *words: str) -> Done:
            config = str(nodes.config.path)
            words = ("--config", config, "--from", source, "--to", str(to), "--yes", *words)
            return await asyncio.to_thread(cli, "cluster", "rebuild", *words)

        known = ("--url", url)
        async with fifo.connect(url, timeout=WAIT_SECONDS, connect_timeout=60) as client:
            await client.declare(fifo.QueueSpec("orders"))
            sent = await publish(client)
            nodes.kill("n1")
            sent += await publish(client)
            refused = await rebuild("n1", *known)
            assert refused.code == 1
            assert "knows a leader, n" in refused.err
            for name in ("n2", *GONE):  # No entry follows, and all have all of them.
                await until(url, nodes, name, lambda one: one["applied"] == one["last"])
        for name in GONE:
            nodes.kill(name)
        for name in GONE:
            shutil.rmtree(nodes.config.node(name).data_dir)
        nodes.start("n3")
        await until(url, nodes, "n3", lambda one: one["recovering"] is not None)
        status = await until(url, nodes, "n2", lambda one: one["leader"] is None)
        end = "{}:{}".format(*status["durable_end"])

        refused = await rebuild("n2", *known)
        assert "runs: stop it first (by its unit: systemctl stop fifo@n2)" in refused.err
        refused = await rebuild("n1")
        assert "n2 (" in refused.err
        assert "does not say where its log ends" in refused.err
        assert "by --url, or stop it" in refused.err
        refused = await rebuild("n1", *known)
        assert f"n2 runs, and ends with {end} (term:index)" in refused.err
        assert "n3 runs, and does not count: it has lost its journal, and waits" in refused.err
        assert "nothing is known of n3, n4 and n5" in refused.err
        lost = [word for name in GONE for word in ("--lost", name)]
        refused = await rebuild("n1", *known, *lost, "--lost", "n2")
        assert (refused.code, "--lost n2: it runs, and has its journal" in refused.err) == (2, True)
        refused = await rebuild("n1", *known, *lost)
        assert f"n2 has more: it ends with entry {status['durable_end'][1]} of" in refused.err
        assert not to.exists()

        nodes.kill("n2")
        nodes.start("n1")
        await until(url, nodes, "n1", lambda one: one["leader"] is None)
        done = await rebuild("n2", *known, *lost)
        assert done.code == 0, done.err
        assert "n1 runs, and ends with" in done.err
        found = state_of(Backup.open(to)).queue_overview("orders")
        assert found is not None
        assert found["messages"] == len(sent)


SOUND = {
    "node": "n2",
    "role": "follower",
    "leader": None,
    "recovering": None,
    "differs_index": 0,
    "durable_end": [7, 1204],
}


def end_of(**said: object) -> End | str | None:
    """The end by the status of n2, where that has these fields too; the words of a refusal."""
    cluster = cluster_config(3, 7100, Path("/nowhere"))
    status = {"cluster": cluster.cluster_id.hex(), **SOUND, **said}
    try:
        return end_said(cluster, cluster.node("n2"), status)
    except CliError as refused:
        return str(refused)


def test_the_word_of_a_member_counts_where_it_has_its_journal_and_no_leader() -> None:
    assert end_of() == End(7, 1204)
    assert "knows a leader, n3" in str(end_of(leader="n3"))
    assert "knows a leader, n2" in str(end_of(role="leader"))
    assert "as n3 of another cluster" in str(end_of(node="n3"))
    assert "of another cluster" in str(end_of(cluster="00"))
    assert "does not have the end of its log yet" in str(end_of(durable_end=None))
    assert end_of(recovering="the terms of n1") is None
    assert end_of(differs_index=1024) is None
