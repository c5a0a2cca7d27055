"""Requests to change members: what a node alone answers to those that cannot be, and to a move.

Changes of several nodes are in `tests/node/cli/test_members.py` and `tests/members`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import fifo
from node.broker import members
from node.cli import member
from node.cli.errors import CliError
from node.config import NodeConfig
from node.raft import Configuration, Member
from node.roster import Roster
from tests.support.cluster import LocalCluster, eventually, loopback_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(loopback_config(tmp_path, 1))
    await cluster.start()
    yield cluster
    await cluster.stop()


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "an action that there is not": (
        {"action": "promote"},
        "the action 'promote' is none; it is one of add, move, remove, replace, undo",
    ),
    "no member": ({"action": "add"}, "add names no member; give the name of one"),
    "no member to replace": (
        {"action": "replace", "member": "n4"},
        "replace names no member that 'n4' replaces; give its name",
    ),
    "one that does not wait": (
        {"action": "add", "member": "n4"},
        "'n4' does not wait to be added (there waits: no node); start it on its machine: fifo serve"
        " --config cluster.toml --node n4 --join 127.0.0.1:",
    ),
    "one that is no member": (
        {"action": "remove", "member": "n9"},
        "'n9' is no member; there are: n1",
    ),
    "the last one": ({"action": "remove", "member": "n1"}, "no member would be left; keep one"),
    "a move of no member": (
        {"action": "move", "member": "n9", "peer": "h:1"},
        "'n9' is no member; there are: n1",
    ),
    "a move to nowhere": (
        {"action": "move", "member": "n1"},
        "no address of 'n1' is given; give peer, client or http",
    ),
    "a move to what is no address": (
        {"action": "move", "member": "n1", "client": "here"},
        "the client address cannot be: 'here' is not \"host:port\"",
    ),
    "a move to every machine": (
        {"action": "move", "member": "n1", "peer": "0.0.0.0:7102"},
        "the peer address 0.0.0.0:7102 is that of every machine; name a host",
    ),
    "an undo of nothing": ({"action": "undo"}, "no change of the members is under way"),
}


async def test_a_change_that_cannot_be_is_refused_with_the_reason_and_the_fix(
    alone: LocalCluster,
) -> None:
    async with fifo.connect(alone.config.url) as client:
        before = (await client.status()).membership
        for case, (given, reason) in REFUSALS.items():
            with pytest.raises(fifo.InvalidArgument) as refused:
                await client.change_members(**given)
            assert reason in str(refused.value), case
        assert (await client.status()).membership == before
        lines = await client.audit(limit=100)
        assert {one.verb for one in lines} >= {"member_add", "member_remove", "member_undo"}


async def test_a_member_that_has_moved_is_named_so_to_those_that_are_connected(
    alone: LocalCluster,
) -> None:
    async with fifo.connect(alone.config.url) as client:
        begun = await client.change_members("move", "n1", client="127.0.0.9:9", http="127.0.0.9:8")
        assert (begun["number"], begun["wanted"]) == (1, [])
        membership = (await client.status()).membership
        (found,) = membership["members"]
        assert found["client"] == "127.0.0.9:9"
        assert found["http"] == "127.0.0.9:8"
        assert found["peer"] == str(alone.config.nodes[0].peer)
        assert not found["learner"]
        node = alone.nodes["n1"]
        await eventually(lambda: node.broker.status()["membership"]["committed"])
        await eventually(lambda: "127.0.0.9:9" in client._session.dialer.addresses)
        assert str(alone.config.nodes[0].client) in client._session.dialer.addresses


async def test_a_node_that_starts_again_goes_by_its_log_and_says_where_its_file_differs(
    alone: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with fifo.connect(alone.config.url) as client:
        await client.change_members("move", "n1", http="127.0.0.9:8")
    await alone.stop()
    assert "event=members_differ" not in caplog.text
    await alone.start()
    lines = [line for line in caplog.text.splitlines() if "event=members_differ" in line]
    assert len(lines) == 1
    own = alone.config.nodes[0]
    assert re.search(f"file=n1 .* http {own.http} log=n1 .* http 127.0.0.9:8 ", lines[0])
    async with fifo.connect(alone.config.url) as client:
        (found,) = (await client.status()).membership["members"]
        assert found["http"] == "127.0.0.9:8"


async def test_the_end_of_a_change_is_that_of_this_very_change(alone: LocalCluster) -> None:
    """Another one has come after it, and the members say nothing of it any more."""
    async with fifo.connect(alone.config.url) as client:
        first = await client.change_members("move", "n1", http="127.0.0.9:8")
        await client.change_members("move", "n1", http="127.0.0.9:9")
        node = alone.nodes["n1"]
        await eventually(lambda: node.broker.status()["membership"]["committed"])
        found = (await client.status()).membership
        assert member.is_done(found, first)
        assert found["members"][0]["http"] == "127.0.0.9:9"


def _seen(
    *ended: tuple[int, int, bool], change: tuple[int, int] | None = None, committed: bool = True
) -> dict[str, Any]:
    """The view of a leader, by the places of the changes that it knows; its term is 5."""
    return {
        "committed": committed,
        "committed_term": 5,
        "members": [{"name": "n1"}],
        "change": change and {"term": change[0], "index": change[1]},
        "ended": [{"term": term, "index": index, "done": done} for term, index, done in ended],
    }


def test_a_command_says_done_for_its_own_change_alone() -> None:
    begun = {"term": 3, "index": 40}
    assert member.is_done(_seen((3, 40, True), (4, 50, True)), begun)
    assert not member.is_done(_seen((3, 40, True), committed=False), begun)
    assert not member.is_done(_seen((2, 9, True), change=(3, 40)), begun)
    leader_of_before = _seen() | {"committed_term": 3}
    assert not member.is_done(leader_of_before, begun), "what it had appended may be committed yet"
    with pytest.raises(CliError, match=r"given up \(fifo member undo\); the members are: n1"):
        member.is_done(_seen((3, 40, False), (3, 41, True)), begun)
    with pytest.raises(CliError, match="was lost with its leader, and nothing of it is left"):
        member.is_done(_seen((2, 9, True), (4, 40, True)), begun)
    with pytest.raises(CliError, match="lost with its leader, and nothing of it is left"):
        member.is_done(_seen(change=(4, 40)), begun)
    with pytest.raises(CliError, match="lost with its leader, or has ended before them"):
        member.is_done(_seen((4, 41, True), (4, 50, True)), begun)


def test_members_keep_what_a_configuration_does_not_say_of_them() -> None:
    """A configuration that begins with the file has no client addresses of members whose clients
    the leader did not know."""
    own = Member("n1", ("h1", 2), "h1:1", "h1:3", b"1" * 16)
    silent = Member("n2", ("h2", 2), "", "", b"2" * 16)
    found = members.nodes_of(Configuration(1, (silent, own)), Roster(()))
    assert [node.name for node in found] == ["n1", "n2"]
    assert [str(node.client) for node in found] == ["h1:1", "h2:2"]
    assert all(isinstance(node, NodeConfig) for node in found)


def test_a_notebook_that_holds_no_configuration_is_an_empty_one() -> None:
    assert members.remembered({}) is None
    assert members.remembered({members.NOTES: "no hex"}) is None
    assert members.remembered({members.NOTES: "11ff"}) is None
    assert members.remembered({members.NOTES: 7}) is None
