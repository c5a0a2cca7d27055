"""Bounds of the API as callers meet them over HTTP: sessions on their behalf, messages that they
hold, and the quotas of their users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fifo
from fifo.words import bounds
from node.credentials import hash_token
from node.http import limits
from node.users import FILE_TOKEN, Quota, Token, User
from tests.node.http.alone import alone
from tests.node.http.test_api import Caller, calling
from tests.support.cluster import running

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(120)]


def with_token(name: str, **shares: int) -> User:
    """A user that may do all to queues, with the token `NAME-token` and these shares."""
    return User(
        name,
        tokens=(Token(FILE_TOKEN, hash_token(f"{name}-token")),),
        declare=("*",),
        publish=("*",),
        consume=("*",),
        shares=tuple((Quota(quota), share) for quota, share in shares.items()),
    )


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}-token"}


async def batch(caller: Caller, queue: str, count: int, **who: str) -> tuple[int, Any]:
    """Publish so many short messages; status and JSON."""
    messages = {"messages": [{"body": str(number)} for number in range(count)]}
    status, found, _ = await caller.ask("POST", f"/queues/{queue}/messages/batch", messages, **who)
    return status, found


async def test_callers_that_hold_messages_keep_their_places_and_one_more_is_refused(
    tmp_path: Path,
) -> None:
    names = [f"u{number}" for number in range(limits.API_CALLERS_MAX + 1)]
    users = tuple(with_token(name) for name in names)
    async with running(tmp_path, 1, users=users) as cluster:
        node = await cluster.leader()
        async with calling(node) as caller:
            await caller.ok("PUT", "/queues/orders", {"lock_ms": 300_000}, **bearer("u0"))
            assert (await batch(caller, "orders", len(names), **bearer("u0")))[0] == 201
            held = {}
            for name in names[:-1]:
                found = await caller.ok("POST", "/queues/orders/get", **bearer(name))
                (held[name],) = found["items"]
            late = bearer(names[-1])
            status, problem, _ = await caller.ask("POST", "/queues/orders/get", **late)
            assert (status, problem["code"], problem["retryable"]) == (503, "overloaded", True)
            assert problem["detail"].startswith(
                f"this node serves its maximum of {limits.API_CALLERS_MAX} callers"
            )
            # No caller that has a place is worse off.
            for name, verb in (("u1", "renew"), ("u0", "ack")):
                path = f"/locks/{held[name]['handle']}/{verb}"
                assert (await caller.ok("POST", path, **bearer(name)))["done"] == verb
            # The first holds nothing any more.
            found = await caller.ok("POST", "/queues/orders/get", **late)
            assert len(found["items"]) == 1


async def test_a_caller_that_holds_its_number_of_messages_has_to_settle_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_HELD_MESSAGES_MAX", 1000)  # a tenth, which takes a tenth
    most, part = limits.API_HELD_MESSAGES_MAX, limits.API_GET_MESSAGES_MAX
    async with (
        alone(tmp_path) as (node, _),
        fifo.connect(f"fifo://{node.me.client}") as client,
        calling(node) as caller,
    ):
        await caller.ok("PUT", "/queues/orders", {"lock_ms": 300_000})
        await client.publish_many("orders", [b"x"] * (most + part))
        get, count = f"/queues/orders/get?count={part}", 0
        while (answer := await caller.ask("POST", get))[0] == 200:
            items = answer[1]["items"]
            count += len(items)
        assert most <= count < most + part
        assert (answer[0], answer[1]["code"]) == (503, "overloaded")
        assert answer[1]["detail"].startswith(f"{count} messages ({count} bytes) are held")
        assert answer[1]["detail"].endswith("settle some, or ask another node")
        for item in items:
            await caller.ok("POST", f"/locks/{item['handle']}/ack")
        assert (await caller.ok("POST", "/queues/orders/get"))["items"]


async def test_a_caller_that_holds_its_bytes_of_bodies_has_to_settle_some(tmp_path: Path) -> None:
    size = bounds.BODY_BYTES_MAX
    most = limits.API_HELD_BYTES_MAX // size
    async with (
        alone(tmp_path) as (node, _),
        fifo.connect(f"fifo://{node.me.client}") as client,
        calling(node) as caller,
    ):
        await caller.ok("PUT", "/queues/scans", {"lock_ms": 300_000})
        for _ in range(most + 1):
            await client.publish("scans", bytes(size))
        held: list[Any] = []
        get = f"/queues/scans/get?count={most}"
        while (answer := await caller.ask("POST", get))[0] == 200:
            held += answer[1]["items"]
        assert len(held) == most
        assert (answer[0], answer[1]["code"]) == (503, "overloaded")
        assert f"{most} messages ({limits.API_HELD_BYTES_MAX} bytes)" in answer[1]["detail"]
        await caller.ok("POST", f"/locks/{held[0]['handle']}/ack")
        assert len((await caller.ok("POST", get))["items"]) == 1


async def test_quotas_hold_over_http_and_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What may pass is tried for the time of an answer.
    monkeypatch.setattr(limits, "API_ANSWER_SECONDS", 1.0)
    users = (
        with_token("ann", queues=1),
        with_token("bob", consumers=0),
        with_token("cay", stored_bytes=1000),
        with_token("dan", sessions=0),
        with_token("eve", requests_per_s=0),
    )
    async with running(tmp_path, 1, users=users) as cluster:
        node = await cluster.leader()
        async with calling(node) as caller:

            async def refused(who: str, method: str, path: str, body: Any = None) -> Any:
                status, problem, _ = await caller.ask(method, path, body, **bearer(who))
                return status, problem["code"], (problem.get("info") or {}).get("quota")

            await caller.ok("PUT", "/queues/anns", {}, **bearer("ann"))
            found = await refused("ann", "PUT", "/queues/another", {})
            assert found == (429, "limit", "queues")
            found = await refused("bob", "POST", "/queues/anns/get")
            assert found == (429, "limit", "consumers")
            await caller.ok("PUT", "/queues/cays", {}, **bearer("cay"))
            large = {"messages": [{"body": "x" * 2000}]}
            found = await refused("cay", "POST", "/queues/cays/messages/batch", large)
            assert found == (503, "overloaded", "stored_bytes")
            # It is the room of the queue's owner that counts.
            assert (await batch(caller, "anns", 1, **bearer("cay")))[0] == 201
            # A place for a session may come free, so it is waited for.
            status, problem, _ = await caller.ask("GET", "/queues", **bearer("dan"))
            assert (status, problem["code"]) == (503, "overloaded")
            assert "user dan has 0 sessions, at most 0" in problem["detail"]
            found = await refused("eve", "GET", "/queues")
            assert found == (503, "overloaded", "requests_per_s")
            # No other user is any slower for it.
            assert (await batch(caller, "anns", 3, **bearer("ann")))[0] == 201
