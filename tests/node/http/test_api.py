"""The HTTP API: every route of its table, over real HTTP, on any node."""

from __future__ import annotations

import base64
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
