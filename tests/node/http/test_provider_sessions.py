"""Callers with tokens of an identity provider: sessions are of users and groups, not of tokens."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node.broker import limits as broker
from node.broker.permissions import Rights, Signed
from node.http import limits
from node.http.api.provider_tokens import ProviderTokens
from node.http.server import HttpServer
from node.server import Environment, Node
from node.users import User
from tests.node.http.test_api import Caller, calling
from tests.support.cluster import eventually, loopback_config, within
from tests.support.identity import SigningKey, jwks, settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

KEY = SigningKey("k")


class Provided:
    """A node that believes a provider, with its http port, and its wall clock in a test's hands."""

    def __init__(self, folder: Path) -> None:
        self.ahead_s = 0.0
        self.keys = folder / "keys.json"
        self.keys.write_bytes(jwks(KEY))
        self.config = replace(loopback_config(folder, 1), jwt=settings(folder))
        environment = Environment(wall=lambda: time.time() + self.ahead_s)
        self.node = Node(self.config, "n1", environment, http=HttpServer)

    def token(self, **claims: Any) -> str:
        """A token of ann in the group billing, for half a minute from now on."""
        return KEY.token(**{"exp": int(time.time() + self.ahead_s) + 30, **claims})

    def sessions(self) -> list[int]:
        """The sessions of callers."""
        return [*self.node.broker.host.machine.session_numbers()]


@asynccontextmanager
async def provided(folder: Path) -> AsyncIterator[tuple[Provided, Caller]]:
    """Such a node that leads, and a caller without credentials; it is stopped in the end."""
    made = Provided(folder)
    await made.node.start()
    try:
        await eventually(lambda: made.node.leads)
        async with calling(made.node) as caller:
            yield made, caller
    finally:
        await within(made.node.stop())


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.cluster
async def test_a_caller_has_one_session_however_many_tokens_it_shows(tmp_path: Path) -> None:
    async with provided(tmp_path) as (made, caller):
        for number in range(5):
            ann = bearer(made.token(jti=str(number), exp=int(time.time()) + 30 + number))
            await caller.ok("GET", "/queues", **ann)
            await caller.ok("PUT", "/queues/billing.in", {}, **ann)
        assert len(made.sessions()) == 2, "one of its own, and one for changes from its address"
        other = bearer(made.token(sub="bob"))
        await caller.ok("GET", "/queues", **other)
        assert len(made.sessions()) == 3


@pytest.mark.cluster
async def test_a_token_of_fewer_groups_does_not_ride_on_a_stronger_one(tmp_path: Path) -> None:
    async with provided(tmp_path) as (made, caller):
        strong = bearer(made.token(groups=["billing", "operators"]))
        weak = bearer(made.token(groups=["billing"]))
        await caller.ok("PUT", "/queues/billing.in", {}, **strong)
        await caller.ok("GET", "/audit", **strong)
        for path in ("/audit", "/users/log"):
            status, said, _ = await caller.ask("GET", path, **weak)
            assert (status, said["code"]) == (403, "permission_denied"), path
        status, said, _ = await caller.ask("POST", "/queues/billing.in/pause", **weak)
        assert (status, said["code"]) == (403, "permission_denied")
        await caller.ok("POST", "/queues/billing.in/pause", **strong)
        none = bearer(made.token(groups=["strangers"]))
        assert (await caller.ask("GET", "/queues", **none))[0] == 401


@pytest.mark.cluster
async def test_a_session_and_its_locks_go_on_with_the_next_token_and_an_ended_one_opens_nothing(
    tmp_path: Path,
) -> None:
    async with provided(tmp_path) as (made, caller):
        first = bearer(made.token())
        await caller.ok("PUT", "/queues/billing.in", {"lock_ms": 300_000}, **first)
        published = {"messages": [{"body": "a"}]}
        await caller.ask("POST", "/queues/billing.in/messages/batch", published, **first)
        (taken,) = (await caller.ok("POST", "/queues/billing.in/get", **first))["items"]
        before = made.sessions()
        made.ahead_s = 100
        # Its node ends the connections of a token that has ended; the session waits.
        status, said, _ = await caller.ask("GET", "/queues", **first)
        assert (status, "has ended" in said["detail"]) == (401, True)
        second = bearer(made.token())
        await caller.ok("GET", "/queues", **second)
        done = await caller.ok("POST", f"/locks/{taken['handle']}/ack", **second)
        assert done["status"] == "ok"
        assert set(made.sessions()) <= set(before)
        status, said, _ = await caller.ask("GET", "/queues", **first)
        assert status == 401, "it does not ride on the second one's session"


@pytest.mark.cluster
async def test_a_token_whose_key_was_withdrawn_is_out_of_hand_though_it_lasts_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "JWT_UNKNOWN_KEY_SECONDS", 0.0)
    async with provided(tmp_path) as (made, caller):
        long = bearer(made.token(exp=int(time.time()) + 3_000))
        await caller.ok("GET", "/queues", **long)
        new = SigningKey("new")
        made.keys.write_bytes(jwks(new))
        short = bearer(new.token(exp=int(time.time()) + 600))
        await caller.ok("GET", "/queues", **short)
        status, said, _ = await caller.ask("GET", "/queues", **long)
        assert (status, "is no ES256 key" in said["detail"]) == (401, True), said
        # The leader ends the connection of the old one; its user goes on in the same session.
        await caller.ok("GET", "/queues", **short)
        assert len(made.sessions()) == 1


def rights(name: str = "ann", ends_ms: int = 1_000, groups: tuple[str, ...] = ("a",)) -> Rights:
    """The rights that a token gave."""
    return Rights(User(name), signed=Signed(frozenset(groups), ends_ms, b"key", None))


def test_the_token_that_lasts_longest_and_is_believed_stays_in_hand() -> None:
    withdrawn: set[int] = set()

    def believes(given: Rights) -> bool:
        assert given.signed is not None
        return given.signed.ends_ms not in withdrawn

    tokens = ProviderTokens(believes)
    who = tokens.note("long", rights(ends_ms=3_000))
    assert tokens.note("short", rights(ends_ms=2_000)) == who
    assert tokens.token(who._replace(remote="10.0.0.1")) == "long"
    withdrawn.add(3_000)
    with pytest.raises(LookupError, match="has ended"):
        tokens.token(who)
    tokens.note("short", rights(ends_ms=2_000))
    assert tokens.token(who) == "short"
    tokens.forget(who._replace(remote="10.0.0.1"))
    with pytest.raises(LookupError):
        tokens.token(who)


def test_other_groups_or_another_user_are_other_credentials_and_all_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "API_TOKENS_MAX", 3)
    tokens = ProviderTokens(lambda _: True)
    found = [
        tokens.note("1", rights()),
        tokens.note("2", rights(groups=("a", "b"))),
        tokens.note("3", rights("bob")),
    ]
    assert len(set(found)) == 3
    assert [tokens.token(who) for who in found] == ["1", "2", "3"]
    tokens.note("1", rights())
    tokens.note("4", rights("eve"))
    assert len(tokens) == 3
    assert tokens.token(found[0]) == "1"
    with pytest.raises(LookupError):  # the one that was not shown for longest
        tokens.token(found[1])
