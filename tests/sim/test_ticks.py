"""The log of an idle cluster in virtual time: a tick every 10 s while anything waits, else nothing.

Whole nodes run for minutes in which no client does anything, and each commit is noted.
"""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

import fifo
from node.broker import limits
from tests.sim.plan import Plan
from tests.sim.run import until
from tests.sim.workload import Programs
from tests.sim.world import World
from tests.support import raft_probe

pytestmark = pytest.mark.slow

QUEUE = "work"
TICK_S = 10.0
"""The figure of semantics.md 2.6, on purpose not the constant of the node."""

WATCHED_S = 95.0
LOOK_S = 0.01
COMMIT_S = 0.1
"""Latest commit after its proposal in a simulated network without faults."""

RATE_ERROR = 1.02
"""The leader counts its 10 s by a clock of its own, which may be this much slower."""


class Idle:
    """A cluster whose one client publishes a message, and goes or stays."""

    def __init__(self, *, delay_s: float | None, stays: bool) -> None:
        self.delay_s = delay_s
        self.stays = stays
        self.world = World(Plan(1, 3, (), (), 3, ()))
        self.programs = Programs(self.world)
        self.done = False

    def commits(self) -> list[float]:
        """Seconds from the last command to each commit within WATCHED_S, 0 for its own first."""
        try:
            return self.world.loop.run_until_complete(self._main())
        finally:
            self.world.loop.finish()

    async def _main(self) -> list[float]:
        world = self.world
        for host in world.hosts.values():
            host.start()
        await until(world, world.leader, 10.0, "there is no leader")
        self.programs.start("publisher", self._publish)
        await until(world, lambda: self.done, 30.0, "the message is not published")
        began = world.loop.now
        index, found = self._committed(), [0.0]
        while world.loop.now - began < WATCHED_S:
            await asyncio.sleep(LOOK_S)
            if self._committed() != index:
                index = self._committed()
                found.append(world.loop.now - began)
        return found

    def _committed(self) -> int:
        leader = self.world.leader()
        assert leader is not None
        return raft_probe.running_raft(leader.node).commit_index

    async def _publish(self, name: str, rng: random.Random) -> None:
        client = await self.programs.connect(name, rng)
        await client.declare(fifo.QueueSpec(QUEUE))
        await client.publish(QUEUE, b"later", delay=self.delay_s)
        if not self.stays:
            await client.close()
        self.done = True
        await asyncio.Event().wait()


@pytest.mark.parametrize("stays", [True, False])
def test_while_a_message_waits_for_time_a_tick_is_committed_every_ten_seconds(stays: bool) -> None:
    found = Idle(delay_s=3600.0, stays=stays).commits()
    gaps = [later - earlier for earlier, later in pairwise(found)]
    assert max(gaps) <= TICK_S * RATE_ERROR + limits.LOOK_SECONDS + COMMIT_S
    assert min(gaps) >= TICK_S / RATE_ERROR, "a tick that no time asked for"
    assert len(gaps) == WATCHED_S // TICK_S


@pytest.mark.parametrize("stays", [True, False])
def test_a_cluster_in_which_nothing_waits_commits_nothing(stays: bool) -> None:
    assert Idle(delay_s=None, stays=stays).commits() == [0.0]
