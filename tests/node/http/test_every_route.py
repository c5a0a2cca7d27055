"""Every operation of the document that a node serves, as a program makes it that knows the document
alone: asked of a follower, its answers and refusals are of the form that is described."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
import pytest

import fifo
from fifo.wire import Code
from fifo.words.actions import ACTIONS
from node.http.api import problems
from node.http.api.exchange import VERBS
from node.server import Node
from tests.node.http.test_api import basic
from tests.support.cluster import eventually, running
from tests.support.users import EVERYTHING, cheap_hash, user

ROOT = user("root", **EVERYTHING, monitor=True, operate=True)
ANN = user("ann", **EVERYTHING)


class Answer(NamedTuple):
    """An answer of the kind that the document describes."""

    status: int
    said: Any
    etag: str


class Documented:
    """A program that has read `openapi.json`, and knows nothing else of a node."""

    def __init__(
        self, session: aiohttp.ClientSession, node: Node, document: dict[str, Any]
    ) -> None:
        self._session = session
        self._base = f"http://{node.me.http}"
        self.problem = document["components"]["schemas"]["Problem"]
        self.operations = {
            one["operationId"]: (method, path, one)
            for path, methods in document["paths"].items()
            for method, one in methods.items()
        }
        self.asked: set[str] = set()

    async def ask(self, name: str, /, *, raw: bytes | None = None, **given: Any) -> Answer:
        """Do an operation; a header's `_` stands for `-`. The answer has to be as described."""
        method, path, operation = self.operations[name]
        self.asked.add(name)
        headers, query, body = {"Fifo-Request": "1"}, {}, {}
        content = operation.get("requestBody", {}).get("content", {})
        fields = content.get("application/json", {}).get("schema", {}).get("properties", {})
        where = {one["name"]: one["in"] for one in operation["parameters"]}
        for key, value in given.items():
            place = where.get(key) or where.get(key.replace("_", "-"))
            if place == "path":
                path = path.replace(f"{{{key}}}", quote(str(value), safe=""))
            elif place == "query":
                query[key] = str(value).lower() if isinstance(value, bool) else str(value)
            elif place == "header":
                headers[key.replace("_", "-")] = value
            else:
                assert key in fields, f"{name} describes no {key}"
                body[key] = value
        if raw is not None:
            assert "*/*" in content
            headers["Content-Type"] = "application/octet-stream"
        async with self._session.request(
            method,
            self._base + path,
            params=query,
            headers=headers,
            data=raw,
            json=(body or None) if raw is None else None,
        ) as answer:
            text = await answer.read()
            described = operation["responses"].get(str(answer.status))
            kind = answer.content_type
            if described is not None:
                assert kind in described["content"], (name, kind)
            else:
                assert kind == "application/problem+json", (name, answer.status, text)
                self._check(json.loads(text), answer.status)
            return Answer(answer.status, json.loads(text), answer.headers.get("ETag", ""))

    def _check(self, said: dict[str, Any], status: int) -> None:
        """A refusal is a problem as the document describes it, of a code of the protocol."""
        assert set(self.problem["required"]) <= said.keys() <= self.problem["properties"].keys()
        assert said["status"] == status
        assert said["code"] in tuple(Code)
        assert said["type"] == f"urn:fifo:problem:{said['code']}"

    async def ok(self, name: str, /, **given: Any) -> Any:
        """The answer of an operation that has to succeed."""
        found = await self.ask(name, **given)
        assert found.status in (200, 201), (name, found.said)
        return found.said

    async def refused(self, status: int, code: str, name: str, /, **given: Any) -> Any:
        """The problem of an operation that has to be refused."""
        found = await self.ask(name, **given)
        assert (found.status, found.said["code"]) == (status, code), (name, found.said)
        return found.said

    async def items(self, name: str, /, **given: Any) -> list[dict[str, Any]]:
        """A list, in pages of one item."""
        found: list[dict[str, Any]] = []
        cursor = "cursor" if name == "pinned_messages" else "after"
        page = await self.ok(name, limit=1, **given)
        while page["next"] is not None:
            assert len(page["items"]) <= 1
            found += page["items"]
            page = await self.ok(name, limit=1, **given, **{cursor: page["next"]})
        return found + list(page["items"])


