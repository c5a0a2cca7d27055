"""The console's stream: one rendering for all who have the same, and an end for each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fifo
from node.http import limits
from node.server import Node
from tests.node.http.alone import alone
from tests.support.cluster import eventually, running, within
from tests.support.users import EVERYTHING, user

pytestmark = pytest.mark.cluster


class Stream:
    """A browser that is pushed answers."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> Any:
        """The next answer, or problem; None at the end."""
        found = await self.event()
        return None if found is None else found[1]

    async def event(self) -> tuple[str, Any] | None:
        """The next event, with its name; None at the end."""
        lines: list[bytes] = []
        while (line := await within(self.answer.content.readline())) != b"\n":
            if not line:
                return None
            lines.append(line)
        name = lines[0].removeprefix(b"event: ").strip().decode() if len(lines) > 1 else ""
        return name, json.loads(lines[-1].removeprefix(b"data: "))

    async def queue(self) -> Any:
        """The next view of a queue that is pushed."""
        while (found := await self.event()) is not None:
            if found[0] == "queue":
                return found[1]
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def watching(node: Node, query: str = "", token: str | None = None) -> AsyncIterator[Stream]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"http://{node.me.http}/console/feed/stream{query}") as answer,
    ):
        yield Stream(answer)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of the console is short, and credentials are checked in each."""
    monkeypatch.setattr(limits, "PICTURE_SECONDS", 0.05)
    monkeypatch.setattr(limits, "LOOK_SECONDS_MIN", 0.04)
    monkeypatch.setattr(limits, "QUEUE_VIEW_SECONDS", 0.04)
    monkeypatch.setattr(limits, "PICTURE_SHARE", 1.0)
    monkeypatch.setattr(limits, "EVENTS_CHECK_SECONDS", 0.0)


@pytest.mark.usefixtures("_quick")
async def test_ten_browsers_share_one_rendering_of_what_has_changed(tmp_path: Path) -> None:
    async with (
        alone(tmp_path) as (node, port),
        fifo.connect(f"fifo://{node.me.client}") as client,
        AsyncExitStack() as stack,
    ):
        for name in ("a", "b"):
            await client.declare(fifo.QueueSpec(name))
        streams = [await stack.enter_async_context(watching(node)) for _ in range(10)]
        firsts = [await stream.next() for stream in streams]
        assert [one["queues"]["whole"] for one in firsts] == [True] * 10
        before = port.console.streams.renderings
        answers = [[await stream.next() for stream in streams] for _ in range(20)]
        made = port.console.streams.renderings - before
        assert made < 100, "of 200 answers"
        assert not any(one["queues"]["whole"] for some in answers for one in some)
        await client.publish("b", b"x")
        for stream in streams:
            while not (rows := (await stream.next())["queues"]["rows"]):
                pass
            assert [row[1] for row in rows] == ["b"]


@pytest.mark.usefixtures("_quick")
async def test_a_browser_that_comes_again_gets_what_it_lacks(tmp_path: Path) -> None:
    async with (
        alone(tmp_path) as (node, _),
        fifo.connect(f"fifo://{node.me.client}") as client,
    ):
        await client.declare(fifo.QueueSpec("a"))
        async with watching(node) as stream:
            while not (seen := await stream.next())["queues"]["rows"]:
                pass
        has = f"?boot={seen['boot']}&since={seen['queues']['version']}"
        async with watching(node, has) as stream:
            again = await stream.next()
            assert (again["queues"]["whole"], again["queues"]["rows"]) == (False, [])
            assert all("roles" not in view for view in again["nodes"])
        async with watching(
            node, f"?boot=another&since={seen['queues']['version']}&roles"
        ) as stream:
            again = await stream.next()
            assert (again["queues"]["whole"], len(again["queues"]["rows"])) == (True, 1)
            assert [view["roles"][-1]["role"] for view in again["nodes"]] == ["leader"]


@pytest.mark.usefixtures("_quick")
async def test_streams_are_bounded_leave_no_place_taken_and_end_with_their_node(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(watching(node))
                for _ in range(limits.CONSOLE_STREAMS_MAX)
            ]
            async with watching(node) as late:
                assert late.answer.status == 503
                problem = await late.answer.json(content_type=None)
                assert problem["code"] == "overloaded", "by which the page asks instead"
            assert (await streams[0].next())["node"] == "n1"
        async with asyncio.timeout(10):
            while True:
                async with watching(node) as stream:
                    if stream.answer.status == 200:
                        assert (await stream.next())["node"] == "n1"
                        await within(cluster.stop())
                        while await stream.next() is not None:
                            pass
                        return


@pytest.mark.usefixtures("_quick")
async def test_a_stream_shows_what_its_user_may_see_and_ends_with_the_user(tmp_path: Path) -> None:
    ann, bob = user("ann", **EVERYTHING, monitor=True), user("bob", consume=("orders",))
    async with running(tmp_path, 1, users=(ann, bob)) as cluster:
        node = await cluster.leader()
        async with fifo.connect(cluster.url, token="ann-token") as client:
            for name in ("orders", "secret"):
                await client.declare(fifo.QueueSpec(name))
            await eventually(lambda: node.broker.host.machine.has_queue("secret"))
            async with watching(node) as stream:
                assert stream.answer.status == 401
            async with (
                watching(node, token="ann-token") as anns,
                watching(node, token="bob-token") as bobs,
            ):
                seen = await anns.next()
                assert ([row[1] for row in seen["queues"]["rows"]]) == ["orders", "secret"]
                assert [view["name"] for view in seen["nodes"]] == ["n1"]
                seen = await bobs.next()
                assert ([row[1] for row in seen["queues"]["rows"]]) == ["orders"]
                assert "nodes" not in seen
                node.reload(replace(node.config, users=(ann,)))
                while (seen := await bobs.next()).get("code") is None:
                    assert [row[1] for row in seen["queues"]["rows"]] in ([], ["orders"])
                assert seen["code"] == "authentication_failed"
                assert await bobs.next() is None
                assert (await anns.next())["user"] == "ann"


@pytest.mark.usefixtures("_quick")
async def test_the_view_of_a_queue_is_pushed_when_it_differs_and_asked_for_once_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUE_VIEW_SECONDS", 3600.0)
    async with (
        alone(tmp_path) as (node, port),
        fifo.connect(f"fifo://{node.me.client}") as client,
        AsyncExitStack() as stack,
    ):
        await client.declare(fifo.QueueSpec("orders"))
        views, asked = port.console.views, []
        ask = views.ask

        async def counted(*key: Any) -> Any:
            asked.append(key)
            return await ask(*key)

        monkeypatch.setattr(views, "ask", counted)
        streams = [
            await stack.enter_async_context(watching(node, "?queue=orders")) for _ in range(10)
        ]
        for stream in streams:
            assert (await stream.event() or ("end",))[0] == "", "the cluster comes first"
            view = await stream.queue()
            assert (view["queue"]["name"], view["queue"]["ready"]) == ("orders", 0)
            assert view["may"]["manage"]
        events = [await stream.event() or ("end", {}) for _ in range(20) for stream in streams]
        pushed = [view for name, view in events if name == "queue"]
        assert all(view["history"]["times_ms"] for view in pushed), "nothing else is new"
        assert len(asked) == 1
        monkeypatch.setattr(limits, "QUEUE_VIEW_SECONDS", 0.04)
        await client.publish("orders", b"x")
        for stream in streams:
            while (await stream.queue())["queue"]["ready"] != 1:
                pass


@pytest.mark.usefixtures("_quick")
async def test_a_browser_has_the_pages_and_samples_that_it_asked_for(tmp_path: Path) -> None:
    locked = limits.QUEUE_ITEMS_SHOWN + 3
    async with (
        alone(tmp_path) as (node, _),
        fifo.connect(f"fifo://{node.me.client}") as client,
    ):
        await client.declare(fifo.QueueSpec("orders", lock=300))
        await client.publish_many("orders", [b"x"] * locked)
        async with client.consume("orders", prefetch=locked) as messages:
            for _ in range(locked):
                assert await messages.next(timeout=5) is not None
            async with watching(node, "?queue=orders") as stream:
                first = await stream.queue()
                while not first["history"]["times_ms"]:
                    first = await stream.queue()
            cursor, boot = first["next"]["locks"], first["boot"]
            query = f"?queue=orders&locks={cursor}&boot={boot}&from={first['history']['next']}"
            async with watching(node, query) as stream:
                second = await stream.queue()
            assert len(first["locks"]) == limits.QUEUE_ITEMS_SHOWN
            assert len(second["locks"]) == 3
            assert second["history"]["first"] >= first["history"]["next"]
            async with watching(node, query.replace(boot, "another")) as stream:
                again = await stream.queue()
                assert again["history"]["first"] < first["history"]["next"], "all samples"


@pytest.mark.usefixtures("_quick")
async def test_a_queue_that_is_missing_or_not_for_the_user_is_a_problem_in_the_stream(
    tmp_path: Path,
) -> None:
    ann, bob = user("ann", **EVERYTHING, monitor=True), user("bob", consume=("orders",))
    async with running(tmp_path, 1, users=(ann, bob)) as cluster:
        node = await cluster.leader()
        async with fifo.connect(cluster.url, token="ann-token") as client:
            await client.declare(fifo.QueueSpec("secret"))
            async with watching(node, "?queue=secret", token="bob-token") as stream:
                assert (await stream.queue())["problem"]["code"] == "permission_denied"
                assert (await stream.next())["user"] == "bob", "the stream goes on"
            async with watching(node, "?queue=later", token="ann-token") as stream:
                assert (await stream.queue())["problem"]["code"] == "queue_not_found"
                await client.declare(fifo.QueueSpec("later"))
                while "problem" in (found := await stream.queue()):
                    pass
                assert found["queue"]["name"] == "later"
                await client.delete("later")
                while "problem" not in (found := await stream.queue()):
                    pass
                assert found["problem"]["code"] == "queue_not_found"


@pytest.mark.usefixtures("_quick")
async def test_a_leader_that_does_not_answer_holds_nothing_else_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster is shown on, though the word about a queue waits."""
    monkeypatch.setattr(limits, "EVENTS_ANSWER_SECONDS", 0.02)
    async with (
        alone(tmp_path) as (node, port),
        fifo.connect(f"fifo://{node.me.client}") as client,
    ):
        await client.declare(fifo.QueueSpec("orders"))
        answered = asyncio.Event()
        views = port.console.views
        ask = views.ask

        async def late(*key: Any) -> Any:
            await answered.wait()
            return await ask(*key)

        monkeypatch.setattr(views, "ask", late)
        async with watching(node, "?queue=orders") as stream:
            for _ in range(5):
                name, found = await stream.event() or ("end", {})
                assert (name, found["node"]) == ("", "n1")
            answered.set()
            assert (await stream.queue())["queue"]["name"] == "orders"


