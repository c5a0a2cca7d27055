"""A cluster that is lost and restored from a backup, with real processes and the commands."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import tomllib
from pathlib import Path

import pytest

import fifo
from node.cli.processes import wait_until
from node.cli.state import ClusterFolder
from tests.node.cli.local import ALL_UP, WAIT_S, Local

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), pytest.mark.slow]


def renamed(here: Local, name: str) -> Path:
    """The cluster's own configuration, under another name."""
    path = here.folder / ".fifo" / "cluster.toml"
    text = path.read_text(encoding="utf-8")
    old = tomllib.loads(text)["cluster"]["name"]
    path.write_text(text.replace(f'name = "{old}"', f'name = "{name}"', 1), encoding="utf-8")
    return path


def destroyed(here: Local) -> None:
    """All data of all nodes is gone."""
    for name in ("n1", "n2", "n3"):
        shutil.rmtree(here.folder / ".fifo" / name / "data")


async def consumed(client: fifo.Client, queue: str) -> list[str]:
    """Every message of a queue, settled."""
    found: list[str] = []
    while messages := await client.get(queue, 500):
        found += [bytes(one.body).decode() for one in messages]
        await client.settle_many(messages)
    return found


def test_nothing_confirmed_before_a_backup_is_lost_with_all_folders(here: Local) -> None:
    """The procedure of docs/operating.md, step by step; the backup is taken under load."""
    port = str(here.base_port)
    assert here.process("cluster", "start", "--detach", "--base-port", port).code == 0
    url = ClusterFolder(here.folder / ".fifo").require().url
    file = here.folder / "a.backup"
    confirmed: list[str] = []
    settled: list[str] = []

    async def lived() -> int:
        """Publish and settle all the time; how much was confirmed when the backup was asked."""
        async with fifo.connect(url) as client:
            await client.declare(fifo.QueueSpec("orders", dead_letter="dead", dedup_window=600))
            await client.publish("orders", b"once", dedup_id="id")

            async def publish() -> None:
                while True:
                    bodies = [f"{len(confirmed) + n}" for n in range(50)]
                    await client.publish_many("orders", [body.encode() for body in bodies])
                    confirmed.extend(bodies)

            async def settle() -> None:
                while True:
                    for one in await client.get("orders", 20, wait=1):
                        body = bytes(one.body).decode()
                        await one.ack(receipt=True)
                        settled.append(body)

            works = [asyncio.create_task(publish()), asyncio.create_task(settle())]
            while len(confirmed) < 1_000:
                ended, _ = await asyncio.wait(works, timeout=0.01)
                assert not ended, ended
            before = len(confirmed)
            done = await asyncio.to_thread(here.process, "backup", "--to", str(file))
            assert done.code == 0, done
            held = await client.get("orders", 5)
            assert len(held) == 5
            assert not any(work.done() for work in works), "it served meanwhile"
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            return before

    before = asyncio.run(lived())
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    here.type("cluster", "stop")
    refused = here.type("restore", str(file), "--config", ".fifo/cluster.toml")
    assert "has the name of the cluster that the backup is from, 'local'" in refused.line
    config = renamed(here, "local-2")
    refused = here.type("restore", str(file), "--config", str(config))
    assert "is not empty" in refused.line
    assert "a member that went on is never replaced" in refused.line

    destroyed(here)
    done = here.type("restore", str(file), "--config", str(config), "--json")
    assert done.code == 0, done
    made = done.json
    assert (made["cluster"], made["from"], made["nodes"]) == (
        "local-2",
        "local",
        ["n1", "n2", "n3"],
    )
    assert made["sessions_ended"] >= 1
    shown = here.type("backup", "inspect", str(file), "--json").json
    (orders,) = (one for one in shown["queues"] if one["name"] == "orders")
    assert made["messages"] == sum(one["messages"] for one in shown["queues"])
    assert here.process("cluster", "start", "--detach").code == 0
    here.wait_for(*ALL_UP)
    refused = here.type("restore", str(file), "--config", str(config))
    assert "is not empty" in refused.line

    async def after() -> list[str]:
        async with fifo.connect(url) as client:
            (queue,) = (one for one in await client.queues() if one.name == "orders")
            assert (queue.messages, queue.locked) == (orders["messages"], 0)
            confirm = await client.publish("orders", b"once", dedup_id="id")
            assert confirm.duplicate, "the window of deduplication survives"
            return await consumed(client, "orders")

    found = asyncio.run(after())
    assert len(found) == len(set(found)) == orders["messages"], "each of them once"
    missing = set(confirmed[:before]) - set(found) - set(settled)
    assert not missing, "confirmed before the backup, never settled, and gone"
    assert set(found) <= {*confirmed, *map(str, range(len(confirmed) + 50)), "once"}
    verified = here.type("verify", "--json")
    assert verified.code == 0, verified
    assert {one["verdict"] for one in verified.json["nodes"]} == {"equal"}


