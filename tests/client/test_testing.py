"""`fifo.testing`: the server's own rules in virtual time, on the event loop of the test."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any

import pytest
import uvloop

import fifo
import fifo.testing
from node.config import NODES_MAX

pytestmark = pytest.mark.slow


async def test_a_lock_that_is_renewed_ends_at_its_longest_time() -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("orders", lock=30, max_lock=180))
        await client.publish("orders", b"one")
        async with client.consume("orders", prefetch=1) as messages:
            message = await messages.next(timeout=5)
            assert message is not None
            await cluster.advance(minutes=2)
            assert cluster.queue("orders").view.locked == 1
            await cluster.advance(minutes=2)
            assert message.attempt == 1
            assert message.is_lost


async def test_a_backoff_ends_and_the_dead_letter_has_its_reason() -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("dead"))
        await client.declare(
            fifo.QueueSpec("orders", dead_letter="dead", max_deliveries=2, nack_backoff="fixed:5s")
        )
        await client.publish("orders", b"poison")
        for _ in range(2):
            (message,) = await client.get("orders", timeout=60)
            await message.nack()
            await cluster.advance(seconds=5)
        queue = cluster.queue("orders")
        assert (queue.view.messages, [one.reason for one in queue.dead]) == (0, ["max_deliveries"])
        assert queue.dead[0].body == b"poison"


async def test_a_timer_that_waits_for_the_smallest_time_ends() -> None:
    """Less than the clock of the loop can show may be left until an instant."""
    async with fifo.testing.cluster() as cluster:
        loop = asyncio.get_running_loop()
        until = math.nextafter(cluster.now, math.inf)
        over = loop.create_future()
        looks = 0

        def look() -> None:
            nonlocal looks
            looks += 1
            if cluster.now < until and looks < 1_000:
                loop.call_later(until - cluster.now, look)
            else:
                over.set_result(None)

        look()
        await over
        assert looks < 10


async def test_a_lost_leader_loses_nothing() -> None:
    async with fifo.testing.cluster(nodes=3) as cluster, fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("orders"))
        await client.publish("orders", b"before")
        killed = cluster.kill_leader()
        await client.publish("orders", b"after")
        assert cluster.leader not in (None, killed)
        assert [one.body for one in cluster.queue("orders").messages] == [b"before", b"after"]
        cluster.start(killed)


async def test_a_queue_shows_its_messages_after_restarts() -> None:
    """Their bodies are on the disk alone then."""
    async with fifo.testing.cluster(nodes=3) as cluster, fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("orders"))
        await client.publish("orders", b"one")
        for number in range(4):
            killed = cluster.kill_leader()
            await cluster.advance(seconds=5)
            cluster.start(killed)
            await client.publish("orders", b"%d" % number)
        bodies = [one.body for one in cluster.queue("orders").messages]
        assert bodies == [b"one", b"0", b"1", b"2", b"3"]


async def test_time_passes_without_waiting_for_it() -> None:
    began = time.perf_counter()
    async with fifo.testing.cluster(nodes=3) as cluster:
        before = cluster.now
        await cluster.advance(seconds=60)
        assert 60 <= cluster.now - before < 61
    assert time.perf_counter() - began < 30


async def test_a_cluster_that_works_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with fifo.testing.cluster(nodes=3) as cluster, fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("orders"))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_client_that_is_cut_off_comes_back_to_its_session() -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(fifo.QueueSpec("orders", lock=300))
        await client.publish("orders", b"held")
        (message,) = await client.get("orders", timeout=5)
        cluster.cut(client)
        with pytest.raises(fifo.Timeout):
            await client.publish("orders", b"one", timeout=20)
        cluster.heal()
        await client.publish("orders", b"two")
        assert (client.metrics.disconnects > 0, client.metrics.sessions_ended) == (True, 0)
        await message.ack()  # its lock is the session's
        await cluster.advance()
        queue = cluster.queue("orders")
        assert queue.view.locked == 0
        assert b"held" not in [one.body for one in queue.messages]


async def test_the_clock_of_the_loop_goes_on_where_the_cluster_is_closed() -> None:
    loop = asyncio.get_running_loop()
    async with fifo.testing.cluster() as cluster:
        await asyncio.sleep(60)
        inside = loop.time()
    assert loop.time() >= inside
    with pytest.raises(fifo.InvalidArgument, match="in no cluster of this process"):
        await fifo.connect(cluster.url)


async def test_a_second_cluster_on_one_loop_is_refused_and_leaves_the_first() -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        with pytest.raises(fifo.testing.UnsuitableLoop, match="has a cluster already"):
            await fifo.testing.cluster().__aenter__()
        await client.declare(fifo.QueueSpec("orders"))
    async with fifo.testing.cluster():
        pass


def test_a_loop_without_a_virtual_clock_is_refused() -> None:
    async def enter() -> None:
        async with fifo.testing.cluster():
            pass

    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(fifo.FifoError, match=r"uvloop\.Loop, whose clock cannot be virtual: use"),
    ):
        runner.run(enter())


async def test_what_cannot_be_is_refused_with_the_value() -> None:
    for nodes in (0, 1 + NODES_MAX, "3", True):
        with pytest.raises(fifo.InvalidArgument, match=f"^nodes: must be .*, not {nodes!r}"):
            fifo.testing.cluster(nodes)  # type: ignore[arg-type]  # wrong on purpose
    async with fifo.testing.cluster(NODES_MAX) as cluster:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"seconds": "5"}, "advance: seconds must be a number, not '5'"),
            ({"minutes": math.nan}, "advance: minutes must be finite, not nan"),
            ({"hours": math.inf}, "advance: hours must be finite, not inf"),
            ({"seconds": -2}, "advance: time does not go back by 2 s"),
        ]
        for keywords, text in wrong:
            with pytest.raises(fifo.InvalidArgument, match=f"^{text}"):
                await cluster.advance(**keywords)
        with pytest.raises(fifo.InvalidArgument, match="cut: 5 is not a client of this cluster"):
            cluster.cut(5)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(fifo.InvalidArgument, match="no node is called 'n0'; there are: n1, n2"):
            cluster.cut("n0")
        with pytest.raises(fifo.InvalidArgument, match="queue: 'orders' does not exist in this cl"):
            cluster.queue("orders")


async def test_the_time_of_a_closed_cluster_is_not_advanced() -> None:
    """Its time is that of people: a test that has left the block would wait for half an hour."""
    async with fifo.testing.cluster() as cluster:
        pass
    with pytest.raises(fifo.ClientClosed, match="advance: the cluster is closed"):
        await cluster.advance(minutes=31)
    with fifo.testing.cluster() as other:
        pass
    with pytest.raises(fifo.ClientClosed, match="the cluster of this process is closed"):
        other.advance(minutes=31)
