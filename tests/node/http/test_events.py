"""Server-sent events: a snapshot, then what changes, shared by all who listen."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fifo
from fifo.machine import commands
from node.http import limits
from node.http.api.live import LiveQueues
from node.server import Node
from tests.node.http.alone import alone
from tests.support.cluster import eventually, running, within
from tests.support.machine import Bench
from tests.support.users import EVERYTHING, user


class Stream:
    """An open stream of events."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> tuple[str, Any]:
        """The name and data of the next event; ("", None) at the end."""
        name = ""
        while line := (await within(self.answer.content.readline())).decode().rstrip("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                return name, json.loads(line[6:])
        if self.answer.content.at_eof():
            return "", None
        return await self.next()

    async def until(self, name: str) -> Any:
        """The data of the next event of this name."""
        while True:
            found, data = await self.next()
            assert found, f"the stream ended without {name}"
            if found == name:
                return data

    async def row(self, queue: str, **wanted: Any) -> Any:
        """The next row of this queue with these values."""
        while True:
            for row in (await self.until("queues"))["items"]:
                if row["name"] == queue and wanted.items() <= row.items():
                    return row


@asynccontextmanager
async def listening(node: Node, query: str, token: str | None = None) -> AsyncIterator[Stream]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"http://{node.me.http}/api/v1/events{query}") as answer,
    ):
        yield Stream(answer)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events come at once, and credentials are checked at each."""
    monkeypatch.setattr(limits, "EVENTS_SECONDS", 0.02)
    monkeypatch.setattr(limits, "EVENTS_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(limits, "EVENTS_SILENCE_SECONDS", 0.1)


@pytest.mark.cluster
@pytest.mark.usefixtures("_quick")
async def test_a_stream_is_a_snapshot_and_then_what_changes_on_any_node(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as cluster:
        await cluster.leader()
        follower = cluster.followers()[0]
        async with fifo.connect(cluster.url) as client:
            await client.declare(fifo.QueueSpec("orders"))
            await client.declare(fifo.QueueSpec("bills"))
            async with listening(follower, "?topics=overview,queues&queue=orders") as stream:
                assert stream.answer.content_type == "text/event-stream"
                assert (await stream.next())[1]["node"] == follower.me.name
                name, overview = await stream.next()
                assert name == "overview"
                assert sorted(one["role"] for one in overview["items"]) == [
                    *("follower", "follower", "leader")
                ]
                name, first = await stream.next()
                assert (name, first["snapshot"]) == ("queues", True)
                shown = await stream.until("queue")
                assert (shown["queue"]["name"], shown["locks"]) == ("orders", [])

                one = await client.publish("orders", b"4711")
                row = await stream.row("orders", ready=1)
                assert (row["locked"], row["counters"]["published"]) == (0, 1)
                await client.get("orders")
                while not (shown := await stream.until("queue"))["locks"]:
                    pass
                assert shown["locks"][0]["id"] == one.id
                assert shown["consumers"][0]["held"] == 1
                await client.delete("bills")
                while not (changed := await stream.until("queues"))["gone"]:
                    assert not changed["snapshot"]
                assert changed["gone"] == ["bills"]
                await client.delete("orders")
                problem = await stream.until("problem")
                assert problem["code"] == "queue_not_found"
                assert await stream.next() == ("", None)
            async with listening(follower, "?topics=queues") as stream:
                while (await within(stream.answer.content.readline())) != b": nothing new\n":
                    pass


@pytest.mark.cluster
@pytest.mark.usefixtures("_quick")
async def test_a_listener_sees_what_its_user_may_see_while_there_is_that_user(
    tmp_path: Path,
) -> None:
    ann, bob = user("ann", **EVERYTHING, monitor=True), user("bob", consume=("orders",))
    async with running(tmp_path, 1, users=(ann, bob)) as cluster:
        node = await cluster.leader()
        async with fifo.connect(cluster.url, token="ann-token") as client:
            await client.declare(fifo.QueueSpec("orders"))
            await client.declare(fifo.QueueSpec("secret"))
            async with listening(node, "?topics=queues") as stream:
                assert stream.answer.status == 401
            async with listening(node, "?topics=overview", "bob-token") as stream:
                assert stream.answer.status == 403
            async with listening(node, "?queue=secret", "bob-token") as stream:
                assert stream.answer.status == 403
            async with (
                listening(node, "?topics=queues&queue=orders", "bob-token") as stream,
                listening(node, "?topics=queues", "bob-token") as rows,
            ):
                first = await stream.until("queues")
                assert [row["name"] for row in first["items"]] == ["orders"]
                await client.publish("secret", b"x")
                await client.publish("orders", b"x")
                changed = await stream.until("queues")
                assert [row["name"] for row in changed["items"]] == ["orders"]
                node.reload(replace(node.config, users=(ann,)))
                async with asyncio.timeout(20):
                    for each in (stream, rows):
                        assert (await each.until("problem"))["code"] == "authentication_failed"
                        assert await each.next() == ("", None)


@pytest.mark.cluster
async def test_streams_are_bounded_and_end_with_their_node(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster, AsyncExitStack() as stack:
        node = await cluster.leader()
        streams = [
            await stack.enter_async_context(listening(node, "?topics=queues"))
            for _ in range(limits.EVENT_STREAMS_MAX)
        ]
        for stream in streams:
            assert (await stream.until("queues"))["snapshot"]
        async with listening(node, "") as stream:
            assert stream.answer.status == 503
            assert "maximum of 16 streams" in (await stream.answer.json())["detail"]
        async with listening(node, "?topics=colours") as stream:
            assert "not 'colours'" in (await stream.answer.json())["detail"]
        await within(cluster.stop())
        assert await streams[0].next() == ("", None)


@pytest.mark.cluster
@pytest.mark.usefixtures("_quick")
async def test_a_listener_that_reads_nothing_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STALLED_SECONDS", 0.2)
    async with (
        alone(tmp_path) as (node, port),
        fifo.connect(f"fifo://{node.me.client}") as client,
    ):
        names = [f"queue-{number}-{'x' * 200}" for number in range(100)]
        await asyncio.gather(*(client.declare(fifo.QueueSpec(name)) for name in names))
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect((node.me.http.host, node.me.http.port))
            peer.send(b"GET /api/v1/events?topics=queues HTTP/1.1\r\nHost: x\r\n\r\n")
            await eventually(lambda: port.connections == 1)
            async with asyncio.timeout(10):
                while port.connections:
                    await asyncio.gather(*(client.publish(name, b"x") for name in names))


def test_what_is_seen_is_what_changed_since_the_look_before() -> None:
    bench = Bench()
    session = bench.attach()
    live = LiveQueues(lambda: bench.machine)

    def look() -> int:
        asyncio.run(live.look())
        return live.looks

    def changed(since: int) -> tuple[list[str], list[str]] | None:
        found = live.since(since)
        return None if found is None else (found[0], [row.name for row in found[1]])

    bench.declare("a")
    bench.declare("b")
    first = look()
    assert [row.name for row in live.rows()] == ["a", "b"]
    bench.publish(session, "b", "x")
    second = look()
    assert (changed(first), changed(second)) == (([], ["b"]), ([], []))
    bench.subscribe(session, "a", prefetch=1)
    third = look()
    assert changed(second) == ([], ["a"])
    assert json.loads(live.rows()[0].text)["consumers"] == {"up": 1}
    bench.do(commands.PauseQueue("b"))
    bench.do(commands.DeleteQueue("a"))
    look()
    assert (changed(third), changed(first)) == ((["a"], ["b"]), (["a"], ["b"]))
    for _ in range(limits.EVENTS_CHANGES_KEPT):
        look()
    assert changed(third) is None


def test_of_very_many_queues_and_consumers_each_is_looked_at_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "EVENTS_QUEUES_PER_LOOK", 2)
    monkeypatch.setattr(limits, "EVENTS_CONSUMERS_PER_LOOK", 2)
    bench = Bench()
    session = bench.attach()
    live = LiveQueues(lambda: bench.machine)
    for name in "abcde":
        bench.declare(name)
        bench.subscribe(session, name, prefetch=1)
    asyncio.run(live.look())
    for name in "abcde":
        bench.publish(session, name, "x")
    seen = []
    for _ in range(3):
        before = live.looks
        asyncio.run(live.look())
        found = live.since(before)
        assert found is not None
        seen.append([row.name for row in found[1]])
    assert seen == [["a", "b"], ["c", "d"], ["e"]]
    for _ in range(6):
        asyncio.run(live.look())
    assert all(json.loads(row.text)["consumers"] == {"up": 1} for row in live.rows())
