"""A node that joins: whom it asks who the members are, and what it goes by when it starts again."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from node.broker.joining import Joining
from node.broker.members import NOTES
from node.journal import notebook
from node.journal.io.storage import OsStorage
from node.journal.passport import Keeper
from node.peers.transport import TcpTransport
from node.raft import Configuration, Journal, Member, RaftConfig, encode
from node.table import ConfigError
from tests.support.cluster import loopback_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from node.config import ClusterConfig, NodeConfig
    from node.peers.message import Message

SECRET = b"only members know"
ID = b"joining-tests-id"


def _as_member(node: NodeConfig) -> Member:
    address = (node.peer.host, node.peer.port)
    return Member(node.name, address, str(node.client), str(node.http), node.name.encode() * 8)


def _transport(node: NodeConfig, answer: Callable[[], Message] | None = None) -> TcpTransport:
    config = RaftConfig(
        name=node.name,
        peers={},
        bind=(node.peer.host, node.peer.port),
        cluster_id=ID,
        secret=SECRET,
    )
    made = TcpTransport(config, rng=random.Random(1))
    if answer is not None:
        made.answer = answer
    return made


class Scene:
    """n1 is a member, and n2 joins by a file that is about itself alone."""

    def __init__(self, folder: Path, *, in_log: str = "") -> None:
        """`in_log`: the peer address of n2 by the log; empty: it is no member."""
        config = loopback_config(folder, 2)
        self.old, self.me = config.nodes
        self.config: ClusterConfig = replace(config, nodes=(self.me,), join=(self.old.peer,))
        members: tuple[Member, ...] = (_as_member(self.old),)
        if in_log:
            host, _, port = in_log.rpartition(":")
            members += (replace(_as_member(self.me), address=(host, int(port))),)
        self.known = Configuration(7, members)
        self.asked = 0
        self.folder = folder / "n2"
        """As on a new machine: no node has made it."""
        self.storage = OsStorage(self.folder)

    def note(self) -> None:
        """n2 has learned who the members are, when it was started before."""
        self.folder.mkdir()
        notebook.write(self.storage, {NOTES: encode(self.known).hex()})

    async def found(self) -> ClusterConfig:
        """The configuration that n2 goes by, with n1 up to be asked."""

        def answer() -> Message:
            self.asked += 1
            return {"type": "members", "reason": "", "configuration": encode(self.known)}

        port = _transport(self.old, answer)
        await port.start()
        try:
            joining = Joining(self.config, self.me, _transport(self.me))
            return await asyncio.wait_for(joining.found(self.storage), 8.0)
        finally:
            await port.close()


async def test_a_node_that_joins_asks_a_member_who_the_members_are(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    found = await scene.found()
    assert scene.asked == 1
    assert [node.name for node in found.nodes] == ["n2", "n1"]
    assert found.node("n1").peer == scene.old.peer
    assert found.join == ()


async def test_a_joiner_that_has_moved_starts_under_its_own_name_at_its_new_address(
    tmp_path: Path,
) -> None:
    """The log has its old address until `fifo member move`: by its notebook it is that member."""
    scene = Scene(tmp_path, in_log="127.0.0.9:7102")
    scene.note()
    found = await scene.found()
    assert not scene.asked
    assert found.node("n2") == scene.me
    assert found.node("n1").peer == scene.old.peer


async def test_a_new_node_with_the_name_of_a_member_elsewhere_is_refused(tmp_path: Path) -> None:
    """An empty folder is not that member, whatever it is named."""
    scene = Scene(tmp_path, in_log="127.0.0.9:7102")
    with pytest.raises(ConfigError, match=r"a member at 127\.0\.0\.9:7102 is named 'n2' already"):
        await scene.found()


async def test_a_joiner_that_has_moved_starts_by_its_journal_before_it_learned_of_the_members(
    tmp_path: Path,
) -> None:
    """Of a group of two it has to start at its new address, for the move needs its word."""
    scene = Scene(tmp_path, in_log="127.0.0.9:7102")
    keeper = Keeper(lambda count: bytes(count), lambda: "20261124T020000Z")
    Journal.open(scene.storage, cluster_id=ID, node="n2", keeper=keeper).close()
    found = await scene.found()
    assert scene.asked == 1
    assert found.node("n2") == scene.me


async def test_a_joiner_whose_folder_was_lost_comes_back_to_its_own_place(tmp_path: Path) -> None:
    scene = Scene(tmp_path, in_log="127.0.0.1:1")
    address = scene.me.peer
    here = replace(_as_member(scene.me), address=(address.host, address.port))
    scene.known = replace(scene.known, voters=(scene.known.voters[0], here))
    assert [node.name for node in (await scene.found()).nodes] == ["n2", "n1"]
