"""A run of a plan: start, faults, healing, draining, and the checks at the end.

Owns the order of a run and its deadlines.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from node.raft import RaftError
from node.server import NodeStopped
from tests.jepsen import checkers
from tests.sim.plan import FAULT_SECONDS, Plan, draw
from tests.sim.verbs import Verbal
from tests.sim.workload import DEAD, QUEUE, Programs
from tests.sim.world import World
from tests.sim.wrong_disks import REPAIRED_SECONDS
from tests.support import raft_probe

START_SECONDS = 10.0
LEADER_SECONDS = 10.0
"""After healing (V1)."""

SETTLED_SECONDS = 30.0
"""After that, for a change of the members to end, and for a lost journal to be got back."""

PUBLISHED_SECONDS = 60.0
"""After healing, for what was not published yet: one call's timeout and more."""

DRAIN_SECONDS = 90.0
"""After that (V3): the longest lock, with renewals, and the redeliveries behind it."""

CONVERGED_SECONDS = 30.0
"""Until all nodes are equal (V1)."""


def run(
    plan: Plan | int, *, tracing: bool = False, prepare: Callable[[World], None] | None = None
) -> World:
    """Run a plan, or the plan of a seed. Raises AssertionError where something does not hold."""
    world = World(draw(plan) if isinstance(plan, int) else plan, tracing=tracing)
    if prepare is not None:
        prepare(world)
    logged = logging.root.manager.disable
    logging.disable(logged if tracing else logging.CRITICAL)
    try:
        world.loop.run_until_complete(_main(world))
    except (NodeStopped, RaftError) as error:
        raise AssertionError(f"seed {world.plan.seed}: a node stopped: {error}") from error
    finally:
        logging.disable(logged)
        world.loop.finish()
    checkers.check(world.history, where=f"seed {world.plan.seed}: ")
    return world


async def _main(world: World) -> None:
    programs = Programs(world)
    for host in world.hosts.values():
        host.start()
    await until(world, world.leader, START_SECONDS, "V1: there is no leader at the start")
    programs.start("d1", programs.declare)
    await asyncio.sleep(0.2)
    mains: dict[str, Callable[[str, random.Random], Any]] = {
        f"c{place + 1}": partial(programs.consume, how=how)
        for place, how in enumerate(world.plan.consumers)
    }
    for place, count in enumerate(world.plan.producers):
        mains[f"p{place + 1}"] = partial(programs.publish, count=count)
    mains |= Verbal(programs).mains()
    for name, main in mains.items():
        programs.start(name, main)
    if world.operated:
        world.operator.start(programs)
    world.history.add("invoke", "nemesis", "nemesis", fault="plan", nodes=[])
    await _go_wrong(world)
    world.heal()
    world.history.add("ok", "nemesis", "nemesis", fault="heal", nodes=[])
    await until(world, world.leader, LEADER_SECONDS, "V1: there is no leader after healing")
    leader = world.leader()
    await until(world, world.settled, SETTLED_SECONDS, "V1: a change of the members does not end")
    leader = world.leader()
    assert leader is not None
    term = raft_probe.running_raft(leader.node).term
    world.history.add("ok", "leader", leader.name, node=leader.name, term=term)
    world.calm = True
    programs.restart_dead(mains)
    await until(
        world, lambda: not programs.publishing(), PUBLISHED_SECONDS, "V4: publishers do not end"
    )
    programs.start("d2", programs.drain)
    await until(world, partial(_empty, world), DRAIN_SECONDS, "V3: the queues do not drain")
    await until(world, lambda: world.drained, DRAIN_SECONDS, "V4: the drain does not end")
    await until(
        world, world.checks.converged, CONVERGED_SECONDS, "V1: the nodes do not become equal"
    )
    await until(world, world.disks.mended, REPAIRED_SECONDS, "damage on a disk is not mended")
    world.checks.at_rest()


async def _go_wrong(world: World) -> None:
    began = 0.0
    for fault in world.plan.faults:
        await asyncio.sleep(max(0.0, fault.at - world.loop.now))
        world.act(fault)
    await asyncio.sleep(max(0.0, began + FAULT_SECONDS - world.loop.now))


def _empty(world: World) -> bool:
    leader = world.leader()
    if leader is None or leader.running is None:
        return False
    machine = leader.running.broker.host.machine
    found = [machine.queue_overview(name) for name in (QUEUE, DEAD)]
    return all(one is not None and one["messages"] == 0 for one in found)


async def until(world: World, true: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until something is so."""
    deadline = world.loop.now + seconds
    while not true():
        if world.loop.now > deadline:
            world.fail(f"{what} ({seconds:g} s)")
        if world.healed:
            world.checks.on_time()
        await asyncio.sleep(0.02)
