"""Renewals by the program itself: they keep the lock, and cost the log nothing."""

from __future__ import annotations

import asyncio
import random

import fifo
from tests.sim.plan import Plan
from tests.sim.run import until
from tests.sim.workload import Programs
from tests.sim.world import World
from tests.support import raft_probe

QUEUE = "work"
LOCK_SECONDS = 5.0
RENEWALS = 20
APART_SECONDS = 1.0
"""Between two renewals: all of them outlast the lock four times."""


def test_explicit_renewals_of_a_held_lock_commit_nothing() -> None:
    world = World(Plan(1, 3, (), (), 3, ()))
    programs = Programs(world)
    committed: list[int] = []

    def note() -> None:
        leader = world.leader()
        assert leader is not None, "there is no leader"
        committed.append(raft_probe.running_raft(leader.node).commit_index)

    async def renew(name: str, rng: random.Random) -> None:
        client = await programs.connect(name, rng)
        await client.declare(fifo.QueueSpec(QUEUE, lock=LOCK_SECONDS))
        await client.publish(QUEUE, b"x")
        async with client.consume(QUEUE, auto_renew=False) as messages:
            message = await anext(messages)
            note()
            for _ in range(RENEWALS):
                await message.renew()
                await asyncio.sleep(APART_SECONDS)
            assert not message.is_lost
            note()

    async def main() -> None:
        for host in world.hosts.values():
            host.start()
        await until(world, world.leader, 10.0, "there is no leader")
        programs.start("worker", renew)
        seconds = 2 * RENEWALS * APART_SECONDS
        await until(world, lambda: len(committed) == 2, seconds, "not all is renewed")

    try:
        world.loop.run_until_complete(main())
    finally:
        world.loop.finish()
    # While anything waits for time, a tick comes every 10 s (semantics.md 2.6).
    assert committed[1] - committed[0] <= RENEWALS * APART_SECONDS / 10 + 1
