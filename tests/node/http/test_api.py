"""The HTTP API: every route of its table, over real HTTP, on any node."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fifo
from node.http import limits
from node.http.api import openapi
from node.http.api.table import ROUTES
from node.server import Node
from tests.support.cluster import LocalCluster, loopback_config, running
from tests.support.users import EVERYTHING, user


class Caller:
    """A program that knows HTTP and JSON."""

    def __init__(self, session: aiohttp.ClientSession, node: Node) -> None:
        self._session = session
        self._base = f"http://{node.me.http}/api/v1"

    async def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, str]:
        """Status, JSON and ETag of one request."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(
            method, self._base + path, json=body, headers=named
        ) as answer:
            return (
                answer.status,
                await answer.json(content_type=None),
                answer.headers.get("ETag", ""),
            )

    async def ok(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The JSON of a request that has to succeed."""
        status, found, _ = await self.ask(method, path, body, **headers)
        assert status == 200, found
        return found


def basic(name: str, password: str) -> dict[str, str]:
    """The header of these credentials."""
    given = base64.b64encode(f"{name}:{password}".encode()).decode()
    return {"Authorization": f"Basic {given}"}


@asynccontextmanager
async def calling(node: Node, **options: Any) -> AsyncIterator[Caller]:
    async with aiohttp.ClientSession(**options) as session:
        yield Caller(session, node)


def test_the_document_is_the_one_that_the_code_makes() -> None:
    """Else run `python -m node.http.api.openapi`."""
    assert openapi.FILE.read_text(encoding="utf-8") == openapi.text()


def test_the_document_describes_each_route_once_with_its_path_parameters() -> None:
    paths = openapi.document()["paths"]
    described = [
        (method.upper(), path, one["operationId"])
        for path, methods in paths.items()
        for method, one in methods.items()
    ]
    wanted = [(one.method, openapi.PREFIX + one.path, one.name) for one in ROUTES]
    assert sorted(described) == sorted(wanted)
    assert len({name for _, _, name in described}) == len(described)
    for route in ROUTES:
        in_path = {param.name for param in route.params if param.where == "path"}
        assert in_path == {part[1:-1] for part in route.path.split("/") if part.startswith("{")}


@pytest.mark.cluster
async def test_any_node_reads_and_acts_as_the_command_line_does(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        await cluster.leader()
        follower = cluster.followers()[0]
        async with calling(follower) as caller, fifo.connect(cluster.url) as client:
            made = await caller.ok(
                "PUT", "/queues/orders", {"lock_ms": 20_000, "dead_letter": "dlq"}
            )
            assert made == {"queue": "orders", "created": True}
            one = (await client.publish("orders", b"4711", key="k")).id
            await client.publish("orders", b"two", delay=60)
            (held,) = await client.get("orders")

            listed = await caller.ok("GET", "/queues?limit=1")
            assert ([each["name"] for each in listed["items"]], listed["next"]) == (["dlq"], "dlq")
            listed = await caller.ok("GET", "/queues?limit=1&after=dlq")
            assert ([each["name"] for each in listed["items"]], listed["next"]) == (
                ["orders"],
                None,
            )
            assert (await caller.ok("GET", "/queues/orders"))["spec"]["lock_ms"] == 20_000
            for what, count in (("locks", 1), ("delayed", 1), ("consumers", 1), ("producers", 0)):
                items = (await caller.ok("GET", f"/queues/orders/{what}"))["items"]
                assert len(items) == count, what
            assert (await caller.ok("GET", "/queues/orders/peek"))["items"] == []
            found = await caller.ok("GET", "/queues/orders/messages?place=locked")
            assert ([each["id"] for each in found["items"]], found["next"]) == ([one], None)
            assert (await caller.ok("GET", "/status"))["role"] == "leader"
            assert (await caller.ok("GET", "/users"))["items"] == []
            sessions = [each["client"] for each in (await caller.ok("GET", "/sessions"))["items"]]
            assert f"http-api@{follower.me.name}" in sessions

            path = f"/queues/orders/messages/{one}"
            status, shown, etag = await caller.ask("GET", path)
            assert (status, shown["place"], shown["body"]) == (200, "locked", "4711")
            status, problem, _ = await caller.ask("POST", f"{path}/unlock", If_Match='"1-1-1-1"')
            assert (status, problem["code"]) == (412, "message_not_found")
            done = await caller.ok("POST", f"{path}/unlock", {"delay_ms": 60_000}, If_Match=etag)
            assert done["was"] == "locked"
            assert (await held.ack(receipt=True)).status == fifo.Status.OK
            status, problem, _ = await caller.ask("POST", f"{path}/retry")
            assert (status, problem["code"], problem["retryable"]) == (
                404,
                "message_not_found",
                False,
            )

            three = (await client.publish("orders", b"three")).id
            await caller.ok("POST", f"/queues/orders/messages/{three}/terminate", {"reason": "bad"})
            (group,) = (await caller.ok("GET", "/queues/dlq/dead-letters"))["items"]
            assert (group["messages"], group["reason"]) == (1, "terminated")
            found = await caller.ok("GET", "/queues/dlq/messages?exception_type=KeyError")
            assert found == {"items": [], "next": None}
            page = await caller.ok(
                "POST", "/queues/dlq/move", {"target": "orders", "headers": {"by": "him"}}
            )
            assert (page["messages"], page["next"]) == (0, None)
            counted = await caller.ok("POST", "/queues/dlq/redrive", {"dry_run": True})
            assert counted["messages"] == 1
            edited = {"body": "fixed", "headers": {"by": "me"}}
            await caller.ok("POST", f"/queues/dlq/messages/{three}/resend", edited)
            copied = await caller.ok(
                "POST", f"/queues/orders/messages/{three}/copy", {"target": "dlq"}
            )
            (copy,) = (await caller.ok("GET", "/queues/dlq/peek"))["items"]
            assert (copy["id"], copy["body"]) == (copied["copy"], "fixed")
            moved = await caller.ok("POST", "/queues/dlq/move", {"target": "orders"})
            assert moved["messages"] == 1
            for verb in ("pause", "resume"):
                await caller.ok("POST", f"/queues/orders/{verb}")
            await caller.ok("PATCH", "/queues/orders", {"max_length": 9})
            assert (await client.queue("orders")).spec["max_length"] == 9
            assert (await caller.ok("POST", "/queues/orders/purge"))["messages"] == 3
            await caller.ok("POST", "/queues/dlq/redrive", {"target": "orders"})
            await caller.ok("DELETE", "/queues/orders")
            status, problem, _ = await caller.ask("GET", "/queues/orders")
            assert (status, problem["code"]) == (404, "queue_not_found")


@pytest.mark.cluster
async def test_options_that_two_change_at_once_are_changed_by_one(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with calling(node) as caller, fifo.connect(cluster.url) as client:
            await caller.ok("PUT", "/queues/orders", {})
            _, _, etag = await caller.ask("GET", "/queues/orders")
            changed = await asyncio.gather(
                *(
                    caller.ask("PATCH", "/queues/orders", {"max_length": most}, If_Match=etag)
                    for most in (5, 6, 7)
                )
            )
            assert sorted(status for status, _, _ in changed) in ([200, 412, 412], [200, 412, 503])
            _, _, now = await caller.ask("GET", "/queues/orders")
            assert now != etag
            status, problem, _ = await caller.ask(
                "PATCH", "/queues/orders", {"max_length": 9}, If_Match=etag
            )
            assert (status, problem["info"]["version"]) == (412, now.strip('"'))
            await caller.ok("PATCH", "/queues/orders", {"max_length": 9}, If_Match=now)
            # A queue of the same options under the same name is another one.
            view = await client.queue("orders")
            await client.delete("orders")
            await client.declare(fifo.QueueSpec("orders", max_length=9))
            with pytest.raises(fifo.InvalidArgument, match="is not as it was seen"):
                await client.update("orders", version=view.version, max_length=1)


@pytest.mark.cluster
async def test_an_operator_ends_sessions_and_hands_the_leadership_over(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        await cluster.leader()
        follower = cluster.followers()[0]
        async with calling(follower) as caller, fifo.connect(cluster.url) as client:
            await caller.ok("PUT", "/queues/orders", {})
            await (await client.open_producer("loader")).publish("orders", b"1", number=1)
            (producer,) = (await caller.ok("GET", "/queues/orders/producers"))["items"]
            assert producer["name"] == "loader"
            await caller.ok("DELETE", "/producers/loader")
            assert (await caller.ok("GET", "/queues/orders/producers"))["items"] == []

            await client.get("orders")
            first = await caller.ok("GET", "/sessions?limit=1")
            rest = await caller.ok("GET", f"/sessions?after={first['next']}")
            both = [*first["items"], *rest["items"]]
            assert (len(both), rest["next"]) == (3, None)
            assert [each["number"] for each in both] == sorted(each["number"] for each in both)
            assert (await caller.ok("GET", "/sessions?user=stranger"))["items"] == []
            (mine,) = [each for each in both if not each["client"].startswith("http-api")]
            await caller.ok("DELETE", f"/sessions/{mine['session']}")
            assert (await caller.ok("GET", "/queues/orders"))["ready"] == 1

            handed = await caller.ok("POST", "/leadership", {"node": follower.me.name})
            assert handed == {"leader": follower.me.name}
            nodes = (await caller.ok("GET", "/nodes"))["items"]
            assert {each["node"]: each["role"] for each in nodes}[follower.me.name] == "leader"
            await cluster.stop(cluster.followers()[0].me.name)
            nodes = (await caller.ok("GET", "/nodes"))["items"]
            assert sorted(each["role"] for each in nodes) == ["down", "follower", "leader"]


@pytest.mark.cluster
async def test_what_is_wrong_is_a_problem_with_fact_value_and_fix(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with calling(node) as caller:
            await caller.ok("PUT", "/queues/orders", {})
            for method, path, body, wanted in (
                ("GET", "/queues?limit=0", None, "limit: must be at least 1, not 0"),
                ("GET", "/queues?limit=x", None, "limit: must be a whole number, not 'x'"),
                ("GET", "/queues?colour=red", None, "unknown parameter 'colour' of the query: use"),
                ("PUT", "/queues/q", {"lokc_ms": 1}, "unknown parameter 'lokc_ms' of the body"),
                ("PUT", "/queues/q", {"lock_ms": "soon"}, "lock_ms: must be of type integer, not"),
                ("PUT", "/queues/q", [1], "the body of the request must be a JSON object"),
                ("POST", "/queues/orders/move", {}, "target: is missing (Queue that they go to.)"),
                ("GET", "/queues/orders/messages/x", None, "id: must be a message id of three"),
                ("POST", "/queues/orders/messages/1.1.1/explode", None, "action: must be one of"),
            ):
                status, problem, _ = await caller.ask(method, path, body)
                assert (status, problem["code"]) == (400, "invalid_argument"), problem
                assert problem["detail"].startswith(wanted), problem
            large = {"reason": "x" * limits.API_BODY_BYTES_MAX}
            status, problem, _ = await caller.ask("POST", "/queues/orders/redrive", large)
            assert (status, problem["code"]) == (413, "too_large")
            status, problem, _ = await caller.ask("PUT", "/queues/orders", {"lock_ms": 9_000})
            assert (status, problem["code"]) == (409, "queue_exists")
            assert problem["info"]["differences"]["lock_ms"]


@pytest.mark.cluster
async def test_a_page_of_another_site_may_not_change_anything(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with calling(node) as caller:
            await caller.ok("PUT", "/queues/orders", {}, Origin=f"http://{node.me.http}")
            for headers in ({"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
                status, problem, _ = await caller.ask("POST", "/queues/orders/purge", **headers)
                assert (status, problem["code"]) == (403, "permission_denied")
                assert "may not change anything here" in problem["detail"]


@pytest.mark.cluster
async def test_a_caller_has_the_rights_of_its_user_and_no_others(tmp_path: Path) -> None:
    config = replace(
        loopback_config(tmp_path, 1),
        users=(user("ann", **EVERYTHING), user("bob", consume=("orders",))),
    )
    cluster = LocalCluster(config)
    try:
        await cluster.start()
        node = await cluster.leader()
        ann = {"headers": {"Authorization": "Bearer ann-token"}}
        async with calling(node, **ann) as caller:
            await caller.ok("PUT", "/queues/orders", {})
        async with calling(node, headers=basic("bob", "bob-password")) as caller:
            assert (await caller.ok("GET", "/queues/orders/locks"))["items"] == []
            status, problem, _ = await caller.ask("POST", "/queues/orders/purge")
            assert (status, problem["code"]) == (403, "permission_denied")
        async with calling(node) as caller:
            status, problem, _ = await caller.ask("GET", "/queues")
            assert (status, problem["code"]) == (401, "authentication_failed")
        async with calling(node, headers=basic("bob", "wrong")) as caller:
            status, problem, _ = await caller.ask("GET", "/queues")
            assert (status, problem["code"]) == (401, "authentication_failed")
    finally:
        await cluster.stop()


@pytest.mark.cluster
async def test_users_of_the_log_are_changed_and_no_secret_is_written_down(tmp_path: Path) -> None:
    ops = user("ops", **EVERYTHING, monitor=True, operate=True)
    async with running(tmp_path, 1, users=(ops,)) as cluster:
        node = await cluster.leader()
        async with calling(node, headers={"Authorization": "Bearer ops-token"}) as caller:
            await caller.ok("POST", "/users/import")
            first = {"token": "first", "digest": "00" * 32, "ends_ms": 0}
            await caller.ok(
                "POST", "/users/bob/add", {"values": {"consume": ["orders"], "token": first}}
            )
            digest = hashlib.sha256(b"bob-secret").hexdigest()
            token = {"token": "ci", "digest": digest, "ends_ms": 0}
            status, problem, _ = await caller.ask(
                "POST", "/users/bob/add_token", {"values": {**token, "digest": "no"}}
            )
            assert (status, problem["detail"][:29]) == (400, "digest: must be 64 hexadecima")
            await caller.ok("POST", "/users/bob/add_token", {"values": token})
            listed = await caller.ok("GET", "/users/log")
            assert [each["name"] for each in listed["items"]] == ["bob", "ops"]
            async with calling(node, headers={"Authorization": "Bearer bob-secret"}) as bob:
                assert (await bob.ok("GET", "/queues"))["items"] == []
                status, problem, _ = await bob.ask("POST", "/users/bob/remove")
                assert (status, problem["code"]) == (403, "permission_denied")
            await caller.ok("POST", "/users/bob/remove")
            lines = (await caller.ok("GET", "/audit"))["items"]
            assert [line["verb"] for line in lines[::-1]] == [
                *("user_import", "user_add", "user_add_token", "user_remove", "user_remove")
            ]
            assert digest not in str(lines)
            assert "00" * 32 not in str(lines)
            assert lines[2]["what"]["values"]["token"] == "ci"
