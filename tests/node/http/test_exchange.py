"""Publish, get and settle over HTTP: without a library, on any node."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fifo
from fifo.words import bounds
from node.http import limits
from node.server import Node
from tests.node.http.alone import alone
from tests.node.http.test_api import Caller, basic, calling
from tests.support.cluster import eventually, running
from tests.support.users import EVERYTHING, user

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


_TWO = b'{"messages": [{"body": "a"}, {"body": "b"}]}'


@asynccontextmanager
async def callers(nodes: list[Node], **options: Any) -> AsyncIterator[list[Caller]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(calling(node, **options)) for node in nodes]


async def post(
    node: Node, path: str, data: bytes | AsyncIterator[bytes] = b"", **headers: str
) -> tuple[int, dict[str, Any]]:
    """A request as a program makes it that sends bytes: status and JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://{node.me.http}/api/v1{path}",
            data=io.BytesIO(data) if isinstance(data, bytes) else data,
            headers=named,
        ) as answer,
    ):
        return answer.status, await answer.json(content_type=None)


async def test_a_message_goes_its_way_over_three_nodes(tmp_path: Path) -> None:
    """Published on one, taken on another, renewed and settled on the third."""
    async with running(tmp_path, 3) as cluster:
        await cluster.leader()
        nodes = list(cluster.nodes.values())
        async with callers(nodes) as (one, two, three):
            await one.ok("PUT", "/queues/orders", {"dead_letter": "dlq"})
            status, stored = await post(
                nodes[0], "/queues/orders/messages?key=k&priority=4", b'{"id": 1}',
                Content_Type="application/json", Fifo_Header_Origin="web",
            )  # fmt: skip
            assert (status, stored["duplicate"]) == (201, False)
            (taken,) = (await two.ok("POST", "/queues/orders/get?lock_ms=2000"))["items"]
            assert (taken["id"], taken["body"], taken["key"]) == (stored["id"], '{"id": 1}', "k")
            assert taken["headers"] == {"origin": "web", "content-type": "application/json"}
            assert 0 < taken["remaining_ms"] <= 2000

            lock = f"/locks/{taken['handle']}"
            async with asyncio.timeout(10):
                while (await three.ok("POST", f"{lock}/renew"))["remaining_ms"] < 1500:
                    pass
            assert (await two.ok("POST", f"{lock}/renew"))["remaining_ms"] > 0
            assert (await three.ok("POST", f"{lock}/ack"))["status"] == "ok"
            assert (await two.ok("POST", f"{lock}/ack"))["status"] == "already_settled"
            status, problem, _ = await one.ask("POST", f"{lock}/renew")
            assert (status, problem["code"]) == (409, "lock_lost")

            body = bytes(range(256))
            batch = [
                {"body": "text", "headers": {"n": "1"}},
                {"body_base64": base64.b64encode(body).decode(), "delay_ms": 0},
                {"body": "three", "priority": 4},
            ]
            answer = await one.ask("POST", "/queues/orders/messages/batch", {"messages": batch})
            assert (answer[0], len(answer[1]["items"])) == (201, 3)
            items = (await two.ok("POST", "/queues/orders/get?count=100"))["items"]
            assert [base64.b64decode(items[1]["body_base64"]), items[2]["body"]] == [body, "three"]
            for verb, said, each in (
                ("nack", {"delay_ms": 60_000, "reason": "later"}, items[0]),
                ("release", {"delay_ms": 60_000}, items[1]),
                ("terminate", {"reason": "bad", "description": "very"}, items[2]),
            ):
                done = await two.ok("POST", f"/locks/{each['handle']}/{verb}", said)
                assert (done["done"], done["status"]) == (verb, "ok"), done
            shown = await one.ok("GET", "/queues/orders")
            assert (shown["ready"], shown["locked"], shown["delayed"]) == (0, 0, 2)
            (letter,) = (await one.ok("GET", "/queues/dlq/peek"))["items"]
            assert letter["dead_letter"]["description"] == "very"

            # A node that stops takes no lock along.
            (taken,) = (await two.ok("POST", "/queues/dlq/get"))["items"]
            await cluster.stop(nodes[1].me.name)
            done = await three.ok("POST", f"/locks/{taken['handle']}/ack")
            assert done["status"] == "ok"


