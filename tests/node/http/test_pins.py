"""Long lists and pinned views over HTTP: page by page, while everything moves."""

from __future__ import annotations

import base64
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import fifo
from tests.node.http.test_api import Caller, basic, calling
from tests.support.cluster import running
from tests.support.users import EVERYTHING, user


async def pages(caller: Caller, path: str, **headers: str) -> list[list[dict[str, Any]]]:
    """All pages of a list, by its cursor."""
    found: list[list[dict[str, Any]]] = []
    cursor: Any = None
    name = "cursor" if "/pins/" in path and path.partition("?")[0].endswith("messages") else "after"
    while True:
        mark = "&" if "?" in path else "?"
        page = await caller.ok(
            "GET", path if cursor is None else f"{path}{mark}{name}={cursor}", **headers
        )
        found.append(page["items"])
        cursor = page["next"]
        if cursor is None:
            return found


@pytest.mark.cluster
async def test_lists_of_locks_consumers_producers_and_sessions_go_page_by_page(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as cluster:
        await cluster.leader()
        follower = cluster.followers()[0]
        async with calling(follower) as caller, fifo.connect(cluster.url) as client:
            await client.declare(fifo.QueueSpec("q"))
            await client.publish_many("q", [b"x"] * 50)
            held = [*await client.get("q", 5), *await client.get("q", 20, lock=60)]
            async with fifo.connect(cluster.url) as another, AsyncExitStack() as stack:
                held += await another.get("q", 7)
                await client.declare(fifo.QueueSpec("c"))
                for tag in "abcd":
                    await stack.enter_async_context(client.consume("c", tag=tag))
                for i in range(5):
                    await (await client.open_producer(f"p{i}")).publish("q", b"y", number=1)

                listed = await pages(caller, "/queues/q/locks?limit=10")
                assert [len(page) for page in listed] == [10, 10, 10, 2]
                shown = [(one["consumer"], one["token"]) for page in listed for one in page]
                assert shown == sorted((one.consumer, one.token) for one in held)

                waiting = [30.0, 90.0, 60.0, 60.0, 60.0, 60.0]
                confirms = await client.publish_many("c", [b"x"] * 6, delays=waiting)
                listed = await pages(caller, "/queues/c/delayed?limit=2")
                assert [len(page) for page in listed] == [2, 2, 2]
                order = [one["id"] for page in listed for one in page]
                assert set(order) == {one.id for one in confirms}
                assert (order[0], order[-1]) == (confirms[0].id, confirms[1].id)

                listed = await pages(caller, "/queues/c/consumers?limit=3")
                assert [[one["tag"] for one in page] for page in listed] == [["a", "b", "c"], ["d"]]

                listed = await pages(caller, "/queues/q/producers?limit=2")
                assert [one["name"] for page in listed for one in page] == [
                    f"p{i}" for i in range(5)
                ]
                listed = await pages(caller, "/sessions?limit=1")
                assert [len(page) for page in listed] == [1, 1, 1]

                # What goes between two pages takes no other one along.
                first = await caller.ok("GET", "/queues/q/locks?limit=10")
                for one in held[:3]:
                    await one.ack(receipt=True)
                rest = await caller.ok("GET", f"/queues/q/locks?limit=100&after={first['next']}")
                assert [(one["consumer"], one["token"]) for one in rest["items"]] == shown[10:]

            for path in (
                "/queues/q/locks?after=1",
                "/queues/q/locks?after=a.b",
                "/queues/q/consumers?after=-1.0",
                "/queues/q/delayed?after=17",
                f"/sessions?after={'1' * 20}.0",
            ):
                status, said, _ = await caller.ask("GET", path)
                assert (status, "is no cursor" in said["detail"]) == (400, True), path
            assert (await caller.ask("GET", "/queues/none/locks"))[0] == 404
            assert (await caller.ask("GET", "/queues/q/locks?limit=1001"))[0] == 400


@pytest.mark.cluster
async def test_a_pinned_view_stands_still_and_its_node_looks_at_the_conditions(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as cluster:
        await cluster.leader()
        one, other = cluster.followers()
        async with (
            calling(one) as caller,
            calling(other) as elsewhere,
            fifo.connect(cluster.url) as client,
        ):
            await client.declare(fifo.QueueSpec("q", dead_letter="dlq"))
            for i in range(25):
                await client.publish("q", f"{i}".encode(), key=f"k{i % 2}", headers={"n": f"{i}"})
            (held,) = await client.get("q")
            status, made, _ = await caller.ask("POST", "/pins", {"lease_ms": 60_000})
            assert (status, made["lease_ms"]) == (201, 60_000)
            await held.terminate("broken")
            await client.purge("q")

            of_q = f"/pins/{made['pin']}/queues/q"
            listed = await pages(elsewhere, f"{of_q}/messages?limit=10")
            assert [one["body"] for page in listed for one in page] == [f"{i}" for i in range(25)]
            assert listed[0][0]["state"] == "locked"
            chosen = await pages(elsewhere, f"{of_q}/messages?key=k1&state=ready")
            assert [one["body"] for page in chosen for one in page] == [
                f"{i}" for i in range(1, 25, 2)
            ]
            (found,) = await pages(caller, f"{of_q}/messages?header=n=7")
            assert [one["body"] for one in found] == ["7"]
            (bare,) = await pages(caller, f"{of_q}/messages?bodies=false&limit=100")
            assert {one["body"] for one in bare} == {""}
            (dead,) = await pages(caller, f"{of_q}/messages?state=dead&reason=terminated")
            assert dead == []
            queues = await pages(caller, f"/pins/{made['pin']}/queues?limit=1")
            assert [one["name"] for page in queues for one in page] == ["dlq", "q"]
            (consumers,) = await pages(caller, f"{of_q}/consumers")
            assert [one["held"] for one in consumers] == [1]
            assert (await caller.ok("GET", f"/pins/{made['pin']}"))["index"] == made["index"]

            assert (await caller.ask("GET", f"{of_q}/messages?state=dad"))[0] == 400
            assert (await caller.ask("GET", f"/pins/{made['pin']}/queues/none/messages"))[0] == 404
            assert (await caller.ok("DELETE", f"/pins/{made['pin']}"))["done"] == "unpin"
            status, said, _ = await caller.ask("GET", f"{of_q}/messages")
            assert (status, said["code"]) == (410, "pin_gone")


def named(ref: str) -> str:
    return base64.urlsafe_b64encode(ref.encode()).decode().rstrip("=")


@pytest.mark.cluster
async def test_a_pin_leads_to_no_address_but_those_of_the_nodes_and_has_the_users_rights(
    tmp_path: Path,
) -> None:
    users = (user("root", **EVERYTHING, operate=True), user("ann", consume=("mine",)))
    async with running(tmp_path, 1, users=users) as cluster:
        node = await cluster.leader()
        root, ann = basic("root", "root-password"), basic("ann", "ann-password")
        async with calling(node) as caller:
            for queue in ("mine", "other"):
                await caller.ok("PUT", f"/queues/{queue}", {}, **root)
            for pin in (
                "x",
                "%00",
                "a" * 400,
                named(f"127.0.0.1:1/{'0' * 32}/1/1"),
                named(f"{node.me.http}/{'0' * 32}/1/1"),
                named(f"{node.me.client}/{'0' * 30}/1/1"),
                named(f"{node.me.client}/{'0' * 32}/1/x"),
            ):
                status, said, _ = await caller.ask("GET", f"/pins/{pin}", **root)
                assert (status, said["code"]) == (400, "invalid_argument"), pin
            unknown = named(f"{node.me.client}/{'0' * 32}/1/1")
            assert (await caller.ask("GET", f"/pins/{unknown}", **root))[0] == 410
            _, made, _ = await caller.ask("POST", "/pins", {}, **ann)
            listed = await caller.ok("GET", f"/pins/{made['pin']}/queues", **ann)
            assert [one["name"] for one in listed["items"]] == ["mine"]
            of = f"/pins/{made['pin']}/queues"
            assert (await caller.ask("GET", f"{of}/mine/messages", **ann))[0] == 200
            assert (await caller.ask("GET", f"{of}/other/messages", **ann))[0] == 403
            assert (await caller.ask("POST", "/pins", {"lease_ms": 1}, **ann))[0] == 400