@asynccontextmanager
async def documented(node: Node, who: dict[str, str]) -> AsyncIterator[Documented]:
    async with aiohttp.ClientSession(headers=who) as session:
        async with session.get(f"http://{node.me.http}/api/v1/openapi.json") as answer:
            document = await answer.json()
        yield Documented(session, node, document)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_every_operation_does_what_its_document_says_through_a_follower(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3, users=(ROOT, ANN)) as cluster:
        await cluster.leader()
        follower = cluster.followers()[0]
        root = basic("root", "root-password")
        async with (
            documented(follower, root) as api,
            fifo.connect(cluster.url, token="ann-token", name="elsewhere") as client,
        ):
            await _queues(api)
            await _exchange(api)
            await _single_messages(api)
            await _dead_letters(api)
            await _views(api)
            await _people(api, client)
            await _users(api)
            await _cluster(api, follower)
            # One that ends is asked by `test_events.py`.
            assert set(api.operations) - api.asked == {"events"}
        async with documented(follower, {}) as stranger:
            for name, (_, path, _) in stranger.operations.items():
                given = {part[1:-1]: "x" for part in path.split("/") if part.startswith("{")}
                if "action" in given:
                    given["action"] = "retry" if name == "act" else "set"
                raw = b"x" if name == "publish" else None
                await stranger.refused(401, "authentication_failed", name, raw=raw, **given)


async def _queues(api: Documented) -> None:
    made = {"lock_ms": 60_000, "dead_letter": "orders.dlq", "dedup_window_ms": 60_000}
    assert (await api.ok("declare", queue="orders", **made))["created"]
    assert not (await api.ok("declare", queue="orders", **made))["created"]
    await api.refused(409, "queue_exists", "declare", queue="orders", lock_ms=5_000)
    await api.ok("declare", queue="aside")
    assert [one["name"] for one in await api.items("queues", prefix="orders")] == [
        *("orders", "orders.dlq")
    ]
    seen = (await api.ask("queue", queue="orders")).etag
    await api.ok("update", queue="orders", max_length=1_000, If_Match=seen)
    problem = await api.refused(
        412, "invalid_argument", "update", queue="orders", max_length=5, If_Match=seen
    )
    assert (await api.ask("queue", queue="orders")).etag.strip('"') == problem["info"]["version"]
    for verb, paused in (("pause", True), ("resume", False)):
        await api.ok(verb, queue="orders")
        assert (await api.ok("queue", queue="orders"))["paused"] is paused
    await api.refused(404, "queue_not_found", "queue", queue="nowhere")


async def _exchange(api: Documented) -> None:
    key = {"Idempotency_Key": "order-1"}
    one = await api.ok("publish", queue="orders", raw=b"one", key="k", priority=4, **key)
    again = await api.ok("publish", queue="orders", raw=b"one", key="k", priority=4, **key)
    assert (again["id"], one["duplicate"], again["duplicate"]) == (one["id"], False, True)
    batch = [{"body": "two"}, {"body": "three", "delay_ms": 600_000}]
    assert len((await api.ok("publish_batch", queue="orders", messages=batch))["items"]) == 2
    assert len((await api.ok("peek", queue="orders"))["items"]) == 2
    taken = (await api.ok("get", queue="orders", count=9, lock_ms=30_000))["items"]
    assert [each["body"] for each in taken] == ["one", "two"]
    (consumer,) = await api.items("consumers", queue="orders")
    assert consumer["held"] == 2
    assert len(await api.items("locks", queue="orders")) == 2
    first, second = (each["handle"] for each in taken)
    assert (await api.ok("settle", handle=first, verb="renew"))["remaining_ms"] > 0
    assert (await api.ok("settle", handle=first, verb="ack"))["status"] == "ok"
    assert (await api.ok("settle", handle=second, verb="release"))["status"] == "ok"
    await api.refused(409, "lock_lost", "settle", handle=second, verb="renew")
    assert set(VERBS) == {"ack", "nack", "release", "terminate", "renew"}
    # The other verbs: `test_exchange.py`.
    assert len(await api.items("delayed", queue="orders")) == 1
    assert (await api.ok("purge", queue="orders"))["messages"] == 2
    assert (await api.ok("get", queue="orders", wait_ms=1))["items"] == []


