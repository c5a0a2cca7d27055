"""A worker with renewed locks, and a leader that is paused, killed, cut off or without power.

Owns the scene: three nodes, a worker that holds many messages, another that would take any that
comes back, one fault of the leader. A run returns what happened to the locks.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import fifo
from fifo.wire import limits
from node.testing.network import Network
from tests.sim.hosts import Host
from tests.sim.plan import Plan
from tests.sim.run import until
from tests.sim.workload import Programs
from tests.sim.world import World

QUEUE = "held"

LOCKS = 100

MAX_LOCK_S = 600.0
"""Renewals end after this, which no run reaches."""

LOCK_SECONDS = (2.0, 3.0, 5.0)

HELD_AFTER_S = 4.0
"""The worker works on for two locks of 2 s after the fault has ended."""


@dataclass
class Held:
    """The outcome of a run."""

    attempts: list[int] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    dialed: int = 0
    """Connections that the worker tried to open after it held all its locks."""


End = Callable[[], object]
Fault = Callable[["Scene", Host], End]
"""Hits the leader, and returns what ends it."""


def nothing(scene: Scene, leader: Host) -> End:
    """No fault."""
    return lambda: None


def pause(scene: Scene, leader: Host) -> End:
    """Stop the leader as SIGSTOP does."""
    program = leader.program
    assert program is not None
    program.pause()
    return program.resume


def kill(scene: Scene, leader: Host) -> End:
    """End the leader as SIGKILL does; it starts again."""
    leader.kill()
    return leader.start


def power(scene: Scene, leader: Host) -> End:
    """Take the leader's power: its connections are silent, and no dial is answered."""
    leader.lose_power(leader.world.rng)
    return leader.start


def cut(scene: Scene, leader: Host) -> End:
    """Cut the leader off from the other nodes; its clients still reach it."""
    network: Network = scene.world.network
    for name in scene.world.hosts:
        if name != leader.name:
            network.cut(name, leader.name)
            network.cut(leader.name, name)
    return network.heal


def abandon(scene: Scene, leader: Host) -> End:
    """End the connections of the others to the leader, which sees nothing of that; its clients
    still reach it."""
    network: Network = scene.world.network
    network.abandon(leader.name, [name for name in scene.world.hosts if name != leader.name])
    return network.heal


def pause_client(scene: Scene, leader: Host) -> End:
    """Stop the worker, for less than its locks have left."""
    program = scene.world.programs["w1"]
    program.pause()
    scene.world.loop.after(2.5, program.resume)
    return program.resume


FAULTS: dict[str, Fault] = {
    "pause": pause,
    "kill": kill,
    "power": power,
    "cut": cut,
    "abandon": abandon,
}

"""Of the leader: none of them may cost a lock."""

OTHERS: dict[str, Fault] = {"nothing": nothing, "client pause": pause_client}
"""Of no node: none of them may open a connection."""


class Scene:
    """A run. `fault` hits the leader at some point between two renewals."""

    def __init__(self, seed: int, fault: Fault, lock_s: float) -> None:
        self.world = World(Plan(seed, 3, (), (), 20, ()))
        self.programs = Programs(self.world)
        self.rng = random.Random(f"held locks {seed}")
        self.lock_s = lock_s
        self.fault = fault
        self.held: list[Any] = []
        self.found = Held()
        self._release = asyncio.Event()
        self._done = 0

    def run(self) -> Held:
        """Play it to its end."""
        try:
            self.world.loop.run_until_complete(self._main())
        finally:
            self.world.loop.finish()
        return self.found

    async def _main(self) -> None:
        world = self.world
        for host in world.hosts.values():
            host.start()
        await until(world, world.leader, 10.0, "there is no leader")
        self.programs.start("w1", self._work)
        await until(world, lambda: len(self.held) == LOCKS, 20.0, "the worker got too few")
        self.programs.start("w2", self._lurk)
        await asyncio.sleep(0.5 + self.rng.random() * self.lock_s)
        before = world.network.dialed.get("w1", 0)
        leader = world.leader()
        assert leader is not None
        end = self.fault(self, leader)
        await asyncio.sleep(self.rng.choice((0.3, 0.8, 1.5, 3.0, 6.0)) * (0.5 + self.rng.random()))
        end()
        await asyncio.sleep(HELD_AFTER_S)
        self.found.dialed = world.network.dialed.get("w1", 0) - before
        self._release.set()
        await until(world, lambda: self._done, 40.0, "the worker does not end")
        for event in world.history.events:
            if event["f"] == "checkout":
                self.found.attempts.append(event["value"]["attempt"])

    async def _work(self, name: str, rng: random.Random) -> None:
        client = await self.programs.connect(name, rng, heartbeat_s=limits.HEARTBEAT_MS / 1000)
        await client.declare(fifo.QueueSpec(QUEUE))
        for number in range(LOCKS):
            await client.publish(QUEUE, b"%d" % number)
        async with client.consume(
            QUEUE, prefetch=LOCKS, lock=self.lock_s, max_lock=MAX_LOCK_S
        ) as consumer:
            while len(self.held) < LOCKS:
                self.held.append(await consumer.next(timeout=5.0))
            await self._release.wait()
            await asyncio.gather(*[self._ack(message) for message in self.held])
        await client.close()
        self._done = 1

    async def _ack(self, message: Any) -> None:
        try:
            status = str((await message.ack(receipt=True)).status)
        except fifo.FifoError as error:
            status = type(error).__name__
        self.found.statuses[status] = self.found.statuses.get(status, 0) + 1

    async def _lurk(self, name: str, rng: random.Random) -> None:
        """Take whatever comes back."""
        client = await self.programs.connect(name, rng)
        async for message in client.consume(QUEUE, prefetch=LOCKS, lock=60.0):
            await message.ack()


def hold(seed: int, fault: str, lock_s: float) -> Held:
    """Run a seed with this fault of the leader."""
    return Scene(seed, {**FAULTS, **OTHERS}[fault], lock_s).run()


def wrong(seed: int, fault: str, lock_s: float) -> str | None:
    """Run it, and describe what broke; None where nothing did."""
    found = hold(seed, fault, lock_s)
    again = [attempt for attempt in found.attempts if attempt > 1]
    if again or found.statuses != {"ok": LOCKS}:
        return (
            f"seed {seed}, {fault}, locks of {lock_s:g} s: {len(again)} messages were handed out"
            f" again, and acks ended {found.statuses}"
        )
    return None


def any_fault(seed: int) -> str | None:
    """Run the fault and the locks of this seed: all of them in turn."""
    fault = list(FAULTS)[seed % len(FAULTS)]
    return wrong(seed, fault, LOCK_SECONDS[seed // len(FAULTS) % len(LOCK_SECONDS)])