@pytest.mark.usefixtures("_quick")
async def test_a_stream_whose_browser_has_gone_leaves_its_place_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page opens another stream for each queue that it shows."""
    monkeypatch.setattr(limits, "PICTURE_SECONDS", 3600.0)
    monkeypatch.setattr(limits, "CONSOLE_STREAMS_MAX", 1)
    async with alone(tmp_path) as (node, _):
        for _ in range(3):
            async with asyncio.timeout(10):
                while True:
                    async with watching(node, "?queue=nothing") as stream:
                        if stream.answer.status == 200:
                            assert (await stream.next())["node"] == "n1"
                            break


@pytest.mark.usefixtures("_quick")
async def test_the_status_of_a_node_that_was_restarted_is_asked_on_a_new_connection(
    tmp_path: Path,
) -> None:
    """The connections to the others stay open while someone looks, and are of no use after that."""
    async with running(tmp_path, 3) as cluster:
        await cluster.leader()
        asked, other = cluster.followers()
        async with watching(asked) as stream:
            name = other.me.name

            async def until(up: bool) -> None:
                async with asyncio.timeout(20):
                    while True:
                        views = {view["name"]: view for view in (await stream.next())["nodes"]}
                        if ("error" not in views[name]) == up:
                            return

            await until(True)
            await cluster.crash(name)
            await until(False)
            await cluster.start(name)
            await until(True)