def test_each_machine_makes_its_own_folder(here: Local) -> None:
    port = str(here.base_port)
    assert here.process("cluster", "start", "--detach", "--base-port", port).code == 0
    here.ok("queue", "declare", "orders")
    here.ok("publish", "orders", "--body", "kept")
    assert here.type("backup", "--to", "a.backup").code == 0
    config = renamed(here, "again")
    refused = here.type("restore", "a.backup", "--config", str(config), "--node", "n1")
    assert "is not empty" in refused.line
    here.kill_all()
    destroyed(here)
    for name in ("n1", "n2"):
        assert here.type("restore", "a.backup", "--config", str(config), "--node", name).code == 0
    snapshots = [
        sorted((here.folder / ".fifo" / name / "data").glob("*.snapshot")) for name in ("n1", "n2")
    ]
    assert [one.name for one in snapshots[0]] == [one.name for one in snapshots[1]]
    assert here.process("cluster", "start", "--detach").code == 0
    here.wait_for(*ALL_UP)
    refused = here.type("restore", "a.backup", "--config", str(config), "--node", "n3")
    assert "is not empty" in refused.line or "n3 runs at" in refused.line
    assert "kept" in here.type("peek", "orders").out
    # The folder of n3 was empty: it gets everything from the others, and is compared then.
    assert wait_until(
        lambda: not any(node.get("recovering") for node in here.status()["nodes"]), WAIT_S
    )
    assert here.type("verify").code == 0


def test_a_member_that_runs_is_never_replaced(here: Local) -> None:
    port = str(here.base_port)
    assert here.process("cluster", "start", "--detach", "--base-port", port).code == 0
    assert here.type("backup", "--to", "a.backup").code == 0
    text = (here.folder / ".fifo" / "cluster.toml").read_text(encoding="utf-8")
    moved = text.replace('name = "local"', 'name = "other"', 1).replace("/data", "/elsewhere")
    (here.folder / "moved.toml").write_text(moved, encoding="utf-8")
    refused = here.type("restore", "a.backup", "--config", "moved.toml")
    assert refused.code == 1
    assert "runs at 127.0.0.1:" in refused.line
    assert not list(here.folder.rglob("elsewhere"))


def test_a_backup_is_looked_through_without_a_cluster(here: Local) -> None:
    port = str(here.base_port)
    assert here.process("cluster", "start", "--detach", "--base-port", port).code == 0
    here.ok("queue", "declare", "orders", "--dead-letter", "dead")
    for number in range(5):
        here.ok("publish", "orders", "--body", f"m{number}", "--key", f"k{number}")
    assert here.type("backup", "--to", "a.backup").code == 0
    here.kill_all()
    assert "5" in here.type("backup", "inspect", "a.backup").out
    lines = here.type(
        "backup", "inspect", "a.backup", "--queue", "orders", "--limit", "2", "--json"
    )
    *shown, more = map(json.loads, lines.out.splitlines())
    assert [one["body"] for one in shown] == ["m0", "m1"]
    words = ("--queue", "orders", "--json", "--after", str(more["after"]))
    rest = here.type("backup", "inspect", "a.backup", *words).out.splitlines()
    assert [json.loads(line)["body"] for line in rest] == ["m2", "m3", "m4"]
    assert here.type("backup", "inspect", "a.backup", "--queue", "no").line == (
        "fifo: no queue 'no' in the backup; there are: dead, orders"
    )
    config = here.type("backup", "inspect", "a.backup", "--config").out
    assert tomllib.loads(config)["cluster"]["name"] == "local"
    whole = (here.folder / "a.backup").read_bytes()
    (here.folder / "cut.backup").write_bytes(whole[:-1])
    assert "is no whole backup: at byte" in here.type("backup", "inspect", "cut.backup").line
    assert "No such file" in here.type("backup", "inspect", "none.backup").line
