"""Lists of a leader: what they say of queues, delayed messages and suspected consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fifo.wire import columns
from fifo.wire.messages import Alive, Error, Notice, Ok, Publish, QueueQuery
from node.broker import limits
from node.server import Node
from tests.support.cluster import passed, running
from tests.support.rawclient import connected


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path, count=1) as started:
        yield await started.leader()


async def test_a_long_list_of_queues_is_answered_without_its_long_parts_and_read_no_further(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connected(node.me.client)
    for place in range(20):
        await client.declare(f"q{place}")
    machine = node.broker.host.machine
    whole, look = 0, machine.queue_overview

    def counted(name: str, *, brief: bool = False) -> dict[str, object] | None:
        nonlocal whole
        whole += not brief
        return look(name, brief=brief)

    monkeypatch.setattr(machine, "queue_overview", counted)
    monkeypatch.setattr(limits, "LIST_BYTES_MAX", 4 * limits.KIB)
    answer = await client.ask(QueueQuery(None, "list", 1_000))
    assert isinstance(answer, Ok), answer
    assert [one["name"] for one in answer.result] == [f"q{place}" for place in range(20)]
    assert "spec" not in answer.result[0]
    assert whole < 10, "all of them are looked at, though few fit"
    monkeypatch.setattr(limits, "LIST_BYTES_MAX", limits.KIB)
    answer = await client.ask(QueueQuery(None, "list", 1_000))
    assert isinstance(answer, Error), answer
    assert answer.code == "too_large"
    answer = await client.ask(QueueQuery(None, "list", 1))
    assert isinstance(answer, Ok), answer
    assert "spec" in answer.result[0]


async def test_list_with_a_prefix_looks_at_no_other_queues(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connected(node.me.client)
    for name in ("a", "ab", "b"):
        await client.declare(name)
    machine = node.broker.host.machine
    asked: list[str] = []
    look = machine.queue_overview

    def noted(name: str, *, brief: bool = False) -> dict[str, object] | None:
        asked.append(name)
        return look(name, brief=brief)

    monkeypatch.setattr(machine, "queue_overview", noted)
    answer = await client.ask(QueueQuery(None, "list", 1_000, prefix="a"))
    assert isinstance(answer, Ok), answer
    assert [one["name"] for one in answer.result] == ["a", "ab"]
    assert asked == ["a", "ab"]


async def test_delayed_messages_are_shown_by_the_leaders_clock(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    listed, raw = columns.pack_publication(columns.Publication([b"one"], delays_ms=[60_000]))
    correlation = client.next_correlation()
    client.send(Publish("q", 0, 0, 1, 1, listed), correlation, raw)
    await client.confirmed(correlation)
    committed = node.broker.status()["commit"]

    async def due_in_ms() -> int:
        answer = await client.ask(QueueQuery("q", "delayed"))
        assert isinstance(answer, Ok), answer
        found: int = answer.result[0]["due_in_ms"]
        return found

    first_ms = await due_in_ms()
    async with asyncio.timeout(5.0):
        while await due_in_ms() > first_ms - 200:
            await passed(0.02)
    assert node.broker.status()["commit"] == committed, "the time was not that of an entry"


async def test_a_consumer_whose_places_are_all_lost_is_shown_as_one(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q", lock_ms=1_000)
    consumer = (await client.subscribe("q", prefetch=2, tag="t")).consumer
    await client.confirmed(client.publish("q", 0, 1, [b"one", b"two"]))
    await client.next(Notice)

    async def shown() -> tuple[int, str | None]:
        answer = await client.ask(QueueQuery("q", "consumers"))
        assert isinstance(answer, Ok), answer
        [one] = answer.result
        return one["lost_running"], one["suspected_why"]

    assert await shown() == (0, "timeout")
    assert isinstance(await client.ask(Alive(consumer, lost=2)), Ok)
    assert await shown() == (2, "all_places_lost")
    assert isinstance(await client.ask(Alive(consumer)), Ok)
    assert (await shown())[1] is None