async def _single_messages(api: Documented) -> None:
    batch = [{"body": f"{n}", "key": f"k{n}"} for n in range(6)]
    made = (await api.ok("publish_batch", queue="orders", messages=batch))["items"]
    ids = [each["id"] for each in made]

    async def act(at: int, action: str, queue: str = "orders", **given: Any) -> str:
        done.add(action)
        seen = (await api.ask("message", queue=queue, id=ids[at])).etag
        given |= {"queue": queue, "id": ids[at], "action": action, "If_Match": seen}
        return str((await api.ok("act", **given))["was"])

    done: set[str] = set()
    assert await act(0, "delay", delay_ms=600_000) == "ready"
    assert await act(0, "retry") == "delayed"
    (taken,) = (await api.ok("get", queue="orders"))["items"]
    assert taken["id"] == ids[0]
    assert await act(0, "unlock", delay_ms=600_000) == "locked"
    assert await act(0, "cancel") == "delayed"
    await api.refused(404, "message_not_found", "message", queue="orders", id=ids[0])
    assert await act(1, "delete") == "ready"
    assert await act(2, "terminate", reason="poison") == "ready"
    assert await act(2, "resend", "orders.dlq", body="edited", headers={"by": "hand"}) == "ready"
    assert await act(3, "move", target="aside") == "ready"
    assert done == set(ACTIONS)
    await api.refused(
        412, "message_not_found", "act",
        queue="orders", id=ids[4], action="delete", If_Match='"1-1-1-1"',
    )  # fmt: skip
    copied = await api.ok("copy", queue="orders", id=ids[4], target="aside", body="copied")
    found = await api.items("find", queue="aside")
    assert [each["id"] for each in found] == [ids[3], copied["copy"]]
    (one,) = await api.items("find", queue="orders", key="k5", place="ready")
    assert one["id"] == ids[5]
    (edited,) = await api.items("find", queue="orders", header="by=hand")
    assert (edited["id"], edited["body"]) == (ids[2], "edited")
    assert await api.items("find", queue="orders", older_than_ms=86_400_000) == []
    large = "x" * 300_000
    await act(5, "resend", body=large)
    assert (await api.ok("message", queue="orders", id=ids[5]))["body"] == large
    moved = await api.ok("move", queue="orders", target="aside", headers={"by": "hand"})
    assert (moved["messages"], moved["next"]) == (1, None)
    assert (await api.ok("move", queue="orders", target="aside", limit=1))["messages"] == 1
    assert (await api.ok("queue", queue="orders"))["messages"] == 1
    await api.refused(404, "queue_not_found", "move", queue="orders", target="nowhere")


async def _dead_letters(api: Documented) -> None:
    batch = [{"body": f"{n}"} for n in range(20)]
    await api.ok("publish_batch", queue="orders", messages=batch)
    for taken in (await api.ok("get", queue="orders", count=100))["items"]:
        await api.ok("settle", handle=taken["handle"], verb="terminate", reason="poison")
    (group,) = (await api.ok("dead_letters", queue="orders.dlq"))["items"]
    assert (group["messages"], group["reason"]) == (21, "terminated")
    chosen = {"queue": "orders.dlq", "reason": "terminated", "source": "orders"}
    assert (await api.ok("redrive", **chosen, dry_run=True))["messages"] == 21
    assert (await api.ok("redrive", **chosen, rate_per_s=1))["rate_per_s"] == 1
    assert (await api.ok("cancel_redrive", queue="orders.dlq"))["status"] == "cancelled"
    await api.refused(
        409, "no_dead_letter_queue", "act",
        queue="aside", id=(await api.items("find", queue="aside"))[0]["id"], action="terminate",
    )  # fmt: skip


async def _views(api: Documented) -> None:
    pin = (await api.ok("pin", lease_ms=60_000))["pin"]
    of = {"pin": pin, "queue": "orders.dlq"}
    assert (await api.ok("pinned", pin=pin))["index"] > 0
    assert len(await api.items("pinned_queues", pin=pin)) == 3
    assert await api.items("pinned_consumers", pin=pin, queue="aside") == []
    count = (await api.ok("queue", queue="orders.dlq"))["messages"]
    listed = await api.ok("pinned_messages", **of, state="dead", reason="terminated", limit=100)
    assert len(listed["items"]) == count
    for unmet in ({"stack_line": "at Shop.pay"}, {"older_than_ms": 86_400_000}):
        assert await api.items("pinned_messages", **of, **unmet) == []
    await api.ok("unpin", pin=pin)
    await api.refused(410, "pin_gone", "pinned", pin=pin)


