"""Locks that end one after the other: they cost the log an entry per look, and no more."""

from __future__ import annotations

import asyncio
import random

import pytest

import fifo
from fifo.machine import Machine
from node.broker import limits
from tests.sim.plan import Plan
from tests.sim.run import until
from tests.sim.workload import Programs
from tests.sim.world import World
from tests.support import raft_probe

QUEUE = "work"
LOCKS = 300
LOCK_SECONDS = 6.0
APART_SECONDS = 0.01
"""Between two checkouts, and so between two deadlines: five of them in each look's window."""

SESSIONS = 3


class Scene:
    """Programs that hold locks with a deadline each, and then only wait."""

    def __init__(self, timeout_backoff: str | None = None) -> None:
        self.spec = fifo.QueueSpec(QUEUE, lock=LOCK_SECONDS, timeout_backoff=timeout_backoff)
        self.world = World(Plan(1, 3, (), (), 3, ()))
        self.programs = Programs(self.world)
        self.subscribed = 0
        self.declared = False
        self.unacknowledged: list[int] = []
        self.published_at: list[float] = []

    def run(self) -> tuple[int, float]:
        """(entries committed while the locks ended one after the other, seconds that it took)."""
        try:
            return self.world.loop.run_until_complete(self._main())
        finally:
            self.world.loop.finish()

    async def _main(self) -> tuple[int, float]:
        world = self.world
        for host in world.hosts.values():
            host.start()
        await until(world, world.leader, 10.0, "there is no leader")
        self.programs.start("publisher", self._publish)
        await until(world, lambda: self.declared, 10.0, "the queue is not declared")
        for place in range(SESSIONS):
            self.programs.start(f"holder{place}", self._hold)
        await until(world, lambda: len(self.published_at) == LOCKS, 30.0, "not all is published")
        before = self._committed()
        began = self.published_at[0] + LOCK_SECONDS
        assert world.loop.now < began, "no lock has ended yet"
        await until(world, self._all_ended, 30.0, "not all locks end")
        await asyncio.sleep(2 * limits.LOOK_SECONDS)
        self.unacknowledged = self._kept_notices()
        return self._committed() - before, world.loop.now - began

    def _committed(self) -> int:
        leader = self.world.leader()
        assert leader is not None
        return raft_probe.running_raft(leader.node).commit_index

    def _all_ended(self) -> bool:
        found = self._machine().queue_overview(QUEUE)
        return found is not None and found["counters"]["lock_timeouts"] == LOCKS

    def _machine(self) -> Machine:
        leader = self.world.leader()
        assert leader is not None
        assert leader.running is not None
        return leader.running.broker.host.machine

    def _kept_notices(self) -> list[int]:
        """The notices that the replicated state keeps for any session."""
        machine = self._machine()
        views = [machine.session_view(number) for number in machine.session_numbers()]
        return [number for view in views if view is not None for number in view["notices"]]

    async def _publish(self, name: str, rng: random.Random) -> None:
        client = await self.programs.connect(name, rng)
        await client.declare(self.spec)
        self.declared = True
        await until(self.world, lambda: self.subscribed == SESSIONS, 10.0, "no consumers")
        for _ in range(LOCKS):
            await client.publish(QUEUE, b"x")
            self.published_at.append(self.world.loop.now)
            await asyncio.sleep(APART_SECONDS)

    async def _hold(self, name: str, rng: random.Random) -> None:
        client = await self.programs.connect(name, rng)
        consumer = client.consume(QUEUE, prefetch=LOCKS, auto_renew=False)
        await consumer.subscribe()
        self.subscribed += 1
        await asyncio.Event().wait()


@pytest.mark.slow
def test_expiries_that_trickle_cost_one_entry_per_look() -> None:
    scene = Scene()
    entries, seconds = scene.run()
    assert seconds >= LOCKS * APART_SECONDS, "the locks did not end one after the other"
    # One more for both ends of the time, and one for the acknowledgements behind the last expiry.
    assert entries <= seconds / limits.LOOK_SECONDS + 2
    assert scene.unacknowledged == []


@pytest.mark.slow
def test_expiries_beside_other_due_work_cost_little_more() -> None:
    """Returned with a backoff, they fall due as they end: an entry more per second for acks."""
    scene = Scene(timeout_backoff="fixed:200ms")
    entries, seconds = scene.run()
    assert entries <= seconds / limits.LOOK_SECONDS + seconds / limits.NOTICE_ACK_SECONDS + 1
