"""Answers from the leader's memory wait for a majority's answer, whatever its lease says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from node.raft import RaftNode
from node.server import Node
from tests.sim.plan import Plan
from tests.sim.run import until
from tests.sim.world import World
from tests.support import raft_probe


def _with_leader(scene: Callable[[World, Node, RaftNode], Coroutine[Any, Any, None]]) -> None:
    """Play a scene with three nodes, one of which has led for a while."""
    world = World(Plan(1, 3, (), (), 3, ()))

    async def main() -> None:
        for host in world.hosts.values():
            host.start()
        await until(world, world.leader, 10.0, "there is no leader")
        await asyncio.sleep(1.0)
        leader = world.leader()
        assert leader is not None
        node = leader.running
        assert node is not None
        await scene(world, node, raft_probe.running_raft(node))

    try:
        world.loop.run_until_complete(main())
    finally:
        world.loop.finish()


def _asked(node: Node) -> list[bool]:
    """Ask whether answers are current now; the list has the outcome once there is one."""
    found: list[bool] = []
    leadership = node.broker.leadership
    assert leadership is not None
    leadership.reads.ask(found.append)
    return found


def test_a_question_is_decided_within_a_round_trip() -> None:
    async def scene(world: World, node: Node, raft: RaftNode) -> None:
        asked = [_asked(node) for _ in range(20)]
        sent_before = world.network.bytes
        await asyncio.sleep(8 * world.network.latency_s)
        assert asked == [[True]] * 20
        assert world.network.bytes - sent_before < 4_000, "one round serves them all"

    _with_leader(scene)


def test_a_leader_that_is_cut_off_answers_nothing_though_its_lease_holds() -> None:
    async def scene(world: World, node: Node, raft: RaftNode) -> None:
        for name in world.hosts:
            if name != node.me.name:
                world.network.cut(name, node.me.name)
        asked = _asked(node)
        await asyncio.sleep(0.2)
        leadership = node.broker.leadership
        assert leadership is not None
        assert leadership.may_grant()
        assert asked == []
        world.network.heal()
        await asyncio.sleep(0.1)
        assert asked == [True]

    _with_leader(scene)


def test_a_question_ends_with_the_term() -> None:
    async def scene(world: World, node: Node, raft: RaftNode) -> None:
        for name in world.hosts:
            if name != node.me.name:
                world.network.cut(node.me.name, name)
        asked = _asked(node)
        await asyncio.sleep(1.2)
        assert not raft.is_leader
        assert asked == [False]

    _with_leader(scene)