async def _people(api: Documented, client: fifo.Client) -> None:
    await (await client.open_producer("loader")).publish("aside", b"1", number=1)
    (producer,) = await api.items("producers", queue="aside")
    assert producer["name"] == "loader"
    await api.ok("forget_producer", producer="loader")
    assert await api.items("producers", queue="aside") == []
    await api.refused(404, "unknown_producer", "forget_producer", producer="loader")
    (session,) = await api.items("sessions", user="ann")
    assert session["client"] == "elsewhere"
    await api.ok("end_session", session=session["session"])
    assert sorted(one["name"] for one in await api.items("users")) == ["ann", "root"]


async def _users(api: Documented) -> None:
    await api.ok("import_users")
    await api.refused(400, "invalid_argument", "import_users")
    bob = {"user": "bob", "values": {"consume": ["orders"]}}
    await api.ok("manage_user", action="add", **bob)
    listed = {one["name"]: one for one in await api.items("log_users")}
    assert sorted(listed) == ["ann", "bob", "root"]
    seen = str(listed["bob"]["revision"])
    change = {"user": "bob", "values": {"consume": ["aside"]}, "action": "set"}
    made = (await api.ok("manage_user", **change, If_Match=f'"{seen}"'))["is"]
    assert (made["consume"], made["revision"] > int(seen)) == (["aside"], True)
    problem = await api.refused(412, "invalid_argument", "manage_user", **change, If_Match=seen)
    assert problem["info"] == {"revision": made["revision"]}
    wrong = await api.refused(400, "invalid_argument", "manage_user", **change, If_Match="new")
    assert wrong["detail"].startswith("If-Match: must be a whole number")
    gone = {"user": "bob", "action": "remove"}
    await api.refused(412, "invalid_argument", "manage_user", **gone, If_Match=seen)
    await api.ok("manage_user", **gone, If_Match=str(made["revision"]))
    # The same one again: the caller goes on with what it knows.
    assert await api.ok("own_password", password_hash=str(cheap_hash("root-password")))
    lines = (await api.ok("audit", limit=10))["items"]
    assert [one["verb"] for one in lines][:2] == ["user_password", "user_remove"]
    assert {one["user"] for one in await api.items("audit", queue="aside", user="root")} == {"root"}
    assert await api.items("audit", since_ms=4_102_444_800_000) == []


async def _cluster(api: Documented, follower: Node) -> None:
    assert (await api.ok("status"))["role"] == "leader"
    roles = [one["role"] for one in (await api.ok("nodes"))["items"]]
    assert sorted(roles) == ["follower", "follower", "leader"]
    await api.ok("finish_upgrade")
    assert [one["learner"] for one in (await api.ok("members"))["members"]] == [False] * 3
    begun = await api.ok(
        "change_members", action="move", member=follower.me.name, http="127.0.0.9:9"
    )
    assert (begun["number"], begun["wanted"]) == (1, [])
    await eventually(lambda: "127.0.0.9:9" in [str(one.http) for one in follower.roster.nodes])
    again = {"action": "move", "member": follower.me.name, "http": str(follower.me.http)}
    assert (await api.ok("change_members", **again))["number"] == 2
    ended = (await api.ok("members"))["ended"]
    assert ended[0] == {"term": begun["term"], "index": begun["index"], "done": True}
    await api.refused(400, "invalid_argument", "change_members", action="undo")
    await api.ok("transfer_leadership", node=follower.me.name)
    await eventually(lambda: follower.leads)
    await api.ok("delete", queue="aside")
    await api.refused(404, "queue_not_found", "queue", queue="aside")


def test_every_code_of_the_protocol_has_a_status() -> None:
    """500 is a fault of the node: so is a stream that breaks the protocol, for the node is the one
    who sends it, and a gap in the numbers of a producer, for no route has a producer."""
    faults = {Code.INTERNAL, Code.PROTOCOL, Code.UNSUPPORTED_VERSION, Code.GAP}
    for code in Code:
        problem = problems.Problem(code, "fact, value, fix")
        assert (problem.status == 500) == (code in faults), code
        assert not problem.retryable or problem.status in (500, 503), code