async def test_a_retry_after_a_lost_answer_is_stored_once(tmp_path: Path) -> None:
    """The node that has the request is killed when the message is committed."""
    async with running(tmp_path, 3) as cluster:
        leader = await cluster.leader()
        others = cluster.followers()
        async with callers([leader]) as (one,):
            await one.ok("PUT", "/queues/orders", {"dedup_window_ms": 60_000})
            await one.ok("PUT", "/queues/forgetful", {})
        key = {"Idempotency_Key": "order-4711", "Content_Type": "text/plain"}
        lost = asyncio.ensure_future(post(leader, "/queues/orders/messages", b"4711", **key))

        def stored() -> bool:
            return any(node.broker.host.machine.ready("orders") for node in cluster.nodes.values())

        await eventually(stored)
        await cluster.crash(leader.me.name)
        await asyncio.gather(lost, return_exceptions=True)
        await cluster.leader()
        for node in others:
            status, again = await post(node, "/queues/orders/messages", b"4711", **key)
            assert (status, again["duplicate"]) == (201, True)
        async with callers(others[:1]) as (one,):
            assert (await one.ok("GET", "/queues/orders"))["messages"] == 1
            many = {"messages": [{"body": "1"}, {"body": "2", "dedup_id": "two"}]}
            for known in (False, True):
                _, found, _ = await one.ask(
                    "POST", "/queues/orders/messages/batch", many, Idempotency_Key="b"
                )
                assert [each["duplicate"] for each in found["items"]] == [known, known]
            status, problem, _ = await one.ask(
                "POST", "/queues/forgetful/messages/batch", many, Idempotency_Key="b"
            )
            assert (status, "set its dedup_window_ms" in problem["detail"]) == (409, True)


