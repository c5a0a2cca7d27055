"""A lasting cut between clients and the leader, whose nodes see each other: the leader moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
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

PUBLISH_EACH_S = 0.5

LED_S = limits.LEADER_MOVE_SECONDS + 1.0
"""By then a leader may move."""

SERVED_AGAIN_S = 20.0
"""From the cut: two heartbeats of 2 s that a client waits, 3 s to be sure that it is no slow hello,
3 s that a follower waits, and the searches of a client, whose attempts take up to 3 s each."""

LASTS_S = 60.0


class Scene:
    """Three nodes, and clients that publish without end."""

    def __init__(self, seed: int, clients: int) -> None:
        self.world = World(Plan(seed, 3, (), (), 20, ()))
        self.programs = Programs(self.world)
        self.names = [f"w{place + 1}" for place in range(clients)]
        self.confirmed: dict[str, float] = {}
        """When the newest message of each client was confirmed."""

    def run(self, main: Callable[[Scene], object]) -> None:
        """Play it to its end."""
        try:
            self.world.loop.run_until_complete(self._main(main))
        finally:
            self.world.loop.finish()

    async def _main(self, main: Callable[[Scene], object]) -> None:
        for host in self.world.hosts.values():
            host.start()
        await until(self.world, self.world.leader, 10.0, "there is no leader")
        for name in self.names:
            self.programs.start(name, self._publish)
        await asyncio.sleep(LED_S)
        result = main(self)
        if asyncio.iscoroutine(result):
            await result

    async def _publish(self, name: str, rng: random.Random) -> None:
        client = await self.programs.connect(name, rng)
        await client.declare(fifo.QueueSpec(QUEUE))
        while True:
            try:
                await client.publish(QUEUE, b"x")
                self.confirmed[name] = self.world.loop.now
            except fifo.FifoError:
                pass
            await asyncio.sleep(PUBLISH_EACH_S)

    @property
    def leader(self) -> str:
        """The name of the leader."""
        host = self.world.leader()
        assert host is not None, "there is no leader"
        return host.name

    @property
    def term(self) -> int:
        """The newest term of a running node."""
        hosts = self.world.hosts.values()
        return max(raft_probe.running_raft(host.node).term for host in hosts)

    def cut(
        self, names: Sequence[str], node: str, *, there: bool = True, back: bool = True
    ) -> None:
        """Cut clients and a node off from each other, in either direction or both, for good."""
        for name in names:
            if there:
                self.world.network.cut(name, node)
            if back:
                self.world.network.cut(node, name)

    async def served(self, names: Sequence[str], seconds: float, what: str) -> None:
        """Wait until each of these clients has had a message confirmed from now on."""
        now = self.world.loop.now
        await until(
            self.world,
            lambda: all(self.confirmed.get(name, 0.0) > now for name in names),
            seconds,
            what,
        )


@pytest.mark.parametrize("way", ["both", "there", "back"])
def test_clients_that_reach_followers_only_are_served_within_twenty_seconds(way: str) -> None:
    async def main(scene: Scene) -> None:
        before = scene.leader
        scene.cut(scene.names, before, there=way != "back", back=way != "there")
        await asyncio.sleep(0.1)  # What was on its way has come.
        await scene.served(scene.names, SERVED_AGAIN_S, "a client is not served")
        assert scene.leader != before

    Scene(0, 3).run(main)


def test_the_leader_stays_where_the_cut_takes_a_minority_of_its_clients() -> None:
    async def main(scene: Scene) -> None:
        before, term = scene.leader, scene.term
        scene.cut(scene.names[:2], before)
        await asyncio.sleep(LASTS_S)
        await scene.served(scene.names[2:], 2.0, "who reaches the leader is not served")
        assert (scene.leader, scene.term) == (before, term)

    Scene(1, 5).run(main)


def test_clients_that_reach_different_nodes_move_the_leader_once_and_no_more() -> None:
    """The greater part is served: there is no node that all reach."""

    async def main(scene: Scene) -> None:
        before = scene.leader
        other, third = [name for name in scene.world.hosts if name != before]
        few, many = scene.names[:2], scene.names[2:]
        scene.cut(many, before)
        scene.cut(few, other)
        scene.cut(few, third)
        await asyncio.sleep(0.1)
        await scene.served(many, SERVED_AGAIN_S, "the greater part is not served")
        after, term = scene.leader, scene.term
        assert after != before
        await asyncio.sleep(LASTS_S)
        assert (scene.leader, scene.term) == (after, term)

    Scene(2, 5).run(main)


def test_a_cut_that_follows_the_leader_moves_it_twice_in_a_minute_at_most() -> None:
    async def main(scene: Scene) -> None:
        moved: list[float] = []
        for _ in range(3):
            term = scene.term
            scene.cut(scene.names, scene.leader)
            moves = partial(lambda term: scene.term > term, term)
            await until(scene.world, moves, 60.0, "the leader does not move")
            moved.append(scene.world.loop.now)
            scene.world.network.heal()
            await asyncio.sleep(0.1)
            await scene.served(scene.names, SERVED_AGAIN_S, "a client is not served")
        rates = 1.02  # of the nodes' clocks, at most
        least = limits.LEADER_MOVE_SECONDS / rates - 1.0
        assert all(later - earlier > least for earlier, later in pairwise(moved))

    Scene(3, 3).run(main)
