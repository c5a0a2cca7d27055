"""`fifo status` during a rolling upgrade: what a node of another version does not tell is "-"."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.cluster import eventually, running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.node.cli.local import Done

    Cli = Callable[..., Done]

URL = "fifo://127.0.0.1:1,127.0.0.1:2"
PEER = {
    "name": "n2",
    "match": 41,
    "lag": 1,
    "connected": True,
    "counted": True,
    "in_flight_bytes": 0,
    "snapshot": {"sent_bytes": 1024, "state_bytes": 2048, "sent_entries": 3, "entries": 9},
    "room": {"free_bytes": 8192, "sync_ms": 4},
}
SENT = "1.0 KiB of 2.0 KiB, 3 of 9 entries"
STATUS = {
    "node": "n1",
    "role": "leader",
    "recovering": None,
    "term": 2,
    "leader": "n1",
    "commit": 42,
    "applied": 42,
    "last": 42,
    "peers": [PEER],
    "journal_bytes": 2048,
    "disk_free_bytes": 4096,
    "snapshot": {"disk_bytes": 512},
    "fsync_ms": {"p50": 0.5, "p99": 2.0},
    "uptime_s": 12.0,
    "sessions": 7,
    "queues": 3,
}
CORE = ("node", "role", "term", "leader")
"""Fields that every version reports."""


def answering(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any]) -> None:
    """Have the nodes of the URL answer this, and those that they name, nothing."""
    given = dict(zip(URL.removeprefix("fifo://").split(","), answers, strict=True))

    async def observe_all(addresses: list[str], **_: object) -> list[dict[str, Any]]:
        return copy.deepcopy([given.get(address, DOWN) for address in addresses])

    monkeypatch.setattr("node.cli.observe.observe_all", observe_all)


def without(status: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name != key}


DOWN = {"role": "down", "error": "connection refused"}


def rows(done: Done) -> tuple[list[str], list[str]]:
    """The row of the node, and that of its peer."""
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    peer = next((line for line in lines if line.startswith("n2")), "")
    return next(line for line in lines if line.startswith("n1")).split(), peer.split()


def test_every_reported_field_is_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, STATUS, DOWN)
    node, peer = rows(cli("status", "--url", URL))
    shown = "n1 127.0.0.1:1 leader 2 42 42 0 2.0 KiB 4.0 KiB 512 B 0.50/2.00 ms 7 3 12.0 s"
    assert " ".join(node) == shown
    assert " ".join(peer) == "n2 connected 41 1 0 B 8.0 KiB 4 ms " + SENT


def test_an_alarm_is_named_with_its_threshold(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    low = {"alarm": "disk_low", "bytes": 4096, "threshold_bytes": 1 << 20}
    high = {"alarm": "memory_high", "bytes": 3 << 20, "threshold_bytes": 1 << 20}
    others = {**low, "node": "n2"}
    answering(monkeypatch, {**STATUS, "alarms": [low, high, others]}, DOWN)
    done = cli("status", "--url", URL)
    assert done.err.splitlines() == [
        "n1 refuses publishes while it leads: its disk is low, 4.0 KiB free of at least 1.0 MiB"
        " (disk_low_bytes)",
        "n1 refuses publishes while it leads: it holds 3.0 MiB for clients that do not read, at"
        " most 1.0 MiB (memory_high_bytes)",
        "n1 refuses publishes for n2: its disk is low, 4.0 KiB free of at least 1.0 MiB"
        " (disk_low_bytes)",
    ]


@pytest.mark.cluster
async def test_the_list_of_queues_shows_why_the_leader_refuses_publishes(
    cli: Cli, tmp_path: Path
) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        url = f"fifo://{node.me.client}"
        declared = await asyncio.to_thread(cli, "queue", "declare", "orders", "--url", url)
        assert declared.code == 0
        node.broker.alarms.disk_low_bytes = 1 << 60
        await eventually(lambda: node.broker.alarms.active)
        listed = await asyncio.to_thread(cli, "queue", "list", "--url", url)
    assert "of at least 1048576.0 TiB (disk_low_bytes)" in listed.line
    assert listed.line.startswith("the leader refuses publishes for n1: its disk is low, ")


def test_a_node_that_refuses_is_not_reported_as_down(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {"role": "down", "error": "user ann may not ask", "refused": True}
    answering(monkeypatch, DOWN, refused)
    done = cli("status", "--url", URL)
    assert (done.code, done.line) == (1, f"fifo: user ann may not ask (cluster at {URL})")


def test_a_leader_that_was_not_asked_is_not_a_missing_one(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the address of a follower alone the table has no leader; the cluster does."""
    members = {"n1": "127.0.0.1:1", "n2": "127.0.0.1:2", "n3": "127.0.0.1:9"}
    follower = {**STATUS, "role": "follower", "leader": "n3", "peers": [], "members": members}
    answering(monkeypatch, follower, DOWN)
    done = cli("status", "--url", URL)
    assert done.err.strip() == "the leader is n3 at 127.0.0.1:9, which does not answer here"
    assert [line.split()[:3] for line in done.out.splitlines()[1:]] == [
        ["n1", "127.0.0.1:1", "follower"],
        ["n2", "127.0.0.1:2", "down"],
        ["n3", "127.0.0.1:9", "down"],
    ]
    answering(monkeypatch, {**follower, "leader": "n2"}, DOWN)
    done = cli("status", "--url", URL)
    assert "no leader: publishing and consuming wait" in done.err


def test_a_removed_node_that_still_runs_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old URL asks it, too, and it says that it follows."""
    leader = {**STATUS, "members": {"n1": "127.0.0.1:1"}}
    removed = {**STATUS, "node": "n3", "role": "follower", "term": 1, "members": {"n3": "h:1"}}
    answering(monkeypatch, leader, removed)
    done = cli("status", "--url", URL)
    assert done.err == "n3 is no member any more: stop it, and remove its folder\n"
    answering(monkeypatch, leader, {**removed, "recovering": "a leader that has it as a learner"})
    assert "no member" not in cli("status", "--url", URL).err


def test_a_replica_that_differs_is_named_by_a_peer_or_itself(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_peer = {**STATUS, "peers": [{**PEER, "differs_index": 1024}]}
    itself = {**STATUS, "node": "n3", "role": "follower", "peers": [], "differs_index": 2048}
    answering(monkeypatch, by_peer, itself)
    done = cli("status", "--url", URL)
    assert "differs" in next(line for line in done.out.splitlines() if line.startswith("n2"))
    said = "the state of {0} is not that of the majority since entry {1}, and is replaced by it"
    for name, index in (("n2", 1024), ("n3", 2048)):
        assert said.format(name, index) in done.err


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in STATUS if key not in CORE])
def test_a_field_missing_from_a_node_is_a_dash(
    key: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, without(STATUS, key), DOWN)
    node, _ = rows(cli("status", "--url", URL))
    dashes = {"recovering": 0, "peers": 0, "applied": 2}.get(key, 1)  # Its lag is unknown too.
    assert node.count("-") == dashes
    assert cli("status", "--url", URL, "--json").json["nodes"][0]["node"] == "n1"


@pytest.mark.parametrize("key", [key for key in PEER if key != "name"])
def test_a_field_missing_from_a_peer_is_a_dash(
    key: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, {**STATUS, "peers": [without(PEER, key)]}, DOWN)
    _, peer = rows(cli("status", "--url", URL))
    assert peer.count("-") == {"counted": 0, "room": 2}.get(key, 1)
    assert "recovering" not in peer