async def test_a_get_waits_and_a_caller_that_goes_takes_nothing_along(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with callers([node]) as (one,), fifo.connect(cluster.url) as client:
            await one.ok("PUT", "/queues/orders", {})
            assert (await one.ok("POST", "/queues/orders/get"))["items"] == []
            waiting = asyncio.ensure_future(one.ok("POST", "/queues/orders/get?wait_ms=20000"))
            gone = asyncio.ensure_future(post(node, "/queues/orders/get?wait_ms=20000"))
            await client.publish("orders", b"one")
            done, _ = await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone in done:  # the other waits on: it shall be the one that goes
                waiting, gone = gone, waiting
            assert not gone.done()
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            await client.publish("orders", b"two")
            async with asyncio.timeout(10):
                while not (items := (await one.ok("POST", "/queues/orders/get"))["items"]):
                    pass
            # The get of the caller that went may have had it; it was given back, uncounted.
            assert (items[0]["body"], items[0]["failures"]) == ("two", 0)
            assert items[0]["attempt"] <= 2


async def test_a_session_that_holds_locks_stays_and_an_unused_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_CALLER_IDLE_SECONDS", 0.1)
    async with running(tmp_path, 2 + 1) as cluster:
        leader = await cluster.leader()
        follower, other = cluster.followers()
        machine = leader.broker.host.machine
        async with callers([follower, other]) as (one, two):
            await one.ok("PUT", "/queues/orders", {"lock_ms": 1000})
            await eventually(lambda: not machine.session_numbers())
            async with fifo.connect(cluster.url) as client:
                await client.publish_many("orders", [b"a", b"b"])
            items = (await one.ok("POST", "/queues/orders/get?count=2"))["items"]
            await eventually(lambda: len(machine.session_numbers()) == 1)
            # Renewed elsewhere past its end by this node's clock, then settled elsewhere.
            async with asyncio.timeout(10):
                for _ in range(8):
                    done = await two.ok("POST", f"/locks/{items[0]['handle']}/renew")
                    await asyncio.wait_for(asyncio.shield(_ended(done)), None)
            await two.ok("POST", f"/locks/{items[0]['handle']}/ack")
            await eventually(lambda: not machine.session_numbers())
            (again,) = (await one.ok("POST", "/queues/orders/get?count=2"))["items"]
            assert (again["body"], again["attempt"]) == ("b", 2)


async def test_a_node_renews_for_so_many_locks_and_not_for_what_is_settled(tmp_path: Path) -> None:
    async with alone(tmp_path) as (node, _), callers([node]) as (caller,):
        await caller.ok("PUT", "/queues/orders", {"lock_ms": 1000})
        await post(node, "/queues/orders/messages/batch", _TWO, Content_Type="application/json")
        get = "/queues/orders/get?count=2&renewals=2"
        first, second = (await caller.ok("POST", get))["items"]
        taken_at = time.monotonic()
        await caller.ok("POST", f"/locks/{first['handle']}/ack")
        (again,) = (await caller.ok("POST", "/queues/orders/get?wait_ms=15000"))["items"]
        assert (again["id"], again["attempt"]) == (second["id"], 2)
        assert time.monotonic() - taken_at >= 2, "it had two locks' time beside its own"


async def _ended(renewed: dict[str, Any]) -> None:
    """Wait for a part of what a lock has left."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), renewed["remaining_ms"] / 5000)


async def test_what_is_wrong_or_too_much_is_refused(tmp_path: Path) -> None:
    async with alone(tmp_path) as (node, port), callers([node]) as (one,):
        await one.ok("PUT", "/queues/orders", {})
        largest = b"x" * bounds.BODY_BYTES_MAX
        assert (await post(node, "/queues/orders/messages", largest))[0] == 201
        status, problem = await post(node, "/queues/orders/messages", largest + b"x")
        assert (status, problem["code"]) == (413, "too_large")
        chunks = _chunks([largest, b"x"])
        status, problem = await post(node, "/queues/orders/messages", chunks)
        assert status == 413
        status, _ = await post(node, "/queues/orders/messages", b"x", Content_Encoding="gzip")
        assert status == 415
        text = {"body_base64": base64.b64encode(largest).decode()}
        said = json.dumps({"messages": [text]}).encode()
        kind = {"Content_Type": "application/json"}
        assert (await post(node, "/queues/orders/messages/batch", said, **kind))[0] == 201
        items = (await one.ok("POST", "/queues/orders/get?count=5"))["items"]
        assert [len(each["body"]) for each in items] == [len(largest)] * 2
        batch = "/queues/orders/messages/batch"
        handle = items[0]["handle"]
        parts = handle.split(".")
        other = ".".join([parts[0], parts[1], "0" * 32, parts[3]])
        for path, body, wanted in (
            (batch, {"messages": []}, "messages: must be 1 to 1000, not 0"),
            (batch, {"messages": [1]}, "messages[0]: must be a JSON object"),
            (batch, {"messages": [{}]}, "messages[0]: give either body or body_base64"),
            (batch, {"messages": [{"body_base64": "?"}]}, "messages[0]: body_base64 is no"),
            (batch, {"messages": [{"boddy": ""}]}, "unknown parameter 'boddy' of the messages"),
            ("/queues/orders/get?wait_ms=20001", None, "wait_ms: must be at most 20000"),
            ("/locks/1.2.3/ack", None, "handle: must be the `handle` that came with"),
            (f"/locks/{handle}/eat", None, "verb: must be one of ack, nack"),
        ):
            status, problem, _ = await one.ask("POST", path, body)
            assert (status, problem["code"]) == (400, "invalid_argument"), problem
            assert problem["detail"].startswith(wanted), problem
        status, problem, _ = await one.ask("POST", f"/locks/{other}/ack")
        assert (status, problem["code"]) == (403, "permission_denied")
        assert (await one.ok("POST", f"/locks/{handle}/ack"))["status"] == "ok"
        waiting = [
            asyncio.ensure_future(post(node, "/queues/orders/get?wait_ms=20000"))
            for _ in range(limits.API_GETS_MAX)
        ]
        await eventually(lambda: port.connections > limits.API_GETS_MAX)
        async with asyncio.timeout(10):
            while (answer := await one.ask("POST", "/queues/orders/get"))[0] == 200:
                pass
        assert answer[1]["detail"].startswith("this node has its maximum of 24 gets under way")
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with asyncio.timeout(10):
            while (await one.ask("POST", "/queues/orders/get"))[0] != 200:
                pass


async def _chunks(parts: list[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_lock_is_for_its_user_alone(tmp_path: Path) -> None:
    users = (user("ann", **EVERYTHING), user("bob", consume=("orders",)))
    async with running(tmp_path, 1, users=users) as cluster:
        node = await cluster.leader()
        async with (
            calling(node, headers=basic("ann", "ann-password")) as ann,
            calling(node, headers=basic("bob", "bob-password")) as bob,
        ):
            await ann.ok("PUT", "/queues/orders", {})
            text = {"messages": [{"body": "1"}]}
            status, problem, _ = await bob.ask("POST", "/queues/orders/messages/batch", text)
            assert (status, problem["code"]) == (403, "permission_denied")
            await ann.ask("POST", "/queues/orders/messages/batch", text)
            (item,) = (await ann.ok("POST", "/queues/orders/get"))["items"]
            for verb in ("ack", "renew"):
                status, problem, _ = await bob.ask("POST", f"/locks/{item['handle']}/{verb}")
                assert (status, problem["code"]) == (409, "lock_lost"), verb
            assert (await ann.ok("POST", f"/locks/{item['handle']}/ack"))["status"] == "ok"


async def test_what_a_form_of_a_page_can_send_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with callers([node]) as (one,):
            await one.ok("PUT", "/queues/orders", {})
        path = "/queues/orders/messages"
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            status, problem = await post(node, path, b"x", Content_Type=kind)
            assert (status, "`Fifo-Request: 1`" in problem["detail"]) == (403, True)
            assert (await post(node, path, b"x", Content_Type=kind, Fifo_Request="1"))[0] == 201
        assert (await post(node, path, b"x", Content_Type="text/plain", Idempotency_Key="k"))[
            0
        ] == 409
        # A name of another site that leads here: the page is of one origin with the address.
        there = {"Host": "evil.example:80", "Origin": "http://evil.example:80"}
        status, problem = await post(node, path, b"x", **there)
        assert (status, "under an address or a name of a node" in problem["detail"]) == (403, True)
        assert (await post(node, path, b"x", Origin=f"http://{node.me.http}"))[0] == 201
        async with (
            aiohttp.ClientSession() as browser,
            browser.options(
                f"http://{node.me.http}/api/v1{path}",
                headers={
                    "Origin": "https://evil.example",
                    "Access-Control-Request-Method": "POST",
                },
            ) as answer,
        ):
            assert answer.status == 405
            assert not any(name.startswith("Access-Control") for name in answer.headers)
