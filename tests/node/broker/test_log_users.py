"""Users in the log of a real cluster: changed live, on every node, and tokens that end."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

import fifo
from node.broker import log_users
from node.config import ClusterConfig
from node.server import Node
from node.table import ConfigError
from tests.support.cluster import LocalCluster, eventually, running
from tests.support.users import EVERYTHING, cheap_hash, user

pytestmark = pytest.mark.slow

ROOT = user("root", **EVERYTHING, operate=True)
ANN = user("ann", publish=("orders",), declare=("orders",))


def url(cluster: LocalCluster, who: str) -> str:
    """An address list with these credentials, `name:password` or `?token=`."""
    hosts = ",".join(str(node.client) for node in cluster.config.nodes)
    return f"fifo://{hosts}{who}" if who.startswith("?") else f"fifo://{who}@{hosts}"


ROOT_IN = "root:root-password"


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def tokens_of(node: Node) -> set[str]:
    """The tokens that the connections of this node were proven by."""
    rights = [one.rights for one in node.broker.connections if one.open]
    return {one.token.name for one in rights if one is not None and one.token is not None}


async def refused(cluster: LocalCluster, who: str) -> str:
    with pytest.raises(fifo.AuthenticationFailed) as caught:
        async with fifo.connect(url(cluster, who), connect_timeout=10):
            pass
    return str(caught.value)


def reload_of(node: Node, config: ClusterConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        node.reload(config)
    return str(caught.value)


async def test_users_of_the_file_are_imported_once_and_hold_on_every_node(tmp_path: Path) -> None:
    async with running(tmp_path, 3, users=(ROOT, ANN)) as cluster:
        await cluster.leader()
        async with fifo.connect(url(cluster, ROOT_IN)) as root:
            assert await root.log_users() == []
            with pytest.raises(
                fifo.InvalidArgument, match="import them once by `fifo user import`"
            ):
                await root.manage_user("add", "bob", {"password": str(cheap_hash("b"))})
            await root.manage_user("import")
            assert [one["name"] for one in await root.log_users()] == ["ann", "root"]
            with pytest.raises(fifo.InvalidArgument, match="a file is imported once"):
                await root.manage_user("import")
            # The connection of root went on; ann connects by what the file said.
            async with fifo.connect(url(cluster, "?token=ann-token")) as ann:
                await ann.declare(fifo.QueueSpec("orders"))
                await root.manage_user("set", "ann", {"publish": [], "monitor": True})
                with pytest.raises(fifo.PermissionDenied):
                    await ann.publish("orders", b"x")
                await root.manage_user("remove", "ann")
                with pytest.raises(fifo.FifoError):
                    await ann.queue("orders", timeout=5)
            await refused(cluster, "?token=ann-token")
            await eventually(
                lambda: all(
                    [one.user.name for one in node.authentication.users()] == ["root"]
                    for node in cluster.nodes.values()
                )
            )
        node = await cluster.leader()
        changed = cluster.config.__class__(
            **{**_fields(cluster.config), "users": (user("eve", operate=True),)}
        )
        assert "the users are in the log since they were imported" in reload_of(node, changed)


def _fields(config: ClusterConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


async def test_a_token_is_revoked_alone_and_its_connections_end(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ROOT,)) as cluster:
        await cluster.leader()
        async with fifo.connect(url(cluster, ROOT_IN)) as root:
            await root.manage_user("import")
            given = {"token": {"token": "ci", "digest": digest("one")}, **EVERYTHING}
            await root.manage_user("add", "bot", {**given, "declare": ["*"]})
            await root.manage_user("add_token", "bot", {"token": "cd", "digest": digest("two")})
            async with (
                fifo.connect(url(cluster, "?token=one")) as ci,
                fifo.connect(url(cluster, "?token=two")) as cd,
            ):
                await ci.declare(fifo.QueueSpec("q"))
                shown = await root.manage_user("revoke_token", "bot", {"token": "ci"})
                assert shown is not None
                assert [one["name"] for one in shown["tokens"]] == ["cd"]
                with pytest.raises(fifo.FifoError):
                    await ci.queue("q", timeout=5)
                await cd.publish("q", b"still here")
            await refused(cluster, "?token=one")
            with pytest.raises(fifo.InvalidArgument, match="no token 'ci'; there are: cd"):
                await root.manage_user("revoke_token", "bot", {"token": "ci"})


async def test_a_token_that_ends_ends_its_connections_at_that_time(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ROOT,)) as cluster:
        node = await cluster.leader()
        # The node's wall clock, which its test moves: nothing in the queue depends on it.
        now_ms = node.authentication._wall_ms()
        moved = 0
        node.authentication._wall_ms = lambda: now_ms + moved
        async with fifo.connect(url(cluster, ROOT_IN)) as root:
            await root.manage_user("import")
            value = {"token": "t", "digest": digest("short"), "ends_ms": now_ms + 60_000}
            await root.manage_user("add_token", "root", value)
            async with fifo.connect(url(cluster, "?token=short")) as short:
                await short.declare(fifo.QueueSpec("q"))
                assert "t" in tokens_of(node)
                moved = 60_000
                await eventually(lambda: "t" not in tokens_of(node))
                with pytest.raises(fifo.FifoError):
                    await short.queue("q", timeout=5)
            assert "token 't' of user root has ended" in await refused(cluster, "?token=short")
            await root.queue("q")


async def test_the_first_user_of_a_cluster_without_users_may_operate(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        await cluster.leader()
        everyone = ",".join(str(node.client) for node in cluster.config.nodes)
        async with fifo.connect(f"fifo://{everyone}") as first:
            weak = {"password": str(cheap_hash("a"))}
            with pytest.raises(fifo.InvalidArgument, match="no user with operate = true left"):
                await first.manage_user("add", "ann", weak)
            assert await first.manage_user("add", "root", {**weak, "operate": True})
            with pytest.raises(fifo.FifoError):
                await first.queues(timeout=5)
        with pytest.raises(fifo.AuthenticationFailed, match="needs a user"):
            async with fifo.connect(f"fifo://{everyone}", connect_timeout=10):
                pass
        async with fifo.connect(url(cluster, "root:a")) as root:
            with pytest.raises(fifo.InvalidArgument, match="operate = true left"):
                await root.manage_user("remove", "root")


async def test_of_two_changes_at_once_none_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ROOT,)) as cluster:
        await cluster.leader()
        async with fifo.connect(url(cluster, ROOT_IN)) as root:
            await root.manage_user("import")
            changes = (
                root.manage_user("add_token", "root", {"token": f"t{i}", "digest": digest(str(i))})
                for i in range(8)
            )
            done = await asyncio.gather(*changes, return_exceptions=True)
            [shown] = await root.log_users()
            kept = {one["name"] for one in shown["tokens"]} - {"token"}
            assert kept == {f"t{i}" for i, one in enumerate(done) if not isinstance(one, Exception)}
            assert kept
            assert all(isinstance(one, (dict, fifo.InvalidArgument)) for one in done)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"colour": 1}, "'colour' is no property of a user; there are: password"),
        ({"password": "s3cret"}, "must be a hash that `fifo user hash` prints"),
        ({"password": "$scrypt$ln=20,r=32,p=1$c2FsdHNhbHRzYWx0c2FsdA$eA"}, "more than 268435456"),
        ({"operate": 1}, "operate: must be true or false"),
        ({"publish": "orders"}, "publish: must be a list of texts"),
        ({"publish": [""]}, "publish: must be a list of texts"),
        ({"shares": {"cars": 1}}, "there is no quota 'cars'; there are: connections"),
        ({"shares": {"queues": -1}}, "queues must be a whole number"),
        ({"token": {"token": "a b", "digest": bytes(32)}}, "token: must be a name"),
        ({"token": {"token": "t", "digest": b"x"}}, "digest: must be the 32 bytes"),
        ({"token": {"token": "t", "digest": bytes(32), "ends_ms": -1}}, "ends_ms: must be a time"),
    ],
)
def test_values_of_a_user_are_checked_in_words(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        log_users.changed({}, values)
    assert "s3cret" not in str(caught.value)


def test_a_user_of_a_file_is_the_same_in_the_log() -> None:
    given = user("ann", **EVERYTHING, monitor=True, subjects=("CN=ann",))
    fields = log_users.fields_of(given)
    assert fields["password"] == str(given.password)
    assert log_users.changed(fields, {"shares": {"queues": 3}})["shares"] == (("queues", 3),)
    more = log_users.changed(fields, {"shares": {"queues": 3}})
    assert log_users.changed(more, {"shares": {"queues": None}})["shares"] == ()
