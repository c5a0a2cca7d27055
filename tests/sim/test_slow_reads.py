"""Bodies that lie on the disk, and a disk that takes its time: only who wants them waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

import fifo
from fifo.wire.limits import PEEK_MESSAGES_MAX
from node.raft import RaftNode
from tests.sim.hosts import Host
from tests.sim.plan import Plan
from tests.sim.run import until
from tests.sim.workload import Programs
from tests.sim.world import World
from tests.support import raft_probe

pytestmark = pytest.mark.slow


DEEP, QUICK = "deep", "quick"
BODIES = [b"%03d" % number + bytes(1_000) for number in range(40)]
"""Ten times what the simulated nodes keep in memory."""

READ_SECONDS = 2.0
"""Several election timeouts, and within the patience of a client for its heartbeats."""

LATE_SECONDS = 0.3
"""Longer than a delivery of the other queue takes as a rule, shorter than an election."""

Main = Callable[[fifo.Client], Coroutine[Any, Any, None]]


class Scene:
    """Three nodes, a queue whose bodies lie on the disk, and another one that goes on."""

    def __init__(self) -> None:
        self.world = World(Plan(1, 3, (), (), 3, ()))
        self.programs = Programs(self.world)
        self.taken: list[bytes] = []
        self.late: list[float] = []
        self._running: list[str] = []

    def program(self, name: str, main: Main) -> None:
        """Run a client program on a machine of its own."""

        async def whole(name: str, rng: Any) -> None:
            client = await self.programs.connect(name, rng)
            await main(client)
            await client.close()
            self._running.remove(name)

        self._running.append(name)
        self.programs.start(name, whole)

    async def done(self, seconds: float = 30.0) -> None:
        """All programs have ended."""
        await until(self.world, lambda: not self._running, seconds, f"{self._running} do not end")

    def run(self, work: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
        """Fill the deep queue, then do `work` with the leader."""
        try:
            self.world.loop.run_until_complete(self._main(work))
        finally:
            self.world.loop.finish()

    async def _main(self, work: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
        for host in self.world.hosts.values():
            host.start()
        await until(self.world, self.world.leader, 10.0, "there is no leader")
        self.program("filler", self._fill)
        await self.done()
        leader = self.world.leader()
        assert leader is not None
        await work(leader)
        await self.done(60.0)
        assert self.world.leader() is leader
        assert self.world.counts["role leader"] == 1, "another node stood for election"

    async def _fill(self, client: fifo.Client) -> None:
        for name in (DEEP, QUICK):
            await client.declare(fifo.QueueSpec(name))
        for body in BODIES:
            await client.publish(DEEP, body)
        # What is new drives the last of them out of memory.
        for _ in range(10):
            await client.publish(QUICK, bytes(1_000))
        async with client.consume(QUICK, prefetch=10) as messages:
            async for message in messages:
                await message.ack()
                if message.token == 10:
                    return

    async def drain(self, client: fifo.Client) -> None:
        """Take the deep queue, in its order."""
        async with client.consume(DEEP, prefetch=20, lock=60.0) as messages:
            async for message in messages:
                self.taken.append(message.body)
                await message.ack()
                if len(self.taken) == len(BODIES):
                    return

    async def tell(self, client: fifo.Client, count: int) -> None:
        """Publish into the other queue now and then, and see how long each takes to arrive."""
        loop = self.world.loop
        async with client.consume(QUICK, prefetch=10) as consumer, asyncio.TaskGroup() as group:
            sent: dict[bytes, float] = {}

            async def take() -> None:
                async for message in consumer:
                    self.late.append(loop.now - sent[message.body])
                    await message.ack()
                    if len(self.late) == count:
                        return

            group.create_task(take())
            for number in range(count):
                body = b"%d" % number
                sent[body] = loop.now
                await client.publish(QUICK, body)
                await asyncio.sleep(0.1)


def a_slow_read_delays_no_other_client() -> None:
    """Neither heartbeats nor another queue's deliveries wait for a disk that reads for seconds."""
    scene = Scene()

    async def work(leader: Host) -> None:
        leader.slow_reads(READ_SECONDS)
        scene.program("reader", scene.drain)
        scene.program("teller", partial(scene.tell, count=100))

    scene.run(work)
    assert scene.taken == BODIES
    assert max(scene.late) < LATE_SECONDS
    assert scene.world.counts["read off the loop took time"] > 1
    assert "the loop waited for a read" not in scene.world.counts


def test_a_slow_read_delays_no_other_client() -> None:
    a_slow_read_delays_no_other_client()


def reads_on_the_loop() -> Any:
    """Read what a delivery needs on the loop, which blocks meanwhile."""
    return patch.object(RaftNode, "read_cached", RaftNode.read)


def test_with_reads_on_the_loop_every_client_waits() -> None:
    with reads_on_the_loop(), pytest.raises(AssertionError):
        a_slow_read_delays_no_other_client()


def test_a_peek_is_answered_when_all_of_it_was_read() -> None:
    scene = Scene()
    peeked: list[list[bytes]] = []

    async def look(client: fifo.Client) -> None:
        found = await client.peek(DEEP, PEEK_MESSAGES_MAX)
        peeked.append([message.body for message in found])

    async def work(leader: Host) -> None:
        leader.slow_reads(0.5)
        scene.program("looker", look)
        scene.program("teller", partial(scene.tell, count=20))

    scene.run(work)
    assert peeked == [BODIES]
    assert max(scene.late) < LATE_SECONDS
    assert "the loop waited for a read" not in scene.world.counts


def test_no_read_is_made_for_a_reader_that_left() -> None:
    scene = Scene()

    async def begin(client: fifo.Client) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(scene.drain(client), 0.5)

    async def work(leader: Host) -> None:
        leader.slow_reads(100.0)
        scene.program("first", begin)
        await scene.done()
        assert leader.node is not None
        assert not raft_probe.fetches_wait(raft_probe.running_raft(leader.node))
        leader.slow_reads(0.01)
        await asyncio.sleep(200.0)
        scene.program("second", scene.drain)

    scene.run(work)
    assert scene.taken == BODIES
