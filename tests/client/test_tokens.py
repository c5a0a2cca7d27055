"""Programs that log in by tokens of an identity provider, against a real node."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fifo
from node.config import ClusterConfig
from node.server import Environment, Node
from node.table import ConfigError
from tests.support.cluster import eventually, loopback_config
from tests.support.identity import BILLING, OPERATORS, SigningKey, jwks, settings

pytestmark = pytest.mark.process

KEY = SigningKey("k")


class Signed:
    """A node that believes a provider, and its wall clock."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.ahead_s = 0.0
        (folder / "keys.json").write_bytes(jwks(KEY))
        provider = settings(folder, **changes)
        self.config: ClusterConfig = replace(loopback_config(folder, 1), jwt=provider)
        environment = Environment(wall=lambda: time.time() + self.ahead_s)
        self.node = Node(self.config, "n1", environment)
        self.url = f"fifo://{self.config.nodes[0].client}"


@asynccontextmanager
async def signed(folder: Path, **changes: Any) -> AsyncIterator[Signed]:
    """Such a node that leads; it is stopped in the end."""
    made = Signed(folder, **changes)
    await made.node.start()
    try:
        await eventually(lambda: made.node.leads)
        yield made
    finally:
        await made.node.stop()


async def test_a_token_in_the_url_is_its_user_and_permissions_are_those_of_its_groups(
    tmp_path: Path,
) -> None:
    async with signed(tmp_path) as made:
        async with fifo.connect(f"{made.url}?token={KEY.token()}") as client:
            await client.declare(fifo.QueueSpec("billing.in"))
            await client.publish("billing.in", b"x")
            assert [one.user for one in await client.sessions()] == ["ann"]
            with pytest.raises(fifo.PermissionDenied, match="user ann has no permission to pub"):
                await client.publish("orders", b"x")
            with pytest.raises(fifo.PermissionDenied):
                await client.log_users()
        operator = KEY.token(sub="root", groups=["operators"])
        async with fifo.connect(made.url, token=operator) as client:
            assert [one.name for one in await client.users()] == ["ann", "root"]
        with pytest.raises(fifo.AuthenticationFailed, match="not for 'fifo'"):
            async with fifo.connect(made.url, token=KEY.token(aud="shop"), connect_timeout=10):
                pass
        with pytest.raises(fifo.AuthenticationFailed, match="needs a user"):
            async with fifo.connect(made.url, connect_timeout=10):
                pass


async def test_a_connection_ends_with_its_token_and_the_client_with_it(tmp_path: Path) -> None:
    async with signed(tmp_path) as made:
        token = KEY.token(exp=int(time.time()) + 30)
        async with fifo.connect(made.url, token=token) as client:
            await client.declare(fifo.QueueSpec("billing.in"))
            made.ahead_s = 100
            await eventually(lambda: not client.connected)
            with pytest.raises(fifo.AuthenticationFailed, match="user ann has ended"):
                await client.queue("billing.in")


async def test_a_program_that_has_fresh_tokens_goes_on_in_its_session_and_keeps_its_locks(
    tmp_path: Path,
) -> None:
    async with signed(tmp_path) as made:
        asked = 0

        def fresh() -> str:
            nonlocal asked
            asked += 1
            if asked == 2:
                raise OSError("the provider is away")
            return KEY.token(exp=int(time.time() + made.ahead_s) + 30)

        async with fifo.connect(made.url, token=fresh) as client:
            await client.declare(fifo.QueueSpec("billing.in", lock=300))
            await client.publish("billing.in", b"x")
            (message,) = await client.get("billing.in")
            (before,) = [one.session for one in await client.sessions()]
            lost = client.metrics.disconnects
            made.ahead_s = 100
            await eventually(lambda: client.metrics.disconnects > lost)
            (after,) = [one.session for one in await client.sessions()]
            assert after == before
            assert (await message.ack(receipt=True)).status is fifo.Status.OK
        assert asked >= 3


async def test_a_callable_that_gives_no_token_is_named(tmp_path: Path) -> None:
    async with signed(tmp_path) as made:
        for source, words in (
            (lambda: 7, "token: what the callable returned: must be text, not int"),
            (lambda: 1 / 0, "token: the callable failed: ZeroDivisionError"),
        ):
            with pytest.raises(fifo.ConnectionLost, match=words):
                async with fifo.connect(made.url, token=source, connect_timeout=0.2):  # type: ignore[arg-type]  # wrong on purpose
                    pass


async def test_a_reload_brings_other_groups_to_open_connections(tmp_path: Path) -> None:
    async with signed(tmp_path) as made:
        config = made.config
        async with fifo.connect(made.url, token=KEY.token()) as client:
            await client.declare(fifo.QueueSpec("billing.in"))
            less = settings(tmp_path, groups=(replace(BILLING, publish=()), OPERATORS))
            made.node.reload(replace(config, jwt=less))
            with pytest.raises(fifo.PermissionDenied):
                await client.publish("billing.in", b"x")
        with pytest.raises(ConfigError, match=r"\[jwt\]: adding or removing the section"):
            made.node.reload(replace(config, jwt=None))


def test_two_credentials_at_once_are_refused() -> None:
    with pytest.raises(fifo.InvalidArgument, match="token or a password, not both"):
        fifo.connect("fifo://a:b@h:1", token=lambda: "x", user="a", password="b")
